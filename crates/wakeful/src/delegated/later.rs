// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections whose callers do something else meanwhile.

use core::any::Any;
use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::{self, NonNull};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use linux::Linux;
use platform::Platform;
use sync::delegate::{Left, Outcome};

use super::{ByHolder, Delegated, Turn, Way};

/// A section that [`Delegated::run_async`] has begun, or that another thread may begin.
///
/// When the handle is dropped, the section has run: the drop waits for it, or runs it, and drops what it
/// returns. A panic of the section ends there, after the panic hook. A handle that is forgotten leaks what
/// the section owns, and the section may never run. In a forked child a section that another thread of the
/// parent had begun is the parent's: what it owns leaks, and the drop returns at once.
#[must_use = "if dropped it waits for the section at once"]
pub struct SectionHandle<R> {
    job: NonNull<Job<R>>,
}

// SAFETY: the section and what it returns are `Send`, and so is the lock.
unsafe impl<R: Send> Send for SectionHandle<R> {}
// SAFETY: by a shared reference one only asks whether it has run.
unsafe impl<R: Send> Sync for SectionHandle<R> {}

/// What the handle knows of it. Who runs the section writes `result`, before it answers.
#[repr(C)]
struct Job<R> {
    result: UnsafeCell<Option<Result<R, Box<dyn Any + Send>>>>,
    /// Others may know of `ask`, since the process had this generation.
    left: Option<u32>,
    /// Has it run, if another thread has not. With `at_once`, only if nobody has the lock.
    finish: unsafe fn(NonNull<Job<R>>, at_once: bool) -> Finished,
    /// Has another thread run it?
    is_answered: unsafe fn(NonNull<Job<R>>) -> bool,
    free: unsafe fn(NonNull<Job<R>>),
}

/// What became of a section that was to be finished.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finished {
    Yes,
    NotYet,
    /// This process is a copy: another thread had begun it, and may have written half of its result.
    Lost,
}

/// The whole of it. The lock neither moves nor ends while a request is in it.
#[repr(C)]
struct Whole<T, F, R, W: Way = ByHolder> {
    job: Job<R>,
    ask: W::Ask,
    lock: Arc<Delegated<T, W>>,
    section: UnsafeCell<Option<F>>,
}

impl<T: Send + 'static, W: Way + 'static> Delegated<T, W> {
    /// Leaves a section to the thread that has the lock, or to the server, and returns at once. If there is
    /// no server and nobody has the lock, or the lock does not delegate just now, this runs the section as
    /// [`run`](Self::run) does, and waits for the lock. So who has the guard must not call it.
    ///
    /// A server runs it as soon as it can. Else a section that nobody has begun by then is run by
    /// [`SectionHandle::wait`], or where the handle is dropped. So it may run later than the caller's next
    /// `run`. It allocates memory, once. The [rule](Self#the-rule) holds for it, and for the handle: to wait
    /// for it is to come to the lock.
    ///
    /// What the section uses it has to own, because a handle may be forgotten:
    ///
    /// ```compile_fail,E0597
    /// use std::sync::Arc;
    /// let delegated = Arc::new(wakeful::Delegated::new(0));
    /// let own = 1;
    /// let _handle = delegated.run_async(|data| *data += own);
    /// ```
    ///
    /// ```
    /// use std::sync::Arc;
    /// use wakeful::Delegated;
    ///
    /// let log = Arc::new(Delegated::new(Vec::new()));
    /// let handle = log.run_async(|log| {
    ///     log.push("begun");
    ///     log.len()
    /// });
    /// // ... something else ...
    /// assert_eq!(handle.wait(), 1);
    /// ```
    pub fn run_async<F, R>(self: &Arc<Self>, section: F) -> SectionHandle<R>
    where
        F: FnOnce(&mut T) -> R + Send + 'static,
        R: Send + 'static,
    {
        let whole = Box::into_raw(Box::<Whole<T, F, R, W>>::new_uninit()).cast::<Whole<T, F, R, W>>();
        let ask = W::ask(run_whole::<T, F, R, W>, whole.cast());
        let job = Job {
            result: UnsafeCell::new(None),
            left: None,
            finish: finish::<T, F, R, W>,
            is_answered: is_answered::<T, F, R, W>,
            free: free::<T, F, R, W>,
        };
        let generation = Linux::generation();
        // SAFETY: it is ours, and has room. Nobody else looks at `left`. The handle fetches the request
        // before it frees it, and the lock is there as long.
        unsafe {
            whole.write(Whole { job, ask, lock: self.clone(), section: UnsafeCell::new(Some(section)) });
            if self.raw.leave(&raw mut (*whole).ask) {
                (&raw mut (*whole).job.left).write(Some(generation));
            } else {
                run_here(whole);
            }
            SectionHandle { job: NonNull::new_unchecked(whole.cast()) }
        }
    }
}

/// # Safety
/// `context` is such a [`Whole`], and nobody else uses the lock's data.
unsafe fn run_whole<T, F: FnOnce(&mut T) -> R, R, W: Way>(context: *mut ()) {
    let whole = context.cast::<Whole<T, F, R, W>>();
    // SAFETY: only who runs it touches section and result.
    unsafe {
        let place = &mut *UnsafeCell::raw_get(&raw const (*whole).section);
        if let Some(section) = place.take() {
            let lock: &Delegated<T, W> = &(*whole).lock;
            let data = lock.data.get();
            let result = catch_unwind(AssertUnwindSafe(|| section(&mut *data)));
            *UnsafeCell::raw_get(&raw const (*whole).job.result) = Some(result);
        }
    }
}

/// # Safety
/// No other thread runs it, or will.
unsafe fn run_here<T, F: FnOnce(&mut T) -> R, R, W: Way>(whole: *mut Whole<T, F, R, W>) {
    // SAFETY: `run_whole` does not unwind, and `Turn` releases.
    unsafe {
        let lock: &Delegated<T, W> = &(*whole).lock;
        if lock.raw.lock_or_run(run_whole::<T, F, R, W>, whole.cast()) == Outcome::Locked {
            let _turn = Turn(&lock.raw);
            run_whole::<T, F, R, W>(whole.cast());
        }
    }
}

/// # Safety
/// A whole of these types. The handle's owner calls this.
unsafe fn finish<T, F: FnOnce(&mut T) -> R, R, W: Way>(job: NonNull<Job<R>>, at_once: bool) -> Finished {
    let whole = job.as_ptr().cast::<Whole<T, F, R, W>>();
    // SAFETY: as promised.
    unsafe {
        let Some(generation) = (*whole).job.left else { return Finished::Yes };
        let lock: &Delegated<T, W> = &(*whole).lock;
        // Nobody has begun it and not ended while the lock is ours.
        let turn = match at_once {
            true if !lock.raw.lock_at_once() => return Finished::NotYet,
            true => Some(Turn(&lock.raw)),
            false => None,
        };
        match lock.raw.fetch(&raw mut (*whole).ask, generation) {
            Left::Ran => {}
            Left::Withdrawn if turn.is_some() => run_whole::<T, F, R, W>(whole.cast()),
            Left::Withdrawn => run_here(whole),
            Left::Lost => return Finished::Lost,
        }
        (&raw mut (*whole).job.left).write(None);
        Finished::Yes
    }
}

/// # Safety
/// A whole of these types.
unsafe fn is_answered<T, F, R, W: Way>(job: NonNull<Job<R>>) -> bool {
    // SAFETY: as promised.
    W::is_answered(unsafe { &(*job.as_ptr().cast::<Whole<T, F, R, W>>()).ask })
}

/// # Safety
/// A whole of these types, which has been finished.
unsafe fn free<T, F, R, W: Way>(job: NonNull<Job<R>>) {
    // SAFETY: from `run_async`; nobody else knows of it.
    drop(unsafe { Box::from_raw(job.as_ptr().cast::<Whole<T, F, R, W>>()) });
}

impl<R> SectionHandle<R> {
    /// Has the section run? If there is no server and nobody else comes to the lock, that remains false until
    /// [`try_wait`](Self::try_wait) or [`wait`](Self::wait), or the drop.
    pub fn is_done(&self) -> bool {
        let job = self.job.as_ptr();
        // SAFETY: it is there as long as the handle.
        unsafe { (*job).left.is_none() || ((*job).is_answered)(self.job) }
    }

    /// Waits for the section, or runs it, and returns what it returned.
    ///
    /// # Panics
    /// If the section did. In a forked child, if another thread of the parent had begun the section.
    pub fn wait(self) -> R {
        // SAFETY: each is done once: the handle ends here, without its drop.
        let result = unsafe {
            let job = core::mem::ManuallyDrop::new(self).job;
            let Job { finish, free, .. } = *job.as_ptr();
            if finish(job, false) == Finished::Lost {
                panic!("a section that was begun before a fork is its parent's");
            }
            let result = ptr::replace(UnsafeCell::raw_get(&raw const (*job.as_ptr()).result), None);
            free(job);
            result
        };
        match result {
            Some(Ok(result)) => result,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("a section that has run has a result"),
        }
    }

    /// What it returned, if it has run. If there is no server and nobody has the lock, this runs it.
    ///
    /// # Errors
    /// The handle, if the section has not run.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn try_wait(self) -> Result<R, Self> {
        // SAFETY: the handle is ours.
        let is_done = self.is_done()
            || unsafe {
                let Job { finish, .. } = *self.job.as_ptr();
                finish(self.job, true) != Finished::NotYet
            };
        if is_done { Ok(self.wait()) } else { Err(self) }
    }
}

impl<R> Drop for SectionHandle<R> {
    fn drop(&mut self) {
        // SAFETY: each is done once.
        unsafe {
            let Job { finish, free, .. } = *self.job.as_ptr();
            if finish(self.job, false) != Finished::Lost {
                free(self.job);
            }
        }
    }
}

impl<R> fmt::Debug for SectionHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectionHandle").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}
