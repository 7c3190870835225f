// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conformance table with clang: the programs of the crate `gomp`, and those here that are about what clang emits and gcc does not. Most pass
//! on LLVM's runtime as well, which is checked; of others it is said where they stand.

mod reached;
#[path = "../../gomp/tests/support/mod.rs"]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Toolchain, command, run};

static CLANG: Toolchain = Toolchain::new("clang-19", "clang++-19", "wakeful-kmp", "libgomp_wakeful.so");

/// Runs a program of the table.
fn conforms(name: &str, settings: &[(&str, &str)]) {
    let program = CLANG.compile(name, &[]);
    if let Err(wrong) = run(&mut command(&program, 2, settings)) {
        panic!("{name} asks for more than the compiler's own runtime gives: {wrong}");
    }
    CLANG.check(name, &program, settings);
}

/// Runs one with which LLVM's runtime does not get by.
fn conforms_alone(name: &str, options: &[&OsStr], settings: &[(&str, &str)]) {
    CLANG.check(name, &CLANG.compile(name, options), settings);
}

#[test]
fn parallel() {
    conforms("parallel.c", &[]);
}

#[test]
fn system_calls() {
    CLANG.counts_calls();
}

/// LLVM's runtime gives `lastprivate` to the wrong iteration now and then.
#[test]
fn loops() {
    conforms_alone("loops.c", &[], &[]);
}

/// Large atomic variables are libatomic's, which clang does not link.
#[test]
fn worksharing() {
    let place = Command::new("gcc").arg("-print-file-name=libatomic.so").output().unwrap().stdout;
    let place = String::from_utf8(place).unwrap();
    conforms_alone("worksharing.c", &[place.trim().as_ref()], &[]);
}

#[test]
fn nested() {
    conforms("nested.c", &[]);
}

/// LLVM's runtime has places where nobody has asked for any.
#[test]
fn routines() {
    conforms_alone("routines.c", &[], &[]);
}

#[test]
fn tasks() {
    conforms("tasks.c", &[]);
}

#[test]
fn priorities() {
    conforms("tasks.c", &[("OMP_MAX_TASK_PRIORITY", "10")]);
    conforms("detach.c", &[("OMP_MAX_TASK_PRIORITY", "10")]);
}

#[test]
fn detach() {
    conforms("detach.c", &[]);
}

/// LLVM's runtime ends the program by an assertion.
#[test]
fn cancel() {
    conforms_alone("cancel.c", &[], &[]);
}

/// LLVM's runtime hangs.
#[test]
fn cancelled() {
    conforms_alone("cancelled.c", &[], &[]);
}

#[test]
fn destructors() {
    conforms("destructors.cc", &[]);
}

/// LLVM's runtime keeps all.
#[test]
fn depend() {
    conforms_alone("depend.c", &[], &[]);
}

#[test]
fn doacross() {
    conforms("doacross.c", &[]);
}

/// Linked with our library, which has the routines for memory of devices as well.
#[test]
fn device() {
    conforms_alone("device.c", &[CLANG.library().as_os_str()], &[]);
}

#[test]
fn target() {
    conforms("target.cc", &[]);
}

/// LLVM's runtime ends the program by an assertion.
#[test]
fn memory() {
    conforms_alone("memory.c", &[], &[]);
}

#[test]
fn schedule() {
    conforms("schedule.c", &[]);
}

/// LLVM's runtime does not cancel the group around a loop.
#[test]
fn order() {
    conforms_alone("order.c", &[], &[]);
}

#[test]
fn everything() {
    let version = OsStr::new("-fopenmp-version=51");
    let program = CLANG.compile("everything.c", &[version]);
    run(&mut command(&program, 2, &[])).unwrap();
    CLANG.check("everything.c", &program, &[]);
}

/// LLVM's runtime ends the program.
#[test]
fn starved() {
    conforms_alone("starved.c", &["-ldl".as_ref()], &[]);
}

/// LLVM's runtime ends the program.
#[test]
fn short() {
    CLANG.runs_short(&[]);
}

/// The same, with `threadprivate` by the runtime.
#[test]
fn short_without_thread_local_variables() {
    CLANG.runs_short(&["-fnoopenmp-use-tls".as_ref()]);
}

/// Members say where they are on the standard output, once.
#[test]
fn displays() {
    let program = CLANG.compile("displays.c", &[]);
    let settings = [("OMP_DISPLAY_AFFINITY", "true"), ("OMP_AFFINITY_FORMAT", "at %n of %N")];
    let own = support::streams(&mut command(&program, 2, &settings));
    let ours = support::streams(&mut CLANG.on_ours(&program, 2, &settings));
    assert_eq!(ours, own);
    assert!(ours.0.contains("at 2 of 3"), "{ours:?}");
    fs::remove_file(program).unwrap();
}

/// As for `starved`.
#[test]
fn stack() {
    let program = CLANG.compile("parallel.c", &[]);
    let said = run(&mut CLANG.on_ours(&program, 4, &[("OMP_STACKSIZE", "1000000g")])).unwrap();
    assert_eq!(said.matches("OMP_STACKSIZE").count(), 1, "{said}");
    fs::remove_file(program).unwrap();
}

/// Who brings a tool is told that it is not called.
#[test]
fn tool() {
    let program = CLANG.compile("tool.c", &["-rdynamic".as_ref()]);
    let said = run(&mut CLANG.on_ours(&program, 2, &[])).unwrap();
    assert!(said.contains("tools are not called"), "{said}");
    assert_eq!(run(&mut CLANG.on_ours(&program, 2, &[("OMP_TOOL", "disabled")])).unwrap(), "");
    fs::remove_file(program).unwrap();
    let program = CLANG.compile("parallel.c", &[]);
    let said = run(&mut CLANG.on_ours(&program, 2, &[("OMP_TOOL_LIBRARIES", "/a/tool.so")])).unwrap();
    assert!(said.contains("tools are not called"), "{said}");
    fs::remove_file(program).unwrap();
}

#[test]
fn places() {
    conforms("places.c", &[("OMP_PLACES", "threads")]);
}

/// LLVM's runtime leaves iterations out.
#[test]
fn directives() {
    conforms_alone("directives.c", &[], &[]);
}

/// As for `loops`.
#[test]
fn objects() {
    conforms_alone("objects.cc", &[], &[]);
}

/// As for `device`.
#[test]
fn api() {
    conforms_alone("api.c", &[CLANG.library().as_os_str()], &[]);
}

#[test]
fn environment() {
    conforms_alone("environment.c", &[], &[]);
}

/// What the environment says means what it does on LLVM's runtime.
#[test]
fn variables() {
    let own: &[&[(&str, &str)]] = &[
        &[("OMP_CANCELLATION", "1")],
        &[("OMP_CANCELLATION", "off")],
        &[("OMP_DYNAMIC", ".true.")],
        &[("OMP_MAX_ACTIVE_LEVELS", "1"), ("OMP_DYNAMIC", "no")],
        &[("OMP_PROC_BIND", "1")],
        &[("OMP_SCHEDULE", "auto,4")],
    ];
    CLANG.agrees("variables.c", own);
}

/// LLVM's runtime knows some of these functions in leagues only.
#[test]
fn llvm() {
    conforms_alone("llvm.c", &[], &[]);
}

/// `threadprivate` by the runtime.
#[test]
fn without_thread_local_variables() {
    let option = OsStr::new("-fnoopenmp-use-tls");
    conforms_alone("parallel.c", &[option], &[]);
    conforms_alone("objects.cc", &[option], &[]);
}

#[test]
fn exceptions() {
    conforms("exceptions.cc", &[]);
}

/// What must not hang.
#[test]
fn faults() {
    let program = CLANG.compile("faults.c", &[]);
    for what in ["fork", "exit", "large", "nested", "signal", "threads"] {
        if let Err(wrong) = run(CLANG.on_ours(&program, 4, &[]).arg(what)) {
            panic!("{what}: {wrong}");
        }
    }
    fs::remove_file(program).unwrap();
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Found under libomp's name; `OMP_DISPLAY_ENV` shows whose runtime it is.
#[test]
fn by_name() {
    let program = CLANG.compile("parallel.c", &[]);
    let folder = folder("by-name");
    symlink(CLANG.library(), folder.join("libomp.so.5")).unwrap();
    let settings = [("OMP_DISPLAY_ENV", "verbose")];
    let said = run(command(&program, 2, &settings).env("LD_LIBRARY_PATH", &folder)).unwrap();
    assert!(said.contains("WAKEFUL_PROCESSORS"), "{said}");
    fs::remove_dir_all(folder).unwrap();
    fs::remove_file(program).unwrap();
}

/// `docs/openmp.md` says of each construct which program has it: it does, and the tests with both compilers run that.
#[test]
fn table() {
    let root = support::programs().join("../../../..");
    let read = |path: PathBuf| {
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let tests =
        ["gomp", "kmp"].map(|folder| read(root.join("crates").join(folder).join("tests/programs.rs")));
    let is_there = |source: &str, word: &str| {
        let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
        source
            .match_indices(word)
            .any(|(at, _)| !word.ends_with(char::is_alphanumeric) || ends(&source[at + word.len()..]))
    };
    let table = read(root.join("docs/openmp.md"));
    let mut words = 0;
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [what, program, gcc, clang] = cells[..] else { panic!("not four cells: {row}") };
        for (compiler, tests) in [(gcc, &tests[0]), (clang, &tests[1])] {
            let passes = compiler == "passes" && tests.contains(&format!("\"{program}\""));
            assert!(passes || compiler.starts_with("missing: "), "no test runs this: {row}");
        }
        let source = read(support::programs().join(program));
        for word in what.split('`').skip(1).step_by(2) {
            assert!(is_there(&source, word), "`{word}` is not in {program}");
            words += 1;
        }
    }
    assert!(words > 150, "{words} words in the table");
}
