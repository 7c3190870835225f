// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a CPU quota kept the program from running: `wakeful run -v` says so when the program has ended.
//!
//! By then this process has become the program. So a process of its own waits for the end, without a quota none. It is no child of the program,
//! has none of its descriptors but standard error, and ignores the signals of the terminal, which end the program.

use std::os::fd::RawFd;

/// Begins to watch what this process becomes.
pub fn watch() {
    let Some(before) = linux::throttling() else { return };
    // SAFETY: plain numbers. The child only waits, and ends by _exit; it is one of a process in which at most one other thread is, which waits
    // for us (stack.rs).
    unsafe {
        let program = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as RawFd;
        if program < 0 {
            return;
        }
        let between = libc::fork();
        if between == 0 {
            if libc::fork() == 0 {
                wait_for_end(leave_alone(program));
                if let Some(after) = linux::throttling() {
                    let all = after.since(&before);
                    eprintln!(
                        "wakeful: throttled in {} of {} periods of its quota",
                        all.throttled, all.periods
                    );
                }
            }
            libc::_exit(0);
        }
        libc::close(program);
        while between > 0
            && libc::waitpid(between, std::ptr::null_mut(), 0) < 0
            && *libc::__errno_location() == libc::EINTR
        {}
    }
}

/// Nobody is to wait for us, or to hear from us before the end. Returns the program's descriptor, under its new number.
fn leave_alone(program: RawFd) -> RawFd {
    const KEPT: RawFd = 3;

    // SAFETY: plain numbers and a C string.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in [0, 1] {
            libc::dup2(nothing, fd);
        }
        libc::dup2(program, KEPT);
        libc::syscall(libc::SYS_close_range, KEPT + 1, libc::c_uint::MAX, 0);
        libc::chdir(c"/".as_ptr());
    }
    KEPT
}

/// The program's end makes its descriptor readable.
fn wait_for_end(program: RawFd) {
    let mut end = libc::pollfd { fd: program, events: libc::POLLIN, revents: 0 };
    // SAFETY: one, and it lives.
    while unsafe { libc::poll(&mut end, 1, -1) } < 0 {}
}
