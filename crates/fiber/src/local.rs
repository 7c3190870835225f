// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each fiber has for itself.

use core::any::Any;

use crate::carrier;
use crate::record::Locals;

/// A value that each fiber makes for itself at its first use, and that ends with it.
///
/// ```
/// use core::cell::Cell;
/// use fiber::local::LocalKey;
/// use fiber::thread;
///
/// static COUNT: LocalKey<Cell<u32>> = LocalKey::new(|| Cell::new(0));
///
/// let fibers = [1, 2].map(|number| {
///     thread::spawn(move || {
///         COUNT.with(|count| count.set(count.get() + number));
///         thread::yield_now();
///         COUNT.with(|count| count.get())
///     })
/// });
/// assert_eq!(fibers.map(|fiber| fiber.join().unwrap()), [1, 2]);
/// ```
pub struct LocalKey<T: 'static> {
    make: fn() -> T,
}

impl<T: 'static> LocalKey<T> {
    /// Made by this.
    pub const fn new(make: fn() -> T) -> Self {
        Self { make }
    }

    /// The list of the calling fiber, and where in it this value is, if it was made.
    fn find(&self) -> (*mut Locals, Option<*const T>) {
        // SAFETY: the calling fiber runs.
        let fiber = unsafe { carrier::current().as_ref() }.expect("only fibers have locals");
        let locals: *mut Locals = fiber.locals.get();
        let key = core::ptr::from_ref(self).addr();
        // SAFETY: the calling fiber's own; no reference to the list outlives this.
        let found = unsafe { (*locals).iter().find(|(other, _)| *other == key) };
        (locals, found.and_then(|(_, value)| value.downcast_ref::<T>()).map(core::ptr::from_ref))
    }

    /// Uses the calling fiber's, if it was made.
    ///
    /// # Panics
    /// Outside of fibers.
    pub fn with_made<R>(&'static self, body: impl FnOnce(&T) -> R) -> Option<R> {
        // SAFETY: boxed, so it stays where it is; it is dropped when the fiber's code has ended.
        self.find().1.map(|place| body(unsafe { &*place }))
    }

    /// Uses the calling fiber's.
    ///
    /// # Panics
    /// Outside of fibers.
    pub fn with<R>(&'static self, body: impl FnOnce(&T) -> R) -> R {
        let (locals, found) = self.find();
        let place = found.unwrap_or_else(|| {
            let new: Box<dyn Any> = Box::new((self.make)());
            // SAFETY: as in `find`. `make` may have added others, of other keys or of this one.
            unsafe { (*locals).push((core::ptr::from_ref(self).addr(), new)) };
            self.find().1.expect("it was just put there")
        });
        // SAFETY: boxed, so it stays where it is; it is dropped when the fiber's code has ended.
        body(unsafe { &*place })
    }
}
