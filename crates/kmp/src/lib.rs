// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libgomp_wakeful.so`: OpenMP for programs that were built with `gcc -fopenmp` or `clang -fopenmp`, and
//! for what Python's wheels bring. It is preloaded into every program that `wakeful run` starts and that
//! could call it, and does nothing there until somebody does. It has libgomp's name (soname) and symbol
//! versions, and libomp's. Its file is named so that threadpoolctl takes it for an OpenMP runtime.
//!
//! Teams, tasks, loops, locks, routines and variables are those of the crate [`omp`]. The functions of the
//! crate `gomp`, for gcc's programs, are exported as well, as LLVM's runtime does. Here is what clang calls
//! instead (`__kmpc_*`, of OpenMP 4.5 and what it emits for 5.x on the host), and the extensions of LLVM's
//! `omp.h` (`kmp_*`). The first two parameters of a `__kmpc_` function, the place in the source and the
//! thread's number, are of no use here: the thread knows itself. That number is the one in the team.
//!
//! Of the runtimes that this library stands for it has every function: those that it cannot serve end the
//! program with their name (`absent.rs`), so that no call falls through to a second runtime in the same
//! program.

#![cfg(target_os = "linux")]
#![allow(non_snake_case)] // LLVM's names
#![allow(clippy::too_many_arguments)] // LLVM's functions

// For what it exports.
extern crate gomp as _;

mod absent;
mod atomics;
mod handles;
mod loops;
mod reductions;
mod region;
mod routines;
mod tasks;
mod threadprivate;
mod tool;

/// `ident_t`: a place in the source, and what the compiler says of the construct there.
#[repr(C)]
struct Ident {
    reserved: i32,
    flags: i32,
}

/// By which `wakeful run` knows the library.
#[used]
#[unsafe(link_section = ".note.wakeful")]
static NOTE: abi::image::Note = abi::image::Note::OPENMP;
