// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server: connections, members, and the order of things.
//!
//! One thread. Each turn waits for something to read and then, for each event: the policy decides, the kernel is told
//! ([`Partitions::bring_about`]), the blocks of those concerned are written, and they are told. A block says what the kernel was
//! seen to do, not what was decided: if the kernel refuses, the difference is tried again every [`AGAIN`].
//!
//! **Members** are processes with, or waiting for, a partition; and some that have left theirs, so that they have it sooner next time ([`READY`]).
//! Membership ends with the process (its pidfd); not with the connection, which a program loses by exec. **A restart** finds members by their blocks' files, and their partitions in the kernel: programs notice
//! nothing. A block whose process is gone, or is another one by now, is removed.
//!
//! **Clients are not trusted.** A packet of the wrong size ends its connection. Who sends too fast is not read from for a while, and a user of whom far too
//! much has come is hung up on at once. Who does not read
//! its answers loses the connection. Who is silent costs a descriptor, of which each user has so many.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Weak};
use std::time::Duration;

use abi::server::{Kind, MAGIC, Message, Refusal, VERSION};
use policy::{
    Adopted, Count, Demand, Event, Id, Lease, Machine, Move, Owner, Policy, Processor, SemiDynamic, System, Why,
};
use tracing::{debug, error, info, warn};

use crate::arenas::{Arenas, Asker};
use crate::config::{Config, Enabled, Status, Where};
use crate::kernel::{Kernel, Mapped, Peer, Set, parse};
use crate::partitions::{Failure, Partitions, Place, READY, started};

/// COST: how long after a failure to try again, at first; twice as long each time, up to a second.
const AGAIN: Duration = Duration::from_millis(10);
/// In a block's demand, beside its hint: there is none.
const NOTHING: u32 = u32::MAX;
/// How often to look for changes by others.
const AUDIT: Duration = Duration::from_secs(1);
/// COST: s. So much of a rate can be saved up.
const BURST: f64 = 0.1;
/// COST: messages. An arena is half a MB, and its map takes the kernel two grace periods of RCU: at the limit of a connection, 50 a second.
const ARENA_COST: f64 = 20.0;
/// COST: messages. To join or to leave may move a process into another control group, and writes some files.
const MOVE_COST: f64 = 10.0;
/// COST: an ordinary message takes so long; what takes longer counts as more of them.
const MESSAGE: Duration = Duration::from_micros(25);
/// COST: messages of a turn, after which somebody who has said little may come before the others.
const ROUND: usize = 8;
/// COST: a second. To refuse a connection takes some 15 us.
const REFUSED: u32 = 10_000;
/// COST: of each kind of entries; to list more in one answer could be more than what a socket takes at once.
const LISTED: usize = 64;

/// What root asks for comes before what users ask for, whatever their priorities.
const ROOT: u32 = 1 << 31;

/// The file that shows to programs whether we live.
const LIFE: &str = "life";

const LISTENER: u64 = 0;
const STOP: u64 = 1;

/// How many messages may still be sent, as of when.
#[derive(Clone, Copy)]
struct Allowance(f64, Duration);

impl Allowance {
    fn new(rate: u32, now: Duration) -> Self {
        Self((BURST * f64::from(rate)).max(1.0), now)
    }

    /// What has been saved up by now.
    fn saved(self, rate: u32, now: Duration) -> f64 {
        let rate = f64::from(rate);
        (self.0 + rate * now.saturating_sub(self.1).as_secs_f64()).min((BURST * rate).max(1.0))
    }

    /// So far beyond the rate that more would not make the wait longer.
    fn is_spent(self, rate: u32, now: Duration) -> bool {
        self.saved(rate, now) < 1.0 - f64::from(rate)
    }

    /// Counts messages; until when the sender has to wait, if it does.
    fn spend(&mut self, cost: f64, rate: u32, now: Duration) -> Option<Duration> {
        // Nobody waits for longer than a second.
        let saved = (self.saved(rate, now) - cost).max(-f64::from(rate));
        *self = Self(saved, now);
        (saved < 0.0).then(|| now + Duration::from_secs_f64((-saved / f64::from(rate)).max(0.001)))
    }
}

struct Connection {
    fd: OwnedFd,
    process: u32,
    user: u32,
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
    /// See [`Connection::root`].
    root: bool,
    pidfd: OwnedFd,
    block: Mapped,
    /// The last connection that asked for it.
    connection: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    messages: u64,
    refusals: u64,
    moves: u64,
    hinted_moves: u64,
    connections: u64,
    clients_gone: u64,
    failures: u64,
    repairs: u64,
    arenas: u64,
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
    /// Connections of these users that are being closed, which takes as long as somebody else likes.
    closing: Vec<(u32, Weak<()>)>,
    /// Of users but root.
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

/// A process, when it was looked up.
struct Process {
    pidfd: OwnedFd,
    /// Whose rights it has.
    user: u32,
    root: bool,
    started: u64,
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

    /// Waits for something to happen, and does what follows. Never fails: what cannot be done is logged, counted and tried again.
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
        if (self.unsettled || self.partitions.untidy()) && now >= self.retry {
            self.settle();
            let failures = self.partitions.tidy(&self.kernel);
            self.report(failures);
        }
    }

    /// What is done in this turn: all but messages, and of these some, of those users first from whom the least has come. The rest is there in the next one.
    fn in_turn(&self, mut tokens: Vec<u64>) -> Vec<u64> {
        let (now, rate) = (self.kernel.now(), self.config.access.user_messages_per_second);
        let saved = |token: &u64| match self.connections.get(token) {
            Some(connection) if !connection.root => {
                self.allowances.get(&connection.user).map_or(f64::MAX, |allowance| allowance.saved(rate, now))
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
        self.members
            .iter()
            .filter_map(|(&id, member)| Some((member.process, member.user, &self.system.application(id)?.held)))
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

    // --- connections ---------------------------------------------------------

    /// One, as [`Self::hear`] hears one message: who has more to say is in the next turn again, without a call that finds nothing.
    fn accept(&mut self) {
        let fd = match self.kernel.accept(self.listener.as_fd()) {
            Ok(fd) => fd,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                self.fail("accept a client", &error);
                // Out of descriptors, perhaps: the same would happen at once again.
                if self.kernel.unwatch(self.listener.as_fd()).is_ok() {
                    self.deaf = Some(self.kernel.now() + AGAIN);
                }
                return;
            }
        };
        self.counters.connections += 1;
        let peer = match self.kernel.peer(fd.as_fd()) {
            Ok(peer) => peer,
            // Gone already.
            Err(error) => return debug!("who connects: {error}"),
        };
        let (now, rate) = (self.kernel.now(), self.config.access.user_messages_per_second);
        let root = peer.user == 0 && self.kernel.at_home(peer.process).unwrap_or(false);
        let wary = self.kernel.carries_descriptors(fd.as_fd());
        if !root && self.allowances.get(&peer.user).is_some_and(|allowance| allowance.is_spent(rate, now)) {
            return self.turn_away(fd, &peer, wary, now);
        }
        self.closing.retain(|(_, closing)| closing.strong_count() > 0);
        let closing = self.closing.iter().filter(|(user, _)| *user == peer.user).count();
        let of_users = self.connections.values().filter(|other| !other.root);
        let (theirs, all) = of_users.fold((closing, self.closing.len()), |(theirs, all), other| {
            (theirs + usize::from(other.user == peer.user), all + 1)
        });
        let access = &self.config.access;
        if !root && (theirs >= access.connections as usize || all >= access.all_connections as usize) {
            let refusal = Message { error: Refusal::Crowd as u32, ..Message::new(Kind::Refused) };
            let _ = self.kernel.send(fd.as_fd(), refusal.bytes(), &[]);
            let allowance = self.allowances.entry(peer.user).or_insert_with(|| Allowance::new(rate, now));
            allowance.spend(1.0, rate, now);
            return self.turn_away(fd, &peer, wary, now);
        }
        let pidfd = match self.kernel.peer_pidfd(fd.as_fd(), peer.process) {
            Ok(pidfd) => pidfd,
            Err(error) => return debug!("who connects: {error}"),
        };
        // If it lives still, that was about it.
        if root && self.kernel.ended(pidfd.as_fd()).unwrap_or(true) {
            return debug!("root's process has connected and ended");
        }
        let token = self.token();
        if let Err(error) = self.kernel.watch(fd.as_fd(), token) {
            return self.fail("watch a client", &error);
        }
        let allowance = Allowance::new(self.config.access.messages_per_second, now);
        let Peer { process, user } = peer;
        let connection = Connection { fd, process, user, root, wary, pidfd, allowance, muted: None };
        self.connections.insert(token, connection);
        // It takes as long as a message.
        self.mute_if_too_fast(token, 1.0);
    }

    /// To refuse takes time too: of those that wait to be refused we take so many a second.
    fn turn_away(&mut self, fd: OwnedFd, peer: &Peer, wary: bool, now: Duration) {
        self.counters.refusals += 1;
        self.close(fd, peer.user, wary);
        self.deaf = self.refused.spend(1.0, REFUSED, now);
        if self.deaf.is_some() && self.kernel.unwatch(self.listener.as_fd()).is_err() {
            self.deaf = None;
        }
    }

    fn hear(&mut self, token: u64) {
        let mut bytes = [0u8; size_of::<Message>()];
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.wary && self.kernel.is_laden(connection.fd.as_fd()).unwrap_or(false) {
            debug!("a client sends descriptors");
            return self.hang_up(token);
        }
        let before = self.kernel.now();
        let length = match self.kernel.receive(connection.fd.as_fd(), &mut bytes) {
            Ok(0) => {
                // There is nothing left to be read, and so nothing that would be closed with it.
                connection.wary = false;
                return self.hang_up(token);
            }
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                debug!("a client's connection: {error}");
                return self.hang_up(token);
            }
        };
        self.counters.messages += 1;
        let message = if length == bytes.len() { Message::from_bytes(&bytes) } else { None };
        let Some((message, kind)) = message else {
            self.refuse(token, 0, (Refusal::Malformed, 0));
            return self.hang_up(token);
        };
        self.answer(token, &message, kind);
        let cost = match kind {
            Kind::Observe => ARENA_COST,
            Kind::Join | Kind::Leave => MOVE_COST,
            _ => 1.0,
        };
        let took = self.kernel.now().saturating_sub(before);
        self.mute_if_too_fast(token, cost.max(took.as_secs_f64() / MESSAGE.as_secs_f64()));
    }

    /// Counts a message of a connection, and what it costs, as so many messages of its user.
    fn mute_if_too_fast(&mut self, token: u64, cost: f64) {
        let now = self.kernel.now();
        let (rate, of_user) = (self.config.access.messages_per_second, self.config.access.user_messages_per_second);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let own = connection.allowance.spend(1.0, rate, now);
        let together = (!connection.root).then(|| {
            let allowance = self.allowances.entry(connection.user).or_insert_with(|| Allowance::new(of_user, now));
            allowance.spend(cost, of_user, now)
        });
        connection.muted = own.max(together.flatten());
        if connection.muted.is_some()
            && let Err(error) = self.kernel.unwatch(connection.fd.as_fd())
        {
            self.fail("stop watching a client", &error);
        }
    }

    fn unmute(&mut self, now: Duration) {
        if self.deaf.is_some_and(|until| now >= until) {
            self.deaf = Some(now + AGAIN);
            match self.kernel.watch(self.listener.as_fd(), LISTENER) {
                Ok(()) => self.deaf = None,
                Err(error) => self.fail("listen again", &error),
            }
        }
        let due = |connection: &Connection| connection.muted.is_some_and(|until| now >= until);
        let due: Vec<u64> =
            self.connections.iter().filter(|(_, connection)| due(connection)).map(|(&token, _)| token).collect();
        for token in due {
            let connection = self.connections.get_mut(&token).expect("it was there");
            connection.muted = None;
            match self.kernel.watch(connection.fd.as_fd(), token) {
                // It is watched still, because it could not be unwatched.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    self.fail("watch a client again", &error);
                    self.hang_up(token);
                }
                _ => {}
            }
        }
    }

    fn hang_up(&mut self, token: u64) {
        let Some(connection) = self.connections.remove(&token) else { return };
        if let Some(id) = self.by_process.get(&connection.process)
            && let Some(member) = self.members.get_mut(id)
            && member.connection == Some(token)
        {
            member.connection = None;
        }
        self.close(connection.fd, connection.user, connection.wary);
    }

    /// Closes a connection. What nobody has read may have descriptors with it, and the last close of a socket can take as long as its owner likes
    /// (SO_LINGER): that waits in a thread of its own, and counts as a connection until then.
    fn close(&mut self, fd: OwnedFd, user: u32, wary: bool) {
        if !wary {
            return;
        }
        let (closing, fd) = (Arc::new(()), ManuallyDrop::new(fd));
        self.closing.push((user, Arc::downgrade(&closing)));
        let close = move || {
            drop(ManuallyDrop::into_inner(fd));
            drop(closing);
        };
        if let Err(error) = std::thread::Builder::new().name("closes".into()).stack_size(64 << 10).spawn(close) {
            // It stays open.
            self.fail("close a client's connection", &error);
        }
    }

    fn send(&mut self, token: u64, message: &Message, block_of: Option<Id>) {
        let Some(connection) = self.connections.get(&token) else { return };
        let fd = block_of.and_then(|id| self.members.get(&id)).map(|member| member.block.reader.as_fd());
        if let Err(error) = self.kernel.send(connection.fd.as_fd(), message.bytes(), fd.as_slice()) {
            debug!("a client does not take its answer: {error}");
            self.hang_up(token);
        }
    }

    fn refuse(&mut self, token: u64, tag: u32, (why, limit): Refused) {
        self.counters.refusals += 1;
        let refusal = Message { tag, error: why as u32, most: limit, ..Message::new(Kind::Refused) };
        self.send(token, &refusal, None);
    }

    // --- requests ------------------------------------------------------------

    fn answer(&mut self, token: u64, message: &Message, kind: Kind) {
        let done = match kind {
            Kind::Join => self.join(token, message).map(|id| (Some(id), true)),
            Kind::Spare | Kind::WantBack | Kind::Leave => self.member_of(token, message).and_then(|id| {
                let event = match kind {
                    Kind::Spare => Event::Spare(id, message.count),
                    Kind::WantBack => Event::WantBack(id),
                    _ => Event::Exit(id),
                };
                self.apply(event)?;
                if kind == Kind::Leave {
                    self.level();
                }
                if kind == Kind::Leave && self.idle() > READY {
                    self.forget(id);
                    return Ok((None, false));
                }
                self.save(id);
                Ok((Some(id), false))
            }),
            Kind::Status => return self.status(token, message.tag),
            Kind::Observe => return self.observe(token, message),
            Kind::State | Kind::Refused | Kind::Entry | Kind::Summary | Kind::Observed => Err((Refusal::Malformed, 0)),
        };
        // Before the answer, which says what is so.
        self.settle();
        match done {
            Ok((id, with_block)) => {
                let state = id.map_or_else(|| Message::new(Kind::State), |id| self.state(id));
                self.send(token, &Message { tag: message.tag, ..state }, id.filter(|_| with_block));
            }
            Err(refused) => self.refuse(token, message.tag, refused),
        }
    }

    /// Lends an arena.
    fn observe(&mut self, token: u64, message: &Message) {
        let own = self.token();
        let connection = &self.connections[&token];
        let (process, user) = (connection.process, connection.user);
        let result = if message.process != 0 && message.process != process
            // It executes, since it has connected, a program with other rights.
            || self.look_up(token, process).map(|process| process.user) != Ok(user)
        {
            Ok(Err((Refusal::NoProcess, 0)))
        } else if !connection.root && !self.config.allows(user) {
            Ok(Err((Refusal::NotAllowed, 0)))
        } else {
            let asker = Asker { process, user, pidfd: connection.pidfd.as_fd(), token: own };
            let observer = &self.config.observer;
            let limit = (!connection.root).then_some((observer.arenas, observer.all_arenas));
            self.arenas.lend(&self.kernel, &asker, limit, &self.folder.join(LIFE))
        };
        match result {
            Ok(Ok(fds)) => {
                self.counters.arenas += 1;
                let answer = Message { tag: message.tag, process, ..Message::new(Kind::Observed) };
                let fds = fds.each_ref().map(AsFd::as_fd);
                if let Err(error) = self.kernel.send(self.connections[&token].fd.as_fd(), answer.bytes(), &fds) {
                    debug!("a client does not take its arena: {error}");
                    self.hang_up(token);
                }
            }
            Ok(Err(refused)) => self.refuse(token, message.tag, refused),
            Err(error) => {
                self.fail("lend an arena", &error);
                self.refuse(token, message.tag, (Refusal::Failed, 0));
            }
        }
    }

    fn member_of(&mut self, token: u64, message: &Message) -> Result<Id, Refused> {
        let connection = &self.connections[&token];
        let process = if message.process == 0 { connection.process } else { message.process };
        let id = *self.by_process.get(&process).ok_or((Refusal::Unknown, 0))?;
        if !connection.may_speak_for(process, self.members[&id].user) {
            return Err((Refusal::NoProcess, 0));
        }
        if self.is_another(id) {
            self.expel(id);
            return Err((Refusal::Unknown, 0));
        }
        Ok(id)
    }

    /// Has this member executed a program with other rights? It asks for nothing any more.
    fn is_another(&self, id: Id) -> bool {
        let member = &self.members[&id];
        self.user_of(member.process).is_ok_and(|user| user != member.user)
    }

    /// Ends the membership of a process that lives.
    fn expel(&mut self, id: Id) {
        let Some(member) = self.members.get(&id) else { return };
        warn!(process = member.process, "has other rights now, and is no member any more");
        let process = member.process;
        let _ = self.apply(Event::Exit(id));
        self.forget(id);
        self.partitions.let_be(process);
        self.level();
    }

    /// Who has this number, if the sender may ask for it. Its own too: it may have ended since it connected, and a child of it have the connection, or
    /// execute a program with other rights.
    fn look_up(&self, token: u64, process: u32) -> Result<Process, Refused> {
        let connection = &self.connections[&token];
        let look = || {
            let pidfd = match process == connection.process {
                true => connection.pidfd.try_clone()?,
                false => self.kernel.pidfd(process)?,
            };
            let user = self.user_of(process)?;
            let stat = self.kernel.read(Path::new(&format!("/proc/{process}/stat")))?;
            let started = started(&stat).ok_or(io::ErrorKind::InvalidData)?;
            // If it lives still, that was about it.
            let right = !self.kernel.ended(pidfd.as_fd())? && connection.may_speak_for(process, user);
            let root = user == 0 && connection.root;
            if right { Ok(Process { pidfd, user, root, started }) } else { Err(io::ErrorKind::NotFound.into()) }
        };
        look().map_err(|error: io::Error| {
            debug!("{process}: {error}");
            (Refusal::NoProcess, 0)
        })
    }

    fn join(&mut self, token: u64, message: &Message) -> Result<Id, Refused> {
        let connection = &self.connections[&token];
        let (by_root, own) = (connection.root, connection.process);
        let process = if message.process == 0 { own } else { message.process };
        // The first process is everybody's: what it starts would be in its partition.
        if process == 1 {
            return Err((Refusal::NoProcess, 0));
        }
        let found = self.look_up(token, process)?;
        let user = found.user;
        let known = self.by_process.get(&process).copied();
        let demand = self.check(message, user, by_root, known)?;
        let origin = match self.partitions.held(process) {
            Some(_) => self.partitions.origin(process).map(str::to_owned),
            None => match self.partitions.place(&self.kernel, process, !by_root) {
                Ok(Place::Base) => None,
                Ok(Place::Below(origin)) => Some(origin),
                Ok(Place::Elsewhere) => return Err((Refusal::Elsewhere, 0)),
                Err(_) => return Err((Refusal::NoProcess, 0)),
            },
        };
        let (id, new) = match known {
            Some(id) => (id, false),
            None => (self.enter(process, found)?, true),
        };
        if process == own {
            self.members.get_mut(&id).expect("it is there").connection = Some(token);
        }
        if let Err(refused) = self.apply(Event::Request(id, demand)) {
            if new {
                self.forget(id);
            }
            return Err(refused);
        }
        let bytes = origin.as_deref().unwrap_or_default().bytes().chain(std::iter::repeat(0));
        self.members[&id].block.block().origin.iter().zip(bytes).for_each(|(to, byte)| to.store(byte, Relaxed));
        self.partitions.remember(process, origin);
        self.save(id);
        self.level();
        Ok(id)
    }

    /// Makes a process a member, with a block.
    fn enter(&mut self, process: u32, found: Process) -> Result<Id, Refused> {
        let no = |server: &mut Self, what: &str, error: io::Error| {
            server.fail(what, &error);
            (Refusal::Failed, 0)
        };
        let Process { pidfd, user, root, started } = found;
        let file = self.file(process);
        let block = match self.kernel.make_block(&file) {
            Ok(block) => block,
            Err(error) => return Err(no(self, "make a partition block", error)),
        };
        let words = block.block();
        words.process.store(process, Relaxed);
        words.started.store(started, Relaxed);
        words.version.store(VERSION, Relaxed);
        words.partition.threads_per_processor.store(1, Relaxed);
        // ORDER: Release, publishes the rest to a program that maps it.
        words.magic.store(MAGIC, Release);
        let id = self.token();
        if let Err(error) = self.kernel.watch(pidfd.as_fd(), id) {
            let _ = self.kernel.remove_file(&file);
            return Err(no(self, "watch a process", error));
        }
        self.members.insert(id, Member { process, user, root, pidfd, block, connection: None });
        self.by_process.insert(process, id);
        self.unsettled = true;
        Ok(id)
    }

    fn file(&self, process: u32) -> PathBuf {
        self.folder.join(process.to_string())
    }

    /// Whose rights a process has: its effective user, as `SO_PEERCRED` says it of who connects.
    fn user_of(&self, process: u32) -> io::Result<u32> {
        let status = self.kernel.read(Path::new(&format!("/proc/{process}/status")))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let user = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        user.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// What the administrator allows of a request.
    fn check(&self, message: &Message, user: u32, by_root: bool, known: Option<Id>) -> Result<Demand, Refused> {
        let Message { priority, least, wanted, most, .. } = *message;
        let count = match (least, wanted, most) {
            (0, 0, 0) => Count::Choose { most: u32::MAX },
            _ => Count::Numbers { least, wanted, most },
        };
        if by_root {
            return Ok(Demand { priority: priority | ROOT, count });
        }
        let access = &self.config.access;
        if !self.config.allows(user) {
            return Err((Refusal::NotAllowed, 0));
        }
        if priority > access.priority.min(!ROOT) {
            return Err((Refusal::Priority, access.priority));
        }
        let asks = |id: Id| Some(id) != known && self.system.application(id).is_some();
        let theirs = || self.members.iter().filter(|&(&id, member)| member.user == user && asks(id));
        if theirs().count() >= access.applications as usize {
            return Err((Refusal::Crowd, 0));
        }
        let used: u32 = theirs().map(|(&id, _)| self.reserves(id)).fold(0, u32::saturating_add);
        let share = self.share();
        let others = |id: Id| Some(id) != known && !self.members[&id].root;
        let of_all: u32 = self.members.keys().filter(|&&id| others(id)).map(|&id| self.reserves(id)).sum();
        let left = share.saturating_sub(used).min(self.all_users_share().saturating_sub(of_all));
        let count = match count {
            // Until `level`.
            Count::Choose { .. } if left > 0 => Count::Choose { most: left },
            Count::Numbers { least, wanted, most } if least <= left => {
                Count::Numbers { least, wanted: wanted.min(left), most: most.min(left) }
            }
            _ => return Err((Refusal::Share, share)),
        };
        Ok(Demand { priority, count })
    }

    /// What the programs of one user may have together.
    fn share(&self) -> u32 {
        (f64::from(self.system.machine().count()) * self.config.access.processors).floor().max(1.0) as u32
    }

    /// What those of all users but root may have.
    fn all_users_share(&self) -> u32 {
        (f64::from(self.system.machine().count()) * self.config.access.all_processors).floor().max(1.0) as u32
    }

    /// What cannot be another's of the same user, if it is not root.
    fn reserves(&self, id: Id) -> u32 {
        match self.system.application(id).map(|application| application.demand.count) {
            Some(Count::Numbers { most, .. }) => most,
            Some(Count::Choose { .. }) => 1,
            None => 0,
        }
    }

    /// Divides what a user's other programs leave of the user's share among those that leave the number to us; and before that, what there is for such programs
    /// among their users.
    fn level(&mut self) {
        let users: BTreeSet<u32> = self.members.values().map(|member| member.user).collect();
        users.into_iter().for_each(|user| self.level_user(user));
    }

    fn level_user(&mut self, user: u32) {
        let theirs = || self.members.iter().filter(|(_, member)| member.user == user).map(|(&id, _)| id);
        // For whom root has asked may have as many as there are.
        let most_of = |id: Id| match self.system.application(id)?.demand.count {
            Count::Choose { most } if most != u32::MAX => Some(most),
            _ => None,
        };
        let level: Vec<(Id, u32)> = theirs().filter_map(|id| Some((id, most_of(id)?))).collect();
        let number = level.len() as u32;
        let used = theirs().map(|id| self.reserves(id)).fold(0, u32::saturating_add).saturating_sub(number);
        let others = self.members.iter().filter(|(_, member)| !member.root && member.user != user);
        let of_others = others.map(|(&id, _)| self.reserves(id)).fold(used, u32::saturating_add);
        let left = self.all_users_share().saturating_sub(of_others);
        // A user with many programs has no more than one with few.
        let choose = self.members.iter().filter(|&(&id, _)| most_of(id).is_some());
        let users = choose.map(|(_, member)| member.user).collect::<BTreeSet<_>>().len().max(1) as u32;
        let fair = self.all_users_share() / users;
        let rest = self.share().saturating_sub(used).min(left).min(fair).max(number);
        for ((id, most), index) in level.into_iter().zip(0..) {
            let limit = rest / number + u32::from(index < rest % number);
            if limit != most {
                let _ = self.apply(Event::Limit(id, limit));
                self.save(id);
            }
        }
    }

    fn apply(&mut self, event: Event) -> Result<Vec<Move>, Refused> {
        let now = self.kernel.now().as_nanos() as u64;
        let moves = self.system.apply(event, now).map_err(|refusal| match refusal {
            policy::Refusal::Disordered => (Refusal::Disordered, 0),
            policy::Refusal::TooMany(most) => (Refusal::TooMany, most),
            policy::Refusal::Unknown => (Refusal::Unknown, 0),
        })?;
        for Move { processor, from, to, why } in &moves {
            info!(processor, from = %self.name(*from), to = %self.name(*to), "moves: {why}");
            self.counters.moves += 1;
            self.counters.hinted_moves += u64::from(*why == Why::Hint);
        }
        self.unsettled |= !moves.is_empty();
        if !moves.is_empty() {
            self.retry = Duration::ZERO;
        }
        Ok(moves)
    }

    fn name(&self, owner: Owner) -> String {
        match owner {
            Owner::Default => "default".into(),
            Owner::Nobody => "nobody".into(),
            Owner::Application(id) => self.members.get(&id).map_or("?".into(), |member| member.process.to_string()),
        }
    }

    // --- what follows --------------------------------------------------------

    /// Tells the kernel, then the programs.
    fn settle(&mut self) {
        if !self.unsettled {
            return;
        }
        let moves = |&(&id, member): &(&Id, &Member)| {
            let held = self.partitions.held(member.process);
            held != self.system.application(id).map(|application| &application.held).filter(|held| !held.is_empty())
        };
        let moved: Vec<Id> = self.members.iter().filter(moves).map(|(&id, _)| id).collect();
        // Its number may be another's by now: looked at before anything is written, and afterwards.
        let dead: Vec<Id> = moved.iter().copied().filter(|&id| self.has_ended(id)).collect();
        dead.into_iter().for_each(|id| self.end_of(id));
        let here = |id: &Id| self.members.contains_key(id);
        let others: Vec<Id> = moved.iter().copied().filter(here).filter(|&id| self.is_another(id)).collect();
        others.into_iter().for_each(|id| self.expel(id));
        let holders = self.members.iter().filter_map(|(&id, member)| {
            let held = &self.system.application(id)?.held;
            (!held.is_empty()).then(|| (member.process, held.clone()))
        });
        let wanted: BTreeMap<u32, Set> = holders.collect();
        let others = self.members.iter().filter(|(_, member)| !wanted.contains_key(&member.process));
        let (waiting, left): (Vec<_>, Vec<_>) = others.partition(|&(&id, _)| self.system.application(id).is_some());
        let others: Vec<u32> = waiting.into_iter().chain(left).map(|(_, member)| member.process).collect();
        let failures = self.partitions.bring_about(&self.kernel, &wanted, &others, self.system.default_partition());
        self.unsettled = !failures.is_empty();
        self.report(failures);
        let here = |id: &Id| self.members.contains_key(id);
        let dead: Vec<Id> = moved.into_iter().filter(here).filter(|&id| self.has_ended(id)).collect();
        // The rest of it in the next turn.
        dead.into_iter().for_each(|id| self.end_of(id));
        let ids: Vec<Id> = self.members.keys().copied().collect();
        for id in ids {
            if self.write_block(id)
                && let Some(token) = self.members[&id].connection
            {
                let state = self.state(id);
                self.send(token, &state, None);
            }
        }
    }

    /// Says what the kernel has refused, and when to try again.
    fn report(&mut self, failures: Vec<Failure>) {
        if failures.is_empty() {
            // What could not be done may be left all the same.
            if !self.unsettled && !self.partitions.untidy() {
                self.again = AGAIN;
            }
            return;
        }
        self.retry = self.kernel.now() + self.again;
        self.again = (2 * self.again).min(AUDIT);
        for failure in failures {
            self.counters.failures += 1;
            let of = match failure.process {
                0 => "the default partition".to_string(),
                process => format!("the group of {process}"),
            };
            warn!("cannot change {of}: {}", failure.error);
        }
    }

    /// Writes what the kernel was seen to do; false if that is there already.
    fn write_block(&self, id: Id) -> bool {
        let member = &self.members[&id];
        let mut ids = [0u64; abi::MAX_PROCESSORS / 64];
        for &processor in self.partitions.held(member.process).into_iter().flatten() {
            ids[processor as usize / 64] |= 1 << (processor % 64);
        }
        let partition = &member.block.block().partition;
        if partition.ids.iter().zip(&ids).all(|(word, id)| word.load(Relaxed) == *id) {
            return false;
        }
        for (word, id) in partition.ids.iter().zip(&ids) {
            word.store(*id, Relaxed);
        }
        partition.processors.store(ids.iter().map(|word| word.count_ones()).sum(), Relaxed);
        let generation = partition.generation.load(Relaxed).wrapping_add(1);
        // ORDER: Release, pairs with the program's Acquire; publishes the rest of the block, and the change of its masks.
        partition.generation.store(generation, Release);
        true
    }

    /// Writes what a server that is started anew will need.
    fn save(&self, id: Id) {
        let Some(member) = self.members.get(&id) else { return };
        let words = self.system.application(id).map_or([0, 0, 0, 0, NOTHING], |application| {
            let (least, wanted, most) = match application.demand.count {
                Count::Numbers { least, wanted, most } => (least, wanted, most),
                Count::Choose { most } => (0, 0, most),
            };
            let usable = application.usable.map_or(0, |usable| usable + 1);
            [application.demand.priority, least, wanted, most, usable]
        });
        member.block.block().demand.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
    }

    fn state(&self, id: Id) -> Message {
        let Some(member) = self.members.get(&id) else { return Message::new(Kind::State) };
        let partition = &member.block.block().partition;
        let mut state = Message { process: member.process, user: member.user, ..Message::new(Kind::State) };
        state.holds = partition.processors.load(Relaxed);
        state.generation = partition.generation.load(Relaxed);
        state.ids.iter_mut().zip(&partition.ids).for_each(|(to, from)| *to = from.load(Relaxed));
        if let Some(application) = self.system.application(id) {
            state.priority = application.demand.priority & !ROOT;
            if let Count::Numbers { least, wanted, most } = application.demand.count {
                (state.least, state.wanted, state.most) = (least, wanted, most);
            }
            state.count = application.usable.map_or(0, |usable| application.holds().saturating_sub(usable));
            if let Some(waiting) = self.system.waiting(id) {
                (state.lacks, state.behind) = (waiting.lacks, waiting.behind);
            }
            // Decided, but the kernel has not done it yet.
            state.lacks = state.lacks.max(application.holds().saturating_sub(state.holds));
        }
        state
    }

    /// Programs of others are nobody's business, but for the sums; unless the administrator says so.
    fn may_see(&self, token: u64, user: u32) -> bool {
        let seen = |connection: &Connection| connection.root || connection.user == user;
        self.config.access.status == Status::All || self.connections.get(&token).is_some_and(seen)
    }

    fn status(&mut self, token: u64, tag: u32) {
        let now = self.kernel.now();
        let ids: Vec<Id> = self.members.keys().copied().filter(|&id| self.system.application(id).is_some()).collect();
        let asks =
            |process: u32| self.by_process.get(&process).is_some_and(|&id| self.system.application(id).is_some());
        let others: Vec<(u32, u32)> = self.arenas.processes().filter(|&(process, _)| !asks(process)).collect();
        let others = others.into_iter().filter(|&(_, user)| self.may_see(token, user)).collect::<Vec<_>>();
        let ids: Vec<Id> = ids.into_iter().filter(|id| self.may_see(token, self.members[id].user)).collect();
        let mut entries: Vec<Message> = ids.into_iter().take(LISTED).map(|id| self.state(id)).collect();
        entries.extend(others.iter().take(LISTED).map(|&(process, user)| Message {
            process,
            user,
            error: Refusal::Unknown as u32,
            ..Message::new(Kind::Entry)
        }));
        for entry in entries {
            let threads = self.arenas.threads(entry.process, now);
            let observed = u32::from(threads.is_some());
            let entry =
                Message { kind: Kind::Entry as u32, tag, observed, threads: threads.unwrap_or_default(), ..entry };
            self.send(token, &entry, None);
        }
        let Counters { messages, refusals, moves, hinted_moves, connections, clients_gone, failures, repairs, arenas } =
            self.counters;
        let mut summary = Message { tag, ..Message::new(Kind::Summary) };
        summary.counters =
            [messages, refusals, moves, hinted_moves, connections, clients_gone, failures, repairs, arenas];
        summary.observed = u32::from(self.arenas.loaded());
        summary.lacks = self.arenas.ordered(&self.kernel);
        summary.behind = others.len().saturating_sub(LISTED) as u32;
        summary.count = self.system.applications().count() as u32;
        summary.error = self.partitions.by() as u32;
        for &processor in self.system.default_partition() {
            summary.ids[processor as usize / 64] |= 1 << (processor % 64);
            summary.holds += 1;
        }
        self.send(token, &summary, None);
    }

    /// A process has ended.
    fn bury(&mut self, id: Id) {
        if let Some(member) = self.members.get(&id) {
            debug!(process = member.process, "has ended");
            self.end_of(id);
            self.settle();
        }
    }

    fn has_ended(&self, id: Id) -> bool {
        self.kernel.ended(self.members[&id].pidfd.as_fd()).unwrap_or(false)
    }

    /// Of a member whose process has ended.
    fn end_of(&mut self, id: Id) {
        info!(process = self.members[&id].process, "is gone");
        self.counters.clients_gone += 1;
        let _ = self.apply(Event::Exit(id));
        self.forget(id);
        self.level();
    }

    /// Members that ask for nothing.
    fn idle(&self) -> usize {
        self.members.len() - self.system.applications().count()
    }

    fn forget(&mut self, id: Id) {
        let Some(member) = self.members.remove(&id) else { return };
        self.by_process.remove(&member.process);
        self.unsettled = true;
        let partition = &member.block.block().partition;
        partition.processors.store(0, Relaxed);
        partition.ids.iter().for_each(|word| word.store(0, Relaxed));
        // ORDER: Release, as in `write_block`.
        partition.generation.fetch_add(1, Release);
        self.former.push(member);
    }

    /// Closes what is left of former members.
    fn clear(&mut self) {
        for member in std::mem::take(&mut self.former) {
            if let Err(error) = self.kernel.unwatch(member.pidfd.as_fd()) {
                self.fail("stop watching a process", &error);
            }
            // Its number may be another's by now.
            if !self.by_process.contains_key(&member.process)
                && let Err(error) = self.kernel.remove_file(&self.file(member.process))
                && error.kind() != io::ErrorKind::NotFound
            {
                self.fail("remove a partition block", &error);
            }
        }
    }

    // --- others, and other times ---------------------------------------------

    /// Finds what has changed behind our back.
    fn look_around(&mut self) {
        match self.partitions.online(&self.kernel) {
            Ok(online) => {
                let known: Vec<(u32, bool)> =
                    self.system.machine().iter().map(|(number, processor)| (number, processor.online)).collect();
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
        self.arenas.tidy(&self.kernel);
        let (now, rate) = (self.kernel.now(), self.config.access.user_messages_per_second);
        self.allowances.retain(|_, allowance| allowance.saved(rate, now) < Allowance::new(rate, now).0);
        let repairs = self.partitions.audit(&self.kernel);
        if repairs > 0 {
            self.counters.repairs += repairs;
            self.unsettled = true;
            self.retry = Duration::ZERO;
        }
    }

    /// Members of an earlier server.
    fn adopt(&mut self) -> io::Result<()> {
        let mut all = Vec::new();
        for name in self.kernel.list(&self.folder)? {
            let Ok(process) = name.parse::<u32>() else { continue };
            // Once more, if that may help.
            let tried = self.adopt_one(process, &mut all).or_else(|_| self.adopt_one(process, &mut all));
            // It is over, or was never whole; or it has ended meanwhile, or its number is a thread's now. Whatever it is: it is no reason not to serve the others.
            if let Err(error) = &tried {
                warn!("cannot take {process} over: {error}");
            }
            if !tried.unwrap_or(false) {
                drop(self.kernel.remove_file(&self.file(process)));
            }
        }
        let _ = self.apply(Event::Adopt(all));
        // The configuration may be another one.
        self.level();
        Ok(())
    }

    /// False if there is nobody to adopt; an error if that cannot be told, because then this is not to be forgotten.
    fn adopt_one(&mut self, process: u32, all: &mut Vec<Adopted>) -> io::Result<bool> {
        let block = match self.kernel.open_block(&self.file(process)) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(false),
            block => block?,
        };
        let pidfd = self.kernel.pidfd(process)?;
        let stat = self.kernel.read(Path::new(&format!("/proc/{process}/stat")))?;
        let words = block.block();
        if words.magic.load(Relaxed) != MAGIC
            || words.version.load(Relaxed) != VERSION
            || started(&stat) != Some(words.started.load(Relaxed))
        {
            return Ok(false);
        }
        let user = self.user_of(process)?;
        let [priority, least, wanted, most, usable] = [0, 1, 2, 3, 4].map(|n: usize| words.demand[n].load(Relaxed));
        let count = match (wanted, most) {
            (0, 0) => Count::Choose { most: u32::MAX },
            (0, most) => Count::Choose { most },
            _ => Count::Numbers { least, wanted, most },
        };
        let bits = |(index, word): (usize, &std::sync::atomic::AtomicU64)| {
            let word = word.load(Relaxed);
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index as u32 * 64 + bit)
        };
        let origin = words.origin.iter().map(|byte| byte.load(Relaxed)).take_while(|&byte| byte != 0).collect();
        let origin = String::from_utf8(origin).ok().filter(|origin| is_origin(origin));
        let written: Set = words.partition.ids.iter().enumerate().flat_map(bits).collect();
        self.partitions.assume(process, written);
        self.partitions.remember(process, origin);
        let held = self.partitions.held(process).cloned().unwrap_or_default();
        let id = self.token();
        self.kernel.watch(pidfd.as_fd(), id)?;
        let root = user == 0 && self.kernel.at_home(process).unwrap_or(false);
        self.members.insert(id, Member { process, user, root, pidfd, block, connection: None });
        self.by_process.insert(process, id);
        info!(process, "was a member before");
        if usable != NOTHING {
            let demand = Demand { priority, count };
            all.push(Adopted { id, demand, held, usable: usable.checked_sub(1) });
        }
        Ok(true)
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

/// Shall programs have the observer? To enrol, users call bpf(2), which their administrator may have forbidden them.
fn lends(kernel: &impl Kernel, config: &Config) -> bool {
    let forbids =
        || kernel.read(Path::new("/proc/sys/kernel/unprivileged_bpf_disabled")).map(|text| text.trim() != "0");
    match config.observer.enabled {
        Enabled::Always(is) => is,
        Enabled::Where(Where::Permitted) => {
            let forbidden = forbids().unwrap_or(true);
            if forbidden {
                info!(
                    "kernel.unprivileged_bpf_disabled is set, so no observer; under [observer], `enabled = true` lends it all the same"
                );
            }
            !forbidden
        }
    }
}

impl Connection {
    /// A user speaks for all processes of that user, root for all. Number 0 elsewhere is not root, and what has that number is not all its own.
    fn may_speak_for(&self, process: u32, user: u32) -> bool {
        self.root || self.user == user && (user != 0 || process == self.process)
    }
}

/// Below the mount, and nowhere else.
fn is_origin(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| part != "..")
}

/// The processors of this machine, of which `online` can be given out.
fn machine(kernel: &impl Kernel, online: &Set) -> io::Result<Machine> {
    let folder = Path::new("/sys/devices/system/cpu");
    let numbers = kernel.list(folder)?.into_iter().filter_map(|name| name.strip_prefix("cpu")?.parse::<u32>().ok());
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
