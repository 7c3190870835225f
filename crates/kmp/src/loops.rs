// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worksharing loops. The compiler gives the first and the last value of a loop, both inclusive. In a static
//! loop each member finds its own part; of others it asks for one part after the other.

use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

use omp::icv::Kind;
use omp::loops::{How, Over, Shape, Share};
use omp::routines::{team_number, teams};
use omp::thread::me;
use omp::wait::ByUser;

use crate::Ident;

/// A type in which a loop counts. Its bits, with the sign in all above, make the arithmetic the same for all.
trait Number: Copy + PartialOrd {
    fn bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

macro_rules! number {
    ($($type:ty as $wide:ty;)*) => {
        $(
            impl Number for $type {
                fn bits(self) -> u64 {
                    self as $wide as u64
                }

                fn from_bits(bits: u64) -> Self {
                    bits as Self
                }
            }
        )*
    };
}

number! {
    i32 as i64;
    u32 as u64;
    i64 as i64;
    u64 as u64;
}

/// Iterations of a loop; of one over all values of 64 bits, 0.
fn iterations<T: Number>(lower: T, upper: T, step: i64) -> u64 {
    let span = |first: T, last: T| last.bits().wrapping_sub(first.bits()) / step.unsigned_abs().max(1);
    match step > 0 {
        true if lower <= upper => span(lower, upper).wrapping_add(1),
        false if lower >= upper => span(upper, lower).wrapping_add(1),
        _ => 0,
    }
}

// --- static loops ------------------------------------------------------------

/// `sched_type`, without modifiers and without what says that a loop has `ordered` regions.
mod schedule {
    pub const STATIC_CHUNKED: i32 = 33;
    pub const STATIC: i32 = 34;
    pub const DYNAMIC: i32 = 35;
    pub const GUIDED: i32 = 36;
    pub const RUNTIME: i32 = 37;
    pub const TRAPEZOIDAL: i32 = 39;
    pub const GUIDED_ITERATIVE: i32 = 42;
    pub const GUIDED_ANALYTICAL: i32 = 43;
    pub const STATIC_STEAL: i32 = 44;
    pub const STATIC_BALANCED_CHUNKED: i32 = 45;
    pub const GUIDED_SIMD: i32 = 46;
    pub const RUNTIME_SIMD: i32 = 47;
    /// From here on `ordered`, then `distribute`; each kind has its place.
    pub const ORDERED: i32 = 64;
    pub const ORDERED_MORE: i32 = 32;
    pub const DISTRIBUTE_CHUNKED: i32 = 91;
    pub const DISTRIBUTE: i32 = 92;
    pub const DISTRIBUTE_MORE: i32 = DISTRIBUTE - STATIC;
    /// From here on the same again, for compilers that want no two chunks in one.
    pub const NOT_MERGED: i32 = 160;
    pub const NOT_MERGED_MORE: i32 = 128;
    pub const MODIFIERS: i32 = 1 << 29 | 1 << 30;
}

/// A part of a loop, by the numbers of iterations: from, to (exclusive), and from one part of the same
/// thread to the next.
struct Part {
    first: u64,
    end: u64,
    stride: u64,
    /// Has it the loop's last iteration?
    is_last: bool,
}

impl Part {
    /// One block for each of `size`, the first ones longer by one.
    fn block(total: u64, number: u64, size: u64) -> Self {
        let (each, longer) = (total / size, total % size);
        let first = each * number + number.min(longer);
        let end = first + each + (number < longer) as u64;
        Self { first, end, stride: total, is_last: end == total && first < end }
    }

    /// Chunks in turn, of which this is the first.
    fn chunks(total: u64, chunk: u64, number: u64, size: u64) -> Self {
        let first = number.saturating_mul(chunk);
        let is_last = (total - 1) / chunk % size == number;
        Self {
            first,
            end: first.saturating_add(chunk).min(total),
            stride: chunk.saturating_mul(size),
            is_last,
        }
    }

    fn new(kind: i32, total: u64, chunk: i64, number: u64, size: u64) -> Self {
        let chunk = chunk.max(1) as u64;
        match kind {
            schedule::STATIC_CHUNKED => Self::chunks(total, chunk, number, size),
            // One block for each, in multiples of the chunk.
            schedule::STATIC_BALANCED_CHUNKED => {
                Self::chunks(total, total.div_ceil(size).next_multiple_of(chunk), number, size)
            }
            _ => Self::block(total, number, size),
        }
    }
}

/// Where a static loop's bounds are: first those of the loop, then those of the part.
struct Bounds<T, S> {
    last: *mut c_int,
    lower: *mut T,
    upper: *mut T,
    stride: *mut S,
}

impl<T: Number, S: Number> Bounds<T, S> {
    /// Narrows the bounds down to a part, or to nothing.
    ///
    /// # Safety
    /// The compiler's pointers.
    unsafe fn narrow(&self, step: i64, part: impl FnOnce(u64) -> Part) {
        // SAFETY: as promised.
        unsafe {
            let (lower, upper) = (self.lower.read(), self.upper.read());
            let total = iterations(lower, upper, step);
            if total == 0 {
                if !self.last.is_null() {
                    self.last.write(0);
                }
                return self.stride.write(S::from_bits(step as u64));
            }
            let part = part(total);
            let at = |iteration: u64| lower.bits().wrapping_add(iteration.wrapping_mul(step as u64));
            if part.first < part.end {
                self.lower.write(T::from_bits(at(part.first)));
                self.upper.write(T::from_bits(at(part.end).wrapping_sub(step as u64)));
            } else {
                // The loop's end, and one step on.
                self.lower.write(T::from_bits(upper.bits().wrapping_add(step.signum() as u64)));
            }
            self.stride.write(S::from_bits(part.stride.wrapping_mul(step as u64)));
            if !self.last.is_null() {
                self.last.write(part.is_last as c_int);
            }
        }
    }
}

fn in_team() -> (u64, u64) {
    let thread = me();
    (thread.number() as u64, thread.team().size() as u64)
}

fn in_league() -> (u64, u64) {
    (team_number() as u64, teams() as u64)
}

macro_rules! static_loops {
    ($($init:ident $league:ident $both:ident ($type:ty, $signed:ty);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $init(
                _: *const Ident, _: c_int, kind: c_int, last: *mut c_int, lower: *mut $type, upper: *mut $type,
                stride: *mut $signed, step: $signed, chunk: $signed,
            ) {
                let kind = kind & !schedule::MODIFIERS;
                let (kind, (number, size)) = match kind {
                    schedule::DISTRIBUTE | schedule::DISTRIBUTE_CHUNKED => {
                        (kind - schedule::DISTRIBUTE_MORE, in_league())
                    }
                    _ => (kind, in_team()),
                };
                let bounds = Bounds { last, lower, upper, stride };
                // SAFETY: the compiler's pointers; likewise below.
                unsafe { bounds.narrow(step as i64, |total| Part::new(kind, total, chunk as i64, number, size)) };
            }

            /// Chunks in turn for the teams of a league.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $league(
                _: *const Ident, _: c_int, last: *mut c_int, lower: *mut $type, upper: *mut $type,
                stride: *mut $signed, step: $signed, chunk: $signed,
            ) {
                let (number, size) = in_league();
                let chunk = (chunk as i64).max(1) as u64;
                let bounds = Bounds { last, lower, upper, stride };
                // SAFETY: as above.
                unsafe { bounds.narrow(step as i64, |total| Part::chunks(total, chunk, number, size)) };
            }

            /// For the teams of a league, and within that for the members of a team.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $both(
                _: *const Ident, _: c_int, kind: c_int, last: *mut c_int, lower: *mut $type, upper: *mut $type,
                upper_of_team: *mut $type, stride: *mut $signed, step: $signed, chunk: $signed,
            ) {
                let bounds = Bounds { last, lower, upper, stride };
                let (number, size) = in_league();
                // SAFETY: as above.
                unsafe {
                    let mut teams_last = 0;
                    let of_team = Bounds { last: &raw mut teams_last, ..bounds };
                    of_team.narrow(step as i64, |total| Part::block(total, number, size));
                    upper_of_team.write(upper.read());
                    let (number, size) = in_team();
                    let kind = kind & !schedule::MODIFIERS;
                    bounds.narrow(step as i64, |total| Part::new(kind, total, chunk as i64, number, size));
                    if !last.is_null() {
                        last.write(last.read() & teams_last);
                    }
                }
            }
        )*
    };
}

static_loops! {
    __kmpc_for_static_init_4 __kmpc_team_static_init_4 __kmpc_dist_for_static_init_4 (i32, i32);
    __kmpc_for_static_init_4u __kmpc_team_static_init_4u __kmpc_dist_for_static_init_4u (u32, i32);
    __kmpc_for_static_init_8 __kmpc_team_static_init_8 __kmpc_dist_for_static_init_8 (i64, i64);
    __kmpc_for_static_init_8u __kmpc_team_static_init_8u __kmpc_dist_for_static_init_8u (u64, i64);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_for_static_fini(_: *const Ident, _: c_int) {}

// --- loops whose parts are asked for -----------------------------------------

/// How so many iterations are shared out, and of what number chunks are multiples.
fn how(kind: i32, chunk: i64, total: u64) -> (How, u64) {
    let given = |kind| How { kind, chunk: chunk.max(0) as u64 };
    // Of schedules for vectors, the chunk is the width of these.
    let width = chunk.max(1) as u64;
    let balanced = || {
        let block = total.div_ceil(me().team().size() as u64).max(1);
        How { kind: Kind::Static, chunk: block.checked_next_multiple_of(width).unwrap_or(block) }
    };
    let how = match kind {
        schedule::STATIC_CHUNKED => How { kind: Kind::Static, chunk: width },
        schedule::STATIC_BALANCED_CHUNKED => balanced(),
        schedule::DYNAMIC | schedule::STATIC_STEAL => given(Kind::Dynamic),
        schedule::GUIDED
        | schedule::TRAPEZOIDAL
        | schedule::GUIDED_ITERATIVE
        | schedule::GUIDED_ANALYTICAL
        | schedule::GUIDED_SIMD => given(Kind::Guided),
        schedule::RUNTIME => How::runtime(),
        schedule::RUNTIME_SIMD => match How::runtime() {
            How { kind: Kind::Static, chunk: 0 } => balanced(),
            How { kind, chunk } => How { kind, chunk: chunk.max(1).saturating_mul(width) },
        },
        _ => How { kind: Kind::Static, chunk: 0 },
    };
    let multiple = match kind {
        schedule::GUIDED_SIMD => width,
        schedule::RUNTIME_SIMD => how.chunk,
        _ => 1,
    };
    (how, multiple)
}

fn dispatch<T: Number>(kind: c_int, lower: T, upper: T, step: i64, chunk: i64) {
    let kind = kind & !schedule::MODIFIERS;
    let kind = if kind > schedule::NOT_MERGED { kind - schedule::NOT_MERGED_MORE } else { kind };
    let ordered = kind > schedule::ORDERED;
    let total = iterations(lower, upper, step);
    let (how, multiple) = how(if ordered { kind - schedule::ORDERED_MORE } else { kind }, chunk, total);
    let shape = Shape::new(lower.bits(), step as u64, total, (how.kind, how.chunk), ordered)
        .in_multiples_of(multiple);
    let thread = me();
    thread.member().work.start(thread, shape, shape.is_shared(), |_| {});
}

/// # Safety
/// The compiler's pointers.
unsafe fn next<T: Number, S: Number>(
    last: *mut c_int,
    lower: *mut T,
    upper: *mut T,
    stride: *mut S,
) -> c_int {
    let thread = me();
    let work = &thread.member().work;
    let Some((shape, first, end)) = work.take(thread) else {
        work.leave();
        return 0;
    };
    // SAFETY: as promised.
    unsafe {
        if !last.is_null() {
            last.write((end == shape.iterations()) as c_int);
        }
        lower.write(T::from_bits(shape.value(first)));
        upper.write(T::from_bits(shape.value(end - 1)));
        if !stride.is_null() {
            stride.write(S::from_bits(shape.step()));
        }
    }
    1
}

macro_rules! dispatched_loops {
    ($($init:ident $dist:ident $next:ident $fini:ident ($type:ty, $signed:ty);)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $init(
                _: *const Ident, _: c_int, kind: c_int, lower: $type, upper: $type, step: $signed, chunk: $signed,
            ) {
                dispatch(kind, lower, upper, step as i64, chunk as i64);
            }

            /// For a team's part of the loop.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $dist(
                _: *const Ident, _: c_int, kind: c_int, last: *mut c_int, mut lower: $type, mut upper: $type,
                step: $signed, chunk: $signed,
            ) {
                let (number, size) = in_league();
                let mut stride: $signed = 0;
                let bounds = Bounds { last, lower: &raw mut lower, upper: &raw mut upper, stride: &raw mut stride };
                // SAFETY: the compiler's pointer, and our variables.
                unsafe { bounds.narrow(step as i64, |total| Part::block(total, number, size)) };
                dispatch(kind, lower, upper, step as i64, chunk as i64);
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $next(
                _: *const Ident, _: c_int, last: *mut c_int, lower: *mut $type, upper: *mut $type, stride: *mut $signed,
            ) -> c_int {
                // SAFETY: the compiler's pointers.
                unsafe { next(last, lower, upper, stride) }
            }

            /// An iteration of an ordered loop is over. Its turn is passed on with the last of those that
            /// its thread has.
            #[unsafe(no_mangle)]
            extern "C" fn $fini(_: *const Ident, _: c_int) {}
        )*
    };
}

dispatched_loops! {
    __kmpc_dispatch_init_4 __kmpc_dist_dispatch_init_4 __kmpc_dispatch_next_4 __kmpc_dispatch_fini_4 (i32, i32);
    __kmpc_dispatch_init_4u __kmpc_dist_dispatch_init_4u __kmpc_dispatch_next_4u __kmpc_dispatch_fini_4u (u32, i32);
    __kmpc_dispatch_init_8 __kmpc_dist_dispatch_init_8 __kmpc_dispatch_next_8 __kmpc_dispatch_fini_8 (i64, i64);
    __kmpc_dispatch_init_8u __kmpc_dist_dispatch_init_8u __kmpc_dispatch_next_8u __kmpc_dispatch_fini_8u (u64, i64);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_dispatch_deinit(_: *const Ident, _: c_int) {}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_ordered(_: *const Ident, _: c_int) {
    me().member().work.await_turn();
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_ordered(_: *const Ident, _: c_int) {}

// --- doacross ----------------------------------------------------------------

/// One loop of those that wait for each other's iterations (`kmp_dim`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Dimension {
    lower: i64,
    upper: i64,
    step: i64,
}

impl Dimension {
    fn count(&self) -> u64 {
        iterations(self.lower, self.upper, self.step)
    }

    /// An iteration's number; `None` outside of the loop.
    fn place(&self, value: i64) -> Option<u64> {
        let number = iterations(self.lower, value, self.step).checked_sub(1)?;
        (number < self.count()).then_some(number)
    }
}

/// In the memory that the members share: how many loops, each [`Dimension`], and a bit for each iteration
/// that is over.
#[derive(Clone, Copy)]
struct Doacross(*const u64);

impl Doacross {
    /// Bytes before the bits.
    fn head(dimensions: usize) -> usize {
        size_of::<u64>() + dimensions * size_of::<Dimension>()
    }

    fn make(share: &Share, dimensions: &[Dimension]) {
        let count = dimensions.iter().map(Dimension::count).fold(1, u64::saturating_mul);
        let head = Self::head(dimensions.len());
        let size = usize::try_from(count.div_ceil(Over::COUNT))
            .ok()
            .and_then(|words| words.checked_mul(size_of::<Over>()));
        let size = size.and_then(|size| size.checked_add(head)).unwrap_or(usize::MAX);
        share.make_memory(size, format_args!("a doacross loop of {count} iterations"));
        let memory = share.memory.load(Relaxed);
        // SAFETY: the head has room for what is written there.
        unsafe {
            memory.cast::<u64>().write(dimensions.len() as u64);
            let at = memory.cast::<u64>().add(1).cast::<Dimension>();
            at.copy_from_nonoverlapping(dimensions.as_ptr(), dimensions.len());
        }
    }

    /// Where it is said of an iteration whether it is over, and its number there.
    ///
    /// # Safety
    /// As many values as there are dimensions.
    unsafe fn bit(self, values: *const i64) -> Option<(&'static Over, u32)> {
        // SAFETY: from `make`; as promised.
        unsafe {
            let count = self.0.read() as usize;
            let dimensions = std::slice::from_raw_parts(self.0.add(1).cast::<Dimension>(), count);
            let mut place = 0;
            for (index, dimension) in dimensions.iter().enumerate() {
                place = place * dimension.count() + dimension.place(values.add(index).read())?;
            }
            let words = self.0.byte_add(Self::head(count)).cast::<Over>();
            Some((&*words.add((place / Over::COUNT) as usize), (place % Over::COUNT) as u32))
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_doacross_init(
    _: *const Ident,
    _: c_int,
    count: c_int,
    dimensions: *const Dimension,
) {
    let thread = me();
    if thread.team().size() == 1 {
        return;
    }
    // SAFETY: the compiler's.
    let dimensions = unsafe { std::slice::from_raw_parts(dimensions, count as usize) };
    thread.member().around.start(thread, Shape::counted(0), true, |share| Doacross::make(share, dimensions));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_doacross_wait(_: *const Ident, _: c_int, values: *const i64) {
    let Some(share) = me().member().around.share() else { return };
    let doacross = Doacross(share.memory.load(Relaxed).cast());
    // SAFETY: the compiler's.
    if let Some((over, iteration)) = unsafe { doacross.bit(values) } {
        over.wait::<ByUser>(iteration, &share.changed);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_doacross_post(_: *const Ident, _: c_int, values: *const i64) {
    let Some(share) = me().member().around.share() else { return };
    let doacross = Doacross(share.memory.load(Relaxed).cast());
    // SAFETY: the compiler's.
    if let Some((over, iteration)) = unsafe { doacross.bit(values) } {
        over.post(iteration, &share.changed);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_doacross_fini(_: *const Ident, _: c_int) {
    me().member().around.leave();
}
