// SPDX-License-Identifier: MIT OR Apache-2.0
//! The barrier as its threads use it: with nodes (`combine.rs`), or without.

use core::ptr::NonNull;
use core::slice;

use platform::{Block, Blocks, Platform};

use super::combine::{self, Nodes};
use super::episode::{Arrival, Episode, Joined};
use super::{BWakeful, BWakefulNode, Learn, Mood};

/// A barrier and its nodes, if it has any. All who arrive bring the same nodes.
pub struct Combined<'a, P: Platform, M: Mood<P> = Learn<P>> {
    pub(super) barrier: &'a BWakeful<P, M>,
    pub(super) nodes: &'a [BWakefulNode<P>],
    /// As many threads come as there are parties, never more.
    pub(super) exact: bool,
}

impl<P: Platform, M: Mood<P>> Clone for Combined<'_, P, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform, M: Mood<P>> Copy for Combined<'_, P, M> {}

impl<P: Platform, M: Mood<P>> Combined<'_, P, M> {
    /// The same, for as many threads as there are parties, never more.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { exact: true, ..self }
    }

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
        self.told(Nodes(self.nodes).arrive(&self.barrier.episodes, P::cluster(), self.exact))
    }

    /// If the arrival was the last one, the others hear it.
    #[inline(always)]
    fn told(&self, arrival: Arrival) -> Arrival {
        if let Arrival::Last { number, parties, sleepers } = arrival {
            if !self.nodes.is_empty() {
                Nodes(self.nodes).tell(number, parties);
            }
            self.barrier.mood.ends(&self.barrier.episodes, sleepers);
            if sleepers {
                self.barrier.episodes.call(u32::MAX);
            }
        }
        arrival
    }

    /// W1 to W4: until the episode is over or `called`.
    #[inline(always)]
    fn await_release(&self, episode: Episode, called: &impl Fn() -> bool) {
        if !self.nodes.is_empty() {
            return self.await_word(episode, called);
        }
        let BWakeful { episodes, mood, .. } = self.barrier;
        let done = || episodes.is_over(episode.number) || called();
        let sleep = || episodes.sleep(episode.number, called);
        mood.wait(episodes, episode.others, &done, &sleep);
    }

    /// The same with nodes.
    #[inline(never)]
    fn await_word(&self, episode: Episode, called: &impl Fn() -> bool) {
        let BWakeful { episodes, mood, .. } = self.barrier;
        let done = || self.has_passed(&episode) || called();
        mood.wait(episodes, episode.others, &done, &|| self.sleep(episode, called));
    }

    fn sleep(&self, episode: Episode, called: &impl Fn() -> bool) {
        self.barrier.episodes.sleep(episode.number, called);
        // Between A2 and N5 the nodes are not ready for who comes again.
        if !self.nodes.is_empty() && self.barrier.episodes.is_over(episode.number) {
            Nodes(self.nodes).await_told(episode.number);
        }
    }

    #[inline(always)]
    fn entered(arrival: Arrival) -> Option<Episode> {
        match arrival {
            Arrival::Waits(episode) => Some(episode),
            Arrival::Last { .. } | Arrival::Alone => None,
        }
    }

    /// Arrives, for a thread that has something else to do while it waits. It may not come again until
    /// [`Combined::await_or`] has told it that the episode is over. `None`: it was the last one.
    #[inline(always)]
    pub fn enter(&self) -> Option<Episode> {
        Self::entered(self.arrive())
    }

    /// The same, for a party that the nodes have no place for.
    #[inline]
    pub fn enter_apart(&self) -> Option<Episode> {
        Self::entered(self.told(self.barrier.episodes.arrive(1)))
    }

    /// Waits until the episode of [`Combined::enter`] is over, true then, or `called` says that there is
    /// something else to do. It is asked again and again. The thread that makes it say so has to
    /// [`BWakeful::summon`].
    #[inline(always)]
    pub fn await_or(&self, entered: &Episode, called: impl Fn() -> bool) -> bool {
        self.await_release(*entered, &called);
        self.has_passed(entered)
    }

    /// As [`Combined::await_or`], asleep at once.
    pub fn sleep_or(&self, entered: &Episode, called: impl Fn() -> bool) -> bool {
        self.sleep(*entered, &called);
        self.has_passed(entered)
    }

    /// Is the episode over that somebody has entered? What the members wrote before is seen then.
    #[inline(always)]
    pub fn has_passed(&self, entered: &Episode) -> bool {
        match self.nodes.is_empty() {
            true => self.barrier.episodes.is_over(entered.number),
            false => Nodes(self.nodes).is_over(entered.number),
        }
    }

    /// Waits until all have arrived; true for the serial thread. Any thread may come. Where more come than
    /// there are parties, those that are too many are the first of the next episode.
    #[inline(always)]
    pub fn wait(&self) -> bool {
        let entered = self.enter();
        if let Some(episode) = entered {
            self.await_release(episode, &|| false);
        }
        entered.is_none()
    }

    /// As [`BWakeful::summon`].
    pub fn summon(&self, count: u32) {
        self.barrier.summon(count);
    }

    /// As [`BWakeful::lacks_one`]. That one is [apart](Combined::enter_apart), if there are nodes.
    #[inline]
    pub fn lacks_one(&self) -> bool {
        self.barrier.lacks_one()
    }

    /// As [`BWakeful::await_as_party`].
    #[inline]
    pub fn await_as_party(&self, done: impl Fn() -> bool, sleep: impl Fn()) {
        self.barrier.await_as_party(done, sleep);
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
            self.arrive();
        }
    }
}

impl<P: Platform> Combined<'_, P> {
    /// Another barrier with the same nodes, at which nobody waits: for so many, of whom so many are always
    /// [apart](Combined::enter_apart). Who is on its way out of the old one may be so yet.
    #[must_use]
    pub fn renewed(self, parties: u32, apart: u32) -> Self {
        let BWakeful { episodes, mood, .. } = self.barrier;
        episodes.renew(parties);
        mood.renew(episodes);
        Nodes(self.nodes).renew(episodes, apart);
        self
    }
}

/// A barrier's words, in a block of memory that its nodes follow.
#[repr(C, align(128))]
struct Head<P: Platform>(BWakeful<P>);

impl<P: Blocks> Combined<'static, P> {
    /// A new barrier in a block, as [`Combined::renewed`], with nodes for so many parties. The block's
    /// number. `None`: nodes are of no use here, or there is no block.
    pub fn placed(most: u32, parties: u32, apart: u32) -> Option<(u32, Self)> {
        match combine::nodes::<P>(most) {
            0 => None,
            nodes => Self::placed_with(nodes, parties, apart),
        }
    }

    /// The same with so many nodes, one at least, if there is room for them.
    pub fn placed_with(nodes: usize, parties: u32, apart: u32) -> Option<(u32, Self)> {
        // All blocks are as large as the machine needs.
        let Block { number, memory, pieces } = P::take_block(2 + nodes.max(combine::nodes::<P>(u32::MAX)))?;
        // SAFETY: a block of ours, which stays; zeros are a barrier and nodes, and so is what another left.
        let barrier = unsafe { Self::over(memory, nodes.min(pieces - 2)) };
        Some((number, barrier.renewed(parties, apart)))
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
            Self { barrier: &head.as_ref().0, nodes, exact: false }
        }
    }
}
