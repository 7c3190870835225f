// SPDX-License-Identifier: MIT OR Apache-2.0
//! `parallel`, `barrier`, `cancel` and `teams`.

use std::ffi::{c_int, c_uint, c_void};

use omp::fork::{begin, end};
use omp::region::{cancel, cancellation_point, league};
use omp::team::Function;
use omp::thread::me;

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_parallel(function: Function, data: *mut c_void, threads: c_uint, flags: c_uint) {
    // SAFETY: the compiler's function and data.
    unsafe {
        begin(function, data, threads, flags, None);
        function(data);
    }
    end();
}

// Of compilers before gcc 4.9: the primary thread runs the region between these two.
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_parallel_start(function: Function, data: *mut c_void, threads: c_uint) {
    // SAFETY: the compiler's function and data.
    unsafe { begin(function, data, threads, 0, None) };
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_end() {
    end();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_barrier() {
    let thread = me();
    thread.team().meet(thread);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_barrier_cancel() -> bool {
    let thread = me();
    thread.team().meet_or_cancelled(thread)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_teams_reg(
    function: Function,
    data: *mut c_void,
    teams: c_uint,
    limit: c_uint,
    _flags: c_uint,
) {
    // SAFETY: the compiler's function and data.
    unsafe { league(function, data, teams, teams, limit) };
}

/// `teams` in a target region that runs on the host: the region is each of the teams in turn.
#[unsafe(no_mangle)]
extern "C" fn GOMP_teams4(_least: c_uint, most: c_uint, limit: c_uint, first: bool) -> bool {
    let thread = me();
    if first {
        if limit > 0 {
            thread.change_icv(|icv| icv.thread_limit = limit);
        }
        thread.league.set((0, most.max(1)));
        return true;
    }
    let (team, teams) = thread.league.get();
    thread.league.set(if team + 1 < teams { (team + 1, teams) } else { (0, 1) });
    team + 1 < teams
}

/// The same of older compilers, whose regions run once.
#[unsafe(no_mangle)]
extern "C" fn GOMP_teams(_teams: c_uint, limit: c_uint) {
    let thread = me();
    if limit > 0 {
        thread.change_icv(|icv| icv.thread_limit = limit);
    }
    thread.league.set((0, 1));
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_cancel(which: c_int, really: bool) -> bool {
    cancel(which, really)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_cancellation_point(which: c_int) -> bool {
    cancellation_point(which)
}
