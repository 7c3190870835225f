// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a forked child has of its parent's view.

use super::*;

fn fork(raw: bool) -> i32 {
    // SAFETY: as fork; the raw one skips the C library's handlers, and the child keeps to what works then.
    unsafe {
        if raw { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 } else { libc::fork() }
    }
}

/// Runs `body` in a forked child; true if it returned true.
fn in_child(raw: bool, body: impl FnOnce() -> bool) -> bool {
    match fork(raw) {
        0 => {
            let fine = body();
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(if fine { 0 } else { 1 }) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the child is ours, the pointer valid.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

/// Two fresh pages that begin with this number.
fn mapped(number: usize) -> *mut usize {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping, written within.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 8192, protection, flags, -1, 0).cast::<usize>();
        at.write(number);
        at
    }
}

pub fn forks(raw: bool) {
    linux::init();
    let me = Linux::register();
    let generation = Linux::generation();
    Linux::word(me, 0).store(77, Relaxed);
    Linux::set_priority(me, Priority::LockHolder);
    let ids: Vec<_> = (0..40).map(|_| std::thread::spawn(Linux::register).join().unwrap()).collect();
    assert!(ids.iter().all(|&id| id != ThreadId::NONE && id != me));
    // A child that maps a lot where the parent's rings were, and finds it unharmed.
    let child = || {
        let maps: Vec<_> = (0..2000).map(mapped).collect();
        // Before anybody sets anything up: nothing is known, and nothing faults.
        let unknown =
            Linux::run_state(me) == RunState::Unknown && !Linux::higher_preempted(Priority::BarrierWaiter);
        Linux::word(me, 0).store(1, Relaxed);
        let id = Linux::register();
        let seen = Linux::run_state(id);
        let right = if expected() == View::None { RunState::Unknown } else { RunState::Running };
        // SAFETY: mapped above.
        let unharmed = maps.iter().enumerate().all(|(i, at)| unsafe { at.read() } == i);
        unknown
            && id != ThreadId::NONE
            && seen == right
            && unharmed
            && Linux::generation() == (generation + 1) % 8
    };
    assert!(in_child(raw, child));
    assert!(in_child(raw, child), "every child of one parent has the same generation");
    // A child that never looks, and its child: the queues it could have copied are the grandparent's.
    assert!(in_child(raw, || in_child(raw, || Linux::generation() == (generation + 1) % 8)));
    assert!(in_child(raw, || {
        let mine = Linux::generation();
        mine == (generation + 1) % 8 && in_child(raw, || Linux::generation() == (mine + 1) % 8)
    }));
    // Threads of a child do not share an id with its first one, which came with a stale one.
    if !raw {
        assert!(in_child(false, || {
            static ALL: AtomicU32 = AtomicU32::new(0);
            let ids: Vec<_> = (0..50)
                .map(|_| {
                    std::thread::spawn(|| {
                        let id = Linux::register();
                        ALL.fetch_add(1, Relaxed);
                        eventually("all have ids", || ALL.load(Relaxed) == 51);
                        id
                    })
                })
                .collect();
            let mine = Linux::register();
            ALL.fetch_add(1, Relaxed);
            ids.into_iter().all(|thread| thread.join().unwrap() != mine)
        }));
    }
    assert_eq!(Linux::word(me, 0).load(Relaxed), 77, "a child wrote into the parent's arena");
    assert_eq!((Linux::register(), Linux::generation()), (me, generation));
    assert_eq!(Linux::priority(me), Priority::LockHolder);
    // exec: a fresh start.
    assert!(Command::new("/bin/true").status().unwrap().success());
}
