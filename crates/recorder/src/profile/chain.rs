// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whom a wait was for, what that thread did meanwhile, and for whom it waited itself.

use std::collections::VecDeque;

use super::history::{Did, History, Split};
use super::waits::{Key, Now, Shares, WHOM, Wait};
use crate::fast::HashMap;

/// BOUND: threads of one chain.
const MOST_LINKS: usize = 6;
/// BOUND: waits of each thread that are kept, and how long they are at least.
const MOST_KEPT: usize = 8;
const LEAST_NS: u64 = 20_000;

/// A thread for which the one before waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The thread.
    pub thread: u32,
    /// What it did in that time.
    pub did: Split,
    /// Another thread of the program that took its processor, for most of the time in which such ones had
    /// it. Others of the program may have had it from that one, without a word.
    pub behind: Option<u32>,
    /// What it waited for itself meanwhile, mostly: that, from where and for how long.
    pub waited: Option<(Key, u32, u64)>,
}

/// What each thread has waited for lately.
#[derive(Default)]
pub(super) struct Lately(HashMap<u32, VecDeque<Wait>>);

/// From and to.
type Span = (u64, u64);

impl Lately {
    /// A wait is over.
    pub fn add(&mut self, wait: &Wait) {
        if wait.to_ns - wait.from_ns < LEAST_NS {
            return;
        }
        let kept = self.0.entry(wait.thread).or_default();
        if kept.len() >= MOST_KEPT {
            kept.pop_front();
        }
        kept.push_back(*wait);
    }

    /// Nobody asks about what was before. Of a thread that is gone somebody may: it may have had a lock for
    /// which one waits that is not awake yet.
    pub fn forget(&mut self, before_ns: u64) {
        self.0.retain(|_, kept| kept.back().is_some_and(|last| last.to_ns > before_ns));
    }

    /// The threads behind a wait, beginning with the one that it was for mostly, in these spans. `going_on`:
    /// what a thread waits for still.
    pub fn chain(
        &self,
        wait: &Wait,
        mut spans: Vec<Span>,
        history: &History,
        going_on: impl Fn(u32) -> Option<Wait>,
    ) -> Vec<Link> {
        let mut all: Vec<Link> = Vec::new();
        let mut thread = wait.whom[0].0;
        while thread != 0 && thread != wait.thread && all.len() < MOST_LINKS {
            if all.iter().any(|link| link.thread == thread) {
                break;
            }
            let inner = self.inner(thread, &spans, going_on(thread));
            let waited = inner.map(|(inner, length_ns)| (inner.key, inner.site, length_ns));
            let (did, behind) = did(thread, &spans, history);
            let known_ns = did.running_ns.max(did.preempted_ns).max(did.blocked_ns);
            let waits = waited.is_some_and(|(.., length_ns)| length_ns * 2 > did.total_ns());
            // That says nothing.
            if !all.is_empty() && !waits && did.unknown_ns > known_ns {
                break;
            }
            all.push(Link { thread, did, behind, waited });
            let Some((inner, _)) = inner else { break };
            let (whom, whom_ns) = inner.whom[0];
            // It did not have it for most of that: what it did then says little.
            if whom_ns * 2 <= inner.to_ns - inner.from_ns {
                break;
            }
            thread = whom;
            spans = spans.iter().filter_map(|span| common(*span, (inner.from_ns, inner.to_ns))).collect();
        }
        all
    }

    /// What the thread waited for in these spans for longest, and for how long.
    fn inner(&self, thread: u32, spans: &[Span], going_on: Option<Wait>) -> Option<(Wait, u64)> {
        let length_ns = |wait: &Wait| {
            let parts = spans.iter().filter_map(|span| common(*span, (wait.from_ns, wait.to_ns)));
            parts.map(|(from_ns, to_ns)| to_ns - from_ns).sum::<u64>()
        };
        let kept = self.0.get(&thread).into_iter().flatten().copied().chain(going_on);
        let kept = kept.map(|wait| (wait, length_ns(&wait)));
        kept.max_by_key(|(_, length_ns)| *length_ns).filter(|(_, length_ns)| *length_ns > 0)
    }
}

impl Wait {
    /// Up to this time, without why and for whom.
    pub(super) fn of(thread: u32, now: &Now, to_ns: u64) -> Self {
        Self {
            thread,
            key: now.key,
            site: now.site,
            from_ns: now.since_ns,
            to_ns,
            turns: 0,
            shares: Shares::default(),
            whom: [(0, 0); WHOM],
        }
    }
}

/// When the thread that a wait was for mostly had the lock during it, of those that had it lately.
pub(super) fn spans(holders: &VecDeque<(u32, u64, u64)>, wait: &Wait) -> Vec<Span> {
    let its = holders.iter().filter(|(holder, ..)| *holder == wait.whom[0].0);
    its.filter_map(|&(_, from_ns, to_ns)| common((from_ns, to_ns), (wait.from_ns, wait.to_ns))).collect()
}

/// What both have.
fn common((from_ns, to_ns): Span, (since_ns, until_ns): Span) -> Option<Span> {
    let span = (from_ns.max(since_ns), to_ns.min(until_ns));
    (span.0 < span.1).then_some(span)
}

/// What the thread did in these spans, and behind whom it was mostly.
fn did(thread: u32, spans: &[Span], history: &History) -> (Split, Option<u32>) {
    let mut all = Split::default();
    let mut behind: Vec<(u32, u64)> = Vec::new();
    for &(from_ns, to_ns) in spans {
        all.add(history.split(thread, from_ns, to_ns));
        history.stretches(thread, from_ns, to_ns, |did, by, from_ns, to_ns| {
            if did != Did::Behind {
                return;
            }
            match behind.iter_mut().find(|(known, _)| *known == by) {
                Some((_, sum_ns)) => *sum_ns += to_ns - from_ns,
                None => behind.push((by, to_ns - from_ns)),
            }
        });
    }
    (all, behind.into_iter().max_by_key(|(_, sum_ns)| *sum_ns).map(|(by, _)| by))
}

#[cfg(test)]
mod tests {
    use abi::profile::Class;

    use super::*;
    use crate::record::{Record, What};

    fn wait(thread: u32, object: u64, (from_ns, to_ns): Span, whom: u32) -> Wait {
        let key = Key { image: 1, object, class: Class::Mutex };
        let whom = [(whom, to_ns - from_ns), (0, 0), (0, 0)];
        assert_eq!(whom.len(), WHOM);
        Wait { thread, key, site: object as u32, from_ns, to_ns, turns: 0, shares: Shares::default(), whom }
    }

    /// 1 waits for 2, which waits for 3, which 9 has taken the processor from.
    #[test]
    fn whoever_is_waited_for_and_waits_is_followed() {
        let mut history = History::default();
        let mut at = |time_ns, thread, what| history.apply(&Record { process: 1, thread, time_ns, what });
        at(0, 3, What::In);
        at(50_000, 2, What::In);
        at(100_000, 2, What::Out);
        at(200_000, 3, What::Preempted);
        history.is_behind(3, 9, 200_000);
        history.apply(&Record { process: 1, thread: 3, time_ns: 400_000, what: What::In });
        let mut lately = Lately::default();
        lately.add(&wait(2, 48, (60_000, 90_000), 7));
        lately.add(&wait(2, 32, (110_000, 450_000), 3));
        // Too short to be kept.
        lately.add(&wait(2, 64, (450_000, 451_000), 3));
        let chain =
            lately.chain(&wait(1, 16, (80_000, 460_000), 2), vec![(80_000, 455_000)], &history, |_| None);
        assert_eq!(chain.iter().map(|link| link.thread).collect::<Vec<_>>(), [2, 3]);
        let (key, site, length_ns) = chain[0].waited.unwrap();
        assert_eq!((key.object, site, length_ns), (32, 32, 340_000));
        let [first, second] = [chain[0].did, chain[1].did];
        assert_eq!((first.running_ns, first.blocked_ns), (20_000, 355_000));
        assert_eq!((second.running_ns, second.preempted_ns), (140_000, 200_000));
        assert_eq!((chain[0].behind, chain[1].behind, chain[1].waited), (None, Some(9), None));
        lately.forget(450_000);
        assert_eq!(lately.chain(&wait(1, 16, (80_000, 460_000), 2), vec![], &history, |_| None).len(), 1);
        assert!(lately.chain(&wait(1, 16, (0, 30_000), 1), vec![], &history, |_| None).is_empty());
    }

    #[test]
    fn who_had_it_for_a_small_part_alone_is_not_behind_it() {
        let mut history = History::default();
        history.apply(&Record { process: 1, thread: 3, time_ns: 0, what: What::In });
        let (mut lately, one) = (Lately::default(), wait(2, 32, (0, 100_000), 3));
        let chain = |lately: &Lately, going_on: Option<Wait>| {
            let outer = wait(1, 16, (0, 100_000), 2);
            lately
                .chain(&outer, vec![(0, 100_000)], &history, |thread| going_on.filter(|_| thread == 2))
                .len()
        };
        let [half, most] =
            [50_000, 90_000].map(|its_ns| Wait { whom: [(3, its_ns), (4, 100_000 - its_ns), (0, 0)], ..one });
        lately.add(&half);
        assert_eq!(chain(&lately, None), 1);
        lately.add(&most);
        assert_eq!(chain(&lately, None), 2);
        // It waits still.
        assert_eq!(chain(&Lately::default(), Some(most)), 2);
        // What 8 did is not known.
        assert_eq!(chain(&Lately::default(), Some(wait(2, 32, (0, 100_000), 8))), 1);
    }

    #[test]
    fn threads_that_wait_for_each_other_are_told_once() {
        let mut lately = Lately::default();
        lately.add(&wait(2, 32, (0, 100_000), 3));
        lately.add(&wait(3, 48, (0, 100_000), 2));
        let chain =
            lately.chain(&wait(1, 16, (0, 100_000), 2), vec![(0, 100_000)], &History::default(), |_| None);
        assert_eq!(chain.len(), 2);
    }
}
