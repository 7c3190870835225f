// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default spin lock, with the bodies of the mutexes.

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Lying, Twisted};
use conformance::{bodies, distinct, further, hinted, long};
use linux::Linux;
use platform::Platform;
use sync::mutex::RawMutex;
use sync::spin::Wakeful;

mod loom;
mod shuttle;
mod threads;
mod twins;

/// The spin lock as a mutex.
struct Spin<P: Platform>(Wakeful<P>);

impl<P: Platform> RawMutex<P> for Spin<P> {
    type Node = ();

    fn new() -> Self {
        Self(Wakeful::new())
    }
    unsafe fn lock(&self, _: &()) {
        self.0.lock();
    }
    unsafe fn try_lock(&self, _: &()) -> bool {
        self.0.try_lock()
    }
    unsafe fn unlock(&self, _: &()) {
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock() }
    }
}

/// COST: ns a look; a waiter polls for 10 us.
const STEPS: [u64; 2] = [3_000, 1_000_000];

fn loom(name: &str, preemptions: usize, body: fn()) {
    let mut ran = 0;
    let executions = 1_000 * further();
    let bounds = Bounds { preemptions: preemptions + long() as usize, executions };
    for settings in distinct(&hinted(&STEPS)) {
        ran += conformance::loom::explore(name, settings, bounds, body);
    }
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(name: &str, body: fn()) {
    let mut ran = 0;
    for settings in distinct(&hinted(&STEPS)) {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            ran += conformance::shuttle::explore(settings, schedules, 100 * further(), body);
        }
    }
    eprintln!("shuttle: {name}: {ran} executions");
}
