// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Server::turn`] over a kernel without a clock or sockets, of which each call may fail, and each text be
//! nonsense: whatever clients and kernel do, the server goes on, no processor is given twice, and the floor
//! and the limits are kept.

#[path = "common/damage.rs"]
mod damage;
#[allow(dead_code, reason = "tests/server.rs has this file too")]
mod simulated;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abi::server::{Answer, Demand, Envelope, Refusal, Reply, Request};
use daemon::config::By;
use daemon::kernel::{Kernel, Life, Mapped, Peer, Prepared, Set};
use daemon::{Config, Server};
use damage::damaged;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, RngSeed, TestRunner};
use simulated::{Simulated, V1, V2};

/// What a connection's other end has said.
#[derive(Default)]
struct Client {
    process: u32,
    user: u32,
    inbox: VecDeque<Vec<u8>>,
    closed: bool,
}

#[derive(Default)]
struct World {
    seed: u64,
    /// Of 256 calls, so many go wrong.
    rate: u64,
    now: Duration,
    coming: VecDeque<(u32, u32)>,
    /// By descriptor.
    clients: BTreeMap<i32, Client>,
    tokens: HashMap<i32, u64>,
    pidfds: HashMap<i32, u32>,
    listener: i32,
    users: HashMap<u32, u32>,
    dead: BTreeSet<u32>,
    /// Answers to `Status`, whole ones.
    summaries: u32,
    /// Processes whose numbers were written into groups of partitions.
    moved: Vec<u32>,
    /// Files that cannot be written to or removed, by the end of their names; and how often that was tried.
    stuck: Option<(&'static str, u32)>,
    /// Each process goes on with the image that it has.
    one_image: bool,
    /// This process ends when the server looks what it executes.
    dying: Option<u32>,
    /// Why the server has refused something.
    refused: Vec<Refusal>,
    /// What sends an arena fails: the program has closed its connection.
    deaf: bool,
    /// The arenas that were sent.
    arenas: Vec<OwnedFd>,
    /// The server ends, as if it were killed, when it first watches a process.
    fatal: bool,
}

#[derive(Clone)]
struct Nonsense {
    inner: Simulated,
    world: Arc<Mutex<World>>,
}

const ERRORS: [i32; 9] = {
    use libc::*;
    [EIO, ENOENT, ESRCH, EINVAL, EBUSY, EMFILE, EPERM, EINTR, EAGAIN]
};

const TEXTS: [&str; 10] = [
    "",
    "\n",
    "0-99999999999",
    "-1",
    "3-1,,",
    "\u{fffd}\0) R 1 1",
    "0::/../..\n1:cpuset:/wakeful-\n",
    "18446744073709551616 ",
    "0-1023\n",
    "1:cpuset:/wakeful-default/x\n0::/wakeful-4294967296\n",
];

impl Nonsense {
    fn next(&self) -> u64 {
        let mut world = self.world.lock().unwrap();
        world.seed =
            world.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        world.seed >> 33
    }

    fn wrong(&self) -> bool {
        let rate = self.world.lock().unwrap().rate;
        rate > 0 && self.next() % 256 < rate
    }

    fn call(&self) -> io::Result<()> {
        if self.wrong() {
            return Err(io::Error::from_raw_os_error(ERRORS[self.next() as usize % ERRORS.len()]));
        }
        Ok(())
    }

    fn stuck(&self, file: &Path) -> io::Result<()> {
        if let Some((name, tried)) = &mut self.world.lock().unwrap().stuck
            && file.to_str().unwrap().ends_with(*name)
        {
            *tried += 1;
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        Ok(())
    }

    fn null() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    fn pidfd_of(&self, process: u32) -> OwnedFd {
        let fd = Self::null();
        self.world.lock().unwrap().pidfds.insert(fd.as_raw_fd(), process);
        fd
    }

    fn world<T>(&self, body: impl FnOnce(&mut World) -> T) -> T {
        body(&mut self.world.lock().unwrap())
    }
}

impl Kernel for Nonsense {
    fn accept(&self, _: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        self.call()?;
        let (process, user) =
            self.world(|world| world.coming.pop_front()).ok_or(io::ErrorKind::WouldBlock)?;
        let fd = Self::null();
        self.world(|world| {
            world.clients.insert(fd.as_raw_fd(), Client { process, user, ..Client::default() })
        });
        Ok(fd)
    }

    fn peer(&self, connection: BorrowedFd<'_>) -> io::Result<Peer> {
        self.call()?;
        self.world(|world| {
            let client = &world.clients[&connection.as_raw_fd()];
            Ok(Peer { process: client.process, user: client.user })
        })
    }

    fn peer_pidfd(&self, _: BorrowedFd<'_>, process: u32) -> io::Result<OwnedFd> {
        self.pidfd(process)
    }

    fn at_home(&self, _: u32) -> io::Result<bool> {
        self.call().map(|()| true)
    }

    fn image(&self, process: u32) -> io::Result<u64> {
        self.call()?;
        if self.world(|world| world.dying == Some(process) && world.dead.insert(process)) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(if self.world(|world| world.one_image) { 1 } else { self.next() % 2 })
    }

    fn bar_descriptors(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        self.call()
    }

    fn carries_descriptors(&self, _: BorrowedFd<'_>) -> bool {
        false
    }

    fn is_laden(&self, _: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(false)
    }

    fn receive(&self, connection: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        self.call()?;
        let packet = self.world(|world| {
            let client = world.clients.get_mut(&connection.as_raw_fd())?;
            client.inbox.pop_front().or_else(|| client.closed.then(Vec::new))
        });
        let packet = packet.ok_or(io::ErrorKind::WouldBlock)?;
        let length = packet.len().min(into.len());
        into[..length].copy_from_slice(&packet[..length]);
        Ok(packet.len())
    }

    fn send(&self, _: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.call()?;
        let answer = Answer::decode(packet).expect("the server sends answers");
        self.world(|world| {
            match answer.reply {
                Reply::Refused { why, .. } => world.refused.push(why),
                Reply::Observed { .. } if world.deaf => return Err(io::ErrorKind::BrokenPipe.into()),
                Reply::Observed { .. } => {
                    world.arenas.extend(world.one_image.then(|| fds[0].try_clone_to_owned().unwrap()))
                }
                Reply::Summary(_) => world.summaries += 1,
                Reply::State(_) | Reply::Entry(_) => {}
            }
            Ok(())
        })
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.call()?;
        if self.world(|world| world.fatal && world.pidfds.contains_key(&fd.as_raw_fd())) {
            std::panic::resume_unwind(Box::new(()));
        }
        self.world(|world| {
            if token == 0 {
                world.listener = fd.as_raw_fd();
            }
            world.tokens.insert(fd.as_raw_fd(), token);
        });
        Ok(())
    }

    fn unwatch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.call()?;
        self.world(|world| world.tokens.remove(&fd.as_raw_fd()));
        Ok(())
    }

    /// Time passes only here.
    fn wait(&self, tokens: &mut Vec<u64>, limit: Duration) -> io::Result<()> {
        self.call()?;
        if self.wrong() {
            tokens.push(self.next());
        }
        self.world(|world| {
            let speaks = world.clients.iter().filter(|(_, client)| client.closed || !client.inbox.is_empty());
            let ended =
                world.pidfds.iter().filter(|(_, process)| world.dead.contains(process)).map(|(fd, _)| fd);
            let mut ready: Vec<i32> = speaks.map(|(&fd, _)| fd).chain(ended.copied()).collect();
            ready.extend((!world.coming.is_empty()).then_some(world.listener));
            tokens.extend(ready.iter().filter_map(|fd| world.tokens.get(fd)));
            if tokens.is_empty() {
                world.now += limit;
            }
        });
        Ok(())
    }

    fn pidfd(&self, process: u32) -> io::Result<OwnedFd> {
        self.call()?;
        if self.world(|world| world.dead.contains(&process) || !world.users.contains_key(&process)) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(self.pidfd_of(process))
    }

    fn user(&self, _: BorrowedFd<'_>, process: u32) -> io::Result<u32> {
        self.call()?;
        let user =
            self.world(|world| world.users.get(&process).copied().filter(|_| !world.dead.contains(&process)));
        user.ok_or(io::Error::from_raw_os_error(libc::ESRCH))
    }

    fn ended(&self, pidfd: BorrowedFd<'_>) -> io::Result<bool> {
        self.call()?;
        // A clone of one has another number.
        self.world(|world| {
            let process = world.pidfds.get(&pidfd.as_raw_fd());
            Ok(process.is_some_and(|process| world.dead.contains(process)))
        })
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        self.call()?;
        if self.wrong() {
            return Ok(TEXTS[self.next() as usize % TEXTS.len()].into());
        }
        let parts: Vec<&str> = file.to_str().unwrap().split('/').collect();
        if let ["", "proc", number, name] = parts[..]
            && let Ok(process) = number.parse::<u32>()
        {
            if self.world(|world| world.dead.contains(&process) || !world.users.contains_key(&process)) {
                return Err(io::Error::from_raw_os_error(libc::ENOENT));
            }
            if name == "status" {
                return Ok(format!("Name:\tx\nNSpid:\t{process}\n"));
            }
        }
        self.inner.read(file)
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        self.call()?;
        if file.ends_with("cgroup.procs")
            && file.to_str().unwrap().contains("/wakeful-")
            && let Ok(process) = text.parse()
        {
            self.world(|world| world.moved.push(process));
        }
        self.stuck(file)?;
        self.inner.write(file, text)
    }

    fn write_as_administrator(&self, file: &Path, text: &str) -> io::Result<()> {
        self.write(file, text)
    }

    fn mark(&self, group: &Path, changed: bool) -> io::Result<()> {
        self.call()?;
        self.inner.mark(group, changed)
    }

    fn is_marked(&self, group: &Path) -> io::Result<bool> {
        self.call()?;
        self.inner.is_marked(group)
    }

    fn folders(&self, folder: &Path) -> io::Result<Vec<(String, bool)>> {
        self.call()?;
        let mut names = self.inner.folders(folder)?;
        if self.wrong() {
            names.extend(
                ["wakeful-", "wakeful-7", "wakeful-x", "wakeful-4294967296"].map(|name| (name.into(), true)),
            );
        }
        Ok(names)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        self.call()?;
        self.inner.make_folder(folder)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.call()?;
        self.inner.remove_folder(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.call()?;
        let mut names = self.inner.list(folder)?;
        // Which processors there are, it says truly; what else is there is anybody's.
        if self.wrong() && !folder.starts_with("/sys") {
            names.extend(
                ["-1", "99999999999", "wakeful-", "wakeful-0", "wakeful-x", "lock", "7"].map(Into::into),
            );
        }
        Ok(names)
    }

    fn make_block(&self, file: &Path) -> io::Result<Mapped> {
        self.call()?;
        self.inner.make_block(file)
    }

    fn open_block(&self, file: &Path) -> io::Result<Mapped> {
        self.call()?;
        self.inner.open_block(file)
    }

    fn remove_file(&self, file: &Path) -> io::Result<()> {
        self.call()?;
        self.stuck(file)?;
        self.inner.remove_file(file)
    }

    fn set_affinity(&self, thread: u32, processors: &Set) -> io::Result<()> {
        self.call()?;
        self.inner.set_affinity(thread, processors)
    }

    fn affinity(&self, thread: u32) -> io::Result<Set> {
        self.call()?;
        if self.wrong() {
            return Ok((0..self.next() % 9).map(|_| self.next() as u32 % 2000).collect());
        }
        self.inner.affinity(thread)
    }

    fn load_observer(&self) -> io::Result<()> {
        self.call()?;
        self.inner.load_observer()
    }

    fn prepare(&self, slot: u32) -> io::Result<()> {
        self.call()?;
        self.inner.prepare(slot)
    }

    fn prepared(&self) -> io::Result<Option<Prepared>> {
        self.call()?;
        let told = |slot| if self.wrong() { self.next() as u32 % 20 } else { slot };
        Ok(self.inner.prepared()?.map(|Prepared { slot, arena }| Prepared { slot: told(slot), arena }))
    }

    fn admit(&self, process: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
        self.call()?;
        self.inner.admit(process, slot)
    }

    fn release(&self, slot: u32) -> io::Result<()> {
        self.call()?;
        self.inner.release(slot)
    }

    fn exists(&self, arena: u32) -> io::Result<bool> {
        self.call()?;
        self.inner.exists(arena)
    }

    fn live(&self, file: &Path) -> io::Result<Life> {
        self.call()?;
        self.inner.live(file)
    }

    fn now(&self) -> Duration {
        self.world(|world| world.now)
    }

    fn worked(&self) -> Duration {
        self.world(|world| world.now)
    }
}

/// Processes that live as long as the test; what becomes of them is the world's affair.
struct Processes(Vec<Child>);

impl Processes {
    fn new() -> Self {
        let sleep =
            || Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Self((0..6).map(|_| sleep()).collect())
    }

    /// The first is root's, of the others each third is the same user's.
    fn users(&self) -> HashMap<u32, u32> {
        let user =
            |(index, child): (u32, &Child)| (child.id(), if index == 0 { 0 } else { 1000 + index % 3 });
        (0..).zip(&self.0).map(user).collect()
    }

    fn id(&self, index: usize) -> u32 {
        self.0[index % self.0.len()].id()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn config(by: By) -> Config {
    let mut config = Config::default();
    (config.access.processors, config.access.all_processors) = (0.5, 0.5);
    config.enforcement.by = by;
    config.observer.enabled = daemon::config::Enabled::Always(true);
    config.enforcement.v1 = V1.into();
    config.enforcement.v2 = V2.into();
    config
}

#[derive(Clone, Debug)]
enum Step {
    Connect(usize),
    /// By which connection which kind of request, about which process, with which numbers.
    Say(usize, u32, usize, [u32; 5]),
    Garbage(usize, Vec<u8>),
    Close(usize),
    Die(usize),
    Live(usize),
    Pass(u64),
    Online(u8),
    Wrong(u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = || prop_oneof![8 => 0u32..5, 1 => Just(u32::MAX), 1 => any::<u32>()];
    let numbers = || [number(), number(), number(), number(), number()];
    let step = prop_oneof![
        4 => (0usize..6).prop_map(Step::Connect),
        12 => (any::<usize>(), prop_oneof![Just(1), 0u32..14], 0usize..9, numbers())
            .prop_map(|(by, kind, of, n)| Step::Say(by, kind, of, n)),
        1 => (any::<usize>(), prop::collection::vec(any::<u8>(), 1..400))
            .prop_map(|(by, bytes)| Step::Garbage(by, bytes)),
        1 => any::<usize>().prop_map(Step::Close),
        1 => (0usize..6).prop_map(Step::Die),
        1 => (0usize..6).prop_map(Step::Live),
        2 => (0u64..3000).prop_map(Step::Pass),
        1 => (1u8..16).prop_map(Step::Online),
        1 => prop_oneof![Just(0u64), 1u64..80].prop_map(Step::Wrong),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// What holds after each turn.
fn check(server: &Server<Nonsense>, root: u32) -> Result<(), TestCaseError> {
    let (default, floor, online) = server.kept();
    prop_assert!(default.len() >= online.min(floor as usize), "the floor: {default:?} of {online}");
    let mut given = default.clone();
    let mut users = BTreeMap::<u32, u32>::new();
    for (process, user, held) in server.holders() {
        for &processor in held {
            prop_assert!(given.insert(processor), "{processor} is given twice");
        }
        if process != root {
            *users.entry(user).or_default() += held.len() as u32;
        }
    }
    let (of_user, of_all) = server.shares();
    prop_assert!(users.values().all(|&count| count <= of_user), "of a user: {users:?}");
    prop_assert!(users.values().sum::<u32>() <= of_all, "of all users: {users:?}");
    Ok(())
}

fn run(processes: &Processes, by: By, seed: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let world = World { seed, users: processes.users(), ..World::default() };
    let kernel = Nonsense { inner: Simulated::new(), world: Arc::new(Mutex::new(world)) };
    {
        let mut state = kernel.inner.state.lock().unwrap();
        state.remote = seed % 2 == 1;
        let session =
            |index: usize| simulated::Group { processes: [processes.id(index)].into(), ..Default::default() };
        (1..4).for_each(|index| {
            _ = state.groups.insert(Path::new(V2).join(format!("session-{index}")), session(index))
        });
    }
    let config = config(by);
    let start = || Server::start(kernel.clone(), config.clone(), Nonsense::null(), folder.path());
    let mut server = start().unwrap();
    let client =
        |by: usize| kernel.world(|world| world.clients.keys().nth(by % world.clients.len().max(1)).copied());
    let root = processes.id(0);
    for step in steps {
        match step {
            &Step::Connect(who) => kernel.world(|world| {
                let process = processes.id(who);
                let user = world.users[&process];
                world.coming.push_back((process, user));
            }),
            &Step::Say(by, kind, of, [priority, least, wanted, most, count]) => {
                let Some(fd) = client(by) else { continue };
                kernel.world(|world| {
                    let client = world.clients.get_mut(&fd).unwrap();
                    // Whom root asks for has no limits; so it asks for its own.
                    let others = [0, client.process, processes.id(of), of as u32 * 1_000_003][of % 4];
                    let process = if client.user == 0 { 0 } else { others };
                    let order = [least.min(wanted), least.max(wanted)];
                    let most = most.max(order[1]);
                    let demand = Demand::new(priority, order[0], order[1], most);
                    let request = if kind == 2 { Request::Spare(count) } else { Request::Join(demand) };
                    client.inbox.push_back(damaged(request.of(process), &[(2, kind)]));
                });
            }
            Step::Garbage(by, bytes) => {
                let Some(fd) = client(*by) else { continue };
                kernel.world(|world| world.clients.get_mut(&fd).unwrap().inbox.push_back(bytes.clone()));
            }
            &Step::Close(by) => {
                let Some(fd) = client(by) else { continue };
                kernel.world(|world| world.clients.get_mut(&fd).unwrap().closed = true);
            }
            &Step::Die(who) => {
                kernel.world(|world| world.dead.insert(processes.id(who)));
            }
            &Step::Live(who) => {
                kernel.world(|world| world.dead.remove(&processes.id(who)));
            }
            &Step::Pass(ms) => kernel.world(|world| world.now += Duration::from_millis(ms)),
            &Step::Online(bits) => {
                let online = (0..4).filter(|bit| bits >> bit & 1 == 1).collect();
                kernel.inner.state.lock().unwrap().online = online;
            }
            &Step::Wrong(rate) => kernel.world(|world| world.rate = rate),
            Step::Restart => {
                drop(server);
                kernel.world(|world| (world.clients.clear(), world.tokens.clear()));
                server = match start() {
                    Ok(server) => server,
                    // Whoever supervises it starts it again.
                    Err(_) => {
                        kernel.world(|world| world.rate = 0);
                        start().unwrap()
                    }
                };
            }
        }
        server.turn();
        check(&server, root)?;
    }
    // All is well again: whoever asks is answered.
    kernel.world(|world| {
        world.rate = 0;
        world.dead.clear();
    });
    for _ in 0..20 {
        server.turn();
        check(&server, root)?;
    }
    kernel.world(|world| {
        world.clients.clear();
        world.summaries = 0;
        world.coming.clear();
        world.coming.push_back((root, 0));
    });
    for _ in 0..20 {
        server.turn();
        let fd = kernel.world(|world| world.clients.keys().next().copied());
        if let Some(fd) = fd {
            kernel.world(|world| {
                let inbox = &mut world.clients.get_mut(&fd).unwrap().inbox;
                inbox.push_back(Request::Status.of(0).encode().bytes().to_vec());
            });
        }
    }
    let answered = kernel.world(|world| world.summaries > 0);
    prop_assert!(answered, "nobody is answered any more");
    Ok(())
}

#[test]
fn whatever_clients_and_kernel_do() {
    let processes = Processes::new();
    let long = std::env::var_os("WAKEFUL_LONG").is_some();
    // The short run is the same each time.
    let (cases, rng_seed) = if long { (30_000, RngSeed::Random) } else { (300, RngSeed::Fixed(1)) };
    let config =
        Cases { cases, rng_seed, failure_persistence: None, max_shrink_iters: 2_000, ..Cases::default() };
    let ways = prop_oneof![Just(0usize), Just(1), Just(2)];
    let outcome = TestRunner::new(config).run(&(ways, any::<u64>(), steps()), |(way, seed, steps)| {
        run(&processes, [By::CgroupV2, By::CgroupV1, By::Affinity][way], seed, &steps)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// A server that does as it is told, its world, and processes.
fn quiet(by: By) -> (Processes, Nonsense, Server<Nonsense>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let processes = Processes::new();
    let world = World { users: processes.users(), ..World::default() };
    let kernel = Nonsense { inner: Simulated::new(), world: Arc::new(Mutex::new(world)) };
    let server = Server::start(kernel.clone(), config(by), Nonsense::null(), folder.path()).unwrap();
    (processes, kernel, server, folder)
}

/// Root's connection says this for a process.
fn say(kernel: &Nonsense, server: &mut Server<Nonsense>, root: u32, request: impl Into<Envelope>) {
    let known =
        kernel.world(|world| world.clients.iter().find(|(_, client)| client.user == 0).map(|(&fd, _)| fd));
    let fd = known.unwrap_or_else(|| {
        kernel.world(|world| world.coming.push_back((root, 0)));
        server.turn();
        kernel.world(|world| *world.clients.keys().next().unwrap())
    });
    let packet = request.into().encode().bytes().to_vec();
    kernel.world(|world| world.clients.get_mut(&fd).unwrap().inbox.push_back(packet));
}

fn join(process: u32, count: u32) -> Envelope {
    Request::Join(Demand::new(0, count, count, count)).of(process)
}

/// One group can be changed and another one not: the tries become fewer all the same.
#[test]
fn what_fails_is_tried_less_and_less_often() {
    let (processes, kernel, mut server, _folder) = quiet(By::CgroupV1);
    let one = processes.id(1);
    let name: &'static str = format!("wakeful-{one}/cpuset.cpus").leak();
    kernel.world(|world| world.stuck = Some((name, 0)));
    say(&kernel, &mut server, processes.id(0), join(one, 1));
    let begin = kernel.now();
    while kernel.now() < begin + Duration::from_secs(10) {
        server.turn();
    }
    // 10, 20, 40 ms and so on up to a second: 7 in the first one, and then 9.
    let tried = kernel.world(|world| world.stuck.unwrap().1);
    assert!((8..=40).contains(&tried), "{tried} times in 10 seconds");
}

/// As where a group beside its own is bound to the same processors.
#[test]
fn what_is_refused_for_long_is_tried_seldom_whatever_others_ask_for() {
    let (processes, kernel, mut server, _folder) = quiet(By::CgroupV1);
    let (root, one, other) = (processes.id(0), processes.id(1), processes.id(2));
    let name: &'static str = format!("wakeful-{one}/cpuset.cpus").leak();
    kernel.world(|world| world.stuck = Some((name, 0)));
    say(&kernel, &mut server, root, join(one, 1));
    let begin = kernel.now();
    while kernel.now() < begin + Duration::from_secs(600) {
        server.turn();
    }
    let tried = || kernel.world(|world| world.stuck.unwrap().1);
    assert!((8..=60).contains(&tried()), "{} times in 10 minutes", tried());
    let before = tried();
    for request in [join(other, 1), Request::Leave.of(other)].into_iter().cycle().take(20) {
        say(&kernel, &mut server, root, request);
        server.turn();
    }
    assert!(tried() <= before + 2, "{} times because of others", tried() - before);
    kernel.world(|world| world.stuck = None);
    while kernel.now() < begin + Duration::from_secs(700) {
        server.turn();
    }
    assert!(server.holders().any(|(process, _, held)| process == one && held.len() == 1));
    let groups = &kernel.inner.state.lock().unwrap().groups;
    let group = &groups[&Path::new(V1).join(format!("wakeful-{one}"))];
    assert!(group.cpus.len() == 1 && group.processes.contains(&one), "it has it in the end");
}

/// The same world, in which this server has been killed and another one is started.
fn next(kernel: &Nonsense, by: By, folder: &tempfile::TempDir) -> Server<Nonsense> {
    kernel.world(|world| (world.clients.clear(), world.tokens.clear()));
    Server::start(kernel.clone(), config(by), Nonsense::null(), folder.path()).unwrap()
}

/// The processors of all others are unplugged while no server runs.
#[test]
fn a_server_starts_where_its_partitions_have_all_that_is_left() {
    for by in [By::CgroupV2, By::CgroupV1, By::Affinity] {
        let (processes, kernel, mut server, folder) = quiet(by);
        say(&kernel, &mut server, processes.id(0), join(processes.id(1), 3));
        server.turn();
        let held = server.holders().next().unwrap().2.clone();
        assert_eq!(held.len(), 3, "{by:?}");
        drop(server);
        kernel.inner.state.lock().unwrap().online = held;
        server = next(&kernel, by, &folder);
        let begin = kernel.now();
        while kernel.now() < begin + Duration::from_secs(3) {
            server.turn();
        }
        let (default, _, online) = server.kept();
        assert!(!default.is_empty() && online == 3, "{by:?}: {default:?} of {online}");
        kernel.inner.state.lock().unwrap().online = (0..4).collect();
        while kernel.now() < begin + Duration::from_secs(6) {
            server.turn();
        }
        assert_eq!(server.holders().next().unwrap().2.len(), 3, "{by:?}: it has them again");
        assert!(!server.kept().0.is_empty(), "{by:?}");
    }
}

/// It has made the block, and nothing is in it yet.
#[test]
fn whose_server_is_killed_while_it_enters_has_asked_for_nothing() {
    let (processes, kernel, mut server, folder) = quiet(By::CgroupV1);
    say(&kernel, &mut server, processes.id(0), join(processes.id(1), 1));
    kernel.world(|world| world.fatal = true);
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.turn()));
    assert!(killed.is_err() && folder.path().join(processes.id(1).to_string()).exists());
    kernel.world(|world| world.fatal = false);
    server = next(&kernel, By::CgroupV1, &folder);
    (0..3).for_each(|_| server.turn());
    assert_eq!(server.holders().count(), 0);
}

/// The block of a process that has ended cannot be removed; then its number is another's that began at the
/// same time, or so the kernel says.
#[test]
fn a_block_that_is_left_is_nobodys() {
    let (processes, kernel, mut server, folder) = quiet(By::CgroupV1);
    let (root, one, other) = (processes.id(0), processes.id(1), processes.id(4));
    let name: &'static str = format!("/{one}").leak();
    kernel.world(|world| world.stuck = Some((name, 0)));
    say(&kernel, &mut server, root, join(one, 2));
    server.turn();
    kernel.world(|world| world.dead.insert(one));
    (0..3).for_each(|_| server.turn());
    assert!(kernel.world(|world| world.stuck.unwrap().1) > 0, "it was tried to remove it");
    kernel.world(|world| world.dead.remove(&one));
    say(&kernel, &mut server, root, join(other, 1));
    server.turn();
    drop(server);
    server = next(&kernel, By::CgroupV1, &folder);
    let members: Vec<u32> = server.holders().map(|(process, ..)| process).collect();
    assert_eq!(members, [other]);
}
