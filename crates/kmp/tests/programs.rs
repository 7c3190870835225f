// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conformance table with clang: the programs of the crate `omp`, and those here that are about what clang emits and gcc does not. Most pass
//! on LLVM's runtime as well, which is checked; of others it is said where they stand.

#[path = "../../omp/tests/support/mod.rs"]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Toolchain, command, run};

static CLANG: Toolchain = Toolchain::new("clang-19", "clang++-19", "wakeful-kmp", "libwakeful_omp.so");

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
fn places() {
    conforms("places.c", &[("OMP_PLACES", "threads")]);
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
