// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices: there are none, and what is for one runs here, where all memory is the program's own.

use std::ffi::c_void;

use crate::icv::settings;
use crate::pool::Pool;
use crate::tasks;
use crate::team::Function;
use crate::thread::me;

pub use crate::icv::HOST;

/// Runs a target region as an initial task would: in a team of its own, with the program's variables. `limit`
/// is the clause's, or 0.
///
/// # Safety
/// `function` may be called with `data`.
pub unsafe fn run(function: Function, data: *mut c_void, limit: u32) {
    let thread = me();
    let mut icv = settings().initial;
    if limit > 0 {
        icv.thread_limit = limit;
    }
    let pool = Pool::root(icv);
    let team = &pool.team;
    let (context, league, partition) = (thread.context(), thread.league.get(), thread.location.partition());
    thread.set_context(team.context(0));
    thread.league.set((0, 1));
    thread.location.set_partition(None);
    // SAFETY: as promised.
    unsafe { function(data) };
    tasks::finish(team, thread);
    thread.location.set_partition(Some(partition));
    thread.league.set(league);
    thread.set_context(context);
}
