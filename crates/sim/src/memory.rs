// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and caches: where a word lies, which caches hold its line, and what an access costs.
//!
//! A line has an owner (the processor that may write it without asking) or any number of sharers, as MESI
//! has it; caches are as large as need be, or as the description says ([`crate::cache`]). An access that the
//! processor's cache cannot answer waits until the line is not on its way to another processor (a hot line
//! serves one after the other, in the order in which they came), then until the connection is free, then for
//! the transfer. The value changes at the moment when the request comes: nobody can see the line between that
//! and the end of the transfer without waiting behind it, so no order of values is possible here that the
//! machine does not have.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::HashMap;

use crate::cache::{self, Caches};
use crate::machine::{self, Machine};

/// Virtual time, in picoseconds.
pub(crate) type Time = u64;

pub(crate) const NS: Time = 1_000;

pub(crate) fn from_ns(ns: f64) -> Time {
    (ns * NS as f64).round() as Time
}

/// Bytes of the machine's memory for shared objects; pages that nobody touches do not exist.
const ARENA: usize = 64 << 20;
/// Words elsewhere (stacks, the host's heap) that may be shared.
const OUTSIDE: usize = 1 << 12;

/// The index of a line.
pub(crate) type LineId = u32;

/// Zeros are a line that nobody has touched.
#[derive(Clone, Copy, Default)]
struct Line {
    /// Until when it is on its way to somebody.
    busy: Time,
    /// Who may write it, plus 1.
    owner: u16,
    /// Who touched it first, plus 1: its memory is there.
    home: u16,
    /// Spinners that are passed over, and have this line.
    watchers: u16,
}

struct Level {
    size: usize,
    transfer: Time,
    invalidate: Time,
    occupancy: Time,
    /// Until when the connection of each group is taken.
    busy: Vec<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Load,
    Store,
    /// Atomic read-modify-write.
    Update,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub hits: u64,
    pub misses: u64,
    pub invalidations: u64,
    /// Time spent waiting for a line or a connection.
    pub queued: Time,
    /// Values that went from a finite cache to memory.
    pub written_back: u64,
}

/// What a processor's own cache did not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fetches {
    /// All of it.
    pub misses: u64,
    /// Of these, what came from memory.
    pub memory: u64,
    /// Of these, what came from another node's.
    pub remote: u64,
}

/// The numbers of the bits that are set.
fn bits(words: &[u64]) -> impl Iterator<Item = usize> {
    let all = words.iter().enumerate();
    all.flat_map(|(index, &word)| cache::bits(word).map(move |bit| index * 64 + bit))
}

/// How an object's life ends.
struct End {
    at: *mut u8,
    end: unsafe fn(*mut u8),
}

/// Where memory is.
struct Pages {
    /// Lines of a page, as a power of two.
    shift: u32,
    /// Of each page of the machine's memory, the processor on whose node it is, plus 1; 0: nobody has touched
    /// it. Behind the end the same.
    homes: Vec<u16>,
    /// Processors of a node, and the level that connects them.
    size: usize,
    level: usize,
    local: Time,
    remote: Time,
}

impl Pages {
    fn new(machine: &Machine, pages: &machine::Pages) -> Self {
        let size = pages.node_processors.value;
        let level = machine.level.iter().position(|level| level.processors.value == size);
        Self {
            shift: (pages.bytes.value / machine.memory.line_bytes.value).trailing_zeros(),
            homes: Vec::new(),
            size: size as usize,
            level: level.expect("a level is a node, as has been checked"),
            local: from_ns(pages.local_ns.value),
            remote: from_ns(pages.remote_ns.value),
        }
    }

    /// The home of the line's page, which is `first` if nobody has touched it. Words outside have no page.
    fn home(&mut self, line: LineId, first: u16) -> u16 {
        let Some(place) = (line as usize).checked_sub(OUTSIDE) else { return first };
        let page = place >> self.shift;
        if page >= self.homes.len() {
            self.homes.resize(page + 1, 0);
        }
        let home = &mut self.homes[page];
        if *home == 0 {
            *home = first;
        }
        *home
    }
}

pub(crate) struct Memory {
    /// `None`: as large as need be.
    caches: Option<Box<Caches>>,
    /// `None`: memory is where its first user is.
    pages: Option<Pages>,
    base: *mut u8,
    allocation: *mut u8,
    layout: Layout,
    used: usize,
    shift: u32,
    /// Those of words outside first.
    lines: Vec<Line>,
    /// A bit a processor, `stride` words a line.
    sharers: Vec<u64>,
    stride: usize,
    outside: HashMap<usize, LineId>,
    levels: Vec<Level>,
    hit: Time,
    memory: Time,
    atomic: Time,
    per_sharer: Time,
    pub traffic: Traffic,
    /// By processor.
    fetches: Vec<Fetches>,
    ends: Vec<End>,
}

impl Memory {
    pub fn new(machine: &Machine) -> Self {
        let count = machine.processors.count.value as usize;
        let line = machine.memory.line_bytes.value as usize;
        let layout = Layout::from_size_align(ARENA + 4096, 16).expect("a small constant");
        // SAFETY: the layout has a size. Zeroed memory of this size comes untouched from the system.
        let allocation = unsafe { alloc_zeroed(layout) };
        if allocation.is_null() {
            handle_alloc_error(layout);
        }
        let base = allocation.map_addr(|address| address.next_multiple_of(4096));
        let stride = count.div_ceil(64);
        let mut caches = Caches::new(machine);
        caches.iter_mut().for_each(|caches| caches.resize(OUTSIDE));
        Self {
            caches,
            pages: machine.memory.pages.as_ref().map(|pages| Pages::new(machine, pages)),
            base,
            allocation,
            layout,
            used: 0,
            shift: line.trailing_zeros(),
            lines: vec![Line::default(); OUTSIDE],
            sharers: vec![0; OUTSIDE * stride],
            stride,
            outside: HashMap::new(),
            levels: machine
                .level
                .iter()
                .map(|level| {
                    let size = level.processors.value as usize;
                    Level {
                        size,
                        transfer: from_ns(level.transfer_ns.value),
                        invalidate: from_ns(level.invalidate_ns.value),
                        occupancy: from_ns(level.occupancy_ns.value),
                        busy: vec![0; count.div_ceil(size)],
                    }
                })
                .collect(),
            hit: from_ns(machine.memory.hit_ns.value).max(1),
            memory: from_ns(machine.memory.memory_ns.value),
            atomic: from_ns(machine.memory.atomic_ns.value),
            per_sharer: from_ns(machine.memory.per_sharer_ns.value),
            traffic: Traffic::default(),
            fetches: vec![Fetches::default(); count],
            ends: Vec::new(),
        }
    }

    /// Room for an object, on lines of its own; zeros.
    fn reserve(&mut self, layout: Layout) -> *mut u8 {
        let align = layout.align().max(1 << self.shift);
        assert!(align <= 4096, "alignment of at most a page");
        let at = self.used.next_multiple_of(align);
        assert!(at + layout.size() <= ARENA, "the simulated program shares more than {ARENA} bytes");
        self.used = (at + layout.size()).next_multiple_of(1 << self.shift);
        let lines = OUTSIDE + (self.used >> self.shift);
        self.lines.resize(lines, Line::default());
        self.sharers.resize(lines * self.stride, 0);
        self.caches.iter_mut().for_each(|caches| caches.resize(lines));
        // SAFETY: within the allocation, as just asserted.
        unsafe { self.base.add(at) }
    }

    /// Moves an object into the machine's memory, onto lines of its own. It lives as long as the machine.
    pub fn place<T>(&mut self, value: T) -> *mut T {
        let at = self.reserve(Layout::new::<T>()).cast::<T>();
        // SAFETY: room for a T, aligned for it, and nobody else's.
        unsafe { at.write(value) };
        self.remember(at);
        at
    }

    /// As [`Memory::place`], one after the other.
    pub fn place_all<T>(&mut self, values: impl ExactSizeIterator<Item = T>) -> *mut [T] {
        let count = values.len();
        let at = self.reserve(Layout::array::<T>(count).expect("fits into memory")).cast::<T>();
        for (index, value) in values.enumerate() {
            // SAFETY: room for `count` of T, aligned for it, and nobody else's.
            unsafe { at.add(index).write(value) };
            // SAFETY: as above.
            self.remember(unsafe { at.add(index) });
        }
        std::ptr::slice_from_raw_parts_mut(at, count)
    }

    fn remember<T>(&mut self, at: *mut T) {
        /// # Safety
        /// `at` is a T that nobody uses any more.
        unsafe fn end<T>(at: *mut u8) {
            // SAFETY: as the caller promises.
            unsafe { at.cast::<T>().drop_in_place() };
        }
        if std::mem::needs_drop::<T>() {
            self.ends.push(End { at: at.cast(), end: end::<T> });
        }
    }

    /// The line of a word: by its place in the machine's memory, or, for a word elsewhere, one for the word
    /// alone, numbered when first touched.
    #[inline(always)]
    pub fn line(&mut self, address: usize) -> LineId {
        let offset = address.wrapping_sub(self.base.addr());
        if offset < self.used {
            (OUTSIDE + (offset >> self.shift)) as LineId
        } else {
            self.line_outside(address)
        }
    }

    #[cold]
    #[inline(never)]
    fn line_outside(&mut self, address: usize) -> LineId {
        let next = self.outside.len() as LineId;
        let line = *self.outside.entry(address).or_insert(next);
        assert!((line as usize) < OUTSIDE, "more than {OUTSIDE} shared words outside the machine's memory");
        line
    }

    /// When an access that comes at `now` is over.
    #[inline(always)]
    pub fn access(&mut self, processor: usize, line: LineId, kind: Kind, now: Time) -> Time {
        let cost = self.hit + if kind == Kind::Update { self.atomic } else { 0 };
        if self.hits(processor, line, kind) {
            self.traffic.hits += 1;
            if self.caches.is_some() {
                self.take_place(processor, line, kind, now);
            }
            return now + cost;
        }
        self.miss(processor, line, kind, now) + cost
    }

    /// The processor's cache can answer alone.
    #[inline(always)]
    pub fn hits(&self, processor: usize, line: LineId, kind: Kind) -> bool {
        if kind == Kind::Load {
            self.sharers[line as usize * self.stride + processor / 64] >> (processor % 64) & 1 != 0
        } else {
            self.lines[line as usize].owner == processor as u16 + 1
        }
    }

    #[inline]
    fn sharers(&self, line: LineId) -> &[u64] {
        &self.sharers[line as usize * self.stride..][..self.stride]
    }

    /// The smallest level that holds both.
    #[inline]
    fn distance(&self, a: usize, b: usize) -> usize {
        self.levels.iter().position(|level| a / level.size == b / level.size).unwrap_or(self.levels.len() - 1)
    }

    /// How far a request goes from here to there: by levels, and then in the direction in which a ring turns.
    pub fn steps(&self, from: usize, to: usize) -> (usize, usize) {
        let level = self.distance(from, to);
        let size = self.levels[level].size;
        (level, (to + size - from % size) % size)
    }

    /// What it takes from there to here.
    pub fn transfer(&self, to: usize, from: usize) -> Time {
        self.levels[self.distance(to, from)].transfer
    }

    /// How many other caches have the line, and the level of the farthest.
    fn others(&self, processor: usize, line: LineId) -> (u64, usize) {
        let (mut count, mut farthest) = (0, 0);
        for (index, &word) in self.sharers(line).iter().enumerate() {
            let mut word = word;
            if index == processor / 64 {
                word &= !(1 << (processor % 64));
            }
            if word == 0 {
                continue;
            }
            count += u64::from(word.count_ones());
            // The farthest is at one of the ends, because groups are ranges.
            for bit in [word.trailing_zeros(), 63 - word.leading_zeros()] {
                farthest = farthest.max(self.distance(processor, index * 64 + bit as usize));
            }
        }
        for first in self.caches.iter().flat_map(|caches| caches.elsewhere(processor, line)) {
            count += 1;
            farthest = farthest.max(self.distance(processor, first));
        }
        (count, farthest)
    }

    /// The level of the nearest copy in a finite cache, if there is one.
    fn nearest(&self, processor: usize, line: LineId) -> Option<usize> {
        let shared = self.caches.as_ref()?.elsewhere(processor, line);
        let all = bits(self.sharers(line)).chain(shared);
        all.map(|other| self.distance(processor, other)).min()
    }

    /// Where a line comes from that the processor's own cache does not hold: the level, and for how long.
    fn source(&mut self, processor: usize, line: LineId, others: u64) -> (usize, Time) {
        let owner = self.lines[line as usize].owner;
        if owner != 0 {
            let level = self.distance(processor, owner as usize - 1);
            return (level, self.levels[level].transfer);
        }
        if let Some(time) = self.caches.as_ref().and_then(|caches| caches.answers(processor, line)) {
            return (0, time);
        }
        let from = self.home(processor, line);
        let mut level = self.distance(processor, from);
        let transfer = self.levels[level].transfer;
        let (mut memory, mut remote) = (transfer + self.memory, false);
        if let Some(pages) = &self.pages {
            level = level.max(pages.level);
            remote = processor / pages.size != from / pages.size;
            memory = if remote { pages.remote } else { pages.local };
        }
        if others > 0 {
            let Some(nearest) = self.nearest(processor, line) else { return (level, transfer) };
            let modified = self.caches.as_ref().is_some_and(|caches| caches.is_modified(line));
            // Memory may be nearer than a copy.
            if modified || self.levels[nearest].transfer <= memory {
                return (nearest, self.levels[nearest].transfer);
            }
        }
        let fetches = &mut self.fetches[processor];
        fetches.memory += 1;
        fetches.remote += u64::from(remote);
        (level, memory)
    }

    #[cold]
    #[inline(never)]
    fn miss(&mut self, processor: usize, line: LineId, kind: Kind, now: Time) -> Time {
        self.traffic.misses += 1;
        self.fetches[processor].misses += 1;
        let Line { busy, owner, .. } = self.lines[line as usize];
        let (others, farthest) = self.others(processor, line);
        let own = self.hits(processor, line, Kind::Load);
        let (level, transfer) = if own {
            // A write to a line of which we have a copy.
            (farthest, 0)
        } else {
            self.source(processor, line, others)
        };
        let invalidate = if kind != Kind::Load && others > 0 && (own || owner == 0) {
            self.levels[farthest].invalidate + self.per_sharer * others
        } else {
            0
        };
        let level = if invalidate > 0 { level.max(farthest) } else { level };
        let connection = processor / self.levels[level].size;
        let occupancy = self.levels[level].occupancy;
        let start = now.max(busy).max(self.levels[level].busy[connection]);
        self.levels[level].busy[connection] = start + occupancy;
        self.traffic.queued += start - now;
        let end = start + transfer.max(invalidate);
        // Copies of a line that nobody writes are served while others are on their way.
        let alone = kind != Kind::Load || owner != 0;
        self.lines[line as usize].busy = if alone { end } else { start + occupancy };
        if kind != Kind::Load && others > 0 {
            self.traffic.invalidations += others;
        }
        let back = self.take(processor, line, kind);
        if self.caches.is_some() {
            self.bring(processor, line, kind, !own, back, now);
        }
        end
    }

    /// The processor where the line's memory is: the first one that touches it, or its page.
    fn home(&mut self, processor: usize, line: LineId) -> usize {
        let home = &mut self.lines[line as usize].home;
        if *home == 0 {
            let first = processor as u16 + 1;
            *home = self.pages.as_mut().map_or(first, |pages| pages.home(line, first));
        }
        *home as usize - 1
    }

    /// The line's new state. True if its value goes to memory on its way.
    fn take(&mut self, processor: usize, line: LineId, kind: Kind) -> bool {
        self.home(processor, line);
        let at = line as usize * self.stride;
        let sharers = &mut self.sharers[at..][..self.stride];
        let state = &mut self.lines[line as usize];
        let mut back = false;
        if kind == Kind::Load {
            let mut alone = sharers.iter().all(|&word| word == 0);
            if let Some(caches) = &mut self.caches {
                back = caches.read(processor, line, state.owner != 0);
                alone &= caches.elsewhere(processor, line).next().is_none();
            }
            state.owner = if alone { processor as u16 + 1 } else { 0 };
        } else {
            if let Some(caches) = &mut self.caches {
                caches.write(processor, line, bits(sharers));
            }
            sharers.fill(0);
            state.owner = processor as u16 + 1;
        }
        sharers[processor / 64] |= 1 << (processor % 64);
        back
    }

    /// A line has come into finite caches (`fetched`), or a write of it was allowed there.
    fn bring(&mut self, processor: usize, line: LineId, kind: Kind, fetched: bool, back: bool, now: Time) {
        if back {
            self.write_back(processor, line, now);
        }
        let Self { caches: Some(caches), lines, .. } = self else { return };
        let victim =
            if fetched { caches.fill(processor, line, |line| lines[line as usize].owner != 0) } else { None };
        if let Some(victim) = victim {
            self.write_back(processor, victim, now);
        }
        self.take_place(processor, line, kind, now);
    }

    /// The processor uses a line, whose place in its finite cache may be another's until now.
    #[inline(always)]
    fn take_place(&mut self, processor: usize, line: LineId, kind: Kind, now: Time) {
        let victim = self.caches.as_mut().and_then(|caches| caches.used(processor, line, kind != Kind::Load));
        if let Some(victim) = victim {
            self.lose(processor, victim, now);
        }
    }

    /// The processor's own cache has no place for this line any more.
    #[cold]
    #[inline(never)]
    fn lose(&mut self, processor: usize, line: LineId, now: Time) {
        self.sharers[line as usize * self.stride + processor / 64] &= !(1 << (processor % 64));
        let Self { caches: Some(caches), lines, .. } = self else { return };
        if lines[line as usize].owner != processor as u16 + 1 {
            return;
        }
        lines[line as usize].owner = 0;
        if let Some(line) = caches.lose(processor, line, |line| lines[line as usize].owner != 0) {
            self.write_back(processor, line, now);
        }
    }

    /// A value goes to memory. Nobody waits for it, but the connection is busy.
    fn write_back(&mut self, processor: usize, line: LineId, now: Time) {
        self.traffic.written_back += 1;
        let from = self.home(processor, line);
        let least = self.pages.as_ref().map_or(0, |pages| pages.level);
        let level = self.distance(processor, from).max(least);
        let Level { size, occupancy, ref mut busy, .. } = self.levels[level];
        let busy = &mut busy[processor / size];
        *busy = (*busy).max(now) + occupancy;
    }

    /// The pages that have a byte of these are on this node from now on.
    pub fn bind(&mut self, address: usize, bytes: usize, node: usize) {
        let Some(pages) = &mut self.pages else { return };
        let home = (node * pages.size) as u16 + 1;
        let begin = address - self.base.addr();
        let shift = self.shift + pages.shift;
        let (first, end) = (begin >> shift, (begin + bytes).div_ceil(1 << shift));
        if end > pages.homes.len() {
            pages.homes.resize(end, 0);
        }
        pages.homes[first..end].fill(home);
        let lines = OUTSIDE + (first << pages.shift)..OUTSIDE + (end << pages.shift);
        let end = lines.end.min(self.lines.len());
        self.lines[lines.start..end].iter_mut().for_each(|line| line.home = home);
    }

    /// The kernel on this processor writes the line; nobody's time.
    pub fn kernel_write(&mut self, processor: usize, line: LineId) {
        self.take(processor, line, Kind::Store);
    }

    /// What this processor's own cache has not answered until now.
    pub fn fetches(&self, processor: usize) -> Fetches {
        self.fetches[processor]
    }

    pub fn watch(&mut self, line: LineId) {
        self.lines[line as usize].watchers += 1;
    }

    pub fn unwatch(&mut self, line: LineId) {
        self.lines[line as usize].watchers -= 1;
    }

    #[inline(always)]
    pub fn is_watched(&self, line: LineId) -> bool {
        self.lines[line as usize].watchers != 0
    }

    /// What an access costs that the own cache answers.
    pub fn hit_ns(&self) -> f64 {
        self.hit as f64 / NS as f64
    }

    /// The group of the smallest level that holds the processor, if there are several.
    pub fn cluster(&self, processor: usize) -> usize {
        self.levels.first().map_or(0, |level| processor / level.size)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        while let Some(End { at, end }) = self.ends.pop() {
            // SAFETY: placed once, and nobody uses what was placed when the machine ends.
            unsafe { end(at) };
        }
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.allocation, self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(name: &str) -> Memory {
        Memory::new(&Machine::named(name).unwrap())
    }

    #[test]
    fn a_line_that_is_here_costs_a_hit() {
        let mut memory = memory("sgi-challenge-11");
        let first = memory.access(0, 0, Kind::Load, 0);
        assert_eq!(first, from_ns(900.0 + 200.0 + 13.0), "from memory");
        assert_eq!(memory.access(0, 0, Kind::Load, first), first + from_ns(13.0));
        // Nobody else has it: a write is free too.
        assert_eq!(memory.access(0, 0, Kind::Store, first), first + from_ns(13.0));
        assert_eq!(memory.access(0, 0, Kind::Update, first), first + from_ns(13.0 + 60.0));
    }

    #[test]
    fn a_line_that_goes_to_and_fro_costs_a_transfer_each_time() {
        let mut memory = memory("sgi-challenge-11");
        let mut now = memory.access(0, 0, Kind::Store, 0);
        for turn in 1..100 {
            let before = now;
            now = memory.access(turn % 2, 0, Kind::Store, now);
            assert_eq!(now - before, from_ns(900.0 + 13.0));
        }
    }

    #[test]
    fn distance_counts() {
        let mut memory = memory("ksr1-63");
        let near = memory.access(0, 0, Kind::Store, 0);
        let far = memory.access(1, 0, Kind::Store, near);
        assert_eq!(far - near, from_ns(8_750.0 + 100.0));
        assert_eq!(memory.access(62, 0, Kind::Store, far) - far, from_ns(30_000.0 + 100.0));
    }

    #[test]
    fn a_write_ends_all_copies() {
        let mut memory = memory("cxl-1024");
        for processor in 0..1024 {
            memory.access(processor, 3, Kind::Load, 1 << 40);
        }
        let now = 1 << 50;
        let cost = memory.access(5, 3, Kind::Store, now) - now;
        assert_eq!(cost, from_ns(400.0 + 1023.0 + 1.2));
        assert!((0..1024).all(|processor| memory.hits(processor, 3, Kind::Load) == (processor == 5)));
    }

    #[test]
    fn a_hot_line_serves_one_after_the_other() {
        let mut memory = memory("sgi-challenge-11");
        let start = memory.access(0, 0, Kind::Store, 0);
        let ends: Vec<Time> =
            (1..11).map(|processor| memory.access(processor, 0, Kind::Update, start)).collect();
        for pair in ends.windows(2) {
            assert_eq!(pair[1] - pair[0], from_ns(900.0), "one transfer apart");
        }
        assert!(memory.traffic.queued > 0);
    }

    #[test]
    fn a_busy_bus_delays_other_lines() {
        let mut memory = memory("sgi-challenge-11");
        let alone = memory.access(0, 0, Kind::Load, 0);
        let second = memory.access(1, 7, Kind::Load, 0);
        assert_eq!(second - alone, from_ns(105.0));
    }

    #[test]
    fn words_lie_where_they_are_placed() {
        let mut memory = memory("sgi-challenge-11");
        let a = memory.place([0u32; 2]);
        let b = memory.place(0u32);
        let (a0, a1) = (a.addr(), a.addr() + 4);
        assert_eq!(memory.line(a0), memory.line(a1), "one object, one line");
        assert_ne!(memory.line(a0), memory.line(b.addr()));
        let elsewhere = [0u32; 2];
        let first = memory.line(elsewhere.as_ptr().addr());
        assert_ne!(first, memory.line(elsewhere.as_ptr().addr() + 4), "elsewhere each word is alone");
        assert_eq!(first, memory.line(elsewhere.as_ptr().addr()));
    }
}
