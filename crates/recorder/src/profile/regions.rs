// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenMP regions: how long each took, what its threads did meanwhile, and what its beginning and end cost.
//!
//! A region begins with [`Kind::Fork`] and ends with [`Kind::Join`], both of its first thread. Between the
//! two each thread of its team begins and ends its part. What a thread waits for at barriers inside, and at
//! the end, is [`super::waits`]' affair, and counts here, too.
//!
//! What a thread did since it began its part is a difference of two sums. So a region may take any time.
//!
//! After a region that is over soon, some are counted only, however long they take.

use abi::profile::{Class, Kind};

use super::events::Event;
use super::history::{Done, History, Split};
use super::waits::{Key, Shares};
use crate::fast::HashMap;

/// BOUND: regions at one time. A program that writes nonsense does not fill the memory.
const MOST_OPEN: usize = 10_000;
/// BOUND: places that begin regions.
const MOST_SITES: usize = 20_000;
/// BOUND: regions inside each other, that one thread is in.
const MOST_DEEP: usize = 64;

/// All regions that one place begins. Times of threads are sums over the team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Regions that were told.
    pub told: u64,
    /// Those between, of which only this is known.
    pub untold: u64,
    /// Threads of those told, together, and of the greatest.
    pub threads: u64,
    /// See `threads`.
    pub most_threads: u64,
    /// From the beginning to the end.
    pub elapsed_ns: u64,
    /// The time of those that were not told, as far as they are like those told that were over soon. They lie
    /// between two that were told.
    pub untold_ns: u64,
    /// Each region's time, so often as it had threads: what shares of the team's time are shares of.
    pub team_ns: u64,
    /// What the threads of those that were not told waited at barriers, as far as they are like those told.
    pub untold_waited: Shares,
    /// The longest.
    pub longest_ns: u64,
    /// Each thread's time from the beginning until it begins its part.
    pub fork_ns: u64,
    /// From the end of the last part to the region's.
    pub join_ns: u64,
    /// What the threads did in their parts.
    pub did: Split,
    /// Time that they waited at barriers inside and at the end, by why.
    pub waited: Shares,
    /// Those told that were over soon: how many, and their time.
    soon: (u64, u64),
    soon_waited: Shares,
    last_ns: u64,
}

/// BOUND: after one that took less, some are not told: the twin of SOON_NS in profile/src/openmp.c.
const SOON_NS: u64 = 100_000;

/// A region that goes on.
struct Open {
    site: u32,
    from_ns: u64,
    untold: u64,
    parts: Vec<Part>,
    waited: Shares,
}

struct Part {
    thread: u32,
    from_ns: u64,
    from: Done,
    /// What it did, and until when, if it is done.
    done: Option<(Split, u64)>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Regions {
    all: HashMap<u32, Region>,
    open: HashMap<Key, Open>,
    /// By thread: the regions that it is in, the innermost last.
    inside: HashMap<u32, Vec<Key>>,
}

impl Regions {
    /// Takes an event, in the order of their times, and the waits at barriers that it has ended.
    pub fn apply(
        &mut self,
        event: &Event,
        image: u32,
        site: u32,
        over: &mut Vec<(u32, Class, Shares)>,
        history: &History,
    ) {
        self.waited(over);
        if event.class != Class::Region {
            return;
        }
        let key = Key { image, object: event.object, class: event.class };
        let now_ns = event.time_ns;
        match event.kind {
            Kind::Fork => self.fork(key, site, now_ns, event.number.into()),
            Kind::Begin => self.begin(key, event.thread, now_ns, history),
            Kind::End => self.end(key, event.thread, now_ns, history),
            Kind::Join => self.join(key, now_ns, event.number != 0, history),
            _ => {}
        }
    }

    fn waited(&mut self, over: &mut Vec<(u32, Class, Shares)>) {
        for (thread, class, shares) in over.drain(..) {
            if class == Class::Barrier {
                continue;
            }
            let innermost = self.inside.get(&thread).and_then(|keys| keys.last());
            if let Some(open) = innermost.and_then(|key| self.open.get_mut(key)) {
                open.waited.add(&shares);
            }
        }
    }

    fn fork(&mut self, key: Key, site: u32, from_ns: u64, untold: u64) {
        // What began there before has ended without a word.
        self.forget(key);
        if self.open.len() < MOST_OPEN {
            let waited = Shares::default();
            self.open.insert(key, Open { site, from_ns, untold, parts: Vec::new(), waited });
        }
    }

    fn forget(&mut self, key: Key) -> Option<Open> {
        let open = self.open.remove(&key)?;
        for part in &open.parts {
            if let Some(keys) = self.inside.get_mut(&part.thread) {
                keys.retain(|one| *one != key);
                if keys.is_empty() {
                    self.inside.remove(&part.thread);
                }
            }
        }
        Some(open)
    }

    fn begin(&mut self, key: Key, thread: u32, from_ns: u64, history: &History) {
        let Some(open) = self.open.get_mut(&key) else { return };
        if open.parts.iter().any(|part| part.thread == thread) {
            return;
        }
        open.parts.push(Part { thread, from_ns, from: history.mark(thread, from_ns), done: None });
        let keys = self.inside.entry(thread).or_default();
        if keys.len() < MOST_DEEP {
            keys.push(key);
        }
    }

    fn end(&mut self, key: Key, thread: u32, to_ns: u64, history: &History) {
        let parts = self.open.get_mut(&key).into_iter().flat_map(|open| &mut open.parts);
        for part in parts.filter(|part| part.thread == thread && part.done.is_none()) {
            part.done = Some((history.since(thread, &part.from, to_ns), to_ns));
        }
    }

    /// A team with tasks works until the end.
    fn join(&mut self, key: Key, to_ns: u64, has_tasks: bool, history: &History) {
        let Some(open) = self.forget(key) else { return };
        if self.all.len() >= MOST_SITES && !self.all.contains_key(&open.site) {
            return;
        }
        let all = self.all.entry(open.site).or_default();
        let length_ns = to_ns.saturating_sub(open.from_ns);
        if length_ns < SOON_NS {
            all.soon = (all.soon.0 + 1, all.soon.1 + length_ns);
            all.soon_waited.add(&open.waited);
        }
        let between_ns = open.from_ns.saturating_sub(all.last_ns);
        let like_ns = all.soon.1.checked_div(all.soon.0).unwrap_or(0).saturating_mul(open.untold);
        all.untold_ns += like_ns.min(between_ns);
        all.untold_waited = all.soon_waited.scaled(all.untold_ns, all.soon.1);
        all.last_ns = to_ns;
        all.told += 1;
        all.untold += open.untold;
        all.threads += open.parts.len() as u64;
        all.most_threads = all.most_threads.max(open.parts.len() as u64);
        all.elapsed_ns += length_ns;
        all.team_ns += length_ns.saturating_mul(open.parts.len() as u64);
        all.longest_ns = all.longest_ns.max(length_ns);
        all.waited.add(&open.waited);
        let mut last_ns = open.from_ns;
        for part in &open.parts {
            let done = part.done.filter(|_| !has_tasks);
            let (did, end_ns) =
                done.unwrap_or_else(|| (history.since(part.thread, &part.from, to_ns), to_ns));
            all.did.add(did);
            all.fork_ns += part.from_ns.saturating_sub(open.from_ns);
            last_ns = last_ns.max(end_ns);
        }
        all.join_ns += to_ns.saturating_sub(last_ns);
    }

    /// The recording ends, and with it these waits. What goes on, goes on until now.
    pub fn finish(
        mut self,
        now_ns: u64,
        over: &mut Vec<(u32, Class, Shares)>,
        history: &History,
    ) -> HashMap<u32, Region> {
        self.waited(over);
        let open: Vec<Key> = self.open.keys().copied().collect();
        open.into_iter().for_each(|key| self.join(key, now_ns, false, history));
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, What};

    fn event(kind: Kind, thread: u32, time_ns: u64, number: u32) -> Event {
        Event {
            time_ns,
            process: 1,
            thread,
            kind,
            class: Class::Region,
            shared: false,
            writer: false,
            number,
            object: 64,
            caller: 8,
        }
    }

    #[test]
    fn what_the_team_did_and_waited_is_added_up() {
        let mut history = History::default();
        let mut at = |thread, time_ns, what| history.apply(&Record { process: 1, thread, time_ns, what });
        at(1, 0, What::In);
        at(2, 0, What::In);
        at(2, 150, What::Preempted);
        at(2, 170, What::In);
        let mut regions = Regions::default();
        let mut over = Vec::new();
        let waited = Shares { free_ns: 5, ..Shares::default() };
        let steps = [
            event(Kind::Fork, 1, 100, 3),
            event(Kind::Begin, 1, 110, 0),
            event(Kind::Begin, 2, 130, 0),
            event(Kind::End, 1, 160, 0),
            event(Kind::End, 2, 200, 0),
        ];
        for step in steps {
            regions.apply(&step, 1, 7, &mut over, &history);
        }
        over = vec![(1, Class::Region, waited), (2, Class::Team, waited), (2, Class::Barrier, waited)];
        regions.apply(&event(Kind::Join, 1, 210, 0), 1, 7, &mut over, &history);
        // One that has no beginning is none.
        regions.apply(&event(Kind::Join, 1, 220, 0), 1, 7, &mut over, &history);
        assert!(regions.inside.is_empty() && over.is_empty());
        let all = regions.finish(300, &mut over, &history);
        let region = all[&7];
        assert_eq!((region.told, region.untold, region.threads, region.most_threads), (1, 3, 2, 2));
        assert_eq!((region.elapsed_ns, region.fork_ns, region.join_ns), (110, 10 + 30, 10));
        assert_eq!(region.team_ns, 220);
        // Three of 110 find no room in the 100 before.
        assert_eq!(region.untold_ns, 100);
        assert_eq!((region.did.running_ns, region.did.preempted_ns), (50 + 50, 20));
        // As much as those told that take 110.
        assert_eq!((region.waited.free_ns, region.untold_waited.free_ns), (10, 9));
    }

    #[test]
    fn one_large_team_among_small_ones_waits_for_no_more_than_its_time() {
        let (mut regions, history, mut over) = (Regions::default(), History::default(), Vec::new());
        for time_ns in 0..8 {
            regions.apply(&event(Kind::Fork, 1, time_ns, 0), 1, 7, &mut over, &history);
            regions.apply(&event(Kind::Begin, 1, time_ns, 0), 1, 7, &mut over, &history);
            regions.apply(&event(Kind::Join, 1, time_ns, 0), 1, 7, &mut over, &history);
        }
        regions.apply(&event(Kind::Fork, 1, 1_000, 0), 1, 7, &mut over, &history);
        for thread in 1..=4 {
            regions.apply(&event(Kind::Begin, thread, 1_000, 0), 1, 7, &mut over, &history);
            over.push((thread, Class::Region, Shares { free_ns: 900, ..Shares::default() }));
        }
        regions.apply(&event(Kind::Join, 1, 2_000, 0), 1, 7, &mut over, &history);
        let region = regions.finish(3_000, &mut over, &history)[&7];
        assert_eq!((region.waited.free_ns, region.team_ns, region.elapsed_ns), (3_600, 4_000, 1_000));
    }

    #[test]
    fn a_team_works_on_its_tasks_until_the_end() {
        let (mut regions, mut history, mut over) = (Regions::default(), History::default(), Vec::new());
        history.apply(&Record { process: 1, thread: 1, time_ns: 0, what: What::In });
        for (kind, time_ns, number) in [(Kind::Fork, 10, 0), (Kind::Begin, 20, 0), (Kind::End, 30, 0)] {
            regions.apply(&event(kind, 1, time_ns, number), 1, 7, &mut over, &history);
        }
        regions.apply(&event(Kind::Join, 1, 100, 1), 1, 7, &mut over, &history);
        let region = regions.finish(200, &mut over, &history)[&7];
        assert_eq!((region.did.running_ns, region.join_ns), (80, 0));
    }

    #[test]
    fn what_goes_on_at_the_end_is_told() {
        let (mut regions, history, mut over) = (Regions::default(), History::default(), Vec::new());
        regions.apply(&event(Kind::Fork, 1, 100, 0), 1, 7, &mut over, &history);
        regions.apply(&event(Kind::Begin, 1, 110, 0), 1, 7, &mut over, &history);
        over.push((1, Class::Team, Shares { free_ns: 40, ..Shares::default() }));
        let all = regions.finish(200, &mut over, &history);
        assert_eq!((all[&7].told, all[&7].elapsed_ns, all[&7].did.unknown_ns), (1, 100, 90));
        assert_eq!(all[&7].waited.free_ns, 40);
    }
}
