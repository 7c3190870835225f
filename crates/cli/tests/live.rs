// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful top PID`: who waits at this moment, for whom and since when.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

mod profiled;

use profiled::{compile_by, folder, may_record, number, wakeful};

/// The program that a process of ours has started.
fn child_of(process: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}

fn top(process: u32) -> (Vec<Value>, String, Option<i32>) {
    let output = wakeful().args(["top", "--json", &process.to_string()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let locks = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (locks, String::from_utf8(output.stderr).unwrap(), output.status.code())
}

/// Looks again and again, for a minute at most.
fn until<T>(program: &mut Child, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end && program.try_wait().unwrap().is_none(), "never seen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_waits_now_for_whom_and_since_when() {
    let folder = folder();
    let program = compile_by("cc", folder.path(), "profiled.c", &["-g"]);
    let mut command = wakeful();
    command.arg("profile").arg(&program).args(["sleeper", "100000"]).stderr(Stdio::null());
    let mut profiler = command.spawn().unwrap();
    let own = profiler.id();
    let process = until(&mut profiler, || child_of(own));
    // Two wait, for the one that sleeps with the lock. The program's process and the profiler's lead there.
    for asked in [process, own] {
        let lock = until(&mut profiler, || {
            let (locks, _, _) = top(asked);
            locks.into_iter().find(|one| one["kind"] == "mutex" && !one["holder"].is_null())
        });
        assert_eq!((&lock["place"]["name"], number(&lock, "process")), (&"sleeper".into(), process.into()));
        let waiters = lock["waiters"].as_array().unwrap();
        assert!((1..=2).contains(&waiters.len()), "{lock:#}");
        assert!(waiters.iter().all(|one| one["name"] == "profiled"), "{lock:#}");
        let holder = number(&lock["holder"], "thread");
        assert!(waiters.iter().all(|one| number(one, "thread") != holder), "{lock:#}");
        assert!(number(&waiters[0], "waits_ns") < 60_000_000_000, "{lock:#}");
    }
    if may_record() {
        until(&mut profiler, || {
            let (locks, _, _) = top(process);
            locks.into_iter().find(|one| one["holder"]["does"] == "is blocked")
        });
    }
    // SAFETY: the program, which our child has started and not waited for.
    let signal = |number| unsafe { libc::kill(process as libc::pid_t, number) };
    signal(libc::SIGSTOP);
    until(&mut profiler, || {
        let (looked, ..) = top(process);
        let is_stopped = |one: &Value| one["holder"]["does"] == "is stopped";
        let all = looked.iter().any(|one| one["record"] == "stopped");
        (all && looked.iter().all(|one| one["holder"].is_null() || is_stopped(one))).then_some(())
    });
    signal(libc::SIGCONT);
    let output = wakeful().args(["top", &process.to_string()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("sleeper") || text.contains("Nobody waits."), "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    // SAFETY: our child, which we have not waited for.
    let profilers = |number| unsafe { libc::kill(own as libc::pid_t, number) };
    profilers(libc::SIGSTOP);
    for asked in [process, own] {
        let talk = until(&mut profiler, || {
            let (_, talk, status) = top(asked);
            (status == Some(125)).then_some(talk)
        });
        assert!(talk.contains(&format!("process {own}, is stopped itself")), "{talk}");
    }
    profilers(libc::SIGCONT);
    // Those who have asked in vain do no harm.
    until(&mut profiler, || (top(process).2 == Some(0)).then_some(()));
    // The profiler passes it on to the program.
    profilers(libc::SIGTERM);
    profiler.wait().unwrap();
    let (locks, talk, status) = top(process);
    assert!(locks.is_empty() && status == Some(125), "{talk}");
}

/// The words of the default mutex say who has it.
#[test]
fn under_run_the_lock_words_say_for_whom_they_sleep() {
    let folder = folder();
    let program = compile_by("cc", folder.path(), "profiled.c", &["-g"]);
    let mut command = wakeful();
    command.arg("run").arg(&program).args(["sleeper", "100000"]).stderr(Stdio::null());
    // `run` becomes the program.
    let mut running = command.spawn().unwrap();
    let process = running.id();
    let lock = until(&mut running, || {
        let (locks, _, _) = top(process);
        locks.into_iter().find(|one| one["kind"] == "mutex" && !one["holder"].is_null())
    });
    assert_eq!((&lock["place"]["name"], &lock["at_least"]), (&"sleeper".into(), &true.into()), "{lock:#}");
    let holder = number(&lock["holder"], "thread");
    let waiters = lock["waiters"].as_array().unwrap();
    assert!(waiters.iter().all(|one| number(one, "thread") != holder), "{lock:#}");
    running.kill().unwrap();
    running.wait().unwrap();
}

/// What `top` does not see it says: here the program loads no library.
#[test]
fn nobody_waits_is_said_only_where_all_waits_are_told() {
    let folder = folder();
    let source = folder.path().join("still.c");
    fs::write(&source, "#include <unistd.h>\nint main(void) { return pause(); }\n").unwrap();
    let program = folder.path().join("still");
    let compiled =
        std::process::Command::new("cc").arg("-static").arg("-o").args([&program, &source]).status();
    assert!(compiled.unwrap().success());
    let mut profiler = wakeful().arg("profile").arg(&program).stderr(Stdio::null()).spawn().unwrap();
    let own = profiler.id();
    let process = until(&mut profiler, || child_of(own));
    let unseen = until(&mut profiler, || top(process).0.into_iter().find(|one| one["record"] == "unseen"));
    assert!(unseen["why"].as_str().unwrap().contains("statically linked"), "{unseen:#}");
    let output = wakeful().args(["top", &process.to_string()]).output().unwrap();
    assert!(output.stdout.starts_with(b"No thread is seen to wait.\n"), "{output:?}");
    // SAFETY: the profiler passes it on to the program.
    unsafe { libc::kill(own as libc::pid_t, libc::SIGTERM) };
    profiler.wait().unwrap();
}

#[test]
fn whoever_tells_nothing_is_no_program_to_watch() {
    let (_, talk, status) = top(std::process::id());
    assert!(status == Some(125) && talk.contains("nobody tells what process"), "{talk}");
    let (_, talk, status) = top(4_194_305);
    assert!(status == Some(125) && talk.contains("there is no process"), "{talk}");
}
