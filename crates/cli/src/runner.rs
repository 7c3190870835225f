// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `wakeful` command. It does `wakeful run PROGRAM` itself; for all else it becomes `wakeful-verbs`,
//! which lies beside it (`main.rs`).
//!
//! **Why.** Each start of a program under `wakeful run` pays for the process image before it: its
//! libraries, pages and relocations, Rust's runtime, the parser. Most of that is for verbs and options that
//! are not used.
//!
//! **What it does itself** is what needs no word from us. If anything is to be said, refused or looked up
//! further, `wakeful-verbs` finds that out anew, and says so.
#![no_main]

use std::ffi::{OsStr, OsString, c_char, c_int};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use launch::closure::Reach;
use launch::{Launch, Target, When, library, names, stack};
use linux::environment::{BARRIER, LOCK, RWLOCK, VIEW};

/// The program that has all verbs and options: beside this one, or where the interposer may be as well.
const VERBS: &str = "wakeful-verbs";
const FAILED: u8 = 125;

/// Without Rust's own `main`, which prepares for what is not done here.
#[unsafe(no_mangle)]
extern "C" fn main(_: c_int, _: *const *const c_char) -> c_int {
    if stack::is_enough() {
        run();
    }
    let places = library::places(VERBS).unwrap_or_default();
    let place = places.iter().find(|place| place.is_file()).unwrap_or(&places[0]);
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    let error = Command::new(place).arg0(name).args(words).exec();
    let _ = writeln!(
        std::io::stderr(),
        "wakeful: cannot run {VERBS}: {error};\nit is part of this command, and belongs next to it: {}",
        place.display()
    );
    FAILED.into()
}

/// Becomes the program, if it is to be run as it usually is. Returns if it is not, or cannot be.
fn run() {
    if [LOCK, RWLOCK, BARRIER, VIEW].iter().any(|variable| std::env::var_os(variable.name()).is_some()) {
        return;
    }
    if !names::misspelt().is_empty() {
        return;
    }
    let Some(command) = command(std::env::args_os().skip(1)) else { return };
    let target = Target { lock: None, rwlock: None, barrier: None, view: None, openmp: When::Auto, command };
    if let Ok(launch) = Launch::prepare(target, Reach::Near)
        && launch.program.obstacle.is_none()
    {
        launch::become_program(&launch.helped(), &launch.path);
    }
}

/// The program and its arguments, after `run` without options.
fn command(words: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut words = words.peekable();
    words.next_if_eq(OsStr::new("run"))?;
    let may_be_option = words.next_if_eq(OsStr::new("--")).is_none();
    let command: Vec<_> = words.collect();
    let is_option = may_be_option && command.first()?.as_bytes().starts_with(b"-");
    (!is_option && !command.is_empty()).then_some(command)
}
