// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `wakeful run -v` says of a CPU quota, under a real one.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{fs, thread};

/// A control group of version 1 with a fifth of a processor; it goes away with its last process.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let path = Path::new("/sys/fs/cgroup/cpu").join(format!("wakeful-cli-test-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        fs::write(group.0.join("cpu.cfs_quota_us"), "20000").ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn run(group: &Group, arguments: &[&str]) -> Output {
    let procs = group.0.join("cgroup.procs");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeful"));
    command.arg("run").args(arguments).stdin(Stdio::null());
    // SAFETY: the closure writes a file, in a child forked by a test.
    unsafe { command.pre_exec(move || fs::write(&procs, "0")) }.output().unwrap()
}

/// Busy for as long as a fifth of a processor needs for some periods.
const BUSY: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; exit 3";

#[test]
fn root_throttling_is_told_at_the_end() {
    let Some(group) = Group::new() else {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "SKIPPED: needs root and the CPU controller of version 1");
        return;
    };
    let output = run(&group, &["-v", "sh", "-c", BUSY]);
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{talk}");
    assert_eq!(output.stdout, b"done\n");
    let line = talk.lines().last().unwrap();
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(line.starts_with("wakeful: throttled in ") && line.ends_with(" periods of its quota"), "{talk}");
    assert!(matches!(numbers[..], [throttled, periods] if 0 < throttled && throttled <= periods), "{talk}");
    // Not asked, it says nothing.
    let output = run(&group, &["sh", "-c", BUSY]);
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(3), &b""[..]));
}
