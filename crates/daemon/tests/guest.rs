// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `wakefuld` under cgroup v2, whose root it takes: in a guest of four processors (`vm/test`).

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use daemon::kernel::{Set, parse};
use linux::server::{Error, Refusal, Request};

/// On which processors a process may run.
fn set(process: &Process) -> Set {
    parse(&process.allowed()).unwrap()
}

/// A process that wants to run all the time.
fn busy() -> Process {
    Process::start(Command::new("sh").args(["-c", "while :; do :; done"]))
}

/// Where each process runs, if it does, and may run; not the kernel's own, of which it needs some everywhere.
fn others(than: &[&Process]) -> Vec<(u32, Option<u32>, Set)> {
    let than: BTreeSet<u32> = than.iter().map(|process| process.id()).collect();
    let about = |process: u32| {
        let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).ok();
        let (stat, status) = (read("stat")?, read("status")?);
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let of_the_kernel = process == 2 || fields[1] == "2";
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let at = if fields[0] == "R" { fields[36].parse().ok() } else { None };
        (!of_the_kernel).then(|| Some((process, at, parse(allowed)?)))?
    };
    let names =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    names.filter(|process| !than.contains(process)).filter_map(about).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap().trim().to_string()
}

#[test]
#[ignore = "takes the whole machine: vm/test"]
fn guest_cpus_v2_divides_the_processors() {
    stories::divides_the_processors(Base::v2());
}

#[test]
#[ignore = "takes the whole machine: vm/test"]
fn guest_cpus_v2_the_dead_give_back() {
    stories::the_dead_give_back(Base::v2());
}

#[test]
#[ignore = "takes the whole machine: vm/test"]
fn guest_cpus_v2_a_crowd_leaves_nothing_behind() {
    stories::a_crowd_leaves_nothing_behind(Base::v2());
}

#[test]
#[ignore = "takes the whole machine: vm/test"]
fn guest_cpus_v2_partitions_are_the_kernels_and_alone() {
    let base = Base::v2();
    let place = base.place();
    let mut server = place.server();
    let (one, two) = (Process::idle(), Process::idle());
    let crowd: Vec<Process> = (0..3).map(|_| busy()).collect();
    let all = set(&one);
    assert_eq!(all.len(), 4, "the guest has four processors");
    let is_partition = |process: &Process, count: usize| {
        let group = base.group(process);
        assert_eq!(read(&group.join("cpuset.cpus.partition")), "root");
        let own = parse(&read(&group.join("cpuset.cpus.effective"))).unwrap();
        assert_eq!((own.len(), set(process)), (count, own.clone()));
        own
    };

    assert_eq!(ask(&place, join(one.id(), 3)).unwrap().holds, 3);
    let own = is_partition(&one, 3);
    assert_eq!(parse(&read(&base.folder.join("cpuset.cpus.effective"))).unwrap(), &all - &own);
    // Nobody else may run there, and nobody does.
    for (process, _, allowed) in others(&[&one]) {
        assert!(
            allowed.is_disjoint(&own),
            "{process} may run on {allowed:?}, of which {own:?} are {}'s",
            one.id()
        );
    }
    let on_them = || others(&[&one]).into_iter().filter_map(|(_, at, _)| at).map(|at| own.contains(&at));
    eventually("all have been moved off", || !on_them().any(|is| is));
    let mut looks = 0;
    while looks < 300 {
        looks += on_them().inspect(|is| assert!(!is, "somebody else runs on {own:?}")).count();
    }

    // A hint moves a processor, to who waits, and no more than that.
    let state = ask(&place, join_at(5, two.id(), 2)).unwrap();
    assert_eq!((state.holds, state.lacks), (0, 2));
    assert_eq!(is_partition(&one, 3), own);
    ask(&place, Request::Spare(2).of(one.id())).unwrap();
    let (first, second) = (is_partition(&one, 1), is_partition(&two, 2));
    assert_eq!(&first | &second, own);

    // A server that is killed, and another one: the same partitions.
    server.signal(libc::SIGKILL);
    server.0.wait().unwrap();
    assert_eq!((is_partition(&one, 1), is_partition(&two, 2)), (first.clone(), second.clone()));
    server = place.server();
    let state = ask(&place, Request::WantBack.of(two.id())).unwrap();
    assert_eq!(
        (state.holds, is_partition(&one, 1), is_partition(&two, 2)),
        (2, first.clone(), second.clone())
    );

    // Groups changed behind our back are set right.
    fs::write(base.group(&two).join("cpuset.cpus.partition"), "member").unwrap();
    eventually("it is a partition again", || read(&base.group(&two).join("cpuset.cpus.partition")) == "root");
    eventually("all of it", || set(&two) == second);
    let remove = || {
        base.take(&two);
        fs::remove_dir(base.group(&two)).is_ok()
    };
    eventually("it could be removed before it was taken back", remove);
    eventually("the group is made again", || base.group(&two).exists() && set(&two) == second);
    is_partition(&two, 2);

    // One of its processors goes, and comes back.
    let lost = *second.last().unwrap();
    let switch = |to: &str| fs::write(format!("/sys/devices/system/cpu/cpu{lost}/online"), to).unwrap();
    let holds = |process: &Process| {
        status(&mut place.connect().unwrap())
            .0
            .iter()
            .find(|entry| entry.process() == process.id())
            .and_then(|entry| Some(entry.state()?.holds))
    };
    switch("0");
    eventually("the server knows", || holds(&two) == Some(1));
    let left: Set = second.iter().copied().filter(|&number| number != lost).collect();
    eventually("the kernel has it", || set(&two) == left);
    assert_eq!(is_partition(&one, 1), first);
    switch("1");
    eventually("it has it again", || holds(&two) == Some(2) && set(&two) == second);
    is_partition(&two, 2);
    // All that a program has.
    let lost = *first.first().unwrap();
    let switch = |to: &str| fs::write(format!("/sys/devices/system/cpu/cpu{lost}/online"), to).unwrap();
    switch("0");
    eventually("it has none, or another", || !set(&one).contains(&lost) && !set(&one).is_empty());
    switch("1");
    eventually("it has it again", || holds(&one) == Some(1) && set(&one).len() == 1);

    // It ends, and what it had is everybody's, or its who waits.
    drop(two);
    eventually("they are back", || crowd.iter().all(|other| set(other).len() == 3));
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    assert!(crowd.iter().all(|other| set(other) == all) && set(&one) == all);
    base.end();
}

#[test]
#[ignore = "takes the whole machine: vm/test"]
fn guest_cpus_v2_the_server_is_killed_under_load() {
    stories::the_server_is_killed_under_load(Base::v2());
}

/// A slice whose groups are given what a service may be confined by.
struct Slice(PathBuf);

impl Slice {
    fn new() -> Self {
        let root = Path::new("/sys/fs/cgroup");
        let slice = root.join("confined");
        fs::create_dir(&slice).unwrap();
        for group in [root, &slice] {
            fs::write(group.join("cgroup.subtree_control"), "+cpuset +pids").unwrap();
        }
        Self(slice)
    }

    fn service(&self, name: &str, processors: &str) -> PathBuf {
        let service = self.0.join(name);
        fs::create_dir(&service).unwrap();
        fs::write(service.join("cpuset.cpus"), processors).unwrap();
        fs::write(service.join("pids.max"), "5").unwrap();
        service
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        for entry in
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
        {
            let _ = fs::remove_dir(entry);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// A user's.
fn ordinary(group: &Path) -> Process {
    use std::os::unix::process::CommandExt;
    let process = Process::start(Command::new("sleep").uid(65534).arg("1000"));
    fs::write(group.join("cgroup.procs"), process.id().to_string()).unwrap();
    process
}

/// AllowedCPUs, limits, `systemctl stop` and all that is inherited go on holding.
#[test]
#[ignore = "takes the whole machine: vm/test"]
fn guest_cpus_v2_partitions_of_services_stay_below_them() {
    let (base, slice) = (Base::v2(), Slice::new());
    let place = base.place();
    let mut server = place.server();
    let (service, narrow) = (slice.service("service", "0-3"), slice.service("narrow", "0-1"));
    let (one, two) = (ordinary(&service), ordinary(&narrow));
    let all = set(&one);
    let refused = as_nobody(|| ask(&place, join(two.id(), 1)));
    assert!(matches!(refused, Err(Error::Refused(Refusal::Elsewhere, _))), "{refused:?}");
    assert_eq!(set(&two), Set::from([0, 1]));
    // Of what one group may run on, another cannot have all.
    drop(two);
    eventually("its group is removed", || fs::remove_dir(&narrow).is_ok());
    assert_eq!(as_nobody(|| ask(&place, join(one.id(), 2))).unwrap().holds, 2);
    let own = set(&one);
    assert_eq!(own.len(), 2);
    let is_there = || {
        let path = format!("0::/confined/service/wakeful-{}", one.id());
        assert_eq!(read(Path::new(&format!("/proc/{}/cgroup", one.id()))), path);
        assert_eq!(read(&service.join("pids.current")), "1");
        for group in [&slice.0, &service] {
            assert_eq!(parse(&read(&group.join("cpuset.cpus.exclusive"))).unwrap(), own);
        }
        assert_eq!(set(&one), own);
    };
    is_there();
    for (process, _, allowed) in others(&[&one]) {
        assert!(
            allowed.is_disjoint(&own),
            "{process} may run on {allowed:?}, of which {own:?} are {}'s",
            one.id()
        );
    }
    // A server that is killed, and another one.
    server.signal(libc::SIGKILL);
    server.0.wait().unwrap();
    is_there();
    server = place.server();
    let again = Request::WantBack.of(one.id());
    assert_eq!(as_nobody(|| ask(&place, again)).unwrap().holds, 2);
    is_there();
    // A processor goes and comes back, and the partition is changed by others.
    let switch = |to: &str| {
        fs::write(format!("/sys/devices/system/cpu/cpu{}/online", own.last().unwrap()), to).unwrap()
    };
    switch("0");
    eventually("it has the other one", || set(&one).len() == 1 && set(&one).is_subset(&own));
    switch("1");
    eventually("it has both again", || set(&one) == own);
    let child = service.join(format!("wakeful-{}", one.id()));
    fs::write(child.join("cpuset.cpus.partition"), "member").unwrap();
    eventually("it is a partition again", || read(&child.join("cpuset.cpus.partition")) == "root");
    eventually("all of it", || set(&one) == own);
    is_there();
    // It leaves, and nothing of that stays.
    as_nobody(|| ask(&place, Request::Leave.of(one.id()))).unwrap();
    let is_as_before = || {
        let groups = [&slice.0, &service].map(|group| read(&group.join("cpuset.cpus.exclusive")));
        !child.exists()
            && groups.iter().all(String::is_empty)
            && read(&service.join("cgroup.type")) == "domain"
    };
    eventually("it is where it was", || is_as_before() && set(&one) == all);
    assert_eq!(read(Path::new(&format!("/proc/{}/cgroup", one.id()))), "0::/confined/service");
    // Its service is stopped.
    assert_eq!(as_nobody(|| ask(&place, join(one.id(), 1))).unwrap().holds, 1);
    fs::write(service.join("cgroup.kill"), "1").unwrap();
    eventually("it is gone", is_as_before);
    server.signal(libc::SIGTERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    base.end();
}

/// Nobody loses a processor, and none stays lent.
#[test]
#[ignore = "takes the whole machine: vm/test"]
fn guest_cpus_v2_partitions_below_groups_outlive_the_server() {
    let (base, slice) = (Base::v2(), Slice::new());
    let put = |process: &Process| {
        let service = slice.service(&format!("service-{}", process.id()), "0-3");
        fs::write(service.join("cgroup.procs"), process.id().to_string()).unwrap();
    };
    // COST: a kill is some seconds of an emulated machine.
    let kills = if std::env::var_os("WAKEFUL_LONG").is_some() { 100 } else { 5 };
    stories::killed_under_load(&base, &put, kills);
    assert_eq!(read(&slice.0.join("cpuset.cpus.exclusive")), "");
    base.end();
}
