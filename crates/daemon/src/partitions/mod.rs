// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitions in the kernel: the best of three ways to keep programs on their processors and others off
//! them.
//!
//! | way | the partition of process n | the default partition |
//! |---|---|---|
//! | cgroup v2 | group `wakeful-n`, a cpuset partition (`root`), in the process's own group (see `remote`) | what the kernel leaves to everybody else |
//! | cgroup v1 | cpuset `wakeful-n` | cpuset `wakeful-default`, into which all processes of the base group are moved |
//! | affinity | the masks of the process's threads | everything: nobody is kept away |
//!
//! What was done is read back, and again once a second ([`Partitions::audit`]), because others can change
//! groups too. Nothing here decides anything: [`Partitions::bring_about`] is told who shall have what, and
//! makes the difference. What the kernel refuses a process again and again is tried less and less often (see
//! `refused`).
//!
//! **What takes long.** To move a process into another group, the kernel waits for a grace period of RCU:
//! some milliseconds, during which nobody else is served. So a process that waits for processors, or has
//! had some, is *ready*: it has a group already, with the default partition's processors (v1) or none of
//! its own (v2), and to write a file of that group is enough. But who was below the base group (v2) goes
//! back there meanwhile, because what limits it is there. And who is moved all the same is moved with grace
//! periods expedited, where the configuration allows that.

mod names;
mod refused;
mod remote;
mod way;

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::path::Path;
use std::time::Duration;

use abi::server::{Enforcement, ORIGIN_SIZE};
use tracing::{debug, warn};

use crate::config::{self, By};
use crate::kernel::{Kernel, Set};
use crate::stat;

pub use names::{EXPEDITE, READY};
use names::{EXPEDITED, Group, PREFIX, gone, invalid, numbers};
use refused::Refused;
use remote::process_of;
use way::Way;

/// What the kernel has been told.
#[derive(Debug)]
pub struct Partitions {
    way: Way,
    default: Set,
    /// By process.
    groups: BTreeMap<u32, Group>,
    /// Those of `groups` that are to go.
    gone: BTreeSet<u32>,
    /// Processes that are to have a group, if only to be ready.
    ready: BTreeSet<u32>,
    /// Processes whose group may be there although `groups` does not have it: it was not finished, or was
    /// changed by others.
    unsure: BTreeSet<u32>,
    /// What some of them cannot have for now.
    refused: Refused,
    /// Processes of the base group that cannot be moved.
    immovable: BTreeSet<u32>,
    /// Where processes were before they had a group, below the mount; those that are not here were in the
    /// base group.
    origins: BTreeMap<u32, String>,
    /// Whose origins are still of use when they have no group.
    members: BTreeSet<u32>,
    /// Files by which an origin's groups limit what is below them.
    limits: Vec<String>,
    /// Groups that processes can be taken out of, and what is below them.
    leave: Vec<String>,
}

/// Where a process is.
#[derive(Debug)]
pub enum Place {
    /// The server may not take it from there.
    Elsewhere,
    Base,
    /// In this group below the mount.
    Below(String),
}

/// What could not be done, and is to be tried again.
#[derive(Debug)]
pub struct Failure {
    /// 0: the default partition.
    pub process: u32,
    pub error: io::Error,
}

fn note(failures: &mut Vec<Failure>, process: u32, result: io::Result<()>) -> bool {
    result.map_err(|error| failures.push(Failure { process, error })).is_ok()
}

impl Partitions {
    /// Takes the base group over, by the best way that works, and finds what an earlier server has left.
    ///
    /// # Errors
    /// Why none works.
    pub fn begin(kernel: &impl Kernel, config: &config::Enforcement) -> io::Result<Self> {
        let ways: &[_] = match config.by {
            By::Best => &[Enforcement::CgroupV2, Enforcement::CgroupV1, Enforcement::Affinity],
            By::CgroupV2 => &[Enforcement::CgroupV2],
            By::CgroupV1 => &[Enforcement::CgroupV1],
            By::Affinity => &[Enforcement::Affinity],
        };
        let mut reason = None;
        for &by in ways {
            let mount = if by == Enforcement::CgroupV2 { &config.v2 } else { &config.v1 };
            let base = mount.join(config.group.trim_start_matches('/'));
            let group = config.group.trim_end_matches('/').to_string();
            let expedite = config.expedite && by != Enforcement::Affinity;
            let (remote, lent, strays) = Default::default();
            let way =
                Way { by, mount: mount.clone(), group, base, expedite, stays: false, remote, lent, strays };
            let (default, groups, gone, ready, unsure, refused, immovable, origins, members) =
                Default::default();
            let (limits, leave) = (config.limits.clone(), config.leave.clone());
            let mut partitions = Self {
                way,
                default,
                groups,
                gone,
                ready,
                unsure,
                refused,
                immovable,
                origins,
                members,
                limits,
                leave,
            };
            match partitions.try_begin(kernel) {
                Ok(()) => return Ok(partitions),
                Err(error) => {
                    debug!("not by {by:?}: {error}");
                    if by == Enforcement::CgroupV2 {
                        let _ = partitions.way.give_no_more(kernel, &partitions.way.base);
                    }
                    reason.get_or_insert(error);
                }
            }
        }
        Err(reason.expect("there is at least one way"))
    }

    fn try_begin(&mut self, kernel: &impl Kernel) -> io::Result<()> {
        if self.way.expedite {
            match kernel.read(Path::new(EXPEDITE)).as_deref().map(str::trim) {
                Ok("0") => {}
                // A server that was killed has left it so.
                Ok(EXPEDITED) => kernel.write(Path::new(EXPEDITE), "0")?,
                // It is somebody's wish, or cannot be.
                _ => self.way.expedite = false,
            }
        }
        let way = &self.way;
        self.default = match way.by {
            // None, where an earlier server's partitions have all that are left.
            Enforcement::CgroupV2 => way.effective(kernel, &way.base)?,
            _ => self.online(kernel)?,
        };
        match way.by {
            Enforcement::CgroupV2 => {
                let controllers = kernel.read(&way.base.join("cgroup.controllers"))?;
                if !controllers.split_whitespace().any(|name| name == "cpuset") {
                    return Err(invalid(
                        "no cpuset controller in cgroup v2; v1 has it, or the kernel has none".into(),
                    ));
                }
                way.control(kernel, &way.base)?;
                // Only a try tells whether this kernel makes partitions here.
                let probe = way.base.join("wakeful-probe");
                let _ = kernel.remove_folder(&probe.join("inner"));
                let _ = kernel.remove_folder(&probe);
                let last = Set::from_iter(self.default.last().copied());
                if self.default.len() > 1 {
                    kernel.make_folder(&probe)?;
                    let tried = way.set(kernel, &probe, &last);
                    kernel.remove_folder(&probe)?;
                    tried?;
                }
                self.way.find_remote(kernel);
                kernel.make_folder(&probe)?;
                let remote = || self.way.try_remote(kernel, &probe, &last);
                let tried = remote().or_else(|_| remote());
                kernel.remove_folder(&probe)?;
                self.way.stays = match tried {
                    Ok(()) => true,
                    Err(error) => {
                        debug!("no remote partitions: {error}");
                        // With one processor it cannot be tried. Where there are some, the kernel makes them.
                        !self.way.remote.is_empty()
                    }
                };
            }
            Enforcement::CgroupV1 => {
                let folder = way.home();
                match way.effective(kernel, &folder) {
                    // As an earlier server left it.
                    Ok(left) if !left.is_empty() => self.default = left,
                    Err(error) if !gone(&error) => return Err(error),
                    _ => {
                        way.make_group(kernel, &folder)?;
                        way.set(kernel, &folder, &self.default)?;
                    }
                }
                self.gather(kernel)?;
            }
            Enforcement::Affinity => return Ok(()),
        }
        self.look(kernel)
    }

    /// Looks at the groups that an earlier server has left.
    fn look(&mut self, kernel: &impl Kernel) -> io::Result<()> {
        let way = &self.way;
        let names = kernel.list(&way.base)?;
        let processes: BTreeSet<u32> = names.iter().filter_map(|name| process_of(name)).collect();
        // A process has one: of two, it is in the one that is in its own group.
        let doubles = processes.iter().filter(|process| way.remote.contains_key(process));
        let doubles: Vec<_> = doubles.map(|process| way.base.join(format!("{PREFIX}{process}"))).collect();
        let processes: BTreeSet<u32> = processes.iter().chain(way.remote.keys()).copied().collect();
        for process in processes {
            {
                let folder = way.group(process);
                // A server that was killed while it emptied the group.
                if way.by == Enforcement::CgroupV2 {
                    let _ = kernel.write(&folder.join("cgroup.freeze"), "0");
                }
                let look = || {
                    let processors = way.effective(kernel, &folder)?;
                    let own = match way.by {
                        Enforcement::CgroupV2 => way.is_partition(kernel, &folder)?,
                        _ => processors.is_disjoint(&self.default),
                    };
                    Ok::<_, io::Error>(Group { processors, own })
                };
                match look().or_else(|_| look()) {
                    Ok(group) => drop(self.groups.insert(process, group)),
                    // Made again, or removed.
                    Err(_) => drop(self.unsure.insert(process)),
                }
            }
        }
        // One that was being taken back: others can have its processors now.
        let left = |process: &u32| self.groups.get(process).is_some_and(|group| !group.own);
        let left: Vec<u32> = self.way.remote.keys().copied().filter(left).collect();
        for process in left {
            if let Err(error) = self.way.share_remote(kernel, process) {
                debug!("what {process} had is taken back later: {error}");
            }
        }
        for (&process, remote) in &self.way.remote {
            self.origins.insert(process, remote.origin.clone());
        }
        self.way.strays.extend(doubles);
        Ok(())
    }

    /// The way that works here.
    pub fn by(&self) -> Enforcement {
        self.way.by
    }

    /// What a process has for itself.
    pub fn held(&self, process: u32) -> Option<&Set> {
        self.groups.get(&process).filter(|group| group.own).map(|group| &group.processors)
    }

    /// The processor time that the processes in a partition have used, with children of theirs that are gone;
    /// ns. `None` where nobody says: affinity is no group, and of many processes (v1) nobody can ask each.
    pub fn used(&self, kernel: &impl Kernel, process: u32) -> Option<u64> {
        const MOST: usize = 64;
        let group = self.way.group(process);
        match self.way.by {
            Enforcement::CgroupV2 => {
                let stat = kernel.read(&group.join("cpu.stat")).ok()?;
                let used = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
                Some(used.trim().parse::<u64>().ok()?.saturating_mul(1000))
            }
            Enforcement::CgroupV1 => {
                let inside = kernel.read(&group.join("cgroup.procs")).ok()?;
                let inside: Vec<u32> = numbers(&inside).take(MOST + 1).collect();
                let stat = |process: &u32| kernel.read(Path::new(&format!("/proc/{process}/stat"))).ok();
                let used = |process| stat::used_ns(&stat(process)?);
                (inside.contains(&process) && inside.len() <= MOST)
                    .then(|| inside.iter().filter_map(used).sum())
            }
            _ => None,
        }
    }

    /// Has a process without processors of its own a group at the base group (v1)? The audit has seen it
    /// there a second ago at most. To look again takes the kernel's lock, while the process waits.
    pub fn is_in_its_group(&self, process: u32) -> bool {
        self.way.by == Enforcement::CgroupV1
            && self.groups.contains_key(&process)
            && !self.gone.contains(&process)
    }

    /// Where a process is. It can be taken from the base group, the default partition and those of our
    /// groups that children of their programs are in; under cgroup v2, where every login and service is in
    /// a group of its own, from all groups below the base group too, unless it is in a pid namespace of its
    /// own or, if it is `bound`, below a limit. A process that others have put elsewhere stays there.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn place(&self, kernel: &impl Kernel, process: u32, bound: bool) -> io::Result<Place> {
        let way = &self.way;
        if way.by == Enforcement::Affinity {
            return Ok(Place::Base);
        }
        let text = kernel.read(Path::new(&format!("/proc/{process}/cgroup")))?;
        let Some(path) = way.path(&text) else { return Ok(Place::Elsewhere) };
        let child = path.rsplit_once('/').filter(|(group, name)| {
            process_of(name).and_then(|of| way.remote.get(&of)).is_some_and(|remote| remote.origin == *group)
        });
        let path = child.map_or(path, |(group, _)| group);
        let Some(below) = path.strip_prefix(way.group.as_str()).map(|rest| rest.trim_end_matches('/')) else {
            return Ok(Place::Elsewhere);
        };
        let ours = below
            .strip_prefix('/')
            .and_then(|name| name.strip_prefix(PREFIX))
            .filter(|name| !name.contains('/'));
        let origin = match ours {
            Some(number) => number.parse().ok().and_then(|of: u32| self.origins.get(&of).cloned()),
            None if below.is_empty() => None,
            None if way.by == Enforcement::CgroupV2 && below.starts_with('/') => Some(path.to_string()),
            None => return Ok(Place::Elsewhere),
        };
        let Some(origin) = origin else { return Ok(Place::Base) };
        let status = kernel.read(Path::new(&format!("/proc/{process}/status")))?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let contained = numbers.split_whitespace().count() > 1;
        let left = |group: &String| {
            let rest = origin.strip_prefix(group.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let stays = || {
            let own = self.groups.values().filter(|group| group.own).flat_map(|group| &group.processors);
            way.takes(kernel, &origin, &self.default.iter().chain(own).copied().collect())
        };
        if contained
            || origin.len() >= ORIGIN_SIZE
            || way.stays && !stays()?
            || !way.stays && bound && (!self.leave.iter().any(left) || self.limits(kernel, &origin)?)
        {
            return Ok(Place::Elsewhere);
        }
        Ok(Place::Below(origin))
    }

    /// Does a group between this one and the base group limit what is in it?
    fn limits(&self, kernel: &impl Kernel, origin: &str) -> io::Result<bool> {
        for group in self.way.upward_from(origin) {
            for file in &self.limits {
                match kernel.read(&group.join(file)) {
                    Ok(text) if text.split_whitespace().next().is_some_and(|word| word != "max") => {
                        return Ok(true);
                    }
                    Err(error) if !gone(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(false)
    }

    /// Where a process was before it had a group; `None`: in the base group.
    pub fn remember(&mut self, process: u32, origin: Option<String>) {
        if self.way.stays && self.origins.get(&process) != origin.as_ref() {
            let known = self.groups.remove(&process).is_some() | self.unsure.remove(&process);
            if known || self.way.remote.contains_key(&process) {
                self.gone.remove(&process);
                self.way.abandon(process);
            }
        }
        match origin {
            Some(origin) => drop(self.origins.insert(process, origin)),
            None => drop(self.origins.remove(&process)),
        }
    }

    /// What [`Self::remember`] was told.
    pub fn origin(&self, process: u32) -> Option<&str> {
        self.origins.get(&process).map(String::as_str)
    }

    /// Nothing is changed for this process any more; a group of it is dissolved.
    pub fn let_be(&mut self, process: u32) {
        if self.way.by == Enforcement::Affinity {
            self.groups.remove(&process);
        }
    }

    /// For the affinity way, which leaves no trace that could be found.
    pub fn assume(&mut self, process: u32, processors: Set) {
        if self.way.by == Enforcement::Affinity && !processors.is_empty() {
            self.groups.insert(process, Group { processors, own: true });
        }
    }

    /// The processors that can be given out.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn online(&self, kernel: &impl Kernel) -> io::Result<Set> {
        let way = &self.way;
        let all = match way.by {
            Enforcement::Affinity => way.online(kernel)?,
            Enforcement::CgroupV1 => way.effective(kernel, &way.base)?,
            // A partition's processors are no longer among the base's.
            Enforcement::CgroupV2 => {
                let mut all = way.effective(kernel, &way.base)?;
                for process in self.groups.keys().chain(&self.unsure) {
                    match way.effective(kernel, &way.group(*process)) {
                        Err(error) if gone(&error) => {}
                        effective => all.extend(effective?),
                    }
                }
                all
            }
        };
        if all.is_empty() { Err(invalid("the base group has no processors".into())) } else { Ok(all) }
    }

    /// Moves the processes of the base group to the default one (v1). Those that are born meanwhile are
    /// born there, or found next time.
    fn gather(&mut self, kernel: &impl Kernel) -> io::Result<()> {
        let way = &self.way;
        if way.by != Enforcement::CgroupV1 {
            return Ok(());
        }
        for process in numbers(&kernel.read(&way.base.join("cgroup.procs"))?) {
            if self.immovable.contains(&process) {
                continue;
            }
            // The kernel's own threads are children of its second one.
            let stat = kernel.read(Path::new(&format!("/proc/{process}/stat"))).unwrap_or_default();
            let kernels = process == 2 || stat::parent(&stat) == Some(2);
            if kernels || way.attach(kernel, &way.home(), process).is_err_and(|error| !gone(&error)) {
                self.immovable.insert(process);
            }
        }
        Ok(())
    }

    /// Makes it so: the processors of each process's partition, and the rest for all others. Of the
    /// `others` that have asked, the first are to be ready. What fails is tried again next time; what is
    /// not urgent is left to [`Self::tidy`].
    pub fn bring_about(
        &mut self,
        kernel: &impl Kernel,
        wanted: &BTreeMap<u32, Set>,
        others: &[u32],
        default: &Set,
    ) -> Vec<Failure> {
        let mut failures = Vec::new();
        let Self { way, groups, origins, .. } = self;
        let ready = others.iter().copied().filter(|process| !origins.contains_key(process));
        let ready: BTreeSet<u32> =
            if way.by == Enforcement::Affinity { BTreeSet::new() } else { ready.take(READY).collect() };
        let stays = |process: &u32| wanted.contains_key(process) || ready.contains(process);
        // Perhaps a new one with the number of another, which is not in the group.
        groups.retain(|process, group| group.own || !(self.gone.contains(process) && stays(process)));
        let before = |group: &Group, process: &u32| group.own && !wanted.contains_key(process);
        self.lose(kernel, wanted, default, &mut failures);
        // Then whoever loses all.
        let Self { way, groups, .. } = self;
        for (&process, group) in groups.iter_mut().filter(|(process, group)| before(group, process)) {
            if note(&mut failures, process, way.share(kernel, process, default)) {
                *group = Group { processors: default.clone(), own: false };
            }
        }
        self.gain(kernel, wanted, default, &mut failures);
        self.members = wanted.keys().chain(others).copied().collect();
        self.gone =
            self.groups.keys().chain(&self.unsure).copied().filter(|process| !stays(process)).collect();
        self.origins.retain(|process, _| self.members.contains(process) || self.gone.contains(process));
        self.ready = ready;
        failures
    }

    /// First whoever loses some, so that nobody shares meanwhile.
    fn lose(
        &mut self,
        kernel: &impl Kernel,
        wanted: &BTreeMap<u32, Set>,
        default: &Set,
        failures: &mut Vec<Failure>,
    ) {
        let Self { way, groups, .. } = self;
        for (&process, group) in groups.iter_mut() {
            if group.own
                && let Some(set) = wanted.get(&process)
                && let less = &group.processors & set
                && !less.is_empty()
                && less != group.processors
                && note(failures, process, way.give(kernel, process, &less))
            {
                group.processors = less;
            }
        }
        // What it would lose may be what it is to have for itself.
        self.share_out(kernel, failures, |process, set| {
            let less = set & default;
            let gets_it = wanted.get(&process).is_some_and(|own| own.is_superset(&(set - &less)));
            if gets_it { set.clone() } else { less }
        });
    }

    /// Last whoever gets some.
    fn gain(
        &mut self,
        kernel: &impl Kernel,
        wanted: &BTreeMap<u32, Set>,
        default: &Set,
        failures: &mut Vec<Failure>,
    ) {
        let Self { way, groups, origins, refused, .. } = self;
        let now = kernel.now();
        refused.retain(|process| wanted.contains_key(&process));
        for (&process, set) in wanted {
            let group = groups.get(&process);
            if group.is_some_and(|group| group.own && group.processors == *set) {
                refused.forget(process);
                continue;
            }
            if refused.pauses(process, set, now) {
                continue;
            }
            let result = match group {
                None => {
                    // One that an earlier server has moved up is where it is until it has none.
                    if let Some(origin) = origins.get(&process).filter(|_| way.stays)
                        && !self.unsure.contains(&process)
                    {
                        way.enter(process, origin);
                    }
                    way.make(kernel, process, set)
                }
                Some(_) => way.give(kernel, process, set),
            };
            match result {
                Ok(()) => {
                    groups.insert(process, Group { processors: set.clone(), own: true });
                    refused.forget(process);
                }
                Err(error) => {
                    self.unsure.insert(process);
                    if refused.add(process, set, &error, now) {
                        failures.push(Failure { process, error });
                    } else {
                        debug!(process, "the same again: {error}");
                    }
                }
            }
        }
        self.share_out(kernel, failures, |_, _| default.clone());
        if self.way.by != Enforcement::CgroupV1 {
            self.default = default.clone();
        }
    }

    /// Changes what the default partition and the groups that share it have, where it is a group of ours
    /// (v1).
    fn share_out(
        &mut self,
        kernel: &impl Kernel,
        failures: &mut Vec<Failure>,
        change: impl Fn(u32, &Set) -> Set,
    ) {
        let Self { way, groups, .. } = self;
        if way.by != Enforcement::CgroupV1 {
            return;
        }
        let shared = groups.iter_mut().filter(|(_, group)| !group.own);
        let shared = shared.map(|(&process, group)| (process, way.group(process), &mut group.processors));
        for (process, folder, set) in shared.chain([(0, way.home(), &mut self.default)]) {
            let to = change(process, set);
            if !to.is_empty() && to != *set && note(failures, process, way.set(kernel, &folder, &to)) {
                *set = to;
            }
        }
    }

    /// When to try again what the kernel has refused; [`Self::bring_about`] has said so once.
    pub fn due(&self) -> Option<Duration> {
        self.refused.due()
    }

    /// Is there something for [`Self::tidy`] to do?
    pub fn untidy(&self) -> bool {
        !self.gone.is_empty()
            || !self.way.strays.is_empty()
            || self.ready.iter().any(|process| !self.groups.contains_key(process))
    }

    /// Removes groups that nobody needs, and makes those that somebody will.
    pub fn tidy(&mut self, kernel: &impl Kernel) -> Vec<Failure> {
        let mut failures = Vec::new();
        self.leave_where_they_are(kernel);
        let Self { way, groups, origins, members, .. } = self;
        note(&mut failures, 0, way.clear_strays(kernel));
        self.gone.retain(|&process| {
            let own = groups.get(&process).is_some_and(|group| group.own);
            let origin = origins.get(&process).map(String::as_str);
            let done = !own && note(&mut failures, process, way.dissolve(kernel, process, origin));
            if done {
                groups.remove(&process);
                self.unsure.remove(&process);
                if !members.contains(&process) {
                    origins.remove(&process);
                }
            }
            !done
        });
        self.ready.retain(|&process| {
            let Entry::Vacant(entry) = groups.entry(process) else { return true };
            match way.make_ready(kernel, process, &self.default) {
                Ok(()) => drop(entry.insert_entry(Group { processors: self.default.clone(), own: false })),
                Err(error) => {
                    // Perhaps the group was made.
                    self.unsure.insert(process);
                    // One that has ended meanwhile is no failure: whoever told us of it will say so.
                    if gone(&error) {
                        return false;
                    }
                    failures.push(Failure { process, error });
                }
            }
            true
        });
        failures
    }

    /// A process whose group was changed from outside is made ready again only where it is ours to move.
    fn leave_where_they_are(&mut self, kernel: &impl Kernel) {
        let again = |process: &&u32| self.unsure.contains(process) && !self.groups.contains_key(process);
        let elsewhere = |process: &&u32| {
            self.place(kernel, **process, false).is_ok_and(|place| !matches!(place, Place::Base))
        };
        let left: Vec<u32> = self.ready.iter().filter(again).filter(elsewhere).copied().collect();
        self.ready.retain(|process| !left.contains(process));
    }

    /// Has anybody else changed what we have made? What is found different is forgotten, so that
    /// [`Self::bring_about`] makes it again. How many things were different.
    pub fn audit(&mut self, kernel: &impl Kernel) -> u64 {
        let mut different = 0;
        let way = &self.way;
        let removed = way.by != Enforcement::Affinity
            && way.base != way.mount
            && kernel.read(&way.base.join("cgroup.procs")).is_err_and(|error| gone(&error));
        if removed {
            warn!("the base group was removed, and is made again");
            let home = || way.make_base(kernel).and_then(|()| way.make_group(kernel, &way.home()));
            let made = if way.by == Enforcement::CgroupV1 { home() } else { way.make_base(kernel) };
            if let Err(error) = made {
                warn!("cannot make the base group: {error}");
            }
        }
        let Self { way, groups, gone, unsure, .. } = self;
        groups.retain(|&process, group| {
            if gone.contains(&process) || way.is_so(kernel, process, group) || is_over(kernel, process) {
                return true;
            }
            warn!(process, "its group was changed from outside");
            unsure.insert(process);
            different += 1;
            false
        });
        if way.by == Enforcement::CgroupV1 {
            if way.effective(kernel, &way.home()).is_ok_and(|effective| effective != self.default) {
                warn!("the default partition was changed from outside");
                self.default = Set::new();
                different += 1;
            }
            if let Err(error) = self.gather(kernel) {
                warn!("cannot read the base group: {error}");
            }
        }
        different
    }

    /// Leaves no trace.
    pub fn end(&mut self, kernel: &impl Kernel) -> Vec<Failure> {
        let Ok(all) = self.online(kernel) else { return Vec::new() };
        let mut failures = self.bring_about(kernel, &BTreeMap::new(), &[], &all);
        let mut left = self.tidy(kernel);
        // BOUND: 100 x 2 ms; who dies just now is in its group until it is dead.
        for _ in 0..100 {
            if left.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
            left = self.tidy(kernel);
        }
        failures.extend(left);
        let way = &self.way;
        if way.by == Enforcement::CgroupV1 {
            let home = way.home();
            for member in numbers(&kernel.read(&home.join("cgroup.procs")).unwrap_or_default()) {
                let _ = way.attach(kernel, &way.base, member);
            }
            note(&mut failures, 0, kernel.remove_folder(&home));
        }
        if way.by == Enforcement::CgroupV2 {
            let undo = || way.give_no_more(kernel, &way.base);
            note(&mut failures, 0, undo().or_else(|_| undo()));
        }
        failures
    }
}

/// It has ended: the server will hear of it, if it has not yet.
fn is_over(kernel: &impl Kernel, process: u32) -> bool {
    match kernel.read(Path::new(&format!("/proc/{process}/stat"))) {
        Ok(stat) => stat::fields(&stat).next().is_some_and(|state| "ZX".contains(state)),
        Err(error) => gone(&error),
    }
}
