// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions in which tasks take part.

use omp::fork::{begin_reducing, end};
use omp::reductions::{free, register_group, remap};
use omp::team::Function;
use omp::thread::me;

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_taskgroup_reduction_register(list: *mut usize) {
    // SAFETY: the compiler's list; likewise below.
    unsafe { register_group(list) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_task_reduction_remap(count: usize, originals: usize, addresses: *mut usize) {
    // SAFETY: as above.
    unsafe { remap(count, originals, addresses) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_taskgroup_reduction_unregister(list: *mut usize) {
    // SAFETY: as above.
    unsafe { free(list) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_workshare_task_reduction_unregister(cancelled: bool) {
    let thread = me();
    // SAFETY: as above.
    let list = unsafe { thread.task().group.get().as_ref() }.map(|group| group.reductions.get());
    omp::groups::end_group(thread);
    if !cancelled {
        thread.team().meet(thread);
        if thread.number() == 0
            && let Some(list) = list
        {
            // SAFETY: all have passed the barrier.
            unsafe { free(list) };
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_parallel_reductions(
    function: Function,
    data: *mut *mut usize,
    threads: u32,
    flags: u32,
) -> u32 {
    // SAFETY: the compiler's; its data begin with the list's address.
    unsafe {
        begin_reducing(function, data.cast(), threads, flags, *data);
        let size = me().team().size();
        function(data.cast());
        end();
        size
    }
}
