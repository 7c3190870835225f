// SPDX-License-Identifier: MIT OR Apache-2.0
//! Teams follow the processors that the program may use. A program of its own: the affinity is everybody's.

use std::sync::atomic::{AtomicUsize, Ordering::*};

use wakeful::parallel::{Schedule, Team};

/// Restricts all threads of this process to these processors.
fn restrict(processors: &[usize]) {
    for task in std::fs::read_dir("/proc/self/task").expect("proc is mounted") {
        let tid: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: an all-zero set is valid. A thread that has ended meanwhile is none the worse for it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            processors.iter().for_each(|&processor| libc::CPU_SET(processor, &mut set));
            libc::sched_setaffinity(tid, size_of_val(&set), &set);
        }
    }
}

#[test]
fn as_many_members_as_processors() {
    // SAFETY: an all-zero set is valid.
    let usable: Vec<usize> = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&processor| libc::CPU_ISSET(processor, &set)).collect()
    };
    let (bound, free) = (Team::bound(), Team::free(2));
    if usable.len() < 2 || bound.members() < 2 {
        eprintln!("SKIPPED: needs two processors and no quota");
        return;
    }
    let most = bound.members();
    for few in [true, false, true, false] {
        restrict(if few { &usable[..1] } else { &usable });
        // It is the loops that notice, within a second or so of not being stopped.
        while bound.members() != if few { 1 } else { most } {
            for team in [&bound, &free] {
                let count = AtomicUsize::new(0);
                team.for_each(0..100, Schedule::Guided { least: 1 }, |_| _ = count.fetch_add(1, Relaxed));
                assert_eq!(count.into_inner(), 100);
            }
        }
        assert_eq!(free.members(), if few { 1 } else { 2 });
    }
}
