// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that start together, warm up, and are counted over one interval.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, RwLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::error::JobError;
use crate::{process, stats};

/// Its own cache line, and the one that the hardware fetches with it.
#[derive(Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Threads to start.
    pub threads: usize,
    /// Of these, the first so many count operations.
    pub counted: usize,
    /// Runs before counting starts.
    pub warm_up: Duration,
    /// Length of the interval.
    pub interval: Duration,
}

/// What a worker thread sees.
pub struct Worker<'a> {
    /// Which thread this is, from 0.
    pub index: usize,
    phase: &'a AtomicU32,
    count: &'a AtomicU64,
    waits: Histogram<u32>,
    /// Operations so far.
    pub operations: u64,
}

const WARM_UP: u32 = 0;
const MEASURE: u32 = 1;
const STOP: u32 = 2;

impl Worker<'_> {
    /// False when it is time to stop.
    #[inline(always)]
    pub fn goes_on(&self) -> bool {
        self.phase.load(Relaxed) != STOP
    }

    /// Counts an operation.
    #[inline(always)]
    pub fn count(&mut self) {
        self.operations += 1;
        self.count.store(self.operations, Relaxed);
    }

    /// Records a wait, if we are in the interval.
    #[inline]
    pub fn waited(&mut self, wait: Duration) {
        if self.phase.load(Relaxed) == MEASURE {
            self.waits.saturating_record(wait.as_nanos() as u64);
        }
    }
}

/// Quantiles of the wait, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// Waits that were timed.
    pub samples: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What one measurement found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The kernel view that was used, if any lock asked for one; whoever runs the job knows.
    pub view: Option<String>,
    /// Length of the interval.
    pub seconds: f64,
    /// Operations in it, all threads.
    pub operations: u64,
    /// See [`stats::fairness_factor`].
    pub fairness: Option<f64>,
    /// Waits, where the workload times them.
    pub wait: Option<Wait>,
    /// Context switches of the process in the interval, voluntary and not.
    pub context_switches: u64,
    /// Processor seconds of the process in the interval, user and system.
    pub cpu_seconds: f64,
}

impl Sample {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// BOUND: a wait is recorded to 2 significant digits, up to 100 s: 1 % is less than any other error here,
/// and the histogram stays in the cache.
fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, 100_000_000_000, 2).expect("the bounds are in order")
}

fn summary(waits: &Histogram<u32>) -> Option<Wait> {
    (!waits.is_empty()).then(|| Wait {
        samples: waits.len(),
        p50_ns: waits.value_at_quantile(0.5),
        p90_ns: waits.value_at_quantile(0.9),
        p99_ns: waits.value_at_quantile(0.99),
        p999_ns: waits.value_at_quantile(0.999),
        max_ns: waits.max(),
    })
}

/// Runs `body` on the planned threads and returns what the interval saw, and how many operations there were
/// in all, warm-up included, so that the workload can check its own data. `release` is called once
/// everybody is to stop, and must get sleeping workers to look.
///
/// # Errors
/// If a thread cannot be started; then none has run `body`.
pub fn measure(
    plan: Plan,
    body: impl Fn(&mut Worker) + Sync,
    release: impl FnOnce(),
) -> Result<(Sample, u64), JobError> {
    measure_erased(plan, &body, Box::new(release))
}

/// Compiled once and not for each lock. A thread calls its `body` once.
fn measure_erased(
    plan: Plan,
    body: &(dyn Fn(&mut Worker) + Sync),
    release: Box<dyn FnOnce() + '_>,
) -> Result<(Sample, u64), JobError> {
    let phase = Padded(AtomicU32::new(WARM_UP));
    let counts: Vec<Padded<AtomicU64>> = (0..plan.threads).map(|_| Padded::default()).collect();
    let start = Barrier::new(plan.threads + 1);
    let read = || counts[..plan.counted].iter().map(|count| count.0.load(Relaxed)).collect::<Vec<_>>();
    // Closed until all threads are there. If one is missing, the others would wait for it.
    let (gate, complete) = (RwLock::new(()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let closed = gate.write().expect("nobody panics");
        let worker = |index: usize| {
            let (start, phase, count) = (&start, &phase.0, &counts[index].0);
            let (gate, complete) = (&gate, &complete);
            let work = move || {
                let mut worker = Worker { index, phase, count, waits: histogram(), operations: 0 };
                drop(gate.read().expect("nobody panics"));
                if complete.load(Relaxed) {
                    start.wait();
                    body(&mut worker);
                }
                worker.waits
            };
            let failed = |error| JobError::Thread { number: index + 1, threads: plan.threads, error };
            std::thread::Builder::new().spawn_scoped(scope, work).map_err(failed)
        };
        let workers = (0..plan.threads).map(worker).collect::<Result<Vec<_>, _>>()?;
        complete.store(true, Relaxed);
        drop(closed);
        start.wait();
        std::thread::sleep(plan.warm_up);
        // Whoever sets something up on first use (a kernel view, a library) does it now. A lock may starve
        // a thread; do not wait for ever.
        let patience = Instant::now();
        while read().contains(&0) && patience.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        phase.0.store(MEASURE, Relaxed);
        let (before, usage, began) = (read(), process::own_usage(), Instant::now());
        std::thread::sleep(plan.interval);
        phase.0.store(STOP, Relaxed);
        let (seconds, after) = (began.elapsed().as_secs_f64(), read());
        let used = process::own_usage() - usage;
        release();
        let mut waits = histogram();
        for worker in workers {
            waits.add(worker.join().expect("a worker does not panic")).expect("same bounds");
        }
        let done: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
        let sample = Sample {
            view: None,
            seconds,
            operations: done.iter().sum(),
            fairness: stats::fairness_factor(&done),
            wait: summary(&waits),
            context_switches: used.context_switches(),
            cpu_seconds: used.cpu_seconds(),
        };
        Ok((sample, read().iter().sum()))
    })
}

/// A sample in which something was counted: where the machine is busy, the threads may not have run at all
/// in the first.
#[cfg(test)]
pub(crate) fn some<E: std::fmt::Display>(name: &str, mut take: impl FnMut() -> Result<Sample, E>) -> Sample {
    let mut take = || take().unwrap_or_else(|error| panic!("{name}: {error}"));
    (0..99).map(|_| take()).find(|sample| sample.operations > 0).unwrap_or_else(take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_only_the_interval_and_only_the_counted() {
        let plan = Plan {
            threads: 2,
            counted: 1,
            warm_up: Duration::from_millis(20),
            interval: Duration::from_millis(50),
        };
        let began = Instant::now();
        let (sample, all) = measure(
            plan,
            |worker| {
                while worker.goes_on() {
                    worker.waited(Duration::from_micros(7));
                    worker.count();
                    std::thread::sleep(Duration::from_millis(1));
                }
            },
            || (),
        )
        .unwrap();
        assert!(sample.operations > 0 && sample.operations < all, "{} of {all}", sample.operations);
        // The interval is longer where others have the processors when it is to end.
        let most = (began.elapsed() - plan.warm_up).as_millis() as u64 + 1;
        assert!(sample.operations <= most, "one counts, once a millisecond: {} of {most}", sample.operations);
        let wait = sample.wait.unwrap();
        assert!((6_900..=7_100).contains(&wait.p50_ns) && wait.max_ns >= wait.p999_ns, "{wait:?}");
        assert_eq!(sample.fairness, None);
    }
}
