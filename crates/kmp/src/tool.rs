// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs ask of tools (OpenMP 5.1, chapter 4): there is no interface for them. `omp`'s `tool.rs`
//! says so to who brings one.

use std::ffi::{c_int, c_void};

/// There is no tool.
#[unsafe(no_mangle)]
extern "C" fn omp_control_tool(_command: c_int, _modifier: c_int, _argument: *mut c_void) -> c_int {
    const NO_TOOL: c_int = -2;
    NO_TOOL
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_control_tool_(
    command: *const c_int,
    modifier: *const c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: Fortran passes addresses.
    unsafe { omp_control_tool(*command, *modifier, argument) }
}
