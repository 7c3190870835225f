// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regions that are one loop, or sections.

use std::ffi::{c_long, c_uint, c_void};

use omp::fork::{begin, end};
use omp::icv::Kind;
use omp::loops::{How, Shape};
use omp::team::Function;

/// Regions that begin with a loop. The older functions return to the primary thread, which runs the region
/// itself and ends it by `GOMP_parallel_end`.
macro_rules! parallel_loops {
    ($($name:ident $old:tt $kind:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                function: Function, data: *mut c_void, threads: c_uint,
                first: c_long, last: c_long, step: c_long, chunk: c_long, flags: c_uint,
            ) {
                let shape = Shape::signed(first, last, step, How::new(Kind::$kind, chunk), false);
                // SAFETY: the compiler's function and data.
                unsafe { parallel(function, data, threads, flags, shape) };
            }

            parallel_loops!(old $old $kind);
        )*
    };
    (old _ $kind:ident) => {};
    (old $old:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $old(
            function: Function, data: *mut c_void, threads: c_uint,
            first: c_long, last: c_long, step: c_long, chunk: c_long,
        ) {
            let shape = Shape::signed(first, last, step, How::new(Kind::$kind, chunk), false);
            // SAFETY: the compiler's function and data.
            unsafe { begin(function, data, threads, 0, Some(shape)) };
        }
    };
}

parallel_loops! {
    GOMP_parallel_loop_static GOMP_parallel_loop_static_start Static;
    GOMP_parallel_loop_dynamic GOMP_parallel_loop_dynamic_start Dynamic;
    GOMP_parallel_loop_guided GOMP_parallel_loop_guided_start Guided;
    GOMP_parallel_loop_nonmonotonic_dynamic _ Dynamic;
    GOMP_parallel_loop_nonmonotonic_guided _ Guided;
}

/// The same where the kind is found out at run time.
macro_rules! parallel_runtime_loops {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                function: Function, data: *mut c_void, threads: c_uint,
                first: c_long, last: c_long, step: c_long, flags: c_uint,
            ) {
                // SAFETY: the compiler's function and data.
                unsafe { parallel(function, data, threads, flags, Shape::signed(first, last, step, How::runtime(), false)) };
            }
        )*
    };
}

parallel_runtime_loops! {
    GOMP_parallel_loop_runtime
    GOMP_parallel_loop_nonmonotonic_runtime
    GOMP_parallel_loop_maybe_nonmonotonic_runtime
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_parallel_loop_runtime_start(
    function: Function,
    data: *mut c_void,
    threads: c_uint,
    first: c_long,
    last: c_long,
    step: c_long,
) {
    // SAFETY: the compiler's function and data.
    unsafe {
        begin(function, data, threads, 0, Some(Shape::signed(first, last, step, How::runtime(), false)))
    };
}

/// Runs a region that begins with this loop.
///
/// # Safety
/// As [`begin`].
pub(crate) unsafe fn parallel(
    function: Function,
    data: *mut c_void,
    threads: c_uint,
    flags: c_uint,
    shape: Shape,
) {
    // SAFETY: as promised.
    unsafe {
        begin(function, data, threads, flags, Some(shape));
        function(data);
    }
    end();
}
