// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `run --cpus`, `status`, `set` and `top` have in common: requests to the processor server, and its
//! answers in words.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Result, bail};
use linux::server::{Connection, Demand, Enforcement, Error, Request, State, Threads};
use serde::Serialize;

/// How many processors to ask for: `2`, `1-4`, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    least: u32,
    most: u32,
}

impl std::str::FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self { least: 0, most: 0 });
        }
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        match (least.parse(), most.parse()) {
            (Ok(least), Ok(most)) if 1 <= least && least <= most => Ok(Self { least, most }),
            _ => Err("a number such as 2, a range such as 1-4, or auto".into()),
        }
    }
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match *self {
            Self { most: 0, .. } => f.write_str("auto"),
            Self { least, most } if least == most => write!(f, "{least}"),
            Self { least, most } => write!(f, "{least}-{most}"),
        }
    }
}

impl Cpus {
    /// The request for them.
    pub fn request(self, priority: u32) -> Request {
        Request::Join(Demand::new(priority, self.least, self.most, self.most))
    }
}

/// "1 processor", "2 processors".
pub fn processors(count: u32) -> String {
    format!("{count} processor{}", if count == 1 { "" } else { "s" })
}

/// Gets a partition for this process, waiting for it if need be; the descriptor of its block.
pub fn join(cpus: Cpus, priority: u32) -> Result<(State, OwnedFd)> {
    let mut connection = Connection::open().map_err(explain)?;
    let (mut state, fd) = connection.ask(cpus.request(priority)).map_err(explain)?;
    let Some(fd) = fd else { bail!("{}", Error::Foreign) };
    if state.holds == 0 {
        let before = match state.behind {
            0 => String::new(),
            1 => "; 1 request is before this one".into(),
            behind => format!("; {behind} requests are before this one"),
        };
        eprintln!("wakeful: waiting for {}{before};", processors(state.lacks));
        eprintln!("wakeful: `wakeful status` shows who has them, Ctrl-C gives up");
    }
    while state.holds == 0 {
        state = connection.receive().map_err(explain)?;
    }
    Ok((state, fd))
}

/// Lets the program that we become inherit the block, under a number that is in nobody's way.
pub fn hand_over(fd: &OwnedFd) -> Option<String> {
    // BOUND: below the usual limit of 1024, above what programs count on.
    // SAFETY: plain numbers.
    let number = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, 900) };
    (number >= 0).then(|| number.to_string())
}

/// The server's word, for people.
pub fn explain(error: Error) -> anyhow::Error {
    match error {
        Error::Io(error) => anyhow::Error::from(error).context("the processor server does not answer"),
        error => anyhow::anyhow!("{error}"),
    }
}

/// An application, as `status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Application {
    pub process: u32,
    pub program: String,
    pub user: u32,
    pub priority: u32,
    pub asked: String,
    pub holds: u32,
    pub processors: String,
    pub spare: u32,
    pub lacks: u32,
    pub behind: u32,
    pub generation: u32,
}

impl Application {
    fn new(state: &State, program: String) -> Self {
        let State { process, user, demand, spare, holds, lacks, behind, generation, ids } = *state;
        let (priority, asked, processors) = (demand.priority, asked(demand), ids.to_string());
        Self { process, program, user, priority, asked, holds, processors, spare, lacks, behind, generation }
    }
}

/// A program whose threads the server's observer sees.
#[derive(Clone, Debug, Serialize)]
pub struct Observed {
    pub process: u32,
    pub program: String,
    pub user: u32,
    #[serde(serialize_with = "by_name")]
    pub threads: Threads,
}

fn by_name<S: serde::Serializer>(threads: &Threads, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(threads.named())
}

impl Observed {
    /// The columns of a table, with their widths; what does not begin at the right is a name.
    pub const COLUMNS: [(&str, usize); 9] = [
        ("PROCESS", 8),
        ("PROGRAM", 15),
        ("THREADS", 7),
        ("RUN", 4),
        ("PREEMPT", 7),
        ("BLOCK", 5),
        ("HOLD", 4),
        ("PREEMPT+HOLD", 12),
        ("WISH", 4),
    ];

    /// What stands in the columns, which are as wide as that.
    pub fn row(&self) -> [String; 9] {
        // But for the last of them.
        let numbers = self.threads.values();
        std::array::from_fn(|column| match (column, Self::COLUMNS[column].1) {
            (0, width) => format!("{:>width$}", self.process),
            (1, width) => format!("{:<width$.width$}", self.program),
            (column, width) => format!("{:>width$}", numbers[column - 2]),
        })
    }

    /// The columns' names, as wide.
    pub fn head() -> [String; 9] {
        std::array::from_fn(|column| match Self::COLUMNS[column] {
            (name, width) if column == 1 => format!("{name:<width$}"),
            (name, width) => format!("{name:>width$}"),
        })
    }

    /// Does a thread hold a lock that has no processor?
    pub fn holder_out(&self) -> bool {
        self.threads.preempted_holding > 0
    }
}

/// All that the server tells.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub enforcement: &'static str,
    pub default_partition: String,
    pub default_count: u32,
    pub applications: Vec<Application>,
    /// Is there an observer?
    pub observer: bool,
    pub observed: Vec<Observed>,
    /// Programs that have asked and that the server does not list, because there are so many.
    pub more: u32,
    /// Observed programs that the server does not list, because there are so many.
    pub unlisted: u32,
    pub counters: Vec<(&'static str, u64)>,
}

/// Asks for everything.
pub fn status(connection: &mut Connection) -> Result<Status, Error> {
    let (entries, summary) = connection.status()?;
    let (mut applications, mut observed) = (Vec::new(), Vec::new());
    for entry in &entries {
        let (process, user) = (entry.process(), entry.user());
        let program = program(process);
        if let Some(state) = entry.state() {
            applications.push(Application::new(state, program.clone()));
        }
        if let Some(threads) = entry.threads {
            observed.push(Observed { process, program, user, threads });
        }
    }
    Ok(Status {
        enforcement: match summary.enforcement {
            Enforcement::CgroupV2 => "cgroup v2",
            Enforcement::CgroupV1 => "cgroup v1",
            Enforcement::Affinity => "affinity",
        },
        default_partition: summary.default_partition.to_string(),
        default_count: summary.default_partition.count(),
        more: summary.applications.saturating_sub(applications.len() as u32),
        applications,
        observer: summary.observer,
        observed,
        unlisted: summary.unlisted,
        counters: summary.counters.named().collect(),
    })
}

/// What a process calls itself. A program may call itself anything.
fn program(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim().chars().filter(|letter| !letter.is_control()).collect()
}

fn asked(demand: Demand) -> String {
    let Some(numbers) = demand.numbers else { return "auto".into() };
    let (least, wanted, most) = (numbers.least(), numbers.wanted(), numbers.most());
    match wanted == most {
        true => Cpus { least, most }.to_string(),
        false => format!("{least}-{wanted}-{most}"),
    }
}

/// What an application waits for, in words.
pub fn remark(application: &Application) -> String {
    let Application { spare, lacks, behind, .. } = *application;
    match (spare, lacks, behind) {
        (0, 0, _) => String::new(),
        (spare, 0, _) => format!("can spare {spare}"),
        (_, lacks, 0) => format!("waits for {lacks}"),
        (_, lacks, behind) => format!("waits for {lacks}, behind {behind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_processors() {
        for text in ["1", "2", "1-4", "auto"] {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), text);
        }
        for text in ["0", "-1", "4-1", "", "two", "1-"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
        assert_eq!((processors(1), processors(2)), ("1 processor".into(), "2 processors".into()));
    }
}
