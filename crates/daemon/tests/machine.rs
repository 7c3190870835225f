// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `wakefuld` on the machine that this runs on. Tests called `root_` need root; those that need
//! a cpuset hierarchy say so when it is missing.

mod common;

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use common::*;
use daemon::kernel::Kernel;
use linux::server::{Connection, Demand, Error, Refusal, Request};

const AFFINITY: &str = "[access]\nprocessors = 1.0\n[enforcement]\nby = \"affinity\"\n";

#[test]
fn a_second_server_says_what_to_do() {
    let place = Place::new(AFFINITY);
    let _first = place.server();
    let second = place.command().output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(125), "{text}");
    assert!(
        text.contains("runs already") && text.contains("wakeful status") && text.contains("SIGTERM"),
        "{text}"
    );
    assert!(place.connect().is_ok(), "the first one goes on");
}

/// Each would take the other's groups for somebody else's.
#[test]
fn root_a_base_group_has_one_server() {
    let Some(base) = Base::v1("shared") else { return };
    let (one, other) = (base.place(), base.place());
    let mut first = one.server();
    let second = other.command().output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(125), "{text}");
    assert!(text.contains("another wakefuld divides") && text.contains("enforcement.group"), "{text}");
    first.signal(libc::SIGTERM);
    first.0.wait().unwrap();
    let mut next = other.server();
    next.signal(libc::SIGTERM);
    next.0.wait().unwrap();
    base.end();
}

/// As systemd starts it: with a socket as descriptor 3, at which somebody waits already.
#[test]
fn a_socket_that_systemd_passes_is_taken() {
    let place = Place::new(AFFINITY);
    let path = place.path("activated");
    let listener = daemon::kernel::listen(&path).unwrap();
    let command = |count: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("LISTEN_PID=$$ LISTEN_FDS={count} exec \"$@\""), "sh"]);
        let server = place.command();
        command.arg(server.get_program()).args(server.get_args()).stdin(Stdio::null());
        let fd = listener.as_raw_fd();
        // SAFETY: both are async-signal-safe. The second is for a listener that is descriptor 3 already.
        unsafe {
            command.pre_exec(move || match libc::dup2(fd, 3) == 3 && libc::fcntl(3, libc::F_SETFD, 0) == 0 {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            });
        }
        command
    };
    let wrong = command("2").output().unwrap();
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(125), "{text}");
    assert!(text.contains("one ListenSequentialPacket"), "{text}");

    let mut early = Connection::open_at(path.to_str().unwrap()).unwrap();
    let mut server = Process::start(&mut command("1"));
    assert!(status(&mut early).0.is_empty());
    assert!(!place.path("run/wakefuld").exists(), "it makes no other socket");
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    // It is systemd's, which goes on listening.
    assert!(Connection::open_at(path.to_str().unwrap()).is_ok());
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
    for _ in 0..if long() { 100 } else { 5 } {
        server.signal(libc::SIGKILL);
        server.0.wait().unwrap();
        assert_eq!(program.allowed(), own);
        server = place.server();
        let state = ask(&place, Request::WantBack.of(program.id())).unwrap();
        assert_eq!((state.holds, program.allowed()), (1, own.clone()));
    }
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    assert_eq!(program.allowed(), all, "it gives everything back");
}

#[test]
fn garbage_is_refused_and_the_others_are_served() {
    let place = Place::new(AFFINITY);
    let (server, idle) = (place.server(), Process::idle());
    let all = idle.allowed();
    let path = place.path("run/wakefuld");
    let open = || Connection::open_at(path.to_str().unwrap());
    let mut random = random();
    let count = if long() { 1_000_000 } else { 3_000 };
    let began = Instant::now();
    as_nobody(|| {
        let mut sent = 0;
        while sent < count {
            let Ok(connection) = open() else { continue };
            for _ in 0..random() % 32 {
                let zeros = Request::Join(Demand::default());
                let (mut envelope, damage) = match random() % 4 {
                    // Not a message at all.
                    0 => (zeros.of(0), (0, random())),
                    // About somebody else's process, if we are nobody.
                    1 => (zeros.of(idle.id()), (2, random() % 32)),
                    // A process that is not there.
                    2 => (zeros.of(0x7000_0000 | random()), (2, 1 + random() % 5)),
                    _ => {
                        let demand = Demand::new(0, u32::MAX - random() % 9, random(), random());
                        (Request::Join(demand).of(0), (2, 1))
                    }
                };
                envelope.tag = random();
                sent += 1;
                if send_with(&connection, &damaged(envelope, &[damage]), &[]).is_err() {
                    break;
                }
            }
            // It is gone without having read its answers.
        }
    });
    println!("{count} messages in {:.1} s", began.elapsed().as_secs_f64());
    let mut honest = open().unwrap();
    send_with(&honest, &damaged(Request::Status, &[(2, 18)]), &[]).unwrap();
    let malformed = honest.hear();
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
        if deaf.send(Request::Status).is_err() {
            break;
        }
        if place.connect().is_err() {
            panic!("the others are not served");
        }
    }
}

#[test]
fn root_v1_divides_the_processors() {
    Base::v1("divides").into_iter().for_each(stories::divides_the_processors);
}

#[test]
fn root_v1_the_dead_give_back() {
    Base::v1("dead").into_iter().for_each(stories::the_dead_give_back);
}

#[test]
fn root_v1_a_crowd_leaves_nothing_behind() {
    Base::v1("crowd").into_iter().for_each(stories::a_crowd_leaves_nothing_behind);
}

#[test]
fn root_v1_the_server_is_killed_under_load() {
    Base::v1("killed").into_iter().for_each(stories::the_server_is_killed_under_load);
}

/// The page that `--print-man` prints and packages have; `WAKEFUL_WRITE_MAN=1` writes it anew.
#[test]
fn the_manual_page_is_that_of_this_command_line() {
    use clap::CommandFactory;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let mut page = Vec::new();
    clap_mangen::Man::new(daemon::args::Args::command()).section("8").render(&mut page).unwrap();
    page.extend(std::fs::read(folder.join("wakefuld.roff")).unwrap());
    if std::env::var_os("WAKEFUL_WRITE_MAN").is_some() {
        std::fs::write(folder.join("wakefuld.8"), &page).unwrap();
    }
    assert!(std::fs::read(folder.join("wakefuld.8")).unwrap() == page, "WAKEFUL_WRITE_MAN=1 writes it anew");
}

/// The server that hears everybody, and the process that it asks to load programs.
#[test]
fn root_each_process_has_the_rights_that_it_needs() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: needs root");
    }
    let place = Place::new(AFFINITY);
    let mut server = place.server();
    let rights = |process: u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        ["CapEff:", "CapPrm:", "CapBnd:", "CapInh:", "NoNewPrivs:"].map(of)
    };
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.id())).unwrap();
    let loader: u32 = children.trim().parse().expect("one child");
    let (served, loads) = (1u64 << 1 | 1 << 23, 1u64 << 19 | 1 << 21 | 1 << 38 | 1 << 39);
    assert_eq!(rights(server.id()), [served, served, served, 0, 1]);
    assert_eq!(rights(loader), [loads, loads, loads, 0, 1]);
    // Neither lives without the other.
    // SAFETY: plain numbers; a child of a child of ours.
    assert_eq!(unsafe { libc::kill(loader as i32, libc::SIGKILL) }, 0);
    assert_eq!(server.0.wait().unwrap().code(), Some(70));
    server = place.server();
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.id())).unwrap();
    server.signal(libc::SIGKILL);
    server.0.wait().unwrap();
    let loader = format!("/proc/{}/stat", children.trim());
    eventually("the loader has ended", || {
        std::fs::read_to_string(&loader).is_ok_and(|stat| stat.contains(") Z "))
            || !std::path::Path::new(&loader).exists()
    });
}

/// The server keeps files of groups open. A group that others have removed and made again has other files.
#[test]
fn root_a_group_that_was_made_again_is_written_to() {
    let Some(base) = Base::v1("again") else { return };
    let folder = base.folder.join("group");
    std::fs::create_dir(&folder).unwrap();
    let (file, kernel) = (folder.join("cpuset.cpus"), daemon::kernel::Linux::new().unwrap());
    let says = || std::fs::read_to_string(&file).unwrap().trim().to_string();
    let open = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.starts_with(&folder)).count()
    };
    for text in ["0", "1", "0"] {
        kernel.write(&file, text).unwrap();
        assert_eq!(says(), text);
    }
    assert_eq!(open(), 1, "it is open once");
    std::fs::remove_dir(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    for text in ["1", "0"] {
        kernel.write(&file, text).unwrap();
        assert_eq!(says(), text);
    }
    assert!(kernel.write(&file, "nonsense").is_err() && says() == "0");
    kernel.write(&file, "1").unwrap();
    assert_eq!((says().as_str(), open()), ("1", 1));
    kernel.remove_folder(&folder).unwrap();
    assert_eq!(open(), 0);
    base.end();
}

/// systemd hears when the server is ready, and at least once a second that it lives.
#[test]
fn systemd_hears_that_the_server_lives() {
    let place = Place::new(AFFINITY);
    let path = place.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let server = Process::start(place.command().env("NOTIFY_SOCKET", &path));
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    for says in ["READY=1", "WATCHDOG=1", "WATCHDOG=1"] {
        let mut text = [0; 64];
        let length = socket.recv(&mut text).unwrap();
        assert_eq!(std::str::from_utf8(&text[..length]), Ok(says));
        assert!(place.connect().is_ok(), "it is ready");
    }
    // One that is stopped is silent, and one that goes on is not.
    server.signal(libc::SIGSTOP);
    eventually("it is stopped", || {
        std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap().contains(") T ")
    });
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 64]).is_ok() {}
    assert!(socket.recv(&mut [0; 64]).is_err());
    socket.set_nonblocking(false).unwrap();
    server.signal(libc::SIGCONT);
    assert!(socket.recv(&mut [0; 64]).is_ok());
}
