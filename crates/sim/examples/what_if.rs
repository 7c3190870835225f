// SPDX-License-Identifier: MIT OR Apache-2.0
//! Is an assumption the reason why a claim fails? A figure on its machine as described, and on the same
//! machine with other values.
//!
//! `cargo run --profile ci -p wakeful-sim --example what_if -- FIGURE SEEDS TABLE.FIELD=VALUE ...`: each
//! claim's number on the one and on the other, the median of the seeds and their range; then each lock's
//! time on the other. A level is `level.0`, and so on. `size=4` is no field: each thread takes four times as
//! many turns, and the limit is four times as long.

use sim::figure::{Figure, figure, literal};
use sim::{Machine, figure::Data};

/// The machine with other values.
fn changed(described: &Machine, changes: &[String]) -> Machine {
    let mut machine = toml::Value::try_from(described).expect("a description is a table");
    for change in changes {
        let (field, number) = change.split_once('=').expect("TABLE.FIELD=VALUE");
        let mut at = &mut machine;
        for part in field.split('.') {
            let found = match part.parse::<usize>() {
                Ok(index) => at.get_mut(index),
                Err(_) => at.get_mut(part),
            };
            at = found.unwrap_or_else(|| panic!("the machine has no {field}"));
        }
        let value = at.get_mut("value").unwrap_or_else(|| panic!("{field} is not a number"));
        *value = match number.parse() {
            Ok(number) => toml::Value::Float(number),
            Err(_) => toml::Value::String(number.into()),
        };
    }
    machine.try_into().expect("the machine stays sound")
}

fn numbers(figure: &Figure, machine: &Machine, seeds: u64, size: f64) -> Vec<Data> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (1..=seeds).map(|seed| figure.run_on(machine, seed, size, cores, || ()).expect("it runs")).collect()
}

/// The median, and the range.
fn spread(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    format!("{:.3} ({:.3}-{:.3})", all[all.len() / 2], all[0], all[all.len() - 1])
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, seeds, changes @ ..] = &words[..] else {
        panic!("FIGURE SEEDS TABLE.FIELD=VALUE ...");
    };
    let figure = figure(name).expect("a figure of `wakeful sim figure`");
    let seeds: u64 = seeds.parse().expect("a number of seeds");
    let described = figure.described();
    let (sizes, changes): (Vec<_>, Vec<_>) = changes.iter().cloned().partition(|it| it.starts_with("size="));
    let size = sizes.last().map_or(1.0, |it| it["size=".len()..].parse().expect("a number"));
    let before = numbers(figure, &described, seeds, 1.0);
    let after = numbers(figure, &changed(&described, &changes), seeds, size);
    for claim in figure.claims {
        let of = |runs: &[Data]| spread(runs.iter().map(|data| (claim.number)(data)).collect());
        let bound = match literal(figure, claim) {
            Some(words) => format!("{} by its words, {} is allowed", words, claim.bound),
            None => claim.bound.to_string(),
        };
        println!("{} ({bound})\n    {}: {} -> {}", claim.words, claim.measure, of(&before), of(&after));
    }
    for &series in figure.series {
        let at = |x| spread(after.iter().map(|data| data.at(series, x)).collect());
        let all: Vec<_> = figure.at.iter().map(|&x| format!("{x}: {}", at(x))).collect();
        println!("{series}: {}", all.join(", "));
    }
}
