// SPDX-License-Identifier: MIT OR Apache-2.0
//! A word in the machine's memory. What an access costs is `memory.rs`.

use std::cell::UnsafeCell;

/// A word that simulated threads share. As large as the real one, so that what shares a line there shares
/// one here.
#[repr(transparent)]
pub struct Word<T>(UnsafeCell<T>);

// SAFETY: all simulated threads of a machine run on one thread of the host, one at a time, and a word
// belongs to one machine.
unsafe impl<T> Sync for Word<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Word<T> {}

impl<T> Word<T> {
    pub(crate) fn holding(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Where its value lies.
    #[inline(always)]
    pub(crate) fn at(&self) -> *mut T {
        self.0.get()
    }
}
