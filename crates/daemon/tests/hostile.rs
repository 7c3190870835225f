// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users, containers and programs that mean ill, and the program `wakefuld`. Needs root, hence the names.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use linux::environment::{LOCK, OBSERVER, PARTITION, RWLOCK, SERVER, VIEW, Variable};
use linux::server::{Connection, Envelope, Error, Refusal, Request};

const AFFINITY: &str = "[access]\nprocessors = 1.0\n[enforcement]\nby = \"affinity\"\n";
const NOBODY: u32 = 65534;
const ROLE: &str = "WAKEFUL_TEST_ROLE";

/// A place whose server is root's.
fn as_root(config: &str) -> Option<Place> {
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("skipped: needs root");
    }
    root.then(|| Place::new(config))
}

/// A copy of a program with these permissions. Another process writes it: children that tests fork meanwhile
/// would keep it open for writing, and then nobody can execute it.
fn install(from: &Path, to: &Path, mode: &str) {
    assert!(Command::new("install").args(["-m", mode]).args([from, to]).status().unwrap().success());
}

/// A program that goes on when it is told to.
struct Told(Child);

impl Told {
    fn start(command: &mut Command) -> Self {
        Self(command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// A shell of this user's, which reads lines.
    fn shell(user: u32, script: &str) -> Self {
        Self::start(Command::new("sh").args(["-c", script]).uid(user).gid(user))
    }

    fn tell(&mut self) {
        self.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Told {
    /// With all that it has started.
    fn drop(&mut self) {
        // SAFETY: plain numbers; the group of a child that we have not waited for.
        unsafe { libc::kill(-(self.id() as i32), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

fn status_of(process: u32, name: &str) -> String {
    let status = fs::read(format!("/proc/{process}/status")).unwrap();
    let status = String::from_utf8_lossy(&status).into_owned();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_string()
}

fn allowed(process: u32) -> String {
    status_of(process, "Cpus_allowed_list:")
}

/// Is somebody answered, and not after an hour?
fn answers(place: &Place) {
    let path = place.path("run/wakefuld");
    let mut connection = Connection::open_at(path.to_str().unwrap()).unwrap();
    let time = libc::timeval { tv_sec: 20, tv_usec: 0 };
    // SAFETY: the time lives and is of this length.
    unsafe {
        let (fd, length) = (connection.as_fd().as_raw_fd(), size_of_val(&time) as libc::socklen_t);
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const time).cast(), length);
    }
    connection.status().expect("the server is stopped");
}

#[test]
fn root_a_descriptor_that_takes_an_hour_to_close_stops_nobody() {
    let Some(place) = as_root(AFFINITY) else { return };
    let _server = place.server();
    let path = place.path("run/wakefuld");
    let mut others = Vec::new();
    as_nobody(|| {
        for packet in [&Envelope::from(Request::WantBack).encode().bytes()[..], &[1, 2, 3]] {
            let (socket, other) = lingering();
            let connection = Connection::open_at(path.to_str().unwrap()).unwrap();
            let sent = send_with(&connection, packet, &[socket.as_fd()]);
            if let Err(error) = sent {
                assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                linger_for(&socket, 0);
            }
            // Of one that was sent, the last close is not ours.
            drop(socket);
            others.push(other);
            if others.len() == 1 {
                continue;
            }
            // Nobody has read what came last.
            drop(connection);
        }
    });
    answers(&place);
}

#[test]
fn root_no_user_holds_the_next_server_off() {
    let Some(place) = as_root(AFFINITY) else { return };
    let mut server = place.server();
    let files = as_nobody(|| {
        let names = ["lock", "partitions/lock", "wakefuld", "partitions", "."];
        let files = names.map(|name| File::open(place.path("run").join(name)).ok());
        files.into_iter().flatten().collect::<Vec<_>>()
    });
    server.signal(libc::SIGKILL);
    server.0.wait().unwrap();
    for file in &files {
        let _ = file.try_lock();
    }
    let mut next = Process::start(&mut place.command());
    eventually("the next one answers", || {
        assert_eq!(next.0.try_wait().unwrap(), None, "it has not started");
        place.connect().is_ok()
    });
}

#[test]
fn root_any_bytes_are_a_name() {
    let Some(place) = as_root(AFFINITY) else { return };
    let mut server = place.server();
    let script = r#"read go; printf '\377\303) R 1 ' >/proc/$$/comm; while read more; do :; done"#;
    let (mut one, mut two) = (Told::shell(NOBODY, script), Told::shell(NOBODY, script));
    let named = |program: &mut Told| {
        let id = program.id();
        program.tell();
        eventually("it has its name", || fs::read(format!("/proc/{id}/comm")).unwrap().starts_with(&[0xff]));
    };
    named(&mut two);
    as_nobody(|| ask(&place, join(two.id(), 1))).unwrap();
    as_nobody(|| ask(&place, Request::Leave.of(two.id()))).unwrap();
    as_nobody(|| ask(&place, join(one.id(), 1))).unwrap();
    named(&mut one);
    server.signal(libc::SIGKILL);
    server.0.wait().unwrap();
    let mut next = Process::start(&mut place.command());
    eventually("the next one answers", || {
        assert_eq!(next.0.try_wait().unwrap(), None, "it has not started");
        place.connect().is_ok()
    });
    let state = ask(&place, Request::WantBack.of(one.id())).unwrap();
    assert_eq!(state.holds, 1, "it knows it again");
}

/// A block that is nonsense, in each of the ways that a file can be.
#[test]
fn root_no_block_keeps_a_server_from_starting() {
    let Some(place) = as_root(AFFINITY) else { return };
    let mut server = place.server();
    let (idle, other) = (Process::idle(), Process::idle());
    ask(&place, join(idle.id(), 1)).unwrap();
    server.signal(libc::SIGKILL);
    server.0.wait().unwrap();
    let block = |name: u32| place.path("run/partitions").join(name.to_string());
    fs::create_dir(block(other.id())).unwrap();
    fs::write(block(std::process::id()), [0xff; 4096]).unwrap();
    fs::write(block(1), "short").unwrap();
    std::os::unix::fs::symlink("/dev/full", block(2)).unwrap();
    let mut next = Process::start(&mut place.command());
    eventually("the next one answers", || {
        assert_eq!(next.0.try_wait().unwrap(), None, "it has not started");
        place.connect().is_ok()
    });
    assert_eq!(ask(&place, Request::WantBack.of(idle.id())).unwrap().holds, 1);
}

/// Not a test of its own: the programs of the others.
#[test]
fn a_program() {
    match std::env::var(ROLE).as_deref() {
        Ok("contained") => contained(),
        Ok("asks for names") => asks_for_names(),
        Ok("begins") => begins(),
        Ok("is answered") => {
            Connection::open().unwrap().status().unwrap();
            println!("answered");
        }
        _ => {}
    }
}

/// Number 0 of a container: its own user, pid and mount namespaces, in which it has every right.
fn contained() {
    let host: u32 = std::env::var("WAKEFUL_TEST_OTHER").unwrap().parse().unwrap();
    let path = std::env::var("WAKEFUL_SERVER").unwrap();
    let mut connection = Connection::open_at(&path).unwrap();
    // SAFETY: no arguments.
    assert_eq!(unsafe { libc::geteuid() }, 0);
    assert!(
        fs::read_to_string("/proc/self/status").unwrap().contains("CapEff:\t000001ff"),
        "it has every right"
    );
    for priority in [0, 4_000_000_000] {
        let foreign = connection.ask(join_at(priority, host, 1));
        assert!(matches!(foreign, Err(Error::Refused(Refusal::NoProcess, _))), "{foreign:?}");
    }
    let high = connection.ask(join_at(4_000_000_000, 0, 1));
    assert!(matches!(high, Err(Error::Refused(Refusal::Priority, _))), "{high:?}");
    // What it is given it can read.
    let (_, block) = connection.ask(join(0, 1)).unwrap();
    let mut all = vec![block.expect("a block")];
    let observed = loop {
        match connection.ask_for(Request::Observe) {
            Err(Error::Refused(Refusal::Later, _)) => std::thread::yield_now(),
            answer => break answer,
        }
    };
    if let Ok((_, [_, _, life])) = observed {
        let life = life.unwrap();
        let mut page = Vec::new();
        File::open(format!("/proc/self/fd/{}", life.as_raw_fd())).unwrap().read_to_end(&mut page).unwrap();
        assert!(
            page[..4] != [0; 4] && page[4..].iter().all(|&byte| byte == 0),
            "it says more than that it lives"
        );
        all.push(life);
    }
    for fd in &all {
        let again = File::options().write(true).open(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        assert!(again.is_err(), "it could write what the server tells it");
        // SAFETY: a mapping of its own.
        let map = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        assert_eq!(map, libc::MAP_FAILED);
    }
    println!("tried {}", all.len());
}

#[test]
fn root_number_0_of_a_container_is_not_root() {
    let Some(place) = as_root(&format!("{AFFINITY}[observer]\nenabled = true\n")) else { return };
    let mut server = place.server();
    let idle = Process::idle();
    let before = idle.allowed();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "a_program", "--nocapture"]);
    command.env(ROLE, "contained").env("WAKEFUL_TEST_OTHER", idle.id().to_string());
    command.env("WAKEFUL_SERVER", place.path("run/wakefuld"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("tried "), "{text}");
    assert_eq!(idle.allowed(), before);
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}

/// A program of the user's becomes root's by what it executes.
#[test]
fn root_who_gets_other_rights_is_the_users_no_more() {
    let Some(place) = as_root(AFFINITY) else { return };
    if !several() {
        return;
    }
    let _server = place.server();
    let (all, sleep) = (Process::idle().allowed(), place.path("sleep"));
    install(Path::new("/bin/sleep"), &sleep, "4755");
    let mut program = Told::shell(NOBODY, &format!("read go; exec {} 1000", sleep.display()));
    let id = program.id();
    let as_user = |request: Request| as_nobody(|| ask(&place, request.of(id)));
    assert_eq!(as_nobody(|| ask(&place, join(id, 1))).unwrap().holds, 1);
    let own = allowed(id);
    assert_ne!(own, all);
    program.tell();
    eventually("it has root's rights", || status_of(id, "Uid:").split_whitespace().nth(1) == Some("0"));
    for request in [Request::Leave, Request::WantBack, Request::Spare(0)] {
        let answer = as_user(request);
        assert!(
            matches!(answer, Err(Error::Refused(Refusal::Unknown | Refusal::NoProcess, _))),
            "{answer:?}"
        );
    }
    let again = as_nobody(|| ask(&place, join(id, 1)));
    assert!(matches!(again, Err(Error::Refused(Refusal::NoProcess, _))), "{again:?}");
    assert_eq!(allowed(id), own, "nothing was changed for it");
    eventually("its processor is free", || status(&mut place.connect().unwrap()).0.is_empty());
}

/// One connects and hangs up, as fast as that goes.
#[test]
fn root_a_flood_of_connections_takes_some_of_a_processor() {
    let Some(place) = as_root(AFFINITY) else { return };
    let server = place.server();
    let path = place.path("run/wakefuld");
    let connect = || Connection::open_at(path.to_str().unwrap());
    let (began, before) = (Instant::now(), usage(server.id()).0);
    let mut count = 0;
    as_nobody(|| {
        while began.elapsed() < Duration::from_secs(if long() { 60 } else { 3 }) {
            count += u32::from(connect().is_ok());
        }
    });
    let share = (usage(server.id()).0 - before) / began.elapsed().as_secs_f64();
    println!("{count} connections, {:.0} % of a processor", share * 100.0);
    assert!(share < 0.4, "{share}");
    answers(&place);
}

/// One has thousands of threads, all of which are to be moved.
#[test]
fn root_what_takes_long_is_dear() {
    let Some(place) = as_root(AFFINITY) else { return };
    if !several() {
        return;
    }
    let server = place.server();
    let script = "import threading, time\nfor _ in range(2000): \
                  threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n\
                  print('ready', flush=True)\ntime.sleep(1000)";
    let mut program = Told::start(Command::new("python3").args(["-c", script]).uid(NOBODY).gid(NOBODY));
    let mut ready = [0; 6];
    program.0.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let id = program.id();
    let (began, before) = (Instant::now(), usage(server.id()).0);
    let mut count = 0;
    as_nobody(|| {
        while began.elapsed() < Duration::from_secs(3) {
            for request in [join(id, 1), Request::Leave.of(id)] {
                count += u32::from(ask(&place, request).is_ok());
            }
        }
    });
    let share = (usage(server.id()).0 - before) / began.elapsed().as_secs_f64();
    println!("{count} messages, {:.0} % of a processor", share * 100.0);
    assert!(count > 0 && share < 0.4, "{share}");
}

/// What a library of ours takes from the environment.
const NAMES: [Variable; 6] = [LOCK, RWLOCK, VIEW, SERVER, OBSERVER, PARTITION];

fn asks_for_names() {
    let found = NAMES.iter().filter(|name| linux::server::variable(**name, |_| Some(())).is_some());
    println!("found {}", found.count());
}

/// The user who starts a set-user-ID program chooses nothing in it.
#[test]
fn root_the_environment_of_a_set_user_id_program_says_nothing() {
    let Some(place) = as_root(AFFINITY) else { return };
    for (mode, found) in [("755", "found 6"), ("4755", "found 0")] {
        let program = place.path("program");
        install(&std::env::current_exe().unwrap(), &program, mode);
        let mut command = Command::new(&program);
        command.args(["--exact", "a_program", "--nocapture"]).uid(NOBODY).gid(NOBODY);
        command.env(ROLE, "asks for names");
        command.envs(NAMES.map(|name| (name.name(), "x")));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(found), "{mode}: {text}");
    }
}

fn begins() {
    let began = Instant::now();
    linux::init();
    println!("took {} ms", began.elapsed().as_millis());
}

/// A server that is stopped costs a program's beginning little.
#[test]
fn root_nobody_waits_long_for_a_server_that_hangs() {
    let Some(place) = as_root(AFFINITY) else { return };
    let server = place.server();
    server.signal(libc::SIGSTOP);
    let took = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_program", "--nocapture"]).env_remove("WAKEFUL_VIEW");
        command.env(ROLE, "begins").env("WAKEFUL_SERVER", place.path("run/wakefuld"));
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let (_, rest) = text.split_once("took ").expect("it says how long");
        rest.split_whitespace().next().unwrap().parse::<u32>().unwrap()
    };
    // The least of some: this machine may be busy.
    let least = (0..10).map(|_| took()).min().unwrap();
    assert!((10..1000).contains(&least), "{least} ms");
    server.signal(libc::SIGCONT);
}

/// A server in a container, and a program outside: it has no number there.
#[test]
fn root_who_has_no_number_here_is_nobody() {
    let Some(place) = as_root(AFFINITY) else { return };
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]);
    let server = place.command();
    command.arg(server.get_program()).args(server.get_args());
    let mut server = Process::start(&mut command);
    let path = place.path("run/wakefuld");
    eventually("it listens", || Connection::open_at(path.to_str().unwrap()).is_ok());
    for request in [Request::Status.of(0), join(0, 1), join(1, 1), Request::Observe.of(0)] {
        let answer = Connection::open_at(path.to_str().unwrap()).and_then(|mut all| all.ask_for(request));
        assert!(matches!(answer, Err(Error::Io(_))), "{answer:?}");
    }
    assert_eq!(server.0.try_wait().unwrap(), None, "the server lives");
    // And answers those that have one.
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.id())).unwrap();
    let mut command = Command::new("nsenter");
    command.args(["--pid", "--target", children.trim()]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "a_program", "--nocapture"]).env(ROLE, "is answered");
    let output = command.env("WAKEFUL_SERVER", &path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("answered"), "{text}");
}

#[test]
fn root_users_see_their_own() {
    let Some(place) = as_root(AFFINITY) else { return };
    if !several() {
        return;
    }
    let _server = place.server();
    let idle = Process::idle();
    ask(&place, join(idle.id(), 1)).unwrap();
    let (seen, summary) = as_nobody(|| status(&mut place.connect().unwrap()));
    assert_eq!((seen.len(), summary.applications), (0, 1), "{seen:?}");
    assert_eq!(status(&mut place.connect().unwrap()).0.len(), 1);
    // Unless the administrator says so.
    let place = Place::new(&AFFINITY.replace("[access]", "[access]\nstatus = \"all\""));
    let _server = place.server();
    ask(&place, join(idle.id(), 1)).unwrap();
    let (seen, _) = as_nobody(|| status(&mut place.connect().unwrap()));
    assert_eq!(seen.len(), 1, "{seen:?}");
}

/// Linux divides time among sessions before it looks at nice values: the server's has more than others.
#[test]
fn root_a_server_that_leads_a_session_runs_before_other_sessions() {
    let Some(place) = as_root(AFFINITY) else { return };
    let group = |process: &Process| fs::read_to_string(format!("/proc/{}/autogroup", process.id()));
    let ordinary = place.server();
    let Ok(before) = group(&ordinary) else { return println!("skipped: no automatic groups") };
    assert!(!before.contains("nice -20"), "it is in this test's session, and leaves it alone: {before}");
    drop(ordinary);
    let server = place.server_of_a_session();
    let after = group(&server).unwrap();
    assert!(after.trim().ends_with("nice -20"), "{after}");
}
