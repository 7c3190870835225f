// SPDX-License-Identifier: MIT OR Apache-2.0
//! This computer.

use std::cell::UnsafeCell;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};

use linux::Linux;

use crate::Machine;

/// Not atomic; an update is lost if two threads are in it.
pub struct Cell(UnsafeCell<u32>);

// SAFETY: the lock under test keeps threads apart. If it fails to, the count comes out wrong and the test
// fails.
unsafe impl Sync for Cell {}

impl crate::Cell for Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn bump(&self) {
        // SAFETY: as for Sync. Volatile, so that there are two steps.
        unsafe {
            let number = self.0.get().read_volatile();
            // Now and then long enough to be preempted inside.
            for _ in 0..number % 32 {
                std::hint::spin_loop();
            }
            self.0.get().write_volatile(number + 1);
        }
    }

    fn get(&self) -> u32 {
        // SAFETY: as for Sync.
        unsafe { self.0.get().read_volatile() }
    }
}

/// Where the kernel tells of the calling thread, for [`until_it_waits`].
pub fn this_thread() -> PathBuf {
    Path::new("/proc").join(fs::read_link("/proc/thread-self").expect("/proc is mounted"))
}

/// BOUND: ns of processor time; to come to a lock takes far less.
const COMING: u64 = 2_000_000;

/// Returns when this thread, which has said that it comes to a lock, waits there: it sleeps, or it has used
/// more processor time than it needs to come.
pub fn until_it_waits(thread: &Path) {
    let read = |file| fs::read_to_string(thread.join(file)).expect("it has not ended");
    let used = || read("schedstat").split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0_u64);
    let sleeps = || read("stat").rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'));
    let begun = used();
    while !sleeps() && used() - begun < COMING {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Machine for Linux {
    type Handle = thread::JoinHandle<()>;
    type Cell = Cell;

    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Handle {
        // Boxed, so that the standard library's part of it is compiled once.
        thread::spawn(Box::new(body) as Box<dyn FnOnce() + Send>)
    }

    fn join(handle: Self::Handle) {
        handle.join().expect("a thread of the test panicked");
    }
}

/// Is it found within a minute? While other programs run, two threads seldom do at once. So a number of
/// trials says nothing.
pub fn found_in_time(found: impl Fn() -> bool) -> bool {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while std::time::Instant::now() < end {
        if found() {
            return true;
        }
    }
    false
}
