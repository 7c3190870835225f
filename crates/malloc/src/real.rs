// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's own functions, looked up behind us.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

use numa::c::Functions;

/// The C library's.
pub struct Real;

/// BOUND: bytes. `dlsym` allocates a few hundred for its messages, in some C libraries.
const ROOM: usize = 4096;

#[repr(align(16))]
struct Early(UnsafeCell<[u8; ROOM]>);

// SAFETY: each byte is given out once.
unsafe impl Sync for Early {}

/// What is allocated while a function is looked up. Never given back.
static EARLY: Early = Early(UnsafeCell::new([0; ROOM]));
static USED: AtomicUsize = AtomicUsize::new(0);
/// The thread that looks up, by the address of its errno; 0: nobody.
static LOOKS: AtomicUsize = AtomicUsize::new(0);

fn me() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::__errno_location() as usize }
}

/// Zeros, or null if there is no room.
fn early(size: usize, align: usize) -> *mut u8 {
    let size = size.saturating_add(align.max(16) - 1).saturating_add(16);
    let from = USED.fetch_update(Relaxed, Relaxed, |used| {
        used.checked_add(size).filter(|end| *end <= ROOM).map(|end| end.next_multiple_of(16))
    });
    let Ok(from) = from else { return null_mut() };
    let at = EARLY.0.get() as usize + from + 16;
    at.next_multiple_of(align.max(16)) as *mut u8
}

fn is_early(block: *mut u8) -> bool {
    (block as usize).wrapping_sub(EARLY.0.get() as usize) < ROOM
}

/// One of them.
struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// `None` where the calling thread looks one up already, and where there is none.
    #[inline]
    fn get(&self) -> Option<*mut c_void> {
        let address = self.address.load(Relaxed);
        if address.is_null() { self.look_up() } else { Some(address) }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self) -> Option<*mut c_void> {
        if LOOKS.load(Relaxed) == me() {
            return None;
        }
        // By the constructor, or by the first thread before it.
        LOOKS.store(me(), Relaxed);
        // SAFETY: a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        LOOKS.store(0, Relaxed);
        self.address.store(address, Relaxed);
        (!address.is_null()).then_some(address)
    }
}

macro_rules! real {
    ($($ident:ident = $name:literal ($($arg:ident: $type:ty),*) -> $result:ty, $else:expr;)*) => {
        $(
            #[inline]
            unsafe fn $ident($($arg: $type),*) -> $result {
                match symbols::$ident.get() {
                    // SAFETY: the symbol of this name has this type; as the caller promises.
                    Some(address) => unsafe {
                        type Function = unsafe extern "C" fn($($type),*) -> $result;
                        transmute::<*mut c_void, Function>(address)($($arg),*)
                    },
                    None => $else,
                }
            }
        )*

        #[allow(non_upper_case_globals)] // named like the functions
        mod symbols {
            use super::Symbol;
            $(pub static $ident: Symbol = Symbol::new($name);)*
        }

        /// Looks all of them up, while there is one thread.
        pub fn resolve() {
            $(_ = symbols::$ident.get();)*
        }
    };
}

real! {
    malloc = c"malloc"(size: usize) -> *mut u8, early(size, 16);
    calloc = c"calloc"(count: usize, size: usize) -> *mut u8, early(count.saturating_mul(size), 16);
    realloc = c"realloc"(block: *mut u8, size: usize) -> *mut u8, null_mut();
    memalign = c"memalign"(align: usize, size: usize) -> *mut u8, early(size, align);
    aligned_alloc = c"aligned_alloc"(align: usize, size: usize) -> *mut u8, early(size, align);
    posix_memalign = c"posix_memalign"(at: *mut *mut u8, align: usize, size: usize) -> c_int, libc::ENOMEM;
    free = c"free"(block: *mut u8) -> (), ();
    usable = c"malloc_usable_size"(block: *mut u8) -> usize, 0;
}

// SAFETY: the C library keeps its own contract; a block of the buffer is one as well, and is never freed.
unsafe impl Functions for Real {
    #[inline]
    unsafe fn malloc(&self, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises, here and below.
        unsafe { malloc(size) }
    }

    #[inline]
    unsafe fn calloc(&self, count: usize, size: usize) -> *mut u8 {
        // SAFETY: the same.
        unsafe { calloc(count, size) }
    }

    unsafe fn realloc(&self, block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the same; what a block of the buffer had ends with the buffer at the latest.
        unsafe {
            if !is_early(block) {
                return realloc(block, size);
            }
            let new = malloc(size);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, size.min(self.usable(block)));
            }
            new
        }
    }

    unsafe fn memalign(&self, align: usize, size: usize) -> *mut u8 {
        // SAFETY: the same.
        unsafe { memalign(align, size) }
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8) {
        if !is_early(block) {
            // SAFETY: the same.
            unsafe { free(block) };
        }
    }

    unsafe fn usable(&self, block: *mut u8) -> usize {
        if is_early(block) {
            return EARLY.0.get() as usize + ROOM - block as usize;
        }
        // SAFETY: the same.
        unsafe { usable(block) }
    }
}

impl Real {
    /// # Safety
    /// As the C library's.
    pub unsafe fn aligned_alloc(&self, align: usize, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { aligned_alloc(align, size) }
    }

    /// # Safety
    /// As the C library's.
    pub unsafe fn posix_memalign(&self, at: *mut *mut u8, align: usize, size: usize) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { posix_memalign(at, align, size) }
    }
}
