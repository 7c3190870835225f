// SPDX-License-Identifier: MIT OR Apache-2.0
//! An experiment: the defaults against the best of the catalogue on many processors.
//!
//! Mutexes run the loop of TR 1994, section 5.2, with sections of 20 us and of 1 us, the work outside as many
//! times as long as there are processors. Reader-writer locks run that of section 5.3 (20 us and 280 us, 5 %
//! write). Barriers have 20 us of work between episodes, or none. 64 processors are those of `epyc-64`, more
//! are of `cxl-1024`.

use crate::{MOST_THREADS, Machine, Program, Results, Setting, Workload};

/// So many times the default's rate is allowed to the best.
pub const WITHIN: f64 = 1.2;

/// A kind of default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `wakeful-np`.
    Mutex,
    /// `rw-wakeful-np`.
    RwLock,
    /// `b-wakeful`.
    Barrier,
}

/// The default of the kind first, and those of the catalogue that are the best somewhere.
const MUTEXES: &[&str] = &[
    "wakeful-np",
    "tas-b",
    "tas-b-np",
    "ttas-spin",
    "mcs-spin",
    "queue-hs",
    "smart-q",
    "ticket-np",
    "native",
    "native-np",
];
const RWLOCKS: &[&str] =
    &["rw-wakeful-np", "rw-tas-b", "rw-tas-b-np", "rw-queue", "rw-smart-q", "rw-native", "rw-native-np"];
const BARRIERS: &[&str] =
    &["b-wakeful", "c-spin", "c-block", "c-sched", "tree", "com-tree", "scal-sc", "b-mcs-spin"];

/// What a kind runs: a name, the section, and the work outside or between, in ns.
type Loop = (&'static str, f64, f64);

impl Kind {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Mutex => MUTEXES,
            Self::RwLock => RWLOCKS,
            Self::Barrier => BARRIERS,
        }
    }

    fn loops(self) -> &'static [Loop] {
        match self {
            // The work outside comes from the number of processors.
            Self::Mutex => &[("mutex, 20us", 20e3, 0.0), ("mutex, 1us", 1e3, 0.0)],
            Self::RwLock => &[("rwlock", 20e3, 280e3)],
            Self::Barrier => &[("barrier, 20us", 0.0, 20e3), ("barrier", 0.0, 0.0)],
        }
    }
}

/// A cell of the experiment.
#[derive(Clone, Debug)]
pub struct Cell {
    kind: Kind,
    run: Loop,
    /// Multiprogramming level.
    pub level: f64,
    /// Where it runs.
    pub machine: Machine,
}

/// How the default did in a cell.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The default's name.
    pub default: &'static str,
    /// The best one's name.
    pub best: &'static str,
    /// Rate of the best by that of the default.
    pub by_best: f64,
}

impl Verdict {
    /// Is the default near enough to the best?
    pub fn within(&self) -> bool {
        self.by_best <= WITHIN
    }
}

/// All cells of these kinds, numbers of processors and levels.
pub fn cells(kinds: &[Kind], processors: &[u32], levels: &[f64]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &kind in kinds {
        for &run in kind.loops() {
            for &count in processors {
                let name = if count <= 64 { "epyc-64" } else { "cxl-1024" };
                let machine = Machine::named(name).expect("it comes with the crate").with_processors(count);
                cells.extend(levels.iter().map(|&level| Cell { kind, run, level, machine: machine.clone() }));
            }
        }
    }
    cells
}

impl Cell {
    /// What it is called in a table.
    pub fn name(&self) -> &'static str {
        self.run.0
    }

    /// One workload for each contender, each to end at this virtual time.
    pub fn workloads(&self, limit_ms: f64) -> impl Iterator<Item = Workload> {
        self.kind.names().iter().map(move |name| self.workload(name.to_string(), limit_ms))
    }

    fn workload(&self, lock: String, limit_ms: f64) -> Workload {
        let (_, critical_ns, outside_ns) = self.run;
        let count = self.machine.processors.count.value;
        let program = match self.kind {
            Kind::Mutex => {
                Program::Mutex { lock, critical_ns, outside_ns: critical_ns * f64::from(count + 2) }
            }
            Kind::RwLock => Program::RwLock { lock, critical_ns, outside_ns, writers_percent: 5.0 },
            Kind::Barrier => Program::Barrier { barrier: lock, outside_ns },
        };
        // Threads of a barrier are its level; the others have foreign ones beside them.
        let barrier = self.kind == Kind::Barrier;
        let parties = (self.level * f64::from(count)).round().min(MOST_THREADS as f64) as u32;
        let foreign = if barrier { 0.0 } else { self.level - 1.0 };
        let setting = Setting { foreign, bound: true, limit_ms, ..Setting::default() };
        let threads = if barrier { parties } else { count };
        // More turns than the limit leaves time for.
        Workload { program, threads, rounds: 1 << 40, vary: 0.2, instances: 1, setting }
    }

    /// From the results of its workloads, in their order. The error names who failed, and why.
    pub fn verdict(&self, results: &[Results]) -> Result<Verdict, String> {
        let names = self.kind.names();
        if let Some((name, why)) =
            names.iter().zip(results).find_map(|(name, it)| Some((name, it.failure.as_ref()?)))
        {
            return Err(format!("{name}: {why}"));
        }
        let rates: Vec<f64> = results.iter().map(Results::rate).collect();
        let best = (0..rates.len()).max_by(|&a, &b| rates[a].total_cmp(&rates[b])).unwrap_or(0);
        Ok(Verdict { default: names[0], best: names[best], by_best: rates[best] / rates[0] })
    }
}
