// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitions in the kernel: the best of three ways to keep programs on their processors and others off them.
//!
//! | way | the partition of process n | the default partition |
//! |---|---|---|
//! | cgroup v2 | group `wakeful-n`, a cpuset partition (`root`) | what the kernel leaves to everybody else |
//! | cgroup v1 | cpuset `wakeful-n` | cpuset `wakeful-default`, into which all processes of the base group are moved |
//! | affinity | the masks of the process's threads | everything: nobody is kept away |
//!
//! What was done is read back, and again once a second ([`Partitions::audit`]), because others can change groups too.
//! Nothing here decides anything: [`Partitions::bring_about`] is told who shall have what, and makes the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use abi::server::Enforcement;
use tracing::{debug, warn};

use crate::config::{self, By};
use crate::kernel::{Kernel, Set, parse, show};

const DEFAULT: &str = "wakeful-default";
const PREFIX: &str = "wakeful-";

/// What the kernel has been told.
#[derive(Debug)]
pub struct Partitions {
    by: Enforcement,
    base: PathBuf,
    default: Set,
    /// By process. Empty: the group exists, and is to go.
    groups: BTreeMap<u32, Set>,
    /// Processes of the base group that cannot be moved.
    immovable: BTreeSet<u32>,
}

/// What could not be done, and is to be tried again.
#[derive(Debug)]
pub struct Failure {
    /// 0: the default partition.
    pub process: u32,
    pub error: io::Error,
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
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
            let (groups, immovable) = Default::default();
            let mut partitions = Self { by, base, default: Set::new(), groups, immovable };
            match partitions.try_begin(kernel) {
                Ok(()) => return Ok(partitions),
                Err(error) => {
                    debug!("not by {by:?}: {error}");
                    reason.get_or_insert(error);
                }
            }
        }
        Err(reason.expect("there is at least one way"))
    }

    fn try_begin(&mut self, kernel: &impl Kernel) -> io::Result<()> {
        match self.by {
            Enforcement::CgroupV2 => {
                let controllers = kernel.read(&self.base.join("cgroup.controllers"))?;
                if !controllers.split_whitespace().any(|name| name == "cpuset") {
                    return Err(invalid("no cpuset controller in cgroup v2; v1 has it, or the kernel has none".into()));
                }
                kernel.write(&self.base.join("cgroup.subtree_control"), "+cpuset")?;
                self.default = self.online(kernel)?;
                // Only a try tells whether this kernel makes partitions here.
                let probe = self.base.join("wakeful-probe");
                let _ = kernel.remove_folder(&probe);
                kernel.make_folder(&probe)?;
                let last = Set::from_iter(self.default.last().copied());
                let tried = if self.default.len() > 1 { self.set(kernel, &probe, &last) } else { Ok(()) };
                kernel.remove_folder(&probe)?;
                tried?;
            }
            Enforcement::CgroupV1 => {
                self.default = self.online(kernel)?;
                let folder = self.base.join(DEFAULT);
                if kernel.read(&folder.join("cpuset.cpus")).is_err() {
                    kernel.make_folder(&folder)?;
                }
                self.set(kernel, &folder, &self.default.clone())?;
                self.gather(kernel)?;
            }
            Enforcement::Affinity => self.default = self.online(kernel)?,
        }
        if self.by != Enforcement::Affinity {
            for name in kernel.list(&self.base)? {
                if let Some(process) = name.strip_prefix(PREFIX).and_then(|number| number.parse().ok()) {
                    let held = self.effective(kernel, &self.base.join(name)).unwrap_or_default();
                    self.groups.insert(process, held);
                }
            }
        }
        Ok(())
    }

    /// The way that works here.
    pub fn by(&self) -> Enforcement {
        self.by
    }

    /// What a process's group has now.
    pub fn held(&self, process: u32) -> Option<&Set> {
        self.groups.get(&process).filter(|held| !held.is_empty())
    }

    /// For the affinity way, which leaves no trace that could be found.
    pub fn assume(&mut self, process: u32, held: Set) {
        if self.by == Enforcement::Affinity {
            self.groups.insert(process, held);
        }
    }

    /// The processors that can be given out.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn online(&self, kernel: &impl Kernel) -> io::Result<Set> {
        let all = match self.by {
            Enforcement::Affinity => {
                let text = kernel.read(Path::new("/sys/devices/system/cpu/online"))?;
                // Our own mask shows what else there is to heed, a cpuset that we are in.
                kernel.set_affinity(0, &parse(&text).ok_or_else(|| invalid(text))?)?;
                kernel.affinity(0)?
            }
            Enforcement::CgroupV1 => self.effective(kernel, &self.base)?,
            // A partition's processors are no longer among the base's.
            Enforcement::CgroupV2 => {
                let mut all = self.effective(kernel, &self.base)?;
                for process in self.groups.keys() {
                    all.extend(self.effective(kernel, &self.group(*process)).unwrap_or_default());
                }
                all
            }
        };
        if all.is_empty() { Err(invalid("the base group has no processors".into())) } else { Ok(all) }
    }

    fn group(&self, process: u32) -> PathBuf {
        self.base.join(format!("{PREFIX}{process}"))
    }

    /// Where processes without a partition are.
    fn home(&self) -> PathBuf {
        if self.by == Enforcement::CgroupV1 { self.base.join(DEFAULT) } else { self.base.clone() }
    }

    fn effective(&self, kernel: &impl Kernel, folder: &Path) -> io::Result<Set> {
        effective(self.by, kernel, folder)
    }

    fn set(&self, kernel: &impl Kernel, folder: &Path, processors: &Set) -> io::Result<()> {
        set(self.by, &self.base, kernel, folder, processors)
    }

    /// Moves the processes of the base group to the default one (v1). Those that are born meanwhile are born there, or found next time.
    fn gather(&mut self, kernel: &impl Kernel) -> io::Result<()> {
        if self.by != Enforcement::CgroupV1 {
            return Ok(());
        }
        let home = self.home().join("cgroup.procs");
        for process in numbers(&kernel.read(&self.base.join("cgroup.procs"))?) {
            if self.immovable.contains(&process) {
                continue;
            }
            // The kernel's own threads are children of its second one.
            let stat = kernel.read(Path::new(&format!("/proc/{process}/stat"))).unwrap_or_default();
            if parent(&stat) == Some(2) || process == 2 || kernel.write(&home, &process.to_string()).is_err() {
                self.immovable.insert(process);
            }
        }
        Ok(())
    }

    /// Makes it so: the processors of each process's partition, and the rest for all others. What fails is tried again next time.
    pub fn bring_about(&mut self, kernel: &impl Kernel, wanted: &BTreeMap<u32, Set>, default: &Set) -> Vec<Failure> {
        let mut failures = Vec::new();
        let mut note = |process, result: io::Result<()>| match result {
            Ok(()) => true,
            Err(error) => {
                failures.push(Failure { process, error });
                false
            }
        };
        let gone: Vec<u32> = self.groups.keys().copied().filter(|process| !wanted.contains_key(process)).collect();
        for &process in &gone {
            // Its processors are free from now on, even if the group stays for a while.
            self.groups.insert(process, Set::new());
        }
        // First whoever loses some, so that nobody shares meanwhile.
        for (&process, held) in &mut self.groups {
            if let Some(set) = wanted.get(&process)
                && !held.is_subset(set)
            {
                let less: Set = held.intersection(set).copied().collect();
                if !less.is_empty() && note(process, apply(self.by, &self.base, kernel, process, &less, true)) {
                    *held = less;
                }
            }
        }
        if self.by == Enforcement::CgroupV1 && self.default != *default {
            let less: Set = self.default.intersection(default).copied().collect();
            let home = self.home();
            if !less.is_empty() && less != self.default && note(0, self.set(kernel, &home, &less)) {
                self.default = less;
            }
        }
        for process in gone {
            if note(process, self.dissolve(kernel, process)) {
                self.groups.remove(&process);
            }
        }
        for (&process, set) in wanted {
            let held = self.groups.get(&process);
            if held != Some(set) {
                let known = held.is_some_and(|held| !held.is_empty());
                if note(process, apply(self.by, &self.base, kernel, process, set, known)) {
                    self.groups.insert(process, set.clone());
                }
            }
        }
        if self.default != *default {
            let home = self.home();
            if self.by != Enforcement::CgroupV1 || note(0, self.set(kernel, &home, default)) {
                self.default = default.clone();
            }
        }
        failures
    }

    /// Ends a group: whoever is left in it goes to the default partition.
    fn dissolve(&self, kernel: &impl Kernel, process: u32) -> io::Result<()> {
        if self.by == Enforcement::Affinity {
            return match set_masks(kernel, process, &self.online(kernel)?) {
                Err(error) if gone(&error) => Ok(()),
                result => result,
            };
        }
        let folder = self.group(process);
        if self.by == Enforcement::CgroupV2 {
            match kernel.write(&folder.join("cpuset.cpus.partition"), "member") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                result => result?,
            }
        }
        let members = match kernel.read(&folder.join("cgroup.procs")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        };
        for member in numbers(&members) {
            match kernel.write(&self.home().join("cgroup.procs"), &member.to_string()) {
                Err(error) if !gone(&error) => return Err(error),
                _ => {}
            }
        }
        kernel.remove_folder(&folder)
    }

    /// Has anybody else changed what we have made? What is found different is forgotten, so that [`Self::bring_about`] makes it again.
    /// How many things were different.
    pub fn audit(&mut self, kernel: &impl Kernel) -> u64 {
        let mut different = 0;
        let processes: Vec<u32> = self.groups.keys().copied().collect();
        for process in processes {
            let held = self.groups[&process].clone();
            if held.is_empty() {
                continue;
            }
            let true_still = match self.by {
                Enforcement::Affinity => kernel.affinity(process).is_ok_and(|mask| mask.is_subset(&held)),
                _ => {
                    let folder = self.group(process);
                    let inside = kernel.read(&folder.join("cgroup.procs"));
                    let kept = self.by == Enforcement::CgroupV1
                        || kernel.read(&folder.join("cpuset.cpus.partition")).is_ok_and(|kind| kind.trim() == "root");
                    kept && self.effective(kernel, &folder).is_ok_and(|effective| effective == held)
                        && inside.is_ok_and(|inside| numbers(&inside).any(|member| member == process))
                }
            };
            if !true_still {
                warn!(process, "its partition was changed from outside");
                self.groups.remove(&process);
                different += 1;
            }
        }
        if self.by == Enforcement::CgroupV1 {
            if self.effective(kernel, &self.home()).is_ok_and(|effective| effective != self.default) {
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
        let mut failures = self.bring_about(kernel, &BTreeMap::new(), &all);
        if self.by == Enforcement::CgroupV1 {
            let home = self.home();
            let members = kernel.read(&home.join("cgroup.procs")).unwrap_or_default();
            for member in numbers(&members) {
                let _ = kernel.write(&self.base.join("cgroup.procs"), &member.to_string());
            }
            if let Err(error) = kernel.remove_folder(&home) {
                failures.push(Failure { process: 0, error });
            }
        }
        failures
    }
}

fn effective(by: Enforcement, kernel: &impl Kernel, folder: &Path) -> io::Result<Set> {
    let file = if by == Enforcement::CgroupV2 { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
    let text = kernel.read(&folder.join(file))?;
    parse(&text).ok_or_else(|| invalid(text))
}

/// Gives a group these processors, and reads back whether it has them.
fn set(by: Enforcement, base: &Path, kernel: &impl Kernel, folder: &Path, processors: &Set) -> io::Result<()> {
    let write = |file: &str, text: &str| kernel.write(&folder.join(file), text);
    if by == Enforcement::CgroupV1 && kernel.read(&folder.join("cpuset.mems"))?.trim().is_empty() {
        let mems = kernel.read(&base.join("cpuset.effective_mems"))?;
        write("cpuset.mems", mems.trim())?;
    }
    write("cpuset.cpus", &show(processors))?;
    if by == Enforcement::CgroupV2 {
        let kind = || kernel.read(&folder.join("cpuset.cpus.partition"));
        if kind()?.trim() != "root" {
            write("cpuset.cpus.partition", "root")?;
        }
        let kind = kind()?;
        if kind.trim() != "root" {
            return Err(invalid(format!("the kernel says of the partition: {}", kind.trim())));
        }
    }
    let effective = effective(by, kernel, folder)?;
    if effective == *processors {
        return Ok(());
    }
    Err(invalid(format!("the kernel gave {} for {}", show(&effective), show(processors))))
}

/// Puts a process onto processors, in a group of its own.
fn apply(
    by: Enforcement,
    base: &Path,
    kernel: &impl Kernel,
    process: u32,
    processors: &Set,
    known: bool,
) -> io::Result<()> {
    if by == Enforcement::Affinity {
        return set_masks(kernel, process, processors);
    }
    let folder = base.join(format!("{PREFIX}{process}"));
    if !known {
        match kernel.make_folder(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    set(by, base, kernel, &folder, processors)?;
    if !known {
        kernel.write(&folder.join("cgroup.procs"), &process.to_string())?;
    }
    Ok(())
}

/// Sets the masks of all threads, and again while there are new ones.
fn set_masks(kernel: &impl Kernel, process: u32, processors: &Set) -> io::Result<()> {
    let folder = PathBuf::from(format!("/proc/{process}/task"));
    let mut done = BTreeSet::new();
    loop {
        let threads: Vec<u32> = kernel.list(&folder)?.iter().filter_map(|name| name.parse().ok()).collect();
        let new: Vec<u32> = threads.into_iter().filter(|&thread| done.insert(thread)).collect();
        if new.is_empty() {
            break;
        }
        for thread in new {
            match kernel.set_affinity(thread, processors) {
                Err(error) if thread == process || !gone(&error) => return Err(error),
                _ => {}
            }
        }
    }
    let mask = kernel.affinity(process)?;
    if mask == *processors { Ok(()) } else { Err(invalid(format!("the kernel gave {}", show(&mask)))) }
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn numbers(text: &str) -> impl Iterator<Item = u32> {
    text.split_whitespace().filter_map(|word| word.parse().ok())
}

/// The fields of /proc/n/stat behind the name, which may contain anything.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

fn parent(stat: &str) -> Option<u32> {
    fields(stat).nth(1)?.parse().ok()
}

/// When a process started, in clock ticks after boot.
pub fn started(stat: &str) -> Option<u64> {
    fields(stat).nth(19)?.parse().ok()
}
