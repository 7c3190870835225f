// SPDX-License-Identifier: MIT OR Apache-2.0
//! `.ci/alone`, in which the gate runs each test program: nothing that a test leaves behind keeps the gate.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Seconds that the children of these tests would live.
const LONG: u64 = 600;

/// The exit status and what was printed, once everybody has closed the pipe.
fn alone(seconds: &str, script: &str) -> (i32, String) {
    let start = Instant::now();
    let (mut pipe, end) = std::io::pipe().unwrap();
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/alone"));
    command
        .args([seconds, "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(end.try_clone().unwrap())
        .stderr(end);
    let mut child = command.spawn().unwrap();
    // It holds this process's ends of the pipe.
    drop(command);
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    assert!(start.elapsed().as_secs() < LONG / 2, "waited for who was left behind");
    (status.code().expect("an exit status"), text)
}

#[test]
fn a_status_is_passed_on() {
    assert_eq!(alone("60", "exit 0"), (0, String::new()));
    assert_eq!(alone("60", "exit 3").0, 3);
    assert_eq!(alone("60", "kill -9 $$").0, 128 + 9);
}

#[test]
fn what_is_left_behind_ends() {
    // At once: each waits some seconds for who may end by himself.
    let fails = || {
        let (status, text) = alone("60", &format!("setsid sleep {LONG} & sleep {LONG} & exit 3"));
        assert_eq!(status, 3);
        assert_eq!(text.matches(&format!("sleep {LONG}")).count(), 2, "{text}");
    };
    let succeeds = || assert_eq!(alone("60", &format!("(setsid sleep {LONG} &) ; exit 0")).0, 70);
    let goes_on = || {
        let (status, text) = alone("0.5", &format!("sleep {LONG}; sleep {LONG}"));
        assert_eq!(status, 124);
        assert!(text.contains("stopped after 0.5 s"), "{text}");
    };
    std::thread::scope(|scope| {
        for one in [fails as fn(), succeeds, goes_on] {
            scope.spawn(one);
        }
    });
}
