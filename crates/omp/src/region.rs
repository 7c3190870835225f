// SPDX-License-Identifier: MIT OR Apache-2.0
//! `parallel`, `barrier`, `cancel` and `teams`.

use std::ffi::{c_int, c_uint, c_void};

use crate::icv::settings;
use crate::routines::default_league;
use crate::team::Function;
use crate::thread::me;
use crate::{groups, loops};

pub const PARALLEL: c_int = 1;
pub const LOOP: c_int = 2;
pub const SECTIONS: c_int = 4;
pub const TASKGROUP: c_int = 8;

pub fn cancel(which: c_int, really: bool) -> bool {
    if !settings().cancellation {
        return false;
    }
    if !really {
        return cancellation_point(which);
    }
    let thread = me();
    match which {
        PARALLEL => thread.team().cancel(),
        LOOP | SECTIONS => loops::cancel(thread),
        TASKGROUP => groups::cancel_group(thread),
        _ => return false,
    }
    true
}

pub fn cancellation_point(which: c_int) -> bool {
    if !settings().cancellation {
        return false;
    }
    let thread = me();
    thread.team().is_cancelled()
        || match which {
            LOOP | SECTIONS => loops::is_cancelled(thread),
            TASKGROUP => groups::group_is_cancelled(thread),
            _ => false,
        }
}

/// Runs `function` for each team of a league, one after the other: the teams of a league may not wait for
/// each other.
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
