// SPDX-License-Identifier: MIT OR Apache-2.0
//! A barrier of the catalogue whose name is known only when the program runs.

use core::alloc::{Layout, LayoutError};
use core::marker::PhantomData;
use core::ptr;

use platform::{Atomic, Platform};
use sync::barrier::RawBarrier;
use sync::seated::{Seat, Seated};

use crate::{BarrierEntry, BarrierVisitor, visit_barrier};

/// A kind of barrier, by pointers. It is made in memory that the caller has.
pub struct NamedBarrier {
    layout: fn(u32) -> Option<Layout>,
    make: unsafe fn(*mut u8, u32),
    wait: unsafe fn(*const u8) -> bool,
    wait_as: unsafe fn(*const u8, u32) -> bool,
    drain: unsafe fn(*const u8),
}

/// The barrier of this name; `None` if there is none.
pub fn named_barrier<P: Platform>(name: &str) -> Option<&'static NamedBarrier> {
    visit_barrier::<P, _>(name, Name)
}

impl NamedBarrier {
    /// The memory that it needs for so many parties; `None` if that is more than there can be.
    pub fn layout(&self, parties: u32) -> Option<Layout> {
        (self.layout)(parties)
    }

    /// Makes one.
    ///
    /// # Safety
    /// The memory is the caller's, and as [`NamedBarrier::layout`] says.
    pub unsafe fn make(&self, at: *mut u8, parties: u32) {
        // SAFETY: as promised; likewise below.
        unsafe { (self.make)(at, parties) }
    }

    /// Waits until all parties have come; true for one of them.
    ///
    /// # Safety
    /// This kind of barrier was made there, and stays until [`NamedBarrier::drain`] has returned.
    pub unsafe fn wait(&self, at: *const u8) -> bool {
        // SAFETY: as promised.
        unsafe { (self.wait)(at) }
    }

    /// The same for the member of this number, below that of the parties. A barrier whose threads wait so
    /// has none that wait in the other way.
    ///
    /// # Safety
    /// As [`NamedBarrier::wait`].
    pub unsafe fn wait_as(&self, at: *const u8, number: u32) -> bool {
        // SAFETY: as promised.
        unsafe { (self.wait_as)(at, number) }
    }

    /// Returns when all have left: then the memory can be freed.
    ///
    /// # Safety
    /// As [`NamedBarrier::wait`]; nobody is waiting.
    pub unsafe fn drain(&self, at: *const u8) {
        // SAFETY: as promised.
        unsafe { (self.drain)(at) }
    }
}

/// What lies at the beginning of the memory.
struct Block<P: Platform, B: RawBarrier<P>> {
    barrier: B,
    next: P::AtomicU32,
    places: *const B::Place,
    place_count: usize,
    seats: *const Seat<P, B::Member>,
    seat_count: usize,
}

struct Kind<P, B>(PhantomData<(P, B)>);

impl<P: Platform, B: RawBarrier<P>> Kind<P, B> {
    const TABLE: NamedBarrier = NamedBarrier {
        layout: |parties| Self::parts(parties).ok().map(|(layout, ..)| layout),
        make: Self::make,
        wait: Self::wait,
        wait_as: Self::wait_as,
        drain: Self::drain,
    };

    fn parts(parties: u32) -> Result<(Layout, usize, usize), LayoutError> {
        let block = Layout::new::<Block<P, B>>();
        let (both, places) = block.extend(Layout::array::<B::Place>(B::places(parties))?)?;
        let (all, seats) = both.extend(Layout::array::<Seat<P, B::Member>>(parties as usize)?)?;
        Ok((all, places, seats))
    }

    /// # Safety
    /// As [`NamedBarrier::make`].
    unsafe fn make(at: *mut u8, parties: u32) {
        let Ok((_, places_at, seats_at)) = Self::parts(parties) else { return };
        let (place_count, seat_count) = (B::places(parties), parties as usize);
        // SAFETY: all parts lie in memory that the caller has, where they are aligned.
        unsafe {
            let places = at.add(places_at).cast::<B::Place>();
            (0..place_count).for_each(|index| places.add(index).write(B::Place::default()));
            let seats = at.add(seats_at).cast::<Seat<P, B::Member>>();
            (0..seat_count).for_each(|index| seats.add(index).write(Seat::default()));
            let (barrier, next) = (B::new(parties), P::AtomicU32::new(0));
            at.cast::<Block<P, B>>().write(Block { barrier, next, places, place_count, seats, seat_count });
        }
    }

    /// # Safety
    /// As [`NamedBarrier::wait`].
    unsafe fn seated<'a>(at: *const u8) -> Seated<'a, P, B> {
        // SAFETY: `make` has put it there.
        unsafe {
            let block = &*at.cast::<Block<P, B>>();
            Seated {
                barrier: &block.barrier,
                places: &*ptr::slice_from_raw_parts(block.places, block.place_count),
                seats: &*ptr::slice_from_raw_parts(block.seats, block.seat_count),
                next: &block.next,
            }
        }
    }

    unsafe fn wait(at: *const u8) -> bool {
        // SAFETY: as the caller promises; likewise below.
        unsafe { Self::seated(at).wait() }
    }

    unsafe fn wait_as(at: *const u8, number: u32) -> bool {
        // SAFETY: as above.
        unsafe { Self::seated(at).wait_as(number) }
    }

    unsafe fn drain(at: *const u8) {
        // SAFETY: as above.
        unsafe { Self::seated(at).drain() }
    }
}

struct Name;
impl<P: Platform> BarrierVisitor<P> for Name {
    type Output = &'static NamedBarrier;
    fn visit<B: RawBarrier<P> + 'static>(self, _: &'static BarrierEntry) -> Self::Output
    where
        B::Place: 'static,
        B::Member: 'static,
    {
        const { &Kind::<P, B>::TABLE }
    }
}
