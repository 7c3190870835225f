// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices: there are none, and what is for one runs here, where all memory is the program's own.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Once;

use crate::icv::settings;
use crate::team::Function;
use crate::thread::me;

/// Says, once, that the host does a device's work; ends the program if it insists on one.
fn here_instead() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        if settings().target_mandatory {
            eprintln!("wakeful: OMP_TARGET_OFFLOAD=mandatory, and this runtime knows no device but the host");
            std::process::exit(1);
        }
        eprintln!("wakeful: there is no offloading to devices here; target regions run on the host");
    });
}

/// Runs a target region, as an initial task would.
///
/// # Safety
/// `function` may be called with `data`.
unsafe fn run(function: Function, data: *mut c_void) {
    here_instead();
    let thread = me();
    let (icv, league) = (thread.icv(), thread.league.get());
    thread.league.set((0, 1));
    // SAFETY: as promised.
    unsafe { function(data) };
    thread.league.set(league);
    thread.task().icv.set(icv);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_target(
    _device: c_int,
    function: Function,
    _unused: *const c_void,
    _count: usize,
    addresses: *mut *mut c_void,
    _sizes: *mut usize,
    _kinds: *mut u8,
) {
    // SAFETY: the compiler's function and data.
    unsafe { run(function, addresses.cast()) };
}

/// A kind of mapping: the value, by its low bits, is the variable itself.
const FIRSTPRIVATE: u16 = 13;
const KIND: u16 = 0xff;

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_target_ext(
    _device: c_int,
    function: Function,
    count: usize,
    addresses: *mut *mut c_void,
    sizes: *mut usize,
    kinds: *mut u16,
    flags: c_uint,
    depend: *mut *const c_void,
    _arguments: *mut *mut c_void,
) {
    // SAFETY: the compiler's arrays, of so many entries; copies live until the region is over.
    unsafe {
        await_dependences(flags, depend);
        // Copies of what is the region's own.
        let mut copies = Vec::new();
        for index in 0..count {
            let (kind, size) = (*kinds.add(index), *sizes.add(index));
            if kind & KIND == FIRSTPRIVATE && size > 0 {
                let mut copy = vec![0u128; size.div_ceil(16) + (1usize << (kind >> 8).min(12)).div_ceil(16)];
                let align = 1usize << (kind >> 8).min(12);
                let start = copy.as_mut_ptr().cast::<u8>();
                let there = start.add(start.align_offset(align));
                ptr::copy_nonoverlapping((*addresses.add(index)).cast::<u8>(), there, size);
                *addresses.add(index) = there.cast();
                copies.push(copy);
            }
        }
        run(function, addresses.cast());
    }
}

// On the host there is nothing to move.
#[unsafe(no_mangle)]
extern "C" fn GOMP_target_data(_: c_int, _: *const c_void, _: usize, _: *mut *mut c_void, _: *mut usize, _: *mut u8) {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_data_ext(_: c_int, _: usize, _: *mut *mut c_void, _: *mut usize, _: *mut u16) {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_end_data() {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_update(_: c_int, _: *const c_void, _: usize, _: *mut *mut c_void, _: *mut usize, _: *mut u8) {
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_target_update_ext(
    _: c_int,
    _: usize,
    _: *mut *mut c_void,
    _: *mut usize,
    _: *mut u16,
    flags: c_uint,
    depend: *mut *const c_void,
) {
    // SAFETY: the compiler's.
    unsafe { await_dependences(flags, depend) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_target_enter_exit_data(
    _: c_int,
    _: usize,
    _: *mut *mut c_void,
    _: *mut usize,
    _: *mut u16,
    flags: c_uint,
    depend: *mut *const c_void,
) {
    // SAFETY: the compiler's.
    unsafe { await_dependences(flags, depend) };
}

/// # Safety
/// As the compiler calls it.
unsafe fn await_dependences(flags: c_uint, depend: *mut *const c_void) {
    const DEPEND: c_uint = 1 << 3;
    if flags & DEPEND != 0 && !depend.is_null() {
        // SAFETY: as promised.
        unsafe { crate::tasks::GOMP_taskwait_depend(depend) };
    }
}

// A program that has code for devices registers it when it starts.
#[unsafe(no_mangle)]
extern "C" fn GOMP_offload_register_ver(_: c_uint, _: *const c_void, _: c_int, _: *const c_void) {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_offload_unregister_ver(_: c_uint, _: *const c_void, _: c_int, _: *const c_void) {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_offload_register(_: *const c_void, _: c_int, _: *const c_void) {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_offload_unregister(_: *const c_void, _: c_int, _: *const c_void) {}

/// The host's number, after those of the devices.
pub const HOST: c_int = 0;

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
    (!memory.is_null() && device == HOST) as c_int
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
        let slice = |sizes: *const usize| (1..dimensions).fold(element, |bytes, index| bytes * *sizes.add(index));
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
    unsafe { copy_box(to, from, element, dimensions, volume, to_offsets, from_offsets, to_sizes, from_sizes) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_associate_ptr(_: *const c_void, _: *const c_void, _: usize, _: usize, _: c_int) -> c_int {
    libc::EINVAL
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_disassociate_ptr(_: *const c_void, _: c_int) -> c_int {
    libc::EINVAL
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_is_accessible(memory: *const c_void, _size: usize, device: c_int) -> c_int {
    omp_target_is_present(memory, device)
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
        let head = [0, count as usize, 0, 0, 0].map(ptr::without_provenance::<c_void>);
        // SAFETY: as promised.
        let objects = unsafe { std::slice::from_raw_parts(objects, count as usize) };
        // SAFETY: a list as the compiler makes it.
        unsafe { crate::tasks::GOMP_taskwait_depend([&head, objects].concat().as_ptr()) };
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
