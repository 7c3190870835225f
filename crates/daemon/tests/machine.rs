// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `wakefuld` on the machine that this runs on. Tests called `root_` need root; those that need a cpuset hierarchy say so when it is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linux::server::{Connection, Error, Kind, Message, Refusal};

const LIMIT: Duration = Duration::from_secs(120);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A child that does not outlive the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn idle() -> Self {
        Self::start(Command::new("sleep").arg("1000"))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    /// What the kernel lets it run on.
    fn allowed(&self) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        line.trim().to_string()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child of ours that we have not waited for.
        assert_eq!(unsafe { libc::kill(self.id() as i32, signal) }, 0);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder, a configuration, and servers one after the other.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(config: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("config.toml"), config).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wakefuld"));
        command.arg("--config").arg(self.path("config.toml")).arg("--folder").arg(self.path("run"));
        command
    }

    fn server(&self) -> Process {
        let server = Process::start(&mut self.command());
        eventually("the server answers", || self.connect().is_ok());
        server
    }

    fn connect(&self) -> Result<Connection, Error> {
        let mut connection = Connection::open_at(self.path("run/wakefuld").to_str().unwrap())?;
        let mut message = connection.ask(Message::new(Kind::Status))?.0;
        while message.kind != Kind::Summary as u32 {
            message = connection.receive()?.0;
        }
        Ok(connection)
    }
}

fn ask(place: &Place, request: Message) -> Result<Message, Error> {
    let path = place.path("run/wakefuld");
    Ok(Connection::open_at(path.to_str().unwrap())?.ask(request)?.0)
}

fn join(process: u32, count: u32) -> Message {
    Message { process, least: count, wanted: count, most: count, ..Message::new(Kind::Join) }
}

const AFFINITY: &str = "[access]\nprocessors = 1.0\n[enforcement]\nby = \"affinity\"\n";

/// How many processors this test may use at all.
fn several() -> bool {
    let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    if !several {
        println!("skipped: one processor cannot be divided");
    }
    several
}

/// Of a process: seconds of processor time, bytes in memory, open descriptors.
fn usage(process: u32) -> (f64, u64, usize) {
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap();
    let stat = read("stat");
    let ticks = |n: usize| stat.rsplit(')').next().unwrap().split_whitespace().nth(n).unwrap().parse::<f64>().unwrap();
    // SAFETY: a number.
    let second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let pages: u64 = read("statm").split_whitespace().nth(1).unwrap().parse().unwrap();
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    ((ticks(11) + ticks(12)) / second, pages * 4096, files)
}

/// All entries and the summary.
fn status(connection: &mut Connection) -> (Vec<Message>, Message) {
    let mut entries = Vec::new();
    let mut message = connection.ask(Message::new(Kind::Status)).unwrap().0;
    while message.kind != Kind::Summary as u32 {
        entries.push(message);
        message = connection.receive().unwrap().0;
    }
    (entries, message)
}

#[test]
fn a_second_server_says_what_to_do() {
    let place = Place::new(AFFINITY);
    let _first = place.server();
    let second = place.command().output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(125), "{text}");
    assert!(text.contains("runs already") && text.contains("wakeful status") && text.contains("SIGTERM"), "{text}");
    assert!(place.connect().is_ok(), "the first one goes on");
}

#[test]
fn programs_keep_their_processors_while_the_server_is_killed() {
    if !several() {
        return;
    }
    let place = Place::new(AFFINITY);
    let program = Process::idle();
    let all = program.allowed();
    let mut server = place.server();
    let state = ask(&place, join(program.id(), 1)).unwrap();
    assert_eq!(state.holds, 1);
    let own = program.allowed();
    assert_ne!(own, all);
    for _ in 0..if std::env::var_os("WAKEFUL_LONG").is_some() { 100 } else { 5 } {
        server.signal(libc::SIGKILL);
        server.0.wait().unwrap();
        assert_eq!(program.allowed(), own);
        server = place.server();
        let state = ask(&place, Message { process: program.id(), ..Message::new(Kind::WantBack) }).unwrap();
        assert_eq!((state.holds, program.allowed()), (1, own.clone()));
    }
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    assert_eq!(program.allowed(), all, "it gives everything back");
}

/// A generator of its own: the same numbers each time.
fn random() -> impl FnMut() -> u32 {
    let mut seed = 1u64;
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 32) as u32
    }
}

/// Runs this in a thread that is an ordinary user's, if this program is root's.
fn as_nobody<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let thread = || {
        // SAFETY: plain numbers; the call itself, unlike libc's function of this name, is about this thread alone.
        unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        body()
    };
    std::thread::scope(|scope| scope.spawn(thread).join().unwrap())
}

#[test]
fn garbage_is_refused_and_the_others_are_served() {
    let place = Place::new(AFFINITY);
    let (server, idle) = (place.server(), Process::idle());
    let all = idle.allowed();
    let path = place.path("run/wakefuld");
    let open = || Connection::open_at(path.to_str().unwrap());
    let mut random = random();
    let count = if std::env::var_os("WAKEFUL_LONG").is_some() { 1_000_000 } else { 3_000 };
    let began = Instant::now();
    as_nobody(|| {
        let mut sent = 0;
        while sent < count {
            let Ok(connection) = open() else { continue };
            for _ in 0..random() % 32 {
                let mut message = Message::new(Kind::Join);
                match random() % 4 {
                    // Not a message at all.
                    0 => message.magic = random(),
                    // About somebody else's process, if we are nobody.
                    1 => (message.process, message.kind) = (idle.id(), random() % 32),
                    // A process that is not there.
                    2 => (message.process, message.kind) = (0x7000_0000 | random(), 1 + random() % 5),
                    _ => (message.least, message.wanted, message.most) = (u32::MAX - random() % 9, random(), random()),
                }
                message.tag = random();
                sent += 1;
                if connection.send(&message).is_err() {
                    break;
                }
            }
            // It is gone without having read its answers.
        }
    });
    println!("{count} messages in {:.1} s", began.elapsed().as_secs_f64());
    let mut honest = open().unwrap();
    let malformed = honest.ask(Message { kind: Kind::Entry as u32, ..Message::default() });
    assert!(matches!(malformed, Err(Error::Refused(Refusal::Malformed, _))), "{malformed:?}");
    let (entries, _) = status(&mut place.connect().unwrap());
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        assert_eq!((entries.len(), idle.allowed()), (0, all), "{entries:?}");
    }
    // It has sent more than a user may, and is let wait for a while.
    eventually("its connections are closed", || usage(server.id()).2 < 64);
}

#[test]
fn who_does_not_read_is_hung_up_on() {
    let place = Place::new(AFFINITY);
    let _server = place.server();
    let path = place.path("run/wakefuld");
    let deaf = Connection::open_at(path.to_str().unwrap()).unwrap();
    // Until the connection is closed, or its buffers are full; the server must not wait for it.
    for _ in 0..20_000 {
        if deaf.send(&Message::new(Kind::Status)).is_err() {
            break;
        }
        if place.connect().is_err() {
            panic!("the others are not served");
        }
    }
}

/// The processors of the hierarchy at `mount`, if it has the cpuset controller.
fn cpusets(mount: &str, file: &str) -> Option<String> {
    let found = fs::read_to_string(Path::new(mount).join(file)).ok();
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    let found = found.filter(|text| root && (mount.ends_with("cpuset") || text.contains("cpuset")));
    if found.is_none() {
        println!("skipped: no cpusets at {mount}, or not root");
    }
    found
}

/// A control group of this test's own, with all processors.
struct Base(PathBuf);

impl Base {
    fn new(name: &str) -> Self {
        let mount = Path::new("/sys/fs/cgroup/cpuset");
        let base = mount.join(format!("wakeful-test-{}-{name}", std::process::id()));
        fs::create_dir(&base).unwrap();
        for file in ["cpuset.cpus", "cpuset.mems"] {
            fs::write(base.join(file), fs::read_to_string(mount.join(file)).unwrap().trim()).unwrap();
        }
        Self(base)
    }

    fn take(&self, process: &Process) {
        fs::write(self.0.join("cgroup.procs"), process.id().to_string()).unwrap();
    }

    fn place(&self) -> Place {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        Place::new(&format!("[enforcement]\nby = \"cgroup-v1\"\ngroup = \"/{name}\"\n"))
    }

    fn groups(&self) -> usize {
        fs::read_dir(&self.0).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn root_v1_divides_the_processors() {
    if !several() || cpusets("/sys/fs/cgroup/cpuset", "cpuset.cpus").is_none() {
        return;
    }
    let base = Base::new("divides");
    let (program, other) = (Process::idle(), Process::idle());
    base.take(&program);
    base.take(&other);
    let all = program.allowed();
    let place = base.place();
    let mut server = place.server();
    assert_eq!(ask(&place, join(program.id(), 1)).unwrap().holds, 1);
    let (own, rest) = (program.allowed(), other.allowed());
    assert!(own != all && rest != all && own != rest, "{all}: {own} and {rest}");
    // Somebody changes it behind our back.
    let group = base.0.join(format!("wakeful-{}", program.id()));
    fs::write(group.join("cpuset.cpus"), all.as_str()).unwrap();
    eventually("it is set right", || program.allowed() == own);
    fs::write(base.0.join("cgroup.procs"), program.id().to_string()).unwrap();
    eventually("it is taken back", || program.allowed() == own);
    // The server is killed, and another one comes.
    server.signal(libc::SIGKILL);
    server.0.wait().unwrap();
    assert_eq!((program.allowed(), other.allowed()), (own.clone(), rest.clone()));
    server = place.server();
    let state = ask(&place, Message { process: program.id(), ..Message::new(Kind::WantBack) }).unwrap();
    assert_eq!((state.holds, program.allowed(), other.allowed()), (1, own, rest));
    drop(program);
    eventually("its processor is back", || other.allowed() == all);
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    assert_eq!(base.groups(), 0);
    drop(other);
    eventually("the group is empty", || fs::remove_dir(&base.0).is_ok());
}

/// How long from death to the processors being another's; no limit is checked here, because the machine may be busy.
#[test]
fn root_v1_the_dead_give_back() {
    if !several() || cpusets("/sys/fs/cgroup/cpuset", "cpuset.cpus").is_none() {
        return;
    }
    let base = Base::new("dead");
    let other = Process::idle();
    base.take(&other);
    let all = other.allowed();
    let place = base.place();
    let server = place.server();
    let rounds = if std::env::var_os("WAKEFUL_LONG").is_some() { 1_000 } else { 20 };
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..rounds {
        let program = Process::idle();
        base.take(&program);
        assert_eq!(ask(&place, join(program.id(), 1)).unwrap().holds, 1);
        assert_ne!(other.allowed(), all);
        let start = Instant::now();
        program.signal(libc::SIGKILL);
        eventually("its processor is back", || other.allowed() == all);
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("from kill -9 to the processor: median {:?}, greatest {:?}", times[rounds / 2], times[rounds - 1]);
    eventually("no group is left", || base.groups() == 1);
    let files = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count();
    assert!(files < 32, "{files} descriptors are open");
    server.signal(libc::SIGTERM);
    eventually("the server has ended", || base.groups() == 0);
    drop(other);
    eventually("the group is empty", || fs::remove_dir(&base.0).is_ok());
}

/// Programs come, ask for this and that, and die, at random.
#[test]
fn root_v1_a_crowd_leaves_nothing_behind() {
    if !several() || cpusets("/sys/fs/cgroup/cpuset", "cpuset.cpus").is_none() {
        return;
    }
    let base = Base::new("crowd");
    let place = base.place();
    let mut server = place.server();
    let mut watcher = place.connect().unwrap();
    let all = status(&mut watcher).1.ids[0];
    let mut random = random();
    let clients = if std::env::var_os("WAKEFUL_LONG").is_some() { 10_000 } else { 150 };
    let mut programs: Vec<(Process, Connection)> = Vec::new();
    let (mut started, mut messages) = (0, 0u64);
    let (mut warm, began) = ((0.0, 0, 0), Instant::now());
    while started < clients || !programs.is_empty() {
        let which = random() as usize % 16.max(programs.len() + 1);
        if started < clients && which >= programs.len() {
            let program = Process::idle();
            base.take(&program);
            programs.push((program, Connection::open_at(place.path("run/wakefuld").to_str().unwrap()).unwrap()));
            started += 1;
            if started == clients / 10 {
                warm = usage(server.id());
            }
        }
        let Some((program, connection)) = programs.get_mut(which) else { continue };
        let process = program.id();
        let request = match random() % 6 {
            0 | 1 => Message { priority: random() % 4, ..join(process, 1 + random() % 2) },
            2 => Message { process, count: random() % 3, ..Message::new(Kind::Spare) },
            3 => Message { process, ..Message::new(Kind::WantBack) },
            4 => Message { process, ..Message::new(Kind::Leave) },
            _ => {
                // Killed, with or without having hung up; its descriptor is not closed in time either.
                drop(programs.swap_remove(which));
                continue;
            }
        };
        messages += 1;
        match connection.ask(request) {
            Ok(_) | Err(Error::Refused(Refusal::TooMany | Refusal::Unknown | Refusal::NoProcess, _)) => {}
            Err(error) => panic!("{error}"),
        }
        let (entries, summary) = status(&mut watcher);
        messages += 1;
        let mut seen = summary.ids[0];
        assert_ne!(seen, 0, "the default partition has none");
        for entry in &entries {
            // A processor may still be on its way from one to another, but nobody's twice.
            assert_eq!(seen & entry.ids[0], 0, "{entries:?}");
            seen |= entry.ids[0];
        }
        assert_eq!(seen & !all, 0);
    }
    eventually("the server knows that all are gone", || status(&mut watcher).0.is_empty());
    eventually("no group is left", || base.groups() == 1);
    let blocks = || fs::read_dir(place.path("run/partitions")).unwrap().count();
    eventually("no block is left", || blocks() == 0);
    eventually("no descriptor is left", || usage(server.id()).2 <= 32);
    let (seconds, memory, files) = usage(server.id());
    println!(
        "{clients} programs, {messages} messages in {:.1} s: {:.0} us of the server's time each; {files} descriptors; \
         memory {} KiB after a tenth of them, {} KiB at the end",
        began.elapsed().as_secs_f64(),
        seconds * 1e6 / messages as f64,
        warm.1 / 1024,
        memory / 1024,
    );
    // A program that left 100 bytes would show.
    assert!(memory < warm.1 + 512 * 1024 || clients < 1000, "{} bytes, and {memory}", warm.1);
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    eventually("the group is empty", || fs::remove_dir(&base.0).is_ok());
}
