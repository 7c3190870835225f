// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stack that overflows says whose it was.
//!
//! The guard makes it a SIGSEGV. The handler runs on the carrier's own alternate stack, names the fiber
//! on stderr and ends the program as the fault would have. A fault elsewhere goes to the handler before it,
//! and so does a signal that somebody sent.

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::*};

use crate::record::Fiber;
use crate::stack;

static PREPARED: AtomicBool = AtomicBool::new(false);
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

const SIZE: usize = 32 << 10;

/// Installs the handler, once in a process. No `Once`: a child that was forked inside of that would wait for
/// ever. Whoever comes second does not wait.
pub fn prepare() {
    if PREPARED.swap(true, Relaxed) {
        return;
    }
    // SAFETY: both structures live across the calls. `BEFORE` is written here only, once, before the kernel
    // may call the handler.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, core::ptr::null(), (&raw mut BEFORE).cast());
        libc::sigaction(libc::SIGSEGV, &action, null_mut());
    }
}

/// Gives the calling thread a stack for signals. It is never returned, as carriers do not end.
pub fn on_own_stack() {
    // SAFETY: a fresh mapping, which the kernel may use from now on.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let place = libc::mmap(null_mut(), SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if place != libc::MAP_FAILED {
            let stack = libc::stack_t { ss_sp: place, ss_flags: 0, ss_size: SIZE };
            libc::sigaltstack(&stack, null_mut());
        }
    }
}

/// Ends the program, and says what the fiber did.
pub fn end(fiber: &Fiber, what: &[u8]) -> ! {
    let name = fiber.name().unwrap_or("<unnamed>");
    say(&[b"\nfiber '", name.as_bytes(), b"' ", what, b"\n"]);
    // SAFETY: no pointers.
    unsafe { libc::abort() }
}

/// As [`end`], where a kernel thread ends that runs no fiber now.
pub fn end_carrier() -> ! {
    say(&[b"\na kernel thread that runs fibers was ended (pthread_cancel)\n"]);
    // SAFETY: no pointers.
    unsafe { libc::abort() }
}

fn say(parts: &[&[u8]]) {
    for part in parts {
        // SAFETY: the bytes live across the call.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo with SA_SIGINFO.
    let (address, sent) = unsafe { ((*info).si_addr() as usize, (*info).si_code <= 0) };
    if !sent && let Some(fiber) = stack::overflowed(address) {
        // SAFETY: the guard is below the stack of this record.
        end(unsafe { fiber.as_ref() }, b"has overflowed its stack");
    }
    // SAFETY: `prepare` wrote it before the kernel could call us.
    let before: libc::sigaction = unsafe { (&raw const BEFORE).cast::<libc::sigaction>().read() };
    match before.sa_sigaction {
        libc::SIG_IGN if sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The fault comes again, and ends the program. What was sent does not: it is raised, and comes
            // when this returns.
            // SAFETY: no pointers.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if sent {
                    libc::raise(signal);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: it was installed as such a function.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: it was installed as such a function.
            let handler: extern "C" fn(i32) = unsafe { core::mem::transmute(handler) };
            handler(signal);
        }
    }
}
