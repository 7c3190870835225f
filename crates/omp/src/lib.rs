// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libwakeful_gomp.so`: OpenMP for programs that were built with `gcc -fopenmp`, on the project's default barrier and mutex. It is loaded
//! instead of `libgomp.so.1`, whose name and symbol versions it has: preloaded, or found under that name.
//!
//! **Why.** OpenMP runtimes spin at barriers, since that is best while each thread has a processor, and find out badly that it has not: libgomp counts its
//! own threads only, LLVM's waits until a time has passed. Beside other programs a barrier then takes milliseconds. Here
//! who waits decides by the processors really to be had ([`sync::barrier::BWakeful`]).
//!
//! **What is here** is what gcc emits for OpenMP 4.5 and for much of 5.1, on the host. There are no devices; target
//! regions run here, which is said once. What is not here is no symbol of the library: the dynamic linker names it.
//!
//! **Rules.** A panic aborts. Nothing is printed but what OpenMP's environment variables ask for, mistakes in
//! these, what ends the program, and, once, what would have ended it on the compiler's own runtime.
//! Regions allocate when a team grows, loops that wait for each other and tasks always, all else never. What there is
//! no memory for is done without, or ends the program with a line ([`memory`]).

#![cfg(target_os = "linux")]
#![allow(non_snake_case)] // libgomp's names
#![allow(clippy::too_many_arguments)] // libgomp's functions

mod affinity;
pub mod alloc;
mod device;
mod dialect;
mod fortran;
pub mod icv;
pub mod lock;
pub mod loops;
pub mod memory;
mod reductions;
pub mod region;
pub mod routines;
pub mod tasks;
pub mod team;
pub mod thread;
mod tool;
pub mod wait;

/// By this symbol the `wakeful` command knows the library.
#[unsafe(no_mangle)]
extern "C" fn wakeful_omp_version() -> *const core::ffi::c_char {
    c"libgomp 5.1".as_ptr()
}

extern "C" fn constructor() {
    linux::inherit();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
