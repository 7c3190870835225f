// SPDX-License-Identifier: MIT OR Apache-2.0
//! kill -9, or Ctrl-C and its kind, at any moment leaves no process behind. 20 moments; 200 with `WAKEFUL_LONG=1`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Processes that have inherited this environment variable, the dead ones that nobody has reaped left out.
fn left(mark: &str) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        if read("environ").split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes()) {
            names.push(String::from_utf8_lossy(&read("cmdline")).replace('\0', " "));
        }
    }
    names
}

#[test]
fn killed_at_any_moment_it_leaves_no_process() {
    let rounds = if std::env::var_os("WAKEFUL_LONG").is_some() { 200 } else { 20 };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let library = folder.path().join("stand-in.so");
    let source = folder.path().join("stand-in.c");
    fs::write(&source, "const char *wakeful_preload_view(void) { return \"none\"; }").unwrap();
    assert!(
        Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status()
            .unwrap()
            .success()
    );

    // A program whose own children run on if only the program is killed; and busy processes beside measuring ones.
    let compare =
        ["compare", "--warm-ups", "0", "--timeout", "100s", "sh", "-c", "sleep 300 & (sleep 300); :"];
    let bench =
        ["bench", "spin", "--foreign", "2", "--locks", "glibc", "--threads", "2", "--warm-up", "0.005"];
    let mut most = 0;
    // Where others have the processors, none of the moments may be one at which all of them run. Then we wait
    // for that, once.
    for round in 0..=rounds {
        let waits_for_all = round == rounds;
        if waits_for_all && most >= 5 {
            break;
        }
        let (arguments, name) =
            if round % 4 == 3 && !waits_for_all { (&bench[..], "bench") } else { (&compare[..], "compare") };
        let variable = format!("{}-{round}", std::process::id());
        let mut child = Command::new(env!("CARGO_BIN_EXE_wakeful"))
            .args(arguments)
            .env("WAKEFUL_PRELOAD", &library)
            .env("WAKEFUL_KILL_TEST", &variable)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Moments spread over the start and the first run.
        std::thread::sleep(Duration::from_micros(round * 7919 % 60_000));
        let mark = format!("WAKEFUL_KILL_TEST={variable}");
        let patience = Instant::now();
        while waits_for_all && left(&mark).len() < 5 && patience.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(2));
        }
        most = left(&mark).len().max(most);
        let signal = if round % 5 < 3 {
            libc::SIGKILL
        } else {
            [libc::SIGINT, libc::SIGTERM, libc::SIGHUP][round as usize % 3]
        };
        // SAFETY: our own child, not yet reaped.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        child.wait().unwrap();
        let patience = Instant::now();
        while !left(&mark).is_empty() {
            assert!(
                patience.elapsed() < Duration::from_secs(120),
                "{name}, round {round}, signal {signal}: {:?}",
                left(&mark)
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    assert!(
        most >= 5,
        "the command, its guard, the shell and its two children ran at the same time at least once: {most}"
    );
}
