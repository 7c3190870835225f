// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futures: a fiber drives each, so they share the processors with all other fibers.

use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering::*};
use core::task::{Context, Poll};
use std::sync::Arc;
use std::task::Wake;

use crate::sync::Semaphore;
use crate::thread::{JoinHandle, spawn, yield_now};

/// What a waker rings and the driver of a future waits for. It is no unpark: that may be meant for a wait of
/// the future's own. It stays as long as somebody has a waker.
struct Bell {
    /// The permit is there, or was taken by a driver that has not polled since.
    rung: AtomicBool,
    permit: Semaphore,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // ORDER: AcqRel, pairs with the swap in `block_on`: the next poll sees what came before this.
        if !self.rung.swap(true, AcqRel) {
            self.permit.release();
        }
    }
}

/// Polls a future to its end. The calling fiber waits between; outside of fibers the kernel thread does.
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
    let mut future = pin!(future);
    let bell = Arc::new(Bell { rung: AtomicBool::new(false), permit: Semaphore::new(0) });
    let waker = bell.clone().into();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        // It was woken during its own poll: the others come first.
        if bell.permit.try_acquire() {
            yield_now();
        } else {
            bell.permit.acquire();
        }
        // ORDER: AcqRel, pairs with the swap in `wake_by_ref`. Who rings from here on is for the poll after
        // the next one.
        bell.rung.swap(false, AcqRel);
    }
}

/// Starts a fiber that drives this future. It may wait as a fiber does, too. A future that is pending, and
/// whose wakers are all gone, is never polled again: its fiber and what it holds stay for ever.
///
/// # Panics
/// As [`spawn`].
pub fn spawn_async<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    spawn(move || block_on(future))
}
