// SPDX-License-Identifier: MIT OR Apache-2.0
//! The surroundings of a program: who else is there, and what the kernel tells.

use serde::{Deserialize, Serialize};

use crate::machine::Queue;

/// Does the kernel tell the truth?
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hints {
    /// It does, at once.
    #[default]
    True,
    /// It tells nothing, as where no view looks.
    None,
    /// It tells of each change so much later.
    Delayed {
        /// By so many microseconds.
        us: f64,
    },
    /// It forgets to tell of a change.
    Dropped {
        /// Of so many of all changes.
        fraction: f64,
    },
    /// It says "preempted" of a thread that runs, and the other way round.
    Inverted,
}

/// Processors come and go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repartition {
    /// Between two changes.
    pub every_ms: f64,
    /// Processors at least.
    pub least: u32,
    /// Processors at most.
    pub most: u32,
    /// The policy of the processor server decides: the program asks for these numbers of processors, and
    /// beside it other applications come, hint and go at random, one of them at each change. Not: each
    /// number is as probable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
}

/// What a program asks the processor server for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asks {
    /// Nothing: it runs in the default partition.
    #[default]
    Nothing,
    /// So many processors at least, wanted, and at most.
    Numbers {
        /// With fewer, none.
        least: u32,
        /// It waits for so many.
        wanted: u32,
        /// It takes them while nobody else asks.
        most: u32,
    },
    /// The server chooses.
    Auto,
}

/// The policy of the processor server divides the processors among the programs of the simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// What each program asks for at the beginning, by its number. The others ask for nothing.
    pub asks: Vec<Asks>,
    /// Between two looks at what the programs use for whom the server chooses; 0: it never looks.
    pub look_ms: f64,
}

/// The surroundings of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Foreign processes that want a processor all the time, for each processor; a fraction puts one on
    /// some of them.
    pub foreign: f64,
    /// Threads stay on the processor that they belong to: thread i on processor i modulo their number.
    pub bound: bool,
    /// Changes of the partition.
    pub repartition: Option<Repartition>,
    /// Programs with processors of their own. Each partition has a run queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// What the kernel tells.
    pub hints: Hints,
    /// Other run queues than the machine's.
    pub queue: Option<Queue>,
    /// Another answer than the machine's to wishes.
    pub honours_wishes: Option<bool>,
    /// Another second level than the machine's.
    pub second_level: Option<bool>,
    /// An operation of a program of the crate `apps` takes so many times as long as a word in the cache.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub operation: f64,
    /// The simulation ends here, done or not. Virtual time.
    pub limit_ms: f64,
    /// Spinners are passed over where that makes no difference. For those who want to see that it makes none.
    #[serde(skip)]
    pub pass_over: bool,
    /// The results say what the threads' time was lost to. Changes nothing else.
    #[serde(skip)]
    pub lost: bool,
}

fn one() -> f64 {
    1.0
}

fn is_one(number: &f64) -> bool {
    *number == 1.0
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            foreign: 0.0,
            bound: false,
            repartition: None,
            server: None,
            hints: Hints::True,
            queue: None,
            honours_wishes: None,
            second_level: None,
            operation: 1.0,
            limit_ms: 60_000.0,
            pass_over: true,
            lost: false,
        }
    }
}
