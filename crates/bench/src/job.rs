// SPDX-License-Identifier: MIT OR Apache-2.0
//! One sample, in a process of its own: the parent sends a [`Job`] as an argument, the child answers with a
//! [`Sample`] on its standard output.

use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use launch::interposer::Interposer;
use linux::view::{self, Request};
use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::error::{JobError, check_view};
use crate::harness::{Plan, Sample};
use crate::process;
use crate::workload::{
    barrier::Barrier, condvar::Condvar, delegate, mutex::Mutex, parallel::Parallel, patterns::Patterns,
    rwlock::RwLock, switch,
};

/// What to run, without who.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "kebab-case")]
pub enum Work {
    /// Critical sections under a mutex.
    Mutex(Mutex),
    /// Critical sections that another thread may run.
    Delegate(Mutex),
    /// Critical sections under a pthread spin lock.
    Spin(Mutex),
    /// Rounds of work and a barrier.
    Barrier(Barrier),
    /// Critical sections under a reader-writer lock.
    Rwlock(RwLock),
    /// A bounded buffer over pthread condition variables.
    Condvar(Condvar),
    /// What programs build of locks.
    Patterns(Patterns),
    /// Parallel loops.
    Parallel(Parallel),
    /// Context switches under a view, which the contender names.
    Switch,
}

impl Work {
    /// Threads that it starts.
    pub fn threads(&self) -> usize {
        match self {
            Self::Mutex(work) | Self::Delegate(work) | Self::Spin(work) => work.threads,
            Self::Barrier(work) => work.threads,
            Self::Rwlock(work) => work.threads,
            Self::Condvar(work) => work.threads,
            Self::Patterns(work) => work.threads,
            Self::Parallel(work) => work.threads,
            Self::Switch => switch::THREADS,
        }
    }
}

/// One sample.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// What to run.
    pub work: Work,
    /// Name of the lock, where the workload has a choice.
    pub lock: String,
    /// Runs before counting starts.
    pub warm_up: Duration,
    /// Counted interval.
    pub interval: Duration,
}

/// BOUND: how long a sample may take beyond its interval; threads that burn critical sections of 100 us
/// finish in milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// As [`check_view`], of the interposer, where one is preloaded.
fn check_interposer() -> Result<(), JobError> {
    let Some(interposer) = Interposer::here() else { return Ok(()) };
    check_view(|| match Request::named(interposer.view().as_bytes()) {
        Some(Request::Only(view)) => Some(view),
        _ => None,
    })
}

/// The view that was used in this process: by the interposer or by our own locks.
fn taken_view() -> Option<String> {
    let interposed = Interposer::here().map(|interposer| interposer.view());
    interposed.or_else(|| linux::chosen().map(view::name)).map(String::from)
}

impl Job {
    /// Takes the sample in this process.
    pub fn run(&self) -> Result<Sample, JobError> {
        check_interposer()?;
        let sample = self.measure()?;
        Ok(Sample { view: taken_view(), ..sample })
    }

    fn measure(&self) -> Result<Sample, JobError> {
        let threads = self.work.threads();
        let plan = Plan { threads, counted: threads, warm_up: self.warm_up, interval: self.interval };
        match &self.work {
            Work::Mutex(work) => work.run(&self.lock, plan),
            Work::Delegate(work) => delegate::run(work, &self.lock, plan),
            Work::Spin(work) => work.run("spin", plan),
            Work::Barrier(work) => work.run(&self.lock, plan),
            Work::Rwlock(work) => work.run(&self.lock, plan),
            Work::Condvar(work) => work.run(plan),
            Work::Patterns(work) => work.run(&self.lock, plan),
            Work::Parallel(work) => work.run(&self.lock, plan),
            Work::Switch => switch::run(&self.lock, plan),
        }
    }

    /// Takes the sample in a new process, by [`Job::take`]: `program prefix...` is its command.
    pub fn run_in_child(
        &self,
        program: &Path,
        prefix: &[&str],
        contender: &Contender,
    ) -> Result<Sample, JobError> {
        let mut command = Command::new(program);
        command.args(prefix);
        contender.environment(&mut command);
        self.take(command)
    }

    /// Takes the sample in a new process: the command, with the job as one argument more, must call
    /// [`Job::run`] and write what that returns as JSON.
    pub fn take(&self, mut command: Command) -> Result<Sample, JobError> {
        let (mut answer, mut complaint) = (tempfile::tempfile()?, tempfile::tempfile()?);
        command.arg(serde_json::to_string(self)?);
        command.stdin(Stdio::null()).stdout(answer.try_clone()?).stderr(complaint.try_clone()?);
        let timeout = self.warm_up + self.interval + PATIENCE;
        let finished = process::run(&mut command, Some(timeout))?;
        if finished.timed_out {
            return Err(JobError::TimedOut(timeout));
        }
        if !finished.status.success() {
            let mut message = String::new();
            complaint.rewind()?;
            complaint.read_to_string(&mut message)?;
            let message = message.trim();
            return Err(match message.strip_prefix("wakeful: ") {
                Some(reason) => JobError::Failed(reason.to_string()),
                None => JobError::Died { status: finished.status, message: message.to_string() },
            });
        }
        answer.rewind()?;
        Ok(serde_json::from_reader(answer)?)
    }
}
