// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' figures: what is simulated for each, and whether what the papers say of it holds.
//!
//! The text of the papers does not give every parameter (lengths of sections, numbers of turns, the exact
//! points of an axis); what is chosen instead stands in the table. Times are therefore compared with one
//! another and not with the papers' own.

mod activations;
mod icpp;
mod literal;
mod mitsubishi;
mod paznikov;
mod sentences;
pub mod sure;
pub(crate) mod svg;
mod table;

use serde::Serialize;

use crate::{Machine, Results, SimError, Workload, in_parallel, simulate};
pub use literal::bound as literal;
pub use svg::{Band, Drawing, banded, lines, svg, svg_banded};

/// An axis.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Axis {
    /// What it shows.
    pub label: &'static str,
    /// Its unit; empty if it has none.
    pub unit: &'static str,
    /// Logarithmic, or else linear.
    pub log: bool,
}

/// A figure.
pub struct Figure {
    /// On the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The machine.
    pub machine: &'static str,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Each is a line of the figure.
    pub series: &'static [&'static str],
    /// Points of the horizontal axis.
    pub at: &'static [f64],
    /// Turns of each thread at full size.
    pub rounds: u64,
    /// Virtual time at most at full size; what is not done then is extrapolated.
    pub limit_ms: f64,
    /// What is simulated at a point: the machine, and what runs on it.
    pub build: fn(machine: Machine, series: &str, x: f64, rounds: u64) -> (Machine, Workload),
    /// From the results to the vertical axis.
    pub scale: fn(results: &Results, rounds: u64) -> f64,
    /// What the paper says.
    pub claims: &'static [Claim],
}

/// A sentence of a paper that can be computed.
#[derive(Clone, Copy)]
pub struct Claim {
    /// In words.
    pub words: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// What the number is.
    pub measure: &'static str,
    /// The number.
    pub number: fn(&Data) -> f64,
    /// Why it does not hold, where it does not and we know.
    pub note: &'static str,
    /// For which numbers it holds.
    pub bound: Bound,
}

/// A tolerance.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// So much or less.
    AtMost(f64),
    /// So much or more.
    AtLeast(f64),
    /// From the one to the other.
    Between(f64, f64),
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "at most {bound}"),
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::Between(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

impl Bound {
    /// Whether a number is within it.
    pub(crate) fn allows(self, number: f64) -> bool {
        number.is_finite()
            && match self {
                Self::AtMost(most) => number <= most,
                Self::AtLeast(least) => number >= least,
                Self::Between(least, most) => (least..=most).contains(&number),
            }
    }
}

/// What came of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// In words.
    pub claim: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// What the number is.
    pub measure: &'static str,
    /// The number; `None` if there is none, as when a simulation failed.
    pub number: Option<f64>,
    /// For which numbers it holds.
    pub bound: String,
    /// Whether it does.
    pub holds: bool,
    /// If not, why, where we know.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: &'static str,
}

/// A point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The line that it is on.
    pub series: &'static str,
    /// Where on the horizontal axis.
    pub x: f64,
    /// Where on the vertical axis.
    pub y: f64,
    /// The simulation ended at its limit; the value is extrapolated from what was done until then.
    pub extrapolated: bool,
    /// Why the simulation ended early, if it did.
    pub failure: Option<String>,
}

/// All points, in the table's order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Data {
    /// Series by series.
    pub points: Vec<Point>,
}

impl Data {
    /// The value of a series; NaN, which no claim holds for, if there is none.
    pub fn at(&self, series: &str, x: f64) -> f64 {
        let found = self.points.iter().find(|point| point.series == series && point.x == x);
        found.filter(|point| point.failure.is_none()).map_or(f64::NAN, |point| point.y)
    }

    /// The largest quotient of one of `these` by one of `those`, at each x given.
    pub fn worst(&self, these: &[&str], those: &[&str], xs: &[f64]) -> f64 {
        let each =
            |x: f64| these.iter().flat_map(move |a| those.iter().map(move |b| self.at(a, x) / self.at(b, x)));
        largest(xs.iter().flat_map(|&x| each(x).collect::<Vec<_>>()))
    }

    /// The smallest one.
    pub fn least(&self, these: &[&str], those: &[&str], xs: &[f64]) -> f64 {
        1.0 / self.worst(those, these, xs)
    }

    /// How many times as much a series takes at `to` as at `from`.
    pub fn grows(&self, series: &str, from: f64, to: f64) -> f64 {
        self.at(series, to) / self.at(series, from)
    }
}

/// Unlike `f64::max`, does not hide a missing number.
fn largest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers
        .fold(f64::NEG_INFINITY, |most, number| if number > most || number.is_nan() { number } else { most })
}

fn largest2(a: f64, b: f64) -> f64 {
    largest([a, b].into_iter())
}

/// All of them.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    let later = icpp::FIGURES.iter().chain(paznikov::FIGURES).chain(activations::FIGURES);
    table::FIGURES.iter().chain(later).chain(mitsubishi::FIGURES)
}

/// The figure of this name.
pub fn figure(name: &str) -> Option<&'static Figure> {
    figures().find(|figure| figure.name == name)
}

impl Figure {
    /// How many simulations it takes.
    pub fn points(&self) -> usize {
        self.series.len() * self.at.len()
    }

    /// Simulates all points, on `cores` threads, with this part of the turns and of the limit (1 is full
    /// size). `done` is called after each.
    pub fn run(&self, seed: u64, size: f64, cores: usize, mut done: impl FnMut()) -> Result<Data, SimError> {
        self.run_on(&self.described(), seed, size, cores, &mut done)
    }

    /// Its machine.
    pub fn described(&self) -> Machine {
        Machine::named(self.machine).expect("the table names machines that come with the crate")
    }

    /// As [`Figure::run`], on another machine than its own.
    pub fn run_on(
        &self,
        machine: &Machine,
        seed: u64,
        size: f64,
        cores: usize,
        done: impl FnMut(),
    ) -> Result<Data, SimError> {
        self.run_changed(machine, seed, size, cores, |_| (), done)
    }

    /// As [`Figure::run_on`], with another workload: `change` has each before it is simulated.
    pub fn run_changed(
        &self,
        machine: &Machine,
        seed: u64,
        size: f64,
        cores: usize,
        change: impl Fn(&mut Workload) + Sync,
        mut done: impl FnMut(),
    ) -> Result<Data, SimError> {
        let all: Vec<_> =
            self.series.iter().flat_map(|&series| self.at.iter().map(move |&x| (series, x))).collect();
        let point = |&(series, x): &(_, f64)| self.point(machine.clone(), (series, x), seed, size, &change);
        let points = in_parallel(&all, cores, point, &mut done);
        Ok(Data { points: points.into_iter().collect::<Result<_, _>>()? })
    }

    fn point(
        &self,
        machine: Machine,
        (series, x): (&'static str, f64),
        seed: u64,
        size: f64,
        change: impl Fn(&mut Workload),
    ) -> Result<Point, SimError> {
        let rounds = ((self.rounds as f64 * size) as u64).max(1);
        let (machine, mut workload) = (self.build)(machine, series, x, rounds);
        workload.setting.limit_ms = self.limit_ms * size;
        change(&mut workload);
        let results = simulate(&machine, &workload, seed)?;
        let y = (self.scale)(&results, rounds);
        Ok(Point { series, x, y, extrapolated: results.limited, failure: results.failure })
    }

    /// Whether the claims hold.
    pub fn verdicts(&self, data: &Data) -> Vec<Verdict> {
        let of = |claim: &Claim| {
            let number = (claim.number)(data);
            let holds = claim.bound.allows(number);
            Verdict {
                claim: claim.words,
                source: claim.source,
                measure: claim.measure,
                number: number.is_finite().then_some(number),
                bound: claim.bound.to_string(),
                holds,
                note: if holds { "" } else { claim.note },
            }
        };
        self.claims.iter().map(of).collect()
    }
}
