// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls, and where the kernel enters a program. There is no C library here.

use core::arch::{asm, global_asm};
use core::ffi::{CStr, c_char};

/// One call. Arguments that it does not have are ignored.
///
/// # Safety
/// As the call's.
unsafe fn call(number: usize, [one, two, three, four, five, six]: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: as promised; the kernel keeps all registers but these.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "syscall", inlateout("rax") number as isize => result, in("rdi") one, in("rsi") two,
            in("rdx") three, in("r10") four, in("r8") five, in("r9") six, lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "svc 0", in("x8") number, inlateout("x0") one as isize => result, in("x1") two, in("x2") three,
            in("x3") four, in("x4") five, in("x5") six, options(nostack)
        );
    }
    result
}

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const MAP: usize = 9;
    pub const READ_AT: usize = 17;
    pub const EXEC: usize = 59;
    pub const FILE_ATTRIBUTE: usize = 193;
    pub const EXIT: usize = 231;
    pub const OPEN: usize = 257;
    pub const READ_LINK: usize = 267;
    pub const STATUS: usize = 332;
    pub const NO_FOLLOW: usize = 0o400000;
}
#[cfg(target_arch = "aarch64")]
mod numbers {
    pub const WRITE: usize = 64;
    pub const CLOSE: usize = 57;
    pub const MAP: usize = 222;
    pub const READ_AT: usize = 67;
    pub const EXEC: usize = 221;
    pub const FILE_ATTRIBUTE: usize = 10;
    pub const EXIT: usize = 94;
    pub const OPEN: usize = 56;
    pub const READ_LINK: usize = 78;
    pub const STATUS: usize = 291;
    pub const NO_FOLLOW: usize = 0o100000;
}
use numbers::*;

/// From the current folder.
const HERE: usize = -100isize as usize;
const READ_ONLY: usize = 0;
const NO_WAIT: usize = 0o4000;
const NO_TERMINAL: usize = 0o400;
const CLOSE_ON_EXEC: usize = 0o2000000;

/// What went wrong: errno.
pub type Error = i32;
pub const NOT_FOUND: Error = 2;
pub const DENIED: Error = 13;
pub const NO_FOLDER: Error = 20;

fn outcome(result: isize) -> Result<usize, Error> {
    usize::try_from(result).map_err(|_| result.unsigned_abs() as Error)
}

/// A file that is open for reading.
pub struct File(i32);

/// What statx(2) says.
#[repr(C, align(8))]
pub struct Status {
    _before: [u8; 28],
    /// Kind and access.
    pub mode: u16,
    _between: [u8; 10],
    /// Bytes.
    pub size: u64,
    _after: [u8; 208],
}

impl File {
    /// Opens it; if `is_final`, not by a link.
    pub fn open(path: &CStr, is_final: bool) -> Result<Self, Error> {
        let flags = READ_ONLY | NO_WAIT | NO_TERMINAL | CLOSE_ON_EXEC | if is_final { NO_FOLLOW } else { 0 };
        // SAFETY: a C string.
        outcome(unsafe { call(OPEN, [HERE, path.as_ptr().expose_provenance(), flags, 0, 0, 0]) })
            .map(|fd| Self(fd as i32))
    }

    /// For [`abi::image`].
    pub fn image(&self) -> abi::image::File {
        abi::image::File { number: self.0, read }
    }

    /// Reads its first bytes.
    pub fn head<'a>(&self, buffer: &'a mut [u8]) -> &'a [u8] {
        let size = read(self.0, buffer, 0);
        buffer.get(..size).unwrap_or_default()
    }

    pub fn status(&self) -> Option<Status> {
        /// AT_EMPTY_PATH, and STATX_TYPE | STATX_MODE | STATX_SIZE.
        const ITSELF: usize = 0x1000;
        const WANTED: usize = 0x203;
        let mut status = core::mem::MaybeUninit::<Status>::uninit();
        let to = status.as_mut_ptr().expose_provenance();
        // SAFETY: 256 bytes, which the kernel fills if it succeeds.
        unsafe {
            let result =
                call(STATUS, [self.0 as usize, c"".as_ptr().expose_provenance(), ITSELF, WANTED, to, 0]);
            (result == 0).then(|| status.assume_init())
        }
    }

    /// Its bytes, for good.
    pub fn map(&self) -> Option<&'static [u8]> {
        /// PROT_READ and MAP_PRIVATE.
        const ACCESS: usize = 1;
        const FLAGS: usize = 2;
        let size = self.status()?.size as usize;
        // SAFETY: new memory, of that size. If somebody shortens the file meanwhile, SIGBUS ends us.
        unsafe {
            let at = outcome(call(MAP, [0, size, ACCESS, FLAGS, self.0 as usize, 0])).ok()?;
            Some(core::slice::from_raw_parts(core::ptr::with_exposed_provenance(at), size))
        }
    }

    /// Does it give rights to who runs it?
    pub fn has_capabilities(&self) -> bool {
        let name = c"security.capability".as_ptr().expose_provenance();
        // SAFETY: a C string, and no buffer: only asks for the size.
        unsafe { call(FILE_ATTRIBUTE, [self.0 as usize, name, 0, 0, 0, 0]) > 0 }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: ours, and open.
        unsafe { call(CLOSE, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

fn read(file: i32, buffer: &mut [u8], offset: u64) -> usize {
    let (to, size) = (buffer.as_mut_ptr().expose_provenance(), buffer.len());
    // SAFETY: the buffer is live.
    outcome(unsafe { call(READ_AT, [file as usize, to, size, offset as usize, 0, 0]) }).unwrap_or(0)
}

/// Where a link leads, if it is one.
pub fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let (to, size) = (buffer.as_mut_ptr().expose_provenance(), buffer.len());
    // SAFETY: a C string and a live buffer.
    let size = outcome(unsafe { call(READ_LINK, [HERE, path.as_ptr().expose_provenance(), to, size, 0, 0]) })
        .ok()?;
    // What fills the buffer may be cut off.
    buffer.get(..size).filter(|link| link.len() < buffer.len())
}

/// Becomes the program, or says why not.
///
/// # Safety
/// Two lists of C strings, each with a null at the end.
pub unsafe fn exec(path: &CStr, words: *const *const c_char, list: *const *const c_char) -> Error {
    // SAFETY: as promised.
    unsafe {
        call(
            EXEC,
            [path.as_ptr().expose_provenance(), words.expose_provenance(), list.expose_provenance(), 0, 0, 0],
        )
    }
    .unsigned_abs() as Error
}

/// To standard error.
pub fn say(words: &[u8]) {
    // SAFETY: live bytes.
    unsafe { call(WRITE, [2, words.as_ptr().expose_provenance(), words.len(), 0, 0, 0]) };
}

pub fn exit(status: u8) -> ! {
    loop {
        // SAFETY: it has no memory that matters.
        unsafe { call(EXIT, [status.into(), 0, 0, 0, 0, 0]) };
    }
}

// The kernel enters here, with its words on the stack.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {begin}", "ud2",
    begin = sym crate::lean::begin
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "mov x0, sp", "and sp, x0, #-16", "b {begin}",
    begin = sym crate::lean::begin
);
