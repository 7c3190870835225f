// SPDX-License-Identifier: MIT OR Apache-2.0
//! `d-wakeful`, `d-wakeful-on`: the default. The default mutex, whose holder runs what others published
//! before it releases, as long as that pays.
//!
//! A client that finds the lock held, and stays awake for a moment anyway, publishes its request meanwhile.
//! The holder runs such requests when its own section ends. A client that is not served in that moment
//! takes its request back, and waits as the mutex waits. So nobody sleeps whose request could be run. A
//! request that has not been taken costs no wake-up. The mutex decides who sleeps and who is next. The list
//! of requests is Oyama, Taura, Yonezawa's (PDSIA 1999), made so that a request can be taken back.
//!
//! Whether it pays depends on the machine, the sections, and what threads do outside. So the lock measures
//! it: [`judge`] counts sections without and with, and keeps what was quicker. `d-wakeful-on`
//! always delegates, to compare with.
//!
//! ```text
//!   client ── A1 the mutex is free ────────────────> holder ── own section ── R1 ── R2 unlock
//!     │ held                                                                  ^ │
//!     └── D1 publish ── posts: [r] [ ] [r] ... ───────────────────────────────' │ answers
//!            └── D2 look, until the answer <────────────────────────────────────'
//!            └── D3 withdraw ── A2 lock the mutex, as others do
//! ```
//!
//! # State
//! A mutex ([`crate::mutex::Wakeful`]). A `way`: whether clients publish and holders look (`on`), and whether
//! holders count. Eight `posts`, each null or a request on its client's stack. `generation`:
//! [`Platform::generation`] of the process of which they are. The way, that, and what [`judge`] counts are
//! written under the mutex.
//!
//! # Invariants
//! - I1. Sections run under the mutex only, by its holder.
//! - I2. A request is in one post at most. Who changes the post to null, by compare-and-swap, owns the
//!   request: the client, then it is withdrawn; or the holder, then it runs it and answers.
//! - I3. A client leaves only when it owns its request, has the answer, or keeps the request alive (A4). A
//!   client that sleeps in the mutex has no other request in a post.
//!
//! # Protocol
//! A1. Take the mutex if it is free. Else, if `on` and there is a post: D1. Publish. D2. Look while there is
//! no answer, the lock is held, the holder runs, and the time of the mutex's arrivals has not passed. D3.
//! Withdraw. If the holder was quicker, wait for the answer. A2. Lock the mutex. A3. With the mutex: count
//! and judge, if holders do, and run one's own section. R1. The holder, if `on`: take each request that is
//! published, run it, answer; again, until there is none, or after so many. R2. Unlock. A4. A client that
//! does something else meanwhile: D1, and later D3, if the lock is held and `on`. G1. At a deadline: D3, or
//! give up as the mutex does.
//!
//! # Memory order
//! D1 release -> R1 acquire publishes the request. The answer's release -> D2, D3 acquire publishes what the
//! section wrote. R1 release -> D1 acquire (`generation`) has the posts cleared before a request comes to
//! them. All else is the mutex's.
//!
//! # Under the scheduler
//! Holder preempted: clients see it, withdraw, and go to the mutex, where they sleep. One whose request it
//! has taken sleeps until the answer. Client preempted: its request is run, or the lock is released; nobody
//! waits for it. More threads than processors: those who sleep do so in the mutex's line, which moves as it
//! does without us. Hint stale: as there. Killed while holding: lost. Fork: requests of threads that are not
//! in the child are there in its posts. So `generation` says whose they are; where it is another's, nobody
//! publishes, and the next holder clears them. A holder whose section forks runs no further one in the child.
//!
//! # Fairness and space
//! The mutex's: a holder runs so many requests of others at most, then it releases. 192 bytes.
//!
//! # Rejected
//! `docs/design/delegate.md`.
//!
//! # Checked by
//! `conformance`: real threads, loom, shuttle, always delegating and switching at each section. A twin that
//! withdraws without looking whether the holder was quicker is caught.

mod judge;

use core::array;
use core::ptr;
use platform::{Atomic, Clock, Deadline, Ordering::*, Platform};

use self::judge::{Judge, Seen, Way};
use super::{RawDelegate, RawDelegateTimed, Section, most_requests};
use crate::mutex::{RawMutex, RawMutexTimed, Wakeful};
use crate::wait::answer::{Answer, DONE};
use crate::wait::look::{self, may_run};

/// As many as fit into a line.
const POSTS: usize = 8;

/// A request, on its client's stack or where that keeps it.
pub struct Ask<P: Platform> {
    answer: Answer<P>,
    section: Section,
    context: *mut (),
}

impl<P: Platform> Ask<P> {
    /// A request that nobody knows of.
    pub fn new(section: Section, context: *mut ()) -> Self {
        Self { answer: Answer::waiting(), section, context }
    }

    /// Has its section run, by another thread? What that did, the caller sees then.
    pub fn is_answered(&self) -> bool {
        self.answer.get().is_some()
    }
}

/// What became of a request that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It has been run.
    Ran,
    /// Nobody has run it, and nobody will.
    Withdrawn,
    /// This process is a copy: the request is another process's.
    Lost,
}

/// What became of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The caller has the lock, is to run it, and to release.
    Locked,
    /// Another thread has run it.
    Ran,
    /// The deadline passed. Nobody has run it, and nobody will.
    Late,
}

/// What a holder writes.
#[repr(align(64))]
struct Head<P: Platform> {
    mutex: Wakeful<P>,
    judge: Judge<P>,
}

#[repr(align(64))]
struct Posts<P: Platform>([P::AtomicPtr<Ask<P>>; POSTS]);

/// What all read and hardly anybody writes. Were the way in the mutex's line, a client would fetch that
/// twice: to read, and then to write.
#[repr(align(64))]
struct Mode<P: Platform> {
    way: Way<P>,
    generation: P::AtomicU32,
    /// See [`crate::wait::vain`].
    vain: P::AtomicU32,
}

/// The default: see the head of this file. With `ALWAYS` it does not judge.
pub struct DWakeful<P: Platform, const ALWAYS: bool = false> {
    head: Head<P>,
    posts: Posts<P>,
    mode: Mode<P>,
}

impl<P: Platform, const ALWAYS: bool> RawDelegate<P> for DWakeful<P, ALWAYS> {
    fn new() -> Self {
        let zero = || P::AtomicU32::new(0);
        Self {
            head: Head { mutex: Wakeful::new(), judge: Judge::new() },
            posts: Posts(array::from_fn(|_| Atomic::new(ptr::null_mut()))),
            mode: Mode { way: Way::new(), generation: zero(), vain: zero() },
        }
    }

    #[inline]
    unsafe fn run(&self, section: Section, context: *mut ()) {
        // SAFETY: as the caller promises.
        unsafe {
            if self.lock_or_run(section, context) == Outcome::Locked {
                section(context);
                self.unlock();
            }
        }
    }
}

impl<P: Platform, const ALWAYS: bool> RawDelegateTimed<P> for DWakeful<P, ALWAYS> {
    unsafe fn run_until(&self, section: Section, context: *mut (), deadline: Deadline) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            let outcome = self.lock_or_run_until(section, context, deadline);
            if outcome == Outcome::Locked {
                section(context);
                self.unlock();
            }
            outcome != Outcome::Late
        }
    }

    #[inline]
    unsafe fn lock(&self) {
        if !self.lock_at_once() {
            self.lock_slow(None);
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.is_on() {
            self.head.judge.add(self.serve());
        }
        // SAFETY: as the caller promises.
        unsafe { self.head.mutex.unlock(&()) };
    }
}

impl<P: Platform, const ALWAYS: bool> DWakeful<P, ALWAYS> {
    #[inline(always)]
    fn is_on(&self) -> bool {
        ALWAYS || self.mode.way.look().delegates()
    }

    /// The calling thread has got the mutex. It counts at once, because others may take the line away that it
    /// has just fetched, before it releases. `seen`: before that.
    #[inline(always)]
    fn count(&self, seen: Seen) {
        if !ALWAYS && seen.counts() {
            self.head.judge.count(&self.mode.way);
        }
    }

    /// As [`RawDelegateTimed::lock`], if nobody has it.
    #[inline(always)]
    pub fn lock_at_once(&self) -> bool {
        let seen = self.mode.way.look();
        let locked = self.head.mutex.lock_at_once();
        if locked {
            self.count(seen);
        }
        locked
    }

    /// A1 to D3: has the section run, or takes the lock for it.
    ///
    /// # Safety
    /// As for [`RawDelegate::run`]. After [`Outcome::Locked`] the caller calls [`RawDelegateTimed::unlock`].
    #[inline]
    pub unsafe fn lock_or_run(&self, section: Section, context: *mut ()) -> Outcome {
        if self.lock_at_once() {
            return Outcome::Locked;
        }
        self.lock_or_run_slow(section, context, None)
    }

    /// The same, unless the deadline passes first.
    ///
    /// # Safety
    /// As for [`DWakeful::lock_or_run`].
    pub unsafe fn lock_or_run_until(
        &self,
        section: Section,
        context: *mut (),
        deadline: Deadline,
    ) -> Outcome {
        if self.lock_at_once() {
            return Outcome::Locked;
        }
        self.lock_or_run_slow(section, context, Some(deadline))
    }

    #[cold]
    #[inline(never)]
    fn lock_or_run_slow(&self, section: Section, context: *mut (), deadline: Option<Deadline>) -> Outcome {
        if self.is_on() && self.delegate(section, context, deadline) {
            return Outcome::Ran;
        }
        if self.lock_slow(deadline) { Outcome::Locked } else { Outcome::Late }
    }

    /// A2 and A3. False at the deadline.
    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: Option<Deadline>) -> bool {
        let due = !ALWAYS && self.mode.way.is_due();
        // SAFETY: there is no node.
        let locked = unsafe {
            match deadline {
                None => {
                    self.head.mutex.lock(&());
                    true
                }
                Some(deadline) => self.head.mutex.lock_until(&(), deadline),
            }
        };
        if locked && due {
            self.head.judge.begin(&self.mode.way);
        }
        if locked {
            self.count(self.mode.way.look());
        }
        locked
    }

    /// As [`RawDelegateTimed::unlock`], without a look at what others want (R1): they withdraw.
    ///
    /// # Safety
    /// As for that, but the calling thread may keep other locks.
    pub unsafe fn unlock_only(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.head.mutex.unlock(&()) };
    }

    /// A4. Publishes a request, if the lock delegates and is held, and returns at once. False if nobody knows
    /// of it.
    ///
    /// # Safety
    /// As for [`RawDelegate::run`]. The request stays until the caller has fetched it, and the lock does.
    pub unsafe fn leave(&self, ask: *mut Ask<P>) -> bool {
        self.is_on()
            && self.head.mutex.holder().is_some()
            && self.publish(P::register_lazily().0 as usize % POSTS, ask).is_some()
    }

    /// A4. Takes a request back, or waits for its answer. `generation`: of the process when it was left.
    ///
    /// # Safety
    /// A request that was left here, and is there.
    pub unsafe fn fetch(&self, ask: *mut Ask<P>, generation: u32) -> Left {
        let withdraws = |post: &P::AtomicPtr<Ask<P>>| {
            post.load(Relaxed) == ask && post.compare_exchange(ask, ptr::null_mut(), Relaxed, Relaxed).is_ok()
        };
        if self.posts.0.iter().any(withdraws) {
            return Left::Withdrawn;
        }
        // SAFETY: as promised.
        let answer = unsafe { &(*ask).answer };
        if answer.get().is_none() {
            if generation != P::generation() {
                return Left::Lost;
            }
            self.wait_for(answer);
        }
        Left::Ran
    }

    /// The holder has taken the request.
    fn wait_for(&self, answer: &Answer<P>) {
        answer.wait(&self.mode.vain, || self.head.mutex.holder().unwrap_or_default());
    }

    /// D1 to D3. False if the section has not been run and will not be.
    fn delegate(&self, section: Section, context: *mut (), deadline: Option<Deadline>) -> bool {
        let (me, now) = look::begin::<P>();
        let ask = Ask::new(section, context);
        let mine = (&raw const ask).cast_mut();
        let Some(post) = self.publish(me.0 as usize % POSTS, mine) else { return false };
        if self.watch(&ask.answer, now, deadline) {
            return true;
        }
        // D3.
        if post.compare_exchange(mine, ptr::null_mut(), Relaxed, Relaxed).is_ok() {
            return false;
        }
        self.wait_for(&ask.answer);
        true
    }

    /// D1.
    fn publish(&self, home: usize, ask: *mut Ask<P>) -> Option<&P::AtomicPtr<Ask<P>>> {
        // ORDER: Acquire (D1), pairs with R1: the posts have been cleared, before a request comes to them.
        if self.mode.generation.load(Acquire) != P::generation() {
            return None;
        }
        let (before, after) = self.posts.0.split_at(home);
        after.iter().chain(before).find(|post| {
            post.load(Relaxed).is_null()
                // ORDER: Release (D1), pairs with R1.
                && post.compare_exchange(ptr::null_mut(), ask, Release, Relaxed).is_ok()
        })
    }

    /// D2. True if there is an answer.
    fn watch(&self, answer: &Answer<P>, began: u64, deadline: Option<Deadline>) -> bool {
        let costs = P::costs();
        let mut until = began + 3 * costs.switch;
        if let Some(Deadline { ns, clock: Clock::Monotonic }) = deadline {
            until = until.min(ns);
        }
        let (mut now, mut next) = (began, began);
        loop {
            if answer.get().is_some() {
                return true;
            }
            if now >= next {
                // HINT: wrong, it withdraws too early, or looks for longer.
                let may_be_served = self.head.mutex.holder().is_some_and(may_run::<P>);
                if !may_be_served || now >= until {
                    return false;
                }
                next = now + 2 * costs.line;
            }
            P::pause();
            now = P::now_ns();
        }
    }

    /// The holder asks: are the posts those of this process's parent?
    fn is_copy(&self) -> bool {
        self.mode.generation.load(Relaxed) != P::generation()
    }

    /// R1. Returns how many requests it has run.
    fn serve(&self) -> u32 {
        let most = most_requests::<P>();
        let mut ran = 0;
        if self.is_copy() {
            self.posts.0.iter().for_each(|post| post.store(ptr::null_mut(), Relaxed));
            // ORDER: Release (R1), pairs with D1.
            self.mode.generation.store(P::generation(), Release);
        }
        loop {
            let before = ran;
            for post in &self.posts.0 {
                let seen = post.load(Relaxed);
                if seen.is_null() {
                    continue;
                }
                // ORDER: Acquire (R1), pairs with D1. What was seen may be gone and another in its place.
                let Ok(ask) = post.compare_exchange(seen, ptr::null_mut(), Acquire, Relaxed) else {
                    continue;
                };
                // SAFETY: by I3 its client waits for the answer, which nobody else gives.
                unsafe { ((*ask).section)((*ask).context) };
                ran += 1;
                if self.is_copy() {
                    // The section has forked. Neither its client is here nor those of other requests.
                    return ran;
                }
                // SAFETY: as above.
                unsafe { Answer::give(&raw const (*ask).answer, DONE) };
            }
            if ran == before || ran >= most {
                return ran;
            }
        }
    }
}
