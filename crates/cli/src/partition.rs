// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `run --cpus`, `status`, `set` and `top` have in common: requests to the processor server, and its answers in words.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Result, bail};
use linux::server::{COUNTERS, Connection, Enforcement, Error, Kind, Message, Refusal, THREADS};
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
    /// The request for them, for a process or, with 0, for this one.
    pub fn request(self, priority: u32, process: u32) -> Message {
        let Self { least, most } = self;
        Message { priority, least, wanted: most, most, process, ..Message::new(Kind::Join) }
    }
}

/// "1 processor", "2 processors".
pub fn processors(count: u32) -> String {
    format!("{count} processor{}", if count == 1 { "" } else { "s" })
}

/// "0-2,5".
pub fn ids(words: &[u64]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in
        (0..words.len() as u32 * 64).filter(|&number| words[number as usize / 64] >> (number % 64) & 1 == 1)
    {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let show = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    parts.into_iter().map(show).collect::<Vec<String>>().join(",")
}

/// Gets a partition for this process, waiting for it if need be; the descriptor of its block.
pub fn join(cpus: Cpus, priority: u32) -> Result<(Message, OwnedFd)> {
    let mut connection = Connection::open().map_err(explain)?;
    let (mut state, fd) = connection.ask(cpus.request(priority, 0)).map_err(explain)?;
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
        (state, _) = connection.receive().map_err(explain)?;
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
    anyhow::anyhow!("{error}")
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

/// A program whose threads the server's observer sees.
#[derive(Clone, Debug, Serialize)]
pub struct Observed {
    pub process: u32,
    pub program: String,
    pub user: u32,
    /// In the order of [`THREADS`], by which it is serialized.
    #[serde(serialize_with = "by_name")]
    pub threads: [u32; THREADS.len()],
}

fn by_name<S: serde::Serializer>(threads: &[u32; THREADS.len()], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(THREADS.iter().zip(threads))
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
        let [known, running, preempted, blocked, holding, preempted_holding, wishing, _] = self.threads;
        let numbers = [known, running, preempted, blocked, holding, preempted_holding, wishing];
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
        self.threads[5] > 0
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
    let (mut message, _) = connection.ask(Message::new(Kind::Status))?;
    let (mut applications, mut observed) = (Vec::new(), Vec::new());
    while message.kind == Kind::Entry as u32 {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", message.process)).unwrap_or_default();
        // A program may call itself anything.
        let program: String = name.trim().chars().filter(|letter| !letter.is_control()).collect();
        if message.observed == 1 {
            let Message { process, user, threads, .. } = message;
            observed.push(Observed { process, program: program.clone(), user, threads });
        }
        if message.error == Refusal::Unknown as u32 {
            (message, _) = connection.receive()?;
            continue;
        }
        applications.push(Application {
            process: message.process,
            program,
            user: message.user,
            priority: message.priority,
            asked: asked(&message),
            holds: message.holds,
            processors: ids(&message.ids),
            spare: message.count,
            lacks: message.lacks,
            behind: message.behind,
            generation: message.generation,
        });
        (message, _) = connection.receive()?;
    }
    Ok(Status {
        enforcement: match message.error {
            by if by == Enforcement::CgroupV2 as u32 => "cgroup v2",
            by if by == Enforcement::CgroupV1 as u32 => "cgroup v1",
            _ => "affinity",
        },
        default_partition: ids(&message.ids),
        default_count: message.holds,
        more: message.count.saturating_sub(applications.len() as u32),
        applications,
        observer: message.observed == 1,
        observed,
        unlisted: message.behind,
        counters: COUNTERS.into_iter().zip(message.counters).collect(),
    })
}

fn asked(message: &Message) -> String {
    match *message {
        Message { most: 0, .. } => "auto".into(),
        Message { least, wanted, most, .. } if wanted == most => Cpus { least, most }.to_string(),
        Message { least, wanted, most, .. } => format!("{least}-{wanted}-{most}"),
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
        assert_eq!(ids(&[0b100111, 0, 1]), "0-2,5,128");
        assert_eq!((processors(1), processors(2)), ("1 processor".into(), "2 processors".into()));
    }
}
