// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops.

use std::ffi::{c_long, c_void};

use omp::icv::Kind;
use omp::loops::{How, Shape, enter_with};
use omp::thread::me;

/// The type in which a program counts.
pub(crate) trait Number: Copy {
    fn from_bits(bits: u64) -> Self;
}

impl Number for c_long {
    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
}

impl Number for u64 {
    fn from_bits(bits: u64) -> Self {
        bits
    }
}

/// Hands the next iterations out.
///
/// # Safety
/// The pointers may be written to.
#[inline]
pub(crate) unsafe fn next<T: Number>(first: *mut T, last: *mut T) -> bool {
    let thread = me();
    match thread.member().work.next(thread) {
        Some((begin, end)) => {
            // SAFETY: as promised.
            unsafe {
                first.write(T::from_bits(begin));
                last.write(T::from_bits(end));
            }
            true
        }
        None => false,
    }
}

/// Begins a loop, and hands the first iterations out.
///
/// # Safety
/// As [`next`].
#[inline]
unsafe fn start<T: Number>(shape: Shape, first: *mut T, last: *mut T) -> bool {
    let thread = me();
    thread.member().work.start(thread, shape, shape.is_shared(), |_| {});
    // SAFETY: as promised.
    unsafe { next(first, last) }
}

/// Functions of one kind of loop, signed and unsigned.
macro_rules! loops {
    ($($start:ident $start_ull:ident $next:ident $next_ull:ident ($kind:ident, $ordered:literal);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start(
                begin: c_long, end: c_long, step: c_long, chunk: c_long, first: *mut c_long, last: *mut c_long,
            ) -> bool {
                let shape = Shape::signed(begin, end, step, How::new(Kind::$kind, chunk), $ordered);
                // SAFETY: the compiler's pointers; likewise below.
                unsafe { start(shape, first, last) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start_ull(
                up: bool, begin: u64, end: u64, step: u64, chunk: u64, first: *mut u64, last: *mut u64,
            ) -> bool {
                let how = How { kind: Kind::$kind, chunk };
                // SAFETY: as above.
                unsafe { start(Shape::unsigned(up, begin, end, step, how, $ordered), first, last) }
            }

            loops!(next $next $next_ull);
        )*
    };
    (next $next:ident $next_ull:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $next(first: *mut c_long, last: *mut c_long) -> bool {
            // SAFETY: the compiler's pointers.
            unsafe { next(first, last) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $next_ull(first: *mut u64, last: *mut u64) -> bool {
            // SAFETY: the compiler's pointers.
            unsafe { next(first, last) }
        }
    };
}

loops! {
    GOMP_loop_static_start GOMP_loop_ull_static_start GOMP_loop_static_next GOMP_loop_ull_static_next (Static, false);
    GOMP_loop_dynamic_start GOMP_loop_ull_dynamic_start GOMP_loop_dynamic_next GOMP_loop_ull_dynamic_next (Dynamic, false);
    GOMP_loop_guided_start GOMP_loop_ull_guided_start GOMP_loop_guided_next GOMP_loop_ull_guided_next (Guided, false);
    GOMP_loop_nonmonotonic_dynamic_start GOMP_loop_ull_nonmonotonic_dynamic_start
        GOMP_loop_nonmonotonic_dynamic_next GOMP_loop_ull_nonmonotonic_dynamic_next (Dynamic, false);
    GOMP_loop_nonmonotonic_guided_start GOMP_loop_ull_nonmonotonic_guided_start
        GOMP_loop_nonmonotonic_guided_next GOMP_loop_ull_nonmonotonic_guided_next (Guided, false);
    GOMP_loop_ordered_static_start GOMP_loop_ull_ordered_static_start
        GOMP_loop_ordered_static_next GOMP_loop_ull_ordered_static_next (Static, true);
    GOMP_loop_ordered_dynamic_start GOMP_loop_ull_ordered_dynamic_start
        GOMP_loop_ordered_dynamic_next GOMP_loop_ull_ordered_dynamic_next (Dynamic, true);
    GOMP_loop_ordered_guided_start GOMP_loop_ull_ordered_guided_start
        GOMP_loop_ordered_guided_next GOMP_loop_ull_ordered_guided_next (Guided, true);
}

/// Functions of loops whose kind is found out at run time.
macro_rules! runtime_loops {
    ($($start:ident $start_ull:ident $next:ident $next_ull:ident ($ordered:literal);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start(
                begin: c_long, end: c_long, step: c_long, first: *mut c_long, last: *mut c_long,
            ) -> bool {
                // SAFETY: the compiler's pointers; likewise below.
                unsafe { start(Shape::signed(begin, end, step, How::runtime(), $ordered), first, last) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start_ull(
                up: bool, begin: u64, end: u64, step: u64, first: *mut u64, last: *mut u64,
            ) -> bool {
                // SAFETY: as above.
                unsafe { start(Shape::unsigned(up, begin, end, step, How::runtime(), $ordered), first, last) }
            }

            loops!(next $next $next_ull);
        )*
    };
}

runtime_loops! {
    GOMP_loop_runtime_start GOMP_loop_ull_runtime_start GOMP_loop_runtime_next GOMP_loop_ull_runtime_next (false);
    GOMP_loop_nonmonotonic_runtime_start GOMP_loop_ull_nonmonotonic_runtime_start
        GOMP_loop_nonmonotonic_runtime_next GOMP_loop_ull_nonmonotonic_runtime_next (false);
    GOMP_loop_maybe_nonmonotonic_runtime_start GOMP_loop_ull_maybe_nonmonotonic_runtime_start
        GOMP_loop_maybe_nonmonotonic_runtime_next GOMP_loop_ull_maybe_nonmonotonic_runtime_next (false);
    GOMP_loop_ordered_runtime_start GOMP_loop_ull_ordered_runtime_start
        GOMP_loop_ordered_runtime_next GOMP_loop_ull_ordered_runtime_next (true);
}

/// Begins a loop of any kind, with memory for all and reductions over tasks, and hands iterations out if
/// there are pointers for them.
///
/// # Safety
/// The pointers are the compiler's.
unsafe fn start_with<T: Number>(
    shape: Shape,
    first: *mut T,
    last: *mut T,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    let thread = me();
    // SAFETY: as promised.
    unsafe {
        if list.is_null() && memory.is_null() {
            thread.member().work.start(thread, shape, shape.is_shared(), |_| {});
        } else {
            enter_with(thread, shape, list, memory, |_| {});
        }
        if first.is_null() { true } else { next(first, last) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_start(
    begin: c_long,
    end: c_long,
    step: c_long,
    kind: c_long,
    chunk: c_long,
    first: *mut c_long,
    last: *mut c_long,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    // SAFETY: the compiler's pointers; likewise below.
    unsafe {
        start_with(
            Shape::signed(begin, end, step, How::by_number(kind, chunk), false),
            first,
            last,
            list,
            memory,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ordered_start(
    begin: c_long,
    end: c_long,
    step: c_long,
    kind: c_long,
    chunk: c_long,
    first: *mut c_long,
    last: *mut c_long,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    // SAFETY: as above.
    unsafe {
        start_with(
            Shape::signed(begin, end, step, How::by_number(kind, chunk), true),
            first,
            last,
            list,
            memory,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ull_start(
    up: bool,
    begin: u64,
    end: u64,
    step: u64,
    kind: c_long,
    chunk: u64,
    first: *mut u64,
    last: *mut u64,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    let how = How::by_number(kind, chunk as i64);
    // SAFETY: as above.
    unsafe { start_with(Shape::unsigned(up, begin, end, step, how, false), first, last, list, memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ull_ordered_start(
    up: bool,
    begin: u64,
    end: u64,
    step: u64,
    kind: c_long,
    chunk: u64,
    first: *mut u64,
    last: *mut u64,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    let how = How::by_number(kind, chunk as i64);
    // SAFETY: as above.
    unsafe { start_with(Shape::unsigned(up, begin, end, step, how, true), first, last, list, memory) }
}

/// The end of a construct that is not a loop's only.
pub(crate) fn finish() {
    let thread = me();
    thread.member().work.leave();
    thread.team().meet(thread);
}

/// The same in a region that can be cancelled; true if it is.
pub(crate) fn finish_or_cancelled() -> bool {
    let thread = me();
    thread.member().work.leave();
    thread.team().meet_or_cancelled(thread)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end() {
    finish();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end_nowait() {
    me().member().work.leave();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end_cancel() -> bool {
    finish_or_cancelled()
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_ordered_start() {
    me().member().work.await_turn();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_ordered_end() {}
