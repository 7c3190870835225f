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

/// Generations in a process without a space: a child has another one, whatever its process id, and who shares
/// its parent's memory has the parent's.
pub fn generations() {
    let mine = Linux::generation();
    let next = |of: u32| (of + 1) % 8;
    assert_eq!(shared(), mine);
    assert_eq!(Linux::generation(), mine, "a child that shares the memory has changed its parent's");
    for raw in [false, true] {
        assert!(in_child(raw, || Linux::generation() == next(mine)));
        assert!(in_child(raw, || in_child(raw, || Linux::generation() == next(mine))));
        assert!(in_child(raw, || {
            Linux::generation() == next(mine) && in_child(raw, || Linux::generation() == next(next(mine)))
        }));
    }
    // A space that comes later has the same number.
    assert!(in_child(false, || {
        let told = Linux::generation();
        Linux::register() != ThreadId::NONE && Linux::generation() == told
    }));
    // Process 1, and its child, which is process 1 of a namespace of its own.
    let first = |body: &dyn Fn() -> bool| {
        // SAFETY: plain numbers.
        unsafe { libc::unshare(libc::CLONE_NEWPID) == 0 && in_child(false, || libc::getpid() == 1 && body()) }
    };
    // SAFETY: as above.
    if in_child(false, || unsafe { libc::unshare(libc::CLONE_NEWPID) } == 0) {
        assert!(in_child(false, || first(&|| {
            Linux::generation() == next(mine) && first(&|| Linux::generation() == next(next(mine)))
        })));
    } else {
        skipped("namespaces of process ids need root");
    }
    assert_eq!(Linux::generation(), mine);
}

/// What a child says that shares this process's memory.
fn shared() -> u32 {
    extern "C" fn tell(to: *mut libc::c_void) -> i32 {
        // SAFETY: the parent's, which waits.
        unsafe { to.cast::<u32>().write(Linux::generation()) };
        0
    }
    let (mut told, mut status, mut stack) = (u32::MAX, 0, vec![0u64; 8192]);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: a stack of its own, which ends on 16 bytes as the heap does; the parent waits for its end.
    unsafe {
        let child = libc::clone(tell, stack.as_mut_ptr_range().end.cast(), flags, (&raw mut told).cast());
        assert!(child > 0 && libc::waitpid(child, &mut status, 0) == child && status == 0);
    }
    told
}
