// SPDX-License-Identifier: MIT OR Apache-2.0
//! gdb finds fibers, their names, states and stacks, in a program that is stopped and in its dump.
//!
//! The program is this one, started again by gdb. It aborts when all fibers are where they are to be.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use fiber::{Config, Runtime, thread};

const STOPPED: &str = "WAKEFUL_TEST_STOPPED";

#[inline(never)]
fn waits_for_a_friend(begun: &AtomicBool) {
    begun.store(true, Relaxed);
    thread::park();
    std::hint::black_box(begun);
}

#[inline(never)]
fn gives_way(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        thread::yield_now();
    }
    std::hint::black_box(stop);
}

/// When this runs, on the only carrier, the others have switched away.
#[inline(never)]
fn stops_here(begun: &AtomicBool) {
    while !begun.load(Relaxed) {
        thread::yield_now();
    }
    std::process::abort();
}

/// Makes the guards of stacks mappings. gdb leaves a megabyte out of its dumps where it meets another guard;
/// the kernel leaves out nothing.
fn guard_by_mappings() {
    const MADV_GUARD_INSTALL: u32 = 102;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal = |k, otherwise| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, otherwise, k);
    let end = |k| step(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    // The number of the call, and the low half of its third argument.
    let mut steps = [
        load(0),
        equal(libc::SYS_madvise as u32, 3),
        load(32),
        equal(MADV_GUARD_INSTALL, 1),
        end(libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the filter lives across the call, which copies it. Carriers start later and have it, too.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

/// What gdb starts; in a usual run of the tests it does nothing.
#[test]
fn stopped_program() {
    if std::env::var_os(STOPPED).is_none() {
        return;
    }
    guard_by_mappings();
    let one = Runtime::start(Config { processors: Some(1), ..Config::default() }).unwrap();
    let begun = Arc::new(AtomicBool::new(false));
    let named = |name: &str| thread::Builder::new().name(name).runtime(one);
    let (first, second, third) = (begun.clone(), begun.clone(), Arc::new(AtomicBool::new(false)));
    let _waiter = named("waiter").spawn(move || waits_for_a_friend(&first)).unwrap();
    let _yielder = named("yielder").spawn(move || gives_way(&third)).unwrap();
    named("stopper").spawn(move || stops_here(&second)).unwrap().join().unwrap();
}

fn gdb(words: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/gdb/libwakeful.so-gdb.py");
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set width 0"]);
    command
        .env(STOPPED, "1")
        .env("MALLOC_ARENA_MAX", "1")
        .arg("-ex")
        .arg(format!("source {}", script.display()));
    let output = command.args(words).output().expect("gdb, which the gate installs");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The line of the list that has this name.
fn line<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let found = text.lines().find(|line| line.split_whitespace().nth(2) == Some(name));
    found.unwrap_or_else(|| panic!("no {name}: {text}")).split_whitespace().collect()
}

fn check(text: &str) {
    for (name, state, function) in [
        ("waiter", "parked", "waits_for_a_friend"),
        ("yielder", "ready", "gives_way"),
        ("stopper", "runs", "stops_here"),
    ] {
        let line = line(text, name);
        assert_eq!(line[1], state, "{name}: {text}");
        assert!(line[3..].concat().contains(function), "{name}: {text}");
    }
    let stack = text.split("Fiber ").find(|part| part.contains(" waiter: parked")).unwrap();
    assert!(stack.contains("waits_for_a_friend") && stack.contains("gdb.rs:"), "{text}");
    // To its own first function, and not to what ran it last.
    assert!(stack.contains("coroutine_func") && !stack.contains("start_thread"), "{text}");
}

#[test]
fn fibers_are_listed_in_a_program_and_in_its_dump() {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let dump = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fibers.{}.core", std::process::id()));
    let dump = dump.to_str().unwrap();
    let write = format!("generate-core-file {dump}");
    let live = gdb(&[
        "-ex",
        "run --exact stopped_program",
        "-ex",
        "info fibers",
        "-ex",
        "fiber bt all",
        "-ex",
        &write,
        // The chain of calls crosses from the fiber to the carrier that runs it.
        "-ex",
        "echo CHAIN\\n",
        "-ex",
        "bt",
        program,
    ]);
    let (list, chain) = live.split_once("CHAIN").expect("gdb has run it");
    check(list);
    // The carrier's first function; below it is the C library's, whose names need not be there.
    assert!(chain.contains("stops_here") && chain.contains("fiber/src/start.rs"), "{live}");
    let dead = gdb(&["-ex", "info fibers", "-ex", "fiber bt all", program, dump]);
    std::fs::remove_file(dump).unwrap();
    check(&dead);
    let wrong = gdb(&["-ex", "info fibers", "/bin/true"]);
    assert!(wrong.contains("no symbol WAKEFUL_FIBERS"), "{wrong}");
}
