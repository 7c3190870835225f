// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default mood: yields while what the threads yield comes to their own kind, and sleeps while others
//! would take it.
//!
//! ```text
//!            foreign load              much to gain, after a rest
//!   awake ──────────────────> asleep ─────────────────────────────> trial
//!     ^                        │  ^                                  │ │
//!     └── no foreign load ─────┘  └── fewer rounds than asleep ──────┘ │
//!     └── no foreign load ─────────────────────────────────────────────┘
//! ```
//!
//! | phase | waiters | a judgement |
//! |---|---|---|
//! | awake | spin, yield | foreign load: asleep |
//! | asleep | sleep at once | no foreign load: awake. Rounds are short, or nobody can tell of load: trial |
//! | trial | spin, yield in spite of load | no foreign load: awake. Fewer rounds than asleep: asleep |
//!
//! [`Platform::crowd`] tells of foreign load, a look a millisecond. Threads that are awake go to sleep for a
//! load that lasts, which two looks have seen, or for one that a look has seen while they lack processors.
//! Where it cannot tell, the effect does. While the threads of a process run or yield, they want all
//! processors. If they got less, somebody else had the rest. It cannot tell either where some parties sleep:
//! they count as running, and hide as many others.
//!
//! Awake, a waiter that shares its processor with another party moves away (`apart.rs`).
//!
//! Asleep, with more threads than processors and little work, all sleep on one processor, their *home*, if
//! that makes more rounds.
//!
//! Beside foreign load short rounds may be faster awake: their waiters then run at the same time or not at
//! all. Where others have all processors, that goes for longer rounds, too, with a processor for each; with
//! more threads none gained there, and each yield is a slice lost. A trial finds out. It lasts for
//! as long as it makes at least as many rounds as the threads made asleep. It begins where they slept, often
//! on one processor: with a processor for each, a waiter whose yield another party takes moves away. With
//! more threads than processors, some of those who wait soon sleep. Then a trial is no time to tell from what
//! runs that the load has gone.
//!
//! Where a scheduler listens, a waiter that yields is a contender (S6 and S8 of [`publish`]). With the least
//! priority of all (ICPP 2001, section 4) it would not run again beside threads that poll: nobody could raise
//! it when the last one has come.
//!
//! All words are hints, and races between writers lose a lesson, no more.

use platform::{Atomic, Ordering::*, Platform};

use super::apart;
use super::episode::{Episodes, spin_for};
use super::limits::{self, *};
use super::mood::{Mood, spin};
use crate::wait::{look, publish};

/// The phases in `phase`; without either, awake.
const ASLEEP: u32 = 1 << 31;
const TRIAL: u32 = 1 << 30;
/// Fields of `phase`, awake: those of `apart.rs`. Field in other phases: trials in a row that failed.
const FAILURES: u32 = 3;
/// Field of `phase`: looks since the rest began.
const LOOK: u32 = 1 << 2;
const MOST_LOOKS: u32 = 63;
/// Field of `phase`: rounds in [`RATE_MS`] asleep, and 1 more; 0: not known yet.
const RATE: u32 = 1 << 8;
const MOST_RATE: u32 = (1 << 16) - 1;

/// Learns.
#[repr(C)]
pub struct Learn<P: Platform> {
    phase: P::AtomicU32,
    /// When the phase, or its sample, began: the episode, and above it milliseconds.
    since: P::AtomicU32,
    /// Processor time at that moment: microseconds. Asleep, the home: its processor and 1 more, or 0.
    cpu: P::AtomicU32,
}

/// Beside a home: nobody has looked yet how it does. Alone: it did badly.
const NEW: u32 = 1 << 31;

/// What is known of foreign load.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    None,
    /// One look has seen some.
    Seen,
    Lasts,
}

/// What has happened since a phase or its sample began.
struct Sample {
    elapsed_ms: u32,
    /// In [`RATE_MS`].
    rounds: u32,
}

impl<P: Platform> Mood<P> for Learn<P> {
    fn new() -> Self {
        Self { phase: Atomic::new(0), since: Atomic::new(0), cpu: Atomic::new(0) }
    }

    /// Most often the caller is the only one of ours who runs: so others than these are told from the parties
    /// for once.
    fn begin(&self, episodes: &Episodes<P>) {
        let now = P::now_ns();
        if Self::load(episodes, now, 1).is_some_and(|load| load != Load::None) {
            self.enter(episodes, ASLEEP, now);
        }
    }

    #[inline]
    fn wait(&self, episodes: &Episodes<P>, others: u32, done: &impl Fn() -> bool, sleep: &impl Fn()) {
        let phase = self.phase.load(Relaxed);
        if phase & ASLEEP != 0 {
            self.go_home();
            return sleep();
        }
        let processors = P::processors();
        if others < processors && spin(episodes, processors, done) {
            return;
        }
        self.wait_awake(episodes, done, sleep);
    }

    #[inline]
    fn ends(&self, episodes: &Episodes<P>, sleepers: bool) {
        let phase = self.phase.load(Relaxed);
        if phase & ASLEEP != 0 && sleepers || phase & TRIAL != 0 && episodes.number().is_multiple_of(64) {
            let awake = if phase & ASLEEP != 0 { 1 } else { episodes.parties() };
            self.judge(episodes, P::now_ns(), awake);
        }
    }
}

impl<P: Platform> Learn<P> {
    /// As of a new barrier.
    pub fn renew(&self) {
        [&self.phase, &self.since, &self.cpu].iter().for_each(|word| word.store(0, Relaxed));
    }

    #[inline(never)]
    fn wait_awake(&self, episodes: &Episodes<P>, done: &impl Fn() -> bool, sleep: &impl Fn()) {
        publish::waiting::<P, _>(|| self.yield_awake(episodes, done, sleep));
    }

    #[inline]
    fn yield_awake(&self, episodes: &Episodes<P>, done: &impl Fn() -> bool, sleep: &impl Fn()) {
        let processors = P::processors();
        let trial = self.phase.load(Relaxed) & TRIAL != 0;
        let parties = episodes.parties();
        let began = look::begin_unnamed::<P>();
        let mut now = began;
        // With a processor for each, a waiter that yields beside others runs when its own kind does not.
        let persists = parties <= processors && !P::metered();
        if trial && persists && spin_for::<P>(PERSIST_PAUSES, done) {
            return;
        }
        loop {
            if done() {
                return;
            }
            if !trial && Self::load(episodes, now, parties) == Some(Load::Lasts) {
                self.enter(episodes, ASLEEP, now);
                return sleep();
            }
            let before = P::now_ns();
            P::yield_now();
            now = P::now_ns();
            let away = now - before;
            // Asleep, only who ends a round knows how many of ours are awake.
            if away > limits::long::<P>() && self.phase.load(Relaxed) & ASLEEP == 0 {
                self.judge(episodes, now, parties);
            }
            if parties <= processors {
                match trial {
                    true => self.try_apart(parties, away),
                    false => self.move_apart(episodes, now, away),
                }
            }
            if done() {
                return;
            }
            let missing = episodes.missing();
            let alone = away < limits::switch::<P>();
            // Nobody took the yield, and more are missing than the other processors can run: some wait there.
            let lonely = parties > processors && alone && missing >= processors as i32;
            let patience = match () {
                () if lonely => limits::lonely::<P>(),
                () if trial && persists => limits::most_patience::<P>(),
                () => limits::patience::<P>(),
            };
            if now - began > patience || self.phase.load(Relaxed) & ASLEEP != 0 {
                return sleep();
            }
            // Long only where nobody took the yield: else one of ours may wait for this processor.
            let released = match persists && (trial || alone) {
                true => spin_for::<P>(PERSIST_PAUSES, done),
                false => missing < processors as i32 && spin(episodes, processors, done),
            };
            if released {
                return;
            }
        }
    }

    /// Are there threads of other programs that want our processors? Of ours `awake` run or could.
    fn load(episodes: &Episodes<P>, now: u64, awake: u32) -> Option<Load> {
        let crowd = P::crowd(now, awake)?;
        let crowded = crowd.others > 0 && crowd.others + episodes.parties() > crowd.processors;
        Some(match crowded {
            false => Load::None,
            true if crowd.lasts => Load::Lasts,
            true => Load::Seen,
        })
    }

    /// The caller was away for so long after yielding, awake, with a processor for each: does it share one?
    #[inline]
    fn move_apart(&self, episodes: &Episodes<P>, now: u64, away: u64) {
        let phase = self.phase.load(Relaxed);
        let ms = |ns| ns / 1_000_000;
        let taken = away > limits::switch::<P>();
        let next = apart::after(phase, taken, ms(now), ms(P::costs().slice));
        if next.word != phase && phase & (ASLEEP | TRIAL) == 0 {
            self.moved_apart(episodes, now, away, phase, &next);
        }
    }

    /// The same in a trial, which begins where the threads slept: often on one processor. A yield that took
    /// less than a slice was taken by one of ours.
    fn try_apart(&self, parties: u32, away: u64) {
        let phase = self.phase.load(Relaxed);
        let shares = away > limits::switch::<P>() && away < P::costs().slice / 2;
        let moved = (phase / LOOK) & MOST_LOOKS;
        if shares
            && phase & TRIAL != 0
            && moved + 1 < parties
            && moved < MOST_LOOKS
            && self.phase.compare_exchange(phase, phase + LOOK, Relaxed, Relaxed).is_ok()
        {
            P::migrate(None);
        }
    }

    #[cold]
    #[inline(never)]
    fn moved_apart(&self, episodes: &Episodes<P>, now: u64, away: u64, phase: u32, next: &apart::Next) {
        // Whoever has the yield for a slice is another program's.
        let ours = || match Self::load(episodes, now, episodes.parties()) {
            Some(load) => load == Load::None,
            None => away < P::costs().slice,
        };
        let remembered = self.phase.compare_exchange(phase, next.word, Relaxed, Relaxed).is_ok();
        if remembered && next.moves && ours() {
            P::migrate(None);
        }
    }

    /// Sleepers are about to be called, or somebody was away for long: is the phase over?
    ///
    /// HINT: wrong in one direction, slices are lost until the next sample; in the other, threads sleep that
    /// need not.
    #[cold]
    #[inline(never)]
    fn judge(&self, episodes: &Episodes<P>, now: u64, awake: u32) {
        P::refresh_processors(Some(now));
        let phase = self.phase.load(Relaxed);
        let sample = self.sample(episodes, now);
        let load = Self::load(episodes, now, awake);
        if phase & (ASLEEP | TRIAL) == 0 {
            self.judge_awake(episodes, now, &sample, load);
        } else if load == Some(Load::None) && (phase & ASLEEP != 0 || Self::fit(episodes)) {
            self.enter(episodes, 0, now);
        } else if phase & ASLEEP != 0 {
            self.judge_asleep(episodes, now, &sample, load);
        } else {
            self.judge_trial(episodes, now, &sample);
        }
    }

    /// Is there a processor for each?
    fn fit(episodes: &Episodes<P>) -> bool {
        episodes.parties() <= P::processors()
    }

    fn judge_awake(&self, episodes: &Episodes<P>, now: u64, sample: &Sample, load: Option<Load>) {
        if sample.elapsed_ms > 2 * FIRST_MS + SAMPLE_MS {
            self.enter(episodes, 0, now);
        } else if sample.elapsed_ms >= FIRST_MS {
            let used = u64::from(self.enter(episodes, 0, now));
            // COST: less than 7/8 of what the processors have is less than all of it. No cell known.
            let all = u64::from(sample.elapsed_ms) * 1_000 * u64::from(P::processors());
            let lacks = match load {
                // All parties could run, and nobody else.
                Some(Load::None) if !episodes.has_sleepers() => false,
                Some(Load::Lasts) => true,
                // The caller has lost a slice as well.
                _ => used < all * 7 / 8,
            };
            if lacks {
                self.cpu.store(0, Relaxed);
                self.phase.store(ASLEEP, Relaxed);
            }
        }
    }

    fn judge_asleep(&self, episodes: &Episodes<P>, now: u64, sample: &Sample, load: Option<Load>) {
        if sample.elapsed_ms < REST_MS {
            return;
        }
        let phase = self.phase.load(Relaxed);
        let (rate, failures) = ((phase / RATE) & MOST_RATE, phase & FAILURES);
        let looks = ((phase / LOOK) & MOST_LOOKS) + 1;
        let made = (sample.rounds + 1).min(MOST_RATE);
        let parties = episodes.parties();
        let shorter = |us| sample.rounds.saturating_mul(us) > RATE_MS * 1_000;
        let fit = Self::fit(episodes);
        let full = || P::crowd(now, 1).is_some_and(|crowd| crowd.others >= crowd.processors);
        let short_us = match fit {
            true if full() => FULL_SHORT_US.max(parties * LITTLE_US),
            true => SHORT_US.max(parties * LITTLE_US),
            // On each processor a yield goes to another program for a slice.
            false if full() => 0,
            false => parties * LITTLE_US,
        };
        if (shorter(short_us) || load.is_none()) && looks >= 1 << (2 * failures) {
            self.enter(episodes, TRIAL | (rate.max(made) * RATE) | failures, now);
            return;
        }
        let home = self.cpu.load(Relaxed);
        let kept = (looks.min(MOST_LOOKS) * LOOK) | failures;
        self.enter(episodes, ASLEEP | (rate.max(made) * RATE) | kept, now);
        let home = match home {
            _ if fit || !shorter(parties * LITTLE_US) => 0,
            // Not by a lucky sample: it would begin one again and again.
            0 if shorter(parties * LITTLE_US / 2) => P::running_on().map_or(NEW, |here| NEW | (here + 1)),
            0 => 0,
            home if home & NEW != 0 && made < rate => NEW,
            home => home & !NEW,
        };
        self.cpu.store(home, Relaxed);
    }

    /// More threads than processors, asleep, and little work: all sleep on one processor. A wake-up there
    /// costs a switch. On another it costs an interrupt, and the wait for whoever runs there.
    #[inline]
    fn go_home(&self) {
        let home = self.cpu.load(Relaxed) & !NEW;
        if home != 0 && P::running_on().is_some_and(|here| here + 1 != home) && !P::migrate(Some(home - 1)) {
            self.cpu.store(NEW, Relaxed);
        }
    }

    fn judge_trial(&self, episodes: &Episodes<P>, now: u64, sample: &Sample) {
        let phase = self.phase.load(Relaxed);
        let (asleep, failures) = ((phase / RATE) & MOST_RATE, phase & FAILURES);
        let trial_ms = if Self::fit(episodes) { FIT_TRIAL_MS } else { TRIAL_MS };
        let hopeless = sample.elapsed_ms >= trial_ms / 2 && sample.rounds * 4 < asleep;
        if sample.elapsed_ms >= trial_ms && sample.rounds >= asleep {
            self.enter(episodes, TRIAL | (asleep * RATE), now);
        } else if sample.elapsed_ms >= trial_ms || hopeless {
            self.enter(episodes, ASLEEP | (failures + 1).min(FAILURES), now);
        }
    }

    fn sample(&self, episodes: &Episodes<P>, now: u64) -> Sample {
        let since = self.since.load(Relaxed);
        let elapsed_ms = u32::from(((now / 1_000_000) as u16).wrapping_sub((since >> 16) as u16));
        let rounds = u32::from(episodes.number().wrapping_sub(since as u16));
        Sample { elapsed_ms, rounds: rounds * RATE_MS / elapsed_ms.max(1) }
    }

    /// A phase begins, or its next sample. Processor time since the last one, in us. Asleep, there is no
    /// home.
    fn enter(&self, episodes: &Episodes<P>, phase: u32, now: u64) -> u32 {
        self.phase.store(phase, Relaxed);
        let cpu = if phase & ASLEEP != 0 { 0 } else { (P::cpu_ns() / 1_000) as u32 };
        self.since.store(((now / 1_000_000) as u32) << 16 | u32::from(episodes.number()), Relaxed);
        cpu.wrapping_sub(self.cpu.swap(cpu, Relaxed))
    }
}
