// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote partitions over a simulated kernel (cgroup v2, Linux 6.7): whoever asks stays
//! below its own group, and what is changed above it is changed back.

mod common;
mod running;
mod simulated;

use std::path::Path;

use daemon::config::By;
use linux::server::{Refusal, Request};
use running::*;
use simulated::{Simulated, V2};

/// A kernel that makes remote partitions: whoever asks stays below its own group, also when the server is
/// killed, and nothing stays of that.
#[test]
fn a_partition_is_in_a_child_of_its_own_group() {
    let folder = open_folder();
    let kernel = Simulated::new();
    kernel.state.lock().unwrap().remote = true;
    let (slice, service) = (Path::new(V2).join("system.slice"), Path::new(V2).join("system.slice/service"));
    let limited = simulated::Group { inner: true, limit: Some(1 << 30), ..Default::default() };
    kernel.state.lock().unwrap().groups.insert(slice.clone(), limited);
    let process = ordinary();
    let group = simulated::Group { processes: [process.id()].into(), ..Default::default() };
    kernel.state.lock().unwrap().groups.insert(service.clone(), group);
    let child = service.join(format!("wakeful-{}", process.id()));
    let inside = |path: &Path| {
        let state = kernel.state.lock().unwrap();
        state.groups.get(path).is_some_and(|group| group.processes.contains(&process.id()))
    };
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    assert_eq!(as_nobody(|| server.ask(join(process.id(), 0, 2, 2))).unwrap().holds, 2);
    let held = truth(&kernel, By::CgroupV2, process.id()).unwrap();
    assert!(inside(&child) && held.len() == 2);
    assert_eq!(kernel.state.lock().unwrap().groups[&slice].exclusive, held);
    server.kill();
    // As if it had been killed while it gave the process a third one.
    kernel.state.lock().unwrap().groups.get_mut(&service).unwrap().exclusive.extend(0..4);
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    assert_eq!(kernel.state.lock().unwrap().groups[&service].exclusive, held);
    assert_eq!((server.holds(process.id()), truth(&kernel, By::CgroupV2, process.id())), (2, Some(held)));
    as_nobody(|| server.ask(Request::Leave.of(process.id()))).unwrap();
    eventually("it is back", || {
        inside(&service) && !kernel.state.lock().unwrap().groups.contains_key(&child)
    });
    assert_eq!(as_nobody(|| server.ask(join(process.id(), 0, 1, 1))).unwrap().holds, 1);
    assert!(inside(&child));
    // Its server is killed, and nobody knows its block any more.
    server.kill();
    std::fs::remove_file(folder.path().join("partitions").join(process.id().to_string())).unwrap();
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    eventually("it is back again", || {
        inside(&service) && !kernel.state.lock().unwrap().groups.contains_key(&child)
    });
    server.stop();
    clean(&kernel, folder.path(), By::CgroupV2);
}

/// Which groups give cpusets to those below them is as it was, also when the server was killed meanwhile;
/// but for what others use by then.
#[test]
fn groups_above_give_what_they_gave_before() {
    for (before, used, after) in [(false, false, false), (true, false, true), (false, true, true)] {
        let folder = open_folder();
        let kernel = Simulated::new();
        kernel.state.lock().unwrap().remote = true;
        let (slice, service) =
            (Path::new(V2).join("system.slice"), Path::new(V2).join("system.slice/service"));
        let slices = simulated::Group { inner: true, control: before, ..Default::default() };
        kernel.state.lock().unwrap().groups.insert(slice.clone(), slices);
        let process = ordinary();
        let group = simulated::Group { processes: [process.id()].into(), ..Default::default() };
        kernel.state.lock().unwrap().groups.insert(service.clone(), group);
        let gives = |path: &Path| kernel.state.lock().unwrap().groups[path].control;
        let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
        assert_eq!(as_nobody(|| server.ask(join(process.id(), 0, 2, 2))).unwrap().holds, 2);
        assert!(gives(Path::new(V2)) && gives(&slice) && gives(&service));
        server.kill();
        let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
        if used {
            let other = simulated::Group { cpus: (0..4).collect(), ..Default::default() };
            kernel.state.lock().unwrap().groups.insert(slice.join("other"), other);
        }
        as_nobody(|| server.ask(Request::Leave.of(process.id()))).unwrap();
        let child = service.join(format!("wakeful-{}", process.id()));
        eventually("it has left", || !kernel.state.lock().unwrap().groups.contains_key(&child));
        assert_eq!((gives(&slice), gives(&service)), (after, false), "before {before}, used {used}");
        server.stop();
        // The slice's own user.
        assert_eq!(gives(Path::new(V2)), after, "before {before}, used {used}");
    }
}

/// What the group has been given by others is not changed.
#[test]
fn who_is_in_a_group_with_processors_of_its_own_gets_no_others() {
    let folder = open_folder();
    let kernel = Simulated::new();
    kernel.state.lock().unwrap().remote = true;
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    let parse = |text| daemon::kernel::parse(text).unwrap();
    for (name, cpus, exclusive, threads, goes) in [
        ("all", "0-3", "", false, true),
        ("some", "0-1", "", false, false),
        ("exclusive", "", "3", false, false),
        ("threaded", "", "", true, false),
    ] {
        let process = ordinary();
        let group = Path::new(V2).join(name);
        let made =
            simulated::Group { cpus: parse(cpus), processes: [process.id()].into(), ..Default::default() };
        {
            let mut state = kernel.state.lock().unwrap();
            state.groups.insert(group.clone(), simulated::Group { exclusive: parse(exclusive), ..made });
            let theirs = simulated::Group { threaded: true, ..Default::default() };
            threads.then(|| state.groups.insert(group.join("theirs"), theirs));
        }
        let answer = as_nobody(|| server.ask(join(process.id(), 0, 1, 1)));
        assert_eq!(
            answer.map(|state| state.holds),
            if goes { Ok(1) } else { Err(Refusal::Elsewhere) },
            "{name}"
        );
        kernel.state.lock().unwrap().groups.remove(&group.join("theirs"));
        drop(process);
        eventually("nothing is left", || {
            kernel.state.lock().unwrap().groups.keys().all(|path| path.parent() != Some(&group))
        });
        assert_eq!(kernel.state.lock().unwrap().groups[&group].exclusive, parse(exclusive), "{name}");
        kernel.state.lock().unwrap().groups.remove(&group);
    }
    server.stop();
}

/// The server was killed when it had begun to take a partition back: somebody else gets its processors
/// without an error.
#[test]
fn what_was_being_taken_back_hinders_nobody() {
    let folder = open_folder();
    let kernel = Simulated::new();
    kernel.state.lock().unwrap().remote = true;
    let slice = Path::new(V2).join("system.slice");
    let slices = simulated::Group { inner: true, ..Default::default() };
    kernel.state.lock().unwrap().groups.insert(slice.clone(), slices);
    let (one, two) = (placed(&kernel, &slice.join("one")), placed(&kernel, &slice.join("two")));
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    assert_eq!(server.ask(join(one.id(), 0, 3, 3)).unwrap().holds, 3);
    assert_eq!(server.ask(join(two.id(), 5, 1, 1)).unwrap().lacks, 1);
    server.kill();
    let child = slice.join("one").join(format!("wakeful-{}", one.id()));
    kernel.state.lock().unwrap().groups.get_mut(&child).unwrap().root = false;
    let server = Running::start(&kernel, &config(By::CgroupV2), folder.path());
    assert_eq!(server.holds(two.id()), 1);
    assert_eq!(server.connect().status().unwrap().1.counters.failures, 0);
    server.stop();
    clean(&kernel, folder.path(), By::CgroupV2);
}
