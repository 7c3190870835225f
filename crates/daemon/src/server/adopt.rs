// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server leaves to the next one, and finds of an earlier one.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use abi::server::{MAGIC, VERSION};
use policy::{Adopted, Count, Demand, Event, Id};
use tracing::{info, warn};

use super::{Member, Server};
use crate::kernel::{Kernel, Set};
use crate::stat::started;

/// In a block's demand, beside its hint: there is none.
pub(super) const NOTHING: u32 = u32::MAX;

impl<K: Kernel> Server<K> {
    /// Writes what a server that is started anew will need.
    pub(super) fn save(&self, id: Id) {
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

    /// Members of an earlier server.
    pub(super) fn adopt(&mut self) -> io::Result<()> {
        let mut all = Vec::new();
        for name in self.kernel.list(&self.folder)? {
            let Ok(process) = name.parse::<u32>() else { continue };
            // Once more, if that may help.
            let tried = self.adopt_one(process, &mut all).or_else(|_| self.adopt_one(process, &mut all));
            // It is over, or was never whole; or it has ended meanwhile, or its number is a thread's now.
            // Whatever it is: it is no reason not to serve the others.
            if let Err(error) = &tried {
                warn!("cannot take {process} over: {error}");
            }
            if !tried.unwrap_or(false) {
                drop(self.kernel.remove_file(&self.file(process)));
            }
        }
        let all = self.bind(all);
        let _ = self.apply(Event::Adopt(all));
        self.level();
        self.members.keys().for_each(|&id| self.save(id));
        Ok(())
    }

    /// False if there is nobody to adopt; an error if that cannot be told, because then this is not to be
    /// forgotten.
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
        let user = self.kernel.user(pidfd.as_fd(), process)?;
        let [priority, least, wanted, most, usable] =
            [0, 1, 2, 3, 4].map(|n: usize| words.demand[n].load(Relaxed));
        let count = match (wanted, most) {
            (0, 0) => Count::Choose { most: u32::MAX },
            (0, most) => Count::Choose { most },
            _ => Count::Numbers { least, wanted, most },
        };
        let origin =
            words.origin.iter().map(|byte| byte.load(Relaxed)).take_while(|&byte| byte != 0).collect();
        let origin = String::from_utf8(origin).ok().filter(|origin| is_origin(origin));
        let written: Set = words.partition.load_ids().iter().collect();
        self.partitions.assume(process, written);
        self.partitions.remember(process, origin);
        let held = self.partitions.held(process).cloned().unwrap_or_default();
        let id = self.token();
        self.kernel.watch(pidfd.as_fd(), id)?;
        let root = user == 0 && self.kernel.at_home(process).unwrap_or(false);
        let account = self.owners.of(user);
        let member = Member { process, user, account, root, pidfd, block, connection: None, used: None };
        self.members.insert(id, member);
        self.by_process.insert(process, id);
        info!(process, "was a member before");
        if usable != NOTHING {
            let demand = Demand { priority, count };
            all.push(Adopted { id, demand, held, usable: usable.checked_sub(1) });
        }
        Ok(true)
    }
}

/// Below the mount, and nowhere else.
fn is_origin(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| part != "..")
}
