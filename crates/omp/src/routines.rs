// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the routines of OpenMP's API do that are not elsewhere.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::icv::{Kind, MONOTONIC, Schedule, settings};
use crate::team::Context;
use crate::text::Shown;
use crate::thread::me;

/// A variable of the program's that a routine may set.
pub struct Own {
    /// 0: as the environment has it.
    value: AtomicU32,
    default: fn() -> u32,
}

impl Own {
    const fn new(default: fn() -> u32) -> Self {
        Self { value: AtomicU32::new(0), default }
    }

    pub fn get(&self) -> u32 {
        match self.value.load(Relaxed) {
            0 => (self.default)(),
            value => value,
        }
    }

    pub fn set(&self, value: c_int) {
        self.value.store(value.max(0) as u32, Relaxed);
    }
}

pub static MAX_TEAMS: Own = Own::new(|| settings().teams);
pub static TEAMS_LIMIT: Own = Own::new(|| settings().teams_thread_limit);

/// Teams of a league, and threads of each, where no clause says how many; 0: neither was set.
pub fn default_league() -> (u32, u32) {
    (MAX_TEAMS.get(), TEAMS_LIMIT.get())
}

pub fn team_number() -> u32 {
    me().league.get().0
}

pub fn teams() -> u32 {
    me().league.get().1
}

/// The context of the calling thread at a level, from 0.
fn at_level(level: c_int) -> Option<Context> {
    let mut context = me().context();
    loop {
        // SAFETY: the contexts outside are there until those inside are over.
        let team = unsafe { &*context.team };
        match (team.level() as c_int).cmp(&level) {
            std::cmp::Ordering::Equal => return Some(context),
            std::cmp::Ordering::Less => return None,
            std::cmp::Ordering::Greater => context = team.outside()?,
        }
    }
}

/// The number of the calling thread's ancestor at a level; -1 if there is no such level.
pub fn ancestor(level: c_int) -> c_int {
    // SAFETY: as in `at_level`.
    at_level(level).map_or(-1, |context| unsafe { &*context.member }.number() as c_int)
}

/// The size of the team at a level; -1 if there is no such level.
pub fn get_team_size(level: c_int) -> c_int {
    // SAFETY: as in `at_level`.
    at_level(level).map_or(-1, |context| unsafe { &*context.team }.size() as c_int)
}

/// What `schedule(runtime)` means from here on; numbers as in `omp_sched_t`.
pub fn set_schedule(kind: u32, chunk: c_int) {
    if let Some(known) = Kind::from_u32(kind & !MONOTONIC) {
        me().change_icv(|icv| {
            // libgomp leaves the chunk as it was.
            let chunk = if known == Kind::Auto { icv.schedule.chunk } else { chunk };
            let chunk = known.chunk(Some(chunk));
            icv.schedule = Schedule { kind: known, chunk, monotonic: kind & MONOTONIC != 0 };
        });
    }
}

/// Ends the helpers of the calling thread. 0 if it could be done.
pub fn pause(kind: c_int) -> c_int {
    let thread = me();
    if !matches!(kind, 1 | 2) || thread.team().level() > 0 {
        return -1;
    }
    thread.release_helpers();
    0
}

/// What an `error` directive says when it is come to.
pub fn said_by_program(fatal: bool, text: &[u8]) {
    let kind = if fatal { "fatal" } else { "warning" };
    let colon = if text.is_empty() { "" } else { ": " };
    eprintln!("wakeful: the program's `error` directive ({kind}){colon}{}", Shown(text));
    if fatal {
        std::process::exit(1);
    }
}
