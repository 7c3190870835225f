// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libwakeful_malloc.so`: the `malloc` of an unmodified program, by [`RclAware`]. Load it with `LD_PRELOAD`.
//!
//! `WAKEFUL_NUMA` says what it does. `servers`: memory follows the servers of delegated sections, which a
//! Rust program has by `sync::delegate::Rcl`. A number: memory comes from this node. Anything else, or
//! nothing: each call goes on to the C library.
//!
//! **A library of its own**, and not the interposer: a program whose locks are ours keeps the C library's
//! `malloc`, with no call in between. Both may be preloaded, in any order.
//!
//! **Whose block.** The bound heap is one range of addresses, and a block outside of it goes back to the C
//! library. So blocks may be older than this library, or come from functions that it does not have.
//!
//! **Rules.** Nothing here prints or panics. It allocates nothing for itself but by mapping. It works before
//! its constructor has run, and in a forked child. What the C library's `dlsym` allocates while its functions
//! are looked up comes from a small buffer.

#![cfg(target_os = "linux")]

mod real;

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU8, Ordering::*};

use linux::environment::NUMA;
use numa::c::{Default, Functions, Malloc};
use numa::{Here, RclAware};

use real::Real;

static MEMORY: RclAware<Default<Real>> = RclAware::with(Default(Real), Here);

const UNDECIDED: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(UNDECIDED);

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// What [`NUMA`] says.
#[derive(Clone, Copy)]
enum Asked {
    Nothing,
    Servers,
    Node(u32),
}

fn asked() -> Asked {
    let asked = linux::server::variable(NUMA, |text| match text {
        b"servers" => Some(Asked::Servers),
        text => Some(Asked::Node(core::str::from_utf8(text).ok()?.parse().ok()?)),
    });
    asked.unwrap_or(Asked::Nothing)
}

/// Does this library do anything?
#[inline]
fn on() -> bool {
    match MODE.load(Relaxed) {
        ON => true,
        OFF => false,
        _ => decide(),
    }
}

/// At the first call: blocks from before the constructor are listed.
#[cold]
#[inline(never)]
fn decide() -> bool {
    // SAFETY: the C library's, set before it runs anybody's constructor. What the loader allocates before
    // stays the C library's own.
    if unsafe { environ.is_null() } {
        return false;
    }
    let on = !matches!(asked(), Asked::Nothing);
    MODE.store(if on { ON } else { OFF }, Relaxed);
    on
}

/// Where something may be allocated.
extern "C" fn constructor() {
    real::resolve();
    if !on() {
        return;
    }
    MEMORY.remember();
    if let Asked::Node(node) = asked() {
        // Refused, the default goes on; `wakeful_malloc_report` says why.
        _ = MEMORY.stay(node);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// By this name those who have servers find it: [`linux::serving::SYMBOL`].
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_malloc_serves(server: *const c_void, serves: c_int) {
    if on() {
        MEMORY.told(server, serves != 0);
    }
}

/// For tests and debuggers: the node that blocks come from, or -1; and how many pages could not be moved.
///
/// # Safety
/// Room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_malloc_report(elsewhere: *mut u64) -> c_int {
    let report = MEMORY.report();
    // SAFETY: as the caller promised.
    unsafe { elsewhere.write(report.moved.elsewhere + report.moved.unknown) };
    match report.place {
        numa::Place::Node(node) => node as c_int,
        numa::Place::Default => -1,
    }
}

/// Each of them: ours if it was asked for, else the C library's.
macro_rules! either {
    ($(
        $(#[$about:meta])*
        $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $ours:expr, $theirs:expr;
    )*) => {
        $(
            $(#[$about])*
            ///
            /// # Safety
            /// As the C library's function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                // SAFETY: as the caller promised.
                unsafe { if on() { $ours } else { $theirs } }
            }
        )*
    };
}

either! {
    /// `malloc`.
    malloc(size: usize) -> *mut u8 = Malloc::malloc(&MEMORY, size), Real.malloc(size);
    /// `calloc`.
    calloc(count: usize, size: usize) -> *mut u8 =
        Malloc::calloc(&MEMORY, count, size), Real.calloc(count, size);
    /// `realloc`.
    realloc(block: *mut u8, size: usize) -> *mut u8 =
        Malloc::realloc(&MEMORY, block, size), Real.realloc(block, size);
    /// `memalign`.
    memalign(align: usize, size: usize) -> *mut u8 =
        Malloc::memalign(&MEMORY, rounded(align), size), Real.memalign(align, size);
    /// `aligned_alloc`.
    aligned_alloc(align: usize, size: usize) -> *mut u8 =
        Malloc::memalign(&MEMORY, align, size), Real.aligned_alloc(align, size);
    /// `posix_memalign`.
    posix_memalign(at: *mut *mut u8, align: usize, size: usize) -> c_int =
        Malloc::posix_memalign(&MEMORY, at, align, size), Real.posix_memalign(at, align, size);
    /// `free`.
    free(block: *mut u8) -> () = Malloc::free(&MEMORY, block), Real.free(block);
    /// `malloc_usable_size`.
    malloc_usable_size(block: *mut u8) -> usize = Malloc::usable(&MEMORY, block), Real.usable(block);
}

/// As glibc's `memalign`: any alignment is rounded up to a power of two. 0, which is refused, if none is.
fn rounded(align: usize) -> usize {
    align.checked_next_power_of_two().unwrap_or(0)
}

/// `reallocarray`.
///
/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut u8, count: usize, size: usize) -> *mut u8 {
    match count.checked_mul(size) {
        // SAFETY: as the caller promised.
        Some(size) => unsafe { realloc(block, size) },
        None => {
            // SAFETY: this thread's own.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            core::ptr::null_mut()
        }
    }
}

/// C23's `free_sized`.
///
/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut u8, _size: usize) {
    // SAFETY: as the caller promised.
    unsafe { free(block) };
}

/// C23's `free_aligned_sized`.
///
/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut u8, _align: usize, _size: usize) {
    // SAFETY: as the caller promised.
    unsafe { free(block) };
}

/// `valloc`.
///
/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut u8 {
    // SAFETY: as the caller promised; sysconf has no preconditions.
    unsafe { memalign(libc::sysconf(libc::_SC_PAGESIZE) as usize, size) }
}

/// `pvalloc`.
///
/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut u8 {
    // SAFETY: as above.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize };
    // SAFETY: as the caller promised. What is too large to round up is too large.
    unsafe { memalign(page, size.checked_next_multiple_of(page).unwrap_or(usize::MAX)) }
}
