// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful profile` on what makes it hard: code that no file has, ten thousand locks, page faults, a reader
//! of the report that is gone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

mod profiled;

use profiled::{
    adds_up, cause, compile_by, folder, may_record, number, one, profiled, row, skip, wakeful, was_alone,
};

fn compile(folder: &Path, options: &[&str]) -> PathBuf {
    compile_by("cc", folder, "profiled.c", options)
}

/// The last thread at a barrier waits for pages that come late.
#[test]
fn a_straggler_at_a_barrier_by_page_faults() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["faults", "40"]);
    if status == Some(77) {
        skip("the kernel lets us have no userfaultfd(2)");
        return;
    }
    // Where others have the processors, the two others come late, or the last one waits for a processor, too.
    let is_alone = was_alone(&records);
    let is_right = cause(&records) == "last-blocked" || !is_alone && cause(&records).starts_with("last-");
    assert!(status == Some(0) && is_right, "{records:#?}");
    let barrier = row(&records, "barrier");
    adds_up(barrier);
    let least_ns = 40 * 2 * if is_alone { 4_000_000 } else { 1_000_000 };
    assert!(number(barrier, "holder_blocked_ns") > least_ns, "{barrier:#}");
    assert_eq!(barrier["last"][0]["name"], "slow", "{barrier:#}");
    // Somebody has looked at it meanwhile.
    let seen = &barrier["blocked_in"][0];
    assert_eq!((&seen["call"], &seen["place"]["name"]), (&"page fault".into(), &"touch_page".into()));
    let words = one(&records, "verdict")["words"].as_str().unwrap();
    let is_named = words.contains("`slow` (") && words.contains("in a page fault in touch_page");
    assert!(is_named || cause(&records) != "last-blocked", "{words}");
}

fn waits<'a>(records: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    records.iter().filter(move |one| one["record"] == "waits" && one["kind"] == kind)
}

/// A thread that waits from more places than it can count apart until somebody reads that.
#[test]
fn what_is_only_counted_is_not_lost() {
    let folder = folder();
    let program = compile_by("cc", folder.path(), "sampled.c", &["-g"]);
    let (records, status) = profiled(&[], &program, &["places", "150"]);
    assert_eq!(status, Some(0), "{records:#?}");
    let all = one(&records, "profile");
    // Where others have the processors, the profiler comes too late for what is told.
    let (is_starved, counted) = (all["had"].as_f64() < Some(1.0), number(all, "waits_counted"));
    assert!(is_starved || counted > 100 && number(all, "lost_events") * 4 < counted, "{all:#}");
    let sum: u64 = waits(&records, "mutex").map(|row| number(row, "waits")).sum();
    assert_eq!(sum, number(all, "waits_told") + number(all, "waits_counted"), "{all:#}");
}

#[test]
fn barriers_make_nobody_sample_mutexes() {
    let folder = folder();
    let program = compile_by("cc", folder.path(), "sampled.c", &["-g"]);
    // Where others have the processors, there are too few rounds for a sample. Not each time.
    for _ in 0..10 {
        let (records, status) = profiled(&[], &program, &["barriers", "100"]);
        assert_eq!(status, Some(0), "{records:#?}");
        let mutex = row(&records, "mutex");
        assert!(number(mutex, "waits") > 10 && number(mutex, "estimated_ns") == 0, "{mutex:#}");
        if number(row(&records, "barrier"), "estimated_ns") > 0 {
            return;
        }
        let is_starved = one(&records, "profile")["had"].as_f64() < Some(1.8);
        assert!(is_starved, "{records:#?}");
    }
    skip("other programs had the processors each time");
}

/// What was counted in the last moment of a process has the names that its process had.
#[test]
fn the_last_waits_of_a_process_have_names() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile_by("cc", folder.path(), "sampled.c", &["-g"]);
    let (records, status) = profiled(&[], &program, &["children", "5"]);
    assert_eq!(status, Some(0), "{records:#?}");
    let names: Vec<&Value> = waits(&records, "mutex").map(|row| &row["place"]["name"]).collect();
    let is_known = |name: &&Value| ["brief_section", "storm"].contains(&name.as_str().unwrap());
    assert!(names.iter().all(is_known) && names.contains(&&"brief_section".into()), "{names:?}");
}

/// The holder of a mutex is blocked in a call.
#[test]
fn whoever_is_blocked_is_seen_in_its_call() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, _) = profiled(&[], &program, &["sleeper", "60"]);
    let mutex = row(&records, "mutex");
    let seen = &mutex["blocked_in"][0];
    assert!(seen["call"].as_str().unwrap().contains("nanosleep"), "{mutex:#}");
    assert!(one(&records, "verdict")["advice"].as_str().unwrap().contains("nanosleep"), "{records:#?}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn code_that_no_file_has_is_an_address_or_what_its_map_says() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let html = folder.path().join("page.html");
    let options = ["--html", html.to_str().unwrap()];
    let (records, status) = profiled(&options, &program, &["jit", "20"]);
    assert_eq!(status, Some(0), "{records:#?}");
    let mutex = row(&records, "mutex");
    adds_up(mutex);
    assert!(number(mutex, "waits") > 0, "{mutex:#}");
    assert!(mutex["place"]["name"].as_str().unwrap().starts_with("[no file]+0x"), "{mutex:#}");
    let output = wakeful().arg("profile").arg(&program).args(["jit", "5"]).output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(talk.contains("[no file]+0x..:") && !talk.contains("that file has no symbols"), "{talk}");
    // Compilers write names for perf.
    let (records, status) = profiled(&[], &program, &["jit", "20", "made_code"]);
    if may_record() && status != Some(77) {
        let process = number(one(&records, "thread"), "process");
        std::fs::remove_file(format!("/tmp/perf-{process}.map")).unwrap();
        assert_eq!(row(&records, "mutex")["place"]["name"], "made_code", "{records:#?}");
    }
}

#[test]
fn ten_thousand_locks_are_one_row() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let html = folder.path().join("page.html");
    let options = ["--html", html.to_str().unwrap()];
    let (records, status) = profiled(&options, &program, &["locks"]);
    assert_eq!(status, Some(0), "{records:#?}");
    let all = one(&records, "profile");
    // The reader may have no processor for a while.
    assert!(number(all, "lost_events") < number(all, "events") / 3, "{all:#}");
    assert_eq!(number(all, "untold"), 0, "{all:#}");
    let mutex = row(&records, "mutex");
    adds_up(mutex);
    assert!(number(mutex, "objects") > 3_000 && number(mutex, "objects") <= 10_000, "{mutex:#}");
    assert_eq!(records.iter().filter(|one| one["record"] == "waits").count(), 1, "{records:#?}");
    assert!(html.metadata().unwrap().len() < 10_000_000);
}

/// The profile takes a plain mutex by its own words, and stands around all else: programs that use each
/// corner of pthread's locks say the same with it and without. But it counts in a plain mutex how often that
/// was taken.
#[test]
fn locks_do_the_same_as_without_it() {
    let same = |name: &str| {
        let folder = folder();
        let source = format!("../../../preload/tests/c/{name}.c");
        let program = compile_by("cc", folder.path(), &source, &["-w", "-Wno-error"]);
        let plain = Command::new(&program).stdin(Stdio::null()).output().unwrap();
        let mut command = wakeful();
        command.args(["profile", "-o", "/dev/null"]).arg(&program);
        let profiled = command.output().unwrap();
        assert_eq!(plain.status.code(), profiled.status.code(), "{name}");
        let [plain, profiled] = [&plain, &profiled].map(|output| String::from_utf8_lossy(&output.stdout));
        assert_eq!(plain.lines().count(), profiled.lines().count(), "{name}");
        for (expected, said) in plain.lines().zip(profiled.lines()) {
            // The word of a plain mutex that only a recursive one uses.
            let is_ours = expected == "count 0" && said.starts_with("count ");
            assert!(is_ours || expected == said, "{name}: {said}, and without the profile {expected}");
        }
    };
    // They mostly wait for each other.
    std::thread::scope(|scope| {
        for name in ["barrier", "cancel", "keys", "misuse", "owed", "rwlock", "sem", "stress"] {
            scope.spawn(move || same(name));
        }
    });
}

/// The program goes on, and its status is told, also where nobody reads the report.
#[test]
fn a_report_that_nobody_reads_costs_nothing_else() {
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = wakeful();
    command.arg("profile").arg(&program).args(["sleeper", "5"]);
    let status = command.stdout(Stdio::null()).stderr(Stdio::from(writer)).status().unwrap();
    assert_eq!(status.code(), Some(3));
}
