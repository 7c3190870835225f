// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many processors there are, of a program in a partition: those that it has, where the C library counts the machine's. (What
//! `sched_getaffinity` and the control group say is so anyway.)

use core::ffi::{c_int, c_long, c_void};
use core::mem::transmute;
use core::sync::atomic::Ordering::Relaxed;

use crate::real::Symbol;

static SYSCONF: Symbol = Symbol::new(c"sysconf", None);
static GET_NPROCS: Symbol = Symbol::new(c"get_nprocs", None);

fn granted() -> Option<u32> {
    linux::server::partition().map(|partition| partition.processors.load(Relaxed))
}

/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysconf(name: c_int) -> c_long {
    match granted() {
        Some(count) if name == libc::_SC_NPROCESSORS_ONLN => count as c_long,
        _ => match SYSCONF.get() {
            address if address.is_null() => -1,
            // SAFETY: the symbol of this name has this type.
            address => unsafe {
                transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> c_long>(address)(name)
            },
        },
    }
}

/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn get_nprocs() -> c_int {
    match (granted(), GET_NPROCS.get()) {
        (Some(count), _) => count as c_int,
        (_, address) if address.is_null() => 1,
        // SAFETY: the symbol of this name has this type.
        (_, address) => unsafe { transmute::<*mut c_void, extern "C" fn() -> c_int>(address)() },
    }
}
