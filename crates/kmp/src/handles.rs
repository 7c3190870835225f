// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dlopen`: the handle of an OpenMP runtime is this library's.
//!
//! **Why.** A library that is linked with a runtime under whatever name finds our functions first, because
//! we are preloaded. Who opens the runtime itself and asks for its functions (threadpoolctl, MKL, ctypes)
//! would get those of a runtime that nobody else uses.
//!
//! **How.** The runtime is opened as the program wants, so that it fails where it would fail. Then the
//! handle is exchanged. All other calls go on to the C library's function by a jump: it looks at the address
//! that it returns to, to know who asks.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Is this the file of an OpenMP runtime? Wheels put a hash behind the name: `libgomp-a34b3233.so.1.0.0`.
fn is_runtime(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let rest = |prefix: &[u8]| name.strip_prefix(prefix);
    let starts = |rest: Option<&[u8]>| {
        rest.is_some_and(|rest| {
            rest.starts_with(b".so") || rest.starts_with(b"-") && !rest.starts_with(b"-plugin")
        })
    };
    [&b"libgomp"[..], b"libomp", b"libomp5", b"libiomp5"].iter().any(|prefix| starts(rest(prefix)))
}

/// Our handle, if a runtime is opened and can be; and where the C library's function is.
unsafe extern "C" fn exchanged(path: *const c_char, mode: c_int) -> *mut c_void {
    let mut real = REAL.load(Relaxed);
    if real.is_null() {
        // SAFETY: a C string.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
        REAL.store(real, Relaxed);
    }
    // SAFETY: the program's string, or null.
    if path.is_null() || !is_runtime(unsafe { CStr::from_ptr(path) }.to_bytes()) {
        return null_mut();
    }
    // SAFETY: the symbol of this name has this type; `dladdr` fills the struct for an address of ours.
    unsafe {
        let open = std::mem::transmute::<*mut c_void, Open>(real);
        let theirs = open(path, mode);
        if theirs.is_null() {
            // It may be found from where the program's call comes from.
            return null_mut();
        }
        let mut here: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(exchanged as *const c_void, &mut here);
        let ours = open(here.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if ours.is_null() {
            return theirs;
        }
        libc::dlclose(theirs);
        ours
    }
}

/// # Safety
/// As the C library's function of this name.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {exchanged}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        "2: ret",
        exchanged = sym exchanged,
        real = sym REAL,
    );
}
