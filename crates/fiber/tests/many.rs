// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many fibers: how much memory they take, and that it comes back into use.

use std::process::Command;
use std::sync::Arc;

use fiber::sync::Semaphore;
use fiber::{Activations, Config, Runtime, thread};

/// This test in a process of its own, as memory is the process's. `None`: this is the child.
fn child(test: &str) -> Option<()> {
    if std::env::var_os("FIBER_CHILD").is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let status = command.args([test, "--exact", "--nocapture"]).env("FIBER_CHILD", "1").status().unwrap();
    assert!(status.success(), "{status}");
    Some(())
}

/// KiB that this line of the kernel's status names.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// KiB in memory, with the tables of the pages.
fn memory() -> u64 {
    status("VmRSS") + status("VmPTE")
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

fn runtime() -> &'static Runtime {
    Runtime::start(Config { activations: Activations::None, ..Config::default() }).unwrap()
}

/// Does a guard page cost no mapping here?
fn guards_are_free() -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a page of our own, which is unmapped again.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        let free = libc::madvise(page, 4096, 102) == 0;
        libc::munmap(page, 4096);
        free
    }
}

/// So many that have begun and wait, all at once.
fn alive(count: usize) {
    let before = memory();
    runtime().run(move || {
        let (begun, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let fibers: Vec<_> = (0..count)
            .map(|number| {
                let (begun, go_on) = (begun.clone(), go_on.clone());
                thread::spawn(move || {
                    begun.release();
                    go_on.acquire();
                    number
                })
            })
            .collect();
        (0..count).for_each(|_| begun.acquire());
        let (each, mappings) = ((memory() - before) * 1024 / count as u64, mappings());
        eprintln!("{count} fibers: {each} bytes each, {mappings} mappings");
        // 8 GiB for a million.
        assert!(each < 8 * 1024 * 1024 * 1024 / 1_000_000, "{each} bytes each");
        assert!(mappings < 5_000, "{mappings} mappings");
        (0..count).for_each(|_| go_on.release());
        for (number, fiber) in fibers.into_iter().enumerate() {
            assert_eq!(fiber.join().unwrap(), number);
        }
    });
}

#[test]
fn fifty_thousand_are_alive() {
    if guards_are_free() && child("fifty_thousand_are_alive").is_none() {
        alive(50_000);
    }
}

#[test]
fn a_million_are_alive() {
    let long = std::env::var_os("WAKEFUL_LONG").is_some();
    if long && guards_are_free() && child("a_million_are_alive").is_none() {
        alive(1_000_000);
    }
}

/// Ten thousand at once, again and again: after the first rounds nothing grows.
#[test]
fn nothing_grows() {
    if child("nothing_grows").is_some() {
        return;
    }
    let rounds = if std::env::var_os("WAKEFUL_LONG").is_some() { 1_000 } else { 50 };
    runtime().run(move || {
        // How many of a round there are at once depends on who has a processor. So once all of them.
        let go_on = Arc::new(Semaphore::new(0));
        let waits = || {
            let go_on = go_on.clone();
            thread::Builder::new().name("one of many").spawn(move || go_on.acquire()).unwrap()
        };
        let fibers: Vec<_> = (0..10_000).map(|_| waits()).collect();
        (0..10_000).for_each(|_| go_on.release());
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        let mut first = (0, 0);
        for round in 0..rounds {
            let fibers: Vec<_> = (0..10_000)
                .map(|_| thread::Builder::new().name("one of many").spawn(thread::yield_now).unwrap())
                .collect();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            if round == rounds / 2 {
                first = (memory(), mappings());
            }
        }
        let last = (memory(), mappings());
        eprintln!("{first:?}, {last:?}");
        assert!(last.0 < first.0 + first.0 / 20, "KiB: {} and then {}", first.0, last.0);
        assert!(last.1 <= first.1 + 2, "mappings: {} and then {}", first.1, last.1);
    });
}
