// SPDX-License-Identifier: MIT OR Apache-2.0
//! The observer in this machine's kernel. Needs root, hence the names.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use abi::environment::OBSERVER;
use abi::{Arena, Priority, RunState, Thread};
use bpf::{Error, Handle, Observer};

fn root() -> bool {
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skipped("needs root");
    }
    root
}

fn block(arena: &'static Arena, index: usize) -> &'static Thread {
    // SAFETY: the blocks follow the header, and the arena is never unmapped.
    unsafe { &*std::ptr::from_ref(arena).add(1).cast::<Thread>().add(index) }
}

fn pin(processor: usize) {
    // SAFETY: an all-zero cpu_set_t is valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

fn state(block: &Thread) -> RunState {
    block.run_state()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "never: {what}");
        std::hint::spin_loop();
    }
}

#[test]
fn root_sees_preempted_and_blocked_and_counts_them() {
    if !root() {
        return;
    }
    let observer = Observer::load().unwrap();
    let (arena, enrolment) = (observer.arena().unwrap(), observer.enrolment());
    static STOP: AtomicBool = AtomicBool::new(false);
    static PARK: AtomicBool = AtomicBool::new(false);
    // Two busy threads on one processor, watched from the other one.
    let busy: Vec<_> = [1u32, 2]
        .into_iter()
        .map(|index| {
            std::thread::spawn(move || {
                pin(0);
                let block = block(arena, index as usize);
                block.lease.store(7, Relaxed);
                block.priority.store(Priority::LockHolder as u32, Relaxed);
                assert!(enrolment.attach(index, 7));
                while !STOP.load(Relaxed) {
                    std::hint::spin_loop();
                    if PARK.load(Relaxed) && index == 1 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                assert!(enrolment.detach());
                assert!(!enrolment.detach(), "twice");
            })
        })
        .collect();
    pin(1);
    let class = &arena.preempted[Priority::LockHolder as usize];
    for index in [1, 2] {
        eventually("preempted", || state(block(arena, index)) == RunState::Preempted);
        eventually("running", || state(block(arena, index)) == RunState::Running);
    }
    eventually("counted", || class.load(Relaxed) == 1);
    assert!(block(arena, 1).preemptions.load(Relaxed) > 0);
    PARK.store(true, Relaxed);
    eventually("blocked", || state(block(arena, 1)) == RunState::Blocked);
    assert!(block(arena, 1).blocks.load(Relaxed) > 0);
    STOP.store(true, Relaxed);
    for thread in busy {
        thread.join().unwrap();
    }
    for count in &arena.preempted {
        assert_eq!(count.load(Relaxed), 0, "a count is left over");
    }
}

#[test]
fn root_leaves_no_count_over_when_threads_come_and_go() {
    if !root() {
        return;
    }
    let observer = Observer::load().unwrap();
    let (arena, enrolment) = (observer.arena().unwrap(), observer.enrolment());
    for round in 0..20 {
        let threads: Vec<_> = (1..=16u32)
            .map(|index| {
                std::thread::spawn(move || {
                    let block = block(arena, index as usize);
                    block.lease.store(round * 16 + index, Relaxed);
                    assert!(enrolment.attach(index, round * 16 + index));
                    for i in 0..200u32 {
                        block.priority.store(i % 9, Relaxed);
                        std::thread::yield_now();
                    }
                    // Every second thread dies without resigning.
                    if index % 2 == 0 {
                        assert!(enrolment.detach());
                    }
                })
            })
            .collect();
        // Who has been joined may still be on its way to its last switch: the next round takes its block over nevertheless.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    eventually("no count", || arena.preempted.iter().all(|count| count.load(Relaxed) == 0));
    assert!(
        (1..=16).any(|index| block(arena, index).preemptions.load(Relaxed) > 0),
        "nothing was ever preempted"
    );
}

#[test]
fn root_other_lease_changes_nothing() {
    if !root() {
        return;
    }
    let observer = Observer::load().unwrap();
    let (arena, enrolment) = (observer.arena().unwrap(), observer.enrolment());
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        block(arena, 3).lease.store(1, Relaxed);
        assert!(enrolment.attach(3, 1));
        std::thread::sleep(Duration::from_millis(5));
        // Somebody else gets the block.
        block(arena, 3).lease.store(2, Relaxed);
        block(arena, 3).state.store(99, Relaxed);
        std::thread::sleep(Duration::from_millis(5));
        send.send(block(arena, 3).blocks.load(Relaxed)).unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(receive.recv().unwrap(), 1, "only the switch under its own lease");
    assert_eq!(block(arena, 3).state.load(Relaxed), 99);
}

/// Not a test of its own: the unprivileged child of the next one.
#[test]
fn child_uses_inherited_observer() {
    let Ok(text) = std::env::var(OBSERVER.name()) else { return };
    // SAFETY: no arguments.
    assert_ne!(unsafe { libc::geteuid() }, 0);
    assert!(matches!(Observer::load(), Err(Error::NotPermitted)));
    let handle: Handle = text.parse().unwrap();
    let observer = Observer::take_over(handle).unwrap();
    assert!(matches!(Observer::take_over(handle), Err(Error::Gone(_))), "the numbers are not ours any more");
    let arena = observer.arena().unwrap();
    let block = block(arena, 1);
    block.lease.store(1, Relaxed);
    assert!(observer.enrolment().attach(1, 1), "an unprivileged thread may not enrol");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(state(block), RunState::Running);
    assert!(block.blocks.load(Relaxed) > 0);
    println!("the child was seen");
}

#[test]
fn root_hands_over_to_unprivileged_child() {
    if !root() {
        return;
    }
    let observer = Observer::load().unwrap();
    let handle = observer.hand_over().unwrap();
    assert_eq!(handle.to_string().parse::<Handle>().unwrap(), handle);
    // The build directory may be closed to other users; /proc/self/exe is not.
    let child = Command::new("/proc/self/exe")
        .args(["--exact", "child_uses_inherited_observer", "--nocapture"])
        .env(OBSERVER.name(), handle.to_string())
        .uid(65534)
        .gid(65534)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(observer);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("the child was seen"), "{text}");
}

/// Not a test of its own: an application of the next one. It waits to be admitted.
#[test]
fn child_uses_shared_observer() {
    let Ok(admitted) = std::env::var("WAKEFUL_TEST_ADMITTED") else { return };
    let observer = Observer::take_over(std::env::var(OBSERVER.name()).unwrap().parse().unwrap()).unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let (arena, enrolment) = (observer.arena().unwrap(), observer.enrolment());
    block(arena, 1).lease.store(1, Relaxed);
    block(arena, 2).lease.store(2, Relaxed);
    let attached =
        [1, 2].map(|index| std::thread::spawn(move || enrolment.attach(index, index)).join().unwrap());
    assert_eq!(attached, [admitted == "yes"; 2]);
    eventually("the last switch", || (block(arena, 1).blocks.load(Relaxed) > 0) == attached[0]);
    println!("the child has done");
}

#[test]
fn root_one_observer_serves_whom_it_admitted() {
    if !root() {
        return;
    }
    let observer = bpf::shared::Observer::load().unwrap();
    assert!(matches!(observer.slots().unwrap().prepare(0), Err(Error::Full)));
    let children = [(1, Some(1)), (2, Some(2)), (3, None), (4, Some(5))].map(|(slot, admitted)| {
        let admission = observer.slots().unwrap().prepare(slot).unwrap();
        let mut child = Command::new("/proc/self/exe")
            .args(["--exact", "child_uses_shared_observer", "--nocapture"])
            .env(OBSERVER.name(), admission.hand_over().unwrap().to_string())
            // Who was admitted to a slot that is not ready cannot enrol either.
            .env("WAKEFUL_TEST_ADMITTED", if admitted == Some(slot) { "yes" } else { "no" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        if let Some(slot) = admitted {
            observer.admit(bpf::pidfd(child.id()).unwrap().as_fd(), slot).unwrap();
        }
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        child
    });
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("the child has done"), "{text}");
    }
    observer.slots().unwrap().release(1).unwrap();
}

#[test]
fn root_refuses_descriptors_that_are_something_else() {
    if !root() {
        return;
    }
    let handle: Handle = "0 1 1 1 2 1".parse().unwrap();
    assert!(matches!(Observer::take_over(handle), Err(Error::Gone(0))));
    for text in ["", "1 2 3", "a b c d e f", "1 2 3 4 5 6 7", "4294967295 1 1 1 1 1"] {
        assert!(matches!(text.parse::<Handle>(), Err(Error::BadHandle)), "{text}");
    }
    // Another observer's ids.
    let (one, two) = (Observer::load().unwrap(), Observer::load().unwrap());
    let (one, two) = (one.hand_over().unwrap().to_string(), two.hand_over().unwrap().to_string());
    let (fd, _) = one.split_once(' ').unwrap();
    let (_, rest) = two.split_once(' ').unwrap();
    assert!(matches!(Observer::take_over(format!("{fd} {rest}").parse().unwrap()), Err(Error::Gone(_))));
}

/// A forked child that ends with this value, also where the test fails.
struct Killed(libc::pid_t);

impl Drop for Killed {
    fn drop(&mut self) {
        // SAFETY: the child is ours and was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn root_leaves_nothing_behind() {
    if !root() {
        return;
    }
    let mut ends = [0; 2];
    // SAFETY: the array has room for two.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child of this multi-threaded process uses the heap, which glibc's fork keeps usable.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let observer = Observer::load().unwrap();
        let text = observer.hand_over().unwrap().to_string();
        // SAFETY: plain system calls.
        unsafe {
            libc::write(ends[1], text.as_ptr().cast(), text.len());
            libc::pause();
            libc::_exit(0);
        }
    }
    let child = Killed(child);
    let mut text = [0u8; 128];
    // SAFETY: the buffer is as long as stated.
    let length = unsafe { libc::read(ends[0], text.as_mut_ptr().cast(), text.len()) };
    let text = std::str::from_utf8(&text[..length as usize]).unwrap();
    let id = text.split(' ').nth(3).and_then(|id| id.parse().ok()).expect("the id of the enrolling program");
    assert!(bpf::program_exists(id).unwrap(), "the child's program was not seen");
    drop(child);
    eventually("the killed child's program is gone", || {
        std::thread::sleep(Duration::from_millis(20));
        !bpf::program_exists(id).unwrap()
    });
}

/// Says so on the terminal even though the harness keeps what a test prints.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
