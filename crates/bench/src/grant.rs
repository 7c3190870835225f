// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the processor server takes: from what makes a processor available, or from asking where one is
//! free, to the first instruction that the asker runs on it. Needs a running server.

use std::io::{self, BufRead, BufReader, Write};
use std::mem::swap;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use hdrhistogram::Histogram;
use linux::server::{Connection, Demand, Error, Request};
use serde::Serialize;

use crate::busy::Busy;
use crate::workload::parallel::GRANT;

/// What makes a processor another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// A process that the server does not know yet asks, and there is one.
    New,
    /// One that has had processors before asks again.
    Known,
    /// Its holder gives it back, and another waits.
    Released,
    /// Its holder is killed, and another waits.
    Killed,
}

/// All of them, in the order in which they are measured.
pub const ALL: [From; 4] = [From::New, From::Known, From::Released, From::Killed];

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Grants of each kind.
    pub rounds: u32,
    /// Busy processes beside, in the default partition.
    pub busy: usize,
    /// Nothing happens for so long before each grant.
    pub pause: Duration,
}

/// A distribution of times, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Grants {
    /// What was measured.
    pub from: From,
    /// Busy processes beside.
    pub busy: usize,
    /// How many grants.
    pub count: u64,
    /// The least.
    pub min_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 90 %.
    pub p90_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// The greatest.
    pub max_ns: u64,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// The system refuses.
    #[error("cannot start, or hear, what asks: {0}")]
    Io(#[from] io::Error),
    /// What asks could not.
    #[error("{0}")]
    Asker(String),
}

/// The hidden verb of this program that [`asker`] is.
pub const ASKER: &str = "grant-asker";

/// Measures all four. `program` is this program, which is started as [`ASKER`].
///
/// # Errors
/// If the server does not give what was asked for.
pub fn run(program: &Path, plan: Plan, mut each: impl FnMut(Grants)) -> Result<(), GrantError> {
    let _busy = Busy::start(plan.busy)?;
    let start = || Asker::start(program);
    let pause = || std::thread::sleep(plan.pause);
    for from in ALL {
        let mut times = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds");
        let (mut one, mut other, mut taken) = (start()?, start()?, Vec::new());
        if from != From::New {
            one.say("ask")?;
            one.hear()?;
            one.hear()?;
        }
        for _ in 0..plan.rounds {
            let [begin, end] = match from {
                From::New | From::Known => {
                    if from == From::New {
                        one = start()?;
                    } else {
                        one.say("leave")?;
                        one.hear()?;
                    }
                    pause();
                    one.say("ask")?;
                    [one.hear()?, one.hear()?]
                }
                From::Released | From::Killed => {
                    // Whoever gets a free one at once keeps it: else the next one would not wait for ours.
                    taken.extend(until_one_waits(&mut other, start, Asker::waits)?);
                    pause();
                    let mut begin = now();
                    if from == From::Killed {
                        one.child.kill()?;
                    } else {
                        one.say("leave")?;
                        begin = one.hear()?;
                    }
                    let end = other.hear()?;
                    if from == From::Killed {
                        one = start()?;
                    }
                    swap(&mut one, &mut other);
                    [begin, end]
                }
            };
            times.saturating_record(end.saturating_sub(begin));
        }
        let at = |quantile| times.value_at_quantile(quantile);
        each(Grants {
            from,
            busy: plan.busy,
            count: times.len(),
            min_ns: times.min(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            max_ns: times.max(),
        });
    }
    Ok(())
}

/// Puts others in its place until one has to wait: those that did not.
fn until_one_waits<T, E, F: std::convert::From<E>>(
    one: &mut T,
    start: impl Fn() -> Result<T, E>,
    mut waits: impl FnMut(&mut T) -> Result<bool, F>,
) -> Result<Vec<T>, F> {
    let mut others = Vec::new();
    while !waits(one)? {
        others.push(std::mem::replace(one, start()?));
    }
    Ok(others)
}

fn now() -> u64 {
    // SAFETY: zeros are a valid time, which the call overwrites.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A process that asks the server when told to.
struct Asker {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Asker {
    fn start(program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(["bench", ASKER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Self { child, answers })
    }

    fn say(&mut self, what: &str) -> io::Result<()> {
        writeln!(self.child.stdin.as_mut().expect("it is piped"), "{what}")
    }

    /// Asks for a processor: has it to wait for one?
    fn waits(&mut self) -> Result<bool, GrantError> {
        self.say("wait")?;
        let waits = self.hear()? == 0;
        if !waits {
            self.hear()?;
        }
        Ok(waits)
    }

    /// A time, or a number.
    fn hear(&mut self) -> Result<u64, GrantError> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().map_err(|_| GrantError::Asker(line.trim().to_string()))
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks and says when, as it is told by standard input, until that ends: `ask` answers with the times
/// before and after, `wait` with how many it has at once, and with the time when it has got a processor,
/// `leave` with the time before. What is no number is a reason.
///
/// # Errors
/// If it cannot be heard.
pub fn asker() -> io::Result<()> {
    let mut connection = Connection::open();
    for line in io::stdin().lines() {
        let line = line?;
        let times = match &mut connection {
            Ok(connection) => obey(connection, &line).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match times {
            Ok(times) => times.iter().try_for_each(|time| writeln!(io::stdout(), "{time}"))?,
            Err(reason) => writeln!(io::stdout(), "{}", reason.replace('\n', " "))?,
        }
    }
    Ok(())
}

fn obey(connection: &mut Connection, line: &str) -> Result<Vec<u64>, Error> {
    let begin = now();
    if line == "leave" {
        connection.ask(Request::Leave)?;
        return Ok(vec![begin]);
    }
    let (mut state, _) = connection.ask(Request::Join(Demand::new(0, 1, 1, 1)))?;
    if line == "wait" {
        let _ = writeln!(io::stdout(), "{}", state.holds);
    }
    state = connection.granted(state, GRANT)?;
    loop {
        // SAFETY: no arguments.
        let here = unsafe { libc::sched_getcpu() } as u32;
        if state.ids.contains(here) {
            break;
        }
    }
    let end = now();
    Ok(if line == "wait" { vec![end] } else { vec![begin, end] })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three processors are free: only the fourth one measures how long a grant takes.
    #[test]
    fn who_does_not_wait_takes_a_free_processor_away() {
        let mut free = 3;
        let mut waits = |_: &mut u32| {
            free -= 1;
            Ok::<_, GrantError>(free < 0)
        };
        let mut one = 0;
        let taken = until_one_waits(&mut one, || Ok::<_, io::Error>(7), &mut waits).unwrap();
        assert_eq!((taken, one), (vec![0, 7, 7], 7));
    }
}
