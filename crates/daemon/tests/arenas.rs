// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of users without rights, observed by the server's eBPF program in this machine's kernel. Needs
//! root, hence the names.
//!
//! Each program is this executable again, as the user that it is told to be, in one of the roles below.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use abi::View;
use daemon::kernel::ARENA_SIZE;
use linux::Linux;
use linux::server::{Connection, DESCRIPTORS, Entry, Error, Refusal, Request, Summary};
use platform::{Platform, Priority, RunState};

const ROLE: &str = "WAKEFUL_TEST_ROLE";
const SERVER: &str = "WAKEFUL_SERVER";

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A child that does not outlive the test, and that one talks with in lines.
struct Process(Child, BufReader<std::process::ChildStdout>);

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self(child, out)
    }

    /// This executable in another role.
    fn command(place: &Place, role: &str, user: u32) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "a_program", "--nocapture", "--test-threads=1"]).env(ROLE, role);
        command.env(SERVER, place.socket()).env_remove("WAKEFUL_VIEW").uid(user).gid(user);
        command
    }

    fn role(place: &Place, role: &str, user: u32) -> Self {
        Self::start(&mut Self::command(place, role, user))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    /// The next line that begins with this word; the rest of it.
    fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.1.read_line(&mut line).unwrap(), 0, "it ended before `{word}`");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_string();
            }
        }
    }

    fn tell(&mut self) {
        self.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder and a configuration.
struct Place(tempfile::TempDir);

impl Place {
    fn new(config: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(
            folder.path().join("config.toml"),
            format!("[enforcement]\nby = \"affinity\"\n[observer]\nenabled = true\n{config}"),
        )
        .unwrap();
        Self(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("run/wakefuld")
    }

    fn server(&self) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wakefuld"));
        command
            .arg("--config")
            .arg(self.0.path().join("config.toml"))
            .arg("--folder")
            .arg(self.0.path().join("run"));
        let server = Process::start(&mut command);
        eventually("the server is ready", || self.status().is_ok_and(|(_, summary)| summary.making == 0));
        server
    }

    fn status(&self) -> Result<(Vec<Entry>, Summary), Error> {
        Connection::open_at(self.socket().to_str().unwrap())?.status()
    }

    /// The server of this place, if this is root's.
    fn as_root(config: &str) -> Option<(Self, Process)> {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            let _ = writeln!(std::io::stderr(), "SKIPPED: needs root");
            return None;
        }
        let place = Self::new(config);
        let server = place.server();
        Some((place, server))
    }

    /// The same, if the kernel takes the observer.
    fn observing(config: &str) -> Option<(Self, Process)> {
        let (place, server) = Self::as_root(config)?;
        let loads = place.status().unwrap().1.observer;
        if !loads {
            let _ = writeln!(std::io::stderr(), "SKIPPED: this kernel takes no observer");
        }
        loads.then_some((place, server))
    }
}

/// One server at a time: each adds to what a context switch of this machine costs.
static ALONE: Mutex<()> = Mutex::new(());

/// Not a test of its own: the programs of the others.
#[test]
fn a_program() {
    match std::env::var(ROLE).as_deref() {
        Ok("observed") => observed(),
        Ok("holder") => holder(),
        Ok("hostile") => hostile(),
        Ok("asks") => asks(),
        Ok("hurries") => hurries(),
        Ok("before") => before(),
        Ok("after") => after(),
        Ok("changes") => changes(),
        Ok("invaded") => invaded(),
        Ok("returns") => returns(),
        _ => {}
    }
}

fn wait_for_word() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn pin(processor: usize) {
    // SAFETY: an all-zero cpu_set_t is valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

static STOP: AtomicBool = AtomicBool::new(false);
static COUNT: wakeful::Mutex<u64> = wakeful::Mutex::new(0);

/// Four threads on one processor that take one lock in turn, until [`STOP`]: their ids, and how often each
/// had it.
fn takers() -> Vec<(platform::ThreadId, std::thread::JoinHandle<u64>)> {
    (0..4)
        .map(|_| {
            let (send, receive) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                pin(0);
                let me = Linux::register();
                Linux::set_priority(me, Priority::LockHolder);
                send.send(me).unwrap();
                let mut rounds = 0;
                while !STOP.load(Relaxed) {
                    let mut count = COUNT.lock();
                    (0..10_000).for_each(|_| std::hint::spin_loop());
                    *count += 1;
                    rounds += 1;
                    drop(count);
                    // A view lasts while there is something to see.
                    Linux::register();
                }
                rounds
            });
            (receive.recv().unwrap(), thread)
        })
        .collect()
}

/// The view in use sees the threads come and go.
fn sees(threads: &[(platform::ThreadId, std::thread::JoinHandle<u64>)]) {
    for &(id, _) in threads {
        eventually("running", || Linux::run_state(id) == RunState::Running);
        eventually("preempted", || Linux::run_state(id) == RunState::Preempted);
    }
}

/// The takers stop. Nobody was inside with another one.
fn stop(threads: Vec<(platform::ThreadId, std::thread::JoinHandle<u64>)>) {
    STOP.store(true, Relaxed);
    let rounds: u64 = threads.into_iter().map(|(_, thread)| thread.join().unwrap()).sum();
    assert_eq!(rounds, *COUNT.lock(), "two were inside at a time");
    println!("all well");
}

/// Goes over to the next server's observer each time that one ends. Its threads keep their ids.
fn returns() {
    wakeful::init();
    let threads = takers();
    for _ in 0..3 {
        sees(&threads);
        assert_eq!(linux::chosen(), Some(View::Bpf));
        println!("is observed");
        wait_for_word();
        eventually("another view", || linux::chosen() == Some(View::Perf));
        println!("went over");
        wait_for_word();
        let start = Instant::now();
        eventually("the observer's view again", || linux::chosen() == Some(View::Bpf));
        println!("came back after {} ms", start.elapsed().as_millis());
    }
    sees(&threads);
    // Events of the view between are ended, and one descriptor is open: what the threads enrol with.
    let named = |link: &PathBuf| link.to_str().is_some_and(|link| link.starts_with("anon_inode:bpf"));
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    assert_eq!(links.filter(named).count(), 1);
    let events = || fs::read_to_string("/proc/self/maps").unwrap().matches("[perf_event]").count();
    eventually("no event is left", || events() == 0);
    stop(threads);
}

/// The same threads, watched from another processor.
fn observed() {
    wakeful::init();
    let threads = takers();
    sees(&threads);
    println!("view {:?}", linux::chosen().unwrap());
    wait_for_word();
    let count = || *COUNT.lock();
    let before = count();
    eventually("another view", || linux::chosen() == Some(View::Perf));
    sees(&threads);
    eventually("the lock is passed on", || count() > before + 100);
    println!("went over");
    stop(threads);
}

/// The calling program's arena, as it has it.
fn mapped_arena() -> &'static [std::sync::atomic::AtomicU32] {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("anon_inode:bpf-map")).expect("an arena");
    let start = usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    // SAFETY: the mapping is so long and stays; it is of atomics.
    unsafe { std::slice::from_raw_parts(start as *const _, ARENA_SIZE / 4) }
}

/// A program whose arena has something in it that nobody else is to see.
fn holder() {
    linux::init();
    let me = Linux::register();
    let secret = mapped_arena().last().unwrap();
    secret.store(SECRET, Relaxed);
    println!("view {:?}", linux::chosen().unwrap());
    // A child would have it too, whatever rights it has.
    let open =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let maps = open.filter(|link| link.to_str() == Some("anon_inode:bpf-map")).count();
    assert_eq!(maps, 0, "the arena's descriptor is open still");
    wait_for_word();
    assert_eq!(secret.load(Relaxed), SECRET);
    assert_eq!(Linux::run_state(me), RunState::Running);
    println!("all well");
}

const SECRET: u32 = 0x5ec7_e700;

/// Asks the server by hand.
fn arena() -> Result<[OwnedFd; DESCRIPTORS], Error> {
    let mut connection = Connection::open_at(&std::env::var(SERVER).unwrap())?;
    loop {
        match connection.ask_for(Request::Observe) {
            Err(Error::Refused(Refusal::Later, _)) => std::thread::sleep(Duration::from_millis(5)),
            answer => return answer.map(|(_, fds)| fds.map(|fd| fd.expect("three descriptors"))),
        }
    }
}

/// Says whether it got an arena, and the number of its descriptor.
fn asks() {
    let arena = arena();
    match &arena {
        Ok([arena, ..]) => println!("has {}", arena.as_raw_fd()),
        Err(Error::Refused(Refusal::Crowd, limit)) => println!("has none of {limit}"),
        Err(error) => panic!("{error}"),
    }
    wait_for_word();
}

/// bpf(2), with an attribute of these words; the result, or the error's number.
fn bpf(command: i64, mut words: [u64; 16]) -> Result<i64, i32> {
    // SAFETY: the attribute lives; what it points to is the callers' and lives too.
    match unsafe { libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), size_of_val(&words)) } {
        0.. => Ok(0),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

const MAP_LOOKUP_ELEM: i64 = 1;
const PROG_TEST_RUN: i64 = 10;
const PROG_GET_FD_BY_ID: i64 = 13;
const MAP_GET_FD_BY_ID: i64 = 14;
const OBJ_GET_INFO_BY_FD: i64 = 15;
const LINK_GET_FD_BY_ID: i64 = 30;

fn words(first: &[u64]) -> [u64; 16] {
    let mut words = [0; 16];
    words[..first.len()].copy_from_slice(first);
    words
}

/// Enrols the calling thread; what the program in the kernel said.
fn enrol(fd: i32, index: u32, lease: u32) -> Result<u32, i32> {
    let mut context = [index, lease];
    // struct: prog_fd, retval, sizes, data_in, data_out, repeat and duration, ctx sizes, ctx_in, ctx_out.
    let mut attribute = words(&[fd as u64, 0, 0, 0, 0, 8, context.as_mut_ptr() as u64]);
    // SAFETY: as in `bpf`, whose copy would hide what the kernel writes.
    match unsafe {
        libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, attribute.as_mut_ptr(), size_of_val(&attribute))
    } {
        0.. => Ok((attribute[0] >> 32) as u32),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

fn map(fd: i32, size: usize, protection: i32, offset: i64) -> Option<*mut u8> {
    // SAFETY: a mapping of its own.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, fd, offset) };
    (start != libc::MAP_FAILED).then_some(start.cast())
}

/// The image before: what its threads enrol with stays open when another one is executed.
fn before() {
    let [_, program, _] = arena().unwrap();
    // The thread that executes becomes the first one, and keeps its slot.
    assert_eq!(enrol(program.as_raw_fd(), 1, 0), Ok(0));
    // SAFETY: plain numbers; a descriptor of ours.
    assert_eq!(unsafe { libc::fcntl(program.as_raw_fd(), libc::F_SETFD, 0) }, 0);
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "a_program", "--nocapture", "--test-threads=1"]).env(ROLE, "after");
    panic!("{}", command.env("WAKEFUL_TEST_PROGRAM", program.as_raw_fd().to_string()).exec());
}

/// A thread that was in the slot before the new arena was: it writes to that, and to nobody else's.
fn after() {
    let program: i32 = std::env::var("WAKEFUL_TEST_PROGRAM").unwrap().parse().unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        send.send(enrol(program, 1, 0)).unwrap();
        loop {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(receive.recv().unwrap(), Ok(0));
    let [mine, ..] = arena().unwrap();
    let start = map(mine.as_raw_fd(), ARENA_SIZE, libc::PROT_READ, 0).expect("its own arena");
    // SAFETY: the blocks follow the header, in a mapping that stays; their fields are atomics.
    let block = unsafe { &*start.add(size_of::<abi::Arena>()).cast::<abi::Thread>().add(1) };
    eventually("the thread is seen here", || block.run_state() != RunState::Unknown);
    println!("all well");
}

#[test]
fn root_another_image_has_another_arena_in_the_same_slot() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((place, _server)) = Place::observing("arenas = 1\n") else { return };
    Process::role(&place, "before", NOBODY).hear("all well");
}

/// Enrols, and executes a program that sleeps again and again; a child, which has the arena, says how often
/// it saw that after the program had begun.
fn changes() {
    let [arena, program, _] = arena().unwrap();
    let start =
        map(arena.as_raw_fd(), ARENA_SIZE, libc::PROT_READ | libc::PROT_WRITE, 0).expect("its own arena");
    // SAFETY: as in `after`.
    let block = unsafe { &*start.add(size_of::<abi::Arena>()).cast::<abi::Thread>().add(1) };
    block.lease.store(7, Relaxed);
    let parent = std::process::id();
    // SAFETY: the child uses the heap, which glibc's fork keeps usable.
    if unsafe { libc::fork() } == 0 {
        let read = |name: &str| fs::read_to_string(format!("/proc/{parent}/{name}")).unwrap_or_default();
        let switches = || {
            let status = read("status");
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap_or("0");
            line.trim().parse::<u32>().unwrap()
        };
        eventually("another image", || read("comm").trim() == "sh");
        let (before, seen) = (switches(), block.blocks.load(Relaxed));
        eventually("it sleeps", || switches() >= before + 20);
        println!("saw {}", block.blocks.load(Relaxed) - seen);
        // SAFETY: a number.
        unsafe { libc::_exit(0) };
    }
    assert_eq!(enrol(program.as_raw_fd(), 1, 7), Ok(0));
    let seen = block.blocks.load(Relaxed);
    eventually("it is observed", || block.blocks.load(Relaxed) > seen);
    panic!("{}", Command::new("sh").args(["-c", "while :; do sleep 0.01; done"]).exec());
}

/// The next one may be a set-user-ID program.
#[test]
fn root_observation_ends_with_the_image() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((place, _server)) = Place::observing("") else { return };
    assert_eq!(Process::role(&place, "changes", NOBODY).hear("saw "), "0");
}

/// Four threads take locks in turn, while a child with fewer rights writes garbage wherever it can. It
/// writes over the memory that it has of its parent. It has a descriptor of the arena too, as if it was
/// forked before that was closed.
fn invaded() {
    // SAFETY: a number. A child that waits for ever is ended by it.
    unsafe { libc::alarm(60) };
    let mut arena_fd = None;
    if std::env::var("WAKEFUL_VIEW").as_deref() != Ok("none") {
        let [arena, enrol, _life] = arena().unwrap();
        if std::env::var("WAKEFUL_VIEW").as_deref() == Ok("bpf") {
            let observer = bpf::Observer::given(arena.try_clone().unwrap(), enrol).unwrap();
            let handle = observer.hand_over().unwrap().to_string();
            std::mem::forget(observer);
            // SAFETY: no other thread of this program reads the environment now.
            unsafe { std::env::set_var(linux::environment::OBSERVER.name(), handle) };
        }
        arena_fd = Some(arena);
    }
    wakeful::init();
    let me = Linux::register();
    println!("view {:?}", linux::chosen().unwrap());
    let seen = std::ptr::from_ref(Linux::word(me, 0)).addr();
    // SAFETY: the child makes system calls and touches nothing that a thread of its parent could have locked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        write_garbage(seen, arena_fd.as_ref().map(AsRawFd::as_raw_fd));
    }
    let rounds = take_locks();
    // SAFETY: the child is ours; the status is not asked for.
    unsafe {
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG), 0, "the child has ended");
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    println!("{rounds} rounds, all well");
}

/// Until it is killed: all over what this process still has near that address, and over the arena.
fn write_garbage(near: usize, arena: Option<i32>) -> ! {
    // SAFETY: plain numbers; this process has nothing else to do, and ends with its parent.
    unsafe {
        libc::syscall(libc::SYS_setresuid, NOBODY - 1, NOBODY - 1, NOBODY - 1);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    let shared =
        arena.map(|fd| map(fd, ARENA_SIZE, libc::PROT_READ | libc::PROT_WRITE, 0).expect("an arena"));
    let mut random = 1u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 40) as u32
    };
    // What is not mapped here is an error, and no more than that.
    let pages: Vec<usize> = (0..512).map(|page| (near & !4095) - 256 * 4096 + page * 4096).collect();
    loop {
        for &page in &pages {
            let garbage: [u32; 1024] = std::array::from_fn(|_| next() % 8);
            let to = libc::iovec { iov_base: page as *mut _, iov_len: 4096 };
            let from = libc::iovec { iov_base: garbage.as_ptr().cast_mut().cast(), iov_len: 4096 };
            // SAFETY: both describe memory; the kernel says which of the child's own it may not write.
            unsafe { libc::process_vm_writev(libc::getpid(), &from, 1, &to, 1, 0) };
        }
        if let Some(start) = shared {
            // SAFETY: the mapping is that long and aligned.
            let words = unsafe {
                std::slice::from_raw_parts(start.cast::<std::sync::atomic::AtomicU32>(), ARENA_SIZE / 4)
            };
            for word in words {
                word.store(if next() % 2 == 0 { next() % 8 } else { next() }, Relaxed);
            }
        }
    }
}

/// Four threads take each kind of lock in turn; how often they did.
fn take_locks() -> u64 {
    static MUTEX: wakeful::Mutex<u64> = wakeful::Mutex::new(0);
    static RWLOCK: wakeful::RwLock<u64> = wakeful::RwLock::new(0);
    let ticket = wakeful::raw::ticket_np::Mutex::new(0u64);
    let informed = wakeful::raw::ticket_informing::Mutex::new(0u64);
    const ROUNDS: u64 = 3_000;
    let step = |count: &mut u64| {
        let before = std::hint::black_box(*count);
        (0..200).for_each(|_| std::hint::spin_loop());
        *count = before + 1;
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    step(&mut MUTEX.lock());
                    step(&mut RWLOCK.write());
                    drop(RWLOCK.read());
                    step(&mut ticket.lock());
                    step(&mut informed.lock());
                }
            });
        }
    });
    let counts = [*MUTEX.lock(), *RWLOCK.read(), *ticket.lock(), *informed.lock()];
    assert_eq!(counts, [4 * ROUNDS; 4], "two were inside at a time");
    4 * ROUNDS
}

#[test]
fn root_nothing_that_a_lock_waits_for_lies_where_a_child_with_fewer_rights_can_write() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((place, _server)) = Place::observing("") else { return };
    for (view, name) in [("bpf", "Bpf"), ("perf", "Perf"), ("none", "None")] {
        let mut command = Process::command(&place, "invaded", 0);
        let mut program = Process::start(command.env("WAKEFUL_VIEW", view));
        assert_eq!(program.hear("view "), name);
        program.hear("all well");
    }
}

/// A user who wants to see what is in somebody else's arena, or in more than its own.
fn hostile() {
    const READ: i32 = libc::PROT_READ;
    const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
    let number = |name: &str| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let (server, other) = (number("WAKEFUL_TEST_SERVER"), number("WAKEFUL_TEST_OTHER"));
    // In another process's name.
    let mut connection = Connection::open_at(&std::env::var(SERVER).unwrap()).unwrap();
    let foreign = connection.ask_for(Request::Observe.of(other));
    assert!(matches!(foreign, Err(Error::Refused(Refusal::NoProcess, _))), "{foreign:?}");
    let [mine, program, life] = arena().unwrap();
    let [mine, program, life] = [&mine, &program, &life].map(AsRawFd::as_raw_fd);
    assert!(matches!(arena(), Err(Error::Refused(Refusal::Again, _))));

    // The arena: nothing before, behind or beside it.
    let whole = (ARENA_SIZE as i64 + 4095) & !4095;
    let start = map(mine, whole as usize, BOTH, 0).expect("its own arena");
    assert!(map(mine, whole as usize + 4096, READ, 0).is_none() && map(mine, 4096, READ, whole).is_none());
    // SAFETY: the mapping is that long, and aligned.
    let content = unsafe { std::slice::from_raw_parts(start.cast::<u32>(), whole as usize / 4) };
    assert!(!content.contains(&SECRET) && content.iter().all(|&word| word == 0), "it is not empty");
    let mut element = vec![0u8; ARENA_SIZE];
    for key in [1u64, 2, 4095, 0xffff_ffff] {
        let lookup = words(&[mine as u64, &raw const key as u64, element.as_mut_ptr() as u64, 0]);
        assert_eq!(bpf(MAP_LOOKUP_ELEM, lookup), Err(libc::ENOENT));
    }

    // The program: it says which maps it uses, and they cannot be had.
    let mut ids = [0u32; 64];
    let mut about = [0u32; 64];
    // struct bpf_prog_info: nr_map_ids and map_ids stand 52 and 56 bytes from its start.
    about[13] = ids.len() as u32;
    about[14] = ids.as_mut_ptr() as u64 as u32;
    about[15] = (ids.as_mut_ptr() as u64 >> 32) as u32;
    let info = words(&[program as u64 | (size_of_val(&about) as u64) << 32, about.as_mut_ptr() as u64]);
    bpf(OBJ_GET_INFO_BY_FD, info).unwrap();
    let uses = &ids[..about[13] as usize];
    assert!(!uses.is_empty(), "the test does not look where it should");
    let last = *uses.iter().max().unwrap();
    for id in (1..=last + 64).map(u64::from) {
        for command in [MAP_GET_FD_BY_ID, PROG_GET_FD_BY_ID, LINK_GET_FD_BY_ID] {
            assert_eq!(bpf(command, words(&[id])), Err(libc::EPERM), "{command} {id}");
        }
    }
    assert!(bpf(MAP_LOOKUP_ELEM, words(&[program as u64, 0, element.as_mut_ptr() as u64])).is_err());
    assert!(map(program, 4096, READ, 0).is_none());
    // Blocks that there are not.
    for (index, lease) in [(1, 1), (4095, 0), (4096, 0), (5000, 0), (1 << 20, 7), (u32::MAX, 0)] {
        let _ = enrol(program, index, lease);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(enrol(program, 0, 0), Ok(0));
    // One that was not admitted, though it has the descriptor.
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = enrol(program, 1, 1) == Ok(1);
        // SAFETY: a number.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a child of ours, and a number that lives.
    assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));

    // The server's life: to be read.
    assert!(map(life, 4096, READ, 0).is_some() && map(life, 4096, BOTH, 0).is_none());
    let again = fs::File::options().write(true).open(format!("/proc/self/fd/{life}"));
    assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EACCES));

    // The processes that have the others.
    for process in [server, other] {
        assert!(fs::read_dir(format!("/proc/{process}/fd")).is_err());
        assert!(fs::File::open(format!("/proc/{process}/mem")).is_err());
        // SAFETY: plain numbers.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        assert!(pidfd >= 0);
        for fd in 0..64 {
            // SAFETY: plain numbers.
            assert_eq!(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd, fd, 0) }, -1);
        }
    }

    // And what one may write to one's own arena does nobody else any harm.
    // SAFETY: as above.
    unsafe { std::ptr::write_bytes(start, 0xff, whole as usize) };
    println!("tried");
    // Another request, again and again, without listening to the answers.
    for _ in 0..3_000 {
        if connection.send(Request::Observe).is_err() {
            break;
        }
    }
    println!("flooded");
    wait_for_word();
}

/// Messages by several connections at once; says how long they took, in ms.
fn hurries() {
    let open = || Connection::open_at(&std::env::var(SERVER).unwrap()).unwrap();
    let mut connections: Vec<_> = (0..4).map(|_| open()).collect();
    let start = Instant::now();
    for number in 0..MESSAGES {
        let connection = &mut connections[number % 4];
        assert!(connection.ask(Request::WantBack).is_err(), "it has no partition");
    }
    println!("took {}", start.elapsed().as_millis());
}

const MESSAGES: usize = 120;

const NOBODY: u32 = 65534;

#[test]
fn root_a_user_sends_so_many_messages() {
    let Some((place, _server)) = Place::as_root("[access]\nuser_messages_per_second = 200\n") else { return };
    let took = |user: u32| Process::role(&place, "hurries", user).hear("took ").parse::<u64>().unwrap();
    // Less what may be saved up, a tenth of a second's; no connection alone is too fast.
    let least = (MESSAGES as u64 - 20 - 4) * 1000 / 200;
    let (limited, root) = (took(NOBODY), took(0));
    assert!(limited >= least, "{limited} ms, and at least {least} are right");
    println!("{MESSAGES} messages took a user {limited} ms and root {root} ms");
}

#[test]
fn root_programs_without_rights_are_observed_as_long_as_the_server_lives() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((place, mut server)) = Place::observing("") else { return };
    let mut program = Process::role(&place, "observed", NOBODY);
    assert_eq!(program.hear("view "), "Bpf");
    // The server sees what its threads do.
    eventually("a holder is preempted", || {
        let (entries, _) = place.status().unwrap();
        let entry = entries.iter().find(|entry| entry.process() == program.id()).expect("it is listed");
        assert_eq!((entry.state(), entry.user()), (None, NOBODY));
        let threads = entry.threads.expect("it is observed");
        assert!(threads.known >= 4 && threads.preempted_holding <= threads.preempted, "{entry:?}");
        threads.preempted_holding > 0
    });
    server.kill();
    program.tell();
    program.hear("went over");
    program.hear("all well");
    // The next server lends another one, and knows when its program has ended.
    let server = place.server();
    let mut program = Process::role(&place, "observed", NOBODY);
    assert_eq!(program.hear("view "), "Bpf");
    program.kill();
    eventually("it is forgotten", || place.status().unwrap().0.is_empty());
    drop(server);
}

#[test]
fn root_programs_come_back_to_the_next_servers_observer() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((place, mut server)) = Place::observing("") else { return };
    let mut program = Process::role(&place, "returns", NOBODY);
    for _ in 0..3 {
        program.hear("is observed");
        server.kill();
        program.tell();
        program.hear("went over");
        server = place.server();
        program.tell();
        let ms: u64 = program.hear("came back after ").trim_end_matches(" ms").parse().unwrap();
        // A look is made once a second, by a thread that waits for a lock.
        assert!(ms < 10_000, "it took {ms} ms");
        let observed = |entry: &Entry| entry.process() == program.id() && entry.threads.is_some();
        assert!(place.status().unwrap().0.iter().any(observed), "the server knows it");
    }
    program.hear("all well");
}

#[test]
fn root_nobody_reaches_the_arena_of_another() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((place, server)) = Place::observing("") else { return };
    let mut holder = Process::role(&place, "holder", NOBODY);
    assert_eq!(holder.hear("view "), "Bpf");
    let mut command = Process::command(&place, "hostile", NOBODY - 1);
    let command = command.env("WAKEFUL_TEST_SERVER", server.id().to_string());
    let mut hostile = Process::start(command.env("WAKEFUL_TEST_OTHER", holder.id().to_string()));
    hostile.hear("tried");
    let (entries, _) = place.status().unwrap();
    let entry = entries.iter().find(|entry| entry.process() == hostile.id()).unwrap();
    let threads = entry.threads.expect("it is observed");
    assert!(threads.values().iter().all(|&count| count < abi::MAX_THREADS as u32), "{entry:?}");
    hostile.hear("flooded");
    let before = place.status().unwrap().1;
    assert!(before.counters.arenas <= 2, "an arena for each message: {before:?}");
    holder.tell();
    holder.hear("all well");
}

#[test]
fn root_a_user_has_so_many_arenas() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((place, _server)) = Place::observing("arenas = 3\n") else { return };
    let mut all: Vec<_> = (0..5)
        .map(|_| {
            let mut program = Process::role(&place, "asks", NOBODY);
            let has = program.hear("has ");
            (program, has)
        })
        .collect();
    assert!(
        all[..3].iter().all(|(_, has)| has.parse::<i32>().is_ok()),
        "{:?}",
        all.iter().map(|one| &one.1).collect::<Vec<_>>()
    );
    assert!(all[3..].iter().all(|(_, has)| has == "none of 3"));
    let mut other = Process::role(&place, "asks", NOBODY - 1);
    assert!(other.hear("has ").parse::<i32>().is_ok(), "another user's is not counted");
    // Somebody keeps the descriptor of one that ends: it still is its user's.
    let kept = {
        let (program, has) = &all[0];
        // SAFETY: plain numbers; both descriptors are new and ours.
        unsafe {
            let pidfd = OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, program.id(), 0) as i32);
            let fd = libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), has.parse::<i32>().unwrap(), 0);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd as i32)
        }
    };
    all[0].0.kill();
    let listed = |process: u32| place.status().unwrap().0.iter().any(|entry| entry.process() == process);
    eventually("the server knows", || !listed(all[0].0.id()));
    let asks = || Process::role(&place, "asks", NOBODY).hear("has ");
    assert_eq!(asks(), "none of 3");
    drop(kept);
    eventually("there is room again", || asks() != "none of 3");
}
