// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libwakeful_profile.so`: tells `wakeful profile` when threads of an unmodified program wait, and for what.
//!
//! The locks stay the C library's own. A plain mutex is taken and released by its own words, if the C library
//! keeps them as it always has. So is one of the interposer's, if that is preloaded, too. Each other function
//! here tries first. If that fails, it writes an event, calls the C library, and writes another one
//! (`around.c`). Events go into a ring in shared memory ([`ring`]), which the recorder reads.
//!
//! **Who holds a lock.** A thread that waits marks the lock, in a table of counters by the lock's address.
//! While the mark is there, each thread that takes or releases the lock says so. So the recorder knows at
//! any time who is inside, and needs to know of no lock's layout. One thing it cannot know by that: who was
//! inside when the first waiter came. The lock's own word for its owner says it, and else the next release.
//! A semaphore is released by its posts.
//!
//! **OpenMP.** The runtimes wait inside themselves. So each thread says when it begins its part of a region,
//! and when it has done it, and when it comes to a barrier inside and goes on (`openmp.c`). The last one is
//! whom the others wait for. Where tasks are made, the end and the barriers say that, too.
//!
//! **Cost.** Where nobody waits, a lock costs one load of the table more, and an unlock that and one store.
//! Without [`abi::environment::PROFILE`] each function goes straight to the C library.
//!
//! **Rules.** As for the interposer: no lock's path allocates, prints or panics, and errno is left alone. A
//! call of OpenMP from a new place allocates.

#![cfg(target_os = "linux")]

mod ring;

use core::ffi::{c_int, c_void};

use libc::{
    clockid_t, pthread_barrier_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, sem_t, timespec,
};

/// Goes on in a C function. What is left on the stack is the caller alone, so that the C functions see its
/// address, and nothing unwinds through Rust.
macro_rules! jump {
    ($target:ident) => {
        #[cfg(target_arch = "x86_64")]
        core::arch::naked_asm!("jmp {}", sym $target);
        #[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
        core::arch::naked_asm!("b {}", sym $target);
        #[cfg(target_arch = "riscv64")]
        core::arch::naked_asm!("tail {}", sym $target);
    };
}

/// Exports functions of `around.c` under the C library's names.
macro_rules! around {
    ($($name:ident($($arg:ident: $type:ty),*) => $target:ident;)*) => {
        unsafe extern "C" {
            $(fn $target($($arg: $type),*) -> c_int;)*
        }
        $(
            /// # Safety
            /// As the C library's function of this name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                jump!($target);
            }
        )*
    };
}

/// Exports functions of `openmp.c` under the runtimes' names. Their arguments are where the caller has put
/// them.
macro_rules! openmp {
    ($($name:ident => $target:ident;)*) => {
        unsafe extern "C" {
            $(fn $target();)*
        }
        $(
            /// # Safety
            /// As the runtime's function of this name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name() {
                jump!($target);
            }
        )*
    };
}

openmp! {
    GOMP_parallel => wakeful_GOMP_parallel;
    GOMP_parallel_reductions => wakeful_GOMP_parallel_reductions;
    GOMP_parallel_sections => wakeful_GOMP_parallel_sections;
    GOMP_parallel_loop_static => wakeful_GOMP_parallel_loop_static;
    GOMP_parallel_loop_dynamic => wakeful_GOMP_parallel_loop_dynamic;
    GOMP_parallel_loop_guided => wakeful_GOMP_parallel_loop_guided;
    GOMP_parallel_loop_runtime => wakeful_GOMP_parallel_loop_runtime;
    GOMP_parallel_loop_nonmonotonic_dynamic => wakeful_GOMP_parallel_loop_nonmonotonic_dynamic;
    GOMP_parallel_loop_nonmonotonic_guided => wakeful_GOMP_parallel_loop_nonmonotonic_guided;
    GOMP_parallel_loop_nonmonotonic_runtime => wakeful_GOMP_parallel_loop_nonmonotonic_runtime;
    GOMP_parallel_loop_maybe_nonmonotonic_runtime => wakeful_GOMP_parallel_loop_maybe_nonmonotonic_runtime;
    GOMP_barrier => wakeful_GOMP_barrier;
    GOMP_barrier_cancel => wakeful_GOMP_barrier_cancel;
    GOMP_loop_end => wakeful_GOMP_loop_end;
    GOMP_loop_end_cancel => wakeful_GOMP_loop_end_cancel;
    GOMP_sections_end => wakeful_GOMP_sections_end;
    GOMP_sections_end_cancel => wakeful_GOMP_sections_end_cancel;
    GOMP_critical_start => wakeful_GOMP_critical_start;
    GOMP_critical_end => wakeful_GOMP_critical_end;
    GOMP_critical_name_start => wakeful_GOMP_critical_name_start;
    GOMP_critical_name_end => wakeful_GOMP_critical_name_end;
    __kmpc_fork_call => wakeful___kmpc_fork_call;
    __kmpc_barrier => wakeful___kmpc_barrier;
    __kmpc_cancel_barrier => wakeful___kmpc_cancel_barrier;
    __kmpc_critical => wakeful___kmpc_critical;
    __kmpc_critical_with_hint => wakeful___kmpc_critical_with_hint;
    __kmpc_end_critical => wakeful___kmpc_end_critical;
    GOMP_task => wakeful_GOMP_task;
    GOMP_taskloop => wakeful_GOMP_taskloop;
    GOMP_taskloop_ull => wakeful_GOMP_taskloop_ull;
    __kmpc_omp_task_alloc => wakeful___kmpc_omp_task_alloc;
}

around! {
    pthread_mutex_lock(mutex: *mut pthread_mutex_t) => wakeful_mutex_lock;
    pthread_mutex_trylock(mutex: *mut pthread_mutex_t) => wakeful_mutex_trylock;
    pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, time: *const timespec) => wakeful_mutex_timedlock;
    pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec)
        => wakeful_mutex_clocklock;
    pthread_mutex_unlock(mutex: *mut pthread_mutex_t) => wakeful_mutex_unlock;
    pthread_spin_lock(lock: *mut c_void) => wakeful_spin_lock;
    pthread_spin_trylock(lock: *mut c_void) => wakeful_spin_trylock;
    pthread_spin_unlock(lock: *mut c_void) => wakeful_spin_unlock;
    pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) => wakeful_rdlock;
    pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) => wakeful_wrlock;
    pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) => wakeful_tryrdlock;
    pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) => wakeful_trywrlock;
    pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, time: *const timespec) => wakeful_timedrdlock;
    pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, time: *const timespec) => wakeful_timedwrlock;
    pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec)
        => wakeful_clockrdlock;
    pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec)
        => wakeful_clockwrlock;
    pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) => wakeful_rwlock_unlock;
    pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) => wakeful_cond_wait;
    pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec)
        => wakeful_cond_timedwait;
    pthread_cond_clockwait(
        cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec
    ) => wakeful_cond_clockwait;
    pthread_cond_signal(cond: *mut pthread_cond_t) => wakeful_cond_signal;
    pthread_cond_broadcast(cond: *mut pthread_cond_t) => wakeful_cond_broadcast;
    pthread_barrier_wait(barrier: *mut pthread_barrier_t) => wakeful_barrier_wait;
    sem_wait(sem: *mut sem_t) => wakeful_sem_wait;
    sem_timedwait(sem: *mut sem_t, time: *const timespec) => wakeful_sem_timedwait;
    sem_clockwait(sem: *mut sem_t, clock: clockid_t, time: *const timespec) => wakeful_sem_clockwait;
    sem_post(sem: *mut sem_t) => wakeful_sem_post;
}
