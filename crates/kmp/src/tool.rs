// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools (OpenMP 5.1, chapter 4): there is no interface for them. Who brings one is told so, instead of
//! waiting for its calls in vain.

use std::ffi::{c_int, c_void};

extern "C" fn constructor() {
    let set = |name| std::env::var_os(name).unwrap_or_default();
    // SAFETY: a C string.
    let of_program = || !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ompt_start_tool".as_ptr()) }.is_null();
    if !set("OMP_TOOL").eq_ignore_ascii_case("disabled") && (!set("OMP_TOOL_LIBRARIES").is_empty() || of_program()) {
        eprintln!(
            "wakeful: OpenMP tools are not called here; run without wakeful to use one, or set OMP_TOOL=disabled"
        );
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// There is no tool.
#[unsafe(no_mangle)]
extern "C" fn omp_control_tool(_command: c_int, _modifier: c_int, _argument: *mut c_void) -> c_int {
    const NO_TOOL: c_int = -2;
    NO_TOOL
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_control_tool_(command: *const c_int, modifier: *const c_int, argument: *mut c_void) -> c_int {
    // SAFETY: Fortran passes addresses.
    unsafe { omp_control_tool(*command, *modifier, argument) }
}
