// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful sim claims`: a run that ended at any moment goes on from its file, and gives the same.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn command(file: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeful"));
    command
        .args(["sim", "claims", "--figure", "tr15,tr23,tr28", "--size", "0.01", "--file"])
        .arg(file)
        .args(more);
    command
}

fn claims(file: &Path, more: &[&str]) -> Output {
    command(file, more).output().unwrap()
}

/// The table; it must be there.
fn table(file: &Path, more: &[&str]) -> String {
    let output = claims(file, more);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refusal(file: &Path, more: &[&str]) -> String {
    let output = claims(file, more);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0));
    String::from_utf8(output.stderr).unwrap()
}

fn desk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

const SIX: &[&str] = &["--samples", "6", "--format", "csv"];

/// The lines of a file, whatever their order.
fn sorted(file: &Path) -> Vec<String> {
    let mut lines: Vec<String> = fs::read_to_string(file).unwrap().lines().map(String::from).collect();
    lines.sort();
    lines
}

#[test]
fn a_file_that_ends_anywhere_is_gone_on_with() {
    let desk = desk();
    let whole = desk.path().join("whole");
    let is = table(&whole, SIX);
    // 3 + 1 + 2 claims and a head.
    assert_eq!(is.lines().count(), 7, "{is}");
    assert_eq!(is, table(&whole, &[SIX, &["--jobs", "1"]].concat()));
    let text = fs::read(&whole).unwrap();
    let part = desk.path().join("part");
    let head = text.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for end in [0, head, head + 1, text.len() / 3, text.len() - 1] {
        fs::write(&part, &text[..end]).unwrap();
        assert_eq!(table(&part, &[SIX, &["--jobs", "3"]].concat()), is, "cut at {end}");
        assert_eq!(sorted(&part), sorted(&whole), "cut at {end}");
    }
    // Fewer are the first ones; more are added.
    let two = table(&part, &["--samples", "2", "--format", "csv"]);
    assert_ne!(two, is);
    assert_eq!(two, table(&desk.path().join("two"), &["--samples", "2", "--format", "csv"]));
    fs::remove_file(&part).unwrap();
    table(&part, &["--samples", "2"]);
    assert_eq!(table(&part, SIX), is);
}

#[test]
fn a_run_that_was_killed_is_gone_on_with() {
    let desk = desk();
    let (whole, part) = (desk.path().join("whole"), desk.path().join("part"));
    let is = table(&whole, SIX);
    let lines = || fs::read_to_string(&part).unwrap_or_default().lines().count();
    let kills = || {
        let _ = fs::remove_file(&part);
        let mut kills = 0;
        while lines() < 15 {
            let before = lines();
            let mut run = command(&part, SIX).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            while lines() < before.max(1) + 4 && run.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = run.kill();
            run.wait().unwrap();
            kills += 1;
        }
        kills
    };
    // Where others have the processors we may be late to kill it.
    assert!((0..20).any(|_| kills() >= 2), "it was killed once, each time");
    assert_eq!(table(&part, SIX), is);
    assert_eq!(sorted(&part), sorted(&whole));
}

#[test]
fn damage_says_what_to_do() {
    let desk = desk();
    let file = desk.path().join("samples");
    let is = table(&file, SIX);
    let text = fs::read_to_string(&file).unwrap();
    let third = text.lines().nth(2).unwrap();
    // One digit is another.
    let at = third.rfind(|letter: char| letter.is_ascii_digit()).unwrap();
    let digit = if &third[at..=at] == "7" { "3" } else { "7" };
    let wrong = format!("{}{digit}{}", &third[..at], &third[at + 1..]);
    let damaged = text.replace(third, &wrong);
    fs::write(&file, &damaged).unwrap();
    let why = refusal(&file, SIX);
    assert!(why.contains("line 3") && why.contains("delete it, and it is computed again"), "{why}");
    assert_eq!(fs::read_to_string(&file).unwrap(), damaged, "it is left as it was");
    // As it says.
    fs::write(&file, damaged.replace(&format!("{wrong}\n"), "")).unwrap();
    assert_eq!(table(&file, SIX), is);

    fs::write(&file, format!("{text}{third}\n")).unwrap();
    let why = refusal(&file, SIX);
    assert!(why.contains("line 20") && why.contains("already: delete it"), "{why}");
}

#[test]
fn samples_of_something_else_are_refused() {
    let desk = desk();
    let file = desk.path().join("samples");
    table(&file, &["--samples", "1"]);
    let text = fs::read(&file).unwrap();
    for other in [&["--seed", "2"][..], &["--described"], &["--size", "0.02"]] {
        let command =
            [&["sim", "claims", "--figure", "tr15", "--file"][..], &[file.to_str().unwrap()], other].concat();
        let size: &[&str] = if other[0] == "--size" { &[] } else { &["--size", "0.01"] };
        let output = Command::new(env!("CARGO_BIN_EXE_wakeful")).args(command).args(size).output().unwrap();
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(125) && why.contains("with --seed 1 --size 0.01:"), "{why}");
    }
    assert_eq!(fs::read(&file).unwrap(), text);
    fs::write(&file, "some notes of mine\nwithout an end").unwrap();
    assert!(refusal(&file, SIX).contains("is no file of samples"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "some notes of mine\nwithout an end");
    let why = refusal(Path::new("no/such/folder/samples"), SIX);
    assert!(why.contains("cannot read and write no/such/folder/samples"), "{why}");
}

#[test]
fn the_page_has_all_claims_and_curves_and_needs_no_other_file() {
    let desk = desk();
    let (file, page) = (desk.path().join("samples"), desk.path().join("page.html"));
    table(&file, &["--samples", "3", "--html", page.to_str().unwrap()]);
    let page = fs::read_to_string(&page).unwrap();
    assert_eq!(page.matches("<tr>").count(), 1 + 6);
    assert_eq!((page.matches("<svg").count(), page.matches("</svg>").count()), (3, 3));
    // A band for each line: 10 locks, 4 reader-writer locks, 3 barriers.
    assert_eq!(page.matches("fill-opacity").count(), 10 + 4 + 3);
    assert!(page.contains("Queue, Queue-np and Ticket perform poorly") && page.contains("at least 10<"));
    for other in ["src=", "@import", "url(", "<link", "<script"] {
        assert!(!page.contains(other), "{other}");
    }
    let links = page.matches("href=\"").count();
    assert_eq!(links, page.matches("href=\"#tr").count());
}
