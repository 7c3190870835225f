// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downcalls: "this processor is idle" and "add more processors" (Anderson et al. 1992, table III).
//!
//! A program in a partition of the processor server says how many of its processors it can spare, and that it
//! wants them back. The sentinels ask here: they are awake where others sleep. The measure is the processor
//! time of the whole process, so threads that are no fibers count too.
//!
//! In a second the process needs what it has used and a quarter of a processor more. It offers the rest. From
//! then on the sentinel looks more often, until all are back, or a minute after it wanted them. As soon as
//! what is left is used up, or a fiber waits for a seat, it wants all of them back. A program that wants them
//! back early waits longer before it offers them again.
//!
//! HINT: everything here. A processor stays idle for a while, or goes to others and comes back late.

use std::sync::Mutex;

use linux::{Linux, server};
use platform::Platform;

use crate::sentinel::LOOK_NS;

const SECOND_NS: u64 = 1_000_000_000;
/// BOUND: how late a program notices that it wants its processors back.
const WATCH_NS: u64 = 5 * LOOK_NS;
/// BOUND: the longest time between two offers of a program that wants its processors back early.
const LONGEST_NS: u64 = 64 * SECOND_NS;
/// A processor's whole time, in the unit of this file; and more than the process has used, to be safe.
const WHOLE: u64 = 256;
const MARGIN: u64 = WHOLE / 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// So many can be spared.
    Spare(u32),
    WantBack,
}

#[derive(Debug)]
struct Needs {
    /// The last look: when, and the processor time until then.
    last: Option<(u64, u64)>,
    /// When processors were offered, if they are, and how many are left.
    offered: Option<(u64, u32)>,
    /// How many there were before the first offer, until they are back; else 0.
    had: u32,
    /// When it wanted them back last.
    wanted: u64,
    /// No offer before.
    not_before: u64,
    /// How long an offer has to last to be worth it.
    patience_ns: u64,
}

static NEEDS: Mutex<Needs> = Mutex::new(Needs::NEW);

/// Tells the server, if there is something new. `waits`: a fiber is ready, and all seats are taken. When to
/// look the next time; `None` without a partition.
pub fn look(now: u64, waits: bool) -> Option<u64> {
    server::partition()?;
    if server::is_unheard() {
        server::repeat();
    }
    // Another sentinel looks now. What it finds may be no reason to look in a second only.
    let Ok(mut needs) = NEEDS.try_lock() else { return Some(now + WATCH_NS) };
    // Teams make offers too. Then those are the program's.
    if needs.offered.is_none() && server::offered() != 0 {
        return Some(now + SECOND_NS);
    }
    let processors = Linux::processors();
    match needs.look(now, used_ns(), processors, waits) {
        Some(Word::Spare(count)) => server::offer(count),
        Some(Word::WantBack) => server::offer(0),
        None => {}
    }
    Some(now + needs.pause(now, processors))
}

/// The processor time of this process.
fn used_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}

impl Needs {
    const NEW: Self =
        Self { last: None, offered: None, had: 0, wanted: 0, not_before: 0, patience_ns: SECOND_NS };

    fn look(&mut self, now: u64, used: u64, processors: u32, waits: bool) -> Option<Word> {
        let least = if self.offered.is_some() { WATCH_NS / 2 } else { SECOND_NS / 2 };
        if let Some((before, _)) = self.last
            && now.saturating_sub(before) < least
            && !(waits && self.offered.is_some())
        {
            return None;
        }
        let (before, used_before) = self.last.replace((now, used))?;
        let time = now.saturating_sub(before).max(1);
        let needed = (u128::from(used.saturating_sub(used_before)) * u128::from(WHOLE) / u128::from(time))
            as u64
            + MARGIN;
        if let Some((since, left)) = self.offered {
            // What is offered may be used until somebody takes it, and is not counted on.
            if !waits && needed < u64::from(processors.min(left)) * WHOLE {
                return None;
            }
            (self.offered, self.wanted) = (None, now);
            let early = now.saturating_sub(since) < self.patience_ns;
            self.patience_ns = if early { (2 * self.patience_ns).min(LONGEST_NS) } else { SECOND_NS };
            self.not_before = now + self.patience_ns;
            return Some(Word::WantBack);
        }
        let spare = u64::from(processors).saturating_sub(needed.div_ceil(WHOLE)) as u32;
        if waits || spare == 0 || now < self.not_before {
            return None;
        }
        self.offered = Some((now, processors - spare));
        // Some that were offered before may still be lent.
        self.had = self.had.max(processors);
        Some(Word::Spare(spare))
    }

    /// How long until the next look. What it wants back comes when the other program leaves it, and nobody
    /// tells: a look finds it. All may seem to be there while the server gives one away, until it has heard.
    /// What does not come for long has perhaps been taken for good.
    fn pause(&mut self, now: u64, processors: u32) -> u64 {
        let is_back = processors >= self.had && now >= self.wanted + SECOND_NS;
        if self.offered.is_none() && (is_back || now >= self.wanted + LONGEST_NS) {
            self.had = 0;
        }
        if self.had > 0 { WATCH_NS } else { SECOND_NS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of 4 processors, looked at as the sentinel does. What it says, and when.
    struct Program {
        needs: Needs,
        now: u64,
        used: u64,
        processors: u32,
    }

    impl Program {
        fn new() -> Self {
            let mut new = Self { needs: Needs::NEW, now: SECOND_NS, used: 0, processors: 4 };
            assert_eq!(new.needs.look(new.now, 0, 4, true), None);
            new
        }

        /// For so long it uses so many hundredths of a processor.
        fn runs(&mut self, ns: u64, hundredths: u64) -> Vec<Word> {
            let mut said = Vec::new();
            let end = self.now + ns;
            while self.now < end {
                let step = self.needs.pause(self.now, self.processors);
                self.now += step;
                self.used += step * hundredths.min(u64::from(self.processors) * 100) / 100;
                let word = self.needs.look(self.now, self.used, self.processors, false);
                match word {
                    Some(Word::Spare(count)) => self.processors -= count,
                    Some(Word::WantBack) => self.processors = 4,
                    None => {}
                }
                said.extend(word);
            }
            said
        }
    }

    #[test]
    fn what_is_idle_is_offered_once_and_wanted_back() {
        let mut program = Program::new();
        assert_eq!(program.runs(10 * SECOND_NS, 110), [Word::Spare(2)]);
        assert_eq!(program.runs(WATCH_NS, 400), [Word::WantBack]);
        assert_eq!(program.runs(20 * SECOND_NS, 400), []);
    }

    /// Nobody has taken the processors, and one is left by our word.
    #[test]
    fn what_is_offered_is_not_counted_on() {
        let mut program = Program::new();
        assert_eq!(program.runs(2 * SECOND_NS, 0), [Word::Spare(3)]);
        let used = program.used + WATCH_NS;
        assert_eq!(program.needs.look(program.now + WATCH_NS, used, 4, false), Some(Word::WantBack));
    }

    #[test]
    fn a_quarter_of_a_processor_is_kept() {
        assert_eq!(Program::new().runs(5 * SECOND_NS, 280), []);
        assert_eq!(Program::new().runs(5 * SECOND_NS, 270), [Word::Spare(1)]);
        assert_eq!(Program::new().runs(5 * SECOND_NS, 0), [Word::Spare(3)]);
    }

    #[test]
    fn a_fiber_that_waits_wants_them_back_at_once() {
        let mut program = Program::new();
        assert_eq!(program.runs(2 * SECOND_NS, 0), [Word::Spare(3)]);
        let (now, used) = (program.now + 1, program.used);
        assert_eq!(program.needs.look(now, used, 1, true), Some(Word::WantBack));
        assert_eq!(program.needs.look(now + 1, used, 4, true), None);
    }

    /// The program that was lent them may keep them for long.
    #[test]
    fn until_all_are_back_it_looks_often() {
        let mut program = Program::new();
        assert_eq!(program.runs(2 * SECOND_NS, 0), [Word::Spare(3)]);
        assert_eq!(program.needs.look(program.now + 1, program.used, 1, true), Some(Word::WantBack));
        let later = program.now + 2 * SECOND_NS;
        assert_eq!(
            [1, 3, 4, 4].map(|has| program.needs.pause(later, has)),
            [WATCH_NS, WATCH_NS, SECOND_NS, SECOND_NS]
        );
    }

    /// The server gave one away before it heard that all are wanted.
    #[test]
    fn for_a_second_all_may_only_seem_to_be_back() {
        let mut program = Program::new();
        assert_eq!(program.runs(2 * SECOND_NS, 0), [Word::Spare(3)]);
        let wanted = program.now + 1;
        assert_eq!(program.needs.look(wanted, program.used, 4, true), Some(Word::WantBack));
        assert_eq!([4, 3, 3].map(|has| program.needs.pause(wanted + SECOND_NS / 2, has)), [WATCH_NS; 3]);
        assert_eq!(program.needs.pause(wanted + 2 * SECOND_NS, 3), WATCH_NS);
        assert_eq!(program.needs.pause(wanted + 2 * SECOND_NS, 4), SECOND_NS);
    }

    /// Offered again while the other program has one of before.
    #[test]
    fn what_is_lent_is_not_forgotten_by_another_offer() {
        let mut program = Program::new();
        assert_eq!(program.runs(2 * SECOND_NS, 0), [Word::Spare(3)]);
        let mut now = program.now + 2 * SECOND_NS;
        assert_eq!(program.needs.look(now, program.used, 3, true), Some(Word::WantBack));
        now += 2 * SECOND_NS;
        assert_eq!(program.needs.look(now, program.used, 3, false), Some(Word::Spare(2)));
        now += 2 * SECOND_NS;
        assert_eq!(program.needs.look(now, program.used, 3, true), Some(Word::WantBack));
        now += 2 * SECOND_NS;
        assert_eq!(program.needs.pause(now, 3), WATCH_NS);
        assert_eq!(program.needs.pause(now, 4), SECOND_NS);
        // It is taken for good.
        program.needs.had = 4;
        assert_eq!(
            [LONGEST_NS / 2, LONGEST_NS].map(|more| program.needs.pause(now + more, 3)),
            [WATCH_NS, SECOND_NS]
        );
    }

    /// A program that is idle for a second and busy for the next loses little by it, and less each time.
    #[test]
    fn early_returns_make_offers_rare() {
        let mut program = Program::new();
        let mut said = 0;
        for _ in 0..500 {
            said += program.runs(SECOND_NS, 0).len();
            said += program.runs(SECOND_NS, 400).len();
        }
        assert!((10..60).contains(&said), "{said} words in 1,000 seconds");
    }
}
