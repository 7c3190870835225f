// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler, in a guest's kernel (`vm/test`). Counts and orderings, never times.

use bpf::scheduler::{self, Config, Scheduler, State};

fn kernel_state() -> String {
    std::fs::read_to_string("/sys/kernel/sched_ext/state").unwrap().trim().to_string()
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_comes_and_goes() {
    let scheduler = Scheduler::start(Config::default()).unwrap();
    assert_eq!(scheduler::in_charge().as_deref(), Some("wakeful"));
    assert_eq!(scheduler.state().unwrap(), State::Alive);
    for (name, instructions) in scheduler.verified().unwrap() {
        println!("{name}: {instructions}");
    }
    drop(scheduler);
    assert_eq!(kernel_state(), "disabled");
}
