// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which threads the view watches: those of whom others ask often enough to pay for it.

use core::sync::atomic::Ordering::*;

use abi::{RunState, View};
use platform::{ThreadId, ke1};

use super::space::{Chosen, Registry, VIEWS};
use crate::view::bpf::Bpf;
use crate::view::perf::Perf;
use crate::view::{Attached, Source, none};

/// Values of a block's `watch`. Not yet, or no longer: not worth it.
pub(super) const UNWATCHED: u32 = 0;
/// Others ask for it. Given up after [`LEASE`] switches, to be earned anew.
pub(super) const ON_DEMAND: u32 = 1;
/// For as long as the thread lives.
pub(super) const ALWAYS: u32 = 2;
/// As [`UNWATCHED`], and it was not worth it because the thread switches so often: asks must be
/// [`RESTLESS_ASKS`] times as many.
pub(super) const RESTLESS: u32 = 4;
/// COST: to find out takes four system calls. No cell known.
const RESTLESS_ASKS: u32 = 32;
/// The view does not take it.
pub(super) const REFUSED: u32 = 3;

/// COST: a thread is watched when others have asked for its run state this often, and so much oftener than it
/// switched since they began that it pays: a waiter asks about every 300 ns, which it may waste, and perf
/// adds 1.3 to 2.1 us to a switch, [`PERF_COSTS`] of those. So the view costs a thread no more than twice
/// what it can save (rent or buy, Karlin et al. 1991). At least this often, because beginning takes 10 us and
/// locked memory. Cell: Python's `Barrier` with 32 threads (`docs/design/mutex.md`).
const ASKED: u32 = 32;
/// See [`ASKED`].
const PERF_COSTS: u32 = 5;
/// COST: bpf adds 60 ns to a switch: so many are worth an ask, and more. No cell known.
const BPF_SAVES: u32 = 8;
/// COST: ns. A thread that has run for less than this between two switches, over its life, is not watched by
/// perf: it would pay more than a twentieth, and who waits for it waits for a switch or two. Cell: the same
/// as of [`ASKED`].
const RUN_NS: u64 = 30_000;
/// COST: after so many switches (perf: 0.4 ms of their time) a thread must earn it anew: ending it and
/// beginning again takes a twentieth of that. Cell: none, 1,000 are as good (`docs/design/mutex.md`).
const LEASE: u32 = 256;

macro_rules! dispatch {
    ($view:expr, $function:ident($slot:expr)) => {
        match $view {
            View::Bpf => Bpf::$function($slot),
            View::Perf => Perf::$function($slot),
            View::None | View::Unset => none::None::$function($slot),
        }
    };
}

impl Registry {
    /// The thread, not watched, is to earn it anew.
    pub(super) fn forget(&self, id: ThreadId, switches: u32) {
        let own = self.own(id);
        own.watch.store(UNWATCHED, Relaxed);
        own.asked.store(0, Relaxed);
        own.switched.store(switches, Relaxed);
    }

    /// Is the calling thread watched as it should be?
    #[inline]
    pub(super) fn content(&self, id: ThreadId, always: bool) -> bool {
        let own = self.own(id);
        match own.watch.load(Relaxed) {
            UNWATCHED => !always && own.asked.load(Relaxed) < ASKED,
            RESTLESS => !always && own.asked.load(Relaxed) < ASKED * RESTLESS_ASKS,
            ON_DEMAND => !always && self.watched_switches(id) < LEASE,
            _ => true,
        }
    }

    /// The calling thread's switches since it is watched.
    pub(super) fn watched_switches(&self, id: ThreadId) -> u32 {
        dispatch!(self.view(), switches(self.slot(id))).wrapping_sub(self.own(id).switched.load(Relaxed))
    }

    /// Has the calling thread watched, or no longer, if it is not [`Registry::content`].
    pub(super) fn reconsider(&self, id: ThreadId, always: bool) {
        let own = self.own(id);
        match (own.watch.load(Relaxed), always) {
            (UNWATCHED | RESTLESS, true) => self.watch(id, ALWAYS),
            (ON_DEMAND, true) => own.watch.store(ALWAYS, Relaxed),
            (UNWATCHED | RESTLESS, false) => {
                let asked = own.asked.load(Relaxed);
                if asked < ASKED {
                    return;
                }
                let (switches, run_ns) = switches();
                let switched = switches.wrapping_sub(own.switched.load(Relaxed));
                let (price, restless) = match self.view() {
                    View::Bpf => (switched / BPF_SAVES, false),
                    _ => (switched.saturating_mul(PERF_COSTS), run_ns < RUN_NS),
                };
                if !restless && asked >= price {
                    self.watch(id, ON_DEMAND);
                } else {
                    self.forget(id, switches);
                    if restless {
                        own.watch.store(RESTLESS, Relaxed);
                    }
                }
            }
            (ON_DEMAND, false) if self.watched_switches(id) >= LEASE => {
                self.detach(id);
                ke1::set_run_state(&self.thread(id).state, RunState::Unknown);
                self.forget(id, switches().0);
            }
            _ => {}
        }
    }

    /// Lets the view watch the calling thread, for this reason, falling back from view to view where one
    /// ends for good.
    pub(super) fn watch(&self, id: ThreadId, why: u32) {
        let (block, own) = (self.thread(id), self.own(id));
        own.watch.store(REFUSED, Relaxed);
        let mut lease = self.local().next_lease.fetch_add(1, Relaxed);
        if lease == 0 {
            lease = self.local().next_lease.fetch_add(1, Relaxed);
        }
        loop {
            let chosen = self.chosen();
            let view = chosen.view();
            // Of this view's arena: another one may have taken the place of that of the view before.
            block.lease.store(lease, Relaxed);
            if view == View::Perf && self.local().no_more.load(Relaxed) != 0 {
                return;
            }
            let mut attached = dispatch!(view, attach(self.slot(id)));
            if attached == Attached::NotThis && view == View::Perf && self.reclaim() {
                // Dead threads may have held the locked memory that this one lacks.
                attached = Perf::attach(self.slot(id));
            }
            match attached {
                Attached::Never => self.lose(chosen),
                Attached::Yes => {
                    if view == View::Perf {
                        own.ring.store(1, Relaxed);
                        ke1::set_run_state(&block.state, RunState::Running);
                    }
                    own.switched.store(dispatch!(view, switches(self.slot(id))), Relaxed);
                    own.watch.store(why, Relaxed);
                    return;
                }
                Attached::NotThis => {
                    ke1::set_run_state(&block.state, RunState::Unknown);
                    return;
                }
            }
        }
    }

    /// The calling thread is watched no longer, if it was.
    pub(super) fn unwatch(&self, id: ThreadId) {
        if matches!(self.own(id).watch.load(Relaxed), ON_DEMAND | ALWAYS) {
            self.detach(id);
        }
    }

    fn detach(&self, id: ThreadId) {
        if self.view() == View::Bpf {
            Bpf::detach(self.slot(id));
        }
        self.end_ring(id);
    }

    /// The block's ring is no event's any more, whichever view watches now.
    pub(super) fn end_ring(&self, id: ThreadId) {
        if self.own(id).ring.swap(0, Relaxed) != 0 {
            Perf::detach(self.slot(id));
        }
    }

    /// The view will watch no further thread: goes over to the next one, once, whoever comes first.
    pub(super) fn lose(&self, chosen: Chosen) {
        let (local, view) = (self.local(), chosen.view());
        if view == View::Perf {
            local.no_more.store(1, Relaxed);
            // Those that are watched already remain so.
            if self.ids().any(|id| self.thread(id).run_state() != RunState::Unknown) {
                return;
            }
        }
        // A view that came back is no reason to ask perf again.
        let perf = view == View::Bpf && local.no_more.load(Relaxed) == 0;
        let next = if perf { View::Perf } else { View::None };
        if !self.go_over(chosen, next) {
            return;
        }
        if view == View::Bpf {
            for id in self.ids() {
                // If the kernel still writes, then from now on under leases that do not hold.
                self.thread(id).lease.store(0, Relaxed);
                ke1::set_run_state(&self.thread(id).state, RunState::Unknown);
            }
            self.change_epoch();
        }
    }

    /// All threads register again, with the new view, when they next come by.
    pub(super) fn change_epoch(&self) {
        let epoch = &self.local().epoch;
        let next = |now: u32| (now >> VIEWS << VIEWS) | ((now + 1) % (1 << VIEWS));
        // ORDER: Release, pairs with the Acquire in `register_slow`; the view, and what threads enrol with,
        // come before.
        let _ = epoch.fetch_update(Release, Relaxed, |now| Some(next(now).max(now >> VIEWS << VIEWS | 1)));
    }
}

/// The calling thread's context switches, modulo 2^32, and for how many ns it has run between two of them.
pub(super) fn switches() -> (u32, u64) {
    // SAFETY: zeros are a valid rusage, which the call fills; it cannot fail.
    let usage = unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::syscall(libc::SYS_getrusage, libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    let switches = usage.ru_nvcsw.wrapping_add(usage.ru_nivcsw) as u64;
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    (switches as u32, (ns(usage.ru_utime) + ns(usage.ru_stime)) / switches.max(1))
}

#[cfg(test)]
mod tests {
    use super::super::space::build;
    use super::*;

    /// A thread found that the server had ended, and says so when the next server's view is there.
    #[test]
    fn a_view_that_came_back_is_not_lost_with_the_one_before() {
        let registry = build(View::Bpf).unwrap();
        let first = registry.chosen();
        registry.lose(first);
        assert_eq!(registry.view(), View::Perf);
        registry.set_view(View::Bpf);
        registry.lose(first);
        assert_eq!(registry.view(), View::Bpf);
        registry.lose(registry.chosen());
        assert_ne!(registry.view(), View::Bpf);
    }
}
