// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote partitions (cgroup v2, Linux 6.7): a process that is below the base group gets its partition in a
//! child of its own group.
//!
//! So whatever its group and those above it impose on it goes on doing so. The child `wakeful-n` is
//! *threaded*, because a group that has processes takes no others. Its processors are written into
//! `cpuset.cpus.exclusive` of the child, and of each group between it and the base group.
//!
//! What is written there is ours, and is taken back; so is `+cpuset` in the groups above, which an attribute
//! of theirs says was not there before. The child is made first and removed last: where there is none,
//! nothing of ours is left, but what others use by then. A server that is started finds them by their names
//! ([`Way::find_remote`]). What is not ours is left alone: who is below such a group gets no partition
//! ([`Way::takes`]).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use tracing::debug;

use super::names::{PREFIX, gone, invalid};
use super::way::Way;
use crate::kernel::{Kernel, Set, parse, show};

/// Of one process.
#[derive(Debug, Default)]
pub(super) struct Remote {
    /// The group below the mount whose child it is.
    pub(super) origin: String,
    /// What may be in its `cpuset.cpus.exclusive`.
    exclusive: Set,
}

const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
const PARTITION: &str = "cpuset.cpus.partition";
const CONTROL: &str = "cgroup.subtree_control";

/// By the name of its group.
pub(super) fn process_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

fn exclusive(kernel: &impl Kernel, folder: &Path) -> io::Result<Set> {
    match kernel.read(&folder.join(EXCLUSIVE)) {
        Err(error) if gone(&error) => Ok(Set::new()),
        text => text.and_then(|text| parse(&text).ok_or_else(|| invalid(text))),
    }
}

impl Way {
    /// Does this kernel make remote partitions, and may we? Only a try tells; in this folder, which is empty.
    pub(super) fn try_remote(&self, kernel: &impl Kernel, probe: &Path, processor: &Set) -> io::Result<()> {
        let inner = probe.join("inner");
        let _ = kernel.remove_folder(&inner);
        kernel.make_folder(&inner)?;
        let tried = kernel.write(&probe.join(CONTROL), "+cpuset").and_then(|()| {
            kernel.write(&probe.join(EXCLUSIVE), &show(processor))?;
            self.write_remote(kernel, &inner, processor)
        });
        kernel.remove_folder(&inner)?;
        tried
    }

    /// Finds those that an earlier server has left. Others may remove groups meanwhile; names that are not
    /// ours are anybody's.
    pub(super) fn find_remote(&mut self, kernel: &impl Kernel) {
        let mut folders = vec![self.base.clone()];
        while let Some(folder) = folders.pop() {
            let inner = kernel.folders(&folder).or_else(|_| kernel.folders(&folder)).unwrap_or_default();
            for (name, ours) in inner {
                let path = folder.join(&name);
                match process_of(&name).filter(|_| ours) {
                    Some(_) if folder == self.base => {}
                    Some(process) if !self.remote.contains_key(&process) => {
                        let text = path.parent().and_then(|parent| parent.strip_prefix(&self.mount).ok());
                        let origin = format!("/{}", text.unwrap_or(Path::new("")).display());
                        let exclusive = exclusive(kernel, &path).or_else(|_| exclusive(kernel, &path));
                        let exclusive = exclusive.unwrap_or_default();
                        self.remote.insert(process, Remote { origin, exclusive });
                    }
                    Some(_) => self.strays.push(path),
                    None => folders.push(path),
                }
            }
        }
        let origins: BTreeSet<String> = self.remote.values().map(|remote| remote.origin.clone()).collect();
        for group in origins.iter().flat_map(|origin| self.upward_from(origin)).collect::<BTreeSet<_>>() {
            let lent = exclusive(kernel, &group).or_else(|_| exclusive(kernel, &group));
            self.lent.insert(group, lent.unwrap_or_default());
        }
        // A server may have been killed when it had lent something, and given it to nobody yet: others
        // could not have it.
        for origin in &origins {
            if let Err(error) = self.lend(kernel, origin).or_else(|_| self.lend(kernel, origin)) {
                debug!("what {origin} lends stays as it is: {error}");
            }
        }
    }

    /// This process's partition is in a child of that group from now on.
    pub(super) fn enter(&mut self, process: u32, origin: &str) {
        match self.remote.get(&process).map(|remote| remote.origin == origin) {
            Some(true) => return,
            Some(false) => self.abandon(process),
            None => {}
        }
        self.remote.insert(process, Remote { origin: origin.to_string(), exclusive: Set::new() });
    }

    /// What was made for this process is to go, and something else may be made for it.
    pub(super) fn abandon(&mut self, process: u32) {
        self.strays.push(self.group(process));
        self.remote.remove(&process);
    }

    pub(super) fn child(&self, origin: &str, process: u32) -> PathBuf {
        self.mount.join(origin.trim_start_matches('/')).join(format!("{PREFIX}{process}"))
    }

    /// Can a process of this group get these processors in a child of it?
    pub(super) fn takes(&self, kernel: &impl Kernel, origin: &str, processors: &Set) -> io::Result<bool> {
        let group = self.mount.join(origin.trim_start_matches('/'));
        let kind = kernel.read(&group.join("cgroup.type"))?;
        let ours = self.remote.values().any(|remote| remote.origin == origin);
        let fits = kind.trim() == "domain" || kind.trim() == "domain threaded" && ours;
        if !fits {
            debug!("{origin} is {}: it takes no threaded group of ours", kind.trim());
            return Ok(false);
        }
        for group in self.upward_from(origin) {
            let read = |file: &str| match kernel.read(&group.join(file)) {
                Err(error) if gone(&error) => Ok(String::new()),
                text => text,
            };
            let (own, text) = (read("cpuset.cpus")?, read(PARTITION)?);
            let own = parse(&own).ok_or_else(|| invalid(own))?;
            let none = Set::new();
            let foreign = &exclusive(kernel, &group)? - self.lent.get(&group).unwrap_or(&none);
            if !own.is_empty() && !processors.is_subset(&own)
                || text.starts_with("root")
                || !foreign.is_empty()
            {
                debug!("{} has processors of its own", group.display());
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the child of its group, and moves the process there.
    pub(super) fn make_remote(
        &mut self,
        kernel: &impl Kernel,
        process: u32,
        processors: &Set,
    ) -> io::Result<()> {
        let origin = self.remote[&process].origin.clone();
        let text = kernel.read(Path::new(&format!("/proc/{process}/cgroup")))?;
        let now = self.path(&text).unwrap_or_default();
        let inside =
            now.rsplit_once('/').is_some_and(|(group, name)| group == origin && process_of(name).is_some());
        if now != origin && !inside {
            return Err(invalid(format!("it is in {now} now, and was in {origin} when it asked")));
        }
        let folder = self.child(&origin, process);
        self.make_group(kernel, &folder)?;
        let kind = folder.join("cgroup.type");
        if kernel.read(&kind)?.trim() != "threaded" {
            kernel.write(&kind, "threaded")?;
        }
        let mut groups: Vec<PathBuf> = self.upward_from(&origin).collect();
        groups.reverse();
        groups.iter().try_for_each(|group| self.control(kernel, group))?;
        self.give_remote(kernel, process, processors)?;
        self.attach(kernel, &folder, process)
    }

    /// Other processors for a child that is there.
    pub(super) fn give_remote(
        &mut self,
        kernel: &impl Kernel,
        process: u32,
        processors: &Set,
    ) -> io::Result<()> {
        let Some(remote) = self.remote.get_mut(&process) else { return Err(io::ErrorKind::NotFound.into()) };
        let origin = remote.origin.clone();
        // Until it is written, it may have the old ones.
        remote.exclusive = &remote.exclusive | processors;
        self.lend(kernel, &origin)?;
        self.write_remote(kernel, &self.child(&origin, process), processors)?;
        self.remote.get_mut(&process).expect("it is there").exclusive = processors.clone();
        self.lend(kernel, &origin)
    }

    fn write_remote(&self, kernel: &impl Kernel, folder: &Path, processors: &Set) -> io::Result<()> {
        kernel.write_as_administrator(&folder.join(EXCLUSIVE), &show(processors))?;
        if !self.is_partition(kernel, folder)? {
            kernel.write_as_administrator(&folder.join(PARTITION), "root")?;
        }
        self.check(kernel, folder, processors)
    }

    /// No processors of its own any more.
    pub(super) fn share_remote(&mut self, kernel: &impl Kernel, process: u32) -> io::Result<()> {
        let Some(remote) = self.remote.get_mut(&process) else { return Ok(()) };
        let origin = remote.origin.clone();
        clear(kernel, &self.child(&origin, process))?;
        self.remote.get_mut(&process).expect("it is there").exclusive.clear();
        self.lend(kernel, &origin)
    }

    /// Writes, from the top, what the groups from the base group down to this one lend to the children
    /// below them.
    fn lend(&mut self, kernel: &impl Kernel, origin: &str) -> io::Result<()> {
        let mut groups: Vec<PathBuf> = self.upward_from(origin).collect();
        groups.reverse();
        for group in groups {
            let below =
                |remote: &&Remote| self.mount.join(remote.origin.trim_start_matches('/')).starts_with(&group);
            let wanted: Set =
                self.remote.values().filter(below).flat_map(|remote| remote.exclusive.clone()).collect();
            let lent = self.lent.get(&group).cloned().unwrap_or_default();
            if wanted == lent {
                continue;
            }
            let foreign = &exclusive(kernel, &group)? - &lent;
            let text = show(&(&wanted | &foreign));
            match kernel.write(&group.join(EXCLUSIVE), if text.is_empty() { "\n" } else { &text }) {
                Err(error) if !(wanted.is_empty() && gone(&error)) => return Err(error),
                _ => {}
            }
            if wanted.is_empty() {
                self.lent.remove(&group)
            } else {
                self.lent.insert(group, wanted)
            };
        }
        Ok(())
    }

    /// A child is empty: nothing of it stays, nor of what made its group one that has children.
    pub(super) fn remove_remote(&mut self, kernel: &impl Kernel, process: u32) -> io::Result<()> {
        self.share_remote(kernel, process)?;
        let Some(remote) = self.remote.get(&process) else { return Ok(()) };
        let origin = remote.origin.clone();
        self.control_no_more(kernel, &origin, Some(process))?;
        kernel.remove_folder(&self.child(&origin, process))
    }

    /// Has a group give cpusets to those below it, and notes there that it did not before.
    pub(super) fn control(&self, kernel: &impl Kernel, group: &Path) -> io::Result<()> {
        let control = group.join(CONTROL);
        if gives_cpusets(&kernel.read(&control)?) {
            return Ok(());
        }
        kernel.mark(group, true)?;
        kernel.write(&control, "+cpuset")
    }

    /// The same back, where it was us and nobody needs it any more: in the group that an origin is and
    /// those above it, below which there is no process but this one.
    fn control_no_more(&self, kernel: &impl Kernel, origin: &str, but: Option<u32>) -> io::Result<()> {
        for group in self.upward_from(origin) {
            let others = self.remote.iter().filter(|&(&process, _)| Some(process) != but);
            let mut places = others.map(|(_, remote)| self.mount.join(remote.origin.trim_start_matches('/')));
            if places.any(|place| place.starts_with(&group)) {
                return Ok(());
            }
            self.give_no_more(kernel, &group)?;
        }
        Ok(())
    }

    /// The same of one group. Those below it may be others' that have begun to use their cpusets.
    pub(super) fn give_no_more(&self, kernel: &impl Kernel, group: &Path) -> io::Result<()> {
        let undo = || {
            if !kernel.is_marked(group)? {
                return Ok(());
            }
            for (name, _) in kernel.folders(group)? {
                let inner = group.join(name);
                for file in ["cpuset.cpus", "cpuset.mems", EXCLUSIVE, CONTROL] {
                    match kernel.read(&inner.join(file)) {
                        Ok(text) if file == CONTROL && !gives_cpusets(&text) => {}
                        Ok(text) if !text.trim().is_empty() => return Ok(()),
                        Err(error) if !gone(&error) => return Err(error),
                        _ => {}
                    }
                }
            }
            match kernel.write(&group.join(CONTROL), "-cpuset") {
                // Somebody has begun just now.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
                written => written.and_then(|()| kernel.mark(group, false)),
            }
        };
        undo().or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })
    }

    /// Removes what nobody needs and nobody finds by its process.
    pub(super) fn clear_strays(&mut self, kernel: &impl Kernel) -> io::Result<()> {
        while let Some(folder) = self.strays.last() {
            let removed = clear(kernel, folder).and_then(|()| {
                let members = match kernel.read(&folder.join("cgroup.threads")) {
                    Err(error) if gone(&error) => String::new(),
                    members => members?,
                };
                let home = folder.parent().ok_or(io::ErrorKind::NotFound)?;
                for member in super::names::numbers(&members) {
                    match self.attach(kernel, home, member) {
                        Err(error) if !gone(&error) => return Err(error),
                        _ => {}
                    }
                }
                if let Ok(origin) = home.strip_prefix(&self.mount) {
                    self.control_no_more(kernel, &format!("/{}", origin.display()), None)?;
                }
                kernel.remove_folder(folder)
            });
            match removed {
                Err(error) if !gone(&error) => return Err(error),
                _ => drop(self.strays.pop()),
            }
        }
        Ok(())
    }
}

/// By what a group's `cgroup.subtree_control` says.
fn gives_cpusets(text: &str) -> bool {
    text.split_whitespace().any(|name| name == "cpuset")
}

fn clear(kernel: &impl Kernel, folder: &Path) -> io::Result<()> {
    let write = |file: &str, text: &str| match kernel.write(&folder.join(file), text) {
        Err(error) if !gone(&error) => Err(error),
        _ => Ok(()),
    };
    write(PARTITION, "member")?;
    write(EXCLUSIVE, "\n")
}
