// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server over a simulated kernel: what it does for its clients, and what becomes of them when something goes wrong.

mod simulated;

use std::collections::BTreeSet;
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
use linux::server::{Connection, Error, Kind, Message, Refusal};
use simulated::{Simulated, V1, V2};

const WAYS: [By; 3] = [By::CgroupV2, By::CgroupV1, By::Affinity];

/// A server in a thread of its own.
struct Running {
    folder: PathBuf,
    stop: File,
    killed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn config(by: By) -> Config {
    let mut config = Config::default();
    // Tests need not run as root.
    config.access.processors = 1.0;
    config.access.priority = 100;
    config.enforcement.by = by;
    config.enforcement.v1 = V1.into();
    config.enforcement.v2 = V2.into();
    config
}

fn pipe() -> (OwnedFd, File) {
    let mut ends = [0; 2];
    // SAFETY: room for two; both are new and ours.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

impl Running {
    fn start(kernel: &Simulated, config: &Config, folder: &Path) -> Self {
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

    fn connect(&self) -> Connection {
        Connection::open_at(self.folder.join("socket").to_str().unwrap()).unwrap()
    }

    /// Asks until there is an answer; refusals other than for a failure are answers.
    fn ask(&self, request: Message) -> Result<Message, Refusal> {
        let start = Instant::now();
        loop {
            match self.connect().ask(request) {
                Ok((state, _)) => return Ok(state),
                Err(Error::Refused(why, _)) if why != Refusal::Failed && why != Refusal::NoProcess => return Err(why),
                Err(error) => assert!(start.elapsed() < LIMIT, "{error}"),
            }
        }
    }

    fn state(&self, process: u32) -> Option<Message> {
        let mut connection = self.connect();
        let mut message = connection.ask(Message::new(Kind::Status)).ok()?.0;
        let mut found = None;
        while message.kind == Kind::Entry as u32 {
            if message.process == process {
                found = Some(message);
            }
            message = connection.receive().ok()?.0;
        }
        found
    }

    fn holds(&self, process: u32) -> u32 {
        self.state(process).map_or(0, |state| state.holds)
    }

    /// As kill -9 does.
    fn kill(self) {
        self.killed.store(true, Relaxed);
        // So that it wakes up, if it has not.
        let _ = Connection::open_at(self.folder.join("socket").to_str().unwrap());
        assert!(self.thread.join().is_err());
    }

    fn stop(mut self) {
        self.stop.write_all(b".").unwrap();
        self.thread.join().unwrap();
    }
}

const LIMIT: Duration = Duration::from_secs(120);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process that does nothing until it is dropped.
struct Idle(Child);

impl Idle {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn join(process: u32, priority: u32, least: u32, wanted: u32) -> Message {
    Message { process, priority, least, wanted, most: wanted, ..Message::new(Kind::Join) }
}

fn of(process: u32, kind: Kind, count: u32) -> Message {
    Message { process, count, ..Message::new(kind) }
}

fn group(process: u32, by: By) -> PathBuf {
    Path::new(if by == By::CgroupV2 { V2 } else { V1 }).join(format!("wakeful-{process}"))
}

/// What the kernel lets a process run on.
fn truth(kernel: &Simulated, by: By, process: u32) -> Option<Set> {
    let state = kernel.state.lock().unwrap();
    match by {
        By::Affinity => state.masks.get(&process).cloned().filter(|mask| mask.len() < 4),
        _ => {
            let group = state.groups.get(&group(process, by))?;
            let own = by == By::CgroupV2
                || group.cpus.is_disjoint(&state.groups[&Path::new(V1).join("wakeful-default")].cpus);
            let own = own && !group.cpus.is_empty();
            (own && group.processes.contains(&process)).then(|| group.cpus.clone())
        }
    }
}

/// Nothing of ours is left.
fn clean(kernel: &Simulated, folder: &Path, by: By) {
    let state = kernel.state.lock().unwrap();
    assert!(!state.expedited, "{by:?}");
    assert_eq!(state.groups.len(), 2, "{by:?}: {:?}", state.groups);
    assert_eq!(std::fs::read_dir(folder.join("partitions")).unwrap().count(), 0, "{by:?}");
}

/// A process of its own asks for an arena, and ends.
fn observe(server: &Running) {
    let path = server.folder.join("socket");
    let ask = || Connection::open_at(path.to_str().unwrap())?.ask(Message::new(Kind::Observe));
    let child = || {
        let answer = ask();
        match answer {
            Ok((answer, arena)) => {
                let right = answer.kind == Kind::Observed as u32 && answer.process == std::process::id();
                // This image has one.
                right && arena.is_some() && matches!(ask(), Err(Error::Refused(Refusal::Again, _) | Error::Io(_)))
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
fn story(kernel: &Simulated, by: By, folder: &Path) {
    let server = Running::start(kernel, &config(by), folder);
    // Two more are observed, or are told that nobody observes; and not any more when they have ended.
    observe(&server);
    observe(&server);
    eventually("nobody is observed", || {
        let state = kernel.state.lock().unwrap();
        state.observed.is_empty() || state.failed == Some("release")
    });
    let (one, two) = (Idle::new(), Idle::new());
    assert!(server.ask(join(one.id(), 1, 3, 3)).is_ok());
    eventually("one has three", || server.holds(one.id()) == 3);
    let held = truth(kernel, by, one.id()).unwrap();
    assert_eq!(held.len(), 3);
    assert!(server.ask(join(two.id(), 5, 1, 1)).is_ok());
    eventually("two waits", || server.state(two.id()).is_some_and(|state| state.holds == 0 && state.lacks == 1));
    // A pending higher priority waits for a hint.
    assert_eq!(truth(kernel, by, one.id()), Some(held.clone()));
    assert!(server.ask(of(one.id(), Kind::Spare, 1)).is_ok());
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
        assert_eq!((before.generation, before.count), (after.generation, after.count));
    }
    assert!(server.ask(of(one.id(), Kind::WantBack, 0)).is_ok());
    drop(two);
    eventually("one has three again", || server.holds(one.id()) == 3);
    // Somebody who changed his mind may have left already when he hears that it failed.
    assert!(matches!(server.ask(of(one.id(), Kind::Leave, 0)), Ok(_) | Err(Refusal::Unknown)));
    eventually("the kernel has it", || truth(kernel, by, one.id()).is_none());
    server.stop();
}

#[test]
fn each_way_does_what_it_should() {
    for by in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        story(&kernel, by, folder.path());
        clean(&kernel, folder.path(), by);
    }
}

/// A process that is in a group of the administrator's.
fn placed(kernel: &Simulated, group: &Path) -> Idle {
    let process = Idle::new();
    let mut state = kernel.state.lock().unwrap();
    state.groups.entry(group.to_owned()).or_default().processes.insert(process.id());
    process
}

#[test]
fn who_is_taken_from_a_group_goes_back_there() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Simulated::new();
    let session = Path::new(V2).join("user.slice/session");
    let is_in =
        |group: &Path, process: &Idle| kernel.state.lock().unwrap().groups[group].processes.contains(&process.id());
    let (one, two) = (placed(&kernel, &session), placed(&kernel, &session));
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    assert_eq!(server.ask(join(one.id(), 0, 1, 1)).unwrap().holds, 1);
    assert_eq!(server.ask(join(two.id(), 0, 1, 1)).unwrap().holds, 1);
    assert!(is_in(&group(one.id(), By::CgroupV2), &one) && is_in(&group(two.id(), By::CgroupV2), &two));
    // Another server knows it too.
    server.kill();
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    assert_eq!(server.holds(one.id()), 1);
    server.stop();
    assert!(is_in(&session, &one) && is_in(&session, &two));
    // A group that is gone meanwhile.
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    assert_eq!(server.ask(join(one.id(), 0, 1, 1)).unwrap().holds, 1);
    kernel.state.lock().unwrap().groups.remove(&session);
    server.stop();
    assert!(is_in(Path::new(V2), &one));
}

#[test]
fn who_is_in_a_group_of_others_stays_there() {
    for (by, mount) in [(By::CgroupV1, V1), (By::CgroupV2, V2)] {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        let (base, container) = (Path::new(mount).join("base"), Path::new(mount).join("container"));
        let whole = kernel.state.lock().unwrap().groups[Path::new(mount)].clone();
        for group in [&base, &base.join("inner"), &container, &Path::new(mount).join("based")] {
            let mut made = if by == By::CgroupV1 { whole.clone() } else { Default::default() };
            made.processes.clear();
            kernel.state.lock().unwrap().groups.insert(group.clone(), made);
        }
        let mut config = config(by);
        config.enforcement.group = "/base".into();
        let server = Running::start(&kernel, &config, folder.path());
        let outside = [container, Path::new(mount).join("based"), mount.into()].map(|group| placed(&kernel, &group));
        for process in &outside {
            assert_eq!(server.ask(join(process.id(), 0, 1, 1)), Err(Refusal::Elsewhere), "{by:?}");
        }
        assert!(server.ask(join(placed(&kernel, &base).id(), 0, 1, 1)).is_ok(), "{by:?}");
        let inner = placed(&kernel, &base.join("inner"));
        assert_eq!(server.ask(join(inner.id(), 0, 1, 1)).is_ok(), by == By::CgroupV2);
        server.stop();
    }
}

/// Each call of the story fails once. The server lives, and all comes to be as without the failure.
#[test]
fn each_call_may_fail() {
    let mut failed = BTreeSet::new();
    for by in WAYS {
        for number in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let kernel = Simulated::new();
            kernel.state.lock().unwrap().fails_in = number;
            story(&kernel, by, folder.path());
            let Some(name) = kernel.state.lock().unwrap().failed else { break };
            failed.insert(name);
        }
    }
    let all = [
        "accept",
        "admit",
        "affinity",
        "exists",
        "list",
        "live",
        "load_observer",
        "make_block",
        "make_folder",
        "open_block",
        "peer",
        "pidfd",
        "prepare",
        "prepared",
        "prepared later",
        "read",
        "receive",
        "release",
        "remove_file",
        "remove_folder",
        "send",
        "set_affinity",
        "unwatch",
        "wait",
        "watch",
        "write",
    ];
    assert_eq!(failed.into_iter().collect::<Vec<_>>(), all);
}

/// Who has died, but is not yet known to have, cannot be moved into its group.
#[test]
fn a_group_that_was_not_finished_is_removed() {
    for by in [By::CgroupV2, By::CgroupV1] {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        let server = Running::start(&kernel, &config(by), folder.path());
        let mut dead = Idle::new();
        dead.0.kill().unwrap();
        eventually("it is a zombie", || {
            std::fs::read_to_string(format!("/proc/{}/stat", dead.id())).unwrap().contains(") Z ")
        });
        // It may be known already.
        let _ = server.connect().ask(join(dead.id(), 1, 1, 1));
        eventually("it is no member", || server.state(dead.id()).is_none());
        let left = || kernel.state.lock().unwrap().groups.contains_key(&group(dead.id(), by));
        eventually("its group is gone", || !left());
        server.stop();
        clean(&kernel, folder.path(), by);
    }
}
