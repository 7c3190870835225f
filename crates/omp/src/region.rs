// SPDX-License-Identifier: MIT OR Apache-2.0
//! `parallel`, `barrier`, `cancel` and `teams`.

use std::ffi::{c_int, c_uint, c_void};

use crate::icv::settings;
use crate::routines::default_league;
use crate::team::{Function, begin, end};
use crate::thread::me;
use crate::{loops, tasks};

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

pub const PARALLEL: c_int = 1;
pub const LOOP: c_int = 2;
pub const SECTIONS: c_int = 4;
pub const TASKGROUP: c_int = 8;

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_cancel(which: c_int, really: bool) -> bool {
    if !settings().cancellation {
        return false;
    }
    if !really {
        return GOMP_cancellation_point(which);
    }
    let thread = me();
    match which {
        PARALLEL => thread.team().cancel(),
        LOOP | SECTIONS => loops::cancel(thread),
        TASKGROUP => tasks::cancel_group(thread),
        _ => return false,
    }
    true
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_cancellation_point(which: c_int) -> bool {
    if !settings().cancellation {
        return false;
    }
    let thread = me();
    thread.team().is_cancelled()
        || match which {
            LOOP | SECTIONS => loops::is_cancelled(thread),
            TASKGROUP => tasks::group_is_cancelled(thread),
            _ => false,
        }
}

// --- teams -------------------------------------------------------------------

/// Runs `function` for each team of a league, one after the other: the teams of a league may not wait for each other.
///
/// # Safety
/// `function` may be called with `data`.
pub unsafe fn league(function: Function, data: *mut c_void, least: c_uint, most: c_uint, limit: c_uint) {
    let thread = me();
    let (teams, threads) = default_league();
    let teams = if most > 0 { most } else { teams.max(least).max(1) };
    let limit = if limit > 0 { limit } else { threads };
    let before = thread.icv();
    if limit > 0 {
        thread.change_icv(|icv| icv.thread_limit = limit);
    }
    let league = thread.league.get();
    for team in 0..teams {
        thread.league.set((team, teams));
        // SAFETY: as promised.
        unsafe { function(data) };
    }
    thread.league.set(league);
    thread.task().icv.set(before);
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
