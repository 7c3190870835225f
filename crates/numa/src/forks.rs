// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forked child has one thread. The locks of this crate are held while the process is copied, so that no
//! thread that the child lacks is in the midst of a heap there.

use core::sync::atomic::{AtomicBool, Ordering::*};

use crate::locked::{self, Locked};

/// What has locks.
pub trait Forks: Sync {
    /// Takes them.
    fn before(&self);
    /// The child's threads are gone, but for this one, which holds all locks.
    fn in_child(&self) {}
    /// Gives them back.
    ///
    /// # Safety
    /// [`Self::before`] was called, by this thread or by the one that it was in the parent.
    unsafe fn after(&self);
}

/// BOUND: heaps of a program at a time.
const MOST: usize = 64;

/// Only used while they are there, see [`forget`].
static ALL: Locked<All> = Locked::new([None; MOST]);
static HANDLES: AtomicBool = AtomicBool::new(false);

/// From now on its locks are held at each fork. False if there are too many.
///
/// # Safety
/// It stays where it is, until [`forget`].
pub unsafe fn remember(one: &dyn Forks) -> bool {
    // SAFETY: the same reference; it is not used after `forget`.
    let one = unsafe { core::mem::transmute::<&dyn Forks, &'static dyn Forks>(one) };
    let remembered = ALL.with(|all| match all.iter_mut().find(|place| place.is_none()) {
        Some(place) => {
            *place = Some(one);
            true
        }
        None => false,
    });
    // Outside of the lock: it allocates.
    if remembered && !HANDLES.swap(true, Relaxed) {
        // SAFETY: three functions that stay as long as this library.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
    remembered
}

/// It is gone.
pub fn forget(one: &dyn Forks) {
    let address = core::ptr::from_ref(one).cast::<()>();
    ALL.with(|all| {
        let is_it = |place: &&mut Option<&dyn Forks>| {
            place.is_some_and(|other| core::ptr::from_ref(other).cast::<()>() == address)
        };
        if let Some(place) = all.iter_mut().find(is_it) {
            *place = None;
        }
    });
}

type All = [Option<&'static dyn Forks>; MOST];

extern "C" fn before() {
    ALL.before_fork();
    // What is remembered stays so meanwhile, because nobody else gets the lock.
    let each = |all: &mut All| all.iter().flatten().for_each(|one| one.before());
    locked::forks(true);
    ALL.with(each);
}

fn after(in_child: bool) {
    let all = ALL.with(|all| *all);
    if in_child {
        all.iter().flatten().for_each(|one| one.in_child());
    }
    // From here on others get the locks.
    locked::forks(false);
    // SAFETY: `before` has locked it, and each of them.
    unsafe {
        all.iter().flatten().for_each(|one| one.after());
        ALL.after_fork();
    }
}

extern "C" fn in_parent() {
    after(false);
}

extern "C" fn in_child() {
    after(true);
}
