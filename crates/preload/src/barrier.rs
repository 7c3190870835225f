// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_barrier_*`.
//!
//! **Layout.** The algorithm's words come first, at most 28 of the C library's 32 bytes. The C library itself
//! uses the first 20. The last four say whose it is: [`OURS`], or zero. There is no static initialiser, so
//! every barrier has been through `pthread_barrier_init`. One that another process has initialised, without
//! us, does not end in OURS.
//!
//! **Many threads.** With 32 threads and processors or more, threads arrive in a tree, for which 32 bytes have
//! no room. Then the whole barrier lies in a block of a mapping that stays. The block's number stands below
//! OURS. Who comes out of a barrier may destroy it and free its memory. The others, on their way out, look at
//! the block only, and see in whatever barrier it is by then that their episode is over.
//!
//! **Another algorithm.** `WAKEFUL_BARRIER` names one ([`crate::barrier_choice`]). Its barriers lie in memory
//! of ours ([`barrier_memory`]): the first words say where, the last one is [`NAMED`]. Whoever destroys one
//! waits for those who are on their way out.
//!
//! **Ours or not.** A process-shared barrier is the C library's, and so is one for more threads than our
//! algorithm can count.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU32, Ordering::*};

use catalog::NamedBarrier;
use libc::{EINVAL, ENOMEM, pthread_barrier_t, pthread_barrierattr_t};
use linux::{Linux, lines::BLOCKS};
use platform::Blocks;
use sync::barrier::{BWakeful, BWakefulDrained, Combined, RawBarrier, RawBarrierDrained};

use crate::{barrier_choice as choice, barrier_memory, real};

#[repr(C)]
struct Barrier {
    words: [AtomicU32; 7],
    whose: AtomicU32,
}

const _: () = assert!(size_of::<Barrier>() == size_of::<pthread_barrier_t>());
const _: () = assert!(size_of::<BWakefulDrained<Linux>>() <= 28 && align_of::<BWakefulDrained<Linux>>() <= 8);

/// "wake", but for the bits of a block's number.
const OURS: u32 = u32::from_le_bytes(*b"wake") & !(BLOCKS - 1);

/// "name", likewise.
const NAMED: u32 = u32::from_le_bytes(*b"name") & !(BLOCKS - 1);
const _: () = assert!(NAMED != OURS);

/// The C library's limit.
const MOST: c_uint = c_uint::MAX / 2;

impl Barrier {
    /// # Safety
    /// `barrier` points to an initialised barrier that outlives the reference's use.
    #[inline(always)]
    unsafe fn from<'a>(barrier: *mut pthread_barrier_t) -> &'a Self {
        // SAFETY: as promised; all fields are atomics.
        unsafe { &*barrier.cast() }
    }

    #[inline(always)]
    fn ours(&self) -> Option<Ours<'_>> {
        match self.whose.load(Relaxed) {
            // SAFETY: `init` has put one here.
            OURS => Some(Ours::Here(unsafe { &*core::ptr::from_ref(self).cast() })),
            whose if whose & !(BLOCKS - 1) == OURS => Some(Ours::There(whose % BLOCKS)),
            // SAFETY: `init` has put one here.
            NAMED => Some(Ours::Named(unsafe { &*core::ptr::from_ref(self).cast() })),
            _ => None,
        }
    }
}

/// Where a barrier of ours is.
enum Ours<'a> {
    Here(&'a BWakefulDrained<Linux>),
    /// In the block of this number.
    There(u32),
    Named(&'a Named),
}

/// What `pthread_barrier_t` has for a barrier in memory of ours.
#[repr(C)]
struct Named {
    at: *mut u8,
    parties: u32,
}

const _: () = assert!(size_of::<Named>() <= 28 && align_of::<Named>() <= 8);

impl Named {
    /// Puts one there; an errno value if that cannot be.
    ///
    /// # Safety
    /// `barrier` is the caller's.
    unsafe fn put(barrier: *mut pthread_barrier_t, kind: &NamedBarrier, parties: u32) -> c_int {
        let Some(layout) = kind.layout(parties) else { return ENOMEM };
        // SAFETY: memory that nobody else has, as much as the barrier needs; the rest as promised.
        unsafe {
            let at = barrier_memory::take(layout, barrier.addr());
            if at.is_null() {
                return ENOMEM;
            }
            kind.make(at, parties);
            barrier.write_bytes(0, 1);
            barrier.cast::<Self>().write(Self { at, parties });
            Barrier::from(barrier).whose.store(NAMED, Relaxed);
        }
        0
    }

    /// Gives back what is there already, if one was initialised in this place and never destroyed. As in the
    /// C library, nobody may use that one any more.
    ///
    /// # Safety
    /// As [`Named::put`]; what is there may be anything.
    unsafe fn forget(barrier: *mut pthread_barrier_t, kind: &NamedBarrier) {
        // SAFETY: words of the caller's, which may have any values.
        let (whose, Self { at, parties }) =
            unsafe { (Barrier::from(barrier).whose.load(Relaxed), barrier.cast::<Self>().read()) };
        let is_count = (1..=BWakeful::<Linux>::MOST_PARTIES).contains(&parties);
        let layout = (whose == NAMED && is_count).then(|| kind.layout(parties)).flatten();
        if let Some(layout) = layout.filter(|layout| barrier_memory::is_taken(at, *layout, barrier.addr())) {
            // SAFETY: a block of ours, for this barrier alone.
            unsafe { barrier_memory::give(at, layout) };
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> bool {
        // SAFETY: `put` has made it, and `end` has not been called. On the way out only that memory is used.
        choice::algorithm().is_some_and(|kind| unsafe { kind.wait(self.at) })
    }

    fn end(&self) {
        let Some(kind) = choice::algorithm() else { return };
        let Some(layout) = kind.layout(self.parties) else { return };
        // SAFETY: nobody waits; when all have left, the memory is ours alone.
        unsafe {
            kind.drain(self.at);
            barrier_memory::give(self.at, layout);
        }
    }
}

impl Ours<'_> {
    #[inline(always)]
    fn wait(&self) -> bool {
        match *self {
            Self::Here(barrier) => barrier.wait(),
            Self::There(number) => Self::wait_there(number),
            Self::Named(named) => named.wait(),
        }
    }

    #[inline(never)]
    fn wait_there(number: u32) -> bool {
        // SAFETY: `init` has put one there, and `destroy` has not been called.
        unsafe { Combined::<Linux>::at(number) }.is_some_and(|it| it.wait())
    }
}

/// # Safety
/// As the C library's function of this name; likewise all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: as promised.
    unsafe {
        // The C library ends the program there. A check of our build would panic instead.
        if cfg!(debug_assertions) && barrier.is_null() {
            return real::barrier_wait(barrier);
        }
        match Barrier::from(barrier).ours() {
            Some(ours) if ours.wait() => libc::PTHREAD_BARRIER_SERIAL_THREAD,
            Some(_) => 0,
            None => real::barrier_wait(barrier),
        }
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)] // as above, likewise below
pub unsafe extern "C" fn pthread_barrier_init(
    barrier: *mut pthread_barrier_t,
    attr: *const pthread_barrierattr_t,
    count: c_uint,
) -> c_int {
    if !(1..=MOST).contains(&count) {
        return EINVAL;
    }
    // SAFETY: as promised; an attribute object is an int: process-shared or not.
    unsafe {
        if cfg!(debug_assertions) && barrier.is_null() {
            return real::barrier_init(barrier, attr, count);
        }
        let shared = !attr.is_null() && attr.cast::<u32>().read() != 0;
        let named = choice::algorithm();
        if let Some(kind) = named {
            Named::forget(barrier, kind);
        }
        barrier.write_bytes(0, 1);
        if shared || count > BWakeful::<Linux>::MOST_PARTIES {
            return real::barrier_init(barrier, attr, count);
        }
        if let Some(kind) = named {
            return Named::put(barrier, kind, count);
        }
        // The number of the block where it is, if any.
        let number = Combined::<Linux>::placed(count).map_or(0, |(number, barrier)| {
            let _ = barrier.begun();
            number
        });
        if number == 0 {
            barrier.cast::<BWakefulDrained<Linux>>().write(BWakefulDrained::new(count));
        }
        Barrier::from(barrier).whose.store(OURS | number, Relaxed);
    }
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: as promised.
    unsafe {
        if cfg!(debug_assertions) && barrier.is_null() {
            return real::barrier_destroy(barrier);
        }
        let handle = Barrier::from(barrier);
        match handle.ours() {
            Some(ours) => {
                match ours {
                    // The others may still be on their way out.
                    Ours::Here(barrier) => barrier.drain(),
                    Ours::There(number) => Linux::give_block(number),
                    Ours::Named(named) => named.end(),
                }
                handle.whose.store(0, Relaxed);
                0
            }
            None => real::barrier_destroy(barrier),
        }
    }
}
