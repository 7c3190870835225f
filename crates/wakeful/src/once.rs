// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialisation that happens once.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};

use linux::Linux;
use sync::once::{self, Begin, End, RawOnce};

/// Runs something once, as `std::sync::Once`. 4 bytes.
///
/// A panic in it poisons: later calls panic, too, but for those of
/// [`call_once_force`](Self::call_once_force). A thread that asks for it while it is running it itself
/// waits for ever. After a fork in the middle, the child starts it again.
///
/// ```
/// use wakeful::Once;
///
/// static START: Once = Once::new();
/// for _ in 0..3 {
///     START.call_once(|| println!("once"));
/// }
/// assert!(START.is_completed());
/// ```
#[repr(transparent)]
pub struct Once(once::Wakeful<Linux>);

impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

/// What [`Once::call_once_force`] tells about earlier attempts.
#[derive(Debug)]
pub struct OnceState {
    poisoned: bool,
}

impl OnceState {
    /// Did the attempt before this one panic?
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

/// Ends an attempt, as poisoned unless told otherwise.
struct Attempt<'a>(&'a Once, End);

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.0.end(self.1);
    }
}

impl Once {
    /// Nothing has been run yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(once::Wakeful::INIT)
    }

    /// Runs `f` if nothing has been run by this [`Once`], else waits for the end of what runs.
    ///
    /// # Panics
    /// If `f` panics, or did in an earlier call.
    #[inline]
    pub fn call_once(&self, f: impl FnOnce()) {
        if !self.0.is_done() {
            self.call(false, |_| f());
        }
    }

    /// As [`call_once`](Self::call_once), also if an earlier call panicked.
    ///
    /// # Panics
    /// If `f` panics.
    #[inline]
    pub fn call_once_force(&self, f: impl FnOnce(&OnceState)) {
        if !self.0.is_done() {
            self.call(true, f);
        }
    }

    /// Has it been run to its end? What it wrote can then be read.
    #[inline]
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.0.is_done()
    }

    #[cold]
    fn call(&self, force: bool, f: impl FnOnce(&OnceState)) {
        let done: Result<(), core::convert::Infallible> = self.try_call(force, |state| {
            f(state);
            Ok(())
        });
        let Ok(()) = done;
    }

    #[cold]
    fn try_call<E>(&self, force: bool, f: impl FnOnce(&OnceState) -> Result<(), E>) -> Result<(), E> {
        match self.0.begin(force) {
            Begin::Done => Ok(()),
            Begin::Poisoned => {
                panic!("an earlier call of this Once panicked; call_once_force would try again")
            }
            Begin::Run { poisoned } => {
                let mut attempt = Attempt(self, End::Poisoned);
                let result = f(&OnceState { poisoned });
                attempt.1 = if result.is_ok() { End::Done } else { End::Undone };
                result
            }
        }
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("completed", &self.is_completed()).finish()
    }
}

/// A value that is written once, as `std::sync::OnceLock`: 4 bytes and the value.
///
/// ```
/// use wakeful::OnceLock;
///
/// static NAME: OnceLock<String> = OnceLock::new();
/// assert_eq!(NAME.get(), None);
/// assert_eq!(NAME.get_or_init(|| "first".to_owned()), "first");
/// assert_eq!(NAME.set("second".to_owned()), Err("second".to_owned()));
/// ```
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by one thread, before it is read by any; a thread may also drop what another
// wrote.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it has been written.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: written, and not written again while there are references to `self`.
        self.once.is_completed().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// The value, if it has been written.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: written.
        self.once.is_completed().then(|| unsafe { self.value.get_mut().assume_init_mut() })
    }

    /// Writes the value, or gives it back if there is one. Waits for whoever is writing one.
    ///
    /// # Errors
    /// The value, if there is another.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// The value; if there is none, that of `init`. If `init` panics there is still none, and the next call
    /// tries again.
    #[inline]
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let Ok(value) = self.get_or_try_init(|| Ok::<_, core::convert::Infallible>(init()));
        value
    }

    /// The value; if there is none, that of `init`.
    ///
    /// # Errors
    /// That of `init`. There is still no value then, and the next call tries again.
    #[inline]
    pub fn get_or_try_init<E>(&self, init: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if !self.once.is_completed() {
            // Poisoned only means that there is no value.
            self.once.try_call(true, |_| {
                let value = init()?;
                // SAFETY: nobody reads or writes it before the end of this.
                unsafe { (*self.value.get()).write(value) };
                Ok(())
            })?;
        }
        // SAFETY: as for `get`.
        Ok(unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Takes the value out; there is none then.
    pub fn take(&mut self) -> Option<T> {
        let written = self.once.is_completed();
        self.once = Once::new();
        // SAFETY: written, and forgotten by the line above.
        written.then(|| unsafe { self.value.get_mut().assume_init_read() })
    }

    /// The value, if it has been written.
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let lock = Self::new();
        let _ = lock.set(value);
        lock
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}
