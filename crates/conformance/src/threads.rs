// SPDX-License-Identifier: MIT OR Apache-2.0
//! This computer.

use std::cell::UnsafeCell;
use std::thread;

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

impl Machine for Linux {
    type Handle = thread::JoinHandle<()>;
    type Cell = Cell;

    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Handle {
        thread::spawn(body)
    }

    fn join(handle: Self::Handle) {
        handle.join().expect("a thread of the test panicked");
    }
}
