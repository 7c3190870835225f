// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everybody who means ill at once, beside three programs that do not, and the program `wakefuld`. Needs
//! root, hence the name.

mod attacks;
mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use attacks::{ATTACKS, LOG, SEED, SET_USER, hostile, set_user_program};
use common::*;
use linux::server::{Connection, Demand, Error, Refusal, Request};

const ROLE: &str = "WAKEFUL_TEST_ROLE";
const LASTS: &str = "WAKEFUL_TEST_LASTS_MS";

/// What an honest request may take: 99 of 100.
const PATIENCE: Duration = Duration::from_millis(5);

/// What makes root of a container.
const CONTAINED: [&str; 8] =
    ["unshare", "--user", "--map-root-user", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"];

/// Not a test of its own: the programs of the other one.
#[test]
fn a_program() {
    match std::env::var(ROLE).as_deref() {
        Ok("hostile") => hostile(),
        Ok("honest") => honest(),
        _ => {}
    }
}

/// How long it lasts: seconds in the gate, an hour among the long tests, or what is asked for.
fn how_long() -> Duration {
    let asked = std::env::var("WAKEFUL_MINUTES").ok().map(|text| text.parse::<f64>().expect("minutes"));
    match asked {
        Some(minutes) => Duration::from_secs_f64(minutes * 60.0),
        None => Duration::from_secs(if long() { 3600 } else { 4 }),
    }
}

/// Where the random numbers begin.
fn seed() -> u64 {
    std::env::var("WAKEFUL_SEED").map_or(1, |text| text.parse().expect("a number"))
}

/// What an honest program asks, again and again.
const REQUESTS: [(&str, Request); 5] = [
    ("Join", Request::Join(Demand::new(0, 1, 1, 1))),
    ("Spare", Request::Spare(1)),
    ("WantBack", Request::WantBack),
    ("Status", Request::Status),
    ("Leave", Request::Leave),
];

/// Has an arena, and asks for a processor, lends it and gives it back, again and again. Says how long each
/// answer took, and how often it had the processor.
fn honest() {
    let mut connection = Connection::open().unwrap();
    let observed = loop {
        match connection.ask_for(Request::Observe) {
            Err(Error::Refused(Refusal::Later, _)) => std::thread::sleep(Duration::from_millis(1)),
            answer => break answer,
        }
    };
    assert!(matches!(observed, Ok((_, [Some(_), Some(_), Some(_)]))), "{observed:?}");
    let end = Instant::now() + Duration::from_millis(std::env::var(LASTS).unwrap().parse().unwrap());
    let (mut times, mut held) = (Vec::new(), 0);
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        held += wait_in_line(&mut connection);
    }
    for (name, request) in REQUESTS.into_iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        let began = Instant::now();
        let answer = match request {
            Request::Status => connection.status().map(|_| None),
            _ => connection.ask(request).map(|(state, _)| Some(state)),
        };
        times.push((name, began.elapsed().as_nanos()));
        match answer {
            Ok(Some(state)) if matches!(request, Request::Join(_)) && state.holds == 1 => {
                held += 1;
                assert_eq!(allowed(), state.ids.to_string(), "what it was told is what it has");
            }
            // Others may have what there is for users, and who has asked for none has none to lend.
            Ok(_) | Err(Error::Refused(Refusal::Share | Refusal::Unknown, _)) => {}
            Err(error) => panic!("an honest request: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Before the name of the test's result.
    times.iter().for_each(|time| println!("took {} {}", time.0, time.1));
    println!("held {held}");
}

/// Whoever holds a processor keeps it, but of those who wait root is the first. The users end by and by.
fn wait_in_line(connection: &mut Connection) -> u32 {
    let mut state = connection.ask(join(0, 1)).unwrap().0;
    while state.holds == 0 {
        assert_eq!((state.lacks, state.behind), (1, 0), "somebody is before root");
        state = connection.receive().unwrap();
    }
    connection.ask(Request::Leave).unwrap();
    1
}

/// What this process may run on.
fn allowed() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    line.trim().to_string()
}

/// Everything that the schedule needs to start programs.
struct Stage<'a> {
    place: &'a Place,
    /// Of the programs: what lies in memory may not get other rights.
    _folder: tempfile::TempDir,
    program: PathBuf,
    set_user: PathBuf,
    log: PathBuf,
    /// `cgroup.procs` of the base group, opened by root.
    base: File,
    end: Instant,
}

impl<'a> Stage<'a> {
    fn new(place: &'a Place, base: &Base) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = folder.path().join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let log = place.path("log");
        fs::write(&log, "").unwrap();
        fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
        let set_user = set_user_program(folder.path());
        let base = File::options().write(true).open(base.folder.join("cgroup.procs")).unwrap();
        Self { place, _folder: folder, program, set_user, log, base, end: Instant::now() + how_long() }
    }

    /// A program in the base group, and in a process group of its own.
    fn start(&self, role: &str, user: u32, contained: bool, more: &[(&str, String)]) -> Child {
        let number = user.to_string();
        let by: &[&str] = match role {
            // Its own time to get a processor is not the server's.
            "honest" => {
                &["chrt", "--fifo", "1", "setpriv", "--reuid", &number, "--regid", &number, "--clear-groups"]
            }
            _ if contained => &CONTAINED,
            _ => &["env"],
        };
        let mut command = Command::new(by[0]);
        command.args(&by[1..]).arg(&self.program);
        if role == "hostile" {
            command.uid(user).gid(user);
        }
        command.args(["--exact", "a_program", "--nocapture"]);
        command.env(ROLE, role).env("WAKEFUL_SERVER", self.place.path("run/wakefuld"));
        command.env(SET_USER, &self.set_user).env(LOG, &self.log);
        command.envs(more.iter().map(|(name, value)| (name, value)));
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        let base = self.base.as_raw_fd();
        // SAFETY: a call that a child may make; the file is root's and open.
        unsafe {
            command.pre_exec(move || match libc::write(base, c"0".as_ptr().cast(), 1) {
                1 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
        };
        command.spawn().unwrap()
    }

    /// One user, or root of one container: its program is killed in the middle of whatever it does, and
    /// another one begins.
    fn misbehave(&self, user: u32, contained: bool) {
        let mut random = random_from(seed() << 32 | u64::from(user) << 1 | u64::from(contained));
        while Instant::now() < self.end {
            let seed = (u64::from(random()) << 32 | u64::from(random())).to_string();
            let mut program = self.start("hostile", user, contained, &[(SEED, seed)]);
            let life = Duration::from_millis(u64::from(300 + random() % 1500));
            std::thread::sleep(life.min(self.end.saturating_duration_since(Instant::now())));
            let ended = program.try_wait().unwrap();
            // SAFETY: the group of a child that is there still.
            unsafe { libc::kill(-(program.id() as i32), libc::SIGKILL) };
            let _ = program.wait();
            assert_eq!(ended, None, "a hostile program of {user} ended by itself");
        }
    }

    /// The times of an honest program's requests by kind, and how often it had a processor.
    fn behave(&self, user: u32) -> (Vec<(String, Duration)>, u32) {
        let lasts = self.end.saturating_duration_since(Instant::now()).as_millis().to_string();
        let program = self.start("honest", user, false, &[(LASTS, lasts)]);
        let output = program.wait_with_output().unwrap();
        assert!(output.status.success(), "an honest program of {user}");
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = |word: &'static str| text.lines().filter_map(move |line| line.strip_prefix(word));
        let times = lines("took ").filter_map(|line| {
            let (kind, time) = line.split_once(' ')?;
            Some((kind.to_string(), Duration::from_nanos(time.parse().ok()?)))
        });
        (times.collect(), lines("held ").next().unwrap().parse().unwrap())
    }

    /// How often each attack was begun.
    fn attacks(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for line in fs::read_to_string(&self.log).unwrap().lines() {
            *counts.entry(line.to_string()).or_default() += 1;
        }
        counts
    }
}

/// Of the server and its loader together.
#[derive(Clone, Copy, Debug)]
struct Both {
    busy_s: f64,
    bytes: u64,
    descriptors: usize,
    tasks: usize,
    /// eBPF maps of this machine: an arena is one.
    maps: usize,
    loader: u32,
}

impl Both {
    fn of(server: &Process) -> Self {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.id())).unwrap();
        let loader = children.trim().parse().expect("one child");
        let (one, other) = (usage(server.id()), usage(loader));
        let tasks = |process: u32| fs::read_dir(format!("/proc/{process}/task")).unwrap().count();
        Self {
            busy_s: one.0 + other.0,
            bytes: one.1 + other.1,
            descriptors: one.2 + other.2,
            tasks: tasks(server.id()) + tasks(loader),
            maps: maps(),
            loader,
        }
    }
}

/// The eBPF maps that there are.
fn maps() -> usize {
    const BPF_MAP_GET_NEXT_ID: libc::c_int = 12;
    let mut id = 0u32;
    let next = || {
        let mut words = [id, 0, 0];
        // SAFETY: the words live and are of this length.
        let found = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_MAP_GET_NEXT_ID, words.as_mut_ptr(), size_of_val(&words))
        };
        id = words[1];
        (found == 0).then_some(())
    };
    std::iter::from_fn(next).count()
}

/// An arena is lent, so that what the server has for the first one is there.
fn lend_one(stage: &Stage<'_>) {
    let lasts = [(LASTS, "0".to_string())];
    let output = stage.start("honest", 71_000, false, &lasts).wait_with_output().unwrap();
    assert!(output.status.success());
}

fn is_quiet(place: &Place) -> bool {
    let (entries, summary) = status(&mut place.connect().unwrap());
    entries.is_empty() && (summary.making, summary.unlisted) == (0, 0)
}

/// What the honest programs saw.
#[derive(Default)]
struct Seen {
    times: Vec<(String, Duration)>,
    /// How often each of them had a processor.
    held: Vec<u32>,
}

impl Seen {
    /// Says what their requests took, kind by kind; 99 of 100 of all took less than the result.
    fn report(&self) -> Duration {
        let all = REQUESTS.map(|(name, _)| name);
        let mut most = Duration::ZERO;
        for kinds in all.iter().map(std::slice::from_ref).chain([&all[..]]) {
            let of = self.times.iter().filter(|(kind, _)| kinds.contains(&kind.as_str()));
            let mut times: Vec<Duration> = of.map(|(_, time)| *time).collect();
            times.sort_unstable();
            let [half, nearly_all, all] = [500, 990, 999].map(|part| times[times.len() * part / 1000]);
            let (count, most_of) = (times.len(), times[times.len() - 1]);
            println!(
                "{kinds:?}: {count}, half {half:?}, 99 % {nearly_all:?}, 99.9 % {all:?}, max {most_of:?}"
            );
            most = nearly_all;
        }
        most
    }
}

/// Seven users, one of them with a container, and root of another one, whose number is 0 outside too; and
/// the three who mean no harm, one of them root.
fn everybody(stage: &Stage<'_>) -> Seen {
    let mut seen = Seen::default();
    std::thread::scope(|scope| {
        for user in 70_000..70_007 {
            scope.spawn(move || stage.misbehave(user, false));
        }
        scope.spawn(|| stage.misbehave(70_006, true));
        scope.spawn(|| stage.misbehave(0, true));
        let honest = [0, 71_001, 71_002].map(|user| scope.spawn(move || stage.behave(user)));
        for program in honest {
            let (times, held) = program.join().unwrap();
            seen.times.extend(times);
            seen.held.push(held);
        }
    });
    seen
}

/// Waits until server and loader have no more than before, and says what they have.
fn all_is_back(server: &Process, before: Both) {
    let waited = Instant::now();
    let after = loop {
        let after = Both::of(server);
        let has_more =
            [(after.descriptors, before.descriptors), (after.tasks, before.tasks), (after.maps, before.maps)];
        if has_more.iter().all(|(after, before)| after <= before) {
            break after;
        }
        assert!(waited.elapsed() < LIMIT, "{before:?} {after:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    println!("{before:?}\n{after:?}");
    assert!(after.bytes < before.bytes + (2 << 20), "it has leaked memory");
    assert_eq!(after.loader, before.loader, "the loader lives");
}

#[test]
fn root_honest_programs_are_served_beside_all_of_them() {
    let Some(base) = Base::v1("together") else { return };
    let place = Place::in_memory(&base.config("[observer]\nenabled = true\n"));
    let mut server = place.server_of_a_session();
    eventually("all arenas are ready", || is_quiet(&place));
    let mut stage = Stage::new(&place, &base);
    lend_one(&stage);
    eventually("and again", || is_quiet(&place) && place.blocks() == 0);
    let (before, began) = (Both::of(&server), Instant::now());
    stage.end = began + how_long();
    let seen = everybody(&stage);
    assert_eq!(server.0.try_wait().unwrap(), None, "the server lives");
    let (lasted, attacks) = (began.elapsed().as_secs_f64(), stage.attacks());
    let busy = (Both::of(&server).busy_s - before.busy_s) / lasted * 100.0;
    let nearly_all = seen.report();
    println!("{lasted:.0} s, held {:?}, {busy:.0} % of a processor, {attacks:?}", seen.held);
    all_is_back(&server, before);
    assert_eq!(attacks.len(), ATTACKS.len(), "each attack had its turn");
    eventually("nobody's processor is lost", || {
        is_quiet(&place) && place.blocks() == 0 && base.groups() == 0
    });
    let free = status(&mut place.connect().unwrap()).1.default_partition.count();
    assert_eq!(free as usize, std::thread::available_parallelism().unwrap().get());
    // Root does not wait behind users.
    assert!(seen.held[0] > 0, "{:?}", seen.held);
    // A machine that is shared says little about so short a time.
    let limit = if how_long() < Duration::from_secs(60) { Duration::from_secs(1) } else { PATIENCE };
    assert!(nearly_all < limit, "{nearly_all:?}");
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    base.end();
}
