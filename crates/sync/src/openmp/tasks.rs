// SPDX-License-Identifier: MIT OR Apache-2.0
//! A team's tasks: who runs them, who is called to them, and when all are done.
//!
//! The problem: members that wait at a barrier are to run the tasks that others make. A call wakes somebody
//! and costs as much as tens of tasks, and most makers run their own tasks soon. But a task that came from
//! outside must be run though everybody is about to fall asleep. And no barrier may open before the last
//! task is done.
//!
//! The idea: one word says how many tasks are queued, how many threads run whatever there is, and whether
//! somebody was called since. All three change in one step, so whoever leaves off and whoever puts a task
//! agree on who was first. Tasks that are not done are counted beside. A member that arrives at the barrier
//! while there are some holds it as one party more, and the last task lets it go.
//!
//! ```text
//!   word:    queued (32) | running (31) | CALLED          open: tasks that are not done (31) | HELD
//!   maker:   O1 open += 1   P1 into a deque   P2 queued += 1   P3 call?
//!   runner:  R1 running += 1   R2 take: queued -= 1   run   O2 open -= 1, last: let go   R3 running -= 1, wait
//!   arrival: O3 open? hold, HELD = 1   enter the barrier
//! ```
//!
//! # State
//! `word`: queued changes by P2 and R2, running by R1 and R3, CALLED is set by P3 and cleared by a runner
//! before it looks. `futile`: runs in a row that were in vain; `quiet_until`: a time; hints, both. `open`:
//! by O1 and O2; HELD is set by O3 and cleared by the last O2 in its step. `epoch`: which region this is.
//!
//! # Invariants
//! I1. A counted task is in a deque, or taken and not counted down yet. R2 may count down before P2 counts
//! up: then `queued` is less than 0, which counts as 0. I2. A task
//! is counted in `open` from before P1 until after it has run. I3. While `open` is not 0, a member has not
//! arrived, or the barrier has one party more (HELD). It does not open. I4. If a call is made while somebody
//! runs, that one sees the call before R3, and passes it on if it takes nothing. If not, the woken one sees
//! that nobody runs any more. I5. Nobody falls asleep in a task while there are others, without a call to
//! them.
//!
//! # Protocol
//! A waiter is called if there are tasks for more: two queued, or one and CALLED, and fewer runners than
//! processors. P3 calls where the task came from outside, is the second, or is a lone one in turn. A lone
//! task is not called for each time: one call in two to the power of `futile`. If nobody has run anything
//! since the last call, that one was in vain. If runners are enough, only those are told who wait for tasks
//! of their own. R1 to R3 as above; a runner that leaves a call behind it calls on, and so does one that sees
//! tasks for more and no call under way.
//!
//! O3 adds the party first and sets HELD then, unless no task is left, or another one has held meanwhile: it
//! takes its party back. So whoever lets go comes after that party, and a barrier that lacks the member at O3
//! cannot open by a party taken back. A task whose maker has not arrived needs no party (I3): its maker finds
//! it at O3. A task's maker is a member that has not arrived, or runs a task, which is counted itself.
//!
//! The last O2 rings the primary thread only if all helpers are back. Else the one that is missing rings when
//! it arrives, and the look before that ring did not see it: so whom it wakes sees O2. After the last O2 the
//! region may be over. Members stay. Who completes a task from outside holds the team before it counts
//! anything down, until it has rung.
//!
//! *Grain.* A stolen task and its counters travel by some four cache lines. If it takes less than they do,
//! the thief delays the maker by more than it takes over. So the first that a run steals is timed, and then
//! one in [`BATCH`]. After a small one the thief rests. If those after it were small, too, all in all, the
//! run counts as one in vain. After runs in vain nobody is called to a member's tasks until `quiet_until`:
//! their maker runs them itself when it waits. Tasks from outside are called for all the same, and so are
//! those that a thread may not run that falls asleep (I5).
//!
//! # Memory order
//! P2 release -> `are_there` acquire: whoever sees a task sees its region. The deque publishes the task
//! itself. R3 release -> `are_run` acquire: runners that have left look at no member any more. O2 (AcqRel)
//! forms a chain: what all tasks did comes before the barrier, and before `are_open` acquire. O3 acquire: who
//! finds none arrives with what they did. O3 release -> O2 acquire: the party comes before it is let go.
//!
//! # Under the scheduler
//! Maker preempted between P1 and P2: its task is found late, and the barrier is held. Runner preempted in
//! a task: the barrier waits for it. HINT: `futile`, `quiet_until`, `processors`: wrong, somebody is called
//! for nothing, or less is done at a time.
//!
//! # Fairness and space
//! A member runs its newest task first and then others' oldest. 384 bytes a team.
//!
//! # Rejected
//! `docs/design/openmp.md`.
//!
//! # Checked by
//! `conformance`, `openmp`: real threads, loom, shuttle; twins whose barrier is not held and whose call is
//! lost are caught. So are, with fork and join, twins that never ring the primary thread, and that do not
//! hold the team.

use platform::{Atomic, AtomicInt, Ordering::*, Platform, Wide};

use super::{Apart, Deque, Event, Linked, Patience, await_or};
use crate::barrier::BWakeful;

const HELD: u32 = 1;
const OPEN: u32 = 2;

const CALLED: u64 = 1;
const RUNNER: u64 = 2;
/// Above the others, so that it may be less than 0: R2 may come between P1 and P2.
const QUEUED: u64 = 1 << 32;

fn queued(word: u64) -> u32 {
    ((word >> 32) as i32).max(0) as u32
}

fn running(word: u64) -> u32 {
    word as u32 / RUNNER as u32
}

/// COST: see [`Tasks`]; a call that wakes somebody costs as much as making some tens of tasks. No cell known.
const MOST_FUTILE: u32 = 5;
/// Tasks of a deque that are looked at for one that may be run here.
const MOST_LOOKS: usize = 16;

/// A team, as its tasks know it.
pub trait Crew<P: Wide> {
    /// What is run.
    type Task: Linked;

    /// Its members.
    fn size(&self) -> u32;
    /// A member's tasks.
    fn deque(&self, member: usize) -> &Deque<P, Self::Task>;
    /// One of those who wait at a barrier looks at what there is.
    fn summon(&self);
    /// A party more to the barrier, until [`Crew::let_go`].
    fn hold(&self);
    /// The last task is done.
    fn let_go(&self);
    /// For those who wait for tasks of their own, and for the primary thread.
    fn bells(&self) -> [&Event<P>; 2];
    /// May the primary thread be waiting for tasks alone? If not, somebody rings whom it also waits for.
    fn are_back(&self) -> bool;
}

/// Of so many stolen tasks of a run one is timed, the first to begin with: a run of one would teach nothing.
/// Two looks at the clock cost less than a line's way, of which a task then pays a sixteenth.
const BATCH: u32 = 16;
/// Lines' ways for which a thief rests after a small task: eight times what a batch of them takes. The maker
/// is let alone for eight ninths of the time.
const REST: u64 = 8 * 2 * BATCH as u64;

/// What a run steals.
#[derive(Default)]
struct Grain {
    stolen: u32,
    is_small: bool,
    /// When the last one that was timed was over, in nanoseconds.
    timed: u64,
}

impl Grain {
    /// Runs a stolen task, and rests after a small one until `over`, which is asked now and then: it looks at
    /// what the maker writes.
    fn steal<P: Platform>(&mut self, run: impl FnOnce(), over: impl Fn() -> bool) {
        self.stolen += 1;
        if self.stolen % BATCH != 1 {
            return run();
        }
        let (line, before) = (P::costs().line, P::now_ns());
        run();
        let after = P::now_ns();
        self.is_small = after - before < 4 * line;
        let mut pauses = 0;
        while self.is_small && P::now_ns() < after + REST * line {
            P::pause();
            pauses += 1;
            if pauses % BATCH == 0 && over() {
                break;
            }
        }
        self.timed = P::now_ns();
    }

    /// Was the run in vain? So it was if the last one timed was small, and those after it were, together.
    fn is_vain<P: Platform>(&self) -> bool {
        let more = u64::from(self.stolen.saturating_sub(1) % BATCH);
        self.is_small && (more == 0 || P::now_ns() - self.timed < 4 * P::costs().line * more)
    }
}

/// A team's tasks.
pub struct Tasks<P: Wide, T: Linked> {
    word: Apart<P::AtomicU64>,
    futile: P::AtomicU32,
    quiet_until: P::AtomicU64,
    epoch: P::AtomicU32,
    urgent_count: P::AtomicU32,
    /// Those with a priority, the least first.
    urgent: Deque<P, T>,
    open: Apart<P::AtomicU32>,
}

impl<P: Wide, T: Linked> Default for Tasks<P, T> {
    fn default() -> Self {
        let zero = || Atomic::new(0);
        Self {
            word: Apart(Atomic::new(0)),
            futile: zero(),
            quiet_until: Atomic::new(0),
            epoch: zero(),
            urgent_count: zero(),
            urgent: Deque::default(),
            open: Apart(zero()),
        }
    }
}

impl<P: Wide, T: Linked> Tasks<P, T> {
    /// Are there tasks that could be run?
    #[inline(always)]
    pub fn are_there(&self) -> bool {
        // ORDER: Acquire, pairs with P2: who sees a task sees the region that it belongs to.
        queued(self.word.0.load(Acquire)) > 0
    }

    /// Are there tasks for somebody who does not run any? A lone one only if somebody was called to it. More
    /// threads than processors have nothing to run them on: those who do are enough.
    #[inline(always)]
    pub fn are_for_more(&self) -> bool {
        // Whoever then takes a task looks by `are_there`.
        let word = self.word.0.load(Relaxed);
        (queued(word) > 1 || queued(word) == 1 && word & CALLED != 0) && running(word) < P::processors()
    }

    /// The same, and nobody is called.
    fn want_more(&self) -> bool {
        let word = self.word.0.load(Relaxed);
        queued(word) > 1 && word & CALLED == 0 && running(word) < P::processors()
    }

    /// Is anybody looking for tasks? Between regions, when there are none, who comes after a false finds
    /// none and leaves.
    pub fn are_run(&self) -> bool {
        // ORDER: Acquire, pairs with R3.
        running(self.word.0.load(Acquire)) > 0
    }

    /// Are there tasks that are not done?
    #[inline]
    pub fn are_open(&self) -> bool {
        // ORDER: Acquire, pairs with O2.
        self.open.0.load(Acquire) >= OPEN
    }

    /// HINT: how many are not done.
    #[inline]
    pub fn open(&self) -> u32 {
        self.open.0.load(Relaxed) / OPEN
    }

    /// Which region this is.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Relaxed)
    }

    /// A region begins.
    #[inline]
    pub fn begin_epoch(&self, epoch: u32) {
        self.epoch.store(epoch, Relaxed);
    }

    /// A new task is waited for until [`Tasks::one_done`]. O1.
    #[inline]
    pub fn one_more(&self) {
        self.open.0.fetch_add(OPEN, Relaxed);
    }

    /// One is done. Its maker may have waited for it: `awaited`. O2.
    #[inline]
    pub fn one_done(&self, crew: &impl Crew<P>, awaited: bool) {
        let mut open = self.open.0.load(Relaxed);
        loop {
            // With the last one HELD goes.
            let left = if open / OPEN == 1 { 0 } else { open - OPEN };
            // ORDER: AcqRel (O2), pairs with itself, `are_open` and O3: what all tasks did comes before the
            // arrival at the barrier.
            match self.open.0.compare_exchange_weak(open, left, AcqRel, Relaxed) {
                Ok(_) if left > 0 && !awaited => return,
                Ok(_) => break,
                Err(now) => open = now,
            }
        }
        if open == OPEN + HELD {
            crew.let_go();
        }
        let [own, back] = crew.bells();
        Event::<P>::written();
        own.ring();
        if open / OPEN == 1 && crew.are_back() {
            back.ring();
        }
    }

    /// Has the barrier wait for the tasks that there are, before this member arrives there. O3.
    #[inline]
    pub fn hold(&self, crew: &impl Crew<P>) {
        // ORDER: Acquire (O3), pairs with O2: what the tasks did comes before the arrival.
        let open = self.open.0.load(Acquire);
        if open >= OPEN && open & HELD == 0 {
            self.hold_for(crew, open);
        }
    }

    #[cold]
    fn hold_for(&self, crew: &impl Crew<P>, mut open: u32) {
        crew.hold();
        while open >= OPEN && open & HELD == 0 {
            // ORDER: Release (O3), pairs with O2, which lets go. Acquire, as above.
            match self.open.0.compare_exchange(open, open | HELD, Release, Acquire) {
                Ok(_) => return,
                Err(now) => open = now,
            }
        }
        crew.let_go();
    }

    /// Somebody more is to run tasks, of those who wait.
    pub fn call(&self, crew: &impl Crew<P>) {
        // The word itself orders this among P2 and R3.
        self.word.0.fetch_or(CALLED, Relaxed);
        crew.summon();
        Event::<P>::written();
        crew.bells().iter().for_each(|bell| bell.ring());
    }

    /// A task can be run. With a priority it stands behind those that are `before` it. `by`: which member
    /// has made it; `None`: somebody outside of the team. `lone_puts`: how many lone ones the caller has put
    /// before. P1 to P3.
    pub fn put<C: Crew<P, Task = T>>(
        &self,
        crew: &C,
        task: &'static T,
        before: Option<impl Fn(&T) -> bool>,
        by: Option<u32>,
        lone_puts: impl FnOnce() -> u32,
    ) {
        match before {
            Some(before) => {
                self.urgent.insert(task, before);
                self.urgent_count.fetch_add(1, Relaxed);
            }
            None => crew.deque(by.unwrap_or(0) as usize).push(task),
        }
        // ORDER: Release (P2), pairs with `are_there`.
        let word = self.word.0.fetch_add(QUEUED, Release);
        let others = queued(word);
        if by.is_none() {
            // It comes back for nothing: also those who leave off running are to see the call.
            self.call(crew);
        } else if running(word) >= P::processors() {
            // Who waits for tasks of his own may wait for this one.
            crew.bells()[0].notify();
        } else if others == 1 || others == 0 && lone_puts() & ((1 << self.futile.load(Relaxed)) - 1) == 0 {
            if others == 0 && word & CALLED != 0 {
                self.was_futile();
            }
            match self.is_quiet() {
                // Who waits for tasks of his own may be the only one who may run this one.
                true => crew.bells()[0].notify(),
                false => self.call(crew),
            }
        }
    }

    /// The caller is about to sleep. What there is it may not run, and perhaps nobody was called to it, not
    /// even the primary thread in its join.
    fn hand_on(&self, crew: &impl Crew<P>) {
        if self.are_there() {
            self.word.0.fetch_or(CALLED, Relaxed);
            crew.summon();
            crew.bells()[1].notify();
        }
    }

    /// A thread that does not run whatever there is waits for something.
    pub fn wait(&self, crew: &impl Crew<P>, wait: impl FnOnce()) {
        self.hand_on(crew);
        wait();
    }

    /// HINT: has what calls brought lately been less than what they cost?
    fn is_quiet(&self) -> bool {
        let until = self.quiet_until.load(Relaxed);
        until != 0 && P::now_ns() < until
    }

    /// HINT: nobody has run anything since the last call. Whoever was called came too late, and sleeps again.
    #[cold]
    fn was_futile(&self) -> u32 {
        let futile = (self.futile.load(Relaxed) + 1).min(MOST_FUTILE);
        self.futile.store(futile, Relaxed);
        futile
    }

    /// HINT: was a run in vain? Several who write it may lose a lesson.
    fn learn(&self, paid: bool) {
        match paid {
            true if self.futile.load(Relaxed) == 0 => {}
            true => {
                self.futile.store(0, Relaxed);
                self.quiet_until.store(0, Relaxed);
            }
            false => {
                let until = P::now_ns() + (P::costs().sleep << self.was_futile());
                self.quiet_until.store(until, Relaxed);
            }
        }
    }

    /// Takes a task that `may` be taken, for this member. `stop` is asked under the deque's lock. R2.
    pub fn take<C: Crew<P, Task = T>>(
        &self,
        crew: &C,
        own: usize,
        may: impl Fn(&T) -> bool,
        stop: impl Fn() -> bool,
    ) -> Option<&'static T> {
        self.take_from(crew, own, may, stop).map(|(task, _)| task)
    }

    /// The same; true if another member has made it.
    #[inline]
    fn take_from<C: Crew<P, Task = T>>(
        &self,
        crew: &C,
        own: usize,
        may: impl Fn(&T) -> bool,
        stop: impl Fn() -> bool,
    ) -> Option<(&'static T, bool)> {
        if !self.are_there() {
            return None;
        }
        let urgent = || {
            let task = self.urgent.take_newest(usize::MAX, &stop, &may);
            self.urgent_count.fetch_sub(task.is_some() as u32, Relaxed);
            task
        };
        let size = crew.size() as usize;
        let oldest = |step| crew.deque((own + step) % size).take_oldest(MOST_LOOKS, &stop, &may);
        let first = if self.urgent_count.load(Relaxed) > 0 { urgent() } else { None };
        let own = || crew.deque(own).take_newest(MOST_LOOKS, &stop, &may);
        let found = match first.or_else(own) {
            Some(task) => (task, false),
            None => ((1..size).find_map(oldest)?, true),
        };
        self.word.0.fetch_sub(QUEUED, Relaxed);
        Some(found)
    }

    /// Has this member run whatever there is, until `stop`. R1 to R3.
    #[cold]
    #[inline(never)]
    pub fn run_all<C: Crew<P, Task = T>>(
        &self,
        crew: &C,
        own: usize,
        run: impl Fn(&'static T),
        stop: impl Fn() -> bool,
    ) {
        let word = self.word.0.fetch_add(RUNNER, Relaxed);
        // Before the looks: what a caller has put into a queue we find.
        let was_called = word & CALLED != 0 && self.word.0.fetch_and(!CALLED, Relaxed) & CALLED != 0;
        let mut called = was_called;
        let (mut any, mut grain) = (false, Grain::default());
        while let Some((task, stolen)) = self.take_from(crew, own, |_| true, &stop) {
            // The call may have been for what is left.
            if core::mem::take(&mut called) && self.are_there() || self.want_more() {
                self.call(crew);
            }
            any = true;
            match stolen {
                true => grain.steal::<P>(|| run(task), || !self.are_there() || stop()),
                false => run(task),
            }
        }
        if any || was_called {
            self.learn(any && !grain.is_vain::<P>());
        }
        // Only then: where it has just found nothing, whoever has taken the task counts down soon.
        if called && stop() {
            // The call was for others.
            self.hand_on(crew);
        }
        // ORDER: Release (R3), pairs with `are_run`.
        self.word.0.fetch_sub(RUNNER, Release);
    }

    /// A task of a thread that runs whatever there is waits for something; somebody else may run tasks
    /// meanwhile.
    pub fn pause(&self, crew: &impl Crew<P>, wait: impl FnOnce()) {
        // Orders nothing: the task that waits is not done.
        self.word.0.fetch_sub(RUNNER, Relaxed);
        self.hand_on(crew);
        wait();
        self.word.0.fetch_add(RUNNER, Relaxed);
    }

    /// Has this lone member run tasks, and wait for those that others run, until all are done.
    pub fn finish<C: Crew<P, Task = T>, W: Patience>(&self, crew: &C, own: usize, run: impl Fn(&'static T)) {
        while self.are_open() {
            self.run_all(crew, own, &run, || false);
            let watch = crew.bells()[0].watch();
            watch.wait::<W>(&|| self.are_there() || !self.are_open());
        }
    }

    /// Waits at a barrier, and meanwhile has this member run what there is; returns early if `left`.
    #[inline(always)]
    pub fn meet_at<C: Crew<P, Task = T>, W: Patience>(
        &self,
        crew: &C,
        barrier: &BWakeful<P>,
        own: impl Fn() -> usize,
        run: impl Fn(&'static T),
        left: impl Fn() -> bool,
    ) {
        if self.are_there() {
            self.run_all(crew, own(), &run, || false);
        }
        self.hold(crew);
        if let Some(episode) = barrier.enter() {
            while !await_or::<W, P>(barrier, &episode, || self.are_for_more() || left()) {
                if left() {
                    return;
                }
                self.run_all(crew, own(), &run, || false);
            }
        }
    }
}
