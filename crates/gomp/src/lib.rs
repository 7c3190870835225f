// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libwakeful_gomp.so`: OpenMP for programs that were built with `gcc -fopenmp`. It is loaded instead of
//! `libgomp.so.1`, whose name and symbol versions it has: preloaded, or found under that name.
//!
//! This is a face of the crate [`omp`]: it says in gcc's terms (`GOMP_*`) what that does, and in C's and
//! Fortran's the routines of OpenMP's API (`omp_*`). What is here is what gcc emits for OpenMP 4.5 and for
//! much of 5.1, on the host. What is not here is no symbol of the library: the dynamic linker names it.

#![cfg(target_os = "linux")]
#![allow(non_snake_case)] // libgomp's names
#![allow(clippy::too_many_arguments)] // libgomp's functions

mod alloc;
mod device;
mod doacross;
mod fortran;
mod lock;
mod loops;
mod parallel_loops;
mod reductions;
mod region;
mod routines;
mod sections;
mod target;
mod taskloop;
mod tasks;

/// Functions with variable arguments, which are in C.
#[doc(hidden)]
#[macro_export]
macro_rules! in_c {
    ($($name:ident => $target:ident;)*) => {
        unsafe extern "C" {
            $(fn $target();)*
        }
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
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

/// By this symbol the `wakeful` command knows the library.
#[unsafe(no_mangle)]
extern "C" fn wakeful_omp_version() -> *const core::ffi::c_char {
    c"libgomp 5.1".as_ptr()
}

extern "C" fn constructor() {
    linux::inherit_beside();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
