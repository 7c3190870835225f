// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools (OpenMP 5.1, chapter 4): there is no interface for them. A program that brings one is told so,
//! once, when it uses OpenMP first. Only LLVM's runtime has such an interface, so only its programs are
//! told.

use std::ffi::CStr;

use crate::dialect::is_llvm;
use crate::text::environment;

/// Says on stderr that the program's tool will not be called, if it has one.
pub fn complain() {
    let set = |name| environment(name).unwrap_or_default();
    if is_llvm()
        && !set(c"OMP_TOOL").eq_ignore_ascii_case(b"disabled")
        && (!set(c"OMP_TOOL_LIBRARIES").is_empty() || program_has_one())
    {
        eprintln!(
            "wakeful: OpenMP tools are not called here; run without wakeful to use one, or set OMP_TOOL=disabled"
        );
    }
}

/// LLVM's own runtime may be loaded beside us, and has a function of that name for programs that have none.
fn program_has_one() -> bool {
    // SAFETY: a C string.
    let tool = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ompt_start_tool".as_ptr()) };
    if tool.is_null() {
        return false;
    }
    // SAFETY: an all-zero Dl_info is valid, and `dladdr` fills it; its name is a C string or null.
    let file = unsafe {
        let mut place: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(tool, &mut place);
        if place.dli_fname.is_null() { c"" } else { CStr::from_ptr(place.dli_fname) }
    };
    let name = file.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    !name.starts_with(b"libomp") && !name.starts_with(b"libiomp")
}
