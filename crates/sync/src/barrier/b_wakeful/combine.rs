// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many processors: arrivals are combined in a tree (Yew, Tzeng, Lawrie, IEEE ToC 1987), each cluster's at a
//! node of its own, and waiters look at a word to which nobody arrives.
//!
//! Node i hands its arrivals on to node (i - 1) / 8, and node 0 to the barrier. Any thread may come to any
//! node. So a node remembers how many came in the last episode, and expects as many: only the thread that
//! completes them is the *carrier*. Where fewer come, those who wait for them carry what there is.
//!
//! | step | what happens |
//! |---|---|
//! | N1 | Add the arrivals to the node. There is a carrier, or more are expected: wait. |
//! | N2 | Else be the carrier. Take what is there; N1 at the parent, at node 0 A1, for all of it. |
//! | N3 | Look again before you stop. |
//! | N4 | Who is about to sleep looks at its nodes, and the first to come to one now and then: N2. |
//! | N5 | Who has ended the episode says so in `told`, before it calls those who sleep. |
//! | N6 | A thread that has carried when it came, and finds its episode over, does N4 before it leaves. |
//!
//! N6 is for arrivals of the next episode, whose threads have seen a carrier and sleep. While the carrier's
//! own episode is not over, it has carried no such ones, and does N4 itself. The thread that has ended the
//! episode hands on all that comes while it carries, whatever is expected.
//!
//! The present episode is what `told` says: it changes only when all have come, the reader among them.
//!
//! No checker has found a schedule that needs N6 (400,000 of shuttle's, by priorities): it takes a carrier
//! that stands still between two steps until others have ended an episode, and expectations that fail twice.
//!
//! N1 release -> N2 acquire, up the tree; N5 release -> `is_over` acquire, down. A carrier that is preempted
//! with others' arrivals keeps the episode from its end, though its own may be counted already.

use core::cell::Cell;
use platform::{Atomic, AtomicInt, Ordering::*, Platform};

/// Somebody is carrying; below it, the arrivals that nobody has carried yet.
const CARRIED: u32 = 1 << 31;
/// In `carried`: an episode; below it, arrivals.
const EPISODE: u32 = 1 << 16;
/// Children of a node: so many processors share a cache, on most machines.
const FAN_IN: usize = 8;
/// BOUND: looks between two N4 of the first to come to a node. A wrong expectation costs so many pauses, or
/// half as many yields.
const LOOKS: u32 = 512;

#[repr(align(64))]
struct Line<A>(A);

/// A cluster's arrivals on their way to the barrier.
#[repr(align(128))]
pub struct BWakefulNode<P: Platform> {
    arrivals: P::AtomicU32,
    /// The carrier's: what came in an episode, and in the one before. HINT.
    carried: P::AtomicU32,
    before: P::AtomicU32,
    /// Of node 0: the present episode.
    told: Line<P::AtomicU32>,
}

impl<P: Platform> Default for BWakefulNode<P> {
    fn default() -> Self {
        let zero = || P::AtomicU32::new(0);
        Self { arrivals: zero(), carried: zero(), before: zero(), told: Line(zero()) }
    }
}

/// How many nodes serve so many parties; 0: they arrive at the barrier itself.
pub fn nodes<P: Platform>(parties: u32) -> usize {
    // ASSUMED: fewer processors than four clusters have need no tree.
    let clusters = P::processors().min(parties) as usize / FAN_IN;
    if clusters < 4 { 0 } else { clusters }
}

/// One thread's way through the tree in one episode.
pub struct Way<'a, P: Platform, F> {
    nodes: &'a [BWakefulNode<P>],
    episode: u16,
    own: usize,
    /// A1 for so many threads; calls what it is given if that ends the episode, and then returns true.
    arrive: F,
    ended: Cell<bool>,
    looks: Cell<u32>,
    /// The caller was the first of those who wait to be carried somewhere.
    first: Cell<bool>,
}

impl<'a, P: Platform, F: Fn(u32, &dyn Fn()) -> bool> Way<'a, P, F> {
    /// Exactly as many threads come as there are parties.
    pub fn new(nodes: &'a [BWakefulNode<P>], arrive: F) -> Self {
        Self::at(nodes, P::cluster(), arrive)
    }

    /// The same, in this cluster.
    pub fn at(nodes: &'a [BWakefulNode<P>], cluster: u32, arrive: F) -> Self {
        let episode = nodes[0].told.0.load(Relaxed) as u16;
        let no = || Cell::new(false);
        // The last nodes are the farthest from the barrier, and have no children.
        let own = nodes.len() - 1 - cluster as usize % nodes.len();
        Self { nodes, episode, own, arrive, ended: no(), looks: Cell::new(0), first: no() }
    }

    pub fn episode(&self) -> u16 {
        self.episode
    }

    /// Has the caller ended the episode?
    pub fn ended(&self) -> bool {
        self.ended.get()
    }

    /// N1 for the caller. Whether it has carried; then it goes on with [`Way::hand_on`].
    pub fn enter(&self) -> bool {
        self.add(self.own, 1)
    }

    /// N6.
    pub fn hand_on(&self) {
        if !self.ended() && self.is_over() {
            self.carry_all();
        }
    }

    pub fn is_over(&self) -> bool {
        // ORDER: Acquire, pairs with N5.
        self.nodes[0].told.0.load(Acquire) as u16 != self.episode
    }

    /// The same, for a thread that looks again and again.
    pub fn look(&self) -> bool {
        let looks = self.looks.get() + 1;
        self.looks.set(looks);
        if looks.is_multiple_of(LOOKS.min(P::PAUSES)) && self.first.get() {
            self.carry_all();
        }
        self.is_over()
    }

    /// N4.
    pub fn carry_all(&self) {
        self.first.set(false);
        // The caller's nodes, upwards.
        let mut next = Some(self.own);
        while let Some(node) = next {
            self.carry(node);
            next = parent::<P>(node);
        }
    }

    /// N1. Whether the caller has carried.
    fn add(&self, number: usize, count: u32) -> bool {
        let node = &self.nodes[number];
        // ORDER: Release (N1), pairs with N2.
        let before = node.arrivals.fetch_add(count, Release);
        if before & CARRIED != 0 {
            return false;
        }
        if self.ended() || before + count >= node.expected(self.episode) {
            return self.carry(number);
        }
        if before == 0 {
            self.first.set(true);
        }
        false
    }

    /// N2 and N3. Whether the caller has carried.
    fn carry(&self, number: usize) -> bool {
        let node = &self.nodes[number];
        let mut count = node.arrivals.load(Relaxed);
        loop {
            if count == 0 || count & CARRIED != 0 {
                return false;
            }
            // ORDER: Acquire (N2), pairs with N1.
            match node.arrivals.compare_exchange_weak(count, CARRIED, Acquire, Relaxed) {
                Ok(_) => break,
                Err(now) => count = now,
            }
        }
        loop {
            // They may be of the next episode: then ours is over.
            node.note(self.nodes[0].told.0.load(Relaxed) as u16, count);
            match parent::<P>(number) {
                Some(above) => _ = self.add(above, count),
                None if (self.arrive)(count, &|| self.tell()) => self.ended.set(true),
                None => {}
            }
            // N3.
            if node.arrivals.compare_exchange(CARRIED, 0, Relaxed, Relaxed).is_ok() {
                return true;
            }
            // ORDER: Acquire (N2), pairs with N1.
            count = node.arrivals.swap(CARRIED, Acquire) & !CARRIED;
        }
    }

    /// N5.
    fn tell(&self) {
        // ORDER: Release (N5), pairs with `is_over`; publishes what all wrote before they came.
        self.nodes[0].told.0.store(u32::from(self.episode.wrapping_add(1)), Release);
    }
}

fn parent<P: Platform>(node: usize) -> Option<usize> {
    // In a model a node has two children.
    (node > 0).then(|| (node - 1) / FAN_IN.min(P::PAUSES as usize + 1))
}

impl<P: Platform> BWakefulNode<P> {
    /// How many are still expected in this episode.
    fn expected(&self, episode: u16) -> u32 {
        let carried = self.carried.load(Relaxed);
        match carried / EPISODE == u32::from(episode) {
            true => self.before.load(Relaxed).saturating_sub(carried % EPISODE),
            false => carried % EPISODE,
        }
    }

    /// So many have come; the carrier says so.
    fn note(&self, episode: u16, count: u32) {
        let carried = self.carried.load(Relaxed);
        let came = match carried / EPISODE == u32::from(episode) {
            true => carried % EPISODE + count,
            false => {
                self.before.store(carried % EPISODE, Relaxed);
                count
            }
        };
        self.carried.store((u32::from(episode) * EPISODE) | came, Relaxed);
    }
}
