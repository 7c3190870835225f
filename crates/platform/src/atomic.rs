// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics as traits, with the names and meanings of `core::sync::atomic`, and the real ones as their first
//! implementation.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A word that threads share. Every method is that of the same name in `core::sync::atomic`.
#[allow(missing_docs)]
pub trait Atomic<T: Copy>: Send + Sync {
    fn new(value: T) -> Self;
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn swap(&self, value: T, order: Ordering) -> T;
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
    fn compare_exchange_weak(&self, current: T, new: T, success: Ordering, failure: Ordering)
    -> Result<T, T>;
}

/// An integer that threads share.
#[allow(missing_docs)]
pub trait AtomicInt<T: Copy>: Atomic<T> {
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    fn fetch_and(&self, value: T, order: Ordering) -> T;
    /// `fetch_and` that only tells whether the highest bit is set afterwards.
    fn retain(&self, mask: T, order: Ordering) -> bool;
}

/// Implements [`Atomic`] and [`AtomicInt`] by forwarding to inherent methods of the same names; for the
/// platforms.
#[macro_export]
macro_rules! forward_atomic {
    (@common $atomic:ty, $t:ty) => {
        #[inline(always)]
        fn new(value: $t) -> Self {
            <$atomic>::new(value)
        }
        #[inline(always)]
        fn load(&self, order: $crate::Ordering) -> $t {
            <$atomic>::load(self, order)
        }
        #[inline(always)]
        fn store(&self, value: $t, order: $crate::Ordering) {
            <$atomic>::store(self, value, order)
        }
        #[inline(always)]
        fn swap(&self, value: $t, order: $crate::Ordering) -> $t {
            <$atomic>::swap(self, value, order)
        }
        #[inline(always)]
        fn compare_exchange(
            &self,
            current: $t,
            new: $t,
            success: $crate::Ordering,
            failure: $crate::Ordering,
        ) -> Result<$t, $t> {
            <$atomic>::compare_exchange(self, current, new, success, failure)
        }
        #[inline(always)]
        fn compare_exchange_weak(
            &self,
            current: $t,
            new: $t,
            success: $crate::Ordering,
            failure: $crate::Ordering,
        ) -> Result<$t, $t> {
            <$atomic>::compare_exchange_weak(self, current, new, success, failure)
        }
    };
    (int $atomic:ty, $t:ty) => {
        impl $crate::Atomic<$t> for $atomic {
            $crate::forward_atomic!(@common $atomic, $t);
        }
        impl $crate::AtomicInt<$t> for $atomic {
            #[inline(always)]
            fn fetch_add(&self, value: $t, order: $crate::Ordering) -> $t {
                <$atomic>::fetch_add(self, value, order)
            }
            #[inline(always)]
            fn fetch_sub(&self, value: $t, order: $crate::Ordering) -> $t {
                <$atomic>::fetch_sub(self, value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, value: $t, order: $crate::Ordering) -> $t {
                <$atomic>::fetch_or(self, value, order)
            }
            #[inline(always)]
            fn fetch_and(&self, value: $t, order: $crate::Ordering) -> $t {
                <$atomic>::fetch_and(self, value, order)
            }
            #[inline(always)]
            fn retain(&self, mask: $t, order: $crate::Ordering) -> bool {
                let mask = $crate::unknown(mask as u64) as $t;
                (<$atomic>::fetch_and(self, mask, order) & mask).leading_zeros() == 0
            }
        }
    };
    (ptr $atomic:ty, $t:ident) => {
        impl<$t> $crate::Atomic<*mut $t> for $atomic {
            $crate::forward_atomic!(@common $atomic, *mut $t);
        }
    };
}

/// The same value, of which the compiler knows nothing. Knowing the highest bit of a mask, it makes a loop of
/// compare-and-swaps of what is one instruction, whose flags tell that bit.
#[doc(hidden)]
#[inline(always)]
pub fn unknown(mut mask: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: does nothing.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) mask, options(pure, nomem, nostack, preserves_flags));
    }
    mask
}

forward_atomic!(int AtomicU32, u32);
forward_atomic!(int AtomicU64, u64);
forward_atomic!(ptr AtomicPtr<T>, T);
