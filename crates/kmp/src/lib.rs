// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libwakeful_omp.so`: OpenMP for programs that were built with `clang -fopenmp`. It is loaded instead of `libomp.so.5`, whose name and symbol
//! version it has: preloaded, or found under that name.
//!
//! Teams, tasks, loops, locks, routines and variables are those of the crate [`omp`], whose functions for gcc's programs are exported as well, as
//! LLVM's runtime does. Here is what clang calls instead (`__kmpc_*`, of OpenMP 4.5 and what it emits for 5.x on the host), and the extensions of LLVM's
//! `omp.h` (`kmp_*`). The first two parameters of a `__kmpc_` function, the place in the source and the thread's number, are of no use here:
//! the thread knows itself. That number is the one in the team.
//!
//! Of libomp 19 there are not, because clang 19 emits no call of them: `__kmpc_atomic_*`, `__kmpc_threadprivate_register_vec`, `__kmpc_copyprivate_light`,
//! `__kmpc_sections_init`, `__kmpc_next_section`, `__kmpc_end_sections`, `__kmpc_barrier_master*`, `__kmpc_end_barrier_master`,
//! `__kmpc_for_collapsed_init`, `__kmpc_calc_original_ivs_rectang`, `__kmpc_process_loop_nest_rectang`, `__kmpc_push_num_threads_list*`,
//! `__kmpc_pop_num_threads`, `__kmpc_pause_resource`, `__kmpc_get_taskid`, `__kmpc_get_parent_taskid`, `__kmpc_invoke_task_func`,
//! `__kmpc_task_get_*`; and, for offloading: `__kmpc_omp_has_task_team`,
//! `__kmpc_omp_get_target_async_handle_ptr`.

#![cfg(target_os = "linux")]
#![allow(non_snake_case)] // LLVM's names
#![allow(clippy::too_many_arguments)] // LLVM's functions

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
