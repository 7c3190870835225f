// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections: who is heard, how often, and who is hung up on.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use abi::server::{Answer, Envelope, Refusal, Reply, Request, SIZE};
use policy::Id;
use tracing::debug;

use super::{AGAIN, Connection, LISTENER, Refused, Server};
use crate::kernel::{Kernel, Peer};

/// BOUND: s. So much of a rate can be saved up.
const BURST: f64 = 0.1;
/// BOUND: messages. An arena is half a MB, and its map takes the kernel two grace periods of RCU: at the
/// limit of a connection, 50 a second.
const ARENA_COST: f64 = 20.0;
/// BOUND: messages. To join or to leave may move a process into another control group, and writes some files.
const MOVE_COST: f64 = 10.0;
/// BOUND: an ordinary message takes so much processor time; what takes more counts as more of them.
const MESSAGE: Duration = Duration::from_micros(25);
/// BOUND: a second. To refuse a connection takes some 15 us.
pub(super) const REFUSED: u32 = 10_000;

/// How many messages may still be sent, as of when.
#[derive(Clone, Copy)]
pub(super) struct Allowance(pub(super) f64, Duration);

impl Allowance {
    pub(super) fn new(rate: u32, now: Duration) -> Self {
        Self((BURST * f64::from(rate)).max(1.0), now)
    }

    /// What has been saved up by now.
    pub(super) fn saved(self, rate: u32, now: Duration) -> f64 {
        let rate = f64::from(rate);
        (self.0 + rate * now.saturating_sub(self.1).as_secs_f64()).min((BURST * rate).max(1.0))
    }

    /// So far beyond the rate that more would not make the wait longer.
    pub(super) fn is_spent(self, rate: u32, now: Duration) -> bool {
        self.saved(rate, now) < 1.0 - f64::from(rate)
    }

    /// Counts messages; until when the sender has to wait, if it does.
    pub(super) fn spend(&mut self, cost: f64, rate: u32, now: Duration) -> Option<Duration> {
        // Nobody waits for longer than a second.
        let saved = (self.saved(rate, now) - cost).max(-f64::from(rate));
        *self = Self(saved, now);
        (saved < 0.0).then(|| now + Duration::from_secs_f64((-saved / f64::from(rate)).max(0.001)))
    }
}

impl<K: Kernel> Server<K> {
    /// One, as [`Self::hear`] hears one message: who has more to say is in the next turn again, without a
    /// call that finds nothing.
    pub(super) fn accept(&mut self) {
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
            Err(error) => return debug!("a connection whose other end is unknown: {error}"),
        };
        let (now, rate) = (self.kernel.now(), self.config.access.user_messages_per_second);
        let root = peer.user == 0 && self.kernel.at_home(peer.process).unwrap_or(false);
        let wary = self.kernel.carries_descriptors(fd.as_fd());
        let account = self.owners.of(peer.user);
        if !root && self.allowances.get(&account).is_some_and(|allowance| allowance.is_spent(rate, now)) {
            return self.turn_away(fd, account, wary, now);
        }
        self.closing.retain(|(_, closing)| closing.strong_count() > 0);
        let closing = self.closing.iter().filter(|(of, _)| *of == account).count();
        let of_users = self.connections.values().filter(|other| !other.root);
        let (theirs, all) = of_users.fold((closing, self.closing.len()), |(theirs, all), other| {
            (theirs + usize::from(other.account == account), all + 1)
        });
        let access = &self.config.access;
        if !root && (theirs >= access.connections as usize || all >= access.all_connections as usize) {
            let refusal = Answer { tag: 0, reply: Reply::Refused { why: Refusal::Crowd, limit: 0 } };
            let _ = self.kernel.send(fd.as_fd(), refusal.encode().bytes(), &[]);
            let allowance = self.allowances.entry(account).or_insert_with(|| Allowance::new(rate, now));
            allowance.spend(1.0, rate, now);
            return self.turn_away(fd, account, wary, now);
        }
        let pidfd = match self.kernel.peer_pidfd(fd.as_fd(), peer.process) {
            Ok(pidfd) => pidfd,
            Err(error) => return debug!("a connection whose other end is unknown: {error}"),
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
        let connection = Connection { fd, process, user, account, root, wary, pidfd, allowance, muted: None };
        self.connections.insert(token, connection);
        // It takes as long as a message.
        self.mute_if_too_fast(token, 1.0);
    }

    /// To refuse takes time too: of those that wait to be refused we take so many a second.
    fn turn_away(&mut self, fd: OwnedFd, account: u32, wary: bool, now: Duration) {
        self.counters.refusals += 1;
        self.close(fd, account, wary);
        self.deaf = self.refused.spend(1.0, REFUSED, now);
        if self.deaf.is_some() && self.kernel.unwatch(self.listener.as_fd()).is_err() {
            self.deaf = None;
        }
    }

    pub(super) fn hear(&mut self, token: u64) {
        let mut bytes = [0u8; SIZE];
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.wary && self.kernel.is_laden(connection.fd.as_fd()).unwrap_or(false) {
            debug!("a client sends descriptors");
            return self.hang_up(token);
        }
        let before = self.kernel.worked();
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
        let envelope = if length == bytes.len() { Envelope::decode(&bytes) } else { None };
        let Some(envelope) = envelope else {
            self.refuse(token, 0, (Refusal::Malformed, 0));
            return self.hang_up(token);
        };
        self.answer(token, envelope);
        let cost = match envelope.request {
            Request::Observe => ARENA_COST,
            Request::Join(_) | Request::Leave => MOVE_COST,
            Request::Spare(_) | Request::WantBack | Request::Status => 1.0,
        };
        // Not by the clock: what keeps the server from a processor meanwhile is others' doing.
        let worked = self.kernel.worked().saturating_sub(before);
        self.mute_if_too_fast(token, cost.max(worked.as_secs_f64() / MESSAGE.as_secs_f64()));
    }

    /// Counts a message of a connection, and what it costs, as so many messages of its user.
    fn mute_if_too_fast(&mut self, token: u64, cost: f64) {
        let now = self.kernel.now();
        let (rate, of_user) =
            (self.config.access.messages_per_second, self.config.access.user_messages_per_second);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let own = connection.allowance.spend(1.0, rate, now);
        let together = (!connection.root).then(|| {
            let allowance =
                self.allowances.entry(connection.account).or_insert_with(|| Allowance::new(of_user, now));
            allowance.spend(cost, of_user, now)
        });
        connection.muted = own.max(together.flatten());
        if connection.muted.is_some()
            && let Err(error) = self.kernel.unwatch(connection.fd.as_fd())
        {
            self.fail("stop watching a client", &error);
        }
    }

    pub(super) fn unmute(&mut self, now: Duration) {
        if self.deaf.is_some_and(|until| now >= until) {
            self.deaf = Some(now + AGAIN);
            match self.kernel.watch(self.listener.as_fd(), LISTENER) {
                Ok(()) => self.deaf = None,
                Err(error) => self.fail("listen again", &error),
            }
        }
        let due = |connection: &Connection| connection.muted.is_some_and(|until| now >= until);
        let due: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| due(connection))
            .map(|(&token, _)| token)
            .collect();
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

    pub(super) fn hang_up(&mut self, token: u64) {
        let Some(connection) = self.connections.remove(&token) else { return };
        if let Some(id) = self.by_process.get(&connection.process)
            && let Some(member) = self.members.get_mut(id)
            && member.connection == Some(token)
        {
            member.connection = None;
        }
        self.close(connection.fd, connection.account, connection.wary);
    }

    /// Closes a connection. What nobody has read may have descriptors with it, and the last close of a
    /// socket can take as long as its owner likes (SO_LINGER): that waits in a thread of its own, and
    /// counts as a connection until then.
    fn close(&mut self, fd: OwnedFd, account: u32, wary: bool) {
        if !wary {
            return;
        }
        // While `wait` looks at it, it holds the socket too, and the last close could be this thread's.
        let _ = self.kernel.unwatch(fd.as_fd());
        let (closing, fd) = (Arc::new(()), ManuallyDrop::new(fd));
        self.closing.push((account, Arc::downgrade(&closing)));
        let close = move || {
            drop(ManuallyDrop::into_inner(fd));
            drop(closing);
        };
        if let Err(error) =
            std::thread::Builder::new().name("closes".into()).stack_size(64 << 10).spawn(close)
        {
            // It stays open.
            self.fail("close a client's connection", &error);
        }
    }

    pub(super) fn send(&mut self, token: u64, tag: u32, reply: Reply, block_of: Option<Id>) {
        let packet = Answer { tag, reply }.encode();
        let Some(connection) = self.connections.get(&token) else { return };
        let fd = block_of.and_then(|id| self.members.get(&id)).map(|member| member.block.reader.as_fd());
        if let Err(error) = self.kernel.send(connection.fd.as_fd(), packet.bytes(), fd.as_slice()) {
            debug!("a client does not take its answer: {error}");
            self.hang_up(token);
        }
    }

    pub(super) fn refuse(&mut self, token: u64, tag: u32, (why, limit): Refused) {
        self.counters.refusals += 1;
        self.send(token, tag, Reply::Refused { why, limit }, None);
    }
}
