// SPDX-License-Identifier: MIT OR Apache-2.0
//! The views and the registry on real threads. Each scenario runs in a process of its own, because a process chooses its view
//! once: the test starts this executable again with the scenario's name.

#[path = "views/forks.rs"]
mod forks;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use abi::View;
use linux::Linux;
use platform::{Platform, Priority, RunState, ThreadId};

use forks::{forks, generations};

const SCENARIO: &str = "WAKEFUL_TEST_SCENARIO";

/// Runs this test's body in a fresh process with the given view; as user nobody if asked.
fn scenario(name: &str, view: &str, nobody: bool, body: fn()) {
    if std::env::var(SCENARIO).as_deref() == Ok(name) {
        body();
        println!("scenario done");
        return;
    }
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if name.starts_with("root_") && !root {
        skipped(&format!("{name} needs root"));
        return;
    }
    if view == "bpf" && !cfg!(feature = "bpf") {
        skipped(&format!("{name} needs the cargo feature bpf"));
        return;
    }
    // A crowd leaves nobody else a processor for seconds, and "running" is then never seen.
    static MACHINE: RwLock<()> = RwLock::new(());
    let crowded = name.ends_with("with_5000_threads");
    let _alone = crowded.then(|| MACHINE.write().unwrap_or_else(PoisonError::into_inner));
    let _beside = (!crowded).then(|| MACHINE.read().unwrap_or_else(PoisonError::into_inner));
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(SCENARIO, name)
        .env("WAKEFUL_VIEW", view);
    if nobody {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("scenario done"), "{:?}\n{out}\n{err}", output.status);
}

macro_rules! scenarios {
    ($($name:ident: $view:literal, $nobody:literal, $body:expr;)*) => {$(
        #[test]
        fn $name() {
            scenario(stringify!($name), $view, $nobody, $body);
        }
    )*};
}

scenarios! {
    perf_sees_preempted_and_blocked: "perf", false, sees;
    root_bpf_sees_preempted_and_blocked: "bpf", false, sees;
    root_nobody_gets_perf: "auto", true, sees;
    perf_fork_is_safe: "perf", false, || forks(false);
    root_bpf_fork_is_safe: "bpf", false, || forks(false);
    perf_raw_clone_is_safe: "perf", false, || forks(true);
    root_bpf_is_handed_to_nobody: "bpf", false, hands_over;
    root_bpf_ends_with_its_process: "bpf", false, ends;
    root_bpf_raw_clone_is_safe: "bpf", false, || forks(true);
    none_fork_is_safe: "none", false, || forks(true);
    none_children_without_a_space_have_generations_of_their_own: "none", false, generations;
    perf_survives_closed_descriptors: "perf", false, closes;
    root_bpf_mends_a_missed_switch: "bpf", false, missed_switch;
    root_bpf_falls_back_when_descriptors_are_closed: "bpf", false, closes;
    perf_degrades_with_5000_threads: "perf", false, crowd;
    root_nobody_degrades_with_5000_threads: "auto", true, crowd;
    root_bpf_degrades_with_5000_threads: "bpf", false, crowd;
    perf_forbidden_by_seccomp: "perf", false, seccomp;
    perf_reclaims_blocks_of_lost_threads: "perf", false, reclaims;
    root_bpf_reclaims_blocks_of_lost_threads: "bpf", false, reclaims;
    perf_reclaims_blocks_without_destructors: "perf", false, late_key;
    perf_watches_on_demand: "perf", false, on_demand;
    root_bpf_watches_on_demand: "bpf", false, on_demand;
    none_sees_nothing: "none", false, sees_nothing;
    unknown_name_is_auto: "spectacles", true, sees;
    perf_keeps_errno: "perf", false, errno;
    none_follows_the_affinity: "none", false, affinity;
    perf_registers_in_signal_handlers: "perf", false, signals;
}

/// Of a set-group-ID program, whoever starts it does not choose the view.
#[test]
fn root_who_starts_a_program_with_more_rights_chooses_nothing() {
    use std::os::unix::fs::PermissionsExt;
    const NAME: &str = "root_who_starts_a_program_with_more_rights_chooses_nothing";
    if std::env::var(SCENARIO).as_deref() == Ok(NAME) {
        linux::init();
        Linux::register();
        return println!("view {:?}", linux::chosen());
    }
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("it needs root");
    }
    let program = std::env::temp_dir().join(format!("wakeful-test-views-{}", std::process::id()));
    std::fs::copy("/proc/self/exe", &program).unwrap();
    std::os::unix::fs::chown(&program, Some(0), Some(0)).unwrap();
    let view = |mode: u32, view: Option<&str>| {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        command
            .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(SCENARIO, NAME)
            .uid(65534)
            .gid(65534);
        match view {
            Some(view) => command.env("WAKEFUL_VIEW", view),
            None => command.env_remove("WAKEFUL_VIEW"),
        };
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        output.lines().find_map(|line| Some(line.split_once("view ")?.1.to_string())).unwrap()
    };
    let [plain, chosen, theirs] = [view(0o755, Some("none")), view(0o2755, Some("none")), view(0o2755, None)];
    std::fs::remove_file(&program).unwrap();
    assert_eq!((plain.as_str(), chosen), ("Some(None)", theirs));
}

/// A server that hangs costs a program little: it asks once, and does not wait a second. The least of some
/// tries, because others run too.
#[test]
fn a_server_that_hangs_is_not_waited_for() {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    const NAME: &str = "a_server_that_hangs_is_not_waited_for";
    if std::env::var(SCENARIO).as_deref() == Ok(NAME) {
        let start = Instant::now();
        linux::init();
        return println!("took {}", start.elapsed().as_millis());
    }
    let path = std::env::temp_dir().join(format!("wakeful-test-hangs-{}", std::process::id()));
    // SAFETY: plain numbers; the descriptor is new and ours, and the address lives and is of this length.
    let listener = unsafe {
        let listener =
            OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0));
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.to_str().unwrap().bytes();
        address.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as libc::c_char);
        let length = size_of_val(&address) as libc::socklen_t;
        assert_eq!(libc::bind(listener.as_raw_fd(), (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(listener.as_raw_fd(), 100), 0);
        listener
    };
    let took = || {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", NAME, "--nocapture", "--test-threads=1"]).env(SCENARIO, NAME);
        let output = command.env("WAKEFUL_SERVER", &path).env_remove("WAKEFUL_VIEW").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find_map(|line| line.split_once("took ")?.1.parse::<u32>().ok()).unwrap()
    };
    const TRIES: usize = 10;
    let least = (0..TRIES).map(|_| took()).min().unwrap();
    std::fs::remove_file(&path).unwrap();
    let accept = || {
        // SAFETY: plain numbers and no place for the address; a new descriptor is ours.
        unsafe {
            let fd = libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), 0);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
        }
    };
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::fcntl(listener.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    let asked = std::iter::from_fn(accept).count();
    assert!(asked == TRIES && least < 1000, "{asked} times, {least} ms");
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::yield_now();
    }
}

fn pin(processor: usize) {
    // SAFETY: an all-zero cpu_set_t is valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn expected() -> View {
    match std::env::var("WAKEFUL_VIEW").as_deref() {
        Ok("bpf") => View::Bpf,
        Ok("none") => View::None,
        _ => View::Perf,
    }
}

/// Two busy threads on processor 0 and one that sleeps, watched from processor 1.
fn sees() {
    static STOP: AtomicBool = AtomicBool::new(false);
    linux::init();
    let spawn = |busy: bool| {
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            pin(0);
            let me = Linux::register();
            assert_eq!((Linux::current(), Linux::register()), (me, me));
            Linux::set_priority(me, Priority::LockHolder);
            send.send(me).unwrap();
            while !STOP.load(Relaxed) {
                if busy { std::hint::spin_loop() } else { std::thread::sleep(Duration::from_millis(50)) }
            }
        });
        (receive.recv().unwrap(), thread)
    };
    let (one, two, asleep) = (spawn(true), spawn(true), spawn(false));
    pin(1);
    for id in [one.0, two.0] {
        eventually("preempted", || Linux::run_state(id) == RunState::Preempted);
        eventually("running", || Linux::run_state(id) == RunState::Running);
    }
    eventually("blocked", || Linux::run_state(asleep.0) == RunState::Blocked);
    eventually("higher preempted", || Linux::higher_preempted(Priority::LockWaiter));
    assert!(!Linux::higher_preempted(Priority::LockHolder), "nothing is above a holder");
    let report = linux::report();
    assert_eq!(report.chosen, Some(expected()), "{report:?}");
    assert_eq!((report.registered, report.unseen, report.turned_away), (3, 0, 0));
    STOP.store(true, Relaxed);
    for (_, thread) in [one, two, asleep] {
        thread.join().unwrap();
    }
    assert_eq!(linux::report().registered, 0, "threads unregister when they exit");
    eventually("nobody preempted", || !Linux::higher_preempted(Priority::LockWaiter));
}

/// A thread that registers lazily is watched while others ask for it more often than it switches.
fn on_demand() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    linux::init();
    let (say, told) = std::sync::mpsc::channel();
    let (order, hear) = std::sync::mpsc::channel::<u32>();
    let thread = std::thread::spawn(move || {
        let me = Linux::register_lazily();
        assert_eq!((Linux::current(), Linux::register_lazily()), (me, me));
        say.send(me).unwrap();
        while let Ok(switches) = hear.recv() {
            for _ in 0..switches {
                std::thread::sleep(Duration::from_micros(1));
                // Who runs for a moment only between two switches is not watched.
                let start = std::time::Instant::now();
                while start.elapsed() < Duration::from_micros(50) {}
            }
            assert_eq!(Linux::register_lazily(), me);
            say.send(me).unwrap();
        }
        // At once, whatever it did.
        assert_eq!(Linux::register(), me);
        say.send(me).unwrap();
        while ASKED.load(Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let id = told.recv().unwrap();
    let ask = |times| (0..times).filter(|_| Linux::run_state(id) != RunState::Unknown).count();
    // Lets the thread switch so often and look at itself; is it watched now?
    let watched = |switches| {
        order.send(switches).unwrap();
        told.recv().unwrap();
        ask(1) == 1
    };
    assert_eq!(ask(3), 0);
    assert!(!watched(0), "asked for too seldom");
    assert_eq!(ask(2_000), 0);
    assert!(watched(100), "asked for more often than it switched");
    assert!(watched(100));
    assert!(!watched(2_000), "it must earn it anew");
    assert_eq!(ask(50), 0);
    assert!(!watched(900), "it switched more often than it was asked for");
    assert_eq!(ask(2_000), 0);
    assert!(watched(0));
    assert!(!watched(2_000));
    let report = linux::report();
    assert_eq!((report.chosen, report.registered, report.unseen), (Some(expected()), 1, 0));
    drop(order);
    told.recv().unwrap();
    assert_eq!(ask(1), 1);
    ASKED.store(1, Relaxed);
    thread.join().unwrap();
    assert_eq!(linux::report().registered, 0);
}

fn sees_nothing() {
    linux::init();
    let me = Linux::register();
    assert_ne!(me, ThreadId::NONE, "the queue needs an id");
    assert_eq!(Linux::run_state(me), RunState::Unknown);
    assert!(!Linux::higher_preempted(Priority::BarrierWaiter));
    assert_eq!(linux::report().chosen, Some(View::None));
}

/// A child as nobody, a shell in between: it uses the inherited observer; its own child cannot.
#[cfg(feature = "bpf")]
fn hands_over() {
    match std::env::var("WAKEFUL_TEST_STAGE").as_deref() {
        Ok("child") => {
            sees();
            println!("the child saw");
            return;
        }
        Ok("second") => {
            linux::init();
            Linux::register();
            assert_eq!(linux::report().chosen, Some(View::Perf));
            println!("the second saw");
            return;
        }
        _ => {}
    }
    let observer = bpf::Observer::load().unwrap();
    let handle = observer.hand_over().unwrap().to_string();
    // A copy that everybody may execute, which the build directory need not be.
    let copy = std::env::temp_dir().join(format!("wakeful-views-{}", std::process::id()));
    std::fs::copy("/proc/self/exe", &copy).unwrap();
    let test = format!("{} --exact root_bpf_is_handed_to_nobody --nocapture", copy.display());
    let shell = format!("WAKEFUL_TEST_STAGE=child {test}; WAKEFUL_TEST_STAGE=second {test}");
    let output = Command::new("/bin/sh")
        .args(["-c", &shell])
        .env(linux::environment::OBSERVER.name(), handle)
        .env("WAKEFUL_VIEW", "bpf")
        .uid(65534)
        .gid(65534)
        .output();
    std::fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("the child saw") && text.contains("the second saw"), "{text}");
}

/// A forked child that goes on does not keep the dead parent's observer.
#[cfg(feature = "bpf")]
fn ends() {
    // The kernel's id of a program that this process has open.
    let program = || {
        let files = std::fs::read_dir("/proc/self/fdinfo").unwrap();
        let texts = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
        let ids: Vec<_> = texts
            .filter_map(|text| {
                Some(text.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().to_owned())
            })
            .collect();
        ids.first().cloned().unwrap_or("0".into())
    };
    // SAFETY: plain numbers; nobody outlives this process, whose death is the test's end.
    let die_with_parent = || unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGALRM) };
    let mut ends = [0; 2];
    // SAFETY: the array has room for two.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    let mut tell = std::fs::File::from(own(ends[1]));
    let mut hear = std::fs::File::from(own(ends[0]));
    // SAFETY: as in `fork`.
    let parent = unsafe { libc::fork() };
    if parent == 0 {
        die_with_parent();
        linux::init();
        Linux::register();
        // SAFETY: as in `fork`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            Linux::register();
            // SAFETY: plain numbers. It must outlive its parent, but not for ever.
            unsafe {
                libc::alarm(20);
                libc::pause();
            }
        }
        use std::io::Write;
        let id = program();
        tell.write_all(format!("{child} {id}\n").as_bytes()).unwrap();
        // SAFETY: no arguments.
        unsafe { libc::pause() };
    }
    let mut text = [0u8; 64];
    let length = std::io::Read::read(&mut hear, &mut text).unwrap();
    let text = std::str::from_utf8(&text[..length]).unwrap();
    let (child, id) = text.trim().split_once(' ').unwrap();
    let id = id.parse().unwrap();
    assert_ne!(id, 0, "no program was loaded");
    let exists = || bpf::program_exists(id).unwrap();
    assert!(exists());
    // SAFETY: ours.
    unsafe {
        libc::kill(parent, libc::SIGKILL);
        libc::waitpid(parent, std::ptr::null_mut(), 0);
    }
    let start = Instant::now();
    while exists() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let gone = !exists();
    // SAFETY: our grandchild.
    unsafe { libc::kill(child.parse().unwrap(), libc::SIGKILL) };
    assert!(gone, "the child keeps the observer");
}

#[cfg(feature = "bpf")]
fn own(fd: i32) -> std::os::fd::OwnedFd {
    // SAFETY: a fresh descriptor that nobody else owns.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}

#[cfg(not(feature = "bpf"))]
use sees_nothing as hands_over;
#[cfg(not(feature = "bpf"))]
use sees_nothing as ends;

/// A kernel may keep a switch from the observer: the thread that it reads as preempted, and that runs, is no reason to lose the view.
fn missed_switch() {
    linux::init();
    pin(0);
    let me = Linux::register();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let arena = maps.lines().find(|line| line.ends_with("anon_inode:bpf-map")).expect("an arena");
    let arena = usize::from_str_radix(arena.split('-').next().unwrap(), 16).unwrap() as *const abi::Arena;
    // SAFETY: the blocks follow the header, in a mapping that stays; their fields are atomics.
    let block = unsafe { &*arena.add(1).cast::<abi::Thread>().add(me.0 as usize) };
    for _ in 0..100 {
        platform::ke1::set_run_state(&block.state, RunState::Preempted);
        assert_eq!(Linux::register(), me);
        assert_eq!(Linux::run_state(me), RunState::Running);
        std::thread::sleep(Duration::from_micros(100));
    }
    let blocks = block.blocks.load(Relaxed);
    eventually("a switch is seen", || {
        std::thread::sleep(Duration::from_micros(100));
        block.blocks.load(Relaxed) > blocks
    });
    assert_eq!(linux::report().chosen, Some(View::Bpf));
}

fn closes() {
    linux::init();
    static STOP: AtomicBool = AtomicBool::new(false);
    static GO: AtomicBool = AtomicBool::new(false);
    let spin = || {
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            pin(0);
            send.send(Linux::register()).unwrap();
            while !GO.load(Relaxed) {
                std::thread::yield_now();
            }
            while !STOP.load(Relaxed) {
                Linux::register();
                std::hint::spin_loop();
            }
        });
        (receive.recv().unwrap(), thread)
    };
    let (one, two) = (spin(), spin());
    pin(1);
    Linux::register();
    // SAFETY: this scenario needs none of them any more.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) }, 0);
    // Other files come to have the numbers.
    let _files: Vec<_> = (0..1100).map_while(|_| std::fs::File::open("/dev/null").ok()).collect();
    GO.store(true, Relaxed);
    std::thread::spawn(Linux::register).join().unwrap();
    for id in [one.0, two.0] {
        for _ in 0..3 {
            eventually("preempted", || Linux::run_state(id) == RunState::Preempted);
            eventually("running", || Linux::run_state(id) == RunState::Running);
        }
    }
    drop(_files);
    assert_eq!(linux::report().chosen, Some(View::Perf));
    STOP.store(true, Relaxed);
    one.1.join().unwrap();
    two.1.join().unwrap();
}

fn crowd() {
    linux::init();
    static COME: AtomicU32 = AtomicU32::new(0);
    static GO: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    const CROWD: usize = 5000;
    let mut threads = Vec::new();
    for _ in 0..CROWD {
        let builder = std::thread::Builder::new().stack_size(64 << 10);
        match builder.spawn(|| {
            let id = Linux::register();
            // Ids are nobody else's and good for queues, seen or not.
            Linux::word(id, 0).fetch_add(1, Relaxed);
            COME.fetch_add(1, Relaxed);
            drop(GO.1.wait_while(GO.0.lock().unwrap(), |go| !*go).unwrap());
            let state = Linux::run_state(id);
            assert!(
                matches!(state, RunState::Unknown | RunState::Running | RunState::Preempted),
                "{state:?}"
            );
            id
        }) {
            Ok(thread) => threads.push(thread),
            Err(_) => break,
        }
    }
    let came = threads.len();
    eventually("all came", || COME.load(Relaxed) as usize == came);
    let report = linux::report();
    assert_eq!(report.registered as usize, came.min(linux::MOST_THREADS as usize), "{report:?}");
    assert_eq!(came > linux::MOST_THREADS as usize, report.turned_away > 0, "{report:?}");
    // Whoever has no id shares word 0.
    let taken = (1..4096).filter(|&id| Linux::word(ThreadId(id), 0).load(Relaxed) == 1).count();
    assert_eq!(taken, came.min(linux::MOST_THREADS as usize));
    *GO.0.lock().unwrap() = true;
    GO.1.notify_all();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(linux::report().registered, 0);
    // There is room again.
    assert_ne!(std::thread::spawn(Linux::register).join().unwrap(), ThreadId::NONE);
    println!("{came} threads, {} of them unseen", report.unseen);
}

/// Forbids perf_event_open for this process, and counts how often it is tried after all by the time it takes.
fn seccomp() {
    const PERF_EVENT_OPEN: u32 = libc::SYS_perf_event_open as u32;
    const RET_ERRNO: u32 = 0x0005_0000 | libc::EPERM as u32;
    const RET_ALLOW: u32 = 0x7fff_0000;
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        statement(0x20, 0, 0, 0),               // load the system call's number
        statement(0x15, 0, 1, PERF_EVENT_OPEN), // is it this one?
        statement(0x06, 0, 0, RET_ERRNO),
        statement(0x06, 0, 0, RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the filter lives across the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &program), 0);
    }
    let id = Linux::register();
    assert_ne!(id, ThreadId::NONE);
    assert_eq!(Linux::run_state(id), RunState::Unknown);
    let report = linux::report();
    assert_eq!(report.chosen, Some(View::None));
    let perf = report.views.iter().find(|status| status.view == View::Perf).unwrap();
    assert!(!perf.available && perf.remedy.is_some(), "{perf:?}");
}

/// Threads that end by a bare system call, their destructors not run.
fn reclaims() {
    linux::init();
    for _ in 0..6000 {
        static LAST: AtomicU32 = AtomicU32::new(0);
        // SAFETY: a stack of its own, which is not freed; the thread touches nothing after the store but the system call.
        unsafe {
            extern "C" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
                LAST.store(Linux::register().0 + 1, Relaxed);
                // SAFETY: ends this thread only.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
                unreachable!()
            }
            LAST.store(0, Relaxed);
            let mut thread: libc::pthread_t = std::mem::zeroed();
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            libc::pthread_attr_setstacksize(&mut attributes, 64 << 10);
            assert_eq!(libc::pthread_create(&mut thread, &attributes, body, std::ptr::null_mut()), 0);
            libc::pthread_join(thread, std::ptr::null_mut());
        }
        if LAST.load(Relaxed) == 1 {
            // Turned away for now: dead threads are not looked for all the time.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    std::thread::sleep(Duration::from_millis(150));
    assert_ne!(std::thread::spawn(Linux::register).join().unwrap(), ThreadId::NONE);
    let report = linux::report();
    assert!(report.registered < linux::MOST_THREADS, "{report:?}");
    assert!(!Linux::higher_preempted(Priority::BarrierWaiter), "a count is left over");
}

/// A program that has used up the keys whose values need no allocation: exits go unnoticed, and the blocks are found again.
fn late_key() {
    for _ in 0..40 {
        let mut key = 0;
        // SAFETY: the pointer is valid.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, None) }, 0);
    }
    for _ in 0..100 {
        assert_ne!(std::thread::spawn(Linux::register).join().unwrap(), ThreadId::NONE);
    }
    let left = linux::report().registered;
    assert_eq!(left, if cfg!(target_env = "gnu") { 100 } else { 0 });
    // Until the table is full, and past it.
    for _ in 0..4100 {
        std::thread::spawn(Linux::register).join().unwrap();
    }
    std::thread::sleep(Duration::from_millis(150));
    assert_ne!(std::thread::spawn(Linux::register).join().unwrap(), ThreadId::NONE);
    // An explicit end, as an interposer gives it.
    std::thread::spawn(|| {
        let before = linux::report().registered;
        assert_ne!(Linux::register(), ThreadId::NONE);
        linux::thread_exit();
        assert_eq!((Linux::current(), Linux::register()), (ThreadId::NONE, ThreadId::NONE));
        assert_eq!(linux::report().registered, before);
    })
    .join()
    .unwrap();
}

fn errno() {
    for value in [0, 1234] {
        std::thread::spawn(move || {
            // SAFETY: this thread's errno.
            unsafe { *libc::__errno_location() = value };
            let _ = (Linux::register(), Linux::generation(), Linux::processors());
            // SAFETY: as above.
            assert_eq!(unsafe { *libc::__errno_location() }, value);
        })
        .join()
        .unwrap();
    }
}

/// The number of processors follows the masks of the threads while the program runs.
fn affinity() {
    fn mask(tid: i32) -> libc::cpu_set_t {
        // SAFETY: an all-zero cpu_set_t is valid; the pointer is, too.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(tid, size_of_val(&set), &mut set), 0);
            set
        }
    }
    fn set_mask(tid: i32, set: &libc::cpu_set_t) {
        // SAFETY: a valid set.
        assert_eq!(unsafe { libc::sched_setaffinity(tid, size_of_val(set), set) }, 0);
    }
    /// After a look that is due. Each call is farther in the future than the one before.
    fn seen() -> (u32, u32) {
        static LATER: AtomicU32 = AtomicU32::new(0);
        let later = LATER.fetch_add(1, Relaxed) as u64 + 1;
        Linux::refresh_processors(Some(Linux::now_ns() + later * 3_000_000_000));
        (Linux::processors(), Linux::partition_generation())
    }
    let whole = mask(0);
    // SAFETY: as above.
    let (all, first) =
        unsafe { (libc::CPU_COUNT(&whole), (0..).find(|&cpu| libc::CPU_ISSET(cpu, &whole)).unwrap()) };
    let all = all as u32;
    if all < 2 {
        skipped("affinity needs two processors");
        return;
    }
    // SAFETY: as above.
    let one = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first, &mut set);
        set
    };
    // Where a quota is less than the affinity, another number would be right.
    let before = Linux::processors();
    if before != all {
        skipped("affinity cannot be seen below a quota");
        return;
    }
    assert_eq!(seen(), (all, 0));
    // A pinned thread says nothing about the others, of which the harness has one.
    set_mask(0, &one);
    assert_eq!(seen(), (all, 0), "what one thread may use was taken for all");
    let tasks = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse::<i32>().unwrap())
    };
    tasks().for_each(|tid| set_mask(tid, &one));
    // Not yet time to look.
    Linux::refresh_processors(Some(0));
    assert_eq!(Linux::processors(), all);
    // What would open files is not done where a standard descriptor is closed.
    // SAFETY: put back below.
    let aside = unsafe {
        let aside = libc::dup(0);
        assert_eq!(libc::close(0), 0);
        aside
    };
    let without = seen();
    // SAFETY: ours.
    assert_eq!(unsafe { libc::dup2(aside, 0) }, 0);
    assert_eq!(without, (all, 0), "looked with a descriptor closed");
    assert_eq!(seen(), (1, 1));
    tasks().for_each(|tid| set_mask(tid, &whole));
    assert_eq!(seen(), (all, 2));
    assert_eq!(seen(), (all, 2));
}

/// A timer's handler registers while threads register.
fn signals() {
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    static FAILED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handler(_: libc::c_int) {
        let id = Linux::register();
        if id == ThreadId::NONE || id != Linux::current() {
            FAILED.fetch_add(1, Relaxed);
        }
        HANDLED.fetch_add(1, Relaxed);
    }
    // SAFETY: the handler makes system calls and touches atomics only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut());
        let every = libc::timeval { tv_sec: 0, tv_usec: 100 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut());
    }
    let start = Instant::now();
    while HANDLED.load(Relaxed) < 50 || start.elapsed() < Duration::from_millis(500) {
        assert!(start.elapsed() < Duration::from_secs(120), "no signals");
        let threads: Vec<_> =
            (0..8).map(|_| std::thread::spawn(|| assert_eq!(Linux::register(), Linux::register()))).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
    // SAFETY: stops the timer.
    unsafe {
        let timer: libc::itimerval = std::mem::zeroed();
        libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut());
    }
    // A handler in a thread that has unregistered is turned away, and in no other.
    println!("{} handlers, {} turned away", HANDLED.load(Relaxed), FAILED.load(Relaxed));
    assert!(FAILED.load(Relaxed) * 2 < HANDLED.load(Relaxed));
    assert!(linux::report().registered <= 2);
}

/// Says so on the terminal even though the harness keeps what a test prints.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
