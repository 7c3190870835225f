// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much a thread matters to its program: for the scheduler of `wakeful run --scheduled`.
//!
//! That scheduler first chooses a program, by its share, then the program's thread that matters most
//! (*Informing Algorithms*, ICPP 2001, section 3). So an event loop, a garbage collector that others wait
//! for, or the slowest stage of a pipeline can come before the program's other threads. Other programs
//! notice nothing. A thread that holds a lock comes before all of them.
//!
//! ```
//! use wakeful::importance::{self, Importance};
//!
//! {
//!     let _urgent = importance::raise(Importance::Urgent);
//!     // Others of this program wait for what is done here.
//! }
//! let before = importance::set(Importance::Background);
//! assert_eq!(before, Importance::Normal);
//! importance::set(before);
//! ```
//!
//! Under another scheduler it changes nothing, but for the `-informing` locks of [`raw`](crate::raw), which
//! make room for a preempted thread that matters more than one that waits.
//!
//! A fiber ([`thread`](crate::thread)) is always [`Importance::Normal`], and setting it changes nothing: its
//! kernel thread runs others as well. Fibers have [`thread::Priority`](crate::thread::Priority) and policies.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use linux::Linux;
use platform::{Platform, Priority};
use sync::wait::publish;

/// How much a thread matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Importance {
    /// It runs when the program's others have nothing to do, and now and then besides.
    Background = 0,
    /// As all threads begin.
    #[default]
    Normal = 1,
    /// It runs before the program's others, but not before one that holds a lock.
    Urgent = 2,
}

impl Importance {
    /// That of this number, as C has it.
    pub fn from_number(number: c_int) -> Option<Self> {
        [Self::Background, Self::Normal, Self::Urgent].into_iter().find(|&it| it as c_int == number)
    }

    fn priority(self) -> Priority {
        match self {
            Self::Background => Priority::LockWaiter,
            Self::Normal => Priority::Running,
            Self::Urgent => Priority::LockImmediateWaiter,
        }
    }

    fn of(priority: Priority) -> Self {
        match priority {
            Priority::BarrierWaiter | Priority::LockWaiter => Self::Background,
            Priority::Running => Self::Normal,
            Priority::LockImmediateWaiter | Priority::LockHolder | Priority::AwaitedHolder => Self::Urgent,
        }
    }
}

/// The preloaded interposer has the arena that the scheduler reads, if there is one.
type Interposed = extern "C" fn(c_int) -> c_int;

fn interposed() -> Option<Interposed> {
    static FOUND: OnceLock<AtomicPtr<c_void>> = OnceLock::new();
    let look = || AtomicPtr::new(linux::exported(c"wakeful_preload_priority"));
    let found = FOUND.get_or_init(look).load(Relaxed);
    // SAFETY: only such a function has this name.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Interposed>(found) })
}

/// Sets how much the calling thread matters, and returns how much it did. It stays so until it is set again.
pub fn set(importance: Importance) -> Importance {
    let priority = importance.priority();
    // The crate's own locks look here, the scheduler there.
    let here = publish::set_own::<Linux>(Linux::register_lazily(), priority);
    let there = interposed().map(|set| Priority::from_u32(set(priority as c_int) as u32));
    Importance::of(there.unwrap_or(here))
}

/// Sets how much the calling thread matters until what it returns is dropped.
pub fn raise(importance: Importance) -> Restored {
    Restored { before: set(importance), thread: PhantomData }
}

/// Sets what was before when it is dropped. Stays in its thread.
#[must_use = "what was before is set again as soon as this is dropped"]
#[derive(Debug)]
pub struct Restored {
    before: Importance,
    thread: PhantomData<*mut ()>,
}

impl Drop for Restored {
    fn drop(&mut self) {
        set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Priority {
        Linux::priority(Linux::current())
    }

    #[test]
    fn it_is_set_and_restored_and_each_thread_has_its_own() {
        assert_eq!(set(Importance::Background), Importance::Normal);
        assert_eq!(now(), Priority::LockWaiter);
        {
            let _urgent = raise(Importance::Urgent);
            assert_eq!(now(), Priority::LockImmediateWaiter);
            std::thread::spawn(|| assert_eq!(set(Importance::Normal), Importance::Normal)).join().unwrap();
        }
        assert_eq!(set(Importance::Normal), Importance::Background);
        assert_eq!(now(), Priority::Running);
    }

    /// An informing lock raises its holder, and leaves it what the program had set.
    #[test]
    fn a_lock_restores_it() {
        let lock = crate::raw::ttas_informing::Mutex::new(0);
        let urgent = raise(Importance::Urgent);
        for _ in 0..2 {
            let guard = lock.lock();
            assert_eq!(now(), Priority::LockHolder);
            assert_eq!(set(Importance::Background), Importance::Urgent, "above stands whoever holds a lock");
            assert_eq!(now(), Priority::LockHolder);
            drop(guard);
            assert_eq!(now(), Priority::LockWaiter);
            set(Importance::Urgent);
        }
        drop(urgent);
        assert_eq!(now(), Priority::Running);
    }

    #[test]
    fn numbers() {
        for it in [Importance::Background, Importance::Normal, Importance::Urgent] {
            assert_eq!(Importance::from_number(it as c_int), Some(it));
            assert_eq!(Importance::of(it.priority()), it);
        }
        assert_eq!(Importance::from_number(3), None);
    }
}
