// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many processors a program is worth that lets the server choose, learned from what it uses.
//!
//! The idea: with each number of processors that it has had, a program was seen to use so many of them on the
//! average. These are points of its speed-up curve, as long as its threads sleep while they wait. Processors
//! count as worth it down to where one more is used to a half. What cannot be used so well by anybody goes
//! to whoever uses it to a quarter, or to an eighth, and else in equal shares: [`STEPS`].
//!
//! With a single number seen, the rest of the curve is guessed by Amdahl's law (*AFIPS* 1967). The next look,
//! with as many as were guessed, shows what was lost. If that was half or more of each processor taken, they
//! come back. If not, as many come back as were used, for somewhere between lies what it can use.
//!
//! Programs change. What was seen with more processors is doubted as soon as a program uses up those that it
//! has: after [`FIRST_DOUBT_NS`], and after twice as long each time it was right, up to [`MEMORY_NS`]. If it
//! uses less than half or more than twice of what it used with as many processors before, it is another phase
//! of the program, and nothing is known of that.
//!
//! HINT: everything here. A program that spins while it waits looks as if it worked, and keeps its equal
//! share.

use std::collections::BTreeMap;

/// BOUND: for so long a program is judged by what it used with another number of processors. Finding that out
/// anew takes a second or two.
const MEMORY_NS: u64 = 64_000_000_000;
/// BOUND: and a program that became parallel goes without for so long.
const FIRST_DOUBT_NS: u64 = 2_000_000_000;
/// Hundredths of a processor, to which one more has to be used.
pub const STEPS: [u32; 4] = [50, 25, 12, 0];
/// A whole processor.
const WHOLE: u32 = 100;

/// What was seen of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// By the number of processors that it had.
    points: BTreeMap<u32, Point>,
    /// Since when it uses up what it has, where it was seen with more.
    full_since: Option<u64>,
    /// So often the doubt was wrong.
    doubts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    /// So many hundredths of processors were used.
    used: u32,
    at: u64,
}

impl Seen {
    /// With so many processors it has used so many hundredths of them since the last look.
    pub fn note(&mut self, processors: u32, used: u32, now: u64) {
        self.points.retain(|_, point| now.saturating_sub(point.at) < MEMORY_NS);
        let before = self.points.get(&processors).map(|point| point.used);
        if before.is_some_and(|before| used < before / 2 || before < used / 2) {
            *self = Self::default();
        }
        let used = self.points.get(&processors).map_or(used, |point| point.used.midpoint(used));
        self.points.insert(processors, Point { used, at: now });
        let is_full = u64::from(used) * 10 >= u64::from(processors) * u64::from(WHOLE) * 9;
        let has_more = self.points.range(processors + 1..).next().is_some();
        match self.full_since.filter(|_| is_full && has_more) {
            Some(since) => {
                let doubt_ns = FIRST_DOUBT_NS.saturating_mul(1 << self.doubts.min(16));
                if now.saturating_sub(since) >= doubt_ns.min(MEMORY_NS) {
                    self.points.split_off(&(processors + 1));
                    (self.full_since, self.doubts) = (None, self.doubts + 1);
                }
            }
            None => self.full_since = (is_full && has_more).then_some(now),
        }
    }

    /// More would each be used to less than so many hundredths. `u32::MAX` if nothing says so.
    pub fn worth(&self, hundredths: u32) -> u32 {
        let points: Vec<(u32, u32)> =
            self.points.iter().map(|(&processors, point)| (processors, point.used)).collect();
        let pays =
            |two: &[(u32, u32)]| two[1].1.saturating_sub(two[0].1) >= (two[1].0 - two[0].0) * hundredths;
        let steps = points.windows(2).take_while(|two| pays(two)).count();
        let Some(&(reached, used)) = points.get(steps) else { return u32::MAX };
        // Below the first point nothing was seen.
        let least = if steps == 0 { guess(reached, used, hundredths) } else { reached };
        match points.get(steps + 1) {
            // Somewhere between; not `next` itself, which did not pay.
            Some(&(next, used)) => least.max(used.div_ceil(WHOLE).min(next - 1)),
            None if least < reached => least,
            None => u32::MAX,
        }
    }
}

/// Amdahl's law through this point: up to there each processor adds so many hundredths of one.
fn guess(processors: u32, used: u32, hundredths: u32) -> u32 {
    let (n, speed) = (f64::from(processors), f64::from(used.max(1)) / f64::from(WHOLE));
    let serial = ((n / speed - 1.0) / (n - 1.0).max(1.0)).clamp(0.0, 1.0);
    let speed = |n: u32| 1.0 / (serial + (1.0 - serial) / f64::from(n));
    (2..=processors)
        .take_while(|&n| speed(n) - speed(n - 1) >= f64::from(hundredths) / f64::from(WHOLE))
        .last()
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worth(points: &[(u32, u32)]) -> u32 {
        let mut seen = Seen::default();
        points.iter().for_each(|&(processors, used)| seen.note(processors, used, 0));
        seen.worth(50)
    }

    #[test]
    fn amdahls_law_at_first() {
        assert_eq!(worth(&[]), u32::MAX);
        assert_eq!(worth(&[(4, 160)]), 1, "half of it is serial: two make 1.33");
        assert_eq!(worth(&[(3, 188)]), 2, "two make 1.54");
        assert_eq!(worth(&[(4, 0)]), 1);
        assert_eq!(worth(&[(1, 0)]), u32::MAX, "nobody has less");
        assert_eq!(worth(&[(4, 308)]), u32::MAX);
    }

    #[test]
    fn what_was_lost_by_half_comes_back() {
        assert_eq!(worth(&[(4, 160), (1, 100)]), 2, "three brought 0.6");
        assert_eq!(worth(&[(8, 500), (6, 390)]), u32::MAX, "two brought 1.1");
        assert_eq!(worth(&[(31, 1940), (20, 1450), (15, 1170)]), 20, "five brought 2.8, eleven 4.9");
        assert_eq!(worth(&[(31, 550), (3, 300)]), 6, "somewhere between");
        assert_eq!(worth(&[(3, 150), (1, 100)]), 2, "it is tried");
        assert_eq!(worth(&[(3, 150), (1, 100), (2, 133)]), 1, "the second brought a third");
    }

    #[test]
    fn the_less_they_must_bring_the_more_it_is_worth() {
        let mut seen = Seen::default();
        for (processors, used) in [(31, 1940), (20, 1450), (40, 2000)] {
            seen.note(processors, used, 0);
        }
        assert_eq!(STEPS.map(|step| seen.worth(step)), [20, 31, 31, u32::MAX]);
    }

    /// A second each of a program with 4 processors, or as many as it is worth: how many it gets.
    fn lives(seconds: &[u32]) -> Vec<u32> {
        let (mut seen, mut has, mut all) = (Seen::default(), 4, Vec::new());
        for (second, parallelism) in (1..).zip(seconds) {
            seen.note(has, *parallelism.min(&(has * WHOLE)), second * 1_000_000_000);
            has = seen.worth(50).min(4);
            all.push(has);
        }
        all
    }

    #[test]
    fn a_serial_phase_is_not_held_against_a_program() {
        let reads_then_computes = [[100; 3].as_slice(), &[400; 6]].concat();
        assert_eq!(lives(&reads_then_computes), [1, 1, 1, 4, 4, 4, 4, 4, 4]);
        let idle_then_busy = [[400; 3].as_slice(), &[0; 3], &[400; 6]].concat();
        assert_eq!(lives(&idle_then_busy)[..6], [4, 4, 4, 1, 1, 1], "{:?}", lives(&idle_then_busy));
        assert_eq!(lives(&idle_then_busy)[8..], [4, 4, 4, 4], "{:?}", lives(&idle_then_busy));
    }

    #[test]
    fn who_is_serial_is_doubted_less_and_less() {
        let tries = lives(&[100; 300]).iter().filter(|&&has| has == 4).count();
        assert!((3..10).contains(&tries), "{tries}");
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut seen = Seen::default();
        seen.note(31, 550, 0);
        seen.note(7, 550, MEMORY_NS - 1);
        assert_eq!(seen.worth(50), 7);
        seen.note(7, 550, MEMORY_NS);
        assert_eq!(seen.worth(50), u32::MAX);
    }
}
