// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a simulation.

use serde::Serialize;

use crate::engine::Engine;
use crate::lost::Lost;
use crate::memory::NS;
use crate::path::Path;
use crate::thread::{FOREIGN, State};

/// How long threads waited for a section, or at a barrier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waits {
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Half of all waits were at most so long, within 1 %; and so on.
    pub p50_ns: u64,
    #[allow(missing_docs)]
    pub p90_ns: u64,
    #[allow(missing_docs)]
    pub p99_ns: u64,
    #[allow(missing_docs)]
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What a thread did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadResults {
    /// Which instance of the program.
    pub instance: usize,
    /// Number in its instance.
    pub index: usize,
    /// Sections or episodes passed.
    pub sections: u64,
    /// When it was done; `None` if it was not.
    pub finished_ms: Option<f64>,
    /// Processor time that it used, waiting included.
    pub cpu_ms: f64,
    /// Of that, inside and outside of sections, without waiting.
    pub work_ms: f64,
    /// Waiting altogether, with or without a processor.
    pub waited_ms: f64,
    /// The longest wait.
    pub longest_wait_ms: f64,
    /// How often the kernel took its processor.
    pub preemptions: u64,
    /// How often it slept.
    pub sleeps: u64,
    /// How often it gave its processor up and stayed ready.
    pub yields: u64,
    /// How often it came to another processor.
    pub migrations: u64,
}

/// Processors and ready fibers, in the second half of a run: see [`crate::activations`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// Of the processors' time, what was the program's work.
    pub used: f64,
    /// Processor time without a thread while a fiber was ready.
    pub idle_while_ready_ns: f64,
    /// The same, of all processor time.
    pub idle_while_ready: f64,
    /// Times that the kernel kept a thread, in the whole run.
    pub blocks: u64,
    /// Upcalls: blocked, faulted, unblocked, preempted.
    pub upcalls: [u64; 4],
}

impl Activity {
    fn of(engine: &Engine) -> Option<Self> {
        let (time, work) = engine.tally.idle.window()?;
        let mut upcalls = [0; 4];
        for app in &engine.apps {
            upcalls.iter_mut().zip(app.channel.counts).for_each(|(sum, count)| *sum += count);
        }
        let all = time as f64 * engine.processors.len() as f64;
        let lost = engine.tally.idle.lost as f64;
        Some(Self {
            used: work as f64 / all,
            idle_while_ready_ns: lost / NS as f64,
            idle_while_ready: lost / all,
            blocks: engine.tally.idle.blocks,
            upcalls,
        })
    }
}

/// What came of a simulation. Virtual times throughout; the same on every host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// The machine's name.
    pub machine: String,
    /// Its processors.
    pub processors: u32,
    /// The seed.
    pub seed: u64,
    /// Until the last thread was done, or the limit.
    pub elapsed_ms: f64,
    /// The limit came before the end; rates are of what was done until then.
    pub limited: bool,
    /// Why it ended early, if it did: a broken lock, a deadlock.
    pub failure: Option<String>,
    /// Sections or episodes of all threads.
    pub sections: u64,
    /// Sections that all threads together were to pass.
    pub wanted: u64,
    /// What the program has computed, if it computes and is done; of the first instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<u32>,
    /// `elapsed_ms`, or how long it would have been at the rate until the limit.
    pub estimated_ms: f64,
    /// The waits of all threads; `None` if there was none.
    pub waits: Option<Waits>,
    /// What sections cost one after the other, in a program that tells of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// How processors were used while fibers were ready, in a program that has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// What the threads' time was lost to, if the setting asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// Processor time of the program, waiting included.
    pub cpu_ms: f64,
    /// Processor time of foreign processes.
    pub foreign_ms: f64,
    /// Of the program's, without waiting.
    pub work_ms: f64,
    /// From one thread or process, or from none, to another or to the same after a pause without one; on
    /// all processors.
    pub context_switches: u64,
    /// Of the program's threads.
    pub preemptions: u64,
    /// Preemptions put off because the thread wished it (KE-2).
    pub put_off: u64,
    /// Of these, so many were carried out when the grace was over.
    pub overrun: u64,
    /// Processors that a thread gave to one of its program that stands higher (ICPP 2001, figure 1).
    #[serde(skip_serializing_if = "none")]
    pub handed_off: u64,
    /// Threads that came to another processor.
    pub migrations: u64,
    /// Changes of the partition.
    pub repartitions: u64,
    /// Shared accesses.
    pub accesses: u64,
    /// Of these, not answered by the processor's own cache.
    pub misses: u64,
    /// Copies in other caches ended by writes.
    pub invalidations: u64,
    /// Values that went from a finite cache to memory.
    #[serde(skip_serializing_if = "none")]
    pub written_back: u64,
    /// Time that accesses waited for a line or a connection.
    pub queued_ms: f64,
    /// Of the accesses, those of spinners who were passed over: simulated without being executed. Says how
    /// the simulator worked and nothing about the machine; differs from one build to another.
    #[serde(skip)]
    pub passed_over: u64,
    /// Each thread.
    pub threads: Vec<ThreadResults>,
}

/// In the machines without finite caches.
fn none(written_back: &u64) -> bool {
    *written_back == 0
}

impl Results {
    /// Sections per second of virtual time.
    pub fn rate(&self) -> f64 {
        self.sections as f64 / (self.elapsed_ms / 1e3)
    }

    /// Jain's index of the threads' sections: 1 if all are equal, 1/n if one has all. Of the sections per
    /// instance until the end.
    pub fn fairness(&self) -> f64 {
        let (sum, squares) = self.threads.iter().fold((0.0, 0.0), |(sum, squares), thread| {
            let sections = thread.sections as f64;
            (sum + sections, squares + sections * sections)
        });
        if squares == 0.0 { 1.0 } else { sum * sum / (squares * self.threads.len() as f64) }
    }

    pub(crate) fn of(engine: &Engine, name: &str, seed: u64, wanted: u64) -> Self {
        let ms = |time: u64| time as f64 / (NS as f64 * 1e6);
        let ours = || engine.threads.iter().filter(|thread| thread.app != FOREIGN);
        let sections: u64 = ours().map(|thread| thread.sections).sum();
        let elapsed_ms = ms(engine.tally.end);
        let waits = &engine.tally.waits;
        let traffic = engine.memory.traffic;
        Self {
            machine: name.into(),
            processors: engine.processors.len() as u32,
            seed,
            elapsed_ms,
            limited: engine.tally.capped,
            failure: engine.tally.failure.clone(),
            sections,
            wanted,
            digest: None,
            estimated_ms: if engine.tally.capped {
                elapsed_ms * wanted as f64 / sections.max(1) as f64
            } else {
                elapsed_ms
            },
            waits: (!waits.is_empty()).then(|| Waits {
                mean_ns: waits.mean(),
                p50_ns: waits.value_at_quantile(0.5),
                p90_ns: waits.value_at_quantile(0.9),
                p99_ns: waits.value_at_quantile(0.99),
                p999_ns: waits.value_at_quantile(0.999),
                max_ns: waits.max(),
            }),
            path: engine.tally.path.result(),
            activity: Activity::of(engine),
            lost: engine.lost(),
            cpu_ms: ms(ours().map(|thread| thread.cpu).sum()),
            foreign_ms: ms(engine.tally.foreign),
            work_ms: ms(ours().map(|thread| thread.work).sum()),
            context_switches: engine.tally.switches,
            preemptions: engine.tally.preemptions,
            put_off: engine.tally.put_off,
            overrun: engine.tally.overrun,
            handed_off: engine.tally.handed,
            migrations: engine.tally.migrations,
            repartitions: engine.tally.repartitions,
            accesses: traffic.hits + traffic.misses,
            misses: traffic.misses,
            invalidations: traffic.invalidations,
            written_back: traffic.written_back,
            queued_ms: ms(traffic.queued),
            passed_over: engine.tally.skipped,
            threads: ours()
                .map(|thread| ThreadResults {
                    instance: thread.app,
                    index: thread.index,
                    sections: thread.sections,
                    finished_ms: (thread.state == State::Done).then(|| ms(thread.finished)),
                    cpu_ms: ms(thread.cpu),
                    work_ms: ms(thread.work),
                    waited_ms: ms(thread.waited),
                    longest_wait_ms: ms(thread.longest_wait),
                    preemptions: thread.preemptions,
                    sleeps: thread.sleeps,
                    yields: thread.yields,
                    migrations: thread.migrations,
                })
                .collect(),
        }
    }
}
