// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a sample could not be taken: what the workloads and whoever starts them report.

use std::process::ExitStatus;
use std::time::Duration;

use linux::view::{Request, View};

/// Why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// No lock of this name.
    #[error("there is no lock `{0}`")]
    UnknownLock(String),
    /// The view does not work here.
    #[error("the view `{0}` does not work here; `wakeful doctor` says why")]
    NoView(String),
    /// The lock is broken.
    #[error("mutual exclusion was violated: {sections} sections left their mark, {counted} ran")]
    Exclusion {
        /// Sections that the data shows.
        sections: u64,
        /// Sections that ran.
        counted: u64,
    },
    /// The barrier is broken.
    #[error("a thread began a round before the one before was over")]
    Overlap,
    /// The barrier is broken.
    #[error("{serial} threads were told that they are the serial one, in {rounds} rounds")]
    Serial {
        /// Threads that were told.
        serial: u64,
        /// Rounds that ran.
        rounds: u64,
    },
    /// The team is broken.
    #[error("an iteration was run {run} times in {rounds} loops")]
    Iterations {
        /// Times that it was run.
        run: u64,
        /// Loops that ran.
        rounds: u64,
    },
    /// The team is broken, or this machine.
    #[error("the program computed something else than it does on one thread")]
    Result,
    /// One processor cannot be divided.
    #[error("a partition takes two processors at least: one for others")]
    NoPartition,
    /// No processors from the server.
    #[error("{0}")]
    Server(#[from] linux::server::Error),
    /// A library is not installed.
    #[error("the library of `{0}` is not installed")]
    NoLibrary(String),
    /// The lock is broken.
    #[error("a reader was let in while a writer was inside: {torn} sections read what was half written")]
    Torn {
        /// Sections that saw it.
        torn: u64,
    },
    /// The process could not be run.
    #[error("cannot run the measuring process: {0}")]
    Spawn(#[from] std::io::Error),
    /// As many threads as were asked for could not be started.
    #[error("cannot start thread {number} of {threads}: {error}")]
    Thread {
        /// Which one.
        number: usize,
        /// Of how many.
        threads: usize,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// It hung.
    #[error("no answer after {0:?}: a thread waits for ever, or this machine is far too slow")]
    TimedOut(Duration),
    /// It said why there is no sample.
    #[error("{0}")]
    Failed(String),
    /// It died.
    #[error("the measuring process ended with {status}: {message}")]
    Died {
        /// How.
        status: ExitStatus,
        /// What it said.
        message: String,
    },
    /// It said something else.
    #[error("the measuring process answered nonsense: {0}")]
    Answer(#[from] serde_json::Error),
}

/// A contender that asks for a view and silently runs with another would be a lie.
pub(crate) fn check_view(taken: impl FnOnce() -> Option<View>) -> Result<(), JobError> {
    let asked = std::env::var(linux::environment::VIEW.name()).unwrap_or_default();
    match Request::named(asked.as_bytes()) {
        Some(Request::Only(view)) if view != View::None && taken() != Some(view) => {
            Err(JobError::NoView(asked))
        }
        _ => Ok(()),
    }
}
