// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `wakeful profile` says of one lock: its name.

use std::path::{Path, PathBuf};

mod profiled;

use profiled::{compile_by, folder, profiled};

fn compile(folder: &Path, options: &[&str]) -> PathBuf {
    compile_by("cc", folder, "profiled.c", options)
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
