// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page in which a runtime says how many virtual processors and fibers it has, for `wakeful top`.
//!
//! The sentinel counts once a second, by walking through the records. Nothing is counted where fibers start
//! or wait. With many fibers it counts less often: the walk takes at most 1 of 300 of its time.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering::*};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use linux::fibers::{MAGIC, NAME, Page, SIZE, VERSION};
use linux::memory;
use linux::upcall::high;

use crate::sentinel::now_ns;

const SECOND_NS: u64 = 1_000_000_000;
/// BOUND: the least times as long as it counts that it then does not.
const REST: u64 = 300;

/// A runtime's page, and when it is written next.
pub struct Told {
    page: Option<&'static Page>,
    next: AtomicU64,
}

impl Told {
    /// Without memory or a descriptor there is no page, and nothing else changes.
    pub fn new() -> Self {
        Self { page: make(), next: AtomicU64::new(0) }
    }
}

/// A file that nobody can make shorter, mapped for ever. Its descriptor stays open.
fn make() -> Option<&'static Page> {
    // SAFETY: the name is a C string; the descriptor is new and ours; the mapping is fresh.
    let page = unsafe {
        let number = libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if number < 0 {
            return None;
        }
        let file = OwnedFd::from_raw_fd(high(number));
        let number = file.into_raw_fd();
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        if libc::ftruncate(number, SIZE as i64) != 0 || libc::fcntl(number, libc::F_ADD_SEALS, seals) != 0 {
            libc::close(number);
            return None;
        }
        let page = memory::map(null_mut(), SIZE, access, libc::MAP_SHARED, number);
        if page == libc::MAP_FAILED {
            libc::close(number);
            return None;
        }
        &*page.cast::<Page>()
    };
    page.version.store(VERSION, Relaxed);
    page.process.store(std::process::id(), Relaxed);
    // ORDER: Release, pairs with the reader's read(2) of the file; publishes the words before.
    page.magic.store(MAGIC, Release);
    Some(page)
}

/// What is counted.
pub struct Counts {
    pub seats: u32,
    pub held: u32,
    pub carriers: u32,
    pub blocked: u32,
    pub fibers: u64,
    pub waiting: u64,
}

impl Told {
    /// Once a second, whoever is the sentinel.
    pub fn tell(&self, now: u64, count: impl FnOnce() -> Counts) {
        let Some(page) = self.page else { return };
        let due = self.next.load(Relaxed);
        // One of two sentinels.
        if now < due || self.next.compare_exchange(due, u64::MAX, Relaxed, Relaxed).is_err() {
            return;
        }
        let Counts { seats, held, carriers, blocked, fibers, waiting } = count();
        page.seats.store(seats, Relaxed);
        page.held.store(held, Relaxed);
        page.carriers.store(carriers, Relaxed);
        page.blocked.store(blocked, Relaxed);
        page.fibers.store(fibers, Relaxed);
        page.waiting.store(waiting, Relaxed);
        page.written_ns.store(now, Relaxed);
        let took = now_ns().saturating_sub(now);
        self.next.store(now + SECOND_NS.max(REST * took), Relaxed);
    }
}
