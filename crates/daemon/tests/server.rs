// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server over a simulated kernel: what it does for its clients, and what becomes of them when
//! something goes wrong.

mod common;
mod running;
mod simulated;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use daemon::config::By;
use linux::server::{Demand, Envelope, Error, Refusal, Reply, Request};
use running::*;
use simulated::{Simulated, State, V1, V2};

#[test]
fn each_way_does_what_it_should() {
    for (by, remote) in WORLDS {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        kernel.state.lock().unwrap().remote = remote;
        story(&kernel, by, folder.path());
        clean(&kernel, folder.path(), by);
    }
}

/// The first has two processors and uses one. Nobody says so; the server sees it.
#[test]
fn auto_goes_by_what_programs_use() {
    for (by, remote) in WORLDS.into_iter().filter(|&(by, _)| by != By::Affinity) {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        kernel.state.lock().unwrap().remote = remote;
        let (serial, parallel) = (Idle::new(), Idle::new());
        let server = Running::start(&kernel, &config(by), folder.path());
        let auto = |process: u32| Request::Join(Demand { priority: 0, numbers: None }).of(process);
        server.ask(auto(serial.id())).unwrap();
        server.ask(auto(parallel.id())).unwrap();
        assert_eq!((server.holds(serial.id()), server.holds(parallel.id())), (2, 1));
        kernel.state.lock().unwrap().uses = [(serial.id(), 100), (parallel.id(), 100)].into();
        eventually("the parallel one has two processors", || server.holds(parallel.id()) == 2);
        assert_eq!(server.holds(serial.id()), 1);
        server.stop();
    }
}

/// Its children have children as fast as it is looked who is there.
#[test]
fn a_chain_of_children_does_not_keep_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Simulated::new();
    let one = Idle::new();
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    server.ask(join(one.id(), 0, 1, 1)).unwrap();
    let session = Path::new(V2).join("user.slice");
    let own = group(one.id(), By::CgroupV2);
    {
        let mut state = kernel.state.lock().unwrap();
        state.groups.insert(session, simulated::Group::default());
        state.groups.get_mut(&own).unwrap().chain = true;
    }
    server.stop();
    let state = kernel.state.lock().unwrap();
    assert!(!state.groups.contains_key(&own) && state.groups[Path::new(V2)].processes.contains(&one.id()));
}

/// An administrator removes the base group with all that is in it.
#[test]
fn a_base_group_that_was_removed_is_made_again() {
    for (by, mount) in [(By::CgroupV1, V1), (By::CgroupV2, V2)] {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        let base = Path::new(mount).join("base");
        {
            let mut state = kernel.state.lock().unwrap();
            let mut made =
                if by == By::CgroupV1 { state.groups[Path::new(mount)].clone() } else { Default::default() };
            made.processes.clear();
            state.groups.insert(base.clone(), made);
        }
        let mut config = config(by);
        config.enforcement.group = "/base".into();
        let server = Running::start(&kernel, &config, folder.path());
        let one = placed(&kernel, &base);
        assert_eq!(server.ask(join(one.id(), 0, 2, 2)).unwrap().holds, 2);
        kernel.state.lock().unwrap().groups.retain(|path, _| !path.starts_with(&base));
        let own = base.join(format!("wakeful-{}", one.id()));
        eventually("it has its processors again", || {
            let state = kernel.state.lock().unwrap();
            state
                .groups
                .get(&own)
                .is_some_and(|group| group.cpus.len() == 2 && group.processes.contains(&one.id()))
        });
        server.stop();
    }
}

#[test]
fn who_is_taken_from_a_group_goes_back_there() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Simulated::new();
    let session = Path::new(V2).join("user.slice/session");
    let is_in = |group: &Path, process: &Idle| {
        kernel.state.lock().unwrap().groups[group].processes.contains(&process.id())
    };
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

/// The user sees to it that the group is gone, or takes no processes any more.
#[test]
fn nobody_comes_out_above_the_groups_that_are_left() {
    for removed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        let (slice, session) = (Path::new(V2).join("user.slice"), Path::new(V2).join("user.slice/session"));
        let one = placed(&kernel, &session);
        let slices = simulated::Group { inner: true, ..Default::default() };
        kernel.state.lock().unwrap().groups.insert(slice.clone(), slices);
        let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
        assert_eq!(server.ask(join(one.id(), 0, 1, 1)).unwrap().holds, 1);
        let left = if removed {
            kernel.state.lock().unwrap().groups.remove(&session);
            slice.join("wakeful-left")
        } else {
            kernel.state.lock().unwrap().groups.get_mut(&session).unwrap().inner = true;
            session.join("wakeful-left")
        };
        server.ask(Request::Leave.of(one.id())).unwrap();
        eventually("it is below what limits it", || {
            let state = kernel.state.lock().unwrap();
            state.groups.get(&left).is_some_and(|group| group.processes.contains(&one.id()))
                && !state.groups.contains_key(&group(one.id(), By::CgroupV2))
        });
        server.stop();
    }
}

#[test]
fn who_holds_nothing_is_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Simulated::new();
    let session = Path::new(V2).join("user.slice/session");
    let (one, two) = (placed(&kernel, &session), placed(&kernel, &session));
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    let is_back =
        |process: &Idle| kernel.state.lock().unwrap().groups[&session].processes.contains(&process.id());
    assert_eq!(server.ask(join(one.id(), 0, 3, 3)).unwrap().holds, 3);
    assert_eq!(server.ask(join(two.id(), 0, 1, 1)).unwrap().lacks, 1);
    server.ask(Request::Spare(0).of(one.id())).unwrap();
    assert!(is_back(&two) && !is_back(&one));
    server.ask(Request::Leave.of(one.id())).unwrap();
    eventually("two has one", || server.holds(two.id()) == 1 && !is_back(&two));
    eventually("one is back", || is_back(&one));
    // And again, with its origin known still.
    assert_eq!(server.ask(join(one.id(), 0, 1, 1)).unwrap().holds, 1);
    server.stop();
    assert!(is_back(&one) && is_back(&two));
}

#[test]
fn who_is_below_a_limit_stays_there_unless_root_asks() {
    let folder = open_folder();
    let kernel = Simulated::new();
    let (slice, session) = (Path::new(V2).join("user.slice"), Path::new(V2).join("user.slice/session"));
    let process = ordinary();
    {
        let mut state = kernel.state.lock().unwrap();
        state.groups.insert(
            slice.clone(),
            simulated::Group { inner: true, limit: Some(1 << 30), ..Default::default() },
        );
        state.groups.entry(session).or_default().processes.insert(process.id());
    }
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    let asks = || as_nobody(|| server.ask(join(process.id(), 0, 1, 1)));
    assert_eq!(asks(), Err(Refusal::Elsewhere));
    kernel.state.lock().unwrap().groups.get_mut(&slice).unwrap().limit = None;
    assert_eq!(asks().unwrap().holds, 1);
    asks().unwrap();
    if is_root() {
        let other = ordinary();
        let limited =
            simulated::Group { limit: Some(1), processes: [other.id()].into(), ..Default::default() };
        kernel.state.lock().unwrap().groups.insert(slice.join("limited"), limited);
        assert_eq!(as_nobody(|| server.ask(join(other.id(), 0, 1, 1))), Err(Refusal::Elsewhere));
        assert_eq!(server.ask(join(other.id(), 0, 1, 1)).unwrap().holds, 1);
    }
    server.stop();
}

/// This process is root's, and its thread has connected as somebody else: as if it had executed a
/// set-user-ID program since.
#[test]
fn who_has_other_rights_than_its_connection_is_refused() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let folder = open_folder();
    let kernel = Simulated::new();
    let server = Running::start(&kernel, &config(By::CgroupV1), folder.path());
    as_nobody(|| {
        let mut connection = server.connect();
        for request in [Request::Join(Demand::new(0, 1, 1, 1)), Request::Observe] {
            let answer = connection.ask_for(request);
            assert!(matches!(answer, Err(Error::Refused(Refusal::NoProcess, _))), "{request:?}: {answer:?}");
        }
    });
    server.stop();
}

#[test]
fn programs_that_let_the_server_choose_divide_their_users_share() {
    let folder = open_folder();
    let kernel = Simulated::new();
    let mut config = config(By::CgroupV1);
    config.access.processors = 0.5;
    if !is_root() {
        return println!("skipped: needs root");
    }
    let processes = [ordinary(), ordinary(), ordinary()];
    let [one, two, three] = processes.each_ref().map(Idle::id);
    let mut server = Running::start(&kernel, &config, folder.path());
    let ask = |server: &Running, request: Envelope| as_nobody(|| server.ask(request));
    assert_eq!(ask(&server, join(one, 0, 0, 0)).unwrap().holds, 2);
    assert_eq!(ask(&server, join(two, 0, 0, 0)).unwrap().holds, 1);
    assert_eq!(server.holds(one), 1);
    assert_eq!(ask(&server, join(three, 0, 0, 0)), Err(Refusal::Share));
    assert_eq!(ask(&server, join(three, 0, 1, 1)), Err(Refusal::Share));
    // Another server knows that, and one may ask for something else.
    server.kill();
    server = Running::start(&kernel, &config, folder.path());
    assert_eq!((server.holds(one), server.holds(two)), (1, 1));
    ask(&server, Request::Leave.of(one)).unwrap();
    eventually("two has both", || server.holds(two) == 2);
    assert_eq!(ask(&server, join(three, 0, 1, 1)).unwrap().holds, 1);
    assert_eq!(server.holds(two), 1);
    // Root has no such share.
    assert_eq!(server.ask(join(Idle::new().id(), 0, 1, 1)).unwrap().holds, 1);
    server.stop();
}

/// The next server's configuration allows less.
#[test]
fn who_was_a_member_is_bound_like_who_asks() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    for (of_user, of_all, sum) in [(0.5, 1.0, 2), (1.0, 0.25, 1)] {
        let folder = open_folder();
        let kernel = Simulated::new();
        let mut config = config(By::CgroupV1);
        let server = Running::start(&kernel, &config, folder.path());
        let (one, two) = (ordinary(), ordinary());
        let (strict, many) = (join(one.id(), 0, 1, 1), join(two.id(), 0, 1, 2));
        as_nobody(|| {
            assert_eq!(server.ask(many).unwrap().holds, 2);
            assert_eq!(server.ask(strict).unwrap().holds, 1);
        });
        server.kill();
        (config.access.processors, config.access.all_processors) = (of_user, of_all);
        let server = Running::start(&kernel, &config, folder.path());
        let held = [&one, &two].map(|process| server.holds(process.id()));
        assert_eq!(held.iter().sum::<u32>(), sum, "{held:?}");
        server.stop();
    }
}

#[test]
fn all_users_together_have_a_share() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let folder = open_folder();
    let mut config = config(By::CgroupV1);
    (config.access.processors, config.access.all_processors) = (0.5, 0.5);
    let server = Running::start(&Simulated::new(), &config, folder.path());
    let (one, two) = (process_of(NOBODY), process_of(NOBODY - 1));
    let ask = |user: u32, request: Envelope| as_user(user, || server.ask(request));
    assert_eq!(ask(NOBODY, join(one.id(), 0, 2, 2)).unwrap().holds, 2);
    assert_eq!(ask(NOBODY - 1, join(two.id(), 0, 1, 1)), Err(Refusal::Share));
    assert_eq!(ask(NOBODY, join(one.id(), 0, 1, 1)).unwrap().holds, 1);
    assert_eq!(ask(NOBODY - 1, join(two.id(), 0, 0, 0)).unwrap().holds, 1);
    assert_eq!(ask(NOBODY, join(one.id(), 0, 2, 2)), Err(Refusal::Share));
    server.stop();
}

/// A user who can be many: subordinate ids have their owner's limits, also from when they are given to
/// somebody on.
#[test]
fn subordinate_ids_have_their_owners_share() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let folder = open_folder();
    let kernel = Simulated::new();
    let mut config = config(By::CgroupV1);
    config.access.processors = 0.5;
    config.access.connections = 2;
    kernel.state.lock().unwrap().files.extend([
        ("/etc/subuid".into(), "joe:100000:65536\nroot:200000:65536\n".into()),
        ("/etc/passwd".into(), "joe:x:1000:1000::/:/bin/sh\n".into()),
    ]);
    let server = Running::start(&kernel, &config, folder.path());
    let (own, one, other) = (process_of(1000), process_of(100_000), process_of(100_001));
    // Those that have hung up count until the server has seen it.
    let asks = |user: u32, of: &Idle, count| {
        let ask = || as_user(user, || server.ask(join(of.id(), 0, count, count)));
        std::iter::repeat_with(ask).take(10_000).find(|answer| *answer != Err(Refusal::Crowd)).unwrap()
    };
    assert_eq!(asks(100_000, &one, 1).unwrap().holds, 1);
    assert_eq!(asks(1000, &own, 1).unwrap().holds, 1);
    assert_eq!(asks(100_001, &other, 1), Err(Refusal::Share));
    eventually("nobody speaks for another because of it", || {
        let answer = as_user(1000, || server.connect().ask(join(one.id(), 0, 1, 1)));
        let is_full = matches!(answer, Err(Error::Refused(Refusal::Crowd, _) | Error::Io(_)));
        assert!(is_full || matches!(answer, Err(Error::Refused(Refusal::NoProcess, _))), "{answer:?}");
        !is_full
    });
    eventually("their connections count together", || {
        let asked = [100_000, 100_001, 1000].map(|user| {
            as_user(user, || {
                let mut connection = server.connect();
                let answer = connection.status().map(drop);
                (connection, answer)
            })
        });
        matches!(
            asked.each_ref().map(|(_, answer)| answer),
            [Ok(()), Ok(()), Err(Error::Refused(Refusal::Crowd, _))]
        )
    });
    // Root's are users of their own.
    let roots = process_of(200_000);
    as_user(200_000, || {
        let answer = server.connect().ask(join(roots.id(), 4_000_000_000, 1, 1));
        assert!(matches!(answer, Err(Error::Refused(Refusal::Priority, _))), "{answer:?}");
    });
    // From now on it is another's.
    let changed = "ann:100001:1\njoe:100000:1\n1001:100001:1\n";
    kernel.state.lock().unwrap().files.insert("/etc/subuid".into(), changed.into());
    eventually("it has a share of its own", || asks(100_001, &other, 1).is_ok());
    server.stop();
}

/// Another user's thread asks.
fn as_user<T: Send>(user: u32, body: impl FnOnce() -> T + Send) -> T {
    let thread = || {
        // SAFETY: as in `as_nobody`.
        unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        body()
    };
    std::thread::scope(|scope| scope.spawn(thread).join().unwrap())
}

fn process_of(user: u32) -> Idle {
    use std::os::unix::process::CommandExt;
    Idle(
        Command::new("sleep")
            .uid(user)
            .arg("1000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    )
}

#[test]
fn root_does_not_wait_for_users() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let folder = open_folder();
    let server = Running::start(&Simulated::new(), &config(By::CgroupV1), folder.path());
    let (holder, user, roots) = (Idle::new(), process_of(NOBODY), Idle::new());
    assert_eq!(server.ask(join(holder.id(), 0, 2, 2)).unwrap().holds, 2);
    assert_eq!(as_user(NOBODY, || server.ask(join(user.id(), 100, 2, 2))).unwrap().lacks, 2);
    let state = server.ask(join(roots.id(), 7, 1, 1)).unwrap();
    assert_eq!((state.holds, state.behind, state.demand.priority), (1, 0, 7));
    server.kill();
    let server = Running::start(&Simulated::new(), &config(By::CgroupV1), folder.path());
    assert_eq!(server.state(roots.id()).unwrap().demand.priority, 7);
    server.stop();
}

#[test]
fn programs_that_let_the_server_choose_divide_among_users_first() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let folder = open_folder();
    let kernel = Simulated::new();
    let mut config = config(By::CgroupV1);
    config.policy.floor_share = 0.0;
    let server = Running::start(&kernel, &config, folder.path());
    let crowd = [(); 3].map(|()| process_of(NOBODY));
    for process in &crowd {
        as_user(NOBODY, || server.ask(join(process.id(), 0, 0, 0))).unwrap();
    }
    let theirs = || crowd.iter().map(|process| server.holds(process.id())).sum::<u32>();
    assert_eq!(theirs(), 3);
    server.ask(Request::Leave.of(crowd[2].id())).unwrap();
    eventually("they have all", || theirs() == 3);
    let one = process_of(NOBODY - 1);
    as_user(NOBODY - 1, || server.ask(join(one.id(), 0, 0, 0))).unwrap();
    eventually("each user has what the other leaves", || server.holds(one.id()) == 1 && theirs() == 2);
    server.stop();
}

#[test]
fn services_stay_in_their_groups() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let folder = open_folder();
    let kernel = Simulated::new();
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    for (group, cpus, goes) in [
        ("user.slice/session", "", true),
        ("system.slice/service", "", false),
        ("user.slices", "", false),
        ("user.slice/bound", "0-1", false),
    ] {
        let process = ordinary();
        let group = Path::new(V2).join(group);
        let cpus = daemon::kernel::parse(cpus).unwrap();
        let made = simulated::Group { cpus, processes: [process.id()].into(), ..Default::default() };
        kernel.state.lock().unwrap().groups.insert(group.clone(), made);
        let answer = as_nobody(|| server.ask(join(process.id(), 0, 1, 1)));
        assert_eq!(
            answer.map(|state| state.holds),
            if goes { Ok(1) } else { Err(Refusal::Elsewhere) },
            "{group:?}"
        );
        if goes {
            server.ask(Request::Leave.of(process.id())).unwrap();
        }
    }
    server.stop();
}

#[test]
fn a_user_of_whom_far_too_much_comes_is_hung_up_on() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let folder = open_folder();
    let mut config = config(By::Affinity);
    config.access.user_messages_per_second = 10;
    let server = Running::start(&Simulated::new(), &config, folder.path());
    as_nobody(|| {
        let connections: Vec<_> = (0..30).map(|_| server.connect()).collect();
        eventually("one is closed", || {
            let answer = server.connect().ask(Request::WantBack);
            matches!(answer, Err(Error::Io(_)))
        });
        drop(connections);
    });
    assert_eq!(server.ask(Request::WantBack.of(Idle::new().id())), Err(Refusal::Unknown));
    server.stop();
}

/// A minute passes with each call, while others run: that is not what the message has cost.
#[test]
fn the_delay_that_others_cause_is_charged_to_nobody() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let folder = open_folder();
    let mut config = config(By::CgroupV1);
    config.access.user_messages_per_second = 1000;
    let kernel = Simulated::new();
    let server = Running::start(&kernel, &config, folder.path());
    let process = ordinary();
    let mut connection = as_nobody(|| server.connect());
    let delay = |each: Duration| {
        let mut state = kernel.state.lock().unwrap();
        (state.clock, state.delay) = (Some(state.clock.unwrap_or(Duration::from_secs(1 << 30))), each);
        state.clock.unwrap()
    };
    let before = delay(Duration::from_secs(60));
    connection.ask(join(process.id(), 0, 1, 1)).unwrap();
    assert!(delay(Duration::ZERO) > before, "the join was not delayed");
    // The clock stands still, so who is muted stays so.
    let (tell, told) = std::sync::mpsc::channel();
    let request = Request::WantBack.of(process.id());
    let asks = std::thread::spawn(move || tell.send(connection.ask(request).is_ok()));
    assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(true));
    asks.join().unwrap().unwrap();
    server.stop();
}

#[test]
fn who_waits_is_ready_before_who_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Simulated::new();
    let server = Running::start(&kernel, &config(By::CgroupV1), folder.path());
    let crowd: Vec<_> = (0..16).map(|_| Idle::new()).collect();
    for process in &crowd {
        server.ask(join(process.id(), 0, 1, 1)).unwrap();
        server.ask(Request::Leave.of(process.id())).unwrap();
    }
    let (holder, waiter) = (Idle::new(), Idle::new());
    assert_eq!(server.ask(join(holder.id(), 0, 3, 3)).unwrap().holds, 3);
    assert_eq!(server.ask(join(waiter.id(), 0, 1, 1)).unwrap().lacks, 1);
    eventually("it has a group", || {
        kernel.state.lock().unwrap().groups.contains_key(&group(waiter.id(), By::CgroupV1))
    });
    server.stop();
    clean(&kernel, folder.path(), By::CgroupV1);
}

/// It has a group, and has ended before it is in it.
#[test]
fn the_group_of_one_that_ends_meanwhile_goes_too() {
    for by in [By::CgroupV1, By::CgroupV2] {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        let server = Running::start(&kernel, &config(by), folder.path());
        let (holder, process) = (Idle::new(), Idle::new());
        let waiter = process.id();
        assert_eq!(server.ask(join(holder.id(), 0, 3, 3)).unwrap().holds, 3);
        kernel.state.lock().unwrap().dying = Some(waiter);
        assert_eq!(server.ask(join(waiter, 0, 1, 1)).unwrap().lacks, 1);
        eventually("it has had a group", || kernel.state.lock().unwrap().dying.is_none());
        eventually("which goes", || {
            let state = kernel.state.lock().unwrap();
            !state.groups.contains_key(&group(waiter, by))
        });
        server.stop();
        clean(&kernel, folder.path(), by);
    }
}

/// What is known already is neither asked of the kernel nor said to the program, while somebody waits.
#[test]
fn who_asks_again_is_served_without_a_look_and_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Simulated::new();
    let server = Running::start(&kernel, &config(By::CgroupV1), folder.path());
    let mut connection = server.connect();
    let mut ask = |envelope: Envelope| {
        connection.send(envelope).unwrap();
        let (answer, _) = connection.hear().unwrap();
        assert_eq!(answer.tag, envelope.tag, "what the answer says was said before");
        let Reply::State(state) = answer.reply else { panic!("{answer:?}") };
        state.holds
    };
    let joins = |tag| Envelope { tag, ..join(0, 0, 1, 1) };
    assert_eq!(ask(joins(1)), 1);
    let looks = || kernel.state.lock().unwrap().looks;
    let before = looks();
    assert!(before > 0, "the test does not look where it should");
    for tag in [2, 4, 6] {
        assert_eq!(ask(Envelope { tag, ..Request::Leave.of(0) }), 0);
        assert_eq!(ask(joins(tag + 1)), 1);
    }
    assert_eq!(looks(), before);
    server.stop();
}

#[test]
fn a_status_ends_however_many_have_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(By::Affinity);
    config.access.applications = 1000;
    config.access.processors = 1.0;
    let server = Running::start(&Simulated::new(), &config, folder.path());
    let crowd: Vec<_> = (0..300).map(|_| Idle::new()).collect();
    let mut connection = server.connect();
    let ours = is_root();
    for process in &crowd {
        let answer = connection.ask(join(process.id(), 0, 1, 1));
        assert!(answer.is_ok() || !ours);
    }
    connection.send(Request::Status).unwrap();
    // All that comes is there already.
    std::thread::sleep(Duration::from_millis(200));
    let mut listed = 0;
    let summary = loop {
        match connection.hear().unwrap().0.reply {
            Reply::Entry(_) => listed += 1,
            Reply::Summary(summary) => break summary,
            reply => panic!("{reply:?}"),
        }
    };
    let count = summary.applications;
    assert!(!ours || (listed, count) == (64, 300), "{listed} of {count}");
    server.stop();
}

/// Somebody has written into a block that its process came from outside the mount.
#[test]
fn nobody_goes_back_outside_the_mount() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Simulated::new();
    let (session, outside) = (Path::new(V2).join("user.slice"), Path::new(V2).join("../victim"));
    let one = placed(&kernel, &session);
    kernel.state.lock().unwrap().groups.insert(outside.clone(), simulated::Group::default());
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    assert_eq!(server.ask(join(one.id(), 0, 1, 1)).unwrap().holds, 1);
    server.kill();
    let block = folder.path().join("partitions").join(one.id().to_string());
    let block = std::fs::File::options().write(true).open(block).unwrap();
    let at = std::mem::offset_of!(abi::server::Block, origin) as u64;
    std::os::unix::fs::FileExt::write_all_at(&block, b"/../victim\0", at).unwrap();
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    assert_eq!(server.holds(one.id()), 1);
    server.stop();
    let state = kernel.state.lock().unwrap();
    assert!(state.groups[&outside].processes.is_empty());
    assert!(state.groups[Path::new(V2)].processes.contains(&one.id()));
}

/// A block's process has ended, and its number is now a thread's.
#[test]
fn a_number_that_is_a_threads_is_no_member() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Simulated::new();
    let server = Running::start(&kernel, &config(By::Affinity), folder.path());
    let process = Idle::new();
    server.ask(join(process.id(), 0, 1, 1)).unwrap();
    server.kill();
    // SAFETY: no arguments.
    let thread = unsafe { libc::gettid() };
    assert_ne!(thread as u32, std::process::id(), "tests run in threads of their own");
    let blocks = folder.path().join("partitions");
    std::fs::rename(blocks.join(process.id().to_string()), blocks.join(thread.to_string())).unwrap();
    let server = Running::start(&kernel, &config(By::Affinity), folder.path());
    assert!(server.state(thread as u32).is_none());
    server.stop();
    clean(&kernel, folder.path(), By::Affinity);
}

/// A server that was killed at the worst moment; and an administrator's wish, which stays.
#[test]
fn grace_periods_are_as_the_administrator_had_them() {
    for (found, after) in [("2", "0"), ("1", "1"), ("0", "0")] {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        kernel.state.lock().unwrap().expedited = found.into();
        let server = Running::start(&kernel, &config(By::CgroupV1), folder.path());
        let process = Idle::new();
        assert_eq!(server.ask(join(process.id(), 0, 1, 1)).unwrap().holds, 1);
        assert_eq!(kernel.state.lock().unwrap().expedited, after);
        server.stop();
        assert_eq!(kernel.state.lock().unwrap().expedited, after);
    }
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
        let outside =
            [container, Path::new(mount).join("based"), mount.into()].map(|group| placed(&kernel, &group));
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
    let all = [
        "accept",
        "admit",
        "affinity",
        "bar_descriptors",
        "ended",
        "exists",
        "folders",
        "image",
        "is_marked",
        "list",
        "live",
        "load_observer",
        "make_block",
        "make_folder",
        "mark",
        "open_block",
        "peer",
        "peer_pidfd",
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
        "user",
        "wait",
        "watch",
        "write",
    ];
    let fails = |(by, remote), set: &dyn Fn(&mut State)| {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Simulated::new();
        kernel.state.lock().unwrap().remote = remote;
        set(&mut kernel.state.lock().unwrap());
        story(&kernel, by, folder.path());
        kernel.state.lock().unwrap().failed
    };
    let each = |world| (1..).map_while(|number| fails(world, &|state| state.fails_in = number)).collect();
    // The servers mostly wait, each for another kernel.
    let mut failed: BTreeSet<&str> = std::thread::scope(|scope| {
        let worlds = WORLDS.map(|world| scope.spawn(move || -> Vec<_> { each(world) }));
        worlds.into_iter().flat_map(|world| world.join().unwrap()).collect()
    });
    // How many calls come before one depends on the time: a number may have passed it over.
    for name in all.into_iter().filter(|name| !failed.contains(name)).collect::<Vec<_>>() {
        failed.extend(WORLDS.iter().find_map(|&world| fails(world, &|state| state.fails = Some(name))));
    }
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
