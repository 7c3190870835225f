// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program says to the processor server by itself. One test, because the server is the process's.

mod heard;

use std::io::Write;
use std::mem::offset_of;
use std::thread;
use std::time::{Duration, Instant};

use abi::Partition;
use abi::server::{Answer, Block, Demand, Reply, Request, State};
use heard::{Server, block, grant, word};
use wakeful::parallel::{Schedule, Team, with_fewer};
use wakeful::partition::{self, Error};

#[test]
fn hints_reach_the_server_when_phases_change_and_only_then() {
    // The path is read once, when it is needed first.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wakefuld");
    let path = path.to_str().unwrap();
    // SAFETY: no other thread reads the environment now.
    unsafe { std::env::set_var("WAKEFUL_SERVER", path) };
    assert!(matches!(partition::leave(), Err(Error::NoServer)));
    let server = Server::new(path);

    // Who has no partition has nothing to spare.
    with_fewer(1, || ());

    let asked = thread::spawn(|| partition::request(3, 1..=2));
    let block = block();
    assert_eq!(grant(&server, &block), Request::Join(Demand::new(3, 1, 2, 2)));
    assert_eq!(asked.join().unwrap().unwrap(), 2);

    if thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    // By hand, and back; nothing is said twice, and an inner phase ends with the outer one's word.
    with_fewer(1, || with_fewer(1, || ()));
    let (hint, _connection) = server.hear();
    assert!(matches!(hint.request, Request::Spare(1..)), "{hint:?}");
    assert_eq!(server.hear().0.request, Request::WantBack);

    // By itself: a bound team whose helpers have all been idle for long needs one processor.
    let team = Team::bound();
    loop {
        // A helper that has made way for another thread sleeps without a word, until the next loop.
        while server.is_quiet() {
            team.for_each(0..100, Schedule::Static, |_| thread::sleep(Duration::from_micros(100)));
            thread::sleep(Duration::from_millis(30));
        }
        if server.hear().0.request == hint.request {
            break;
        }
    }
    // Somebody has taken them: no helper is woken by the next loop, and all are wanted back all the same.
    let masks = confine();
    word(&block, offset_of!(Block, partition) + offset_of!(Partition, generation), 1);
    // The look at the number of processors is one loop in some.
    loops_until(&team, 1);
    let (envelope, mut connection) = server.hear();
    assert_eq!(envelope.request, Request::WantBack);
    set_masks(&masks);
    word(&block, offset_of!(Block, partition) + offset_of!(Partition, generation), 2);
    loops_until(&team, masks[0].1.count());
    // An answer that nobody reads harms nobody.
    let answer = Answer { tag: 0, reply: Reply::State(State::default()) };
    let _ = connection.write(answer.encode().bytes());
    team.for_each(0..100, Schedule::Static, |_| ());
}

fn loops_until(team: &Team, members: usize) {
    let start = Instant::now();
    while team.members() != members {
        assert!(start.elapsed() < Duration::from_secs(120), "{} members", team.members());
        team.for_each(0..100, Schedule::Static, |_| ());
    }
}

struct Mask(libc::cpu_set_t);

impl Mask {
    fn count(&self) -> usize {
        // SAFETY: a set that lives.
        unsafe { libc::CPU_COUNT(&self.0) as usize }
    }
}

/// All threads of this process on one processor; where they might run before.
fn confine() -> Vec<(i32, Mask)> {
    let mut masks = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let thread: i32 = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: sets that live, and their size.
        unsafe {
            let mut mask: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(thread, size_of_val(&mask), &mut mask) == 0 {
                masks.push((thread, Mask(mask)));
                let mut one: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET((0..1024).find(|&cpu| libc::CPU_ISSET(cpu, &mask)).unwrap(), &mut one);
                assert_eq!(libc::sched_setaffinity(thread, size_of_val(&one), &one), 0);
            }
        }
    }
    masks
}

fn set_masks(masks: &[(i32, Mask)]) {
    for (thread, mask) in masks {
        // SAFETY: a set that lives.
        unsafe { libc::sched_setaffinity(*thread, size_of_val(&mask.0), &mask.0) };
    }
}
