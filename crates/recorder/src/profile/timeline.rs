// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the threads did what, for a picture: columns of equal width, and the longest stretches as they were.
//!
//! Nobody knows how long a program will run. So the columns begin narrow. When the last one is full, each two
//! become one. A column has the sums of its time, so that nothing is lost in it but the order.
//!
//! **Bounds.** [`COLUMNS`] columns of [`MOST_LANES`] threads and [`MOST_PLACES`] places take 24 MB. The
//! longest stretches take 20 MB, those of holders 10 MB, and the longest waits 28 MB. Threads and places
//! beyond have no lane. Shorter stretches are in the columns only.

use abi::profile::Class;

use super::history::{Did, History};
use super::longest::Longest;
use super::waits::{Key, Piece, Whom};
use crate::fast::HashMap;
use crate::record::{Record, What};

/// BOUND: columns, an even number.
pub const COLUMNS: usize = 1024;
/// BOUND: threads that have a lane: the first ones.
pub const MOST_LANES: usize = 512;
/// BOUND: places that have a lane: the first ones. Below 255, so that one byte numbers them in a page.
pub const MOST_PLACES: usize = 200;
/// BOUND: stretches of threads that are kept as they were.
const MOST_STRETCHES: usize = 250_000;
/// BOUND: waits that are kept as they were.
pub(super) const MOST_WAITS: usize = 100_000;
/// BOUND: stretches of holders that are kept as they were.
const MOST_HELD: usize = 100_000;
/// BOUND: stretches that are kept in which the whole program was stopped.
const MOST_STOPPED: usize = 20_000;
/// BOUND: how wide a column is at first.
const FIRST_NS: u64 = 50_000;

/// What a thread does, as a picture shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It has a processor.
    Run,
    /// It wants one, and another program has it.
    Ready,
    /// It wants one, and another thread of the program took it.
    Behind,
    /// It waits for something that nobody told.
    Blocked,
    /// It waits for a lock.
    Lock,
    /// It waits at a barrier.
    Barrier,
    /// It waits at a semaphore or a condition variable, maybe for work.
    Work,
}

/// Kinds of what a thread does.
pub const DOES: usize = 7;
/// Kinds of what happens at a place: see [`Place::columns`].
pub const HAPPENS: usize = 6;

impl Does {
    fn of(class: Class) -> Self {
        match class {
            Class::Semaphore | Class::Cond => Self::Work,
            class if class.is_barrier() => Self::Barrier,
            _ => Self::Lock,
        }
    }
}

/// A stretch in which a thread did one thing, and waited for nothing that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Which lane.
    pub lane: u32,
    /// What it did.
    pub does: Does,
    /// The thread that took the processor; 0 if that is unknown.
    pub by: u32,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

/// A stretch in which a thread had a lock for which others waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The lock.
    pub key: Key,
    /// The thread.
    pub thread: u32,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

/// A thread's.
#[derive(Debug)]
pub struct Lane {
    /// The thread.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// When it began.
    pub from_ns: u64,
    /// What it did in each column, by [`Does`], in ns.
    pub columns: Vec<[f32; DOES]>,
    /// At which place it waited in each column, mostly: the place's lane, and by how much it outweighs
    /// others.
    pub places: Vec<(u8, f32)>,
    /// How often it was woken in vain in each column.
    pub vain: Vec<u32>,
    /// Until when it was there.
    pub to_ns: u64,
    state: Does,
    by: u32,
    /// Where it waits.
    place: Option<(Does, u8)>,
    since_ns: u64,
}

/// In [`Lane::places`]: none.
pub const NO_PLACE: u8 = u8::MAX;

/// What is waited at from one place.
#[derive(Debug)]
pub struct Place {
    /// What it is.
    pub class: Class,
    /// The place, as the recording numbers them.
    pub site: u32,
    /// Time that threads waited in each column, once for each thread: the holder ran, had lost its processor
    /// to another program, to another thread of the program, was blocked, is unknown; or there was none.
    pub columns: Vec<[f32; HAPPENS]>,
}

/// All of it.
#[derive(Debug)]
pub struct Timeline {
    /// When the first column begins.
    pub from_ns: u64,
    /// How wide a column is.
    pub column_ns: u64,
    /// Threads.
    pub lanes: Vec<Lane>,
    /// Places.
    pub places: Vec<Place>,
    /// Threads and places that have no lane.
    pub left_out: (u64, u64),
    stretches: Longest<Stretch>,
    held: Longest<Held>,
    /// Of each lock: the stretch that may go on.
    holding: HashMap<Key, Held>,
    /// Stretches in which threads wanted a processor, and none had one.
    stopped: Longest<(u64, u64)>,
    of_thread: HashMap<u32, usize>,
    of_place: HashMap<(Class, u32), Option<u8>>,
}

/// Adds a stretch to the columns that it lies in.
fn spread<const N: usize>(
    columns: &mut Vec<[f32; N]>,
    width_ns: u64,
    from_ns: u64,
    to_ns: u64,
    mut add: impl FnMut(usize, &mut [f32; N], f32),
) {
    let mut at_ns = from_ns;
    while at_ns < to_ns {
        let column = (at_ns / width_ns) as usize;
        let end_ns = ((column as u64 + 1) * width_ns).min(to_ns);
        if columns.len() <= column {
            columns.resize(column + 1, [0.0; N]);
        }
        add(column, &mut columns[column], (end_ns - at_ns) as f32);
        at_ns = end_ns;
    }
}

fn halve<T: Copy>(columns: &mut Vec<T>, together: impl Fn(T, Option<T>) -> T) {
    let pairs = columns.chunks(2).map(|pair| together(pair[0], pair.get(1).copied()));
    *columns = pairs.collect();
}

fn sum<const N: usize>(one: [f32; N], other: Option<[f32; N]>) -> [f32; N] {
    let other = other.unwrap_or([0.0; N]);
    std::array::from_fn(|index| one[index] + other[index])
}

/// The greater part of two, less the other.
fn outweigh(one: (u8, f32), other: (u8, f32)) -> (u8, f32) {
    if one.0 == other.0 {
        return (one.0, one.1 + other.1);
    }
    let (more, less) = if one.1 >= other.1 { (one, other) } else { (other, one) };
    (more.0, more.1 - less.1)
}

impl Timeline {
    /// One that begins at that time.
    #[must_use]
    pub fn new(from_ns: u64) -> Self {
        Self {
            from_ns,
            column_ns: FIRST_NS,
            lanes: Vec::new(),
            places: Vec::new(),
            left_out: (0, 0),
            stretches: Longest::new(MOST_STRETCHES),
            held: Longest::new(MOST_HELD),
            holding: HashMap::default(),
            stopped: Longest::new(MOST_STOPPED),
            of_thread: HashMap::default(),
            of_place: HashMap::default(),
        }
    }

    /// Makes room for that time.
    fn reach(&mut self, to_ns: u64) {
        while to_ns.saturating_sub(self.from_ns) > self.column_ns * COLUMNS as u64 {
            self.column_ns *= 2;
            for lane in &mut self.lanes {
                halve(&mut lane.columns, sum);
                halve(&mut lane.places, |one, other| outweigh(one, other.unwrap_or((one.0, 0.0))));
                halve(&mut lane.vain, |one, other| one + other.unwrap_or(0));
            }
            self.places.iter_mut().for_each(|place| halve(&mut place.columns, sum));
        }
    }

    /// What the thread did until then is over.
    fn flush(&mut self, index: usize, now_ns: u64) {
        self.reach(now_ns);
        let (first_ns, width_ns) = (self.from_ns, self.column_ns);
        let lane = &mut self.lanes[index];
        let from_ns = lane.since_ns;
        if now_ns <= from_ns {
            return;
        }
        (lane.since_ns, lane.to_ns) = (now_ns, now_ns);
        let does = lane.place.map_or(lane.state, |(does, _)| does);
        let (from, to) = (from_ns.saturating_sub(first_ns), now_ns.saturating_sub(first_ns));
        let (place, places) = (lane.place, &mut lane.places);
        spread(&mut lane.columns, width_ns, from, to, |column, sums, part| {
            sums[does as usize] += part;
            if let Some((_, place)) = place.filter(|(_, place)| *place != NO_PLACE) {
                if places.len() <= column {
                    places.resize(column + 1, (NO_PLACE, 0.0));
                }
                places[column] = outweigh(places[column], (place, part));
            }
        });
        if place.is_none() {
            let by = lane.by;
            let one = Stretch { lane: index as u32, does, by, from_ns, to_ns: now_ns };
            self.stretches.push(now_ns - from_ns, one);
        }
    }

    fn lane(&mut self, record: &Record) -> Option<usize> {
        if let Some(index) = self.of_thread.get(&record.thread) {
            return Some(*index);
        }
        if self.lanes.len() >= MOST_LANES {
            // One that comes again counts again.
            self.left_out.0 += u64::from(matches!(record.what, What::Forked { .. }));
            return None;
        }
        let (thread, process, now_ns) = (record.thread, record.process, record.time_ns);
        self.lanes.push(Lane {
            thread,
            process,
            from_ns: now_ns,
            to_ns: now_ns,
            columns: Vec::new(),
            places: Vec::new(),
            vain: Vec::new(),
            state: Does::Ready,
            by: 0,
            place: None,
            since_ns: now_ns,
        });
        self.of_thread.insert(thread, self.lanes.len() - 1);
        Some(self.lanes.len() - 1)
    }

    pub(super) fn record(&mut self, record: &Record) {
        let state = match record.what {
            What::In => Does::Run,
            What::Out => Does::Blocked,
            What::Preempted => Does::Ready,
            What::Named { by_exec: true, .. } => Does::Run,
            What::Forked { .. } => {
                self.of_thread.remove(&record.thread);
                Does::Ready
            }
            What::Exited => {
                if let Some(index) = self.of_thread.remove(&record.thread) {
                    self.flush(index, record.time_ns);
                }
                return;
            }
            _ => return,
        };
        let Some(index) = self.lane(record) else { return };
        self.flush(index, record.time_ns);
        (self.lanes[index].state, self.lanes[index].by) = (state, 0);
    }

    /// The thread has lost its processor to another one of the program, a moment ago.
    pub(super) fn is_behind(&mut self, thread: u32, by: u32) {
        if let Some(index) = self.of_thread.get(&thread)
            && self.lanes[*index].state == Does::Ready
        {
            (self.lanes[*index].state, self.lanes[*index].by) = (Does::Behind, by);
        }
    }

    /// The thread lost its processor to another program, and from that time on this one has it.
    pub(super) fn is_behind_from(&mut self, thread: u32, by: u32, now_ns: u64) {
        let Some(index) = self.of_thread.get(&thread).copied() else { return };
        if self.lanes[index].state == Does::Ready {
            self.flush(index, now_ns);
            (self.lanes[index].state, self.lanes[index].by) = (Does::Behind, by);
        }
    }

    /// The thread of this program that had its processor has left it to another program, at that time.
    pub(super) fn is_ready_from(&mut self, thread: u32, time_ns: u64) {
        let Some(index) = self.of_thread.get(&thread).copied() else { return };
        if self.lanes[index].state == Does::Behind {
            self.flush(index, time_ns);
            self.lanes[index].state = Does::Ready;
        }
    }

    /// In this time threads of the program wanted a processor, and none had one.
    pub(super) fn was_stopped(&mut self, from_ns: u64, to_ns: u64) {
        self.stopped.push(to_ns - from_ns, (from_ns, to_ns));
    }

    /// When it was so, the longest stretches, by their times.
    pub fn take_stopped(&mut self) -> Vec<(u64, u64)> {
        let mut all = std::mem::replace(&mut self.stopped, Longest::new(MOST_STOPPED)).finish().0;
        all.sort_unstable();
        all
    }

    /// From then on the thread waits there, or nowhere.
    pub(super) fn waits(&mut self, thread: u32, now_ns: u64, at: Option<(Class, u32)>) {
        let Some(index) = self.of_thread.get(&thread).copied() else { return };
        let place = at.map(|(class, site)| (Does::of(class), self.place(class, site).unwrap_or(NO_PLACE)));
        if self.lanes[index].place != place {
            self.flush(index, now_ns);
            self.lanes[index].place = place;
        }
    }

    /// The thread was woken in vain: it waits again from then on.
    pub(super) fn woken_in_vain(&mut self, thread: u32, now_ns: u64) {
        let Some(index) = self.of_thread.get(&thread).copied() else { return };
        self.reach(now_ns);
        let column = (now_ns.saturating_sub(self.from_ns) / self.column_ns) as usize;
        let vain = &mut self.lanes[index].vain;
        vain.resize(vain.len().max(column + 1), 0);
        vain[column] += 1;
    }

    fn place(&mut self, class: Class, site: u32) -> Option<u8> {
        let (places, left_out) = (&mut self.places, &mut self.left_out.1);
        *self.of_place.entry((class, site)).or_insert_with(|| {
            if places.len() >= MOST_PLACES {
                *left_out += 1;
                return None;
            }
            places.push(Place { class, site, columns: Vec::new() });
            Some(places.len() as u8 - 1)
        })
    }

    fn holds(&mut self, piece: &Piece) {
        // The last one at a barrier is named with each wait.
        let Whom::Thread(thread) = piece.whom else { return };
        if piece.key.class.is_barrier() {
            return;
        }
        let (key, from_ns, to_ns) = (piece.key, piece.from_ns, piece.to_ns);
        match self.holding.get_mut(&key) {
            Some(one) if one.thread == thread && one.to_ns == from_ns => one.to_ns = to_ns,
            _ => {
                if let Some(over) = self.holding.insert(key, Held { key, thread, from_ns, to_ns }) {
                    self.held.push(over.to_ns - over.from_ns, over);
                }
            }
        }
    }

    pub(super) fn piece(&mut self, piece: &Piece, history: &History) {
        self.holds(piece);
        let Some(index) = self.place(piece.key.class, piece.site) else { return };
        self.reach(piece.to_ns);
        let (first_ns, width_ns, waiters) = (self.from_ns, self.column_ns, piece.waiters as f32);
        let columns = &mut self.places[usize::from(index)].columns;
        let mut add = |kind: usize, from_ns: u64, to_ns: u64| {
            let (from, to) = (from_ns.saturating_sub(first_ns), to_ns.saturating_sub(first_ns));
            spread(columns, width_ns, from, to, |_, sums, part| sums[kind] += part * waiters);
        };
        match piece.whom {
            Whom::Unknown => add(4, piece.from_ns, piece.to_ns),
            Whom::Free => add(5, piece.from_ns, piece.to_ns),
            Whom::Thread(thread) => {
                let mut known_ns = piece.from_ns;
                history.stretches(thread, piece.from_ns, piece.to_ns, |did, _, from_ns, to_ns| {
                    let kind = match did {
                        Did::Run => 0,
                        Did::Ready => 1,
                        Did::Behind => 2,
                        Did::Blocked => 3,
                        Did::Gone => 4,
                    };
                    add(4, known_ns, from_ns);
                    add(kind, from_ns, to_ns);
                    known_ns = to_ns;
                });
                add(4, known_ns, piece.to_ns);
            }
        }
    }

    /// The longest stretches, the longest first, and how many were shorter.
    pub fn take_stretches(&mut self) -> (Vec<Stretch>, u64) {
        std::mem::replace(&mut self.stretches, Longest::new(MOST_STRETCHES)).finish()
    }

    /// The longest stretches of holders, the longest first.
    pub fn take_held(&mut self) -> Vec<Held> {
        for (_, over) in self.holding.drain() {
            self.held.push(over.to_ns - over.from_ns, over);
        }
        std::mem::replace(&mut self.held, Longest::new(MOST_HELD)).finish().0
    }

    pub(super) fn finish(&mut self, now_ns: u64) {
        let all: Vec<usize> = self.of_thread.values().copied().collect();
        all.into_iter().for_each(|index| self.flush(index, now_ns));
        self.reach(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: u64, thread: u32, what: What) -> Record {
        Record { process: 1, thread, time_ns, what }
    }

    fn forked() -> What {
        What::Forked { parent: 1, creator: 1 }
    }

    #[test]
    fn a_thread_is_what_it_waits_for_and_else_what_the_kernel_says() {
        let mut timeline = Timeline::new(1000);
        timeline.record(&at(1000, 7, forked()));
        timeline.record(&at(1010, 7, What::In));
        timeline.waits(7, 1030, Some((Class::Mutex, 3)));
        timeline.record(&at(1040, 7, What::Out));
        timeline.record(&at(1060, 7, What::In));
        timeline.waits(7, 1070, None);
        timeline.record(&at(1100, 7, What::Preempted));
        timeline.is_behind(7, 8);
        timeline.record(&at(1150, 7, What::In));
        timeline.finish(1160);
        let lane = &timeline.lanes[0];
        let times = [20.0 + 30.0 + 10.0, 10.0, 50.0, 0.0, 40.0, 0.0, 0.0];
        assert_eq!((lane.columns.as_slice(), lane.places.as_slice()), (&[times][..], &[(0, 40.0)][..]));
        let (stretches, dropped) = timeline.take_stretches();
        let longest = Stretch { lane: 0, does: Does::Behind, by: 8, from_ns: 1100, to_ns: 1150 };
        assert_eq!((stretches.len(), stretches[0], dropped), (5, longest, 0));
    }

    #[test]
    fn columns_grow_with_the_time_and_keep_all_of_it() {
        let mut timeline = Timeline::new(0);
        timeline.record(&at(0, 7, forked()));
        timeline.record(&at(10, 7, What::In));
        let switches = 4000;
        for step in 1..=switches {
            let what = if step % 2 == 0 { What::In } else { What::Out };
            timeline.record(&at(step * 100_000, 7, what));
            timeline.waits(7, step * 100_000, (step % 2 == 1).then_some((Class::Barrier, 9)));
        }
        timeline.finish(switches * 100_000);
        let lane = &timeline.lanes[0];
        assert_eq!((timeline.column_ns, lane.columns.len()), (400_000, 1000));
        let total = |does: Does| lane.columns.iter().map(|sums| f64::from(sums[does as usize])).sum::<f64>();
        assert_eq!((total(Does::Run), total(Does::Barrier)), (2e8 - 10.0, 2e8));
        assert!(lane.columns[500].iter().sum::<f32>() == 400_000.0 && lane.places[500] == (0, 200_000.0));
    }

    #[test]
    fn who_is_too_many_is_counted_and_a_number_that_comes_again_has_a_lane_of_its_own() {
        let mut timeline = Timeline::new(0);
        for thread in 1..=MOST_LANES as u32 + 3 {
            timeline.record(&at(5, thread, forked()));
        }
        assert_eq!((timeline.lanes.len(), timeline.left_out.0), (MOST_LANES, 3));
        let mut timeline = Timeline::new(0);
        for time in [5, 10] {
            timeline.record(&at(time, 7, forked()));
            timeline.record(&at(time + 2, 7, What::Exited));
        }
        let times: Vec<_> = timeline.lanes.iter().map(|lane| (lane.from_ns, lane.to_ns)).collect();
        assert_eq!(times, [(5, 7), (10, 12)]);
        for site in 0..MOST_PLACES as u32 + 2 {
            timeline.place(Class::Mutex, site);
            timeline.place(Class::Mutex, site);
        }
        assert_eq!((timeline.places.len(), timeline.left_out.1), (MOST_PLACES, 2));
    }

    #[test]
    fn a_place_has_the_time_of_each_waiter() {
        let mut history = History::default();
        history.apply(&at(10, 7, What::In));
        history.apply(&at(20, 7, What::Preempted));
        let mut timeline = Timeline::new(0);
        let key = Key { image: 1, object: 16, class: Class::Mutex };
        let piece = |from_ns, to_ns, whom| Piece { key, site: 4, from_ns, to_ns, waiters: 2, whom };
        timeline.piece(&piece(5, 40, Whom::Thread(7)), &history);
        timeline.piece(&piece(40, 41, Whom::Free), &history);
        timeline.piece(&piece(41, 43, Whom::Unknown), &history);
        assert_eq!(timeline.places[0].columns, [[20.0, 40.0, 0.0, 0.0, 10.0 + 4.0, 2.0]]);
        // One stretch, if it goes on, and another one if not.
        timeline.piece(&piece(50, 60, Whom::Thread(7)), &history);
        timeline.piece(&piece(60, 85, Whom::Thread(7)), &history);
        timeline.piece(&piece(85, 86, Whom::Thread(8)), &history);
        let held = timeline.take_held();
        let times: Vec<_> = held.iter().map(|one| (one.thread, one.from_ns, one.to_ns)).collect();
        assert_eq!(times, [(7, 5, 40), (7, 50, 85), (8, 85, 86)]);
    }
}
