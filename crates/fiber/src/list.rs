// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of fibers over the link in their records.

use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use linux::Kernel;
use sync::mutex::{Native, RawMutex};

use crate::posts;
use crate::record::Fiber;

/// First in, first out, for one thread.
pub struct List {
    head: Cell<*mut Fiber>,
    tail: Cell<*mut Fiber>,
}

impl Default for List {
    fn default() -> Self {
        Self { head: Cell::new(null_mut()), tail: Cell::new(null_mut()) }
    }
}

impl List {
    /// Adds a fiber, which is in no list, at the end.
    #[inline]
    pub fn push(&self, fiber: *mut Fiber) {
        // SAFETY: who has a fiber that is in no list has its link, and ours are in this one.
        unsafe {
            (*fiber).next.set(null_mut());
            match self.tail.replace(fiber) {
                tail if tail.is_null() => self.head.set(fiber),
                tail => (*tail).next.set(fiber),
            }
        }
    }

    /// Takes the first.
    #[inline]
    pub fn pop(&self) -> Option<*mut Fiber> {
        let first = self.head.get();
        if first.is_null() {
            return None;
        }
        // SAFETY: it is in this list.
        let next = unsafe { (*first).next.get() };
        self.head.set(next);
        if next.is_null() {
            self.tail.set(null_mut());
        }
        Some(first)
    }

    /// Is nobody in it?
    pub fn is_empty(&self) -> bool {
        self.head.get().is_null()
    }
}

/// Last in, first out, for one thread.
pub struct Pile {
    top: Cell<*mut Fiber>,
}

impl Default for Pile {
    fn default() -> Self {
        Self { top: Cell::new(null_mut()) }
    }
}

impl Pile {
    /// Adds a fiber, which is in no list.
    #[inline]
    pub fn push(&self, fiber: *mut Fiber) {
        // SAFETY: who has a fiber that is in no list has its link.
        unsafe { (*fiber).next.set(self.top.replace(fiber)) };
    }

    /// Takes the last.
    #[inline]
    pub fn pop(&self) -> Option<*mut Fiber> {
        let top = self.top.get();
        if top.is_null() {
            return None;
        }
        // SAFETY: it is in this pile.
        self.top.set(unsafe { (*top).next.get() });
        Some(top)
    }
}

/// The list for all threads.
pub struct SharedList {
    lock: Native<Kernel>,
    list: UnsafeCell<List>,
    /// HINT without the lock.
    length: AtomicU32,
}

// SAFETY: the list is used under the lock.
unsafe impl Sync for SharedList {}
// SAFETY: as above.
unsafe impl Send for SharedList {}

impl Default for SharedList {
    fn default() -> Self {
        Self { lock: RawMutex::new(), list: UnsafeCell::default(), length: AtomicU32::new(0) }
    }
}

impl SharedList {
    fn locked<T>(&self, body: impl FnOnce(&List) -> T) -> T {
        // SAFETY: released below, once; the list is ours in between.
        posts::busy(|| unsafe {
            self.lock.lock(&());
            let result = body(&*self.list.get());
            self.lock.unlock(&());
            result
        })
    }

    /// Adds a fiber, which is in no list, at the end.
    pub fn push(&self, fiber: *mut Fiber) {
        self.locked(|list| {
            list.push(fiber);
            self.length.fetch_add(1, Relaxed);
        });
    }

    /// Takes the first.
    pub fn pop(&self) -> Option<*mut Fiber> {
        if self.is_empty() {
            return None;
        }
        self.locked(|list| list.pop().inspect(|_| _ = self.length.fetch_sub(1, Relaxed)))
    }

    /// HINT: is nobody in it? A fence or the lock of a push before this makes it true.
    pub fn is_empty(&self) -> bool {
        self.length.load(Acquire) == 0
    }
}

/// Fibers that others send to one carrier. They come out in the order in which they were sent.
pub struct Inbox {
    newest: AtomicPtr<Fiber>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { newest: AtomicPtr::new(null_mut()) }
    }
}

impl Inbox {
    /// Sends a fiber, which is in no list.
    pub fn send(&self, fiber: *mut Fiber) {
        let mut newest = self.newest.load(Relaxed);
        loop {
            // SAFETY: who has a fiber that is in no list has its link.
            unsafe { (*fiber).next.set(newest) };
            // ORDER: Release, pairs with `receive`; publishes the link and the fiber's context.
            match self.newest.compare_exchange_weak(newest, fiber, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Moves all that came to `list`. For one receiver.
    #[inline]
    pub fn receive(&self, list: &List) {
        if self.is_empty() {
            return;
        }
        // ORDER: Acquire, pairs with `send`.
        let mut newest = self.newest.swap(null_mut(), Acquire);
        let mut oldest = null_mut();
        while !newest.is_null() {
            // SAFETY: the chain is ours.
            let older = unsafe { (*newest).next.replace(oldest) };
            oldest = newest;
            newest = older;
        }
        while !oldest.is_null() {
            // SAFETY: as above.
            let newer = unsafe { (*oldest).next.get() };
            list.push(oldest);
            oldest = newer;
        }
    }

    /// HINT: did nobody come?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Relaxed).is_null()
    }
}
