// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the members of an OpenMP team share: the parts of the runtime in which threads meet.
//!
//! | file | what threads do there |
//! |---|---|
//! | `event` | wait for something that is written elsewhere |
//! | `count` | wait for the last of several, or be the last |
//! | `dependences` | tasks follow their predecessors |
//! | `deque` | a member's tasks, of which others may take some |
//! | `tasks` | run tasks, and call others to tasks |
//! | `fork_join` | a primary thread and its helpers go from region to region |
//! | `share` | the members of a worksharing construct take iterations |
//! | `ordered` | iterations wait for earlier ones |
//!
//! Nothing here knows the program's types, allocates, or asks for anything but the [`platform`].

mod count;
mod dependences;
mod deque;
mod event;
mod fork_join;
mod ordered;
mod share;
mod tasks;

use core::cell::UnsafeCell;

pub use count::{Awaited, Flag, Holders, Kin};
pub use dependences::Dependent;
pub use deque::{Deque, Linked, Links};
pub use event::{Event, Watch};
pub use fork_join::ForkJoin;
pub use ordered::{Order, Over, Progress};
use platform::{Platform, StaticPlatform};
pub use share::{First, Iterations, Slot, Turn};
pub use tasks::{Crew, Tasks};

use crate::barrier::{BWakeful, Episode};
use crate::mutex::{RawMutex, Wakeful};

/// On a cache line of its own, and on the next, which processors fetch with it.
#[repr(align(128))]
#[derive(Default)]
pub struct Apart<T>(pub T);

/// How the program's user wants threads to wait. All functions are associated: a policy is a name, not a
/// value.
pub trait Patience: 'static {
    /// Do waiting threads sleep at once?
    fn is_passive() -> bool;

    /// Waits awake until `done` says so; false if that was in vain, and the thread is to sleep.
    fn awake(done: impl Fn() -> bool) -> bool;

    /// Waits for what takes another thread some instructions.
    fn briefly(done: impl Fn() -> bool);
}

/// Waits at a barrier until its episode is over, true then, or until `called`.
#[inline(always)]
pub fn await_or<W: Patience, P: Platform>(
    barrier: &BWakeful<P>,
    episode: &Episode,
    called: impl Fn() -> bool,
) -> bool {
    match W::is_passive() {
        true => barrier.sleep_or(episode, called),
        false => barrier.await_or(episode, called),
    }
}

/// Data behind the default mutex.
pub struct Guarded<P: Platform, T> {
    raw: Wakeful<P>,
    data: UnsafeCell<T>,
}

// SAFETY: the data are reached by `with` only, one thread at a time.
unsafe impl<P: Platform, T: Send> Sync for Guarded<P, T> {}

impl<P: Platform, T: Default> Default for Guarded<P, T> {
    fn default() -> Self {
        Self { raw: Wakeful::new(), data: UnsafeCell::default() }
    }
}

impl<P: StaticPlatform> Guarded<P, ()> {
    /// Nothing behind a lock, for a `static`.
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser, used once per static
    pub const INIT: Self = Self { raw: Wakeful::INIT, data: UnsafeCell::new(()) };
}

impl<P: StaticPlatform, T> Guarded<P, T> {
    /// For a `static`.
    pub const fn holding(data: T) -> Self {
        Self { raw: Wakeful::INIT, data: UnsafeCell::new(data) }
    }
}

impl<P: Platform, T> Guarded<P, T> {
    /// As [`Self::with`]; `None` if another thread has the lock.
    #[inline]
    pub fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        // SAFETY: released below.
        unsafe {
            self.raw.try_lock(&()).then(|| {
                let result = work(&mut *self.data.get());
                self.raw.unlock(&());
                result
            })
        }
    }

    /// `work` must not come here again, nor unwind.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: released below.
        unsafe {
            self.raw.lock(&());
            let result = work(&mut *self.data.get());
            self.raw.unlock(&());
            result
        }
    }

    /// The lock itself.
    pub fn raw(&self) -> &Wakeful<P> {
        &self.raw
    }
}
