// SPDX-License-Identifier: MIT OR Apache-2.0
//! A C program on this `malloc`: asked for in each way, and not at all.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use numa::{Heap, Here, Kernel};

const NUMA: &str = linux::environment::NUMA.name();

/// A library of the profile that the tests are built in. Cargo builds it for `cargo test`, but promises no
/// place for it.
fn library(package: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let name = format!("lib{}.so", package.replace('-', "_"));
    let near = deps.join(&name);
    if near.exists() {
        return near;
    }
    let folder = deps.parent().unwrap();
    let profile = folder.file_name().and_then(OsStr::to_str).unwrap();
    let profile = if profile == "debug" { "dev" } else { profile };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--package", package, "--profile", profile, "--target-dir"]);
    assert!(build.arg(folder.parent().unwrap()).status().unwrap().success(), "cargo build failed");
    folder.join(name)
}

fn program() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/malloc.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("malloc");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-g", "-pthread", "-Wall", "-Werror", "-fno-builtin", "-o"]);
    assert!(compile.args([&program, &source]).status().unwrap().success(), "cc {}", source.display());
    program
}

/// What it prints, preloaded with these, asked for so.
fn run(program: &Path, preloaded: &[&Path], asked: Option<&str>, wanted: &str) -> String {
    let mut command = Command::new(program);
    let preload: Vec<&str> = preloaded.iter().map(|path| path.to_str().unwrap()).collect();
    command.arg(wanted).env("LD_PRELOAD", preload.join(":"));
    if let Some(asked) = asked {
        command.env(NUMA, asked);
    }
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{asked:?}: {}\n{error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_program_has_its_memory_where_it_is_asked_for() {
    let (program, ours, locks) = (program(), library("wakeful-malloc"), library("wakeful-preload"));
    let ours = ours.as_path();
    const WELL: &str = "all well\n";
    assert_eq!(run(&program, &[], Some("0"), "-1"), WELL);
    for asked in [None, Some(""), Some("nonsense"), Some("-1"), Some("100000"), Some("servers")] {
        assert_eq!(run(&program, &[ours], asked, "-1"), WELL, "{asked:?}");
    }
    // As far as this kernel lets memory be bound.
    let bound = Heap::on(0).unwrap().bound().is_ok();
    if !bound {
        println!("this kernel binds no memory: only that the default goes on is tested");
    }
    let node = if bound { "0" } else { "-1" };
    assert_eq!(run(&program, &[ours], Some("0"), node), WELL);
    assert_eq!(run(&program, &[ours, &locks], Some("0"), node), WELL, "with the interposer");
    assert_eq!(run(&program, &[&locks, ours], Some("0"), node), WELL, "the other way round");
    let server = if bound { Here.home().map_or(-1, |node| node as i32) } else { -1 };
    let wanted = format!("with a server: {server}\n{WELL}");
    assert_eq!(run(&program, &[ours], Some("servers"), "servers"), wanted);
    assert_eq!(run(&program, &[ours], Some("servers"), "limited"), wanted);
}
