// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens under a base group, whichever way the kernel keeps its partitions.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use daemon::partitions::EXPEDITE;
use linux::server::{Connection, Error, Refusal, Request};

use super::*;

/// An idle server's, at most: up to 16 arenas are kept ready, with two each.
const DESCRIPTORS: usize = 32 + 2 * 16;

pub fn divides_the_processors(base: Base) {
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
    let group = base.group(&program);
    fs::write(group.join("cpuset.cpus"), all.as_str()).unwrap();
    eventually("it is set right", || program.allowed() == own);
    fs::write(base.folder.join("cgroup.procs"), program.id().to_string()).unwrap();
    eventually("it is taken back", || program.allowed() == own);
    // The server is killed, and another one comes.
    server.signal(libc::SIGKILL);
    server.0.wait().unwrap();
    assert_eq!((program.allowed(), other.allowed()), (own.clone(), rest.clone()));
    server = place.server();
    let state = ask(&place, Request::WantBack.of(program.id())).unwrap();
    assert_eq!((state.holds, program.allowed(), other.allowed()), (1, own, rest));
    drop(program);
    eventually("its processor is back", || other.allowed() == all);
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    drop(other);
    base.end();
}

/// How long from death to the processors being another's; no limit is checked here, because the machine may
/// be busy.
pub fn the_dead_give_back(base: Base) {
    let other = Process::idle();
    base.take(&other);
    let all = other.allowed();
    let place = base.place();
    let mut server = place.server();
    let rounds = if long() { 1_000 } else { 20 };
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
    println!(
        "from kill -9 to the processor: median {:?}, greatest {:?}",
        times[rounds / 2],
        times[rounds - 1]
    );
    eventually("no group is left", || base.groups() == 0);
    let files = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count();
    assert!(files <= DESCRIPTORS, "{files} descriptors are open");
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    drop(other);
    base.end();
}

/// Programs come, ask for this and that, and die, at random.
pub fn a_crowd_leaves_nothing_behind(base: Base) {
    let place = base.place();
    let mut server = place.server();
    let mut watcher = place.connect().unwrap();
    let all = status(&mut watcher).1.default_partition;
    let mut random = random();
    let clients = if long() { 10_000 } else { 150 };
    let mut programs: Vec<(Process, Connection)> = Vec::new();
    let (mut started, mut messages) = (0, 0u64);
    let (mut warm, began) = ((0.0, 0, 0), Instant::now());
    while started < clients || !programs.is_empty() {
        let which = random() as usize % 16.max(programs.len() + 1);
        if started < clients && which >= programs.len() {
            let program = Process::idle();
            base.take(&program);
            programs
                .push((program, Connection::open_at(place.path("run/wakefuld").to_str().unwrap()).unwrap()));
            started += 1;
            if started == clients / 10 {
                warm = usage(server.id());
            }
        }
        let Some((program, connection)) = programs.get_mut(which) else { continue };
        let process = program.id();
        let request = match random() % 6 {
            0 | 1 => join_at(random() % 4, process, 1 + random() % 2),
            2 => Request::Spare(random() % 3).of(process),
            3 => Request::WantBack.of(process),
            4 => Request::Leave.of(process),
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
        let mut seen = summary.default_partition;
        assert!(!seen.is_empty(), "the default partition has none");
        for id in entries.iter().filter_map(|entry| entry.state()).flat_map(|state| state.ids.iter()) {
            // A processor may still be on its way from one to another, but nobody's twice.
            assert!(seen.insert(id), "{id}: {entries:?}");
        }
        assert!(seen.iter().all(|id| all.contains(id)), "{seen} of {all}");
    }
    eventually("the server knows that all are gone", || status(&mut watcher).0.is_empty());
    eventually("no group is left", || base.groups() == 0);
    eventually("no block is left", || place.blocks() == 0);
    eventually("no descriptor is left", || usage(server.id()).2 <= DESCRIPTORS);
    let (seconds, memory, files) = usage(server.id());
    println!(
        "{clients} programs, {messages} messages in {:.1} s: {:.0} us of the server's time each; \
         {files} descriptors; \
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
    base.end();
}

/// The server is killed, again and again, while clients ask and hint. A program that has a processor keeps
/// it all the time, and its server knows it again; nobody hears an answer that makes no sense.
pub fn the_server_is_killed_under_load(base: Base) {
    let take = |process: &Process| base.take(process);
    killed_under_load(&base, &take, if long() { 100 } else { 10 });
    base.end();
}

/// The same so many times, with programs that have been put where they belong.
pub fn killed_under_load(base: &Base, put: &dyn Fn(&Process), kills: usize) {
    let place = base.place();
    let mut server = place.server();
    let (program, others) = (Process::idle(), [(); 4].map(|()| Process::idle()));
    put(&program);
    others.iter().for_each(put);
    assert_eq!(ask(&place, join(program.id(), 1)).unwrap().holds, 1);
    let own = program.allowed();
    let (over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let client = |number: u64, process: u32| {
        let mut random = random_from(number);
        while !over.load(Relaxed) {
            let request = match random() % 4 {
                0 => join_at(random() % 4, process, 1 + random() % 2),
                1 => Request::Spare(random() % 3).of(process),
                2 => Request::WantBack.of(process),
                _ => Request::Leave.of(process),
            };
            match ask(&place, request) {
                Ok(_) | Err(Error::Refused(Refusal::TooMany | Refusal::Unknown, _)) => {
                    _ = answers.fetch_add(1, Relaxed)
                }
                Err(Error::NoServer | Error::Io(_)) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let mut times: Vec<Duration> = Vec::new();
    std::thread::scope(|scope| {
        for (number, other) in others.iter().enumerate() {
            scope.spawn(move || client(number as u64, other.id()));
        }
        let mut random = random();
        for _ in 0..kills {
            std::thread::sleep(Duration::from_micros(u64::from(random() % 20_000)));
            server.signal(libc::SIGKILL);
            let start = Instant::now();
            server.0.wait().unwrap();
            assert_eq!(program.allowed(), own, "it keeps what it has");
            server = place.server();
            times.push(start.elapsed());
            let state = ask(&place, Request::WantBack.of(program.id())).unwrap();
            assert_eq!((state.holds, program.allowed()), (1, own.clone()), "the next server knows it");
        }
        over.store(true, Relaxed);
    });
    times.sort_unstable();
    let (count, answers) = (times.len(), answers.into_inner());
    println!(
        "killed {count} times, {answers} answers beside; \
         from kill -9 to the next answer: median {:?}, greatest {:?}",
        times[count / 2],
        times[count - 1]
    );
    assert!(answers > count as u64, "there was a load");
    drop((program, others));
    eventually("the server knows that all are gone", || status(&mut place.connect().unwrap()).0.is_empty());
    eventually("no block is left", || place.blocks() == 0);
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    if let Ok(expedited) = fs::read_to_string(EXPEDITE) {
        assert_eq!(expedited.trim(), "0", "whenever it was killed");
    }
}
