// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failure comes with a schedule, and the schedule brings the failure back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use conformance::shuttle::{Schedules, Shuttle, explore_into, replay};
use conformance::twins::TestThenSet;
use conformance::{Hints, Settings, bodies};
use sync::mutex::Wakeful;

fn twin() {
    bodies::exclusion::<Shuttle, TestThenSet<Shuttle>>(3, 2);
}

fn intact() {
    bodies::exclusion::<Shuttle, Wakeful<Shuttle>>(3, 2);
}

#[test]
fn a_schedule_repeats_a_failure() {
    let folder = std::env::temp_dir().join(format!("wakeful-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let settings = Settings { hints: Hints::Mixed, ..Settings::default() };
    let explore = || explore_into(Some(&folder), settings, Schedules::Random, 1_000, twin);
    assert!(catch_unwind(AssertUnwindSafe(explore)).is_err());
    let file = std::fs::read_dir(&folder).unwrap().next().expect("a schedule was written").unwrap().path();
    let schedule = std::fs::read_to_string(file).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    for _ in 0..3 {
        assert!(catch_unwind(|| replay(settings, &schedule, twin)).is_err(), "the failure did not come back");
    }
    explore_into(None, settings, Schedules::Random, 100, intact);
}
