// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libwakeful_preload.so`: the mutexes, condition variables, reader-writer locks, barriers, semaphores, spin locks and `pthread_once`
//! of an unmodified program, on the algorithms of this project. Load it with `LD_PRELOAD`; `WAKEFUL_LOCK` and `WAKEFUL_RWLOCK`
//! name other algorithms of the catalogue.
//!
//! **What is whose.** What is process-shared, named semaphores, and mutexes that are robust or have a priority protocol are left
//! to the C library, object by object: an object is told by what its initialiser has set, so no
//! object is ever worked on by both. The rest is ours. Spin locks keep the C library's values and can be shared with
//! processes that run without us.
//!
//! **Symbols.** Our functions carry no version. The dynamic linker lets such a definition in a preloaded object satisfy a reference to
//! any version, so programs built against old and new C libraries are both served, as is `dlsym`. A program that asks for a
//! version by `dlvsym` gets the C library's own function, and must not use it on an object of ours; so does a library
//! that is loaded with `RTLD_DEEPBIND`, and the C library itself, in C11's `<threads.h>`.
//!
//! **Rules.** Nothing here allocates, prints or panics, errno is left alone, and everything works before this library's
//! constructor has run (another library's constructor or `malloc` may come first) and in a forked child.

#![cfg(target_os = "linux")]

/// Functions of the C library's that jump to ours in C, so that no Rust frame is on the stack when something unwinds through them.
macro_rules! jump {
    ($($name:ident($($arg:ident: $type:ty),*) => $target:ident;)*) => {
        $(
            /// # Safety
            /// As the C library's function of this name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!("jmp {}", sym $target);
                #[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
                core::arch::naked_asm!("b {}", sym $target);
                #[cfg(target_arch = "riscv64")]
                core::arch::naked_asm!("tail {}", sym $target);
            }
        )*
    };
}
pub(crate) use jump;

/// Names by which old programs and libraries reach the same functions.
macro_rules! aliases {
    ($($alias:ident = $function:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(missing_docs, clippy::missing_safety_doc)]
            pub unsafe extern "C" fn $alias($($arg: $type),*) -> c_int {
                // SAFETY: the same function.
                unsafe { $function($($arg),*) }
            }
        )*
    };
}
pub(crate) use aliases;

mod barrier;
mod barrier_choice;
mod barrier_memory;
#[cfg(not(target_arch = "arm"))]
mod cancel;
mod choice;
mod cond;
mod exec;
mod fiber;
mod held;
mod key;
mod local;
mod mutex;
mod once;
mod processors;
mod real;
mod rwlock;
mod rwlock_choice;
mod sem;
mod spin;
mod thread;
mod tid;
mod time;
mod words;

use linux::Linux;
use linux::view::View;
use platform::{Platform, Priority};
use sync::wait::publish;

/// The name of the view that this process has: what `wakeful run -v` tells. Sets it up if need be. By this symbol the command also
/// knows the library.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_preload_view() -> *const core::ffi::c_char {
    thread::before_first();
    match linux::view() {
        View::Bpf => c"bpf",
        View::Perf => c"perf",
        View::None | View::Unset => c"none",
    }
    .as_ptr()
}

/// For libraries of the program that know how much its threads matter: sets the calling thread's own
/// priority, one of the arena's, and returns what it was. The arena is here.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_preload_priority(priority: core::ffi::c_int) -> core::ffi::c_int {
    thread::before_first();
    let me = Linux::register_lazily();
    publish::set_own::<Linux>(me, Priority::from_u32(priority as u32)) as core::ffi::c_int
}

/// What the OpenMP runtime borrows, so that it tells the scheduler that this library was admitted to.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_preload_registry_1() -> *const linux::Owner {
    linux::owner()
}

/// What runs at a program's start is in a section of its own. Elsewhere each function would be on a page of
/// its own, for which the kernel is entered.
#[unsafe(link_section = "wakeful_start")]
extern "C" fn constructor() {
    // Each child that a shell forks would look for it anew. A signal handler may be the first to use the
    // others, and must not look for them.
    real::address::execve();
    real::address::sem_init();
    real::address::sem_post();
    choice::decide();
    linux::inherit();
    rwlock_choice::decide();
    barrier_choice::decide();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// By which `wakeful run` knows the library.
#[used]
#[unsafe(link_section = ".note.wakeful")]
static NOTE: linux::image::Note = linux::image::Note::INTERPOSER;
