// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that block, and what it means if a thread of a pool is in one.

/// Why a thread is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// It waits for work, or for an event: nothing is held up.
    Idle,
    /// It waits for a lock that another thread has.
    Lock,
    /// A file, a pipe or a device.
    File,
    /// A socket.
    Network,
    /// Time.
    Sleep,
    /// A page that is not in memory.
    Fault,
    /// A process.
    Child,
    /// Anything else.
    Other,
}

const CALLS: &[(i64, &str, Why, bool)] = &[
    (libc::SYS_read, "read", Why::File, true),
    (libc::SYS_write, "write", Why::File, true),
    (libc::SYS_readv, "readv", Why::File, true),
    (libc::SYS_writev, "writev", Why::File, true),
    (libc::SYS_pread64, "pread64", Why::File, true),
    (libc::SYS_pwrite64, "pwrite64", Why::File, true),
    (libc::SYS_preadv, "preadv", Why::File, true),
    (libc::SYS_pwritev, "pwritev", Why::File, true),
    (libc::SYS_fsync, "fsync", Why::File, true),
    (libc::SYS_fdatasync, "fdatasync", Why::File, true),
    (libc::SYS_sync_file_range, "sync_file_range", Why::File, true),
    (libc::SYS_ftruncate, "ftruncate", Why::File, true),
    (libc::SYS_fallocate, "fallocate", Why::File, true),
    (libc::SYS_getdents64, "getdents64", Why::File, true),
    (libc::SYS_flock, "flock", Why::Lock, true),
    (libc::SYS_fcntl, "fcntl", Why::Lock, true),
    (libc::SYS_ioctl, "ioctl", Why::File, true),
    (libc::SYS_splice, "splice", Why::File, true),
    (libc::SYS_copy_file_range, "copy_file_range", Why::File, true),
    (libc::SYS_sendfile, "sendfile", Why::File, true),
    (libc::SYS_openat, "openat", Why::File, false),
    (libc::SYS_statx, "statx", Why::File, false),
    (libc::SYS_newfstatat, "newfstatat", Why::File, false),
    (libc::SYS_renameat2, "renameat2", Why::File, false),
    (libc::SYS_unlinkat, "unlinkat", Why::File, false),
    (libc::SYS_mkdirat, "mkdirat", Why::File, false),
    (libc::SYS_sync, "sync", Why::File, false),
    (libc::SYS_msync, "msync", Why::File, false),
    (libc::SYS_connect, "connect", Why::Network, true),
    (libc::SYS_accept, "accept", Why::Network, true),
    (libc::SYS_accept4, "accept4", Why::Network, true),
    (libc::SYS_recvfrom, "recvfrom", Why::Network, true),
    (libc::SYS_recvmsg, "recvmsg", Why::Network, true),
    (libc::SYS_recvmmsg, "recvmmsg", Why::Network, true),
    (libc::SYS_sendto, "sendto", Why::Network, true),
    (libc::SYS_sendmsg, "sendmsg", Why::Network, true),
    (libc::SYS_nanosleep, "nanosleep", Why::Sleep, false),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", Why::Sleep, false),
    (libc::SYS_wait4, "wait4", Why::Child, false),
    (libc::SYS_waitid, "waitid", Why::Child, false),
    (libc::SYS_futex, "futex", Why::Lock, false),
    (libc::SYS_futex_waitv, "futex_waitv", Why::Lock, false),
    (libc::SYS_epoll_pwait, "epoll_pwait", Why::Idle, false),
    (libc::SYS_epoll_pwait2, "epoll_pwait2", Why::Idle, false),
    (libc::SYS_ppoll, "ppoll", Why::Idle, false),
    (libc::SYS_pselect6, "pselect6", Why::Idle, false),
    (libc::SYS_io_uring_enter, "io_uring_enter", Why::Idle, false),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait", Why::Idle, false),
    (libc::SYS_rt_sigsuspend, "rt_sigsuspend", Why::Idle, false),
    (libc::SYS_restart_syscall, "restart_syscall", Why::Other, false),
    (libc::SYS_mmap, "mmap", Why::Lock, false),
    (libc::SYS_munmap, "munmap", Why::Lock, false),
    (libc::SYS_mprotect, "mprotect", Why::Lock, false),
    (libc::SYS_madvise, "madvise", Why::Lock, false),
    (libc::SYS_mremap, "mremap", Why::Lock, false),
    (libc::SYS_brk, "brk", Why::Lock, false),
    (libc::SYS_semop, "semop", Why::Lock, false),
    (libc::SYS_semtimedop, "semtimedop", Why::Lock, false),
    (libc::SYS_execve, "execve", Why::Other, false),
    (libc::SYS_clone, "clone", Why::Other, false),
    (libc::SYS_clone3, "clone3", Why::Other, false),
    (libc::SYS_close, "close", Why::File, true),
    (libc::SYS_fstat, "fstat", Why::File, true),
    (libc::SYS_fchmod, "fchmod", Why::File, true),
    (libc::SYS_preadv2, "preadv2", Why::File, true),
    (libc::SYS_pwritev2, "pwritev2", Why::File, true),
    (libc::SYS_truncate, "truncate", Why::File, false),
    (libc::SYS_syncfs, "syncfs", Why::File, true),
    (libc::SYS_linkat, "linkat", Why::File, false),
    (libc::SYS_symlinkat, "symlinkat", Why::File, false),
    (libc::SYS_readlinkat, "readlinkat", Why::File, false),
    (libc::SYS_faccessat, "faccessat", Why::File, false),
    (libc::SYS_faccessat2, "faccessat2", Why::File, false),
    (libc::SYS_renameat, "renameat", Why::File, false),
    (libc::SYS_statfs, "statfs", Why::File, false),
    (libc::SYS_chdir, "chdir", Why::File, false),
    (libc::SYS_sendmmsg, "sendmmsg", Why::Network, true),
    (libc::SYS_shutdown, "shutdown", Why::Network, true),
    (libc::SYS_sched_yield, "sched_yield", Why::Other, false),
    (libc::SYS_exit_group, "exit_group", Why::Other, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_stat, "stat", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, "rmdir", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, "link", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, "symlink", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lstat, "lstat", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_access, "access", Why::File, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_fork, "fork", Why::Other, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait", Why::Idle, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll", Why::Idle, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select", Why::Idle, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_pause, "pause", Why::Idle, false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_vfork, "vfork", Why::Child, false),
];

/// Parts of names of functions in which a thread that sleeps on a futex waits for work and not for a lock:
/// parking, condition variables, semaphores and joins of C, Rust, Go, C++, Python and Java.
const WAITS: &[&str] = &[
    "pthread_cond_",
    "___pthread_cond",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "new_sem_wait",
    "pthread_join",
    "pthread_clockjoin",
    "pthread_barrier_wait",
    "pthread_timedjoin",
    "thread::park",
    "Parker::park",
    "Condvar::wait",
    "Condvar>::wait",
    "condvar::",
    "runtime.futexsleep",
    "runtime.notesleep",
    "runtime.notetsleep",
    "sleep::Sleep::sleep",
    "std::thread::current::park",
    "PyThread_acquire_lock_timed",
    "Unsafe_Park",
    "__atomic_wait",
    "parking_lot_core::parking_lot::park",
    "Latch::wait",
];

/// The call's name; in a page fault there is no call.
pub fn name(call: Option<u32>) -> String {
    let Some(number) = call else { return "page fault".into() };
    find(number).map_or_else(|| format!("system call {number}"), |(_, name, ..)| (*name).into())
}

/// Is its first argument a descriptor?
pub fn has_descriptor(number: u32) -> bool {
    find(number).is_some_and(|(.., descriptor)| *descriptor)
}

/// Why the thread is in this call, by the call and the functions that led there.
pub fn why<'a>(call: Option<u32>, mut functions: impl Iterator<Item = &'a str>) -> Why {
    let Some(number) = call else { return Why::Fault };
    match find(number).map_or(Why::Other, |(_, _, why, _)| *why) {
        Why::Lock if i64::from(number) == libc::SYS_futex => {
            let waits = |function: &str| WAITS.iter().any(|part| function.contains(part));
            let mut functions = functions.peekable();
            // Where no function has a name nobody knows; most wait for work.
            if functions.peek().is_none() || functions.any(waits) { Why::Idle } else { Why::Lock }
        }
        // Go's monitor, which sleeps between its looks.
        Why::Sleep if functions.any(|function| function == "runtime.sysmon") => Why::Idle,
        why => why,
    }
}

fn find(number: u32) -> Option<&'static (i64, &'static str, Why, bool)> {
    CALLS.iter().find(|(known, ..)| *known == i64::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_futex_is_a_lock_unless_a_function_waits_for_work() {
        let futex = Some(libc::SYS_futex as u32);
        assert_eq!(why(futex, ["__lll_lock_wait", "pthread_mutex_lock"].into_iter()), Why::Lock);
        assert_eq!(why(futex, ["__futex_abstimed_wait", "pthread_cond_wait"].into_iter()), Why::Idle);
        assert_eq!(why(futex, [].into_iter()), Why::Idle);
        assert_eq!(why(None, [].into_iter()), Why::Fault);
        let sleep = Some(libc::SYS_nanosleep as u32);
        assert_eq!(why(sleep, ["runtime.usleep", "runtime.sysmon"].into_iter()), Why::Idle);
        assert_eq!(why(sleep, ["usleep", "main"].into_iter()), Why::Sleep);
        assert_eq!(name(Some(libc::SYS_fsync as u32)), "fsync");
        assert_eq!(name(Some(libc::SYS_linkat as u32)), "linkat");
        assert_eq!(name(Some(100_000)), "system call 100000");
    }

    #[test]
    fn no_call_is_listed_twice() {
        let mut numbers: Vec<_> = CALLS.iter().map(|(number, ..)| number).collect();
        numbers.sort();
        numbers.dedup();
        assert_eq!(numbers.len(), CALLS.len());
    }
}
