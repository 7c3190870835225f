// SPDX-License-Identifier: MIT OR Apache-2.0
//! Target constructs, which run here.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Once;

use omp::device::{HOST, run};
use omp::icv::settings;
use omp::memory::List;
use omp::tasks::{self, Dependence, Task};
use omp::team::Function;
use omp::thread::{Thread, me};

/// The numbers that the compiler has for a construct without a clause, and for one that is for the host.
const BY_VARIABLE: c_int = -1;
const FOR_HOST: c_int = -2;

/// Ends the program if it insists on a device that there is not. Is it the host that is asked for?
fn is_for_host(device: c_int) -> bool {
    let number = if device == BY_VARIABLE { me().icv().device } else { device };
    let host = matches!(number, HOST | FOR_HOST);
    if settings().target_mandatory && !host {
        eprintln!("wakeful: OMP_TARGET_OFFLOAD=mandatory, and this runtime knows no device but the host");
        std::process::exit(1);
    }
    host && device != BY_VARIABLE
}

/// Says, once, that the host does a device's work.
fn here_instead(device: c_int) {
    static SAID: Once = Once::new();
    if !is_for_host(device) {
        SAID.call_once(|| {
            eprintln!("wakeful: there is no offloading to devices here; target regions run on the host")
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_target(
    device: c_int,
    function: Function,
    _unused: *const c_void,
    _count: usize,
    addresses: *mut *mut c_void,
    _sizes: *mut usize,
    _kinds: *mut u8,
) {
    here_instead(device);
    // SAFETY: the compiler's function and data.
    unsafe { run(function, addresses.cast(), 0) };
}

/// Flags of target constructs.
const NOWAIT: c_uint = 1;

/// A kind of mapping: the region has a copy of what is there. Its alignment's logarithm stands above.
const FIRSTPRIVATE: u16 = 12;
const KIND: u16 = 0xff;

/// What a target region works with: the addresses of its variables, and what it has copies of.
struct Region {
    function: Function,
    addresses: List<*mut c_void>,
    limit: u32,
    _copies: List<List<u128>>,
}

impl Region {
    /// # Safety
    /// The compiler's arrays, of `count` entries.
    unsafe fn new(
        function: Function,
        count: usize,
        addresses: *const *mut c_void,
        sizes: *const usize,
        kinds: *const u16,
        limit: u32,
    ) -> Self {
        const WHAT: &str = "a target region's variables";
        let mut copies = List::new();
        let addresses = List::needed(count, format_args!("{WHAT}"), |index| {
            // SAFETY: as promised; the copy has room for the size from any place that is aligned so.
            unsafe {
                let (address, size, kind) = (*addresses.add(index), *sizes.add(index), *kinds.add(index));
                if kind & KIND != FIRSTPRIVATE || address.is_null() {
                    address
                } else {
                    let align = 1usize << (kind >> 8).min(16);
                    let units = (size + align).div_ceil(size_of::<u128>());
                    let mut copy = List::needed(units, format_args!("{WHAT}"), |_| 0u128);
                    let start = copy.as_mut_ptr().cast::<u8>();
                    let there = start.add(start.align_offset(align));
                    ptr::copy_nonoverlapping(address.cast::<u8>(), there, size);
                    copies.push_needed(copy, WHAT);
                    there.cast()
                }
            }
        });
        Self { function, addresses, limit, _copies: copies }
    }

    /// # Safety
    /// The function may be called with what is behind the addresses.
    unsafe fn run(&mut self) {
        // SAFETY: as promised.
        unsafe { run(self.function, self.addresses.as_mut_ptr().cast(), self.limit) };
    }
}

/// `thread_limit` among a construct's arguments: words with an identification, the value in their upper half
/// or in the word after it.
///
/// # Safety
/// The compiler's list, with a null at its end, or null.
unsafe fn thread_limit(mut arguments: *const *const c_void) -> u32 {
    const FOR_DEVICES: usize = (1 << 7) - 1;
    const VALUE_FOLLOWS: usize = 1 << 7;
    const IDENTIFICATION: usize = 0xff << 8;
    const THREAD_LIMIT: usize = 2 << 8;
    let mut next = || {
        // SAFETY: as promised; nobody asks beyond the end.
        unsafe {
            let word = (*arguments).addr();
            arguments = arguments.add(1);
            word
        }
    };
    while let word @ 1.. = next() {
        let value = if word & VALUE_FOLLOWS != 0 { next() as isize } else { word as isize >> 16 };
        if word & (FOR_DEVICES | IDENTIFICATION) == THREAD_LIMIT {
            return value.clamp(0, c_int::MAX as isize) as u32;
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_target_ext(
    device: c_int,
    function: Function,
    count: usize,
    addresses: *mut *mut c_void,
    sizes: *mut usize,
    kinds: *mut u16,
    flags: c_uint,
    depend: *mut *const c_void,
    arguments: *mut *const c_void,
) {
    here_instead(device);
    let thread = me();
    if omp::groups::are_cancelled(thread) {
        return;
    }
    // SAFETY: the compiler's function and arrays; what is copied is copied before it waits for anybody.
    unsafe {
        let limit = if arguments.is_null() { 0 } else { thread_limit(arguments) };
        let mut region = Region::new(function, count, addresses, sizes, kinds, limit);
        match flags & NOWAIT {
            0 => {
                await_dependences(depend);
                region.run();
            }
            _ => start(thread, Some(region), depend),
        }
    }
}

/// A task for a region that nobody waits for here; without one, for later tasks to follow.
///
/// # Safety
/// The region may be run, and the list is the compiler's.
unsafe fn start(thread: &Thread, region: Option<Region>, depend: *const *const c_void) {
    unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: the task's, which is run or dropped.
        if let Some(mut region) = unsafe { data.cast::<Option<Region>>().read() } {
            // SAFETY: as promised to `start`.
            unsafe { region.run() };
        }
    }
    unsafe extern "C" fn forget(data: *mut c_void) {
        // SAFETY: as above.
        drop(unsafe { data.cast::<Option<Region>>().read() });
    }
    unsafe extern "C" fn copy(to: *mut c_void, from: *mut c_void) {
        // SAFETY: from `start`, which does not use it any more.
        unsafe { to.cast::<Option<Region>>().copy_from_nonoverlapping(from.cast(), 1) };
    }
    // SAFETY: as promised.
    let dependences = unsafe { Dependence::all(depend) };
    let now = tasks::are_run_at_once(thread, false, dependences.clone());
    if now {
        tasks::await_predecessors(thread, dependences.clone());
    }
    let layout = (size_of::<Option<Region>>(), align_of::<Option<Region>>());
    let mut region = std::mem::ManuallyDrop::new(region);
    let data = (&raw mut region).cast();
    // SAFETY: the arguments are the region, which goes over to the task.
    let task = unsafe { Task::needed(thread, run, data, Some(copy), layout, false, ptr::null_mut()) };
    task.set_instead(forget);
    tasks::launch(thread, task, now, dependences);
}

// On the host there is nothing to move.
#[unsafe(no_mangle)]
extern "C" fn GOMP_target_data(
    device: c_int,
    _: *const c_void,
    _: usize,
    _: *mut *mut c_void,
    _: *mut usize,
    _: *mut u8,
) {
    is_for_host(device);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_data_ext(device: c_int, _: usize, _: *mut *mut c_void, _: *mut usize, _: *mut u16) {
    is_for_host(device);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_end_data() {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_update(
    device: c_int,
    _: *const c_void,
    _: usize,
    _: *mut *mut c_void,
    _: *mut usize,
    _: *mut u8,
) {
    is_for_host(device);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_target_update_ext(
    device: c_int,
    _: usize,
    _: *mut *mut c_void,
    _: *mut usize,
    _: *mut u16,
    flags: c_uint,
    depend: *mut *const c_void,
) {
    // SAFETY: the compiler's.
    unsafe { follow(device, flags, depend) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_target_enter_exit_data(
    device: c_int,
    _: usize,
    _: *mut *mut c_void,
    _: *mut usize,
    _: *mut u16,
    flags: c_uint,
    depend: *mut *const c_void,
) {
    // SAFETY: the compiler's.
    unsafe { follow(device, flags, depend) };
}

/// What is left of a construct that moves data: others wait for it, and it for others.
///
/// # Safety
/// As the compiler calls it.
unsafe fn follow(device: c_int, flags: c_uint, depend: *const *const c_void) {
    is_for_host(device);
    let thread = me();
    if depend.is_null() || omp::groups::are_cancelled(thread) {
        return;
    }
    // SAFETY: as promised.
    unsafe {
        match flags & NOWAIT {
            0 => await_dependences(depend),
            _ => start(thread, None, depend),
        }
    }
}

/// # Safety
/// As the compiler calls it.
unsafe fn await_dependences(depend: *const *const c_void) {
    if !depend.is_null() {
        // SAFETY: as promised.
        unsafe { tasks::await_predecessors(me(), Dependence::all(depend)) };
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
