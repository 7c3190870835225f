// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches that are full at some point: sets, ways, and the least recently used line goes.
//!
//! Each processor has a cache of its own. Where the description names a *shared* one, a group of processors
//! has it behind those, and it fills with what they fetch. It may lose a line that one of them still has.
//! Which processor's own cache holds a line, and which one may write it, stands in [`crate::memory`]. Here is
//! the rest: the order of use in each set, the shared caches' copies, and whether memory is out of date.
//!
//! - I1. A line that a processor's own cache holds has a place there. A line that the kernel has written
//!   there since takes its place with the next access of a thread.
//! - I2. If memory is out of date, the newest value is in the owner's own cache. If the line has no owner,
//!   one shared cache has the value, and so have the own caches of its group that hold the line.
//!
//! What leaves a cache with a newer value than memory's is written back: from an own cache into the group's
//! shared one, else to memory. Nobody waits for that, but the connection is busy for as long as for any line.

use crate::machine::Machine;
use crate::memory::{LineId, Time, from_ns};

/// The lines of one cache, set by set, in each the last used first: the line plus 1, or 0 in an empty place.
struct Cache {
    ways: usize,
    mask: usize,
    places: Vec<LineId>,
}

impl Cache {
    fn new(sets: u32, ways: u32) -> Self {
        let (sets, ways) = (sets as usize, ways as usize);
        Self { ways, mask: sets - 1, places: vec![0; sets * ways] }
    }

    #[inline(always)]
    fn set(&mut self, line: LineId) -> &mut [LineId] {
        let at = (line as usize & self.mask) * self.ways;
        &mut self.places[at..at + self.ways]
    }

    /// The line is used. What had to go for it, if it was not there and something had to.
    #[inline(always)]
    fn touch(&mut self, line: LineId) -> Option<LineId> {
        let set = self.set(line);
        if set[0] == line + 1 {
            return None;
        }
        let (place, victim) = match set.iter().position(|&held| held == line + 1) {
            Some(place) => (place, 0),
            None => (set.len() - 1, set[set.len() - 1]),
        };
        set.copy_within(..place, 1);
        set[0] = line + 1;
        victim.checked_sub(1)
    }

    fn remove(&mut self, line: LineId) {
        let set = self.set(line);
        if let Some(place) = set.iter().position(|&held| held == line + 1) {
            set.copy_within(place + 1.., place);
            set[set.len() - 1] = 0;
        }
    }
}

/// Of a line.
#[derive(Clone, Copy, Default)]
struct Held {
    /// A bit for each shared cache that has a copy.
    shared: u64,
    /// Memory is out of date.
    modified: bool,
}

/// The shared caches.
struct Shared {
    caches: Vec<Cache>,
    /// Processors of each.
    size: usize,
    hit: Time,
}

pub(crate) struct Caches {
    own: Vec<Cache>,
    shared: Option<Shared>,
    held: Vec<Held>,
}

impl Caches {
    /// `None` if the description names no cache: then all are as large as need be.
    pub fn new(machine: &Machine) -> Option<Box<Self>> {
        let memory = &machine.memory;
        let count = machine.processors.count.value as usize;
        let own = memory.own_cache.as_ref()?;
        let shared = memory.shared_cache.as_ref().map(|shared| {
            let size = shared.processors.value as usize;
            let caches =
                (0..count.div_ceil(size)).map(|_| Cache::new(shared.sets.value, shared.ways.value)).collect();
            Shared { caches, size, hit: from_ns(shared.hit_ns.value) }
        });
        let own = (0..count).map(|_| Cache::new(own.sets.value, own.ways.value)).collect();
        Some(Box::new(Self { own, shared, held: Vec::new() }))
    }

    pub fn resize(&mut self, lines: usize) {
        self.held.resize(lines, Held::default());
    }

    /// The bit of the processor's shared cache.
    fn bit(&self, processor: usize) -> u64 {
        self.shared.as_ref().map_or(0, |shared| 1 << (processor / shared.size))
    }

    /// The processor uses the line: it takes its place in the own cache. What has to go for it.
    #[inline(always)]
    pub fn used(&mut self, processor: usize, line: LineId, writes: bool) -> Option<LineId> {
        if writes {
            self.held[line as usize].modified = true;
        }
        self.own[processor].touch(line)
    }

    /// The time until the processor's shared cache answers; `None` if it has no copy, or there is none.
    pub fn answers(&self, processor: usize, line: LineId) -> Option<Time> {
        let shared = self.shared.as_ref()?;
        (self.held[line as usize].shared & self.bit(processor) != 0).then_some(shared.hit)
    }

    /// The first processor of each other group whose shared cache has a copy.
    pub fn elsewhere(&self, processor: usize, line: LineId) -> impl Iterator<Item = usize> + use<> {
        let size = self.shared.as_ref().map_or(1, |shared| shared.size);
        bits(self.held[line as usize].shared & !self.bit(processor)).map(move |group| group * size)
    }

    pub fn is_modified(&self, line: LineId) -> bool {
        self.held[line as usize].modified
    }

    /// The processor reads a line that its own cache does not hold. True if the value goes to memory on its
    /// way: it is newer, and another group's or owned.
    pub fn read(&mut self, processor: usize, line: LineId, owned: bool) -> bool {
        let bit = self.bit(processor);
        let held = &mut self.held[line as usize];
        let back = held.modified && (owned || held.shared & bit == 0);
        held.modified &= !back;
        back
    }

    /// The processor writes the line, and no other copy is left. `sharers`: whose own caches have one.
    pub fn write(&mut self, processor: usize, line: LineId, sharers: impl Iterator<Item = usize>) {
        sharers.filter(|&other| other != processor).for_each(|other| self.own[other].remove(line));
        let bit = self.bit(processor);
        let held = &mut self.held[line as usize];
        let others = held.shared & !bit;
        held.shared &= bit;
        held.modified = true;
        if let Some(shared) = &mut self.shared {
            bits(others).for_each(|group| shared.caches[group].remove(line));
        }
    }

    /// The line comes into the processor's shared cache. What goes to memory for that. `has_owner`: may a
    /// processor write this line?
    pub fn fill(
        &mut self,
        processor: usize,
        line: LineId,
        has_owner: impl Fn(LineId) -> bool,
    ) -> Option<LineId> {
        let bit = self.bit(processor);
        let shared = self.shared.as_mut()?;
        self.held[line as usize].shared |= bit;
        let victim = shared.caches[processor / shared.size].touch(line)?;
        let held = &mut self.held[victim as usize];
        held.shared &= !bit;
        let back = held.modified && !has_owner(victim);
        held.modified &= !back;
        back.then_some(victim)
    }

    /// The processor was the owner of this line, and its own cache has lost it. What goes to memory.
    pub fn lose(
        &mut self,
        processor: usize,
        line: LineId,
        has_owner: impl Fn(LineId) -> bool,
    ) -> Option<LineId> {
        if !self.is_modified(line) {
            return None;
        }
        if self.shared.is_some() {
            return self.fill(processor, line, has_owner);
        }
        self.held[line as usize].modified = false;
        Some(line)
    }
}

/// The numbers of the bits that are set.
pub(crate) fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand_core::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::chance::below;
    use crate::machine::{self, Pages, Sourced};
    use crate::memory::{Fetches, Kind, Memory};

    fn of<T>(value: T) -> Sourced<T> {
        Sourced { value, source: "a test".into() }
    }

    /// The Xeons, with caches of so many sets and ways.
    fn machine(own: (u32, u32), shared: Option<(u32, u32)>) -> Machine {
        let mut machine = Machine::named("xeon-e5420-2x4").unwrap();
        machine.memory.own_cache = Some(machine::Cache { sets: of(own.0), ways: of(own.1) });
        let size = machine.memory.shared_cache.take();
        machine.memory.shared_cache = size.zip(shared).map(|(all, (sets, ways))| machine::SharedCache {
            sets: of(sets),
            ways: of(ways),
            ..all
        });
        machine
    }

    fn memory(own: (u32, u32), shared: Option<(u32, u32)>) -> Memory {
        Memory::new(&machine(own, shared))
    }

    const LONG: Time = from_whole_ns(1_000_000);
    const HIT: Time = 1_200;
    /// From the shared cache, from the own node's memory, from the other node's; and a line that another
    /// processor of the group, of the socket, or of the other socket has.
    const SHARED: Time = 6_000 + HIT;
    const LOCAL: Time = 90_000 + HIT;
    const REMOTE: Time = 180_000 + HIT;
    const OTHER_SOCKET: Time = 90_000 + HIT;

    const fn from_whole_ns(ns: Time) -> Time {
        ns * crate::memory::NS
    }

    /// Accesses one after the other, each long after the one before. Returns what each took.
    fn trace(memory: &mut Memory, accesses: &[(usize, LineId, Kind)]) -> Vec<Time> {
        let mut now = (memory.traffic.hits + memory.traffic.misses) * LONG;
        let mut take = |&(processor, line, kind): &(usize, LineId, Kind)| {
            now += LONG;
            memory.access(processor, line, kind, now) - now
        };
        accesses.iter().map(&mut take).collect()
    }

    use Kind::{Load, Store};

    #[test]
    fn the_line_goes_that_was_not_used_for_longest() {
        // Two sets of two ways: even lines, odd lines.
        let mut memory = memory((2, 2), None);
        let times = trace(
            &mut memory,
            &[
                (0, 0, Load),
                (0, 2, Load),
                (0, 1, Load),
                (0, 0, Load), // Here, and now 2 is the older one.
                (0, 4, Load), // In the place of 2.
                (0, 0, Load),
                (0, 2, Load), // Gone. In the place of 4.
                (0, 4, Load), // Gone.
                (0, 1, Load), // Its set has had no other.
            ],
        );
        assert_eq!(times, [LOCAL, LOCAL, LOCAL, HIT, LOCAL, HIT, LOCAL, LOCAL, HIT]);
        assert_eq!(memory.fetches(0), Fetches { misses: 6, memory: 6, remote: 0 });
        assert_eq!(memory.traffic.written_back, 0, "nobody wrote");
    }

    #[test]
    fn the_shared_cache_has_what_the_own_one_lost() {
        // One line each, and four behind.
        let mut memory = memory((1, 1), Some((1, 4)));
        let times = trace(
            &mut memory,
            &[
                (0, 0, Load),
                (0, 1, Load),
                (0, 0, Load),  // From the shared cache.
                (1, 1, Load),  // The neighbour's too.
                (2, 1, Load),  // Another group: from the first one's caches, which are on this socket.
                (4, 0, Store), // The other socket: the owner's cache is nearer than memory.
                (0, 0, Load),  // And back.
            ],
        );
        let other_group = 60_000 + HIT;
        assert_eq!(times, [LOCAL, LOCAL, SHARED, SHARED, other_group, OTHER_SOCKET, OTHER_SOCKET]);
        // What processor 4 wrote, when processor 0 read it.
        assert_eq!(memory.traffic.written_back, 1);
    }

    #[test]
    fn a_write_ends_the_copies_of_all_caches() {
        let mut memory = memory((1, 1), Some((1, 4)));
        // Lines 0 and 1 are in the shared cache of processors 0 and 1; line 1 in the own one of 0.
        trace(&mut memory, &[(0, 0, Load), (0, 1, Load)]);
        assert!(!memory.hits(0, 0, Load) && memory.hits(0, 1, Store));
        let invalidations = memory.traffic.invalidations;
        // The writer's own cache loses the line to another: the value is in its shared cache then.
        let times = trace(&mut memory, &[(4, 0, Store), (4, 2, Load), (0, 0, Load)]);
        assert_eq!(memory.traffic.invalidations, invalidations + 1, "the copy in the shared cache");
        // Were the copy still there, processor 0 would read it in 6 ns.
        assert_eq!(times, [OTHER_SOCKET, LOCAL, OTHER_SOCKET]);
        // A place that became free is taken first: nothing had to go for it.
        assert_eq!(trace(&mut memory, &[(1, 1, Load)]), [SHARED]);
    }

    #[test]
    fn what_is_newer_than_memory_is_written_back() {
        let mut alone = memory((1, 1), None);
        let times = trace(&mut alone, &[(0, 0, Store), (0, 1, Load), (0, 0, Load), (0, 1, Load)]);
        assert_eq!(times, [LOCAL; 4]);
        assert_eq!(alone.traffic.written_back, 1, "once: when it is read again it is no newer");
        // With one cache behind the other, only when it leaves the second.
        let mut two = memory((1, 1), Some((1, 2)));
        trace(&mut two, &[(0, 0, Store), (0, 1, Load)]);
        assert_eq!(two.traffic.written_back, 0);
        trace(&mut two, &[(0, 2, Load)]);
        assert_eq!(two.traffic.written_back, 0, "line 1 was used before line 0 left the own cache");
        trace(&mut two, &[(0, 3, Load)]);
        assert_eq!(two.traffic.written_back, 1);
        assert_eq!(trace(&mut two, &[(0, 0, Load)]), [LOCAL]);
    }

    #[test]
    fn a_value_on_its_way_to_memory_keeps_the_connection() {
        let second = |store: Kind| {
            let mut memory = memory((1, 1), None);
            memory.access(0, 0, store, 0);
            memory.access(0, 1, Load, LONG);
            // At the same moment, over the socket's connection.
            memory.access(1, 2, Load, LONG) - LONG
        };
        assert_eq!(second(Store), second(Load) + from_whole_ns(6));
    }

    #[test]
    fn a_page_is_at_home_where_it_was_touched_first() {
        // No line stays where it was read.
        let mut memory = memory((1, 1), None);
        let words = memory.place([0u32; 3584]);
        let line = |memory: &mut Memory, index: usize| memory.line(words.addr() + 64 * index);
        let lines: Vec<LineId> = (0..3584 / 16).map(|index| line(&mut memory, index)).collect();
        // Pages begin at multiples of 64 lines.
        let page = |line: LineId| line / 64;
        let other = lines.iter().position(|&line| page(line) != page(lines[0])).unwrap();
        let times = trace(
            &mut memory,
            &[
                (0, lines[0], Load),     // Node 0 touches the first page,
                (4, lines[other], Load), // and node 1 the second.
                (4, lines[1], Load),
                (0, lines[2], Load),
                (0, lines[other + 1], Load),
                (7, lines[other + 2], Load), // Another processor of its node.
            ],
        );
        assert_eq!(times, [LOCAL, LOCAL, REMOTE, LOCAL, REMOTE, LOCAL]);
        // Two pages move as a whole: one with lines that were touched, one that nobody has touched.
        memory.bind(words.addr() + 64 * (other + 1), 64 * 64, 0);
        let times = trace(
            &mut memory,
            &[(0, lines[other], Load), (4, lines[other + 1], Load), (4, lines[other + 64 + 63], Load)],
        );
        assert_eq!(times, [LOCAL, REMOTE, REMOTE]);
        // The next one has not moved.
        assert_eq!(trace(&mut memory, &[(4, lines[other + 128], Load)]), [LOCAL]);
        // What comes to lie on a page later is at home there.
        memory.bind(words.addr(), 4 * 3584, 0);
        let later = memory.place([0u32; 16]);
        let later = memory.line(later.addr());
        assert_eq!(page(later), page(lines[223]));
        assert_eq!(trace(&mut memory, &[(0, later, Load)]), [LOCAL]);
    }

    /// The same caches, by the time of last use, and without a thought for speed.
    #[derive(Default)]
    struct Naive {
        own: HashMap<usize, HashMap<LineId, u64>>,
        shared: HashMap<usize, HashMap<LineId, u64>>,
        /// Who may write the line, and whether that is newer than memory.
        owner: HashMap<LineId, usize>,
        newer: HashMap<LineId, bool>,
        fetched: u64,
        written: u64,
        /// Uses until now.
        uses: u64,
    }

    type Size = (u32, u32);

    /// Uses the line at this time. What had to go.
    fn naive_use(cache: &mut HashMap<LineId, u64>, line: LineId, now: u64, size: Size) -> Option<LineId> {
        cache.insert(line, now);
        let set = |&&other: &&LineId| other % size.0 == line % size.0;
        if cache.keys().filter(set).count() <= size.1 as usize {
            return None;
        }
        let oldest = cache.keys().filter(set).min_by_key(|other| cache[other]).copied();
        oldest.inspect(|victim| {
            cache.remove(victim);
        })
    }

    impl Naive {
        fn is_newer(&self, line: LineId) -> bool {
            self.newer.get(&line) == Some(&true)
        }

        fn write_back(&mut self, line: LineId) {
            self.newer.insert(line, false);
            self.written += 1;
        }

        fn fill_shared(&mut self, group: usize, line: LineId, size: Size) {
            self.uses += 1;
            let victim = naive_use(self.shared.entry(group).or_default(), line, self.uses, size);
            if let Some(victim) = victim
                && self.is_newer(victim)
                && !self.owner.contains_key(&victim)
            {
                self.write_back(victim);
            }
        }

        /// Does another cache have it than those of this processor and its group's?
        fn elsewhere(&self, processor: usize, line: LineId) -> bool {
            let has = |(_, cache): (&usize, &HashMap<LineId, u64>)| cache.contains_key(&line);
            self.own.iter().filter(|it| *it.0 != processor).any(has)
                || self.shared.iter().filter(|it| *it.0 != processor / 2).any(has)
        }

        fn access(&mut self, processor: usize, line: LineId, writes: bool, own: Size, shared: Option<Size>) {
            let group = processor / 2;
            let here = self.own.entry(processor).or_default().contains_key(&line);
            if !here {
                let near = self.shared.get(&group).is_some_and(|cache| cache.contains_key(&line));
                let copies = self.elsewhere(processor, line);
                self.fetched += u64::from(!near && !copies);
                if !writes && self.is_newer(line) && (self.owner.contains_key(&line) || !near) {
                    self.write_back(line);
                }
            }
            if writes {
                self.own.iter_mut().filter(|it| *it.0 != processor).for_each(|it| {
                    it.1.remove(&line);
                });
                self.shared.iter_mut().filter(|it| *it.0 != group).for_each(|it| {
                    it.1.remove(&line);
                });
                self.newer.insert(line, true);
                self.owner.insert(line, processor);
            } else if !here {
                self.owner.remove(&line);
                if !self.elsewhere(processor, line) {
                    self.owner.insert(line, processor);
                }
            }
            if let (false, Some(size)) = (here, shared) {
                self.fill_shared(group, line, size);
            }
            self.uses += 1;
            let victim = naive_use(self.own.entry(processor).or_default(), line, self.uses, own);
            let Some(victim) = victim else { return };
            if self.owner.get(&victim) != Some(&processor) {
                return;
            }
            self.owner.remove(&victim);
            if self.is_newer(victim) {
                match shared {
                    Some(size) => self.fill_shared(group, victim, size),
                    None => self.write_back(victim),
                }
            }
        }
    }

    /// Compares after each of some thousand accesses. Distances are such that a copy is nearer than memory.
    fn agrees(own: Size, shared: Option<Size>, lines: u64, seed: u64) {
        let mut memory = memory(own, shared);
        let mut naive = Naive::default();
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        for step in 1..=3_000 {
            let (processor, line) = (below(&mut random, 8) as usize, below(&mut random, lines) as LineId);
            let kind = if below(&mut random, 3) == 0 { Store } else { Load };
            memory.access(processor, line, kind, step * LONG);
            naive.access(processor, line, kind == Store, own, shared);
            let said = format!(
                "{own:?}, {shared:?}, seed {seed}, step {step}: processor {processor}, line {line}, {kind:?}"
            );
            for (processor, line) in
                (0..8).flat_map(|processor| (0..lines as LineId).map(move |line| (processor, line)))
            {
                let holds = naive.own.get(&processor).is_some_and(|cache| cache.contains_key(&line));
                assert_eq!(memory.hits(processor, line, Load), holds, "{said}: {processor} holds {line}");
                let owns = naive.owner.get(&line) == Some(&processor);
                assert_eq!(memory.hits(processor, line, Store), owns, "{said}: {processor} owns {line}");
            }
            let fetched: u64 = (0..8).map(|processor| memory.fetches(processor).memory).sum();
            assert_eq!((fetched, memory.traffic.written_back), (naive.fetched, naive.written), "{said}");
        }
        assert!(naive.fetched > 100 && naive.written > 100, "{} {}", naive.fetched, naive.written);
    }

    #[test]
    fn they_do_what_a_naive_model_does() {
        for seed in 1..=4 {
            agrees((2, 2), None, 12, seed);
            agrees((1, 2), Some((2, 2)), 12, seed);
            agrees((2, 1), Some((1, 3)), 10, seed);
            agrees((1, 4), Some((4, 1)), 24, seed);
        }
    }

    #[test]
    fn sizes_of_no_use_are_refused() {
        let good = machine((2, 2), Some((2, 2)));
        let refused = |change: &dyn Fn(&mut machine::Memory)| {
            let mut bad = good.clone();
            change(&mut bad.memory);
            let text = toml::to_string(&bad).unwrap();
            Machine::parse(&text).unwrap_err().to_string()
        };
        assert_eq!(Machine::parse(&toml::to_string(&good).unwrap()).unwrap(), good);
        let shared = |memory: &mut machine::Memory| memory.shared_cache.take().unwrap();
        let pages = |memory: &mut machine::Memory| memory.pages.take().unwrap();
        for (word, said) in [
            ("own_cache", refused(&|it| it.own_cache = Some(machine::Cache { sets: of(3), ways: of(1) }))),
            ("own_cache", refused(&|it| it.own_cache = Some(machine::Cache { sets: of(4), ways: of(0) }))),
            ("an own_cache, too", refused(&|it| it.own_cache = None)),
            (
                "shared_cache.processors",
                refused(&|it| {
                    it.shared_cache = Some(machine::SharedCache { processors: of(0), ..shared(it) })
                }),
            ),
            ("pages.bytes", refused(&|it| it.pages = Some(Pages { bytes: of(32), ..pages(it) }))),
            (
                "node_processors",
                refused(&|it| it.pages = Some(Pages { node_processors: of(3), ..pages(it) })),
            ),
        ] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}
