// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the kernel is told of partitions: what each of the three ways writes, and reads back.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use abi::server::Enforcement;

use super::names::{DEFAULT, EXPEDITE, EXPEDITED, Group, LEFT, PREFIX, ROUNDS, gone, invalid, numbers};
use super::remote::Remote;
use crate::kernel::{Kernel, Set, parse, show};

/// How the kernel is told.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) by: Enforcement,
    pub(super) mount: PathBuf,
    /// The base group below the mount; empty: the root.
    pub(super) group: String,
    pub(super) base: PathBuf,
    pub(super) expedite: bool,
    /// A process below the base group stays in its own group (see `remote`).
    pub(super) stays: bool,
    /// Such processes.
    pub(super) remote: BTreeMap<u32, Remote>,
    /// What we have written into `cpuset.cpus.exclusive` of the groups above their children.
    pub(super) lent: BTreeMap<PathBuf, Set>,
    /// Children that are to go, whoever they are of.
    pub(super) strays: Vec<PathBuf>,
}

impl Way {
    pub(super) fn group(&self, process: u32) -> PathBuf {
        match self.remote.get(&process) {
            Some(remote) => self.child(&remote.origin, process),
            None => self.base.join(format!("{PREFIX}{process}")),
        }
    }

    /// A process's group below our mount, by what its /proc/n/cgroup says.
    pub(super) fn path<'a>(&self, text: &'a str) -> Option<&'a str> {
        text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let right = match self.by {
                Enforcement::CgroupV2 => controllers.is_empty(),
                _ => controllers.split(',').any(|name| name == "cpuset"),
            };
            right.then_some(path)
        })
    }

    /// Where processes without a group are.
    pub(super) fn home(&self) -> PathBuf {
        if self.by == Enforcement::CgroupV1 { self.base.join(DEFAULT) } else { self.base.clone() }
    }

    /// All that masks can be made of.
    pub(super) fn online(&self, kernel: &impl Kernel) -> io::Result<Set> {
        let text = kernel.read(Path::new("/sys/devices/system/cpu/online"))?;
        // Our own mask shows what else there is to heed, a cpuset that we are in.
        kernel.set_affinity(0, &parse(&text).ok_or_else(|| invalid(text))?)?;
        kernel.affinity(0)
    }

    pub(super) fn effective(&self, kernel: &impl Kernel, folder: &Path) -> io::Result<Set> {
        let file =
            if self.by == Enforcement::CgroupV2 { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
        let text = kernel.read(&folder.join(file))?;
        parse(&text).ok_or_else(|| invalid(text))
    }

    pub(super) fn is_partition(&self, kernel: &impl Kernel, folder: &Path) -> io::Result<bool> {
        Ok(kernel.read(&folder.join("cpuset.cpus.partition"))?.trim() == "root")
    }

    /// Gives a group these processors, and reads back whether it has them. Under cgroup v1 whoever may write
    /// them has them, but for those that are offline: that is left to the next audit, since who waits for a
    /// grant would wait for it, 10 us a file (Linux 6.18).
    pub(super) fn set(&self, kernel: &impl Kernel, folder: &Path, processors: &Set) -> io::Result<()> {
        let write = |file: &str, text: &str| kernel.write(&folder.join(file), text);
        write("cpuset.cpus", &show(processors))?;
        if self.by == Enforcement::CgroupV2 && !self.is_partition(kernel, folder)? {
            write("cpuset.cpus.partition", "root")?;
        }
        if self.by == Enforcement::CgroupV1 { Ok(()) } else { self.check(kernel, folder, processors) }
    }

    /// Has the group these processors, as it was told?
    pub(super) fn check(&self, kernel: &impl Kernel, folder: &Path, processors: &Set) -> io::Result<()> {
        if self.by == Enforcement::CgroupV2 && !self.is_partition(kernel, folder)? {
            let kind = kernel.read(&folder.join("cpuset.cpus.partition"))?;
            return Err(invalid(format!("the kernel says of the partition: {}", kind.trim())));
        }
        let effective = self.effective(kernel, folder)?;
        if effective == *processors {
            return Ok(());
        }
        Err(invalid(format!("the kernel gave {} for {}", show(&effective), show(processors))))
    }

    pub(super) fn attach(&self, kernel: &impl Kernel, folder: &Path, process: u32) -> io::Result<()> {
        let expedite = |text| !self.expedite || kernel.write(Path::new(EXPEDITE), text).is_ok();
        expedite(EXPEDITED);
        let result = kernel.write(&folder.join("cgroup.procs"), &process.to_string());
        // It is the whole machine's: one more try if need be.
        let _ = expedite("0") || expedite("0");
        result
    }

    pub(super) fn make_group(&self, kernel: &impl Kernel, folder: &Path) -> io::Result<()> {
        match kernel.make_folder(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if self.by == Enforcement::CgroupV1 {
            let mems = kernel.read(&self.base.join("cpuset.effective_mems"))?;
            kernel.write(&folder.join("cpuset.mems"), mems.trim())?;
        }
        Ok(())
    }

    /// Processors of its own for a process without a group.
    pub(super) fn make(&mut self, kernel: &impl Kernel, process: u32, processors: &Set) -> io::Result<()> {
        if self.by == Enforcement::Affinity {
            return set_masks(kernel, process, processors);
        }
        if self.remote.contains_key(&process) {
            return self.make_remote(kernel, process, processors);
        }
        let folder = self.group(process);
        self.make_group(kernel, &folder)?;
        self.set(kernel, &folder, processors)?;
        self.attach(kernel, &folder, process)
    }

    /// A group with what everybody has.
    pub(super) fn make_ready(&self, kernel: &impl Kernel, process: u32, default: &Set) -> io::Result<()> {
        let folder = self.group(process);
        self.make_group(kernel, &folder)?;
        if self.by == Enforcement::CgroupV1 {
            self.set(kernel, &folder, default)?;
        }
        self.attach(kernel, &folder, process)
    }

    /// Other processors for a process that has a group.
    pub(super) fn give(&mut self, kernel: &impl Kernel, process: u32, processors: &Set) -> io::Result<()> {
        match self.by {
            Enforcement::Affinity => set_masks(kernel, process, processors),
            _ if self.remote.contains_key(&process) => self.give_remote(kernel, process, processors),
            _ => self.set(kernel, &self.group(process), processors),
        }
    }

    /// No processors of its own any more.
    pub(super) fn share(&mut self, kernel: &impl Kernel, process: u32, default: &Set) -> io::Result<()> {
        let folder = self.group(process);
        let result = match self.by {
            Enforcement::Affinity => set_masks(kernel, process, &self.online(kernel)?),
            Enforcement::CgroupV1 => self.set(kernel, &folder, default),
            Enforcement::CgroupV2 if self.remote.contains_key(&process) => self.share_remote(kernel, process),
            Enforcement::CgroupV2 => kernel
                .write(&folder.join("cpuset.cpus.partition"), "member")
                .and_then(|()| kernel.write(&folder.join("cpuset.cpus"), "\n")),
        };
        // It has ended, or somebody has removed the group.
        result.or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })
    }

    /// Ends a group: whoever is left in it goes back to where its process came from, or else to the default
    /// partition.
    pub(super) fn dissolve(
        &mut self,
        kernel: &impl Kernel,
        process: u32,
        origin: Option<&str>,
    ) -> io::Result<()> {
        if self.by == Enforcement::Affinity {
            return Ok(());
        }
        let folder = self.group(process);
        let remote = self.remote.get(&process).map(|remote| remote.origin.clone());
        let origin = remote.as_deref().or(origin);
        // Of a threaded group the kernel names the threads alone; to move one moves its process.
        let list = folder.join(if remote.is_some() { "cgroup.threads" } else { "cgroup.procs" });
        match kernel.read(&list) {
            Err(error) if gone(&error) => return self.remove(kernel, process, true),
            members => self.empty(kernel, &members?, origin)?,
        }
        let removed = self.remove(kernel, process, false);
        if self.by != Enforcement::CgroupV2 || removed.is_ok() {
            return removed;
        }
        // Perhaps one whose children have children before we see them: nobody is born in a group that is
        // frozen. Who leaves it, thaws.
        let freeze = |text: &str| kernel.write(&folder.join("cgroup.freeze"), text);
        freeze("1")?;
        for _ in 0..ROUNDS {
            let members = kernel.read(&list)?;
            if members.trim().is_empty() || self.empty(kernel, &members, origin).is_err() {
                break;
            }
        }
        self.remove(kernel, process, false).inspect_err(|_| drop(freeze("0")))
    }

    /// Removes a group, unless it is `gone`, and what was made for it elsewhere.
    fn remove(&mut self, kernel: &impl Kernel, process: u32, gone: bool) -> io::Result<()> {
        let folder = self.group(process);
        let removed = match self.remote.contains_key(&process) {
            true => self.remove_remote(kernel, process),
            false if gone => Ok(()),
            false => kernel.remove_folder(&folder),
        };
        match removed {
            Err(error) if !(gone && super::names::gone(&error)) => return Err(error),
            _ => drop(self.remote.remove(&process)),
        }
        Ok(())
    }

    /// Moves these members of a group to where they go.
    fn empty(&self, kernel: &impl Kernel, members: &str, origin: Option<&str>) -> io::Result<()> {
        for member in numbers(members) {
            match self.put_back(kernel, member, origin) {
                Err(error) if !gone(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the base group, if it is not the mount itself, with all processors that the group above has.
    pub(super) fn make_base(&self, kernel: &impl Kernel) -> io::Result<()> {
        let above = self.base.parent().ok_or(io::ErrorKind::NotFound)?;
        if self.by == Enforcement::CgroupV2 {
            kernel.write(&above.join("cgroup.subtree_control"), "+cpuset")?;
            kernel.make_folder(&self.base)?;
            return kernel.write(&self.base.join("cgroup.subtree_control"), "+cpuset");
        }
        kernel.make_folder(&self.base)?;
        for (file, from) in
            [("cpuset.cpus", "cpuset.effective_cpus"), ("cpuset.mems", "cpuset.effective_mems")]
        {
            kernel.write(&self.base.join(file), kernel.read(&above.join(from))?.trim())?;
        }
        Ok(())
    }

    /// The group that an origin is, and those above it below the base group.
    pub(super) fn upward_from<'a>(&'a self, origin: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
        let group = self.mount.join(origin.trim_start_matches('/'));
        std::iter::successors(Some(group), |group| group.parent().map(Path::to_owned))
            .take_while(|group| *group != self.base)
    }

    /// Moves a process to where it was. Its group may be gone by now, or have become one that takes no
    /// processes, and its user may have seen to that: then as near above it as can be, so that what limits
    /// the user there does so again, but not out of the groups that are left.
    fn put_back(&self, kernel: &impl Kernel, process: u32, origin: Option<&str>) -> io::Result<()> {
        let mut refused = None;
        for group in origin.into_iter().flat_map(|origin| self.upward_from(origin)) {
            match self.attach(kernel, &group, process) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if gone(&error) => return Err(error),
                Err(_) => {}
                done => return done,
            }
            let leaf = group.join(LEFT);
            match self.make_group(kernel, &leaf).and_then(|()| self.attach(kernel, &leaf, process)) {
                Err(error) if gone(&error) && error.kind() != io::ErrorKind::NotFound => return Err(error),
                Err(error) => refused = Some(error),
                done => return done,
            }
        }
        refused.map_or_else(|| self.attach(kernel, &self.home(), process), Err)
    }

    /// Is the kernel as it was told to be?
    pub(super) fn is_so(&self, kernel: &impl Kernel, process: u32, group: &Group) -> bool {
        if self.by == Enforcement::Affinity {
            return kernel.affinity(process).is_ok_and(|mask| mask.is_subset(&group.processors));
        }
        let folder = self.group(process);
        let kept = match self.by {
            Enforcement::CgroupV2 => self.is_partition(kernel, &folder).is_ok_and(|is| is == group.own),
            _ => true,
        };
        let shared_v2 = self.by == Enforcement::CgroupV2 && !group.own;
        let remote = self.remote.contains_key(&process);
        let inside = kernel.read(&folder.join(if remote { "cgroup.threads" } else { "cgroup.procs" }));
        kept && (shared_v2
            || self.effective(kernel, &folder).is_ok_and(|effective| effective == group.processors))
            && inside.is_ok_and(|inside| numbers(&inside).any(|member| member == process))
    }
}

/// Sets the masks of all threads, and again while there are new ones; but for [`ROUNDS`] only, because
/// others wait.
fn set_masks(kernel: &impl Kernel, process: u32, processors: &Set) -> io::Result<()> {
    let folder = PathBuf::from(format!("/proc/{process}/task"));
    let mut done = BTreeSet::new();
    for _ in 0..ROUNDS {
        let threads: Vec<u32> = kernel.list(&folder)?.iter().filter_map(|name| name.parse().ok()).collect();
        let new: Vec<u32> = threads.into_iter().filter(|&thread| done.insert(thread)).collect();
        if new.is_empty() {
            let mask = kernel.affinity(process)?;
            let same = mask == *processors;
            return if same { Ok(()) } else { Err(invalid(format!("the kernel gave {}", show(&mask)))) };
        }
        for thread in new {
            match kernel.set_affinity(thread, processors) {
                Err(error) if thread == process || !gone(&error) => return Err(error),
                _ => {}
            }
        }
    }
    Err(invalid(format!("{process} makes threads faster than their masks can be set")))
}
