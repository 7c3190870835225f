// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' figures: reproducible, and the claims.

use sim::figure::{FIGURES, Verdict, figure, svg};

fn long() -> bool {
    std::env::var_os("WAKEFUL_LONG").is_some_and(|value| value == "1")
}

fn verdicts(name: &str, size: f64) -> Vec<Verdict> {
    let figure = figure(name).unwrap();
    let data = figure.run(1, if long() { 1.0 } else { size }, 2, || {}).unwrap();
    for point in &data.points {
        assert_eq!(point.failure, None, "{point:?}");
    }
    let verdicts = figure.verdicts(&data);
    verdicts.iter().for_each(|it| println!("{} {:?} ({}): {}", it.holds, it.number, it.bound, it.claim));
    verdicts
}

#[test]
fn all_names_are_in_the_catalogue_and_differ() {
    for (index, figure) in FIGURES.iter().enumerate() {
        assert!(FIGURES[..index].iter().all(|other| other.name != figure.name), "{}", figure.name);
        for name in figure.series {
            let known = catalog::entry(name).or(catalog::rwlock(name)).is_some() || catalog::barrier(name).is_some();
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
