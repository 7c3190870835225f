// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which fibers run, replaceable as in the paper.
//!
//! Each carrier has a queue of its fibers that are ready, and the runtime one of those that any carrier may
//! take: new and movable ones. Carriers take from both in turns. A [`Policy`] makes these queues.
//!
//! ```
//! use fiber::policy::Ranked;
//! use fiber::{Config, Runtime, thread};
//!
//! let config = Config { processors: Some(1), policy: Some(&Ranked), ..Config::default() };
//! Runtime::start(config).unwrap().run(|| {
//!     let urgent = thread::Builder::new().rank(7).spawn(|| "first").unwrap();
//!     assert_eq!(urgent.join().unwrap(), "first");
//! });
//! ```
//!
//! A queue is code of the user's that runs between two fibers. What it may do wrong is bounded. A fiber that
//! it drops is ready again. One that it hands to a carrier which may not run it goes to the one that may. A
//! wait in it blocks the carrier's kernel thread. A panic in it ends the program, and so does one in
//! [`Policy::queue`]. It must not spawn or wake fibers.

use core::cell::{Cell, RefCell};
use core::cmp::Reverse;
use core::fmt;
use core::mem::forget;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::*};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use crate::list::{List, SharedList};
use crate::record::Fiber;

/// A fiber that is ready, for a [`Queue`] to keep.
pub struct Ready {
    fiber: *mut Fiber,
    yielded: bool,
}

// SAFETY: what it shows was written before the fiber was published. Whoever runs it looks whether it may.
unsafe impl Send for Ready {}

impl Ready {
    fn record(&self) -> &Fiber {
        // SAFETY: a record stays one, and the fiber has not ended.
        unsafe { &*self.fiber }
    }

    /// That of [`crate::thread::Builder::rank`].
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.record().rank.get()
    }

    /// Its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.record().name()
    }

    /// It let others go first.
    #[must_use]
    pub fn has_yielded(&self) -> bool {
        self.yielded
    }

    fn take(self) -> *mut Fiber {
        let fiber = self.fiber;
        forget(self);
        fiber
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.record().runtime.again(self.fiber);
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready")
            .field("name", &self.name())
            .field("rank", &self.rank())
            .finish_non_exhaustive()
    }
}

/// Fibers that are ready, in some order.
pub trait Queue: Send {
    /// One more.
    fn push(&mut self, fiber: Ready);
    /// The one to run next; `None` only if there is none.
    fn pop(&mut self) -> Option<Ready>;
}

/// Makes the queues of a runtime.
pub trait Policy: fmt::Debug + Sync {
    /// An empty one.
    fn queue(&self) -> Box<dyn Queue>;
}

/// Who is ready first runs first.
#[derive(Clone, Copy, Debug)]
pub struct Fifo;

/// Who is ready last runs first. Those that yielded come after all others, first in first out.
#[derive(Clone, Copy, Debug)]
pub struct Lifo;

/// The greatest rank first, of equal ones who is ready first. Lower ones wait as long as there are greater.
#[derive(Clone, Copy, Debug)]
pub struct Ranked;

impl Policy for Fifo {
    fn queue(&self) -> Box<dyn Queue> {
        struct First(VecDeque<Ready>);
        impl Queue for First {
            fn push(&mut self, fiber: Ready) {
                self.0.push_back(fiber);
            }
            fn pop(&mut self) -> Option<Ready> {
                self.0.pop_front()
            }
        }
        Box::new(First(VecDeque::new()))
    }
}

impl Policy for Lifo {
    fn queue(&self) -> Box<dyn Queue> {
        struct Last(VecDeque<Ready>);
        impl Queue for Last {
            fn push(&mut self, fiber: Ready) {
                match fiber.has_yielded() {
                    true => self.0.push_front(fiber),
                    false => self.0.push_back(fiber),
                }
            }
            fn pop(&mut self) -> Option<Ready> {
                self.0.pop_back()
            }
        }
        Box::new(Last(VecDeque::new()))
    }
}

impl Policy for Ranked {
    fn queue(&self) -> Box<dyn Queue> {
        struct Ranks(BTreeMap<Reverse<u32>, VecDeque<Ready>>);
        impl Queue for Ranks {
            fn push(&mut self, fiber: Ready) {
                self.0.entry(Reverse(fiber.rank())).or_default().push_back(fiber);
            }
            fn pop(&mut self) -> Option<Ready> {
                // Empty ones stay, for the next of their rank.
                self.0.values_mut().find_map(VecDeque::pop_front)
            }
        }
        Box::new(Ranks(BTreeMap::new()))
    }
}

/// Ends the program when it is dropped: a fiber would get lost.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Makes this the calling fiber, and returns who was: [`crate::carrier`]'s.
pub(crate) type SetCurrent = fn(*mut Fiber) -> *mut Fiber;

/// Runs code of the user's, or what allocates under a lock of the runtime, as no fiber: what waits in it does
/// not switch.
pub(crate) fn firmly<T>(set_current: SetCurrent, body: impl FnOnce() -> T) -> T {
    let unwinds = Abort;
    let current = set_current(null_mut());
    let result = body();
    set_current(current);
    forget(unwinds);
    result
}

/// The queue of one carrier. Only its own thread uses it.
pub(crate) struct Own {
    queue: RefCell<Box<dyn Queue>>,
    length: Cell<u32>,
    set_current: SetCurrent,
}

impl Own {
    pub(crate) fn new(policy: &dyn Policy, set_current: SetCurrent) -> Self {
        let queue = RefCell::new(firmly(set_current, || policy.queue()));
        Self { queue, length: Cell::new(0), set_current }
    }

    /// Those that a queue wakes itself go to `others`.
    pub(crate) fn push(&self, fiber: *mut Fiber, yielded: bool, others: &List) {
        match self.queue.try_borrow_mut() {
            Ok(mut queue) => {
                self.length.set(self.length.get() + 1);
                firmly(self.set_current, || queue.push(Ready { fiber, yielded }));
            }
            Err(_) => others.push(fiber),
        }
    }

    pub(crate) fn pop(&self) -> Option<*mut Fiber> {
        let fiber = firmly(self.set_current, || self.queue.try_borrow_mut().ok()?.pop());
        self.length.set(if fiber.is_some() { self.length.get().saturating_sub(1) } else { 0 });
        fiber.map(Ready::take)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length.get() == 0
    }
}

/// Fibers that any carrier may run.
pub(crate) struct Common {
    /// All, if there is no policy. Else those that a queue has dropped.
    list: SharedList,
    ordered: Option<Mutex<Box<dyn Queue>>>,
    /// HINT without the lock.
    length: AtomicU32,
    set_current: SetCurrent,
}

impl Common {
    pub(crate) fn new(policy: Option<&dyn Policy>, set_current: SetCurrent) -> Self {
        let ordered = policy.map(|policy| Mutex::new(firmly(set_current, || policy.queue())));
        Self { list: SharedList::default(), ordered, length: AtomicU32::new(0), set_current }
    }

    /// Adds a fiber, which is in no list.
    pub(crate) fn push(&self, fiber: *mut Fiber, yielded: bool) {
        let Some(ordered) = &self.ordered else { return self.list.push(fiber) };
        let mut queue = ordered.lock().unwrap_or_else(|poison| poison.into_inner());
        self.length.fetch_add(1, Relaxed);
        firmly(self.set_current, || queue.push(Ready { fiber, yielded }));
    }

    /// Adds one that a queue has dropped.
    pub(crate) fn push_dropped(&self, fiber: *mut Fiber) {
        self.list.push(fiber);
    }

    /// Takes one.
    pub(crate) fn pop(&self) -> Option<*mut Fiber> {
        self.list.pop().or_else(|| self.pop_ordered())
    }

    fn pop_ordered(&self) -> Option<*mut Fiber> {
        if self.length.load(Relaxed) == 0 {
            return None;
        }
        let mut queue = self.ordered.as_ref()?.lock().unwrap_or_else(|poison| poison.into_inner());
        let fiber = firmly(self.set_current, || queue.pop());
        let left = if fiber.is_some() { self.length.load(Relaxed).saturating_sub(1) } else { 0 };
        self.length.store(left, Relaxed);
        fiber.map(Ready::take)
    }

    /// HINT: is nobody in it? A fence or the lock of a push before this makes it true.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDER: Acquire, as in `list.rs`.
        self.list.is_empty() && self.length.load(Acquire) == 0
    }
}
