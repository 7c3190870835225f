// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that a task may take again.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use sync::mutex::RawMutex;

use crate::lock::Raw;
use crate::memory::Own;
use crate::task::Task;
use crate::thread::me;

/// What the first 8 bytes of an `omp_nest_lock_t` point to: for gcc's programs it is larger than for clang's.
pub struct NestLock {
    raw: Raw,
    /// The owner's.
    count: AtomicU32,
    /// Whoever finds himself here has it.
    owner: AtomicPtr<Task>,
}

impl NestLock {
    fn own(&self) -> *mut Task {
        ptr::from_ref(me().task()).cast_mut()
    }

    /// One time more, if it is the current task's.
    fn again(&self) -> Option<u32> {
        (self.owner.load(Relaxed) == self.own()).then(|| {
            let count = self.count.load(Relaxed) + 1;
            self.count.store(count, Relaxed);
            count
        })
    }

    fn taken(&self) -> u32 {
        self.owner.store(self.own(), Relaxed);
        self.count.store(1, Relaxed);
        1
    }
}

/// # Safety
/// The program's lock, which nobody uses before.
pub unsafe fn init_nest_lock(lock: *mut *mut NestLock) {
    let new = || NestLock { raw: Raw::new(), count: AtomicU32::new(0), owner: AtomicPtr::default() };
    // SAFETY: the program's lock, which nobody uses before.
    unsafe { lock.write(Own::needed("a lock", new).into_raw()) };
}

/// # Safety
/// From [`init_nest_lock`], and nobody uses it any more.
pub unsafe fn destroy_nest_lock(lock: *mut *mut NestLock) {
    // SAFETY: from `omp_init_nest_lock`, and nobody uses it any more.
    drop(unsafe { Own::from_raw(*lock) });
}

/// # Safety
/// An initialised lock of the program's.
pub unsafe fn set_nest_lock(lock: *const *const NestLock) {
    // SAFETY: an initialised lock of the program's; likewise below.
    let lock = unsafe { &**lock };
    if lock.again().is_none() {
        // SAFETY: released when the count is 0.
        unsafe { lock.raw.lock(&()) };
        lock.taken();
    }
}

/// # Safety
/// An initialised lock of the program's.
pub unsafe fn unset_nest_lock(lock: *const *const NestLock) {
    // SAFETY: as above.
    let lock = unsafe { &**lock };
    let count = lock.count.load(Relaxed).saturating_sub(1);
    lock.count.store(count, Relaxed);
    if count == 0 {
        lock.owner.store(ptr::null_mut(), Relaxed);
        // SAFETY: acquired when the count became 1.
        unsafe { lock.raw.unlock(&()) };
    }
}

/// # Safety
/// An initialised lock of the program's.
pub unsafe fn test_nest_lock(lock: *const *const NestLock) -> i32 {
    // SAFETY: as above.
    let lock = unsafe { &**lock };
    let count = lock.again().or_else(|| {
        // SAFETY: released when the count is 0.
        unsafe { lock.raw.try_lock(&()) }.then(|| lock.taken())
    });
    count.unwrap_or(0) as i32
}
