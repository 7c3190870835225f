// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server: connections, members, and the order of things.
//!
//! One thread. Each turn waits for something to read and then, for each event: the policy decides, the
//! kernel is told ([`Partitions::bring_about`]), the blocks of those concerned are written, and they are
//! told. A block says what the kernel was seen to do, not what was decided: if the kernel refuses, the
//! difference is tried again, at first after [`AGAIN`].
//!
//! **Members** are processes with, or waiting for, a partition; and some that have left theirs, so that
//! they have it sooner next time ([`READY`]). Membership ends with the process (its pidfd); not with the
//! connection, which a program loses by exec. **A restart** finds members by their blocks' files, and their
//! partitions in the kernel: programs notice nothing, but that the server, where it chooses, begins with
//! equal shares again. A block whose process is gone, or is another one by
//! now, is removed.
//!
//! **Clients are not trusted.** A packet of the wrong size ends its connection. A client that sends too fast
//! is not read from for a while. A user who sends far too much loses the connections at once. A client that
//! does not read its answers loses its own. A silent one costs a descriptor, and each user has so many.

mod adopt;
mod connections;
mod limits;
mod owners;
mod requests;
mod settle;
mod status;
mod worth;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use abi::server::{Counters, Refusal};
use policy::{Event, Id, Lease, Machine, Policy, Processor, SemiDynamic, System};
use tracing::{error, info, warn};

use crate::arenas::Arenas;
use crate::config::{Config, Enabled, Where};
use crate::kernel::{Kernel, Mapped, Set, parse};
use crate::partitions::Partitions;

use connections::{Allowance, REFUSED};
use owners::Owners;

/// BOUND: how long after a failure to try again, at first; twice as long each time, up to a second.
const AGAIN: Duration = Duration::from_millis(10);
/// How often to look for changes by others.
const AUDIT: Duration = Duration::from_secs(1);
/// BOUND: messages of a turn, after which somebody who has said little may come before the others.
const ROUND: usize = 8;

/// What root asks for comes before what users ask for, whatever their priorities.
const ROOT: u32 = 1 << 31;

/// The file that shows to programs whether we live.
const LIFE: &str = "life";

const LISTENER: u64 = 0;
const STOP: u64 = 1;

struct Connection {
    fd: OwnedFd,
    process: u32,
    user: u32,
    /// Whose limits hold: see [`owners`].
    account: u32,
    /// The machine's root; number 0 alone could be a container's.
    root: bool,
    /// It could send descriptors.
    wary: bool,
    pidfd: OwnedFd,
    allowance: Allowance,
    /// Not read from until then.
    muted: Option<Duration>,
}

struct Member {
    process: u32,
    user: u32,
    account: u32,
    /// See [`Connection::root`].
    root: bool,
    pidfd: OwnedFd,
    block: Mapped,
    /// The last connection that asked for it.
    connection: Option<u64>,
    /// See [`worth`].
    used: Option<worth::Used>,
}

/// See the module.
pub struct Server<K> {
    kernel: K,
    config: Config,
    /// Where the blocks are.
    folder: PathBuf,
    listener: OwnedFd,
    /// Nobody is accepted until then.
    deaf: Option<Duration>,
    system: System<Box<dyn Policy + Send>>,
    partitions: Partitions,
    members: BTreeMap<Id, Member>,
    /// Members no more, but their files are still to be removed; that has time.
    former: Vec<Member>,
    by_process: HashMap<u32, Id>,
    connections: BTreeMap<u64, Connection>,
    /// Connections of these accounts that are being closed, which takes as long as somebody else likes.
    closing: Vec<(u32, Weak<()>)>,
    owners: Owners,
    /// Of accounts but root's.
    allowances: HashMap<u32, Allowance>,
    /// Connections that are refused because so much came from their users.
    refused: Allowance,
    arenas: Arenas,
    next_token: u64,
    counters: Counters,
    /// The kernel is not as it should be.
    unsettled: bool,
    retry: Duration,
    again: Duration,
    audit: Duration,
    stop: bool,
}

/// What cannot be had, with the limit where there is one.
type Refused = (Refusal, u32);

impl<K: Kernel> Server<K> {
    /// Takes over what an earlier server left in `folder` and in the kernel.
    ///
    /// # Errors
    /// If there is no way to keep partitions, or nobody could be heard.
    pub fn start(kernel: K, config: Config, listener: OwnedFd, folder: &Path) -> io::Result<Self> {
        let partitions = Partitions::begin(&kernel, &config.enforcement)?;
        let online = partitions.online(&kernel)?;
        let machine = machine(&kernel, &online)?;
        let policy: Box<dyn Policy + Send> = match config.lease() {
            Some(length) => Box::new(Lease { length: length.as_nanos() as u64 }),
            None => Box::new(SemiDynamic),
        };
        let floor = (f64::from(machine.count()) * config.policy.floor_share).ceil() as u32;
        let floor = floor.max(config.policy.floor);
        // Earlier connections can still send some. So can all connections on older kernels: see `hear`.
        if let Err(error) = kernel.bar_descriptors(listener.as_fd()) {
            info!("clients can send descriptors: {error}");
        }
        kernel.watch(listener.as_fd(), LISTENER)?;
        info!(by = ?partitions.by(), processors = online.len(), "ready");
        let now = kernel.now();
        let arenas = if lends(&kernel, &config) { Arenas::begin(&kernel) } else { Arenas::default() };
        let mut owners = Owners::default();
        owners.look(&kernel);
        let mut server = Self {
            system: System::new(machine, floor, policy),
            folder: folder.to_owned(),
            kernel,
            config,
            listener,
            deaf: None,
            partitions,
            members: BTreeMap::new(),
            former: Vec::new(),
            by_process: HashMap::new(),
            connections: BTreeMap::new(),
            closing: Vec::new(),
            owners,
            allowances: HashMap::new(),
            refused: Allowance::new(REFUSED, now),
            arenas,
            next_token: STOP,
            counters: Counters::default(),
            unsettled: true,
            retry: Duration::ZERO,
            again: AGAIN,
            audit: now + AUDIT,
            stop: false,
        };
        server.adopt()?;
        server.settle();
        Ok(server)
    }

    /// Ends [`Self::run`] when this can be read from.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn stop_by(&mut self, fd: &OwnedFd) -> io::Result<()> {
        self.kernel.watch(fd.as_fd(), STOP)
    }

    /// Serves until told to stop; then gives everything back.
    pub fn run(&mut self) {
        self.run_and_say(|| {});
    }

    /// The same, and says at least once a second that it lives.
    pub fn run_and_say(&mut self, mut lives: impl FnMut()) {
        while !self.stop {
            self.turn();
            lives();
        }
        self.end();
    }

    /// Waits for something to happen, and does what follows. Never fails: what cannot be done is logged,
    /// counted and tried again.
    pub fn turn(&mut self) {
        let mut tokens = Vec::new();
        let limit = self.limit();
        match self.kernel.wait(&mut tokens, limit) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.fail("wait for clients", &error);
                // Or this would be a busy loop.
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => {}
        }
        for token in self.in_turn(tokens) {
            match token {
                LISTENER => self.accept(),
                STOP => self.stop = true,
                token if self.connections.contains_key(&token) => self.hear(token),
                token => {
                    self.arenas.bury(&self.kernel, token);
                    self.bury(token);
                }
            }
        }
        let now = self.kernel.now();
        self.unmute(now);
        if now >= self.audit {
            self.audit = now + AUDIT;
            self.look_around();
        }
        if self.system.due().is_some_and(|due| now.as_nanos() as u64 >= due) {
            let _ = self.apply(Event::Tick);
        }
        self.clear();
        if self.partitions.due().is_some_and(|due| now >= due) {
            self.unsettled = true;
        }
        if (self.unsettled || self.partitions.untidy()) && now >= self.retry {
            self.settle();
            let failures = self.partitions.tidy(&self.kernel);
            self.report(failures);
        }
    }

    /// What is done in this turn: all but messages, and of these some, of those users first from whom the
    /// least has come. The rest is there in the next one.
    fn in_turn(&self, mut tokens: Vec<u64>) -> Vec<u64> {
        let (now, rate) = (self.kernel.now(), self.config.access.user_messages_per_second);
        let saved = |token: &u64| match self.connections.get(token) {
            Some(connection) if !connection.root => {
                let allowance = self.allowances.get(&connection.account);
                allowance.map_or(f64::MAX, |allowance| allowance.saved(rate, now))
            }
            Some(_) => f64::MAX,
            None => f64::INFINITY,
        };
        if tokens.len() > ROUND {
            tokens.sort_by(|one, other| saved(other).total_cmp(&saved(one)));
            let messages = tokens.iter().position(|token| self.connections.contains_key(token));
            tokens.truncate(messages.map_or(tokens.len(), |others| others + ROUND));
        }
        tokens
    }

    fn limit(&self) -> Duration {
        let now = self.kernel.now();
        let mut next = self.audit;
        if self.unsettled || self.partitions.untidy() {
            next = next.min(self.retry);
        }
        if let Some(due) = self.partitions.due() {
            next = next.min(due.max(self.retry));
        }
        if let Some(due) = self.system.due().map(Duration::from_nanos)
            // One who has had its time and whom nobody asks for anything: there is nothing to do.
            && due > now
        {
            next = next.min(due);
        }
        let muted = self.connections.values().filter_map(|connection| connection.muted).chain(self.deaf);
        next = muted.min().map_or(next, |until| next.min(until));
        next.saturating_sub(now)
    }

    fn fail(&mut self, what: &str, error: &io::Error) {
        self.counters.failures += 1;
        error!("cannot {what}: {error}");
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// The processors that each process holds, with its user. For tests, as the next two.
    #[doc(hidden)]
    pub fn holders(&self) -> impl Iterator<Item = (u32, u32, &Set)> {
        self.members.iter().filter_map(|(&id, member)| {
            Some((member.process, member.user, &self.system.application(id)?.held))
        })
    }

    /// The default partition, what it keeps at least, and how many processors there are.
    #[doc(hidden)]
    pub fn kept(&self) -> (&Set, u32, usize) {
        (self.system.default_partition(), self.system.floor(), self.system.machine().online().count())
    }

    /// What one user may have, and all but root together.
    #[doc(hidden)]
    pub fn shares(&self) -> (u32, u32) {
        (self.share(), self.all_users_share())
    }

    /// Finds what has changed behind our back.
    fn look_around(&mut self) {
        match self.partitions.online(&self.kernel) {
            Ok(online) => {
                let known: Vec<(u32, bool)> = self
                    .system
                    .machine()
                    .iter()
                    .map(|(number, processor)| (number, processor.online))
                    .collect();
                for (number, was) in known {
                    let event = match (was, online.contains(&number)) {
                        (true, false) => Event::Offline(number),
                        (false, true) => Event::Online(number),
                        _ => continue,
                    };
                    let _ = self.apply(event);
                }
            }
            Err(error) => self.fail("see which processors there are", &error),
        }
        let others: Vec<Id> = self.members.keys().copied().filter(|&id| self.is_another(id)).collect();
        others.into_iter().for_each(|id| self.expel(id));
        self.look_at_use();
        self.arenas.tidy(&self.kernel);
        self.owners.look(&self.kernel);
        let (now, rate) = (self.kernel.now(), self.config.access.user_messages_per_second);
        self.allowances.retain(|_, allowance| allowance.saved(rate, now) < Allowance::new(rate, now).0);
        let repairs = self.partitions.audit(&self.kernel);
        if repairs > 0 {
            self.counters.repairs += repairs;
            self.unsettled = true;
            self.retry = Duration::ZERO;
        }
    }

    fn end(&mut self) {
        info!("stops; all processors go back");
        let ids: Vec<Id> = self.members.keys().copied().collect();
        for id in ids {
            let _ = self.apply(Event::Exit(id));
            self.forget(id);
        }
        self.clear();
        if self.arenas.loaded()
            && let Err(error) = self.kernel.remove_file(&self.folder.join(LIFE))
            && error.kind() != io::ErrorKind::NotFound
        {
            self.fail("remove the file of our life", &error);
        }
        for failure in self.partitions.end(&self.kernel) {
            warn!("cannot clean up after {}: {}", failure.process, failure.error);
        }
    }
}

/// Shall programs have the observer? To enrol, users call bpf(2), which their administrator may have
/// forbidden them.
fn lends(kernel: &impl Kernel, config: &Config) -> bool {
    let forbids = || {
        kernel.read(Path::new("/proc/sys/kernel/unprivileged_bpf_disabled")).map(|text| text.trim() != "0")
    };
    match config.observer.enabled {
        Enabled::Always(is) => is,
        Enabled::Where(Where::Permitted) => {
            let forbidden = forbids().unwrap_or(true);
            if forbidden {
                info!(
                    "kernel.unprivileged_bpf_disabled is set, so no observer; \
                     under [observer], `enabled = true` lends it all the same"
                );
            }
            !forbidden
        }
    }
}

/// The processors of this machine, of which `online` can be given out.
fn machine(kernel: &impl Kernel, online: &Set) -> io::Result<Machine> {
    let folder = Path::new("/sys/devices/system/cpu");
    let numbers =
        kernel.list(folder)?.into_iter().filter_map(|name| name.strip_prefix("cpu")?.parse::<u32>().ok());
    let processor = |number: u32| {
        let folder = folder.join(format!("cpu{number}"));
        let siblings = kernel.read(&folder.join("topology/thread_siblings_list")).unwrap_or_default();
        let core = parse(&siblings).and_then(|siblings| siblings.first().copied()).unwrap_or(number);
        let names = kernel.list(&folder).unwrap_or_default();
        let node = names.iter().find_map(|name| name.strip_prefix("node")?.parse().ok()).unwrap_or(0);
        (number, Processor { core, node, online: online.contains(&number) })
    };
    Ok(numbers.filter(|&number| number < abi::MAX_PROCESSORS as u32).map(processor).collect())
}
