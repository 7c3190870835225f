// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data that are visited by sections, which another thread may run.

use core::any::Any;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use linux::Linux;
use platform::Deadline;
use sync::delegate::{Ask, DWakeful, Left, Outcome, RawDelegateTimed, Section};

mod later;
mod server;
mod when;

pub use later::SectionHandle;
pub use server::{ByServer, RclServer};

#[cfg(test)]
#[path = "../tests/delegated.rs"]
mod as_used;
#[cfg(test)]
mod tests;

/// Data that one section at a time works on, on whichever thread that is best.
///
/// [`run`](Self::run) takes a closure and returns what it returns. If another thread holds the lock just
/// then, that thread may run the closure before it releases: so the data stay in its processor's cache. The
/// lock measures whether that is quicker than a mutex here, and is a plain [`Mutex`](crate::Mutex) if not.
/// With [`ByHolder`] it is 192 bytes and the data, rounded up to a multiple of 64, and it can stand in a
/// `static`. With [`ByServer`] it is three words and the data, and it allocates when it is made.
///
/// ```
/// use std::thread;
/// use wakeful::Delegated;
///
/// static COUNTER: Delegated<u64> = Delegated::new(0);
///
/// thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             let n = COUNTER.run(|counter| {
///                 *counter += 1;
///                 *counter
///             });
///             assert!((1..=4).contains(&n));
///         });
///     }
/// });
/// assert_eq!(COUNTER.run(|counter| *counter), 4);
/// ```
///
/// # The rule
///
/// A section may run on another thread than the one that called. So nothing in it may depend on the thread:
/// no thread-local variable, `errno`, thread id, credentials, signal mask or scheduling policy. It must not
/// use a lock that its caller holds. It must not come to its own `Delegated` again: that waits for ever, as
/// with a mutex. It should be short: while it runs, the thread that runs it does not get on. So it must not
/// wait for what another thread has yet to do, except for two things: that a section ends, and that a lock
/// is released which all threads take in the same order. It uses the stack of the thread that runs it, and a
/// fiber's is small. It must not end its thread: `pthread_exit` there aborts. It should not fork: the child's
/// only thread is then the one that ran it, and goes on as that one.
///
/// The compiler checks what it can. What a section uses has to be [`Send`]:
///
/// ```compile_fail,E0277
/// let delegated = wakeful::Delegated::new(0);
/// let own = std::rc::Rc::new(1);
/// delegated.run(|data| *data += *own);
/// ```
///
/// and so does what it returns, and the data:
///
/// ```compile_fail,E0277
/// wakeful::Delegated::new(0).run(|data| std::rc::Rc::new(*data));
/// ```
///
/// ```compile_fail,E0277
/// wakeful::Delegated::new(std::rc::Rc::new(0)).run(|data| **data);
/// ```
///
/// Nothing of the data leaves a section by reference:
///
/// ```compile_fail
/// let delegated = wakeful::Delegated::new(vec![1]);
/// let first: &mut i32 = delegated.run(|data| &mut data[0]);
/// ```
///
/// # Panics
///
/// A panic in a section goes on in the thread that called; the lock and all other callers are as before.
/// There is no poison. The message, which the panic hook prints, may name the thread that ran the section.
///
/// # From a mutex, step by step
///
/// [`lock`](Self::lock) returns a guard, as a mutex does. Replace the mutex first, and then one
/// `{ let mut data = x.lock(); ... }` after the other by `x.run(|data| ...)`.
///
/// ```
/// use wakeful::Delegated;
///
/// let names = Delegated::new(Vec::new());
/// names.lock().push("Ada");
/// names.run(|names| names.push("Alan"));
/// assert_eq!(names.into_inner(), ["Ada", "Alan"]);
/// ```
///
/// # Who runs the sections
///
/// [`ByHolder`], the default: a thread that comes to the lock. [`ByServer`]: a thread of an [`RclServer`],
/// which keeps the data of several locks in its processor's cache ([`Delegated::on`]). The rule is the same.
pub struct Delegated<T: ?Sized, W: Way = ByHolder> {
    raw: W,
    data: UnsafeCell<T>,
}

// SAFETY: the data move with it.
unsafe impl<T: ?Sized + Send, W: Way> Send for Delegated<T, W> {}
// SAFETY: one section or guard at a time has the data, on whichever thread.
unsafe impl<T: ?Sized + Send, W: Way> Sync for Delegated<T, W> {}

mod sealed {
    /// Who runs the sections of a [`Delegated`](super::Delegated).
    ///
    /// # Safety
    /// One section of this lock runs at a time, and none from `Outcome::Locked` or `lock` to `unlock` or
    /// `unlock_only`.
    pub unsafe trait Way: Send + Sync {
        /// # Safety
        /// As for `RawDelegate::run`; `unlock` follows if the outcome is `Locked`.
        unsafe fn lock_or_run(&self, section: super::Section, context: *mut ()) -> super::Outcome;
        /// # Safety
        /// The same.
        unsafe fn lock_or_run_until(
            &self,
            section: super::Section,
            context: *mut (),
            deadline: super::Deadline,
        ) -> super::Outcome;
        /// # Safety
        /// The caller is in no section of this lock, and calls `unlock_only`.
        unsafe fn lock(&self);
        /// # Safety
        /// The calling thread has the lock. It keeps no lock that it has taken since.
        unsafe fn unlock(&self);
        /// # Safety
        /// The calling thread has the lock.
        unsafe fn unlock_only(&self);

        /// The deadline of one who comes for the first time, and would rather have come to the lock.
        fn at_least(deadline: super::Deadline) -> super::Deadline {
            deadline
        }

        /// A request that its client does not wait with.
        type Ask;
        fn ask(section: super::Section, context: *mut ()) -> Self::Ask;
        /// False if nobody knows of it.
        ///
        /// # Safety
        /// As for `lock_or_run`. The request stays until it has been fetched.
        unsafe fn leave(&self, ask: *mut Self::Ask) -> bool;
        /// # Safety
        /// It was left here in this generation, and is there.
        unsafe fn fetch(&self, ask: *mut Self::Ask, generation: u32) -> super::Left;
        fn is_answered(ask: &Self::Ask) -> bool;
        /// Takes the lock if that lets the caller run its own section now.
        fn lock_at_once(&self) -> bool;
    }
}
use sealed::Way;

/// [`Delegated`]'s sections are run by the threads that come to it.
pub struct ByHolder(Raw);

// SAFETY: as of the lock within.
unsafe impl Way for ByHolder {
    #[inline(always)]
    unsafe fn lock_or_run(&self, section: Section, context: *mut ()) -> Outcome {
        // SAFETY: here and below: as the caller promises.
        unsafe { self.0.lock_or_run(section, context) }
    }

    unsafe fn lock_or_run_until(&self, section: Section, context: *mut (), deadline: Deadline) -> Outcome {
        // SAFETY: as above.
        unsafe { self.0.lock_or_run_until(section, context, deadline) }
    }

    #[inline(always)]
    unsafe fn lock(&self) {
        // SAFETY: as above.
        unsafe { self.0.lock() };
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        // SAFETY: as above.
        unsafe { self.0.unlock() };
    }

    #[inline(always)]
    unsafe fn unlock_only(&self) {
        // SAFETY: as above.
        unsafe { self.0.unlock_only() };
    }

    type Ask = Ask<Linux>;

    fn ask(section: Section, context: *mut ()) -> Self::Ask {
        Ask::new(section, context)
    }

    unsafe fn leave(&self, ask: *mut Self::Ask) -> bool {
        // SAFETY: as above.
        unsafe { self.0.leave(ask) }
    }

    unsafe fn fetch(&self, ask: *mut Self::Ask, generation: u32) -> Left {
        // SAFETY: as above.
        unsafe { self.0.fetch(ask, generation) }
    }

    fn is_answered(ask: &Self::Ask) -> bool {
        ask.is_answered()
    }

    fn lock_at_once(&self) -> bool {
        self.0.lock_at_once()
    }
}

/// Holds a [`Delegated`] until dropped: no section runs meanwhile. Stays in its thread.
///
/// ```compile_fail,E0277
/// let delegated = wakeful::Delegated::new(0);
/// let guard = delegated.lock();
/// std::thread::scope(|scope| scope.spawn(move || drop(guard)));
/// ```
#[must_use = "if unused the lock is released at once"]
pub struct DelegatedGuard<'a, T: ?Sized, W: Way = ByHolder> {
    of: &'a Delegated<T, W>,
    /// The lock word names the thread that holds it.
    stays: PhantomData<*const ()>,
}

// SAFETY: it gives a shared reference to the data.
unsafe impl<T: ?Sized + Sync, W: Way> Sync for DelegatedGuard<'_, T, W> {}

/// The tests in this crate see what happens where it delegates, so there it always does.
type Raw = DWakeful<Linux, { cfg!(test) }>;

/// The caller runs its own section, and then those of others.
struct Turn<'a, W: Way>(&'a W);

impl<W: Way> Drop for Turn<'_, W> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it holds the lock. Others' sections would take themselves for panicking.
        unsafe {
            if std::thread::panicking() {
                self.0.unlock_only();
            } else {
                self.0.unlock();
            }
        }
    }
}

/// A section on its way to the thread that runs it.
struct Call<T: ?Sized, F, R> {
    data: *mut T,
    section: Option<F>,
    result: Option<Result<R, Box<dyn Any + Send>>>,
}

/// # Safety
/// `context` is a [`Call`] whose data nobody else uses meanwhile.
unsafe fn call<T: ?Sized, F: FnOnce(&mut T) -> R, R>(context: *mut ()) {
    // SAFETY: as promised.
    let call = unsafe { &mut *context.cast::<Call<T, F, R>>() };
    if let Some(section) = call.section.take() {
        // SAFETY: as promised. The one whose panic it is sees it; the data are as a mutex without poison
        // would leave them.
        call.result = Some(catch_unwind(AssertUnwindSafe(|| section(unsafe { &mut *call.data }))));
    }
}

impl<T> Delegated<T> {
    /// Nobody uses the data yet.
    #[must_use]
    pub const fn new(data: T) -> Self {
        // SAFETY: words and pointers, which are zero and null in a free lock (`RawDelegate::new`).
        Self { raw: ByHolder(unsafe { core::mem::zeroed() }), data: UnsafeCell::new(data) }
    }
}

impl<T, W: Way> Delegated<T, W> {
    /// The data.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized, W: Way> Delegated<T, W> {
    /// Releases the lock of a guard that was forgotten.
    ///
    /// # Safety
    /// The calling thread has such a guard, and nobody uses the data by it any more.
    pub unsafe fn force_unlock(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.raw.unlock_only() };
    }

    /// The data, which nobody else can be using.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

impl<T: ?Sized + Send, W: Way> Delegated<T, W> {
    /// Runs a section, on this or another thread, and returns what it returns. See the
    /// [rule](Self#the-rule).
    ///
    /// # Panics
    /// If the section does.
    #[inline]
    pub fn run<F, R>(&self, section: F) -> R
    where
        F: FnOnce(&mut T) -> R + Send,
        R: Send,
    {
        let begin = |section, context| {
            // SAFETY: `call` does not unwind, and `finish` releases.
            unsafe { self.raw.lock_or_run(section, context) }
        };
        match self.begin(section, begin) {
            Ok(result) => result,
            Err(_) => unreachable!("it gives up at a deadline only"),
        }
    }

    fn try_run_before<F, R>(&self, deadline: Deadline, section: F) -> Result<R, F>
    where
        F: FnOnce(&mut T) -> R + Send,
        R: Send,
    {
        self.begin(section, |section, context| {
            // SAFETY: `call` does not unwind, and `begin` releases.
            unsafe { self.raw.lock_or_run_until(section, context, deadline) }
        })
    }

    #[inline(always)]
    fn begin<F, R>(
        &self,
        section: F,
        begin: impl FnOnce(unsafe fn(*mut ()), *mut ()) -> Outcome,
    ) -> Result<R, F>
    where
        F: FnOnce(&mut T) -> R + Send,
        R: Send,
    {
        let mut pending = Call { data: self.data.get(), section: Some(section), result: None };
        let outcome = begin(call::<T, F, R>, (&raw mut pending).cast());
        match (pending.section.take(), pending.result) {
            (Some(section), _) if outcome == Outcome::Locked => {
                let _turn = Turn(&self.raw);
                // SAFETY: it holds the lock.
                Ok(section(unsafe { &mut *self.data.get() }))
            }
            (Some(section), _) => Err(section),
            (None, Some(Ok(result))) => Ok(result),
            (None, Some(Err(panic))) => resume_unwind(panic),
            (None, None) => unreachable!("a section that was taken leaves a result"),
        }
    }

    /// Waits until no section runs, and keeps others from running until the guard is dropped.
    #[inline]
    pub fn lock(&self) -> DelegatedGuard<'_, T, W> {
        // SAFETY: the guard unlocks.
        unsafe { self.raw.lock() };
        DelegatedGuard { of: self, stays: PhantomData }
    }
}

impl<T: ?Sized + Send, W: Way> Delegated<T, W> {
    /// As [`run`](Self::run), but gives the section back if it has not begun within `timeout`.
    ///
    /// A section that another thread has taken by then is waited for, because it may use what this thread
    /// has lent it. A thread that gets the lock in time runs its section, and then up to 71 of others. So
    /// this may take longer than `timeout`, by what such sections and the section itself take. A server that
    /// sleeps needs some microseconds to begin. Where more than 24 threads come to the locks of one server,
    /// it may be up to 1 ms late. While all threads of that server are in sections that do not get on, such a
    /// caller waits until one of them does.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let delegated = wakeful::Delegated::new(1);
    /// let guard = delegated.lock();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(delegated.try_run_for(Duration::from_millis(1), |data| *data).is_err()));
    /// });
    /// drop(guard);
    /// assert_eq!(delegated.try_run_for(Duration::from_secs(1), |data| *data).ok(), Some(1));
    /// ```
    ///
    /// # Errors
    /// The section, which has not run.
    ///
    /// # Panics
    /// If the section does.
    pub fn try_run_for<F, R>(&self, timeout: Duration, section: F) -> Result<R, F>
    where
        F: FnOnce(&mut T) -> R + Send,
        R: Send,
    {
        self.try_run_before(crate::time::after(timeout), section)
    }

    /// As [`try_run_for`](Self::try_run_for), until `moment`.
    ///
    /// # Errors
    /// The section, which has not run.
    pub fn try_run_until<F, R>(&self, moment: Instant, section: F) -> Result<R, F>
    where
        F: FnOnce(&mut T) -> R + Send,
        R: Send,
    {
        self.try_run_before(crate::time::at(moment), section)
    }
}

impl<T: ?Sized, W: Way> Deref for DelegatedGuard<'_, T, W> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it holds the lock.
        unsafe { &*self.of.data.get() }
    }
}

impl<T: ?Sized, W: Way> DerefMut for DelegatedGuard<'_, T, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: it holds the lock.
        unsafe { &mut *self.of.data.get() }
    }
}

impl<T: ?Sized, W: Way> Drop for DelegatedGuard<'_, T, W> {
    #[inline]
    fn drop(&mut self) {
        // No section of others is run here: it could want a lock that was taken under this one and is kept.
        // SAFETY: it holds the lock, and ends.
        unsafe { self.of.force_unlock() };
    }
}

impl<T: Default> Default for Delegated<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Delegated<T> {
    fn from(data: T) -> Self {
        Self::new(data)
    }
}

impl<T: ?Sized, W: Way> fmt::Debug for Delegated<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegated").finish_non_exhaustive()
    }
}

impl<T: ?Sized + fmt::Debug, W: Way> fmt::Debug for DelegatedGuard<'_, T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
