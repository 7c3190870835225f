// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futures: a fiber drives each, so they share the processors with all other fibers.

use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use linux::{Kernel, Linux};
use platform::Platform;

use crate::bell::Bell;
use crate::cancel::cancellation_point;
use crate::record::Fiber;
use crate::thread::{JoinHandle, spawn, uncancelled, yield_now};
use crate::{carrier, table};

/// A bell and who waits for it. It stays as long as somebody has a waker.
struct Driver {
    bell: Bell<Kernel>,
    /// Null: a kernel thread.
    fiber: *const Fiber,
}

// SAFETY: the fiber is used by atomics, and its memory stays a record for ever: who rings too late gives a
// stranger a token.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl Wake for Driver {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.bell.ring() {
            // SAFETY: null, or a record.
            let _ = unsafe { self.fiber.as_ref() }.map(Fiber::nudge);
        }
    }
}

impl Driver {
    /// Waits until it is rung, or the calling fiber is cancelled.
    fn wait(&self) {
        // Not `fiber`: in a forked child that is none. SAFETY: null, or the calling fiber, which runs.
        if let Some(fiber) = unsafe { carrier::current().as_ref() } {
            return table::wait_for(fiber, || self.bell.is_rung());
        }
        self.bell.sleep();
    }

    /// The same, of a task that may go on with another carrier.
    ///
    /// That is sound. What the calling fiber has on its stack are `begin` of `thread.rs`, the driver, the
    /// future, its waker and the bell. The last three are `Send`. The first two hold nothing thread-local
    /// between polls, and no poll is under way.
    fn wait_loose(&self) {
        loosely(|| self.wait());
    }
}

/// The calling fiber may go on with another carrier after this wait, which does not unwind.
fn loosely(wait: impl FnOnce()) {
    // SAFETY: null, or the calling fiber, which runs.
    let Some(fiber) = (unsafe { carrier::current().as_ref() }) else { return wait() };
    carrier::loosen(fiber);
    wait();
    carrier::fasten(fiber);
}

/// Polls a future to its end. The calling fiber waits between; outside of fibers the kernel thread does. A
/// fiber that is cancelled ([`JoinHandle::cancel`]) ends where the future is pending, which is dropped.
///
/// ```
/// use std::future::{ready, poll_fn};
/// use std::task::Poll;
/// use fiber::futures::{block_on, spawn_async};
///
/// let task = spawn_async(async { ready(3).await + 4 });
/// assert_eq!(task.join().unwrap(), 7);
/// let mut polls = 0;
/// block_on(poll_fn(|context| {
///     polls += 1;
///     context.waker().wake_by_ref();
///     if polls == 10 { Poll::Ready(()) } else { Poll::Pending }
/// }));
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    // The future need not be `Send`, nor what the caller has on its stack.
    drive(future, Driver::wait)
}

/// Not inlined: a compiler keeps the place of a thread-local variable as long as a function runs, and the
/// driver of a task may be on another kernel thread after a wait.
#[inline(never)]
fn poll<F: Future>(future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
    future.poll(context)
}

fn drive<F: Future>(future: F, wait: impl Fn(&Driver)) -> F::Output {
    let mut future = pin!(future);
    let driver = Arc::new(Driver { bell: Bell::default(), fiber: carrier::current() });
    let waker = driver.clone().into();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = poll(future.as_mut(), &mut context) {
            return output;
        }
        if driver.bell.is_rung() {
            // It was woken during its own poll: the others come first.
            yield_now();
        } else {
            wait(&driver);
            cancellation_point();
        }
        driver.bell.silence();
    }
}

/// Starts a fiber that drives this future, as [`block_on`] does. It may wait as a fiber does, too. A future
/// that is pending, and whose wakers are all gone, is not polled again: its fiber and what it holds stay
/// until it is cancelled.
///
/// Between two polls the task may go to another kernel thread, as the future is `Send`. A poll that waits as
/// a fiber ends on the kernel thread on which it began. A future that is not `Send` stays with one kernel
/// thread if its fiber makes it: `spawn(|| block_on(async { .. }))`.
///
/// # Panics
/// As [`spawn`].
pub fn spawn_async<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    spawn(move || drive(future, Driver::wait_loose))
}

/// What [`sleep`] returns. A fiber sleeps for it.
#[derive(Debug)]
pub struct Sleep {
    end: u64,
    alarm: Option<Alarm>,
}

/// The fiber that sleeps for a [`Sleep`], and whom it wakes.
#[derive(Debug)]
struct Alarm {
    waker: Arc<Mutex<Option<Waker>>>,
    fiber: JoinHandle<()>,
}

/// Is ready after this time. Unlike [`crate::thread::sleep`] in a task, it lets the task go to another kernel
/// thread.
///
/// ```
/// use std::time::Duration;
/// use fiber::futures::{sleep, spawn_async};
///
/// spawn_async(sleep(Duration::from_millis(1))).join().unwrap();
/// ```
#[must_use]
pub fn sleep(time: Duration) -> Sleep {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Sleep { end: Linux::now_ns().saturating_add(time), alarm: None }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let left = self.end.saturating_sub(Linux::now_ns());
        if left == 0 {
            return Poll::Ready(());
        }
        let waker = Some(context.waker().clone());
        if let Some(alarm) = &self.alarm {
            *alarm.waker.lock().unwrap_or_else(|poison| poison.into_inner()) = waker;
            // It may have taken the one before: then the time is over.
            return if Linux::now_ns() < self.end { Poll::Pending } else { Poll::Ready(()) };
        }
        let waker = Arc::new(Mutex::new(waker));
        let its = waker.clone();
        let fiber = spawn(move || {
            // It has nothing thread-local yet: what it has are a number and a place, both `Send`.
            loosely(|| uncancelled::sleep(Duration::from_nanos(left)));
            let waker = its.lock().unwrap_or_else(|poison| poison.into_inner()).take();
            waker.inspect(Waker::wake_by_ref);
        });
        self.alarm = Some(Alarm { waker, fiber });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // Else its fiber would stay until the end.
        self.alarm.iter().for_each(|alarm| alarm.fiber.cancel());
    }
}
