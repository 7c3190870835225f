// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server in a thread over a simulated kernel, and what is asked of it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use daemon::config::By;
use daemon::kernel::{Set, listen};
use daemon::{Config, Server};
use linux::server::{Connection, Demand, Envelope, Error, Refusal, Reply, Request, State};

use crate::simulated::{self, Simulated, V1, V2};

/// Ways, and whether the kernel makes remote partitions.
pub const WORLDS: [(By, bool); 4] =
    [(By::CgroupV2, false), (By::CgroupV2, true), (By::CgroupV1, false), (By::Affinity, false)];

/// A server in a thread of its own.
pub struct Running {
    pub folder: PathBuf,
    stop: File,
    killed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

pub fn config(by: By) -> Config {
    let mut config = Config::default();
    // Tests need not run as root.
    config.access.processors = 1.0;
    config.access.all_processors = 1.0;
    config.access.priority = 100;
    config.enforcement.by = by;
    config.observer.enabled = daemon::config::Enabled::Always(true);
    config.enforcement.v1 = V1.into();
    config.enforcement.v2 = V2.into();
    config
}

pub fn pipe() -> (OwnedFd, File) {
    let mut ends = [0; 2];
    // SAFETY: room for two; both are new and ours.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

impl Running {
    pub fn start(kernel: &Simulated, config: &Config, folder: &Path) -> Self {
        let kernel = kernel.for_another();
        let blocks = folder.join("partitions");
        let _ = std::fs::create_dir(&blocks);
        // A call may fail at the start: whoever supervises it starts it again.
        let start = || {
            let _ = std::fs::remove_file(folder.join("socket"));
            let listener = listen(&folder.join("socket")).unwrap();
            Server::start(kernel.clone(), config.clone(), listener, &blocks)
        };
        let mut server = start().or_else(|_| start()).expect("it starts");
        let (stop, end) = pipe();
        if server.stop_by(&stop).is_err() {
            server.stop_by(&stop).unwrap();
        }
        let thread = std::thread::spawn(move || {
            let _stop = &stop;
            server.run();
        });
        Self { folder: folder.to_owned(), stop: end, killed: kernel.killed, thread }
    }

    pub fn connect(&self) -> Connection {
        Connection::open_at(self.folder.join("socket").to_str().unwrap()).unwrap()
    }

    /// Asks until there is an answer; refusals other than for a failure are answers.
    pub fn ask(&self, request: impl Into<Envelope>) -> Result<State, Refusal> {
        let (request, start) = (request.into(), Instant::now());
        loop {
            match self.connect().ask(request) {
                Ok((state, _)) => return Ok(state),
                Err(Error::Refused(why, _)) if why != Refusal::Failed && why != Refusal::NoProcess => {
                    return Err(why);
                }
                Err(error) => assert!(start.elapsed() < LIMIT, "{error}"),
            }
        }
    }

    /// Of a member.
    pub fn state(&self, process: u32) -> Option<State> {
        let (entries, _) = self.connect().status().ok()?;
        entries.iter().find(|entry| entry.process() == process)?.state().copied()
    }

    pub fn holds(&self, process: u32) -> u32 {
        self.state(process).map_or(0, |state| state.holds)
    }

    /// As kill -9 does.
    pub fn kill(self) {
        self.killed.store(true, Relaxed);
        // So that it wakes up, if it has not.
        let _ = Connection::open_at(self.folder.join("socket").to_str().unwrap());
        assert!(self.thread.join().is_err());
    }

    pub fn stop(mut self) {
        self.stop.write_all(b".").unwrap();
        self.thread.join().unwrap();
    }
}

pub const LIMIT: Duration = Duration::from_secs(120);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process that does nothing until it is dropped.
pub struct Idle(pub Child);

impl Idle {
    pub fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn join(process: u32, priority: u32, least: u32, wanted: u32) -> Envelope {
    Request::Join(Demand::new(priority, least, wanted, wanted)).of(process)
}

pub fn group(process: u32, by: By) -> PathBuf {
    Path::new(if by == By::CgroupV2 { V2 } else { V1 }).join(format!("wakeful-{process}"))
}

/// What the kernel lets a process run on.
pub fn truth(kernel: &Simulated, by: By, process: u32) -> Option<Set> {
    let state = kernel.state.lock().unwrap();
    match by {
        By::Affinity => state.masks.get(&process).cloned().filter(|mask| mask.len() < 4),
        _ => {
            let (mount, name) =
                (Path::new(if by == By::CgroupV2 { V2 } else { V1 }), format!("wakeful-{process}"));
            let is_its =
                |path: &Path| path.starts_with(mount) && path.file_name().is_some_and(|file| *file == *name);
            let (_, group) = state.groups.iter().find(|(path, _)| is_its(path))?;
            if !group.exclusive.is_empty() {
                return (group.root && group.processes.contains(&process)).then(|| group.exclusive.clone());
            }
            let own = by == By::CgroupV2
                || group.cpus.is_disjoint(&state.groups[&Path::new(V1).join("wakeful-default")].cpus);
            let own = own && !group.cpus.is_empty();
            (own && group.processes.contains(&process)).then(|| group.cpus.clone())
        }
    }
}

/// Nothing of ours is left.
pub fn clean(kernel: &Simulated, folder: &Path, by: By) {
    let state = kernel.state.lock().unwrap();
    assert_eq!(state.expedited, "0", "{by:?}");
    // A base group each, and those that the test has made.
    let ours =
        |path: &Path| path.file_name().is_some_and(|name| name.to_str().unwrap().starts_with("wakeful-"));
    let changed = |group: &simulated::Group| {
        group.control && !group.inner || group.marked || !group.exclusive.is_empty()
    };
    for (path, group) in &state.groups {
        assert!(!ours(path) && !changed(group), "{by:?}: {path:?}: {group:?}");
    }
    assert_eq!(std::fs::read_dir(folder.join("partitions")).unwrap().count(), 0, "{by:?}");
}

/// A process of its own asks for an arena, and ends.
pub fn observe(server: &Running) {
    let path = server.folder.join("socket");
    let ask = || Connection::open_at(path.to_str().unwrap())?.ask_for(Request::Observe);
    let child = || {
        let answer = ask();
        match answer {
            Ok((reply, [arena, ..])) => {
                // This image has one.
                reply == Reply::Observed { process: std::process::id() }
                    && arena.is_some()
                    && matches!(ask(), Err(Error::Refused(Refusal::Again, _) | Error::Io(_)))
            }
            Err(Error::Refused(why, _)) => why == Refusal::NoObserver,
            Err(_) => false,
        }
    };
    eventually("an answer", || {
        // SAFETY: the child of this multi-threaded process uses the heap, which glibc's fork keeps usable.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let status = if child() { 0 } else { 1 };
            // SAFETY: a number.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: a child of ours, and a number that lives.
        unsafe { libc::waitpid(process, &mut status, 0) };
        status == 0
    });
}

/// Two programs, a hint, a restart, a death and an end.
pub fn story(kernel: &Simulated, by: By, folder: &Path) {
    let server = Running::start(kernel, &config(by), folder);
    // Two more are observed, or are told that nobody observes; and not any more when they have ended.
    observe(&server);
    observe(&server);
    eventually("nobody is observed", || {
        let state = kernel.state.lock().unwrap();
        state.observed.is_empty() || state.failed == Some("release")
    });
    let remote = kernel.state.lock().unwrap().remote;
    let session = Path::new(V2).join("session");
    let make = || if remote { placed(kernel, &session) } else { Idle::new() };
    let (one, two) = (make(), make());
    assert!(server.ask(join(one.id(), 1, 3, 3)).is_ok());
    eventually("one has three", || server.holds(one.id()) == 3);
    let held = truth(kernel, by, one.id()).unwrap();
    assert_eq!(held.len(), 3);
    assert!(server.ask(join(two.id(), 5, 1, 1)).is_ok());
    eventually("two waits", || {
        server.state(two.id()).is_some_and(|state| state.holds == 0 && state.lacks == 1)
    });
    // A pending higher priority waits for a hint.
    assert_eq!(truth(kernel, by, one.id()), Some(held.clone()));
    assert!(server.ask(Request::Spare(1).of(one.id())).is_ok());
    eventually("two has one", || server.holds(two.id()) == 1 && server.holds(one.id()) == 2);
    let (first, second) = (truth(kernel, by, one.id()).unwrap(), truth(kernel, by, two.id()).unwrap());
    assert!(
        first.is_disjoint(&second) && first.union(&second).copied().collect::<Set>() == held,
        "{first:?} {second:?}"
    );
    // A server that was killed, and another one: nobody notices.
    let generation = server.state(one.id());
    server.kill();
    let server = Running::start(kernel, &config(by), folder);
    eventually("both are members again", || server.holds(one.id()) == 2 && server.holds(two.id()) == 1);
    assert_eq!((truth(kernel, by, one.id()), truth(kernel, by, two.id())), (Some(first), Some(second)));
    if let (Some(before), Some(after)) = (generation, server.state(one.id())) {
        assert_eq!((before.generation, before.spare), (after.generation, after.spare));
    }
    assert!(server.ask(Request::WantBack.of(one.id())).is_ok());
    drop(two);
    eventually("one has three again", || server.holds(one.id()) == 3);
    // Somebody who changed his mind may have left already when he hears that it failed.
    assert!(matches!(server.ask(Request::Leave.of(one.id())), Ok(_) | Err(Refusal::Unknown)));
    eventually("the kernel has it", || truth(kernel, by, one.id()).is_none());
    server.stop();
}

/// A process that is in a group of the administrator's.
pub fn placed(kernel: &Simulated, group: &Path) -> Idle {
    let process = Idle::new();
    let mut state = kernel.state.lock().unwrap();
    state.groups.entry(group.to_owned()).or_default().processes.insert(process.id());
    process
}

pub const NOBODY: u32 = 65534;

pub fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// An ordinary user's process.
pub fn ordinary() -> Idle {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("sleep");
    if is_root() {
        command.uid(NOBODY);
    }
    Idle(command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

/// Does this in a thread of an ordinary user's.
pub fn as_nobody<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let thread = || {
        // SAFETY: plain numbers; the call itself, unlike libc's function of this name, is about this thread
        // alone.
        unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        body()
    };
    std::thread::scope(|scope| scope.spawn(thread).join().unwrap())
}

/// A folder that all may look into.
pub fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}
