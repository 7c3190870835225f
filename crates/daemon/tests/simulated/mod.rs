// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system that the server sees in tests: sockets, processes and blocks are real, control groups and masks are simulated, on a machine
//! of four processors (two cores). One call, chosen by its number, fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daemon::kernel::{ARENA_SIZE, Arena, Kernel, Life, Linux, Mapped, Peer, Prepared, Set, parse, show};
use daemon::partitions::EXPEDITE;

pub const V1: &str = "/simulated/v1";
pub const V2: &str = "/simulated/v2";

#[derive(Clone, Debug, Default)]
pub struct Group {
    pub cpus: Set,
    pub mems: String,
    pub root: bool,
    pub processes: BTreeSet<u32>,
    /// memory.max
    pub limit: Option<u64>,
    /// It gives controllers to groups below it, and so takes no processes.
    pub inner: bool,
    pub frozen: bool,
    /// As soon as somebody has looked who is in it, it is another process, unless it is frozen.
    pub chain: bool,
    /// cpuset.cpus.exclusive
    pub exclusive: Set,
    pub threaded: bool,
    /// It gives cpusets to groups below it.
    pub control: bool,
    /// See [`Kernel::mark`].
    pub marked: bool,
    /// Somebody else has made it.
    pub foreign: bool,
}

#[derive(Debug, Default)]
pub struct State {
    pub groups: BTreeMap<PathBuf, Group>,
    pub masks: BTreeMap<u32, Set>,
    pub online: Set,
    pub expedited: String,
    /// Files of the machine that tests write.
    pub files: BTreeMap<PathBuf, String>,
    /// A kernel before 6.16.
    pub old: bool,
    /// One with remote partitions.
    pub remote: bool,
    /// The observer's slots that are somebody's.
    pub observed: BTreeSet<u32>,
    /// Calls until the one that fails; 0: none does.
    pub fails_in: u32,
    /// The first call with this name fails.
    pub fails: Option<&'static str>,
    /// The call that has failed.
    pub failed: Option<&'static str>,
    /// How often the server has looked in which groups a process is.
    pub looks: usize,
    /// This process ends as soon as it has a group, before it is in it.
    pub dying: Option<u32>,
    /// These processes use so many hundredths of a processor.
    pub uses: BTreeMap<u32, u64>,
    /// The time that the server sees, if it does not see the real one.
    pub clock: Option<Duration>,
    /// How far that goes with each call, while the server does nothing.
    pub delay: Duration,
}

#[derive(Clone)]
pub struct Simulated {
    pub state: Arc<Mutex<State>>,
    /// This server is to end as if it were killed.
    pub killed: Arc<AtomicBool>,
    real: Arc<Linux>,
    /// Slots that are to have an arena.
    ordered: Arc<Mutex<VecDeque<u32>>>,
}

fn os(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn lives(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

impl Simulated {
    pub fn new() -> Self {
        let online: Set = (0..4).collect();
        let base = Group {
            cpus: online.clone(),
            mems: "0".into(),
            root: true,
            processes: [1, 2].into(),
            ..Group::default()
        };
        let groups = [(V1.into(), base.clone()), (V2.into(), base)].into();
        let state = State { groups, online, expedited: "0".into(), ..State::default() };
        Self {
            state: Arc::new(Mutex::new(state)),
            killed: Arc::default(),
            real: Arc::new(Linux::new().unwrap()),
            ordered: Arc::default(),
        }
    }

    /// The same, as another process sees it.
    pub fn for_another(&self) -> Self {
        Self {
            state: self.state.clone(),
            killed: Arc::default(),
            real: Arc::new(Linux::new().unwrap()),
            ordered: Arc::default(),
        }
    }

    fn call(&self, name: &'static str) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let delay = state.delay;
        if let Some(clock) = &mut state.clock {
            *clock += delay;
        }
        if state.fails == Some(name) {
            state.fails = None;
        } else {
            let before = state.fails_in;
            state.fails_in = before.saturating_sub(1);
            if before != 1 {
                return Ok(());
            }
        }
        state.failed = Some(name);
        // Not one that has a meaning of its own to anybody.
        Err(os(libc::ENOSPC))
    }
}

impl State {
    fn effective(&self, folder: &Path) -> Set {
        let group = &self.groups[folder];
        if !folder.starts_with(V2) {
            return group.cpus.intersection(&self.online).copied().collect();
        }
        let base = folder == Path::new(V2);
        if group.root && !base {
            return self.own(folder).intersection(&self.online).copied().collect();
        }
        self.online.difference(&self.taken_beside(Path::new(""))).copied().collect()
    }

    /// What a partition has been given: from the base group, or by all groups above it.
    fn own(&self, folder: &Path) -> Set {
        if self.groups[folder].exclusive.is_empty() {
            return self.groups[folder].cpus.clone();
        }
        let above = folder.ancestors().take_while(|path| *path != Path::new(V2));
        let sets = above.map(|path| self.groups[path].exclusive.clone());
        sets.reduce(|one, other| &one & &other).unwrap_or_default()
    }

    /// What partitions have, but for this one.
    fn taken_beside(&self, folder: &Path) -> Set {
        let below = |path: &Path| path.starts_with(V2) && path != Path::new(V2) && path != folder;
        let partitions = self.groups.iter().filter(|(path, other)| other.root && below(path));
        partitions.flat_map(|(path, _)| self.own(path)).collect()
    }

    /// Remote partitions that do not have what was written into them are none.
    fn check(&mut self) {
        let paths: Vec<PathBuf> = self.groups.keys().cloned().collect();
        for path in paths {
            let group = &self.groups[&path];
            if group.root && !group.exclusive.is_empty() && self.own(&path) != group.exclusive {
                self.groups.get_mut(&path).unwrap().root = false;
            }
        }
    }

    fn has_threaded_children(&self, folder: &Path) -> bool {
        self.groups.iter().any(|(path, group)| group.threaded && path.parent() == Some(folder))
    }

    fn read(&self, file: &Path, now: Duration) -> io::Result<String> {
        let (folder, name) = (file.parent().unwrap(), file.file_name().unwrap().to_str().unwrap());
        let group = self.groups.get(folder).ok_or(os(libc::ENOENT))?;
        Ok(match name {
            "cgroup.controllers" => "cpuset cpu".into(),
            "cgroup.subtree_control" => if group.control { "cpuset\n" } else { "\n" }.into(),
            "cgroup.type" if group.threaded => "threaded\n".into(),
            "cgroup.type" if self.has_threaded_children(folder) => "domain threaded\n".into(),
            "cgroup.type" => "domain\n".into(),
            "cpuset.cpus.exclusive" if self.remote => show(&group.exclusive) + "\n",
            "cgroup.procs" if group.threaded => return Err(os(libc::EOPNOTSUPP)),
            "memory.max" => group.limit.map_or("max\n".into(), |limit| format!("{limit}\n")),
            "cpuset.cpus" => show(&group.cpus),
            "cpuset.mems" => group.mems.clone(),
            "cpuset.effective_mems" => "0\n".into(),
            "cpuset.effective_cpus" | "cpuset.cpus.effective" => show(&self.effective(folder)) + "\n",
            "cpuset.cpus.partition" => if group.root { "root\n" } else { "member\n" }.into(),
            "cgroup.procs" if group.chain && !group.frozen => "4194303\n".into(),
            "cpu.stat" => {
                let used = group.processes.iter().filter_map(|process| self.uses.get(process)).sum::<u64>();
                format!("usage_usec {}\nuser_usec 0\n", used * now.as_millis() as u64 * 10)
            }
            "cgroup.procs" | "cgroup.threads" => {
                group.processes.iter().filter(|&&p| lives(p)).map(|p| format!("{p}\n")).collect()
            }
            _ => return Err(os(libc::ENOENT)),
        })
    }

    /// The groups in this one have no cpusets of their own any more.
    fn take_cpusets(&mut self, folder: &Path) -> io::Result<()> {
        let inner = |path: &Path| path.parent() == Some(folder);
        if self.groups.iter().any(|(path, child)| inner(path) && child.control) {
            return Err(os(libc::EBUSY));
        }
        self.groups.get_mut(folder).unwrap().control = false;
        for (_, child) in self.groups.iter_mut().filter(|(path, _)| inner(path)) {
            (child.root, child.exclusive) = (false, Set::new());
        }
        Ok(())
    }

    fn write(&mut self, file: &Path, text: &str) -> io::Result<()> {
        let (folder, name) = (file.parent().unwrap(), file.file_name().unwrap().to_str().unwrap());
        let v2 = folder.starts_with(V2);
        if !self.groups.contains_key(folder) {
            return Err(os(libc::ENOENT));
        }
        match name {
            "cgroup.subtree_control" if text == "-cpuset" => self.take_cpusets(folder)?,
            "cgroup.subtree_control" => {
                let base = folder == Path::new(V2);
                if !base && !self.groups[folder].processes.is_empty() && !self.has_threaded_children(folder) {
                    return Err(os(libc::EBUSY));
                }
                self.groups.get_mut(folder).unwrap().control = true;
            }
            "cgroup.type" if text == "threaded" => self.groups.get_mut(folder).unwrap().threaded = true,
            "cpuset.cpus.exclusive" if self.remote => {
                let above = folder.parent().unwrap();
                if !self.groups[above].control {
                    return Err(os(libc::ENOENT));
                }
                let set = parse(text).ok_or(os(libc::EINVAL))?;
                let beside = |path: &Path| path != folder && path.parent() == Some(above);
                let clash = |other: &Group| {
                    !other.exclusive.is_disjoint(&set) || other.root && !other.cpus.is_disjoint(&set)
                };
                if self.groups.iter().any(|(path, other)| beside(path) && clash(other)) {
                    return Err(os(libc::EINVAL));
                }
                self.groups.get_mut(folder).unwrap().exclusive = set;
                self.check();
            }
            "cgroup.freeze" if v2 => self.groups.get_mut(folder).unwrap().frozen = text == "1",
            "cpuset.mems" => self.groups.get_mut(folder).unwrap().mems = text.into(),
            "cpuset.cpus" => {
                let cpus = parse(text).ok_or(os(libc::EINVAL))?;
                // Partitions do not overlap.
                let clash = v2
                    && self.groups.iter().any(|(path, other)| {
                        path != folder
                            && path.parent() == Some(Path::new(V2))
                            && other.root
                            && !other.cpus.is_disjoint(&cpus)
                    });
                if !v2 && cpus.is_empty() && !self.groups[folder].processes.is_empty() || clash {
                    return Err(os(libc::EINVAL));
                }
                self.groups.get_mut(folder).unwrap().cpus = cpus;
            }
            "cpuset.cpus.partition" => {
                let (own, taken) = (self.own(folder), self.taken_beside(folder));
                let left = self.online.difference(&taken).filter(|number| !own.contains(number)).count();
                let local = self.groups[folder].exclusive.is_empty();
                let right = local
                    || !own.is_empty() && own.is_disjoint(&taken) && own == self.groups[folder].exclusive;
                self.groups.get_mut(folder).unwrap().root = text == "root" && left > 0 && right;
            }
            "cgroup.procs" => {
                let process: u32 = text.parse().map_err(|_| os(libc::EINVAL))?;
                if !lives(process) {
                    return Err(os(libc::ESRCH));
                }
                // Who is given controllers has no processes, unless it is a threaded domain.
                let bare = self.groups[folder].control
                    && folder != Path::new(V2)
                    && !self.has_threaded_children(folder);
                if self.groups[folder].inner || bare {
                    return Err(os(libc::EBUSY));
                }
                if !v2 && (self.groups[folder].cpus.is_empty() || self.groups[folder].mems.is_empty()) {
                    return Err(os(libc::ENOSPC));
                }
                let mount = if v2 { V2 } else { V1 };
                for (_, other) in self.groups.iter_mut().filter(|(path, _)| path.starts_with(mount)) {
                    other.processes.remove(&process);
                }
                self.groups.get_mut(folder).unwrap().processes.insert(process);
            }
            _ => return Err(os(libc::EACCES)),
        }
        Ok(())
    }
}

fn simulated(path: &Path) -> bool {
    path.starts_with("/simulated")
}

impl Kernel for Simulated {
    fn accept(&self, listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        self.call("accept")?;
        self.real.accept(listener)
    }

    fn peer(&self, connection: BorrowedFd<'_>) -> io::Result<Peer> {
        self.call("peer")?;
        self.real.peer(connection)
    }

    fn peer_pidfd(&self, connection: BorrowedFd<'_>, process: u32) -> io::Result<OwnedFd> {
        self.call("peer_pidfd")?;
        self.real.peer_pidfd(connection, process)
    }

    fn at_home(&self, process: u32) -> io::Result<bool> {
        self.real.at_home(process)
    }

    fn image(&self, process: u32) -> io::Result<u64> {
        self.call("image")?;
        self.real.image(process)
    }

    fn bar_descriptors(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        self.call("bar_descriptors")?;
        if self.state.lock().unwrap().old {
            return Err(os(libc::ENOPROTOOPT));
        }
        self.real.bar_descriptors(listener)
    }

    fn carries_descriptors(&self, connection: BorrowedFd<'_>) -> bool {
        self.real.carries_descriptors(connection)
    }

    fn is_laden(&self, connection: BorrowedFd<'_>) -> io::Result<bool> {
        self.call("is_laden")?;
        self.real.is_laden(connection)
    }

    fn receive(&self, connection: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        self.call("receive")?;
        self.real.receive(connection, into)
    }

    fn send(&self, connection: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.call("send")?;
        self.real.send(connection, packet, fds)
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.call("watch")?;
        self.real.watch(fd, token)
    }

    fn unwatch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.call("unwatch")?;
        self.real.unwatch(fd)
    }

    fn wait(&self, tokens: &mut Vec<u64>, limit: Duration) -> io::Result<()> {
        self.call("wait")?;
        let result = self.real.wait(tokens, limit);
        if self.killed.load(Relaxed) {
            // Without a word.
            std::panic::resume_unwind(Box::new(()));
        }
        result
    }

    fn pidfd(&self, process: u32) -> io::Result<OwnedFd> {
        self.call("pidfd")?;
        self.real.pidfd(process)
    }

    fn user(&self, pidfd: BorrowedFd<'_>, process: u32) -> io::Result<u32> {
        self.call("user")?;
        self.real.user(pidfd, process)
    }

    fn ended(&self, pidfd: BorrowedFd<'_>) -> io::Result<bool> {
        self.call("ended")?;
        self.real.ended(pidfd)
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        self.call("read")?;
        if simulated(file) {
            return self.state.lock().unwrap().read(file, self.real.now());
        }
        if file == Path::new(EXPEDITE) {
            return Ok(self.state.lock().unwrap().expedited.clone() + "\n");
        }
        if file.starts_with("/etc") {
            return self.state.lock().unwrap().files.get(file).cloned().ok_or(os(libc::ENOENT));
        }
        if let Some(process) =
            file.strip_prefix("/proc").ok().and_then(|file| file.parent()?.to_str()?.parse().ok())
            && file.ends_with("cgroup")
        {
            let mut state = self.state.lock().unwrap();
            state.looks += 1;
            let of = |mount: &str| {
                let group = state
                    .groups
                    .iter()
                    .find(|(path, group)| path.starts_with(mount) && group.processes.contains(&process));
                let path = group.and_then(|(path, _)| path.strip_prefix(mount).ok()).unwrap_or(Path::new(""));
                format!("/{}", path.display())
            };
            return Ok(format!("2:cpu:/elsewhere\n1:cpuset:{}\n0::{}\n", of(V1), of(V2)));
        }
        let process = file.parent().and_then(|folder| folder.file_name()?.to_str()?.parse().ok());
        if let Some(process) = process
            && file.ends_with("stat")
            && let Some(&hundredths) = self.state.lock().unwrap().uses.get(&process)
        {
            // A hundredth of a second is a tick.
            let ticks = hundredths * self.real.now().as_millis() as u64 / 1000;
            let stat = self.real.read(file)?;
            let (name, rest) = stat.rsplit_once(')').unwrap();
            let mut fields: Vec<_> = rest.split_whitespace().map(str::to_owned).collect();
            fields[11] = ticks.to_string();
            return Ok(format!("{name}) {}", fields.join(" ")));
        }
        match file.strip_prefix("/sys/devices/system/cpu") {
            Ok(rest) if rest == Path::new("online") => Ok(show(&self.state.lock().unwrap().online)),
            Ok(rest) => {
                Ok(if rest.starts_with("cpu0") || rest.starts_with("cpu1") { "0-1" } else { "2-3" }.into())
            }
            Err(_) => self.real.read(file),
        }
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        self.call("write")?;
        if file == Path::new(EXPEDITE) {
            self.state.lock().unwrap().expedited = text.into();
            return Ok(());
        }
        assert!(simulated(file), "the server writes to {}", file.display());
        self.state.lock().unwrap().write(file, text)
    }

    fn write_as_administrator(&self, file: &Path, text: &str) -> io::Result<()> {
        self.write(file, text)
    }

    fn mark(&self, group: &Path, changed: bool) -> io::Result<()> {
        self.call("mark")?;
        let mut state = self.state.lock().unwrap();
        state.groups.get_mut(group).ok_or(os(libc::ENOENT))?.marked = changed;
        Ok(())
    }

    fn is_marked(&self, group: &Path) -> io::Result<bool> {
        self.call("is_marked")?;
        Ok(self.state.lock().unwrap().groups.get(group).ok_or(os(libc::ENOENT))?.marked)
    }

    fn folders(&self, folder: &Path) -> io::Result<Vec<(String, bool)>> {
        self.call("folders")?;
        let state = self.state.lock().unwrap();
        let inner = state.groups.iter().filter(|(path, _)| path.parent() == Some(folder));
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
        Ok(inner.map(|(path, group)| (name(path), !group.foreign)).collect())
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        self.call("make_folder")?;
        let mut state = self.state.lock().unwrap();
        if folder.parent().is_none_or(|parent| !state.groups.contains_key(parent)) {
            return Err(os(libc::ENOENT));
        }
        if let Some(process) = state.dying.take_if(|process| folder.ends_with(format!("wakeful-{process}"))) {
            // SAFETY: plain numbers, of a child of the test.
            unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
            while lives(process) {
                std::thread::yield_now();
            }
        }
        match state.groups.insert(folder.into(), Group::default()) {
            None => Ok(()),
            Some(there) => {
                state.groups.insert(folder.into(), there);
                Err(os(libc::EEXIST))
            }
        }
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.call("remove_folder")?;
        let mut state = self.state.lock().unwrap();
        match state.groups.get(folder) {
            None => Err(os(libc::ENOENT)),
            Some(_) if state.groups.keys().any(|path| path.parent() == Some(folder)) => Err(os(libc::EBUSY)),
            Some(group) if group.processes.iter().any(|&process| lives(process)) => Err(os(libc::EBUSY)),
            Some(_) => {
                state.groups.remove(folder);
                Ok(())
            }
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.call("list")?;
        if folder == Path::new("/sys/devices/system/cpu") {
            return Ok((0..4).map(|number| format!("cpu{number}")).collect());
        }
        if folder.starts_with("/sys/devices/system/cpu") {
            return Ok(vec!["node0".into()]);
        }
        if !simulated(folder) {
            return self.real.list(folder);
        }
        let state = self.state.lock().unwrap();
        let inner = state.groups.keys().filter(|path| path.parent() == Some(folder));
        Ok(inner.map(|path| path.file_name().unwrap().to_str().unwrap().to_string()).collect())
    }

    fn make_block(&self, file: &Path) -> io::Result<Mapped> {
        self.call("make_block")?;
        self.real.make_block(file)
    }

    fn open_block(&self, file: &Path) -> io::Result<Mapped> {
        self.call("open_block")?;
        self.real.open_block(file)
    }

    fn remove_file(&self, file: &Path) -> io::Result<()> {
        self.call("remove_file")?;
        self.real.remove_file(file)
    }

    fn set_affinity(&self, thread: u32, processors: &Set) -> io::Result<()> {
        self.call("set_affinity")?;
        if thread == 0 {
            return Ok(());
        }
        if !lives(thread) {
            return Err(os(libc::ESRCH));
        }
        self.state.lock().unwrap().masks.insert(thread, processors.clone());
        Ok(())
    }

    fn affinity(&self, thread: u32) -> io::Result<Set> {
        self.call("affinity")?;
        let state = self.state.lock().unwrap();
        Ok(state.masks.get(&thread).unwrap_or(&state.online).clone())
    }

    fn load_observer(&self) -> io::Result<()> {
        self.call("load_observer")?;
        self.state.lock().unwrap().observed.clear();
        Ok(())
    }

    fn prepare(&self, slot: u32) -> io::Result<()> {
        self.call("prepare")?;
        self.ordered.lock().unwrap().push_back(slot);
        Ok(())
    }

    fn prepared(&self) -> io::Result<Option<Prepared>> {
        self.call("prepared")?;
        let Some(slot) = self.ordered.lock().unwrap().pop_front() else { return Ok(None) };
        let make = || {
            self.call("prepared later")?;
            let file = tempfile::tempfile()?;
            file.set_len(ARENA_SIZE as u64)?;
            let arena = OwnedFd::from(file);
            Ok((Arena::map(arena.as_fd(), slot)?, [arena, std::fs::File::open("/dev/null")?.into()]))
        };
        Ok(Some(Prepared { slot, arena: make() }))
    }

    fn admit(&self, _: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
        self.call("admit")?;
        self.state.lock().unwrap().observed.insert(slot);
        Ok(())
    }

    fn release(&self, slot: u32) -> io::Result<()> {
        self.call("release")?;
        self.state.lock().unwrap().observed.remove(&slot);
        Ok(())
    }

    fn exists(&self, arena: u32) -> io::Result<bool> {
        self.call("exists")?;
        Ok(self.state.lock().unwrap().observed.contains(&arena))
    }

    fn live(&self, file: &Path) -> io::Result<Life> {
        self.call("live")?;
        self.real.live(file)
    }

    fn now(&self) -> Duration {
        self.state.lock().unwrap().clock.unwrap_or_else(|| self.real.now())
    }

    fn worked(&self) -> Duration {
        self.real.worked()
    }
}
