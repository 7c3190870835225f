// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's word that a thread has left its processor, as an event that another thread can sleep on.
//!
//! The event is that of `view/perf.rs`, a software event that counts nothing and logs the context switches of
//! its own thread. Here each record also makes its descriptor ready (`watermark`, `wakeup_watermark = 1`). So
//! a thread that sleeps in epoll hears of a block without polling and without privilege, from Linux 4.17 on.
//! It is woken at each switch out and at each switch in; [`Upcall::has_blocked`] says which.
//!
//! Each record costs the thread an interrupt to its own processor: 13 us in a virtual machine. So the event
//! is disabled while nobody listens, also by others. A thread may block disabled and run enabled: the newest
//! record is then of old. The thread says so by [`Upcall::forget`], and so does whoever disables the event.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::io;

use platform::RunState;

use crate::memory;
use crate::view::perf::{self, RING};

const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_ID: libc::c_ulong = 0x8008_2407;

/// The event of one thread.
#[derive(Debug)]
pub struct Upcall {
    descriptor: i32,
    /// The kernel's name of the event.
    id: u64,
    ring: *mut u8,
    /// The newest record that was forgotten.
    forgotten: AtomicU64,
    /// It could not be enabled.
    deaf: AtomicBool,
}

// SAFETY: the ring is read-only to us, and read by atomics.
unsafe impl Send for Upcall {}
// SAFETY: as above.
unsafe impl Sync for Upcall {}

impl Upcall {
    /// An event of the calling thread.
    ///
    /// # Errors
    /// That of `perf_event_open`, or of mapping the ring, which counts as locked memory.
    pub fn open() -> io::Result<Self> {
        let descriptor = high(perf::open_waking().map_err(io::Error::from_raw_os_error)?);
        // SAFETY: a fresh mapping of a descriptor of ours.
        let ring = unsafe {
            memory::map(core::ptr::null_mut(), RING, libc::PROT_READ, libc::MAP_SHARED, descriptor)
        };
        if ring == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: the descriptor is ours.
            unsafe { libc::close(descriptor) };
            return Err(error);
        }
        Ok(Self {
            descriptor,
            id: id(descriptor),
            ring: ring.cast(),
            forgotten: AtomicU64::new(0),
            deaf: AtomicBool::new(false),
        })
    }

    /// What to sleep on.
    pub fn descriptor(&self) -> i32 {
        self.descriptor
    }

    /// HINT: has the thread blocked, by a record that it has not forgotten?
    pub fn has_blocked(&self) -> bool {
        // SAFETY: the ring is mapped as long as this lives.
        let (newest, state) = unsafe { (perf::newest(self.ring), perf::run_state(self.ring)) };
        state == RunState::Blocked && newest != self.forgotten.load(Relaxed)
    }

    /// HINT: since when, on the monotonic clock, if it has.
    pub fn blocked_at(&self) -> Option<u64> {
        // SAFETY: as above.
        let at = unsafe { perf::blocked_at(self.ring) };
        at.filter(|_| self.has_blocked())
    }

    /// What the newest record says is of old: the thread runs and calls this, or the event is disabled. To be
    /// called before others take the thread for one that is listened to.
    pub fn forget(&self) {
        // SAFETY: as above.
        let newest = unsafe { perf::newest(self.ring) };
        // Two may call this at once, and the numbers grow: the older one undoes nothing.
        self.forgotten.fetch_max(newest, Relaxed);
    }

    /// No more records.
    pub fn disable(&self) {
        self.control(IOC_DISABLE);
    }

    /// Records again. False: the thread is not heard, as the program has closed the descriptor.
    #[must_use]
    pub fn enable(&self) -> bool {
        let heard = self.control(IOC_ENABLE);
        if !heard {
            self.deaf.store(true, Relaxed);
        }
        heard
    }

    /// The program may have closed the descriptor, and used its number for an event of its own.
    fn control(&self, request: libc::c_ulong) -> bool {
        // SAFETY: no pointers.
        id(self.descriptor) == self.id && unsafe { libc::ioctl(self.descriptor, request, 0) } == 0
    }

    /// HINT: did an [`Upcall::enable`] fail? Then the records say nothing any more.
    pub fn is_deaf(&self) -> bool {
        self.deaf.load(Relaxed)
    }
}

/// BOUND: the highest number that [`high`] begins at. Each fork copies a table as long as the highest number.
const HIGHEST: libc::rlim_t = 3072;

/// Gives a descriptor of ours a high number, if there is one: a program that closes all descriptors and opens
/// its own gets the lowest ones. Else the number stays.
pub fn high(descriptor: i32) -> i32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives across the call; the descriptor is the caller's, who uses it no more.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let from = (limit.rlim_cur / 4 * 3).min(HIGHEST) as i32;
        match libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, from) {
            number if number >= 0 => {
                libc::close(descriptor);
                number
            }
            _ => descriptor,
        }
    }
}

/// The kernel's name of an event; 0 if the descriptor is none's.
fn id(descriptor: i32) -> u64 {
    let mut id = 0u64;
    // SAFETY: the number lives across the call.
    unsafe { libc::ioctl(descriptor, IOC_ID, &raw mut id) };
    id
}

impl Drop for Upcall {
    fn drop(&mut self) {
        // SAFETY: both are ours.
        unsafe {
            memory::unmap(self.ring.cast::<c_void>(), RING);
            libc::close(self.descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::{Arc, OnceLock};

    /// A thread that blocks heard and comes back unheard forgets each of its blocks.
    #[test]
    fn what_was_forgotten_stays_so() {
        const ROUNDS: u32 = 4;
        let (upcall, words) = (Arc::new(OnceLock::new()), Arc::new([const { AtomicU32::new(0) }; 2]));
        let (its, ours) = (upcall.clone(), words.clone());
        let thread = std::thread::spawn(move || {
            let Ok(upcall) = Upcall::open() else {
                eprintln!("skipped: no events of perf here");
                return its.set(None).is_ok();
            };
            its.set(Some(upcall)).expect("set once");
            let upcall: &Upcall = its.get().and_then(Option::as_ref).expect("just set");
            for round in 1..=ROUNDS {
                assert!(upcall.enable());
                ours[0].store(round, Release);
                while ours[1].load(Acquire) < round {
                    std::thread::park();
                }
                upcall.forget();
                if upcall.has_blocked() || upcall.blocked_at().is_some() {
                    return false;
                }
            }
            true
        });
        while upcall.get().is_none() {
            std::thread::yield_now();
        }
        if let Some(upcall) = upcall.get().and_then(Option::as_ref) {
            for round in 1..=ROUNDS {
                let heard = || words[0].load(Acquire) == round && upcall.has_blocked();
                while !heard() && !thread.is_finished() {
                    std::thread::yield_now();
                }
                upcall.disable();
                words[1].store(round, Release);
                thread.thread().unpark();
            }
        }
        assert!(thread.join().expect("it does not panic"));
    }

    /// The program closed the event's descriptor, and has an event of its own under its number.
    #[test]
    fn another_event_of_the_same_number_is_let_alone() {
        let open = || Upcall::open().ok();
        loop {
            let Some(closed) = open() else { return eprintln!("skipped: no events of perf here") };
            // SAFETY: ours; who is forgotten below closes it no more.
            unsafe { libc::close(closed.descriptor) };
            let Some(other) = open() else { return };
            let same = other.descriptor == closed.descriptor;
            let heard = closed.enable();
            core::mem::forget(closed);
            // Else another test has taken the number.
            if same {
                return assert!(!heard);
            }
        }
    }
}
