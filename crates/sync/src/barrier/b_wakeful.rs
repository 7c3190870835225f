// SPDX-License-Identifier: MIT OR Apache-2.0
//! `b-wakeful`: the default barrier; yields to its own threads, and sleeps beside other programs.
//!
//! A thread at a barrier waits for threads of its own program, and some of those may have no processor. To
//! yield gives them ours for one context switch, and nobody has to be woken. Beside another program a yield
//! is dear: Linux gives the processor away for milliseconds. A thread that sleeps loses nothing there, but
//! each round wakes everybody.
//!
//! So there are two parts. *Episodes* (`episode.rs`) count arrivals and release the waiters. The *mood*
//! (`mood.rs`) decides how a thread waits. The default mood (`learn.rs`) yields, and sleeps beside foreign
//! load. Two others always sleep or always yield.
//!
//! ```text
//! arrive ── not the last ──> mood: spin, yield ──────────────────> over ──> go on
//!   │                          └───> sleep on `calls` ───────────────┘
//!   └────── the last ──> begin the next episode ── SLEEPERS was set ──> add 1 to `calls`, wake all
//! ```
//!
//! Choose it unless you know better. Any thread may come, any may be the serial one, parties join and leave.
//! Where there are many processors, threads arrive at *nodes* (`combine.rs`), and wait for another word.
//!
//! # State
//! `state`: bits 0-15 the episode's number e; 16 SLEEPERS s; 17-31, signed, the arrivals n that it needs.
//!
//! | from | to | by |
//! |---|---|---|
//! | e, s, n > 0 | e, s, n - 1 | A1, arrival (N2: n - k, all k places of the nodes at once) |
//! | e, s, n <= 0 | e, s, n - 1 | A1, of one too many: it waits for A2 and arrives anew |
//! | e, s, n <= 0 | e + 1, 0, parties | A2, by the last to arrive (EMPTY, if all parties have left) |
//! | e, s, n > 0 | e, s, n + 1 | J1, join (EMPTY becomes 1) |
//! | e, 0, n | e, 1, n | W3, about to sleep |
//!
//! `calls`: how often sleepers were called. `parties`: what the next episode needs. The mood's words are
//! hints.
//!
//! # Invariants
//! I1. One step, A2, ends an episode. From the last A1 to A2 nobody arrives, joins or leaves.
//! I2. A1 tells a thread its episode. One too many is not counted: A2 overwrites what it subtracted.
//! I3. A sleeper has set SLEEPERS, or has seen it set, in its own episode. A2 of that episode sees it.
//! I4. A change of `parties` belongs to a thread that has yet to arrive. It stands still from the last A1 to
//!     A2. I5: `drained.rs`.
//!
//! # Protocol
//! | step | what happens |
//! |---|---|
//! | A1 A2 | Subtract one from the arrivals needed. The last one begins the next episode. |
//! | A3 A4 | A2 saw SLEEPERS: add one to `calls`, then wake all. |
//! | W1 | Spin or yield while the episode is ours. |
//! | W2 W3 W4 | Read `calls`. Set SLEEPERS if the episode is ours yet. Sleep while `calls` is what W2 read. |
//! | J1 D1 | Join: one arrival more, one party more; D1 if too many. Leave: one party less, then A1. |
//! | C1 | `summon`: write the news, then `state` as it was. SLEEPERS: A3, A4. C1 or W3 sees the other. |
//! | W5 F1, N1 to N5 | See `drained.rs` and `combine.rs`. |
//!
//! # Memory order
//! A1 (AcqRel, a chain that A2 continues) -> W1 acquire publishes what members wrote. A3 release -> W2
//! acquire: a thread that has seen its own episode's call finds that episode over. C1 release -> W3 acquire.
//! J1 and D1 need none: their threads arrive later, or tell one that does.
//!
//! # Under the scheduler
//! A party is preempted: the others yield to it, or sleep. A thread is preempted between A1 and A2: the
//! others wait as if it had not come. A hint is wrong: threads lose slices or sleep needlessly; A4 wakes
//! every sleeper. A thread that goes home, or away from another one (`apart.rs`), changes its affinity mask
//! until it is there. A mask that somebody sets in that moment may be lost. If a real-time thread has the
//! home for good, all wait for it.
//!
//! # Fairness and space
//! Fair by nature. 24 bytes, drained 28, a node 128. 12,287 parties, and as many threads too many; no nodes
//! for more than 6,143. A thread that sleeps through exactly 65,536 episodes sleeps through one more.
//!
//! # Rejected
//! Meetings, shorter rests and more: `docs/design/barrier.md`, with the measurements.
//!
//! # Checked by
//! `conformance`: threads, loom, shuttle; combining, joining, leaving, too many threads, foreign load; twins
//! (I1, I3, F1, N1, N5).

mod apart;
mod combine;
mod combined;
mod drained;
mod episode;
mod learn;
mod limits;
mod mood;

use core::marker::PhantomData;
use platform::Platform;

pub use combine::BWakefulNode;
pub use combined::Combined;
pub use drained::BWakefulDrained;
pub use episode::Episode;
use episode::{Episodes, Joined, MOST};
pub use learn::Learn;
pub use limits::long;
pub use mood::Mood;
use mood::{Sleep, Yield};

use super::{RawBarrier, RawBarrierDynamic};

/// The default barrier; with another mood, its threads wait in another way.
#[repr(C)]
pub struct BWakeful<P: Platform, M: Mood<P> = Learn<P>> {
    episodes: Episodes<P>,
    mood: M,
    platform: PhantomData<P>,
}

/// The same barrier whose threads always sleep.
pub type BSleep<P> = BWakeful<P, Sleep>;
/// The same barrier whose threads always yield.
pub type BYield<P> = BWakeful<P, Yield>;

impl<P: Platform> BWakeful<P> {
    /// The words, in their order, of a new barrier: for those who make one in a constant.
    pub const fn words(parties: u32) -> [u32; 6] {
        let [state, calls, parties] = Episodes::<P>::words(parties);
        [state, calls, parties, 0, 0, 0]
    }
}

impl<P: Platform, M: Mood<P>> BWakeful<P, M> {
    /// Parties at most; more do not fit.
    pub const MOST_PARTIES: u32 = MOST;

    /// The barrier with these nodes, the first of which is none: two at least, or nothing. All who arrive
    /// bring the same, which nobody else does.
    #[inline(always)]
    pub fn with<'a>(&'a self, nodes: &'a [BWakefulNode<P>]) -> Combined<'a, P, M> {
        let era = if nodes.is_empty() { 0 } else { combine::Nodes(nodes).era() };
        Combined { barrier: self, nodes, era }
    }

    /// Without nodes.
    #[inline(always)]
    pub fn alone(&self) -> Combined<'_, P, M> {
        self.with(&[])
    }

    /// W1 to W4: until the episode is over or `called`.
    #[inline(always)]
    fn await_release(&self, episode: Episode, called: &impl Fn() -> bool) {
        let done = || self.episodes.is_over(episode.number) || called();
        let sleep = || self.episodes.sleep(episode.number, called);
        self.mood.wait(&self.episodes, episode.others, &done, &sleep);
    }

    /// Arrives, for a thread that has something else to do while it waits. It may not come again until
    /// [`BWakeful::await_or`] has told it that the episode is over. `None`: it was the last one.
    #[inline(always)]
    pub fn enter(&self) -> Option<Episode> {
        self.alone().enter()
    }

    /// Waits until the episode of [`BWakeful::enter`] is over, true then, or `called` says that there is
    /// something else to do. It is asked again and again. The thread that makes it say so has to
    /// [`BWakeful::summon`].
    #[inline(always)]
    pub fn await_or(&self, entered: &Episode, called: impl Fn() -> bool) -> bool {
        self.await_release(*entered, &called);
        self.has_passed(entered)
    }

    /// As [`BWakeful::await_or`], asleep at once.
    pub fn sleep_or(&self, entered: &Episode, called: impl Fn() -> bool) -> bool {
        self.episodes.sleep(entered.number, &called);
        self.has_passed(entered)
    }

    /// Is the episode over that somebody has entered? What the members wrote before is seen then.
    #[inline(always)]
    pub fn has_passed(&self, entered: &Episode) -> bool {
        self.episodes.is_over(entered.number)
    }

    /// How many parties there are.
    pub fn parties(&self) -> u32 {
        self.episodes.parties()
    }

    /// Has everybody come but one? What they wrote before is seen then. To any other than that one it is a
    /// hint.
    #[inline]
    pub fn lacks_one(&self) -> bool {
        self.episodes.lacks_one()
    }

    /// Waits as parties do, but until `done`, and asleep as `sleep` does, which returns when it is done. The
    /// caller is a party that has not come. With others missing than the other processors can run, it does
    /// not spin first.
    #[inline]
    pub fn await_as_party(&self, done: impl Fn() -> bool, sleep: impl Fn()) {
        let others = self.episodes.missing().max(1) as u32 - 1;
        self.mood.wait(&self.episodes, others, &done, &sleep);
    }

    /// Those who wait look at what calls them, if the caller has changed that before; of those who sleep, so
    /// many.
    pub fn summon(&self, count: u32) {
        self.episodes.summon(count);
    }

    /// [`Combined::wait`] without nodes.
    #[inline]
    pub fn wait(&self) -> bool {
        self.alone().wait()
    }

    /// Arrives, and does not wait: for a party that cannot come again before the others have passed.
    #[inline]
    pub fn arrive_only(&self) {
        self.alone().arrive();
    }
}

impl<P: Platform, M: Mood<P>> RawBarrier<P> for BWakeful<P, M> {
    type Place = BWakefulNode<P>;
    type Member = ();

    fn new(parties: u32) -> Self {
        Self { episodes: Episodes::new(parties), mood: M::new(), platform: PhantomData }
    }

    fn places(parties: u32) -> usize {
        match combine::nodes::<P>(parties) {
            0 => 0,
            nodes => 1 + nodes,
        }
    }

    #[inline]
    unsafe fn wait(&self, nodes: &[BWakefulNode<P>], _: u32, _: &mut ()) -> bool {
        self.with(nodes).wait()
    }
}

impl<P: Platform, M: Mood<P>> RawBarrierDynamic<P> for BWakeful<P, M> {
    fn join(&self) -> bool {
        match self.episodes.join() {
            Joined::Party => true,
            Joined::TooMany => {
                self.arrive_and_drop();
                false
            }
            Joined::NoRoom => false,
        }
    }

    fn arrive_and_drop(&self) {
        self.alone().arrive_and_drop();
    }
}
