// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routines for devices, of which there are none but the host.

use std::ffi::{c_int, c_void};
use std::ptr;

use omp::device::HOST;
use omp::tasks::{self, Dependence};
use omp::thread::me;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_num_devices() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_initial_device() -> c_int {
    HOST
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_device_num() -> c_int {
    HOST
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_is_initial_device() -> c_int {
    1
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_alloc(size: usize, device: c_int) -> *mut c_void {
    if device != HOST {
        return ptr::null_mut();
    }
    // SAFETY: any size.
    unsafe { libc::malloc(size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_free(memory: *mut c_void, device: c_int) {
    if device == HOST {
        // SAFETY: from `omp_target_alloc`.
        unsafe { libc::free(memory) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_is_present(memory: *const c_void, device: c_int) -> c_int {
    (memory.is_null() || device == HOST) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_memcpy(
    to: *mut c_void,
    from: *const c_void,
    length: usize,
    to_offset: usize,
    from_offset: usize,
    to_device: c_int,
    from_device: c_int,
) -> c_int {
    if to_device != HOST || from_device != HOST {
        return libc::EINVAL;
    }
    // SAFETY: the program's memory.
    unsafe { ptr::copy(from.byte_add(from_offset), to.byte_add(to_offset), length) };
    0
}

/// A box of `dimensions`, from a greater one to another. Sizes in elements, the outermost first.
///
/// # Safety
/// The arrays have so many entries, and the memory is there.
#[allow(clippy::too_many_arguments)] // the ABI's
unsafe fn copy_box(
    to: *mut u8,
    from: *const u8,
    element: usize,
    dimensions: usize,
    volume: *const usize,
    to_offsets: *const usize,
    from_offsets: *const usize,
    to_sizes: *const usize,
    from_sizes: *const usize,
) {
    // SAFETY: as promised.
    unsafe {
        if dimensions == 1 {
            let (to, from) = (to.add(element * *to_offsets), from.add(element * *from_offsets));
            return ptr::copy(from, to, element * *volume);
        }
        let slice =
            |sizes: *const usize| (1..dimensions).fold(element, |bytes, index| bytes * *sizes.add(index));
        for index in 0..*volume {
            copy_box(
                to.add(slice(to_sizes) * (*to_offsets + index)),
                from.add(slice(from_sizes) * (*from_offsets + index)),
                element,
                dimensions - 1,
                volume.add(1),
                to_offsets.add(1),
                from_offsets.add(1),
                to_sizes.add(1),
                from_sizes.add(1),
            );
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_memcpy_rect(
    to: *mut c_void,
    from: *const c_void,
    element: usize,
    dimensions: c_int,
    volume: *const usize,
    to_offsets: *const usize,
    from_offsets: *const usize,
    to_sizes: *const usize,
    from_sizes: *const usize,
    to_device: c_int,
    from_device: c_int,
) -> c_int {
    // Asked what it can do.
    if to.is_null() && from.is_null() {
        return c_int::MAX;
    }
    if to_device != HOST || from_device != HOST || dimensions < 1 {
        return libc::EINVAL;
    }
    let (to, from, dimensions) = (to.cast(), from.cast(), dimensions as usize);
    // SAFETY: the program's memory.
    unsafe {
        copy_box(to, from, element, dimensions, volume, to_offsets, from_offsets, to_sizes, from_sizes)
    };
    0
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_associate_ptr(
    _: *const c_void,
    _: *const c_void,
    _: usize,
    _: usize,
    _: c_int,
) -> c_int {
    libc::EINVAL
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_disassociate_ptr(_: *const c_void, _: c_int) -> c_int {
    libc::EINVAL
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_is_accessible(_memory: *const c_void, _size: usize, device: c_int) -> c_int {
    (device == HOST) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_mapped_ptr(memory: *const c_void, device: c_int) -> *mut c_void {
    if device == HOST { memory.cast_mut() } else { ptr::null_mut() }
}

/// Waits as a task with these dependence objects would.
///
/// # Safety
/// So many objects of the program's.
unsafe fn await_objects(count: c_int, objects: *const *const c_void) {
    if count > 0 {
        // SAFETY: as promised.
        let objects = unsafe { std::slice::from_raw_parts(objects, count as usize) };
        // SAFETY: likewise.
        let dependences = objects.iter().map(|&object| unsafe { Dependence::object(object.cast()) });
        tasks::await_predecessors(me(), dependences);
    }
}

// Copied before the return, which is soon enough.
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_memcpy_async(
    to: *mut c_void,
    from: *const c_void,
    length: usize,
    to_offset: usize,
    from_offset: usize,
    to_device: c_int,
    from_device: c_int,
    count: c_int,
    objects: *const *const c_void,
) -> c_int {
    // SAFETY: the program's memory and objects.
    unsafe {
        await_objects(count, objects);
        omp_target_memcpy(to, from, length, to_offset, from_offset, to_device, from_device)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_memcpy_rect_async(
    to: *mut c_void,
    from: *const c_void,
    element: usize,
    dimensions: c_int,
    volume: *const usize,
    to_offsets: *const usize,
    from_offsets: *const usize,
    to_sizes: *const usize,
    from_sizes: *const usize,
    to_device: c_int,
    from_device: c_int,
    count: c_int,
    objects: *const *const c_void,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        await_objects(count, objects);
        omp_target_memcpy_rect(
            to,
            from,
            element,
            dimensions,
            volume,
            to_offsets,
            from_offsets,
            to_sizes,
            from_sizes,
            to_device,
            from_device,
        )
    }
}
