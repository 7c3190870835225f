// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that is being loaded with a program, and what lies in its memory.

use crate::engine::Engine;
use crate::setting::Hints;

/// An object in the machine's memory: a copyable reference, for the threads of one simulation.
pub struct Placed<T: ?Sized>(*mut T);

// SAFETY: as for `Word`: the threads of a machine run on one thread of the host, one at a time, and what is
// placed belongs to one machine.
unsafe impl<T: ?Sized + Sync> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Placed<T> {}

impl<T: ?Sized> Clone for Placed<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Placed<T> {}

impl<T: ?Sized> Placed<T> {
    /// The object.
    pub fn get(&self) -> &T {
        // SAFETY: placed objects live as long as the machine, and only its threads, which end with it, have
        // them.
        unsafe { &*self.0 }
    }
}

impl<T: ?Sized> std::ops::Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.get()
    }
}

/// A machine that is being loaded with a program.
pub struct World(pub(crate) *mut Engine);

impl World {
    /// A program of its own: an arena that its threads share.
    pub fn add_app(&mut self) -> usize {
        // SAFETY: the engine outlives the world, and no thread runs yet.
        unsafe { (*self.0).add_app() }
    }

    /// Moves an object into the machine's memory, onto lines of its own.
    pub fn place<T: 'static>(&mut self, value: T) -> Placed<T> {
        // SAFETY: as above.
        Placed(unsafe { (*self.0).memory.place(value) })
    }

    /// Keeps an object of the host's as long as the machine. Each word of its has a line for itself.
    pub(crate) fn keep<T: 'static>(&mut self, value: T) -> Placed<T> {
        // SAFETY: as above. The engine keeps the box, and drops it after its threads.
        unsafe {
            (*self.0).kept.push(Box::new(value));
            let kept = (*self.0).kept.last_mut().expect("just pushed");
            Placed(kept.downcast_mut().expect("of this type"))
        }
    }

    /// What the kernel tells.
    pub(crate) fn hints(&self) -> Hints {
        // SAFETY: as above.
        unsafe { (*self.0).rules.setting.hints }
    }

    /// So many fibers are ready from the beginning.
    pub(crate) fn ready(&mut self, count: u64) {
        // SAFETY: as above.
        unsafe { (*self.0).tally.idle.change(count as i64, 0, 0) };
    }

    /// As [`World::place`], one after the other.
    pub fn place_all<T: 'static>(&mut self, values: impl ExactSizeIterator<Item = T>) -> Placed<[T]> {
        // SAFETY: as above.
        Placed(unsafe { (*self.0).memory.place_all(values) })
    }

    /// The pages of this object are on this node from now on, with what else lies on them. Nothing happens on
    /// a machine whose pages have no homes.
    pub fn bind<T: ?Sized>(&mut self, placed: Placed<T>, node: u32) {
        let bytes = size_of_val(placed.get());
        // SAFETY: as above.
        unsafe { (*self.0).memory.bind(placed.0.addr(), bytes, node as usize) };
    }

    /// A thread of a program. What it shares with others must be placed, or cost nothing.
    pub fn spawn(&mut self, app: usize, body: impl FnOnce() + 'static) {
        // SAFETY: as above.
        unsafe { (*self.0).spawn(app, body) };
    }

    /// The same. Returns the thread's number in the machine.
    pub(crate) fn add_thread(&mut self, app: usize, body: impl FnOnce() + 'static) -> usize {
        // SAFETY: as above.
        unsafe { (*self.0).spawn(app, body) }
    }

    /// The same, of a thread that belongs to this processor, modulo their number ([`Setting::bound`]).
    ///
    /// [`Setting::bound`]: crate::Setting::bound
    pub fn spawn_on(&mut self, app: usize, processor: u32, body: impl FnOnce() + 'static) {
        // SAFETY: as above.
        unsafe { (*self.0).spawn_on(app, processor as usize, body) };
    }
}
