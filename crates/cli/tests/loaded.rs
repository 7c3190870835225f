// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libraries, opened by a program that runs already, and closed again (`tests/c/loaded.c`). Their
//! thread-local variables come out of what the C library keeps for such libraries, 1,664 bytes, and all fit
//! together.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Package and library: those of which one program may have all.
const LIBRARIES: [(&str, &str); 6] = [
    ("wakeful-preload", "libwakeful_preload.so"),
    ("wakeful-profile", "libwakeful_profile.so"),
    ("wakeful-malloc", "libwakeful_malloc.so"),
    ("wakeful-gomp", "libwakeful_gomp.so"),
    ("wakeful-kmp", "libgomp_wakeful.so"),
    ("wakeful-capi", "libwakeful.so"),
];

/// Where the command is, the libraries are as well once they are built.
fn libraries() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_BIN_EXE_wakeful")).parent().unwrap();
    let profile = folder.file_name().unwrap().to_str().unwrap();
    let built = |(package, name): (&str, &str)| {
        let library = folder.join(name);
        if !library.exists() {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--package", package, "--target-dir"]).arg(folder.parent().unwrap());
            build.args(["--profile", if profile == "debug" { "dev" } else { profile }]);
            assert!(build.status().unwrap().success(), "cargo build of {name} failed");
        }
        library
    };
    LIBRARIES.map(built).to_vec()
}

#[test]
fn a_program_of_twenty_threads_opens_and_closes_them() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("loaded");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/loaded.c");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    assert!(compile.args([&program, &source]).status().expect("a C compiler").success());
    let all = libraries();
    let each = all.iter().map(std::slice::from_ref);
    for libraries in each.chain([&all[..]]) {
        let mut run = Command::new(&program);
        for name in ["LD_PRELOAD", "GLIBC_TUNABLES", "WAKEFUL_NUMA", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT"] {
            run.env_remove(name);
        }
        let output = run.args(libraries).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{libraries:?}: {}\n{error}", output.status);
        // Two members a region of 20 threads, in two rounds. The profile has no runtime of its own: one.
        let count =
            |part: &str| libraries.iter().filter(|path| path.to_string_lossy().contains(part)).count();
        let members = 2 * count("gomp") + count("libwakeful_profile");
        assert_eq!(output.stdout, format!("{}\n", members * 20 * 2).as_bytes(), "{libraries:?}");
    }
}
