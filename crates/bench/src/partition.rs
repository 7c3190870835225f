// SPDX-License-Identifier: MIT OR Apache-2.0
//! A parallel program with processors of its own, and without, beside a growing load: the experiment of
//! Uemura and Kan, *A Two-level Processor Scheduling Scheme for Shared-memory Multiprocessors*, section 4
//! and figure 3. Needs a running server.
//!
//! In each round every contender runs beside every load, none among them, one after the other: what is
//! compared was measured within seconds.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::busy::Crowd;
use crate::contender::Contender;
use crate::error::JobError;
use crate::job::{Job, Work};
use crate::stats::{self, Interval};
use crate::workload::parallel::{Body, GRANTED, Parallel};

/// BOUND: rows and columns of the products that the load computes, so that a thread lives for a second and
/// not for a quantum.
const LOAD: u32 = 1000;

/// What runs beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// So many processes, each of which runs this shell command again and again.
    Command(String),
    /// One program that computes matrix products with so many threads, whether or not there are processors
    /// for them.
    Threads,
}

impl FromStr for Load {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == "threads" { Self::Threads } else { Self::Command(text.into()) })
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Our own executable.
    pub program: PathBuf,
    /// The arguments that make it run a [`Job`].
    pub prefix: Vec<&'static str>,
    /// What is measured.
    pub bodies: Vec<Body>,
    /// Beside what.
    pub loads: Vec<Load>,
    /// Beside how many, at most.
    pub most: usize,
    /// Teams: of how many microthreads, and whether these are bound.
    pub teams: Vec<(usize, bool)>,
    /// How often each contender runs at each point.
    pub rounds: usize,
    /// Before counting starts.
    pub warm_up: Duration,
    /// Counted, a sample.
    pub interval: Duration,
}

/// A point of the figure.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Microthreads.
    pub threads: usize,
    /// In a partition.
    pub bound: bool,
    /// Processes, or threads, beside.
    pub beside: usize,
    /// Seconds of one run of the program; the median over the rounds.
    pub seconds: f64,
    /// Those of each round.
    pub runs: Vec<f64>,
    /// Over the time beside nothing, of the same round.
    pub ratio: Option<Interval>,
}

/// A part of the figure: (a) to (d) in the paper.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What was measured.
    pub body: Body,
    /// Beside what.
    pub load: Load,
    /// Team by team.
    pub points: Vec<Point>,
}

impl Plan {
    /// Samples that it takes.
    pub fn samples(&self) -> usize {
        self.bodies.len() * self.loads.len() * (self.most + 1) * self.teams.len() * self.rounds
    }

    fn start(&self, load: &Load, count: usize) -> Result<Crowd, JobError> {
        Ok(match load {
            _ if count == 0 => Crowd::default(),
            Load::Command(command) => {
                Crowd::start(count, "/bin/sh".as_ref(), &["-c", &format!("while :; do {command}\ndone")])?
            }
            Load::Threads => {
                let work = Work::Parallel(Parallel { body: Body::Matrix { size: LOAD }, threads: count });
                let (warm_up, interval) = (Duration::ZERO, Duration::from_secs(1_000_000));
                let job = serde_json::to_string(&Job { work, lock: "std".into(), warm_up, interval })?;
                let arguments: Vec<&str> = self.prefix.iter().copied().chain([job.as_str()]).collect();
                Crowd::start(1, &self.program, &arguments)?
            }
        })
    }

    fn sample(&self, body: Body, (threads, bound): (usize, bool)) -> Result<f64, JobError> {
        let lock = if bound { GRANTED } else { "free" };
        let contender = Contender::plain(lock);
        let work = Work::Parallel(Parallel { body, threads });
        let job = Job { work, lock: lock.into(), warm_up: self.warm_up, interval: self.interval };
        Ok(1.0 / job.run_in_child(&self.program, &self.prefix, &contender)?.rate())
    }

    /// Measures one panel after the other. `each` is called after each sample.
    ///
    /// # Errors
    /// If a sample cannot be taken.
    pub fn run(&self, mut each: impl FnMut()) -> Result<Vec<Panel>, JobError> {
        let panels = self.bodies.iter().flat_map(|&body| self.loads.iter().map(move |load| (body, load)));
        panels.map(|(body, load)| self.panel(body, load, &mut each)).collect()
    }

    fn panel(&self, body: Body, load: &Load, each: &mut impl FnMut()) -> Result<Panel, JobError> {
        let mut runs = vec![vec![Vec::new(); self.most + 1]; self.teams.len()];
        for _ in 0..self.rounds {
            for beside in 0..=self.most {
                let _crowd = self.start(load, beside)?;
                for (team, runs) in self.teams.iter().zip(&mut runs) {
                    runs[beside].push(self.sample(body, *team)?);
                    each();
                }
            }
        }
        let mut points = Vec::new();
        for (&(threads, bound), runs) in self.teams.iter().zip(runs) {
            let alone = runs[0].clone();
            points.extend(runs.into_iter().enumerate().map(|(beside, runs)| {
                let ratio = stats::paired_ratio(&runs, &alone);
                Point { threads, bound, beside, seconds: stats::median(&runs), runs, ratio }
            }));
        }
        Ok(Panel { body, load: load.clone(), points })
    }
}
