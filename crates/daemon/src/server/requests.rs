// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests: who asks for what, and what becomes of it.
//!
//! **The order.** The policy decides, the kernel is told, then the other programs, and the answer comes last.
//! For an answer says what is so. Whoever reads that it holds three processors can run on them at once, and
//! whoever has left is off them. An answer that came first could only say what was decided. The program would
//! have to be told again, and where the kernel refuses, what it was told would be wrong. The others come
//! before the asker, because they wait for what somebody leaves or spares, and the asker does not.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use abi::server::{Answer, Demand, Envelope, MAGIC, Refusal, Reply, Request, State, VERSION};
use policy::{Event, Id, Move, Owner, Why};
use tracing::{debug, info, warn};

use super::adopt::NOTHING;
use super::{Connection, LIFE, Member, Refused, Server};
use crate::arenas::Asker;
use crate::kernel::Kernel;
use crate::partitions::{Place, READY};
use crate::stat::started;

/// A process, when it was looked up.
struct Process {
    pidfd: OwnedFd,
    /// Whose rights it has.
    user: u32,
    root: bool,
}

impl<K: Kernel> Server<K> {
    pub(super) fn answer(&mut self, token: u64, envelope: Envelope) {
        let Envelope { tag, process, request } = envelope;
        let done = match request {
            Request::Join(demand) => self.join(token, process, demand).map(Some),
            Request::Spare(count) => self.hint(token, process, |id| Event::Spare(id, count)).map(Some),
            Request::WantBack => self.hint(token, process, Event::WantBack).map(Some),
            Request::Leave => self.leave(token, process),
            Request::Status => return self.status(token, tag),
            Request::Observe => return self.observe(token, tag, process),
        };
        // Before the answer, which tells that program all of it.
        self.settle_for(done.ok().flatten().map(|id| (id, token)));
        match done {
            Ok(id) => {
                let state = id.map_or_else(State::default, |id| self.state(id));
                let block_of = id.filter(|_| matches!(request, Request::Join(_)));
                self.send(token, tag, Reply::State(state), block_of);
            }
            Err(refused) => self.refuse(token, tag, refused),
        }
    }

    /// A member says what it needs for now.
    fn hint(&mut self, token: u64, process: u32, event: impl Fn(Id) -> Event) -> Result<Id, Refused> {
        let id = self.member_of(token, process)?;
        self.apply(event(id))?;
        self.save(id);
        Ok(id)
    }

    /// A member leaves; `None` if it is not kept ready to come back.
    fn leave(&mut self, token: u64, process: u32) -> Result<Option<Id>, Refused> {
        let id = self.member_of(token, process)?;
        self.apply(Event::Exit(id))?;
        self.level();
        if self.idle() > READY {
            self.forget(id);
            return Ok(None);
        }
        self.save(id);
        Ok(Some(id))
    }

    /// Lends an arena.
    fn observe(&mut self, token: u64, tag: u32, about: u32) {
        let own = self.token();
        let connection = &self.connections[&token];
        let (process, user, account) = (connection.process, connection.user, connection.account);
        let result = if about != 0 && about != process
            // It executes, since it has connected, a program with other rights.
            || self.look_up(token, process).map(|process| process.user) != Ok(user)
        {
            Ok(Err((Refusal::NoProcess, 0)))
        } else if !connection.root && !self.config.allows(user) {
            Ok(Err((Refusal::NotAllowed, 0)))
        } else {
            let asker = Asker { process, user, account, pidfd: connection.pidfd.as_fd(), token: own };
            let observer = &self.config.observer;
            let limit = (!connection.root).then_some((observer.arenas, observer.all_arenas));
            self.arenas.lend(&self.kernel, &asker, limit, &self.folder.join(LIFE))
        };
        match result {
            Ok(Ok(fds)) => {
                self.counters.arenas += 1;
                let answer = Answer { tag, reply: Reply::Observed { process } };
                let (packet, fds) = (answer.encode(), fds.each_ref().map(AsFd::as_fd));
                if let Err(error) =
                    self.kernel.send(self.connections[&token].fd.as_fd(), packet.bytes(), &fds)
                {
                    debug!("a client does not take its arena: {error}");
                    self.arenas.undo(&self.kernel, process);
                    self.hang_up(token);
                }
            }
            Ok(Err(refused)) => self.refuse(token, tag, refused),
            Err(error) if self.kernel.ended(self.connections[&token].pidfd.as_fd()).unwrap_or(false) => {
                debug!("{process} has ended: {error}");
                self.refuse(token, tag, (Refusal::NoProcess, 0));
            }
            Err(error) => {
                self.fail("lend an arena", &error);
                self.refuse(token, tag, (Refusal::Failed, 0));
            }
        }
    }

    fn member_of(&mut self, token: u64, process: u32) -> Result<Id, Refused> {
        let connection = &self.connections[&token];
        let process = if process == 0 { connection.process } else { process };
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
    pub(super) fn is_another(&self, id: Id) -> bool {
        let member = &self.members[&id];
        let user = self.kernel.user(member.pidfd.as_fd(), member.process);
        user.is_ok_and(|user| user != member.user)
    }

    /// Ends the membership of a process that lives.
    pub(super) fn expel(&mut self, id: Id) {
        let Some(member) = self.members.get(&id) else { return };
        warn!(process = member.process, "has other rights now, and is no member any more");
        let process = member.process;
        let _ = self.apply(Event::Exit(id));
        self.forget(id);
        self.partitions.let_be(process);
        self.level();
    }

    /// Who has this number, if the sender may ask for it. Its own too: it may have ended since it
    /// connected, and a child of it have the connection, or execute a program with other rights.
    fn look_up(&self, token: u64, process: u32) -> Result<Process, Refused> {
        let connection = &self.connections[&token];
        let look = || {
            let pidfd = match process == connection.process {
                true => connection.pidfd.try_clone()?,
                false => self.kernel.pidfd(process)?,
            };
            let user = self.kernel.user(pidfd.as_fd(), process)?;
            // If it lives still, that was about it.
            let right = !self.kernel.ended(pidfd.as_fd())? && connection.may_speak_for(process, user);
            let root = user == 0 && connection.root;
            if right { Ok(Process { pidfd, user, root }) } else { Err(io::ErrorKind::NotFound.into()) }
        };
        look().map_err(|error: io::Error| {
            debug!("{process}: {error}");
            (Refusal::NoProcess, 0)
        })
    }

    fn join(&mut self, token: u64, process: u32, demand: Demand) -> Result<Id, Refused> {
        let connection = &self.connections[&token];
        let (by_root, own) = (connection.root, connection.process);
        let process = if process == 0 { own } else { process };
        // The first process is everybody's: what it starts would be in its partition.
        if process == 1 {
            return Err((Refusal::NoProcess, 0));
        }
        let found = self.look_up(token, process)?;
        let user = found.user;
        let known = self.by_process.get(&process).copied();
        let demand = self.check(demand, user, by_root, known)?;
        let origin = match self.partitions.held(process) {
            Some(_) => self.partitions.origin(process).map(str::to_owned),
            None if self.partitions.is_in_its_group(process) => None,
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
        self.members[&id]
            .block
            .block()
            .origin
            .iter()
            .zip(bytes)
            .for_each(|(to, byte)| to.store(byte, Relaxed));
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
        let Process { pidfd, user, root } = found;
        let stat = self.kernel.read(Path::new(&format!("/proc/{process}/stat")));
        let started = stat.ok().and_then(|stat| started(&stat));
        // If it lives still, that was about it.
        let (Some(started), Ok(false)) = (started, self.kernel.ended(pidfd.as_fd())) else {
            return Err((Refusal::NoProcess, 0));
        };
        let file = self.file(process);
        let block = match self.kernel.make_block(&file) {
            Ok(block) => block,
            Err(error) => return Err(no(self, "make a partition block", error)),
        };
        let words = block.block();
        words.process.store(process, Relaxed);
        words.started.store(started, Relaxed);
        words.version.store(VERSION, Relaxed);
        // Until it is saved: the next server may find it so.
        words.demand[4].store(NOTHING, Relaxed);
        words.partition.threads_per_processor.store(1, Relaxed);
        // ORDER: Release, publishes the rest to a program that maps it.
        words.magic.store(MAGIC, Release);
        let id = self.token();
        if let Err(error) = self.kernel.watch(pidfd.as_fd(), id) {
            let _ = self.kernel.remove_file(&file);
            return Err(no(self, "watch a process", error));
        }
        let account = self.owners.of(user);
        let member = Member { process, user, account, root, pidfd, block, connection: None, used: None };
        self.members.insert(id, member);
        self.by_process.insert(process, id);
        self.unsettled = true;
        Ok(id)
    }

    pub(super) fn file(&self, process: u32) -> PathBuf {
        self.folder.join(process.to_string())
    }

    pub(super) fn apply(&mut self, event: Event) -> Result<Vec<Move>, Refused> {
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
            Owner::Application(id) => {
                self.members.get(&id).map_or("?".into(), |member| member.process.to_string())
            }
        }
    }
}

impl Connection {
    /// A user speaks for all processes of that user, root for all. Number 0 elsewhere is not root, and what
    /// has that number is not all its own.
    pub(super) fn may_speak_for(&self, process: u32, user: u32) -> bool {
        self.root || self.user == user && (user != 0 || process == self.process)
    }
}
