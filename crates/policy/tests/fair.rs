// SPDX-License-Identifier: MIT OR Apache-2.0
//! Learning what programs use never leaves anybody below the semi-dynamic rules: whoever uses all that it has
//! keeps its equal share. Over random machines and histories, and a twin that is found out.

use policy::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

const SECOND_NS: u64 = 1_000_000_000;
/// Programs with these numbers use all that they have, the others what Amdahl's law says.
const FULL: std::ops::Range<Id> = 0..3;
const PROGRAMS: std::ops::Range<Id> = 0..6;

#[derive(Clone, Debug)]
enum Step {
    /// A program asks, with a limit; if it is there already, it ends.
    Turn(Id, u32),
    Spare(Id, u32),
    WantBack(Id),
    /// So many seconds pass, one look each.
    Looks(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let most = prop_oneof![4 => Just(u32::MAX), 1 => 1..6u32];
    let step = prop_oneof![
        3 => (PROGRAMS, most).prop_map(|(id, most)| Step::Turn(id, most)),
        1 => (PROGRAMS, 1..4u32).prop_map(|(id, count)| Step::Spare(id, count)),
        1 => PROGRAMS.prop_map(Step::WantBack),
        6 => (1..20u64).prop_map(Step::Looks),
    ];
    proptest::collection::vec(step, 1..40)
}

/// So many hundredths of processors a program uses.
fn used(id: Id, holds: u32) -> u32 {
    if FULL.contains(&id) {
        return holds * 100;
    }
    let serial = [0.05, 0.4, 1.0][id as usize % 3];
    (100.0 / (serial + (1.0 - serial) / f64::from(holds))) as u32
}

/// What each could have if nobody were looked at: the highest level that is not more than there is.
fn equal(system: &System<SemiDynamic>) -> u32 {
    let capacity = (system.machine().online().count() as u32).saturating_sub(system.floor());
    let size = |it: &Application| {
        let Count::Choose { most } = it.demand.count else { unreachable!("all let the server choose") };
        most.min(it.usable.unwrap_or(u32::MAX))
    };
    let taken = |level: u32| system.applications().map(|(_, it)| size(it).min(level)).sum::<u32>();
    (0..=capacity).rev().find(|&level| taken(level) <= capacity).unwrap_or(0)
}

fn check(system: &System<SemiDynamic>) -> Result<(), TestCaseError> {
    let equal = equal(system);
    for (id, it) in system.applications().filter(|(id, _)| FULL.contains(id)) {
        let Count::Choose { most } = it.demand.count else { unreachable!("all let the server choose") };
        let due = equal.min(most).min(it.usable.unwrap_or(u32::MAX));
        prop_assert!(it.holds() >= due, "{id} has {} of {due}", it.holds());
    }
    Ok(())
}

/// `tell` is what the policy hears instead of what was used.
fn live(processors: u32, steps: &[Step], tell: impl Fn(Id, u32) -> u32) -> Result<(), TestCaseError> {
    let machine = (0..processors).map(|number| (number, Processor { core: number, node: 0, online: true }));
    let mut system = System::new(machine.collect(), 1, SemiDynamic);
    let mut now = 0;
    for step in steps {
        match *step {
            Step::Turn(id, _) if system.application(id).is_some() => {
                let _ = system.apply(Event::Exit(id), now);
            }
            Step::Turn(id, most) => {
                let demand = Demand { priority: 1, count: Count::Choose { most } };
                let _ = system.apply(Event::Request(id, demand), now);
            }
            Step::Spare(id, count) => drop(system.apply(Event::Spare(id, count), now)),
            Step::WantBack(id) => drop(system.apply(Event::WantBack(id), now)),
            Step::Looks(count) => {
                for _ in 0..count {
                    now += SECOND_NS;
                    let holders = system.applications().filter(|(_, it)| it.holds() > 0);
                    let all = holders.map(|(id, it)| (id, tell(id, it.holds()))).collect();
                    let _ = system.apply(Event::Used(all), now);
                    check(&system)?;
                }
            }
        }
        check(&system)?;
    }
    Ok(())
}

fn cases() -> Config {
    let long = std::env::var_os("WAKEFUL_LONG").is_some_and(|value| value == "1");
    Config { cases: if long { 20_000 } else { 1_000 }, failure_persistence: None, ..Config::default() }
}

#[test]
fn who_uses_all_that_it_has_keeps_its_equal_share() {
    TestRunner::new(cases())
        .run(&(2..20u32, steps()), |(processors, steps)| live(processors, &steps, used))
        .unwrap();
}

/// It takes one program's use for another's.
#[test]
fn twin_that_confuses_programs() {
    let confused = |id: Id, holds| used((id + 3) % PROGRAMS.end, holds);
    let found = TestRunner::new(cases())
        .run(&(2..20u32, steps()), |(processors, steps)| live(processors, &steps, confused));
    assert!(found.is_err());
}
