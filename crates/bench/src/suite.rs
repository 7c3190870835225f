// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells times contenders times rounds. Contenders take turns inside every round, so that what disturbs the
//! machine disturbs all of them.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::busy::Busy;
use crate::contender::Contender;
use crate::error::JobError;
use crate::harness::{Sample, Wait};
use crate::job::{Job, Work};
use crate::process;
use crate::stats::{self, Interval};
use crate::workload::parallel::PARTITION;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Our own executable.
    pub program: PathBuf,
    /// The arguments that make it run a [`Job`].
    pub prefix: Vec<&'static str>,
    /// Every combination of parameters.
    pub works: Vec<Work>,
    /// Numbers of foreign busy processes.
    pub foreign: Vec<usize>,
    /// Who takes part.
    pub contenders: Vec<Contender>,
    /// Ratios are against the best of these, by median, in each cell.
    pub baselines: Vec<String>,
    /// How often each contender runs in each cell.
    pub rounds: usize,
    /// Before counting starts.
    pub warm_up: Duration,
    /// Counted, a sample.
    pub interval: Duration,
}

/// One combination of parameters.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// What ran.
    #[serde(flatten)]
    pub work: Work,
    /// Foreign busy processes beside it.
    pub foreign: usize,
    /// Who the ratios are against.
    pub baseline: Option<String>,
    /// A row for each contender.
    pub rows: Vec<Row>,
}

/// One contender in one cell. Numbers are medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Who.
    pub contender: String,
    /// The kernel view that it took, if it takes one.
    pub view: Option<String>,
    /// Operations a second.
    pub rate: f64,
    /// Operations a second in each round.
    pub rates: Vec<f64>,
    /// Nanoseconds an operation, seen from outside: threads overlap.
    pub ns: f64,
    /// Rate over the baseline's, of the same round. `None` for want of a baseline.
    pub ratio: Option<Interval>,
    /// See [`stats::fairness_factor`].
    pub fairness: Option<f64>,
    /// Quantiles of the wait, the maximum being the greatest of all rounds.
    pub wait: Option<Wait>,
    /// Context switches a second.
    pub switches: f64,
    /// Processors kept busy, on average.
    pub processors: f64,
}

/// A contender over all cells.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Who.
    pub contender: String,
    /// Cells that have a ratio.
    pub cells: usize,
    /// Geometric mean of the ratios.
    pub mean: f64,
    /// The smallest ratio.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

/// Why the suite ended early.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// A sample could not be taken.
    #[error("{contender}: {error}")]
    Job {
        /// Whose.
        contender: String,
        /// Why.
        #[source]
        error: JobError,
    },
    /// No foreign load.
    #[error("cannot start busy processes: {0}")]
    Busy(#[from] std::io::Error),
    /// Whoever watches gave up.
    #[error(transparent)]
    Watcher(Box<dyn std::error::Error + Send + Sync>),
}

/// Learns how the suite goes.
pub trait Watch {
    /// A sample is about to be taken.
    fn sample(&mut self, work: &Work, contender: &Contender);
    /// A cell is complete. An error ends the suite.
    fn cell(&mut self, cell: &Cell) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

fn median_of<T>(samples: &[T], value: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = samples.iter().filter_map(value).collect();
    (!values.is_empty()).then(|| stats::median(&values))
}

fn row(contender: &Contender, samples: &[Sample]) -> Row {
    let rates: Vec<f64> = samples.iter().map(Sample::rate).collect();
    let waits: Vec<Wait> = samples.iter().filter_map(|sample| sample.wait).collect();
    let quantile =
        |value: fn(&Wait) -> u64| median_of(&waits, |wait| Some(value(wait) as f64)).unwrap_or(0.0) as u64;
    Row {
        contender: contender.label.clone(),
        view: samples.first().and_then(|sample| sample.view.clone()),
        rate: stats::median(&rates),
        ns: 1e9 / stats::median(&rates),
        rates,
        ratio: None,
        fairness: median_of(samples, |sample| sample.fairness),
        wait: waits.iter().map(|wait| wait.max_ns).max().map(|max_ns| Wait {
            samples: waits.iter().map(|wait| wait.samples).sum(),
            p50_ns: quantile(|wait| wait.p50_ns),
            p90_ns: quantile(|wait| wait.p90_ns),
            p99_ns: quantile(|wait| wait.p99_ns),
            p999_ns: quantile(|wait| wait.p999_ns),
            max_ns,
        }),
        switches: median_of(samples, |sample| Some(sample.context_switches as f64 / sample.seconds))
            .unwrap_or(0.0),
        processors: median_of(samples, |sample| Some(sample.cpu_seconds / sample.seconds)).unwrap_or(0.0),
    }
}

/// Fills in the ratios; returns who they are against.
fn compare(rows: &mut [Row], baselines: &[String]) -> Option<String> {
    let best = rows
        .iter()
        .filter(|row| baselines.contains(&row.contender))
        .max_by(|a, b| a.rate.total_cmp(&b.rate))
        .map(|row| (row.contender.clone(), row.rates.clone()))?;
    for row in rows {
        row.ratio = stats::paired_ratio(&row.rates, &best.1);
    }
    Some(best.0)
}

/// Geometric means and extremes over cells, in the contenders' order.
pub fn summarise(cells: &[Cell]) -> Vec<Summary> {
    let Some(first) = cells.first() else { return Vec::new() };
    let summary = |index: usize, row: &Row| {
        let ratios: Vec<f64> =
            cells.iter().filter_map(|cell| cell.rows[index].ratio).map(|ratio| ratio.median).collect();
        (!ratios.is_empty()).then(|| Summary {
            contender: row.contender.clone(),
            cells: ratios.len(),
            mean: stats::geometric_mean(ratios.iter().copied()),
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: ratios.iter().copied().fold(0.0, f64::max),
        })
    };
    first.rows.iter().enumerate().filter_map(|(index, row)| summary(index, row)).collect()
}

impl Suite {
    /// Samples that the suite will take.
    pub fn samples(&self) -> usize {
        self.works.len() * self.foreign.len() * self.contenders.len() * self.rounds
    }

    fn sample(&self, work: &Work, contender: &Contender) -> Result<Sample, SuiteError> {
        let job = Job {
            work: work.clone(),
            lock: contender.lock.clone(),
            warm_up: self.warm_up,
            interval: self.interval,
        };
        job.run_in_child(&self.program, &self.prefix, contender)
            .map_err(|error| SuiteError::Job { contender: contender.label.clone(), error })
    }

    fn cell(
        &self,
        work: &Work,
        foreign: usize,
        busy: &Busy,
        watch: &mut dyn Watch,
    ) -> Result<Cell, SuiteError> {
        let mut samples: Vec<Vec<Sample>> = self.contenders.iter().map(|_| Vec::new()).collect();
        for round in 0..self.rounds {
            // Every other round backwards: nobody always follows the same neighbour.
            for turn in 0..self.contenders.len() {
                let who = if round % 2 == 0 { turn } else { self.contenders.len() - 1 - turn };
                watch.sample(work, &self.contenders[who]);
                let processors = process::processors();
                let parted = self.contenders[who].lock == PARTITION && processors.len() > 1;
                busy.keep_to(if parted { &processors[..1] } else { &processors })?;
                samples[who].push(self.sample(work, &self.contenders[who])?);
            }
        }
        let mut rows: Vec<Row> = self
            .contenders
            .iter()
            .zip(&samples)
            .map(|(contender, samples)| row(contender, samples))
            .collect();
        let baseline = compare(&mut rows, &self.baselines);
        Ok(Cell { work: work.clone(), foreign, baseline, rows })
    }

    /// Runs everything.
    pub fn run(&self, watch: &mut dyn Watch) -> Result<Vec<Cell>, SuiteError> {
        let mut cells = Vec::new();
        for &foreign in &self.foreign {
            let busy = Busy::start(foreign)?;
            for work in &self.works {
                let cell = self.cell(work, foreign, &busy, watch)?;
                watch.cell(&cell).map_err(SuiteError::Watcher)?;
                cells.push(cell);
            }
        }
        Ok(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::condvar::Condvar;

    fn row_of(contender: &str, rates: &[f64]) -> Row {
        Row {
            contender: contender.into(),
            view: None,
            rate: stats::median(rates),
            rates: rates.to_vec(),
            ns: 1e9 / stats::median(rates),
            ratio: None,
            fairness: None,
            wait: None,
            switches: 0.0,
            processors: 0.0,
        }
    }

    fn cell_of(rows: Vec<Row>, baselines: &[&str]) -> Cell {
        let mut rows = rows;
        let baselines: Vec<String> = baselines.iter().map(|name| name.to_string()).collect();
        let baseline = compare(&mut rows, &baselines);
        let work = Work::Condvar(Condvar { capacity: 1, outside: 1, threads: 1 });
        Cell { work, foreign: 0, baseline, rows }
    }

    #[test]
    fn ratios_are_against_the_best_baseline_of_the_cell() {
        let rows = vec![row_of("a", &[1.0, 1.0]), row_of("b", &[2.0, 4.0]), row_of("us", &[3.0, 6.0])];
        let cell = cell_of(rows, &["a", "b"]);
        assert_eq!(cell.baseline.as_deref(), Some("b"));
        assert_eq!(cell.rows[2].ratio.unwrap().median, 1.5);
        assert_eq!(cell.rows[1].ratio.unwrap().median, 1.0);
    }

    #[test]
    fn without_a_baseline_there_is_no_ratio() {
        let cell = cell_of(vec![row_of("a", &[1.0])], &["b"]);
        assert_eq!((cell.baseline.as_ref(), cell.rows[0].ratio), (None, None));
        assert!(summarise(&[cell]).is_empty());
    }

    #[test]
    fn the_summary_is_the_geometric_mean_over_cells() {
        let cells = [
            cell_of(vec![row_of("a", &[1.0]), row_of("us", &[4.0])], &["a"]),
            cell_of(vec![row_of("a", &[4.0]), row_of("us", &[4.0])], &["a"]),
        ];
        let summary = summarise(&cells);
        assert_eq!(summary[1].contender, "us");
        assert_eq!((summary[1].mean, summary[1].least, summary[1].greatest), (2.0, 1.0, 4.0));
    }
}
