// SPDX-License-Identifier: MIT OR Apache-2.0
//! What compiled code expects of a C library. Volatile, so that none is compiled into a call of itself.

/// # Safety
/// As the C library's function of this name; likewise below.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, size: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as promised; likewise below.
    unsafe {
        core::arch::asm!(
            "rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") size => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..size {
        // SAFETY: as above.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, size: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= size {
        // SAFETY: as above.
        return unsafe { memcpy(to, from, size) };
    }
    for at in (0..size).rev() {
        // SAFETY: as above.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, size: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "rep stosb", inout("rdi") to => _, inout("rcx") size => _, in("al") byte as u8,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..size {
        // SAFETY: as above.
        unsafe { to.add(at).write_volatile(byte as u8) };
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, size: usize) -> i32 {
    for at in 0..size {
        // SAFETY: as above.
        let (a, b) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, size: usize) -> i32 {
    // SAFETY: as above.
    unsafe { memcmp(one, other, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut size = 0;
    // SAFETY: as above.
    while unsafe { text.add(size).read_volatile() } != 0 {
        size += 1;
    }
    size
}

/// Named by code that was compiled to unwind; nothing here does.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {
    crate::kernel::exit(crate::lean::FAILED)
}
