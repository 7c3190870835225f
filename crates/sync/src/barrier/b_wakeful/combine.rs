// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many processors: threads arrive in a tree, each cluster's at a node of its own, and wait for a word to
//! which nobody arrives (Yew, Tzeng, Lawrie, IEEE ToC 1987; any thread may come to any node).
//!
//! In each episode a node has a *share* of the parties, and all nodes together have as many places as there
//! were parties at its beginning. A thread takes a place at its cluster's node, or, if that is full, at the
//! next one. Who takes the last place of a node is its *carrier*, and arrives at node (i - 1) / 8 for the
//! node. The last carrier of node 0 arrives at the barrier for all of them. Who finds all nodes full arrives
//! at the barrier itself: a party that has joined meanwhile, or a thread that is one too many. A party that
//! leaves arrives there, too, if the episode needs more arrivals than all nodes have places. So where parties
//! join and leave all the time, `state` stays within its limits.
//!
//! | word | holds |
//! |---|---|
//! | `places` | an episode, and above it the places of it that are taken |
//! | `parts` | of the node and its children, so many are complete |
//! | `told` | of all: the present episode, above it the places of all nodes; bit 31: it was said |
//! | `counted` | of all: the last `told` whose nodes are complete, and counted at the barrier |
//! | `era` | of all: so many barriers were here before |
//!
//! | step | what happens |
//! |---|---|
//! | N1 | Read `told`. Take a place of that episode; a compare-and-swap fails if the episode is another. |
//! | N2 | The node is complete: clear `parts`, add one to the parent's; at node 0 A1, for all places. |
//! | N3 | Say so in `counted`. |
//! | N4 | All nodes are full: await N3, then A1 in this episode only, or else N1 again. |
//! | N5 | Who has ended the episode says the next one and its places in `told`, and calls who sleeps. |
//!
//! A place taken in an episode belongs to it: it cannot end before all its places are taken, and no place of
//! the next one can be taken before N5. The places are never more than the arrivals which the episode needs,
//! for a party that leaves arrives first. So N2 always comes. Who has slept awaits N5, too. After N5 nobody
//! writes a node for the old episode: the memory may serve another barrier, if its episodes go on from there.
//! Who leaves late finds another era before it sleeps, even if that barrier has come to the same number.
//!
//! N1 release -> N1 acquire in vain, N2, A1: a chain up the tree. N5 release -> `is_over`, N1 acquire, down.
//! N3 release -> N4 acquire. The era, release -> acquire: who sees it leaves. A carrier that is preempted
//! keeps the episode from its end, as between A1 and A2. A thread that stands still for exactly 65,536
//! episodes between two attempts of N1 may miss what the others at its node wrote, or their number.

use platform::{Atomic, AtomicInt, CLUSTER, Ordering::*, Platform};

use super::episode::{Arrival, Episode, Episodes, MOST, until};

/// One taken place; below it the episode.
const PLACE: u32 = 1 << 16;
/// In `told`: it was said. Zeros say nothing yet.
const SAID: u32 = 1 << 31;
/// Children of a node, and processors for which there is one.
const FAN_IN: usize = CLUSTER as usize;
/// BOUND: places of a node at least. Fewer parties arrive at the barrier itself.
const LEAST_SHARE: u32 = 4;
/// BOUND: places of all nodes. Arrivals there are counted late, so that as many that join must have room
/// beside them.
pub const MOST_PLACES: u32 = MOST / 2;

#[repr(align(64))]
struct Line<A>(A);

/// A cluster's arrivals on their way to the barrier. The first of a barrier's is none: it has what all look
/// at. Zeros are a new one.
#[repr(C, align(128))]
pub struct BWakefulNode<P: Platform> {
    /// `places`, or `told`.
    word: P::AtomicU32,
    /// Of the first.
    era: P::AtomicU32,
    aside: Line<Aside<P>>,
}

struct Aside<P: Platform> {
    /// `parts`, or `counted`.
    word: P::AtomicU32,
    /// Of the first: nodes, where nobody else says how many there are.
    count: P::AtomicU32,
}

impl<P: Platform> Default for BWakefulNode<P> {
    fn default() -> Self {
        let zero = || P::AtomicU32::new(0);
        Self { word: zero(), era: zero(), aside: Line(Aside { word: zero(), count: zero() }) }
    }
}

/// How many nodes serve so many parties; 0: they arrive at the barrier itself.
pub fn nodes<P: Platform>(parties: u32) -> usize {
    // ASSUMED: fewer processors than four clusters have need no tree.
    let clusters = P::processors().min(parties) as usize / FAN_IN;
    if clusters < 4 || parties > MOST_PLACES { 0 } else { clusters }
}

/// Of all nodes.
fn places(told: u32) -> u32 {
    (told & !SAID) / PLACE
}

/// What came of looking for a place.
enum Place {
    /// Taken; it was the last one.
    Last,
    Taken,
    Full,
    /// The episode is another.
    Over,
}

/// The nodes of one barrier, of which there is at least one, behind what all look at.
pub struct Nodes<'a, P: Platform>(pub &'a [BWakefulNode<P>]);

impl<P: Platform> Nodes<'_, P> {
    #[inline(always)]
    fn told(&self) -> &P::AtomicU32 {
        &self.0[0].word
    }

    fn root(&self) -> &Aside<P> {
        &self.0[0].aside.0
    }

    #[inline(always)]
    fn nodes(&self) -> &[BWakefulNode<P>] {
        &self.0[1..]
    }

    fn said(&self, episode: u16, parties: u32) -> u32 {
        // In a model a place each will do.
        let least = self.nodes().len() as u32 * LEAST_SHARE.min(P::PAUSES);
        SAID | if (least..=MOST_PLACES).contains(&parties) { parties * PLACE } else { 0 } | u32::from(episode)
    }

    /// The present episode and its places.
    fn present(&self, episodes: &Episodes<P>) -> u32 {
        loop {
            // ORDER: Acquire (N1), pairs with N5. `is_over` does it again, before a place is taken or an
            // arrival made at the barrier. Here it is for a node that is full: in this episode, and not
            // 65,536 before it.
            match self.told().load(Acquire) {
                0 => self.begin(episodes),
                told => return told,
            }
        }
    }

    /// The first to come to a new barrier, or one of them. Nobody has arrived yet, so its episode lasts.
    #[cold]
    fn begin(&self, episodes: &Episodes<P>) {
        let said = self.said(episodes.number(), episodes.parties());
        // In vain if another has said it; the episode may be over then.
        let _ = self.told().compare_exchange(0, said, Relaxed, Relaxed);
    }

    /// Another barrier begins, as [`Episodes::renew`] has begun it.
    pub fn renew(&self, episodes: &Episodes<P>) {
        let episode = episodes.number();
        self.clear(episode.wrapping_sub(1));
        let root = self.root();
        root.count.store(self.nodes().len() as u32, Relaxed);
        root.word.store(0, Relaxed);
        let era = &self.0[0].era;
        // ORDER: Release, pairs with `era`.
        era.store(era.load(Relaxed).wrapping_add(1), Release);
        // ORDER: Release (N5), pairs with `is_over`: who is on its way out of the old barrier, and sees this,
        // sees what the members wrote there.
        self.told().store(self.said(episode, episodes.parties()), Release);
    }

    /// No place of another episode than this one is taken.
    fn clear(&self, episode: u16) {
        for node in self.nodes() {
            // ORDER: Release, pairs with N1 in vain: who sees this sees in `told` that its own is over.
            node.word.store(u32::from(episode), Release);
            node.aside.0.word.store(0, Relaxed);
        }
    }

    /// How many there are, if [`Nodes::renew`] has said so.
    #[inline]
    pub fn count(&self) -> usize {
        self.root().count.load(Relaxed) as usize
    }

    #[inline]
    pub fn is_over(&self, episode: u16) -> bool {
        // ORDER: Acquire, pairs with N5.
        self.told().load(Acquire) as u16 != episode
    }

    /// Which barrier this is of those that were here one after the other.
    #[inline(always)]
    pub fn era(&self) -> u32 {
        // ORDER: Acquire, pairs with `renew`: who is on its way out of an older one sees what its members
        // wrote.
        self.0[0].era.load(Acquire)
    }

    /// N5. For so many parties another episode has begun, after this one.
    pub fn tell(&self, episode: u16, parties: u32) {
        let next = self.said(episode.wrapping_add(1), parties);
        if places(self.told().load(Relaxed)) == 0 && places(next) > 0 {
            // They were not used, maybe for as long as it takes to come round to this number.
            self.clear(episode);
        }
        // ORDER: Release (N5), pairs with `is_over` and N1; publishes what all wrote before they came.
        self.told().store(next, Release);
    }

    /// Arrives for one thread. `tell` comes before the end of the episode is known by what this returns.
    #[inline]
    pub fn arrive(&self, episodes: &Episodes<P>, cluster: u32) -> Arrival {
        let count = self.nodes().len();
        // The last nodes are the farthest from the barrier, and have no children.
        let own = count - 1 - cluster as usize % count;
        loop {
            let told = self.present(episodes);
            let places = places(told);
            let (mut node, mut full) = (own, if places == 0 { count } else { 0 });
            while full < count {
                let share = places / count as u32 + u32::from((node as u32) < places % count as u32);
                match self.take(node, told, share, node == own) {
                    Place::Last => return self.carry(node, told, places, episodes),
                    Place::Taken => {
                        return Arrival::Waits(Episode { number: told as u16, others: places - 1 });
                    }
                    Place::Full => full += 1,
                    Place::Over => break,
                }
                node = if node + 1 == count { 0 } else { node + 1 };
            }
            if full == count
                && let Some(arrival) = self.arrive_at_barrier(told, places, episodes)
            {
                return arrival;
            }
        }
    }

    /// Arrives for a party that leaves: at the barrier, if somebody has joined in this episode for whom no
    /// node has a place.
    pub fn arrive_to_leave(&self, episodes: &Episodes<P>, cluster: u32) -> Arrival {
        let told = self.present(episodes);
        match places(told) {
            0 => self.arrive(episodes, cluster),
            places => match episodes.arrive_beside(told as u16, places) {
                Some(arrival) => arrival,
                None => self.arrive(episodes, cluster),
            },
        }
    }

    /// N1.
    #[inline]
    fn take(&self, node: usize, told: u32, share: u32, own: bool) -> Place {
        let (word, episode) = (&self.nodes()[node].word, told % PLACE);
        let mut taken = match own {
            // Of the last episode, full: most often wrong, and the line then here for the next attempt.
            true => u32::from((episode as u16).wrapping_sub(1)) | (share * PLACE),
            // Another's may be full, and is left to those who have places there.
            // ORDER: Acquire, as in vain below.
            false => word.load(Acquire),
        };
        loop {
            let now = if taken % PLACE == episode {
                if taken / PLACE >= share {
                    return Place::Full;
                }
                taken + PLACE
            } else if self.is_over(episode as u16) {
                return Place::Over;
            } else {
                episode | PLACE
            };
            // ORDER: Release (N1), a chain that ends at the carrier. In vain Acquire, the chain's other half:
            // what this replaces was read so before, or is the last episode's, of which `told` has told. And
            // who sees a later episode here sees it in `told`.
            match word.compare_exchange_weak(taken, now, Release, Acquire) {
                Ok(_) if now / PLACE == share => return Place::Last,
                Ok(_) => return Place::Taken,
                Err(other) => taken = other,
            }
        }
    }

    /// N2 and N3.
    fn carry(&self, mut node: usize, told: u32, places: u32, episodes: &Episodes<P>) -> Arrival {
        // In a model a node has two children.
        let fan_in = FAN_IN.min(P::PAUSES as usize + 1);
        loop {
            let children = (self.nodes().len() - 1).saturating_sub(node * fan_in).min(fan_in) as u32;
            let parts = &self.nodes()[node].aside.0.word;
            if children > 0 {
                // ORDER: AcqRel (N2), a chain that ends at the last carrier.
                if parts.fetch_add(1, AcqRel) < children {
                    return Arrival::Waits(Episode { number: told as u16, others: places - 1 });
                }
                parts.store(0, Relaxed);
            }
            if node == 0 {
                break;
            }
            node = (node - 1) / fan_in;
        }
        let arrival = episodes.arrive(places);
        if let Arrival::Waits(_) = arrival {
            // The episode lasts until then: the last one that is missing awaits this.
            // ORDER: Release (N3), pairs with N4: who sees this arrives after the nodes.
            self.root().word.store(told, Release);
        }
        arrival
    }

    /// N4. `None`: the episode was another, or is over now.
    #[cold]
    #[inline(never)]
    fn arrive_at_barrier(&self, told: u32, places: u32, episodes: &Episodes<P>) -> Option<Arrival> {
        let episode = told as u16;
        // ORDER: Acquire (N4), pairs with N3: our own A1 comes after the nodes'.
        let counted = || places == 0 || self.root().word.load(Acquire) == told;
        until::<P>(&|| counted() || self.is_over(episode));
        if self.is_over(episode) {
            return None;
        }
        let arrival = episodes.arrive_in(episode);
        if arrival.is_none() {
            // Somebody has ended it, and is before N5.
            until::<P>(&|| self.is_over(episode));
        }
        arrival
    }
}
