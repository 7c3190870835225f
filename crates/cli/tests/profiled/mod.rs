// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of `wakeful profile` have in common: programs to compile, and the report's records.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub const LIBRARY: &str = "libwakeful_profile.so";

pub fn folder() -> tempfile::TempDir {
    let folder = Path::new(env!("CARGO_BIN_EXE_wakeful")).parent().unwrap();
    for library in [LIBRARY, "libwakeful_preload.so"] {
        assert!(folder.join(library).exists(), "no {library}: build it with `cargo build --workspace`");
    }
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub fn compile_by(compiler: &str, folder: &Path, source: &str, options: &[&str]) -> PathBuf {
    let program = folder.join("profiled");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let mut compile = Command::new(compiler);
    compile.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(options);
    assert!(compile.arg("-o").args([&program, &source]).status().expect("a C compiler").success());
    program
}

/// Says so beyond the test's captured output.
pub fn skip(why: &str) -> bool {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
    false
}

/// May we have switch records? A kernel or a sandbox may have none for us.
pub fn may_record() -> bool {
    static MAY: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let output = wakeful().args(["profile", "true"]).output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{talk}");
        !talk.contains("What the threads did is unknown")
    });
    *MAY || skip("the kernel lets us have no perf events")
}

pub fn wakeful() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeful"));
    command.stdin(Stdio::null());
    for name in ["LD_PRELOAD", "WAKEFUL_LOCK", "WAKEFUL_RWLOCK", "WAKEFUL_VIEW", "WAKEFUL_PRELOAD"] {
        command.env_remove(name);
    }
    command
}

/// The records, and the exit status, or the signal with a minus.
pub fn profiled(options: &[&str], program: &Path, words: &[&str]) -> (Vec<Value>, Option<i32>) {
    let output =
        wakeful().args(["profile", "--json"]).args(options).arg("--").arg(program).args(words).output();
    read(&output.unwrap())
}

pub fn read(output: &Output) -> (Vec<Value>, Option<i32>) {
    let text = String::from_utf8_lossy(&output.stderr);
    let record = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}"));
    let signal = || output.status.signal().map(|number| -number);
    (text.lines().map(record).collect(), output.status.code().or_else(signal))
}

pub fn one<'a>(records: &'a [Value], record: &str) -> &'a Value {
    records.iter().find(|one| one["record"] == record).unwrap_or_else(|| panic!("no {record}: {records:#?}"))
}

pub fn row<'a>(records: &'a [Value], kind: &str) -> &'a Value {
    let wanted = |one: &&Value| one["record"] == "waits" && one["kind"] == kind;
    records.iter().find(wanted).unwrap_or_else(|| panic!("no {kind}: {records:#?}"))
}

pub fn number(of: &Value, field: &str) -> u64 {
    of[field].as_u64().unwrap_or_else(|| panic!("no {field}: {of:#}"))
}

pub fn cause(records: &[Value]) -> &str {
    one(records, "verdict")["cause"].as_str().unwrap()
}

/// The parts of a row are its whole.
pub fn adds_up(row: &Value) {
    let parts = ["running", "preempted", "blocked", "unknown"].map(|part| format!("holder_{part}_ns"));
    let sum: u64 = parts.iter().map(|part| number(row, part)).sum::<u64>() + number(row, "free_ns");
    let all = number(row, "waited_ns");
    assert!(sum.abs_diff(all) <= all / 100 + 1000, "{sum} of {all}: {row:#}");
}

/// Did the machine leave its processors to this program, mostly?
pub fn was_alone(records: &[Value]) -> bool {
    let all = one(records, "profile");
    number(all, "ready_ns") * 3 < number(all, "run_ns")
}
