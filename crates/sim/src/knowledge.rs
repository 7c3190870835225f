// SPDX-License-Identifier: MIT OR Apache-2.0
//! An experiment: what it is worth to the defaults to know which threads run.
//!
//! The default mutex, reader-writer lock and barrier run the loops of [`crate::defaults`] without any word of
//! the kernel's, with a true one, with one that comes late, and, the locks, under a scheduler that also
//! honours the holder's wish not to be preempted. Rates are in times those without a word. 2 to 64
//! processors are those of `epyc-64`, more are of `cxl-1024`.

use serde::Serialize;

use crate::defaults::Kind;
use crate::{Hints, MOST_THREADS, Machine, Program, Setting, Workload};

/// So many times the rate without a word is what knowing gives at least.
pub const LEAST: f64 = 0.97;

/// What the threads of a program know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knowledge {
    /// Nothing: the view `none`.
    None,
    /// Who runs, at once.
    True,
    /// The same, later by a context switch. A view's record is written while the kernel switches.
    Late,
    /// Who runs; and the kernel puts the holder's preemption off once, because it wishes so.
    Wishes,
}

impl Knowledge {
    /// As a line of the figure.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::True => "true",
            Self::Late => "late",
            Self::Wishes => "wishes",
        }
    }
}

/// What a default runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loop {
    /// What it is called in a table.
    pub name: &'static str,
    /// Of what.
    pub kind: Kind,
    /// Length of a section.
    critical_ns: f64,
    /// Of the work outside or between; a mutex has as many times its section's as makes the lock busy.
    outside_ns: f64,
}

const LOOPS: &[Loop] = &[
    Loop { name: "mutex, 20us", kind: Kind::Mutex, critical_ns: 20e3, outside_ns: 0.0 },
    Loop { name: "mutex, 1us", kind: Kind::Mutex, critical_ns: 1e3, outside_ns: 0.0 },
    Loop { name: "rwlock", kind: Kind::RwLock, critical_ns: 20e3, outside_ns: 280e3 },
    Loop { name: "barrier, 20us", kind: Kind::Barrier, critical_ns: 0.0, outside_ns: 20e3 },
    Loop { name: "barrier", kind: Kind::Barrier, critical_ns: 0.0, outside_ns: 0.0 },
];

/// The loops of these kinds.
pub fn loops(kinds: &[Kind]) -> impl Iterator<Item = &'static Loop> {
    LOOPS.iter().filter(|it| kinds.contains(&it.kind))
}

/// So many processors.
pub fn machine(processors: u32) -> Machine {
    let name = if processors <= 64 { "epyc-64" } else { "cxl-1024" };
    Machine::named(name).expect("it comes with the crate").with_processors(processors)
}

/// As long as tells something, and no longer: on many processors much happens in little time.
pub fn limit_ms(kind: Kind, processors: u32) -> f64 {
    // BOUND: 30 ms are ten quanta. A barrier's episodes are alike.
    let of_locks = (3_200.0 / f64::from(processors)).clamp(30.0, 400.0);
    if kind == Kind::Barrier { of_locks / 4.0 } else { of_locks }
}

impl Loop {
    /// What there is to know for this kind. A barrier has no holder who could wish.
    pub fn known(&self) -> &'static [Knowledge] {
        match self.kind {
            Kind::Barrier => &[Knowledge::True, Knowledge::Late],
            _ => &[Knowledge::True, Knowledge::Late, Knowledge::Wishes],
        }
    }

    /// The workload on a machine, at a multiprogramming level.
    pub fn workload(&self, machine: &Machine, level: f64, known: Knowledge, limit_ms: f64) -> Workload {
        let count = machine.processors.count.value;
        let &Self { critical_ns, outside_ns, .. } = self;
        let wishes = known == Knowledge::Wishes;
        let program = match self.kind {
            Kind::Mutex => {
                let lock = if wishes { "wakeful-np" } else { "wakeful" }.into();
                Program::Mutex { lock, critical_ns, outside_ns: critical_ns * f64::from(count + 2) }
            }
            Kind::RwLock => {
                let lock = if wishes { "rw-wakeful-np" } else { "rw-wakeful" }.into();
                Program::RwLock { lock, critical_ns, outside_ns, writers_percent: 5.0 }
            }
            Kind::Barrier => Program::Barrier { barrier: "b-wakeful".into(), outside_ns },
        };
        let hints = match known {
            Knowledge::None => Hints::None,
            Knowledge::True | Knowledge::Wishes => Hints::True,
            Knowledge::Late => Hints::Delayed { us: machine.kernel.switch_us.value },
        };
        // Threads of a barrier are its level; the others have foreign ones beside them.
        let barrier = self.kind == Kind::Barrier;
        let parties = (level * f64::from(count)).round().min(MOST_THREADS as f64) as u32;
        let foreign = if barrier { 0.0 } else { level - 1.0 };
        let honours_wishes = Some(wishes);
        let setting = Setting { foreign, bound: true, hints, honours_wishes, limit_ms, ..Setting::default() };
        let threads = if barrier { parties } else { count };
        // More turns than the limit leaves time for.
        Workload { program, threads, rounds: 1 << 40, vary: 0.2, instances: 1, setting }
    }
}

/// A rate in times another, and how much of it is noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worth {
    /// Known by unknown.
    pub ratio: f64,
    /// One standard error, from the seeds.
    pub error: f64,
}

/// The mean, and its standard error by the mean.
fn mean(rates: &[f64]) -> (f64, f64) {
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    if rates.len() < 2 || mean == 0.0 {
        return (mean, 0.0);
    }
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt() / mean)
}

impl Worth {
    /// From the rates with each seed.
    pub fn of(known: &[f64], unknown: &[f64]) -> Self {
        let ((known, a), (unknown, b)) = (mean(known), mean(unknown));
        let ratio = known / unknown;
        Self { ratio, error: ratio * a.hypot(b) }
    }

    /// Knowing is worse than not knowing.
    pub fn lost(&self) -> bool {
        !matches!(self.ratio.partial_cmp(&LEAST), Some(order) if order.is_ge())
    }

    /// It is so beyond two standard errors.
    pub fn surely_lost(&self) -> bool {
        self.ratio + 2.0 * self.error < LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate;

    fn rate(it: &Loop, known: Knowledge) -> f64 {
        let machine = machine(8);
        let results = simulate(&machine, &it.workload(&machine, 2.0, known, 20.0), 1).unwrap();
        assert_eq!(results.failure, None);
        results.rate()
    }

    /// Without hints a lock does something else than with true ones; so does one that wishes. A barrier, and
    /// a hint that is late by no more than the switch, may make no difference: those are told apart by what
    /// is simulated.
    #[test]
    fn what_is_known_differs() {
        for it in loops(&[Kind::Mutex]) {
            let mut rates =
                [Knowledge::None, Knowledge::True, Knowledge::Wishes].map(|known| rate(it, known));
            rates.sort_by(f64::total_cmp);
            assert!(rates[0] < rates[1] && rates[1] < rates[2], "{}: {rates:?}", it.name);
        }
        for it in loops(&[Kind::Mutex, Kind::RwLock, Kind::Barrier]) {
            let all = [&[Knowledge::None], it.known()].concat();
            let workloads: Vec<_> =
                all.iter().map(|&it_is| it.workload(&machine(8), 2.0, it_is, 1.0)).collect();
            for (index, workload) in workloads.iter().enumerate() {
                assert!(!workloads[..index].contains(workload), "{}: {:?}", it.name, all[index]);
                let honoured = workload.setting.honours_wishes == Some(true);
                assert_eq!(honoured, workload.program.lock().1.ends_with("-np"));
            }
            assert_eq!(workloads[0].setting.hints, Hints::None);
        }
    }

    #[test]
    fn worth_by_hand() {
        let worth = Worth::of(&[2.0, 4.0], &[1.0, 1.0]);
        assert_eq!(worth.ratio, 3.0);
        assert!((worth.error - 1.0).abs() < 1e-12);
        assert!(!worth.lost());
        let worth = Worth::of(&[0.9, 0.9], &[1.0, 1.0]);
        assert!(worth.lost() && worth.surely_lost());
        let worth = Worth::of(&[0.5, 1.4], &[1.0, 1.0]);
        assert!(worth.lost() && !worth.surely_lost());
        assert!(Worth::of(&[0.0], &[0.0]).lost());
    }
}
