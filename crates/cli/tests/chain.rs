// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `wakeful profile` says of one lock: its name, its turns, and who was behind the longest wait for it.

use std::path::{Path, PathBuf};

mod profiled;

use profiled::{compile_by, folder, may_record, number, one, profiled};
use serde_json::Value;

fn compile(folder: &Path, options: &[&str]) -> PathBuf {
    compile_by("cc", folder, "profiled.c", options)
}

#[test]
fn whoever_is_behind_a_wait_is_told() {
    if !may_record() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), &["-g"]);
    let (records, status) = profiled(&[], &program, &["chain", "3"]);
    assert_eq!(status, Some(0), "{records:#?}");
    let first = records.iter().find(|one| one["record"] == "waits" && one["name"] == "links").unwrap();
    let longest = &first["longest"];
    let [middle, deep] = [0, 1].map(|at| &longest["chain"][at]);
    assert_eq!([&longest["name"], &middle["name"], &deep["name"]], ["top", "middle", "deep"], "{first:#}");
    assert_eq!([&middle["did"], &middle["waited"]["lock"]], ["waiting", "links+0x28"], "{first:#}");
    assert!(
        middle["waited"]["place"].as_str().unwrap().starts_with("take_second c/profiled.c:"),
        "{first:#}"
    );
    assert_eq!(deep["did"], "preempted", "{first:#}");
    let words = one(&records, "verdict")["words"].as_str().unwrap();
    assert!(words.contains(" The longest wait there: `"), "{words}");
    assert!(words.contains(" for `deep` (") && words.contains("which had no processor for"), "{words}");
    // Where other programs want the processors, one of them may have had that one.
    if is_quiet(&records) || !deep["behind"].is_null() {
        assert_eq!(deep["behind"]["name"], "burner", "{first:#}");
    }
}

/// Did other programs have next to nothing? Six threads share one processor, so that they are ready for long.
fn is_quiet(records: &[Value]) -> bool {
    let all = one(records, "profile");
    all["foreign_ns"].as_u64().is_some_and(|foreign_ns| foreign_ns * 20 < number(all, "elapsed_ns"))
}

/// One lock of a table, of a program that lies where it was linked to.
#[test]
fn a_part_of_a_variable_has_its_name_and_how_far_it_is_from_the_beginning() {
    let folder = folder();
    let program = compile(folder.path(), &["-no-pie"]);
    let (records, status) = profiled(&[], &program, &["chain", "1"]);
    assert_eq!(status, Some(0), "{records:#?}");
    let rows = records.iter().filter(|one| one["kind"] == "mutex");
    let mut names: Vec<&str> = rows.map(|row| row["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["links", "links+0x28"], "{records:#?}");
}
