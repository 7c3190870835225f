// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calling thread's kernel id as the C library knows it, without a system call.
//!
//! Recursive and error-checking mutexes compare it, and debuggers read it in `__owner`. It is cached in a
//! thread-local word and believed only while a page ([`page`]) says so: the kernel zeroes that page in a
//! forked child (`MADV_WIPEONFORK`), before any atfork handler runs there. So, as with the C library, a
//! child does not own what its parent locked; but the child of a bare fork(2) or clone(2), which the C
//! library does not notice, does: the C library goes by the id that it keeps in the thread's block, and so
//! do we, by having it lock an error-checking mutex, where the id can be read.

use core::sync::atomic::{AtomicU32, Ordering::*};

use crate::real;

const PAGE: usize = 4096;

/// Has room for a whole page. It is not aligned to one: then all small variables of this library would begin
/// on a page of their own, which each start of a program has filled.
static ROOM: [AtomicU32; 2 * PAGE / size_of::<AtomicU32>()] =
    [const { AtomicU32::new(0) }; 2 * PAGE / size_of::<AtomicU32>()];

/// The first word of the page.
#[inline(always)]
fn page() -> &'static AtomicU32 {
    let before = (&raw const ROOM).addr().wrapping_neg() % PAGE;
    &ROOM[before / size_of::<AtomicU32>()]
}

/// Is the page wiped in a child?
static WIPES: AtomicU32 = AtomicU32::new(UNKNOWN);
const NO: u32 = 0;
const YES: u32 = 1;
const UNKNOWN: u32 = 2;

#[cfg(target_arch = "x86_64")]
mod word {
    use core::arch::{asm, global_asm};

    // Initial-exec, which the interposer may use because it is loaded at start; stable Rust cannot ask for it.
    global_asm!(
        ".pushsection .tbss.wakeful_tid,\"awT\",@nobits",
        ".hidden wakeful_tid",
        ".globl wakeful_tid",
        ".type wakeful_tid, @object",
        ".size wakeful_tid, 4",
        ".p2align 2",
        "wakeful_tid: .zero 4",
        ".popsection",
    );

    #[inline(always)]
    pub fn get() -> u32 {
        let value: u32;
        // SAFETY: reads this thread's own variable.
        unsafe {
            asm!("mov {a}, qword ptr [rip + wakeful_tid@GOTTPOFF]", "mov {v:e}, dword ptr fs:[{a}]",
                a = out(reg) _, v = lateout(reg) value, options(nostack, preserves_flags, readonly));
        }
        value
    }

    pub fn set(value: u32) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            asm!("mov {a}, qword ptr [rip + wakeful_tid@GOTTPOFF]", "mov dword ptr fs:[{a}], {v:e}",
                a = out(reg) _, v = in(reg) value, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod word {
    use core::cell::Cell;

    std::thread_local! {
        static TID: Cell<u32> = const { Cell::new(0) };
    }

    pub fn get() -> u32 {
        TID.with(Cell::get)
    }

    pub fn set(value: u32) {
        TID.with(|tid| tid.set(value));
    }
}

/// May the cache be used? If the kernel can wipe it (Linux 4.14). Asked when it is needed: most programs never
/// do, and the page would be a mapping of its own in each.
fn wipes() -> u32 {
    if WIPES.load(Relaxed) == UNKNOWN {
        let page = core::ptr::from_ref(page()).cast_mut().cast();
        // SAFETY: the page is a whole one and ours; a kernel that refuses changes nothing but errno.
        let done = unsafe {
            let errno = *libc::__errno_location();
            let done = linux::memory::advise(page, PAGE, libc::MADV_WIPEONFORK);
            *libc::__errno_location() = errno;
            done
        };
        WIPES.store(if done { YES } else { NO }, Relaxed);
    }
    WIPES.load(Relaxed)
}

/// What the C library writes into `__owner`; 0 if it does not tell.
fn as_owner() -> u32 {
    let mut mutex = libc::PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    let mutex = &raw mut mutex;
    // SAFETY: nobody else knows this mutex; `__owner` is at 8, see mutex.rs.
    unsafe {
        if real::mutex_trylock(mutex) != 0 {
            return 0;
        }
        let tid = mutex.cast::<u32>().add(2).read_volatile();
        real::mutex_unlock(mutex);
        tid
    }
}

#[cold]
#[inline(never)]
fn ask() -> u32 {
    let tid = match as_owner() {
        // SAFETY: no arguments.
        0 => unsafe { libc::syscall(libc::SYS_gettid) as u32 },
        tid => tid,
    };
    // Where the page reads 0 there is one thread (a fresh child) or the cached words are all empty or right (start).
    word::set(tid);
    page().store(wipes(), Relaxed);
    tid
}

/// The calling thread's kernel id.
#[inline(always)]
pub fn get() -> u32 {
    let tid = word::get();
    if tid != 0 && page().load(Relaxed) != 0 { tid } else { ask() }
}
