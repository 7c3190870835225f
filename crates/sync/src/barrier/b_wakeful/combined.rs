// SPDX-License-Identifier: MIT OR Apache-2.0
//! The barrier as its threads use it: with nodes (`combine.rs`), or without.

use core::ptr::NonNull;
use core::slice;

use platform::{Block, Blocks, Platform};

use super::combine::{self, Nodes};
use super::episode::{Arrival, Episode, Joined, until};
use super::{BWakeful, BWakefulNode, Learn, Mood};

/// A barrier and its nodes, if it has any. All who arrive bring the same nodes. It is of no use for another
/// barrier that has them later.
pub struct Combined<'a, P: Platform, M: Mood<P> = Learn<P>> {
    pub(super) barrier: &'a BWakeful<P, M>,
    pub(super) nodes: &'a [BWakefulNode<P>],
    /// See [`Nodes::era`].
    pub(super) era: u32,
}

impl<P: Platform, M: Mood<P>> Clone for Combined<'_, P, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform, M: Mood<P>> Copy for Combined<'_, P, M> {}

impl<P: Platform, M: Mood<P>> Combined<'_, P, M> {
    #[inline(always)]
    pub(super) fn arrive(&self) -> Arrival {
        match self.nodes.is_empty() {
            true => self.told(self.barrier.episodes.arrive(1)),
            false => self.arrive_at_a_node(),
        }
    }

    /// Apart, so that the way without nodes has nothing of this.
    #[inline(never)]
    fn arrive_at_a_node(&self) -> Arrival {
        self.told(Nodes(self.nodes).arrive(&self.barrier.episodes, P::cluster()))
    }

    /// If the arrival was the last one, the others hear it.
    #[inline(always)]
    fn told(&self, arrival: Arrival) -> Arrival {
        if let Arrival::Last { number, parties, sleepers } = arrival {
            self.barrier.mood.ends(&self.barrier.episodes, sleepers);
            if !self.nodes.is_empty() {
                // After N5 these words may be another barrier's, whom a call too many does no harm.
                Nodes(self.nodes).tell(number, parties);
            }
            if sleepers {
                self.barrier.episodes.call(u32::MAX);
            }
        }
        arrival
    }

    /// W1 to W4.
    #[inline(always)]
    fn await_release(&self, episode: Episode) {
        match self.nodes.is_empty() {
            true => self.barrier.await_release(episode, &|| false),
            false => self.await_word(episode),
        }
    }

    /// The same with nodes.
    #[inline(never)]
    fn await_word(&self, episode: Episode) {
        let (BWakeful { episodes, mood, .. }, nodes) = (self.barrier, Nodes(self.nodes));
        let is_over = || nodes.is_over(episode.number);
        // Not asked before: it is seldom another, and each wait ends in a sleep.
        let is_another = || nodes.era() != self.era;
        let sleep = || {
            episodes.sleep(episode.number, &is_another);
            // Between A2 and N5 the nodes are not ready for who comes again.
            until::<P>(&|| is_over() || is_another());
        };
        mood.wait(episodes, episode.others, &is_over, &sleep);
    }

    /// As [`BWakeful::enter`].
    #[inline(always)]
    pub fn enter(&self) -> Option<Episode> {
        match self.arrive() {
            Arrival::Waits(episode) => Some(episode),
            Arrival::Last { .. } | Arrival::Alone => None,
        }
    }

    /// Waits until all have arrived; true for the serial thread. Any thread may come. Where more come than
    /// there are parties, those that are too many are the first of the next episode.
    #[inline(always)]
    pub fn wait(&self) -> bool {
        let entered = self.enter();
        if let Some(episode) = entered {
            self.await_release(episode);
        }
        entered.is_none()
    }

    /// As [`super::RawBarrierDynamic::join`].
    pub fn join(&self) -> bool {
        match self.barrier.episodes.join() {
            Joined::Party => true,
            Joined::TooMany => {
                self.arrive_and_drop();
                false
            }
            Joined::NoRoom => false,
        }
    }

    /// As [`super::RawBarrierDynamic::arrive_and_drop`].
    pub fn arrive_and_drop(&self) {
        if self.barrier.episodes.leave() {
            let episodes = &self.barrier.episodes;
            match self.nodes.is_empty() {
                true => _ = self.arrive(),
                false => _ = self.told(Nodes(self.nodes).arrive_to_leave(episodes, P::cluster())),
            }
        }
    }
}

impl<P: Platform> Combined<'_, P> {
    /// Its parties are not on their way yet: a look at what else runs.
    #[must_use]
    pub fn begun(self) -> Self {
        self.barrier.mood.begin(&self.barrier.episodes);
        self
    }

    /// Another barrier with the same nodes, at which nobody waits. Who is on its way out of the old one may
    /// be so yet.
    #[must_use]
    pub fn renewed(self, parties: u32) -> Self {
        let BWakeful { episodes, mood, .. } = self.barrier;
        episodes.renew(parties);
        mood.renew();
        Nodes(self.nodes).renew(episodes);
        self.barrier.with(self.nodes)
    }
}

/// A barrier's words, in a block of memory that its nodes follow.
#[repr(C, align(128))]
struct Head<P: Platform>(BWakeful<P>);

impl<P: Blocks> Combined<'static, P> {
    /// A new barrier in a block, as [`Combined::renewed`]. The block's number. `None`: nodes are of no use
    /// here, or there is no block.
    pub fn placed(parties: u32) -> Option<(u32, Self)> {
        match combine::nodes::<P>(parties) {
            0 => None,
            nodes => Self::placed_with(nodes, parties),
        }
    }

    /// The same with so many nodes, one at least, if there is room for them.
    pub fn placed_with(nodes: usize, parties: u32) -> Option<(u32, Self)> {
        // All blocks are as large as the machine needs.
        let most = nodes.max(combine::nodes::<P>(combine::MOST_PLACES));
        let Block { number, memory, pieces } = P::take_block(2 + most)?;
        // SAFETY: a block of ours, which stays; zeros are a barrier and nodes, and so is what another left.
        let barrier = unsafe { Self::over(memory, nodes.min(pieces - 2)) };
        Some((number, barrier.renewed(parties)))
    }

    /// The barrier in the block of this number.
    ///
    /// # Safety
    /// [`Combined::placed`] has put one there, and nobody has given the block back since.
    #[inline]
    pub unsafe fn at(number: u32) -> Option<Self> {
        let Block { memory, .. } = P::block(number)?;
        // SAFETY: as promised; there is one node at least.
        Some(unsafe { Self::over(memory, Nodes(Self::over(memory, 0).nodes).count()) })
    }

    /// # Safety
    /// A barrier and so many nodes are there for good.
    #[inline]
    unsafe fn over(memory: NonNull<u8>, nodes: usize) -> Self {
        let head = memory.cast::<Head<P>>();
        // SAFETY: as promised.
        unsafe {
            let nodes = slice::from_raw_parts(head.add(1).cast().as_ptr(), 1 + nodes);
            head.as_ref().0.with(nodes)
        }
    }
}
