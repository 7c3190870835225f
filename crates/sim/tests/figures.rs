// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' figures: reproducible, and the claims.

use sim::figure::{Verdict, figure, figures, svg};
use sim::{Machine, Program};

fn long() -> bool {
    std::env::var_os("WAKEFUL_LONG").is_some_and(|value| value == "1")
}

/// The pages' picture of a figure, if they show it, is that of the whole run. To write it again:
/// `WAKEFUL_LONG=1 WAKEFUL_BLESS=1 cargo test -p wakeful-sim --test figures`.
fn shown(name: &str, picture: &str) {
    let file = format!("{}/../../docs/{name}.svg", env!("CARGO_MANIFEST_DIR"));
    let Ok(page) = std::fs::read_to_string(&file) else { return };
    if std::env::var_os("WAKEFUL_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&file, picture).unwrap();
    } else {
        assert!(page == picture, "{file} is not what its data give; see above for how to write it again");
    }
}

fn verdicts(name: &str, size: f64) -> Vec<Verdict> {
    let figure = figure(name).unwrap();
    let data = figure.run(1, if long() { 1.0 } else { size }, 2, || {}).unwrap();
    for point in &data.points {
        assert_eq!(point.failure, None, "{point:?}");
    }
    if long() {
        shown(name, &svg(figure, &data));
    }
    let verdicts = figure.verdicts(&data);
    verdicts.iter().for_each(|it| println!("{} {:?} ({}): {}", it.holds, it.number, it.bound, it.claim));
    verdicts
}

#[test]
fn all_names_are_in_the_catalogue_and_differ() {
    for (index, figure) in figures().enumerate() {
        assert!(figures().take(index).all(|other| other.name != figure.name), "{}", figure.name);
        for series in figure.series {
            let machine = Machine::named(figure.machine).unwrap();
            let (_, workload) = (figure.build)(machine, series, figure.at[0], 1);
            let (_, name) = workload.program.lock();
            // Programs of a kind of thread have no lock of the catalogue.
            let known = matches!(workload.program, Program::Threads { .. })
                || catalog::entry(name).or(catalog::rwlock(name)).is_some()
                || catalog::barrier(name).is_some()
                || catalog::delegate(name).is_some();
            assert!(known, "{}: {name}", figure.name);
        }
        assert!(!figure.claims.is_empty(), "{}", figure.name);
    }
}

#[test]
fn the_number_of_cores_changes_nothing() {
    let figure = figure("tr25").unwrap();
    let run = |cores| figure.run(3, 0.002, cores, || {}).unwrap();
    let (one, three) = (run(1), run(3));
    assert_eq!(one, three);
    assert_eq!(svg(figure, &one), svg(figure, &three));
    assert_ne!(one, figure.run(4, 0.002, 2, || {}).unwrap());
}

/// The claims that do not hold are named here by their beginnings, so that a change in either direction is
/// seen: at a size that takes some seconds, and at the full one.
fn expect(name: &str, size: f64, failing: &[&str], failing_at_full_size: &[&str]) {
    let failing = if long() { failing_at_full_size } else { failing };
    let verdicts = verdicts(name, size);
    let failed: Vec<&str> = verdicts.iter().filter(|it| !it.holds).map(|it| it.claim).collect();
    let known =
        failed.len() == failing.len() && failed.iter().zip(failing).all(|(is, was)| is.starts_with(was));
    assert!(known, "{name}: these fail: {failed:#?}");
    // At full size each that fails has its reason.
    if long() {
        verdicts.iter().filter(|it| !it.holds).for_each(|it| assert!(!it.note.is_empty(), "{it:?}"));
    }
}

macro_rules! claims {
    ($($name:ident: $size:literal, [$($failing:literal),*], [$($full:literal),*];)*) => {
        $(#[test]
        fn $name() {
            expect(stringify!($name), $size, &[$($failing),*], &[$($full),*]);
        })*

        #[test]
        fn every_figure_is_tested() {
            assert_eq!(figures().map(|figure| figure.name).collect::<Vec<_>>(), [$(stringify!($name)),*]);
        }
    };
}

claims! {
    tr13: 0.25, ["Preventing preemption in the critical section helps"], [];
    tr14: 1.0, ["Smart-Q is still"], ["Smart-Q is still"];
    tr15: 0.25, [], [];
    tr16: 1.0, ["Native-np is"], ["Native-np is"];
    tr17: 1.0, [], [];
    tr18: 1.0, [], [];
    tr19: 0.5, ["Ticket-np and Smart-Q match"], ["Ticket-np and Smart-Q match"];
    tr20: 0.5, ["Ticket-np and Smart-Q outperform"], ["Ticket-np and Smart-Q outperform"];
    tr21: 1.0, [], [];
    tr22: 0.3, ["RW-Smart-Q"], ["RW-Smart-Q"];
    tr23: 1.0, [], [];
    tr24: 1.0, [], [];
    tr25: 0.2, [], [];
    tr26: 0.16, [], [];
    tr27: 0.16, [], ["C-sched provides"];
    tr28: 1.0, [], [];
    tr29: 0.2, [], [];
    tr30: 0.5, [], [];
    tr31: 0.5, [], [];
    icppml: 0.1,
        ["Informing locks", "They execute up to 348", "They execute up to 8", "On a dedicated",
            "Informing locks execute on average 177", "Informing locks execute on average 5.2"],
        ["Informing locks", "They execute up to 8", "On a dedicated",
            "Informing locks execute on average 5.2", "At degree 2"];
    icppmb: 0.3, ["Informing barriers outperform"], [];
    icpp2c: 1.0,
        ["Cholesky is faster", "Cholesky performs up to 20", "Cholesky performs on average 11"],
        ["Cholesky is faster", "Cholesky performs up to 20", "Cholesky performs on average 11"];
    icpp2r: 1.0,
        ["Radiosity is faster", "Radiosity executes up to 26", "Radiosity executes on average 10",
            "Radiosity executes up to 4", "Radiosity executes on average 2"],
        ["Radiosity is faster", "Radiosity executes up to 26", "Radiosity executes on average 10",
            "Radiosity executes up to 4", "Radiosity executes on average 2"];
    icpp2l: 0.5,
        ["LU with blocking barriers is up", "LU with blocking barriers is on"],
        ["LU needs up", "LU needs on", "LU with blocking barriers is up", "LU with blocking barriers is on"];
    paz1a: 0.1, ["RCL has no overhead"], ["RCL has no overhead"];
    paz1b: 0.1, [], [];
    paz1c: 0.1, [], [];
    paz5a: 0.1, [], [];
    paz5b: 0.1, [], [];
    sa1: 1.0, [], [];
    sa2: 1.0, [], [];
    sa3: 1.0, ["No processor"], ["No processor"];
    uk3f: 1.0, ["A computing load"], ["A computing load"];
    uk3m: 1.0, [], [];
    uk4f: 1.0, [], [];
    uk4m: 1.0, [], [];
    uk5f: 1.0, [], [];
    uk5m: 1.0, [], [];
}

/// To write it anew: `WAKEFUL_BLESS=1 cargo test -p wakeful-sim --test figures`.
#[test]
fn a_golden_figure() {
    let figure = figure("tr28").unwrap();
    let data = figure.run(42, 0.01, 2, || {}).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/figure.svg");
    let is = svg(figure, &data);
    if std::env::var_os("WAKEFUL_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(path, &is).unwrap();
    }
    assert!(
        is == std::fs::read_to_string(path).unwrap(),
        "the picture has changed; see above for how to write it anew"
    );
}

#[test]
fn a_missing_number_makes_no_claim_hold() {
    let figure = figure("tr25").unwrap();
    let mut data = figure.run(1, 0.001, 2, || {}).unwrap();
    data.points.iter_mut().for_each(|point| point.failure = Some("broken".into()));
    for verdict in figure.verdicts(&data) {
        assert!(!verdict.holds && verdict.number.is_none(), "{verdict:?}");
    }
}
