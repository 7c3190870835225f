// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::figure::Axis;
use crate::{MACHINES, Results, Workload};

const AXIS: Axis = Axis { label: "", unit: "", log: false };

/// One thread, whose sections take as long as a million hits: the time is proportional to that assumption,
/// but for some microseconds.
fn hits(machine: Machine, _: &str, _: f64, rounds: u64) -> (Machine, Workload) {
    let program = crate::Program::Mutex {
        lock: "tas-b".into(),
        critical_ns: 1e6 * machine.memory.hit_ns.value,
        outside_ns: 0.0,
    };
    let workload = Workload { program, vary: 0.0, ..Workload::tr_lock("", 1, 1.0, 0.0, rounds) };
    (machine, workload)
}

/// Sections of a random length that no machine knows.
fn luck(machine: Machine, _: &str, _: f64, rounds: u64) -> (Machine, Workload) {
    let program = crate::Program::Mutex { lock: "tas-b".into(), critical_ns: 1e6, outside_ns: 0.0 };
    (machine, Workload { program, vary: 0.9, ..Workload::tr_lock("", 1, 1.0, 0.0, rounds) })
}

fn ms(results: &Results, rounds: u64) -> f64 {
    results.elapsed_ms / rounds as f64
}

/// Hits of 13 ns are 13 ms. It holds from 18.38 ns on in a quarter of the draws, by its words from 13 on.
const PLANTED: Claim = Claim {
    words: "planted",
    source: "",
    measure: "",
    number: |data| data.at("a", 1.0),
    note: "",
    bound: Bound::AtLeast(18.38),
};

const FIGURE: Figure = Figure {
    name: "planted",
    title: "",
    machine: "sgi-challenge-11",
    x: AXIS,
    y: AXIS,
    series: &["a"],
    at: &[1.0],
    rounds: 4,
    limit_ms: 1000.0,
    build: hits,
    scale: ms,
    claims: &[
        PLANTED,
        Claim { bound: Bound::AtMost(13.0), ..PLANTED },
        Claim { bound: Bound::AtLeast(5.0), ..PLANTED },
        Claim { number: |_| f64::NAN, ..PLANTED },
    ],
};

fn sampled(figure: &Figure, samples: Samples, count: u32) -> Vec<Sampled> {
    let one = |sample| {
        let (machine, draws) = samples.machine(&figure.described(), sample);
        (draws, figure.run_on(&machine, samples.seed(sample), 1.0, 1, || {}).unwrap())
    };
    (0..count).map(one).collect()
}

const SAMPLES: Samples = Samples { seed: 1, draws: true };

#[test]
fn what_decides_is_named_with_its_share() {
    let sampled = sampled(&FIGURE, SAMPLES, 80);
    let [quarter, half, all, none] = FIGURE.sure(&sampled).try_into().unwrap();
    let of = |sure: &Sure, from: usize, to: usize, above: bool, at: f64| {
        assert!((from..=to).contains(&sure.words.holds), "{sure:?}");
        let turn = sure.words.turn.as_ref().unwrap();
        assert_eq!((turn.assumption.as_str(), turn.above, turn.errors), ("memory.hit_ns", above, 0));
        assert!((turn.separation.abs() - 1.0).abs() < 1e-9 && (turn.separation > 0.0) == above, "{turn:?}");
        assert!((turn.at / at - 1.0).abs() < 0.06, "{turn:?}");
    };
    // 80 draws: two standard deviations are 8 and 9.
    of(&quarter, 12, 28, true, 18.38);
    of(&half, 31, 49, false, 13.0);
    assert_eq!((all.words.holds, &all.words.turn), (80, &None));
    assert_eq!((none.words.holds, none.missing, none.number), (0, 80, None));
    let spread = quarter.number.unwrap();
    assert!(spread.low >= 6.5 && spread.low < 7.5 && spread.high > 23.0 && spread.high <= 26.1, "{spread:?}");
    assert_eq!(FIGURE.spreads(&sampled), [Some(spread)]);
}

#[test]
fn where_only_the_seed_decides_nothing_is_named() {
    let claims: &[Claim] = &[Claim { bound: Bound::AtLeast(1.0), ..PLANTED }];
    let figure = Figure { build: luck, claims, ..FIGURE };
    let sampled = sampled(&figure, SAMPLES, 80);
    let sure = &figure.sure(&sampled)[0];
    assert!((25..=55).contains(&sure.words.holds), "{sure:?}");
    assert_eq!(sure.words.turn, None);
}

#[test]
fn machines_as_described_differ_by_the_seed() {
    let samples = Samples { seed: 1, draws: false };
    let machine = FIGURE.described();
    assert_eq!(samples.machine(&machine, 3), (machine, vec![]));
    assert_ne!(samples.seed(3), samples.seed(4));
    assert_ne!(samples.seed(3), Samples { seed: 2, ..samples }.seed(3));
}

/// Each number that is an assumption is drawn, from half to double, to every machine's content.
#[test]
fn every_assumption_is_drawn_and_nothing_else() {
    for name in MACHINES {
        let machine = Machine::named(name).unwrap();
        let described = machine.figures();
        let mut means = std::collections::BTreeMap::<String, f64>::new();
        for sample in 0..200 {
            let (other, draws) = SAMPLES.machine(&machine, sample);
            assert_eq!(other, SAMPLES.machine(&machine, sample).0);
            for (was, is) in described.iter().zip(other.figures()) {
                let draw = draws.iter().find(|draw| draw.field == was.field);
                let Some(draw) = draw else {
                    assert_eq!(*was, is);
                    let choice = was.value.parse::<f64>().is_err();
                    let stays = was.field.ends_with("processors") || was.field.ends_with("count");
                    let unused = was.source.contains("not used") || was.value.parse() == Ok(0.0);
                    assert!(choice || stays || unused || !was.source.contains("assumption"), "{was:?}");
                    continue;
                };
                let (was, is): (f64, f64) = (was.value.parse().unwrap(), is.value.parse().unwrap());
                assert_eq!(is, draw.value);
                assert!((0.5..=2.0).contains(&(is / was)), "{draw:?}");
                *means.entry(draw.field.clone()).or_default() += (is / was).log2() / 200.0;
            }
        }
        // One standard deviation of the mean of 200 numbers from -1 to 1 is 0.041, of -1, 0 and 1 0.05.
        assert!(means.values().all(|mean| mean.abs() < 0.2), "{name}: {means:?}");
        assert!(means.len() >= 10, "{name}");
    }
}

#[test]
fn separation_by_hand() {
    // Ranks 1, 2 and 3.5, 3.5, 5: means 1.5 and 4.
    let (far, chance) = separation(&[1.0, 2.0, 3.0, 3.0, 4.0], &[false, false, true, true, true]).unwrap();
    assert!((far - 1.0).abs() < 1e-12);
    // U is 6 of 6; the variance 2 * 3 / 12 * (6 - 6 / 20); 2.5 / 1.688 deviations.
    assert!((chance - 0.1386).abs() < 1e-3, "{chance}");
    let (none, chance) = separation(&[1.0, 2.0, 3.0, 4.0], &[true, false, false, true]).unwrap();
    assert!(none == 0.0 && (chance - 1.0).abs() < 1e-6);
    assert_eq!(separation(&[1.0, 2.0], &[true, true]), None);
    assert_eq!(separation(&[2.0, 2.0], &[true, false]), Some((0.0, 1.0)));
    assert!((beyond(1.959_964) - 0.05).abs() < 1e-5);
}

#[test]
fn the_cut_has_the_fewest_errors() {
    let (at, errors) = split(&[1.0, 2.0, 4.0, 8.0], &[false, false, true, true], true);
    assert_eq!((at, errors), (8f64.sqrt(), 0));
    assert_eq!(split(&[1.0, 2.0, 4.0, 8.0], &[true, false, true, false], false).1, 1);
}

#[test]
fn spreads_are_of_what_there_is() {
    let spread = Spread::of((0..=100).map(f64::from).chain([f64::NAN])).unwrap();
    assert_eq!((spread.low, spread.median, spread.high), (5.0, 50.0, 95.0));
    assert_eq!(Spread::of([f64::NAN].into_iter()), None);
}

#[test]
fn data_are_what_was_written() {
    let figure = crate::figure::figure("tr15").unwrap();
    let data = figure.run(1, 0.01, 1, || {}).unwrap();
    let ys: Vec<f64> = data.points.iter().map(|point| point.y).collect();
    let again = figure.data(&ys).unwrap();
    for (a, b) in data.points.iter().zip(&again.points) {
        assert_eq!((a.series, a.x, a.y), (b.series, b.x, b.y));
    }
    assert_eq!(figure.data(&ys[1..]), None);
    let broken = figure.data(&vec![f64::NAN; ys.len()]).unwrap();
    assert!(figure.verdicts(&broken).iter().all(|it| !it.holds));
}
