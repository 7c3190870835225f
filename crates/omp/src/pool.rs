// SPDX-License-Identifier: MIT OR Apache-2.0
//! A primary thread's team, kept with its helpers from region to region; and the team of one thread.

use std::cell::Cell;
use std::ops::Deref;

use linux::Linux;
use platform::Platform;
use sync::barrier::{BWakeful, RawBarrier, RawBarrierDynamic};
use sync::openmp::{ForkJoin, Holders};

use crate::icv::Icv;
use crate::memory::Own;
use crate::named::Named;
use crate::team::Team;

/// A primary thread's team and helpers.
pub struct Pool {
    pub team: Team,
    pub fork: ForkJoin<Linux>,
    pub(crate) helpers: Cell<u32>,
    /// Threads of the team's barrier.
    pub(crate) parties: Cell<u32>,
    /// Regions in a row that wanted fewer.
    pub(crate) surplus: Cell<u32>,
    /// Its primary thread, helpers that have not ended, and those from outside who complete a task.
    pub(crate) holders: Holders<Linux>,
}

// SAFETY: as for teams.
unsafe impl Sync for Pool {}

/// A pool that stays because of this.
pub struct Hold(*const Pool);

// SAFETY: the last holder frees it.
unsafe impl Send for Hold {}

impl Hold {
    pub(crate) fn again(pool: &Pool) -> Self {
        pool.holders.add();
        Self(pool)
    }

    /// Of this team's pool.
    pub(crate) fn of(team: &Team) -> Self {
        // SAFETY: set by `Pool::bare`, of which the team is a part.
        Self::again(unsafe { &*team.pool.cast::<Pool>() })
    }
}

impl Deref for Hold {
    type Target = Pool;

    #[inline(always)]
    fn deref(&self) -> &Pool {
        // SAFETY: held.
        unsafe { &*self.0 }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.holders.let_go() {
            // SAFETY: from `Pool::bare`, and nobody else has it.
            drop(unsafe { Own::from_raw(self.0.cast_mut()) });
        }
    }
}

/// COST: regions in a row for which helpers are woken that are not wanted, before they end: a thread costs
/// about as much as so many. No cell known.
const SURPLUS_REGIONS: u32 = 32;

impl Pool {
    pub fn make() -> Hold {
        let pool = Self::bare();
        pool.team.generation.set(Linux::generation());
        pool
    }

    fn bare() -> Hold {
        let mut pool = Own::needed("a team", || Self {
            team: Team::new(),
            fork: ForkJoin::default(),
            helpers: Cell::new(0),
            parties: Cell::new(1),
            surplus: Cell::new(0),
            holders: Holders::new(1),
        });
        pool.team.fork = &raw const pool.fork;
        pool.team.pool = (&raw const *pool).cast();
        Hold(pool.into_raw())
    }

    /// For an initial thread or a target region: one that is in the team alone.
    pub(crate) fn root(icv: Icv) -> Hold {
        let pool = Self::bare();
        pool.team.be_root(icv);
        pool
    }

    /// Are its helpers in this process?
    pub fn is_here(&self) -> bool {
        self.helpers.get() == 0 || !self.team.is_alone()
    }

    #[cold]
    pub(crate) fn resize(&self, size: u32) {
        let (barrier, was) = (&self.team.meeting.0.barrier, self.parties.replace(size));
        (was..size).for_each(|_| _ = barrier.join());
        (size..was).for_each(|_| barrier.arrive_and_drop());
        // SAFETY: between regions.
        unsafe {
            *self.team.early_barrier.0.get() = BWakeful::new(size);
            *self.team.named.get() = Named::new(size);
        }
    }

    /// Lets the helpers go on.
    #[inline]
    pub fn release(&self, size: u32) {
        let helpers = self.helpers.get();
        let surplus = if size <= helpers { self.surplus.get() + 1 } else { 0 };
        let keep = if surplus >= SURPLUS_REGIONS { size - 1 } else { helpers };
        self.surplus.set(surplus);
        self.helpers.set(keep);
        self.fork(keep);
    }

    #[inline]
    pub fn fork(&self, keep: u32) {
        self.fork.fork(keep, |forks| self.team.tasks.begin_epoch(forks));
    }

    /// Ends the helpers.
    pub fn dismiss(&self) {
        if self.helpers.replace(0) > 0 {
            self.fork(0);
        }
    }
}
