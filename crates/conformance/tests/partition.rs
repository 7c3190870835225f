// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers whose program is given fewer processors, and more again, while they are in use. A program of
//! its own: the affinity is everybody's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use conformance::barrier_bodies;
use linux::Linux;
use platform::Platform;

/// Restricts all threads of this process to the first so many of these processors.
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

macro_rules! all {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        fn all(rounds: u32) {
            type P = Linux;
            $(barrier_bodies::episodes::<P, $type>(4, if crowds($name) { rounds } else { 3 });)*
        }
    };
}
catalog::barriers!(all);

/// COST: those that only spin wait for a slice at nearly each episode.
fn crowds(name: &str) -> bool {
    !matches!(name, "c-spin" | "b-mcs-spin" | "incremental-spin")
}

#[test]
fn barriers_follow_the_affinity() {
    // SAFETY: an all-zero set is valid.
    let usable: Vec<usize> = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&processor| libc::CPU_ISSET(processor, &set)).collect()
    };
    if usable.len() < 2 || (Linux::processors() as usize) < usable.len() {
        eprintln!("SKIPPED: needs two processors and no quota");
        return;
    }
    let over = Arc::new(AtomicBool::new(false));
    let until = over.clone();
    let mover = {
        let usable = usable.clone();
        std::thread::spawn(move || {
            let mut seen = [false; 2];
            let mut turn = 0;
            // Both numbers are seen at least once, however fast the barriers are.
            while !until.load(Relaxed) || seen != [true; 2] {
                turn += 1;
                let few = turn % 2;
                restrict(if few == 1 { &usable[..1] } else { &usable });
                // As if it had been a second; a barrier may have looked before us, or between us and the
                // mask.
                Linux::refresh_processors(Some(Linux::now_ns() + turn as u64 * 2_000_000_000));
                seen[few] |= (Linux::processors() == 1) == (few == 1);
                std::thread::sleep(Duration::from_millis(3));
            }
            turn
        })
    };
    all(200);
    over.store(true, Relaxed);
    let turns = mover.join().unwrap();
    restrict(&usable);
    let changes = Linux::partition_generation();
    assert!(changes > 0 && changes <= turns as u32, "{changes} changes in {turns} turns");
}
