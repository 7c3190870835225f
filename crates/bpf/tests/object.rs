// SPDX-License-Identifier: MIT OR Apache-2.0
//! The committed object is what its source compiles to.

use std::path::Path;
use std::process::Command;
use std::{fs, io::ErrorKind};

use sha2::{Digest, Sha256};

const REMEDY: &str = "run crates/bpf/compile and commit what it writes";

/// The programs, and of how many files each has a record.
const PROGRAMS: [(&str, usize); 2] = [("observer", 5), ("scheduler", 6)];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn hash(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn record_agrees_with_source_and_object() {
    for (program, files) in PROGRAMS {
        let record = fs::read_to_string(root().join(format!("src/bpf/{program}.sum"))).unwrap();
        let mut seen = 0;
        for line in record.lines() {
            let (sum, name) = line.split_once("  ").expect("sum, two spaces, name");
            let path =
                if name.ends_with(".bpf.o") { root().join("src/bpf").join(name) } else { root().join(name) };
            assert_eq!(hash(&path), sum, "{name} has changed since the object was compiled; {REMEDY}");
            seen += 1;
        }
        assert_eq!(seen, files, "{program}: its sources and the object");
    }
}

#[test]
fn source_compiles_to_object() {
    match Command::new("clang-19").arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skipped("no clang-19 here; only the recorded sums were compared");
            return;
        }
        other => assert!(other.unwrap().status.success()),
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(root().join("compile")).arg(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (program, _) in PROGRAMS {
        let object = format!("{program}.bpf.o");
        let fresh = fs::read(directory.path().join(&object)).unwrap();
        let kept = fs::read(root().join("src/bpf").join(&object)).unwrap();
        assert!(fresh == kept, "the committed {object} is not what the source compiles to; {REMEDY}");
    }
}

/// What the application writes is an index in the kernel: each is masked, or a processor that guesses would go beyond the arena with it.
#[test]
fn what_an_application_writes_is_masked() {
    for (program, _) in PROGRAMS {
        let object = fs::read(root().join(format!("src/bpf/{program}.bpf.o"))).unwrap();
        // `and` of a register with a constant, with 32 or 64 bits.
        let masks = |size: u32| {
            let and = |code: &&[u8]| matches!(code[0], 0x54 | 0x57) && code[4..] == (size - 1).to_le_bytes();
            object.chunks_exact(8).filter(and).count()
        };
        assert!(masks(abi::MAX_THREADS as u32) >= 2, "{program}: {}", masks(abi::MAX_THREADS as u32));
        assert!(masks(abi::PRIORITIES as u32) >= 1, "{program}: {}", masks(abi::PRIORITIES as u32));
    }
}

#[cfg(feature = "load")]
#[path = "../examples/loader.rs"]
mod loader;

#[cfg(feature = "load")]
#[test]
fn object_is_loaded_by_the_loader_that_is_kept() {
    let kept = fs::read(root().join("src/bpf/observer.loader")).unwrap();
    assert!(kept == loader::generate().unwrap(), "as examples/loader.rs says: make it again, and commit it");
}

/// Says so on the terminal even though the harness keeps what a test prints.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
