// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful profile` on C programs that wait for a reason that is planted (`c/profiled.c`).
//!
//! On a machine that does other things, a holder that works is preempted as well. Then the profile has to say
//! that. What the kernel's account says of the same threads decides which of the two it is.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

mod profiled;

use profiled::{
    adds_up, cause, compile_by, folder, may_record, number, one, profiled, read, row, skip, wakeful,
    was_alone,
};

fn compile(folder: &Path, options: &[&str]) -> PathBuf {
    compile_by("cc", folder, "profiled.c", options)
}

#[test]
fn a_holder_that_spinners_preempt() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["preempted", "20"]);
    assert_eq!((status, cause(&records)), (Some(0), "preempted"), "{records:#?}");
    let mutex = row(&records, "mutex");
    adds_up(mutex);
    assert_eq!(mutex["place"]["name"], "locked_section", "{mutex:#}");
    assert_eq!([&mutex["name"], &mutex["locks"][0]["name"]], ["lock"; 2], "{mutex:#}");
    assert!(
        mutex["locks"][0]["build_id"].is_string() && mutex["locks"][0]["module"] == "profiled",
        "{mutex:#}"
    );
    let line = mutex["place"]["line"].as_str().unwrap();
    assert!(line.contains("profiled.c:") && mutex["place"]["build_id"].is_string(), "{mutex:#}");
    let words = one(&records, "verdict")["words"].as_str().unwrap();
    assert!(words.contains("had lost their processor") && words.contains("locked_section"), "{words}");
    assert_eq!(records.iter().filter(|one| one["record"] == "thread").count(), 6);
}

#[test]
fn a_long_section_and_one_that_sleeps() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, _) = profiled(&[], &program, &["convoy", "40"]);
    let mutex = row(&records, "mutex");
    adds_up(mutex);
    let right = if was_alone(&records) { vec!["running"] } else { vec!["running", "preempted"] };
    assert!(right.contains(&cause(&records)), "{records:#?}");
    // Two of three threads wait, nearly all the time, and one works, unless others have its processor. At
    // least one waits for each of the others, from when it comes.
    let held = number(mutex, "holder_running_ns") + number(mutex, "holder_preempted_ns");
    assert!(held > 40 * 3 * 2_000_000 * 3 / 4, "{mutex:#}");
    // Each wait ends with a turn. There are 120, of which the last may be without a waiter.
    let turns = number(mutex, "taken_while_waited");
    assert!((number(mutex, "waits")..=number(mutex, "taken")).contains(&turns), "{mutex:#}");
    assert!(number(mutex, "taken") <= 3 * 40 && number(mutex, "taken_by_another") > 0, "{mutex:#}");
    assert!(
        number(mutex, "taken_elsewhere") <= turns && number(mutex, "inside_ns") > 40 * 2_000_000,
        "{mutex:#}"
    );
    assert_eq!(mutex["locks"][0]["taken"], mutex["taken"], "{mutex:#}");
    let (records, status) = profiled(&[], &program, &["sleeper", "40"]);
    assert_eq!((status, cause(&records)), (Some(3), "blocked"), "{records:#?}");
    adds_up(row(&records, "mutex"));
}

#[test]
fn a_straggler_at_a_barrier() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, _) = profiled(&[], &program, &["straggler", "40"]);
    let barrier = row(&records, "barrier");
    adds_up(barrier);
    assert_eq!((&barrier["place"]["name"], number(barrier, "rounds")), (&Value::from("meet"), 40));
    let held = number(barrier, "holder_running_ns") + number(barrier, "holder_preempted_ns");
    assert!(held > 40 * 4_000_000, "{barrier:#}");
    let last = &barrier["last"][0];
    assert!(last["name"] == "slow" && number(last, "rounds") > 20, "{barrier:#}");
    let right =
        if was_alone(&records) { vec!["last-running"] } else { vec!["last-running", "last-preempted"] };
    assert!(right.contains(&cause(&records)), "{records:#?}");
    let words = one(&records, "verdict")["words"].as_str().unwrap();
    let named = if cause(&records) == "last-running" { "`slow` (" } else { "" };
    assert!(words.contains(&format!("others stood at a barrier until {named}")), "{words}");
}

#[test]
fn a_broadcast_for_one_item() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    // Where others have the processors, a broadcast may find the takers still on their way from the last one.
    let mut runs = (0..10).map(|_| profiled(&[], &program, &["herd", "1000"]));
    let Some((records, status)) = runs.find(|(all, _)| was_alone(all) || cause(all) == "vain") else {
        skip("other programs had the processors each time");
        return;
    };
    assert_eq!((status, cause(&records)), (Some(0), "vain"), "{records:#?}");
    let rows = || records.iter().filter(|one| one["kind"] == "condition");
    let takers = rows().find(|row| row["place"]["name"] == "take_item").unwrap();
    assert!(number(takers, "vain") > 1000 && number(takers, "vain") < number(takers, "waits"), "{takers:#}");
    // The producer waits again only if the item is still there.
    let producer = rows().find(|row| row["place"]["name"] == "herd").unwrap();
    assert!(number(producer, "vain") < 100, "{producer:#}");
}

/// Each is woken for its turn, and only its next wait releases the mutex.
#[test]
fn whoever_signals_was_not_woken_in_vain() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["turns", "2000"]);
    assert_eq!(status, Some(0), "{records:#?}");
    assert_ne!(cause(&records), "vain", "{records:#?}");
    let cond = row(&records, "condition");
    assert!(number(cond, "waits") > 1000 && number(cond, "vain") < 100, "{cond:#}");
}

#[test]
fn a_barrier_to_which_one_never_comes() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["hang"]);
    assert_eq!((status, cause(&records)), (Some(0), "last-unknown"), "{records:#?}");
    let barrier = row(&records, "barrier");
    adds_up(barrier);
    assert_eq!((number(barrier, "waits"), number(barrier, "rounds")), (2, 0), "{barrier:#}");
    assert!(number(barrier, "waited_ns") > 50_000_000, "{barrier:#}");
}

#[test]
fn what_another_process_holds_is_unknown() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["shared"]);
    assert_eq!((status, cause(&records)), (Some(0), "unknown"), "{records:#?}");
    let mutex = row(&records, "mutex");
    adds_up(mutex);
    assert_eq!(number(mutex, "holder_unknown_ns"), number(mutex, "waited_ns"), "{mutex:#}");
}

#[test]
fn a_program_that_never_waits_is_told_so() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["alone", "20"]);
    assert_eq!((status, cause(&records)), (Some(0), "nothing"), "{records:#?}");
    let words = one(&records, "verdict")["words"].as_str().unwrap();
    assert!(words.contains("nothing waited"), "{words}");
    assert!(!records.iter().any(|one| one["record"] == "waits"), "{records:#?}");
    assert_eq!(one(&records, "profile")["is_helped"], false, "{records:#?}");
    // Neither does one that has no threads.
    let (records, status) = profiled(&[], Path::new("true"), &[]);
    assert_eq!((status, cause(&records)), (Some(0), "nothing"), "{records:#?}");
    // It has run for no longer than it took: the clock begins before it does.
    let all = one(&records, "profile");
    assert!(number(all, "run_ns") <= number(all, "elapsed_ns"), "{all:#}");
    // Where others have the processors it may take for so long that an average is told. Not each time.
    let says_no_average = || {
        let talk = wakeful().args(["profile", "true"]).output().unwrap().stderr;
        let talk = String::from_utf8(talk).unwrap();
        assert!(talk.starts_with("wakeful: `true` took"), "{talk}");
        !talk.contains("on average")
    };
    assert!((0..200).any(|_| says_no_average()));
}

#[test]
fn each_kind_of_wait_is_told_and_no_other() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["kinds"]);
    assert_eq!(status, Some(0));
    let all = [
        ("spin lock", 1, "spin"),
        ("rwlock", 1, "rwlock"),
        ("semaphore", 2, "tokens"),
        ("barrier", 4, "barrier"),
    ];
    for (kind, waits, name) in all {
        let row = row(&records, kind);
        assert_eq!((number(row, "waits"), &row["name"]), (waits, &name.into()), "{records:#?}");
        adds_up(row);
        if kind != "barrier" {
            assert!(number(row, "waited_ns") > 10_000_000, "{row:#}");
        }
    }
    assert_eq!(records.iter().filter(|one| one["record"] == "waits").count(), 4, "{records:#?}");
    // Nobody's word names a spin lock's holder. Its release does.
    if may_record() {
        let spin = row(&records, "spin lock");
        assert!(number(spin, "holder_blocked_ns") > number(spin, "waited_ns") / 2, "{spin:#}");
    }
    assert_eq!(profiled(&[], &program, &["cancel"]).1, Some(0));
}

#[test]
fn waits_with_a_time_limit_are_told() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["timed"]);
    assert_eq!(status, Some(0), "{records:#?}");
    for (kind, waits) in [("rwlock", 4), ("semaphore", 2)] {
        let rows = || records.iter().filter(|one| one["record"] == "waits" && one["kind"] == kind);
        rows().for_each(adds_up);
        let sum = |what| rows().map(|row| number(row, what)).sum::<u64>();
        assert_eq!(sum("waits"), waits, "{records:#?}");
        assert!(sum("waited_ns") > 10_000_000, "{records:#?}");
    }
}

/// The C library is called by C++'s own library there. The waiter is one of the functions seen above it.
#[test]
fn a_place_is_the_programs_own_function() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile_by("c++", folder.path(), "profiled.cc", &["-g"]);
    let (records, status) = profiled(&[], &program, &[]);
    assert_eq!(status, Some(0));
    let cond = row(&records, "condition");
    assert_eq!(cond["place"]["name"], "consume()", "{cond:#}");
    assert!(cond["place"]["line"].as_str().unwrap().contains("profiled.cc:"), "{cond:#}");
    assert_eq!(cond["callers"][0]["name"], "consumer()", "{cond:#}");
}

#[test]
fn without_symbols_there_are_addresses_and_the_build_id() {
    let folder = folder();
    let program = compile(folder.path(), &["-s"]);
    let (records, _) = profiled(&[], &program, &["sleeper", "5"]);
    let place = &row(&records, "mutex")["place"];
    assert!(place["name"].as_str().unwrap().starts_with("profiled+0x"), "{place:#}");
    assert!(place["build_id"].is_string() && place["line"].is_null(), "{place:#}");
    let mutex = row(&records, "mutex");
    assert!(mutex["name"].is_null() && number(&mutex["locks"][0], "object") > 0, "{mutex:#}");
}

#[test]
fn what_was_until_a_crash_is_told_with_the_status() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["crash", "10"]);
    // As under `run`: by the program's signal.
    assert_eq!(status, Some(-libc::SIGABRT));
    assert!(number(row(&records, "mutex"), "waits") > 1, "{records:#?}");
}

/// The holders sleep for some 0.3 s in all, and the program is stopped for as long.
#[test]
fn a_stop_from_outside_counts_nowhere() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let script = format!("{} sleeper 40 & sleep 0.02; kill -STOP $!; sleep 0.3; kill -CONT $!; wait $!", {
        program.display()
    });
    let html = folder.path().join("page.html");
    let options = ["--html", html.to_str().unwrap()];
    let (records, status) = profiled(&options, Path::new("bash"), &["-c", &script]);
    assert_eq!(status, Some(3), "{records:#?}");
    if !may_record() {
        return;
    }
    let all = one(&records, "profile");
    // The shell and its sleep go on meanwhile, and begin and end the stop.
    assert!(number(all, "stopped_ns") > 200_000_000 && number(all, "stops") >= 1, "{all:#}");
    assert!(number(row(&records, "mutex"), "longest_ns") <= number(all, "elapsed_ns"), "{records:#?}");
    let page = page(&html);
    assert!(page["stopped"].as_str().unwrap().starts_with("It was stopped from outside for "), "{page:#}");
    assert_eq!(list(&page, "stops").len() as u64, number(all, "stops"));
}

/// That is no stop of the program. Whoever waits for such a process waits for one that is blocked.
#[test]
fn a_process_that_is_stopped_alone_is_told() {
    let folder = folder();
    if !may_record() {
        return;
    }
    let program = compile(folder.path(), &["-g"]);
    // For some 0.4 s of processor time, however long that takes.
    let busy = "for ((i = 0; i < 400000; i++)); do :; done";
    let script = format!("{} sleeper 5 & kill -STOP $!; {busy}; kill -CONT $!; wait $!", program.display());
    let (records, _) = profiled(&[], Path::new("bash"), &["-c", &script]);
    let halted = list(one(&records, "profile"), "halted");
    assert!(halted.len() == 1 && number(&halted[0], "length_ns") > 50_000_000, "{records:#?}");
}

/// The program is what the command has become. What it started, and ran for longer, is named next to it.
#[test]
fn what_ran_is_named_and_not_what_started_it() {
    let folder = folder();
    if !may_record() {
        return;
    }
    let program = compile(folder.path(), &["-g"]);
    let words = ["profile", "env", "A=1"];
    let talk = wakeful().args(words).arg(&program).args(["alone", "5"]).output().unwrap().stderr;
    let talk = String::from_utf8(talk).unwrap();
    assert!(talk.starts_with("wakeful: `profiled`, started by `env`, took "), "{talk}");
    let script = format!("{} alone 20; exit 0", program.display());
    let (records, _) = profiled(&[], Path::new("sh"), &["-c", &script]);
    let all = one(&records, "profile");
    assert_eq!((&all["program"], &all["ran_longest"][0]), (&Value::from("sh"), &Value::from("profiled")));
    assert!(number(all, "processes_all") == 2 && number(all, "threads_of_one") >= 2, "{all:#}");
}

/// Two threads hand over by futex(2) itself.
#[test]
fn locks_that_are_not_seen_are_told() {
    let folder = folder();
    if !may_record() {
        return;
    }
    let program = compile_by("cc", folder.path(), "futex.c", &["-g"]);
    let (records, status) = profiled(&[], &program, &["150"]);
    assert_eq!((status, cause(&records)), (Some(0), "nothing"), "{records:#?}");
    let words = one(&records, "verdict")["words"].as_str().unwrap();
    assert!(words.contains("outside of the locks that are seen here, mostly in take"), "{words}");
}

#[test]
fn children_tell_too() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    for mode in ["fork", "exec"] {
        let (records, status) = profiled(&[], &program, &[mode, "10"]);
        assert_eq!(status, Some(0), "{mode}");
        let mutex = row(&records, "mutex");
        assert!(number(mutex, "waits") > 1 && number(mutex, "objects") == 1, "{mode}: {records:#?}");
        assert_eq!(mutex["place"]["name"], "sleeper", "{mode}: {mutex:#}");
    }
}

/// They go on in the background, and nobody waits for them.
#[test]
fn processes_that_outlive_the_program_are_told() {
    folder();
    if !may_record() {
        return;
    }
    let words = |command: &str| {
        let (records, status) = profiled(&[], Path::new("sh"), &["-c", command]);
        assert_eq!(status, Some(0), "{records:#?}");
        let words = one(&records, "verdict")["words"].as_str().unwrap().to_string();
        (words, number(one(&records, "profile"), "processes_left"))
    };
    let (said, left) = words("sleep 2 >/dev/null 2>&1 & sleep 2 >/dev/null 2>&1 & sleep 0.1");
    assert!(
        left == 2 && said.contains(" 2 processes that it started still run: their waits after"),
        "{said}"
    );
    let (said, left) = words("sleep 0.1; exit 0");
    assert!(left == 0 && !said.contains("still run"), "{said}");
}

/// As one in a chroot without /proc, it cannot tell.
#[test]
fn programs_that_tell_nothing_are_counted() {
    let folder = folder();
    if !may_record() {
        return;
    }
    let program = compile(folder.path(), &["-g", "-static"]);
    let command = format!("{} convoy 2; exit 0", program.display());
    let (records, status) = profiled(&[], Path::new("sh"), &["-c", &command]);
    assert_eq!(status, Some(0), "{records:#?}");
    let words = one(&records, "verdict")["words"].as_str().unwrap();
    // Nobody knows whether that one waits: this comes first.
    assert!(words.starts_with("none: a program that it started tells nothing of its waits"), "{words}");
    assert_eq!(cause(&records), "unknown");
    let (records, _) = profiled(&[], Path::new("sh"), &["-c", "/bin/true; exit 0"]);
    assert_eq!(number(one(&records, "profile"), "programs_silent"), 0, "{records:#?}");
}

/// What is not told is counted, and no time comes twice.
#[test]
fn what_waits_too_often_is_sampled() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    for (mode, kind, turns) in [("storm", "mutex", "3000"), ("rounds", "barrier", "100")] {
        let (records, status) = profiled(&[], &program, &[mode, turns]);
        assert_eq!(status, Some(0), "{records:#?}");
        let all = one(&records, "profile");
        let (told, counted) = (number(all, "waits_told"), number(all, "waits_counted"));
        assert!(told > 0 && counted > 0 && number(all, "sampled_ns") > 0, "{all:#}");
        let waits = row(&records, kind);
        adds_up(waits);
        assert_eq!(number(waits, "waits"), told + counted, "{waits:#}");
        let most_ns = number(all, "elapsed_ns") * 3;
        assert!((1..=most_ns).contains(&number(waits, "estimated_ns")), "{waits:#}");
        assert!(number(waits, "waited_ns") <= most_ns, "{waits:#}");
        if kind == "mutex" {
            // Of 9,000,000, as far as somebody waited: the last thread may do many alone.
            assert!((1_000..=9_000_000).contains(&number(waits, "taken")), "{waits:#}");
        }
        if kind == "barrier" {
            assert!((150_000..=200_000).contains(&number(waits, "waits")), "{waits:#}");
            assert!((50_000..150_000).contains(&number(waits, "rounds")), "{waits:#}");
        }
    }
    let talk = wakeful().arg("profile").arg(&program).args(["storm", "3000"]).output().unwrap().stderr;
    let talk = String::from_utf8(talk).unwrap();
    assert!(talk.contains("only counted"), "{talk}");
}

#[test]
fn four_thousand_threads_that_wait_are_all_told() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["crowd"]);
    assert_eq!(status, Some(0));
    let all = one(&records, "profile");
    assert_eq!((number(all, "threads_without_ring"), number(all, "lost_events")), (0, 0), "{all:#}");
    let barrier = row(&records, "barrier");
    assert_eq!((number(barrier, "waits"), number(barrier, "rounds")), (4001, 1), "{barrier:#}");
    assert!(number(row(&records, "mutex"), "waits") > 100, "{records:#?}");
}

/// The report fits a screen, and the program's output is its own.
#[test]
fn the_report_is_one_screen() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let output = wakeful().arg("profile").arg(&program).args(["straggler", "5"]).output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b""[..]), "{talk}");
    assert!(talk.starts_with("wakeful: `") && talk.contains("\nVerdict: "), "{talk}");
    assert!(talk.contains("barrier: meet") && talk.contains("came last in"), "{talk}");
    assert!(talk.lines().all(|line| line.chars().count() < 80) && talk.lines().count() < 40, "{talk}");
}

#[test]
fn the_locks_of_run_can_be_profiled() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&["--wakeful"], &program, &["sleeper", "10"]);
    assert_eq!(status, Some(3));
    let mutex = row(&records, "mutex");
    adds_up(mutex);
    assert!(number(mutex, "waits") > 1, "{mutex:#}");
    assert_eq!(one(&records, "profile")["is_helped"], true, "{records:#?}");
    if may_record() {
        assert_eq!(cause(&records), "blocked", "{records:#?}");
    }
}

/// `wakeful run` inside puts its own library before what is preloaded, and not before ours.
#[test]
fn a_program_that_run_starts_is_seen() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let words = ["run", "--", program.to_str().unwrap(), "sleeper", "10"];
    let (records, status) = profiled(&[], Path::new(env!("CARGO_BIN_EXE_wakeful")), &words);
    assert_eq!(status, Some(3));
    assert!(number(row(&records, "mutex"), "waits") > 1, "{records:#?}");
    // It is not advised what it does already.
    if may_record() {
        assert_eq!(one(&records, "profile")["is_helped"], true, "{records:#?}");
    }
}

#[test]
fn whoever_ends_the_profiler_ends_the_program() {
    folder();
    for (verb, number) in [
        ("profile", libc::SIGKILL),
        ("profile", libc::SIGTERM),
        ("profile", libc::SIGINT),
        ("watch", libc::SIGKILL),
        ("watch", libc::SIGQUIT),
    ] {
        // A shell that starts us in the background has us, and our programs, ignore what a terminal sends.
        // SAFETY: the default is no handler.
        unsafe { libc::signal(number, libc::SIG_DFL) };
        let mut command = wakeful();
        command.args([verb, "--", "sh", "-c", "echo; exec sleep 60"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        let since = Instant::now();
        // SAFETY: our own child, not yet reaped.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, number) }, 0);
        // The program has the other end of it.
        output.read_to_end(&mut Vec::new()).unwrap();
        assert!(since.elapsed() < Duration::from_secs(30), "{verb}, {number}");
        assert_eq!(child.wait().unwrap().signal(), Some(number), "{verb}");
    }
}

/// Without events the waits are told, and that nobody knows what the holders did.
#[test]
fn without_permission_the_waits_are_told_all_the_same() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let source = "#include <errno.h>\n#include <linux/filter.h>\n#include <linux/seccomp.h>\n\
        #include <stddef.h>\n#include <sys/prctl.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
        int main(int n, char **words) {\n\
        struct sock_filter filter[] = {\n\
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };\n\
        struct sock_fprog program = { 4, filter };\n\
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) return 77;\n\
        execvp(words[1], words + 1); return 78; }";
    fs::write(folder.path().join("denied.c"), source).unwrap();
    let denied = folder.path().join("denied");
    let compiled = Command::new("cc").arg("-o").args([&denied, &folder.path().join("denied.c")]).status();
    assert!(compiled.unwrap().success());
    let run = |options: &[&str]| {
        let mut command = Command::new(&denied);
        command.arg(env!("CARGO_BIN_EXE_wakeful")).arg("profile").args(options).arg(&program);
        command.args(["sleeper", "10"]).stdin(Stdio::null()).output().unwrap()
    };
    let (records, status) = read(&run(&["--json"]));
    assert_eq!((status, cause(&records)), (Some(3), "unknown"), "{records:#?}");
    let mutex = row(&records, "mutex");
    adds_up(mutex);
    assert_eq!(mutex["place"]["name"], "sleeper", "{mutex:#}");
    let talk = String::from_utf8(run(&[]).stderr).unwrap();
    assert!(
        talk.contains("What the threads did is unknown: the kernel does not let you have perf"),
        "{talk}"
    );
    assert!(talk.lines().all(|line| line.chars().count() < 80), "{talk}");
}

/// A control group of version 1 with a twentieth of a processor, which is less than other programs leave on a
/// busy machine; it goes away with its last process.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let name = format!("wakeful-profile-test-{}", std::process::id());
        let group = Self(Path::new("/sys/fs/cgroup/cpu").join(name));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join("cpu.cfs_quota_us"), "5000").ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn root_a_quota_comes_first() {
    let Some(group) = Group::new() else {
        skip("needs root and the CPU controller of version 1");
        return;
    };
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let procs = group.0.join("cgroup.procs");
    let mut command = wakeful();
    command.args(["profile", "--json"]).arg(&program).args(["burn", "30"]);
    // SAFETY: the closure writes a file, in a child forked by a test.
    let output = unsafe { command.pre_exec(move || fs::write(&procs, "0")) }.output().unwrap();
    let (records, status) = read(&output);
    assert_eq!((status, cause(&records)), (Some(0), "throttled"), "{records:#?}");
    let words = one(&records, "verdict")["words"].as_str().unwrap();
    let quota = "the CPU quota of 0.05 processors stopped the whole program: throttled in";
    assert!(words.contains(quota) && words.contains(" periods of 100ms. "), "{words}");
    assert!(words.contains("this is no lock problem"), "{words}");
    let advice = one(&records, "verdict")["advice"].as_str().unwrap();
    assert!(advice.starts_with("Raise the quota of 0.05 processors: it stops even one thread."), "{advice}");
}

/// What a page has: the JSON in it.
fn page(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    for part in ["src=", "href=", "@import", "fetch(", "https:"] {
        assert!(!text.contains(part), "{part} needs a network");
    }
    let (_, data) = text.split_once("id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

fn list<'a>(of: &'a Value, field: &str) -> &'a Vec<Value> {
    of[field].as_array().unwrap_or_else(|| panic!("no {field}"))
}

#[test]
fn page_trace_and_stacks_say_what_the_report_says() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let files = ["page.html", "trace.json", "stacks.txt"].map(|name| folder.path().join(name));
    let [html, trace, stacks] = &files;
    let mut command = wakeful();
    command.args(["profile", "--json", "--html"]).arg(html).arg("--trace").arg(trace);
    let output =
        command.arg("--folded").arg(stacks).arg("--").arg(&program).args(["preempted", "20"]).output();
    let (records, status) = read(&output.unwrap());
    assert_eq!(status, Some(0), "{records:#?}");
    let mutex = row(&records, "mutex");
    let waited_ns = number(mutex, "waited_ns") as f64;

    let page = page(html);
    assert_eq!(page["words"], one(&records, "verdict")["words"]);
    assert_eq!((list(&page, "lanes").len(), list(&page, "places").len()), (6, 1));
    let exact = list(&page, "waits");
    assert_eq!(exact.len() as u64, number(mutex, "waits"));
    let sum: f64 = exact.iter().map(|wait| wait[3].as_f64().unwrap()).sum();
    assert!((sum - waited_ns).abs() < waited_ns / 100.0, "{sum} of {waited_ns}");
    // The longest one is for the other of the two, which had no processor most of the time.
    let (own, holder) = (&exact[0][0], &exact[0][10]);
    assert!(holder.is_u64() && own != holder, "{}", exact[0]);
    assert!(exact[0][6].as_u64().unwrap() > 30, "{}", exact[0]);

    // Another thread of the program took the processor, now and then at least.
    let behind_ns = number(mutex, "holder_behind_own_ns");
    assert!(behind_ns > 0 && behind_ns <= number(mutex, "holder_preempted_ns"), "{mutex:#}");
    let gains = list(one(&records, "verdict"), "gains");
    assert!(gains[0]["by"] == "run" && gains[0]["at_most"].as_f64().unwrap() >= 1.0, "{gains:?}");

    let trace: Value = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    let events = list(&trace, "traceEvents");
    let of = |phase: &str| events.iter().filter(|one| one["ph"] == phase).count();
    let named = |one: &&Value| one["name"].as_str().unwrap().starts_with("mutex: locked_section");
    assert_eq!(events.iter().filter(named).count(), exact.len());
    assert!(of("s") > 0 && of("s") == of("f") && of("M") == 7, "{} {} {}", of("s"), of("f"), of("M"));
    // On one track nothing begins before the last thing is over.
    let mut tracks: std::collections::BTreeMap<u64, Vec<(f64, f64)>> = Default::default();
    for one in events.iter().filter(|one| one["ph"] == "X") {
        let (from, length) = (one["ts"].as_f64().unwrap(), one["dur"].as_f64().unwrap());
        tracks.entry(number(one, "tid")).or_default().push((from, from + length));
    }
    for track in tracks.values_mut() {
        track.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(track.windows(2).all(|two| two[1].0 >= two[0].1 - 0.01), "{track:?}");
    }

    let stacks = fs::read_to_string(stacks).unwrap();
    let us: f64 = stacks.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert!((us * 1000.0 - waited_ns).abs() < waited_ns / 100.0, "{stacks}");
    assert!(stacks.lines().all(|line| line.contains("locked_section;[mutex];[")), "{stacks}");
}

#[test]
fn sixty_four_threads_fit_a_page() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let html = folder.path().join("page.html");
    let options = ["--html", html.to_str().unwrap()];
    let (records, status) = profiled(&options, &program, &["many", "1000"]);
    assert_eq!(status, Some(0));
    assert!(fs::metadata(&html).unwrap().len() < 10_000_000);
    let page = page(&html);
    let lanes = list(&page, "lanes");
    assert_eq!((lanes.len(), list(&page, "places").len()), (65, 3));
    // 7 digits a column, each of at most 1024.
    let columns = |lane: &Value| lane["columns"].as_str().unwrap().len();
    assert!(lanes.iter().all(|lane| columns(lane) > 7 * 100 && columns(lane) <= 7 * 1024));
    let all: u64 =
        records.iter().filter(|one| one["record"] == "waits").map(|one| number(one, "waits")).sum();
    let told = all - number(one(&records, "profile"), "waits_counted");
    assert_eq!(list(&page, "waits").len() as u64, told.min(4000));
    assert!(list(&page, "held").iter().any(|held| !held.as_array().unwrap().is_empty()));
    for one in list(&page, "rows") {
        let counted: u64 = list(one, "lengths").iter().map(|count| count.as_u64().unwrap()).sum();
        // With a sample, each is rounded down.
        let waits = number(one, "waits");
        assert!(counted <= waits && waits - counted <= 32, "{one:#}");
    }
}

/// A crash, a fork and an exec: what was until then is on the page, of all processes.
#[test]
fn the_page_is_there_however_the_program_goes_on() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let html = folder.path().join("page.html");
    let options = ["--html", html.to_str().unwrap()];
    for (mode, status, processes) in
        [("crash", Some(-libc::SIGABRT), 1), ("fork", Some(0), 2), ("exec", Some(0), 2)]
    {
        let (records, ended) = profiled(&options, &program, &[mode, "10"]);
        assert_eq!(ended, status, "{mode}: {records:#?}");
        let page = page(&html);
        let mut all: Vec<u64> = list(&page, "lanes").iter().map(|lane| number(lane, "process")).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), list(&page, "waits").is_empty()), (processes, false), "{mode}");
        fs::remove_file(&html).unwrap();
    }
}

#[test]
fn a_full_disk_is_told_and_costs_no_other_file() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let stacks = folder.path().join("stacks.txt");
    let mut command = wakeful();
    command.args(["profile", "--html", "/dev/full", "--trace", "/dev/full", "--folded"]).arg(&stacks);
    let output = command.arg(&program).args(["sleeper", "5"]).output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{talk}");
    assert_eq!(talk.matches("cannot write to /dev/full: No space left on device").count(), 2, "{talk}");
    assert!(talk.contains("make room there") && talk.contains("\nVerdict: "), "{talk}");
    assert!(fs::read_to_string(&stacks).unwrap().contains("sleeper;[mutex]"), "{talk}");
    // Where no file can be made, the program does not run.
    let mut command = wakeful();
    command.args(["profile", "--html", "/proc/none.html"]).arg(&program).args(["sleeper", "5"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    // Nor where the file for the events would be too large.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 8; exec \"$0\" profile -- \"$1\" sleeper 5"]);
    let output = limited.arg(wakeful().get_program()).arg(&program).output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(125) && talk.contains("raise `ulimit -f`"), "{talk}");
}

#[test]
fn predicted_and_measured_stand_side_by_side() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&["--verify"], &program, &["preempted", "3"]);
    assert_eq!(status, Some(0), "{records:#?}");
    let verified = one(&records, "verified");
    assert_eq!(number(verified, "pairs"), 5, "{verified:#}");
    let [low, gain, high] = ["low", "gain", "high"].map(|field| verified[field].as_f64().unwrap());
    assert!(0.0 < low && low <= gain && gain <= high, "{verified:#}");
    let words = verified["words"].as_str().unwrap();
    assert!(words.contains("predicted") && words.contains("measured"), "{words}");
    // One that a signal ends is not judged.
    let output = wakeful().args(["profile", "--verify"]).arg(&program).args(["crash", "1"]).output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{talk}");
    let words: Vec<&str> = talk.split_whitespace().collect();
    assert!(words.join(" ").contains("nothing was measured: the program failed (signal 6)"), "{talk}");
}

/// The writer sleeps while it has the lock, and before it posts.
#[test]
fn whoever_has_a_rwlock_or_posts_a_semaphore_is_known() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["kinds"]);
    assert_eq!(status, Some(0), "{records:#?}");
    for kind in ["rwlock", "semaphore"] {
        let one = row(&records, kind);
        adds_up(one);
        let blocked_ns = number(one, "holder_blocked_ns");
        // On a busy machine the waiters wake up late: then nobody has it, which is known as well.
        let unknown_ns = number(one, "holder_unknown_ns");
        assert!(blocked_ns > 10_000_000 && unknown_ns * 10 < number(one, "waited_ns"), "{one:#}");
    }
}

/// A picture's labels have units, lie apart and are whole.
#[test]
fn the_labels_of_a_histogram_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut node = Command::new("node");
    node.arg(folder.join("tests/labels.js"));
    node.args(["words", "tables"].map(|part| folder.join(format!("src/profile/page/{part}.js"))));
    let Ok(output) = node.output() else {
        skip("no node");
        return;
    };
    assert!(output.status.success(), "{output:?}");
}
