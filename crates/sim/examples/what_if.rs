// SPDX-License-Identifier: MIT OR Apache-2.0
//! Is an assumption the reason why a claim fails? A figure on its machine as described, and on the same
//! machine with other values.
//!
//! `cargo run --profile ci -p wakeful-sim --example what_if -- FIGURE SEEDS TABLE.FIELD=VALUE ...`: each
//! claim's number on the one and on the other, the median of the seeds and their range; then each lock's
//! time on the other. A level is `level.0`, and so on. These are no fields:
//!
//! - `size=4`: each thread takes four times as many turns, and the limit is four times as long
//! - `repartition=800`: ms between two repartitions
//! - `block=4`: rows of the block that a number of Cholesky stands for; `levels=10`: of the columns' tree
//! - `owned=1`: Cholesky as in SPLASH-2, each column with an owner, and locks at the queues alone
//! - `small=512`: Quicksort's threads sort a range of so many numbers alone
//! - `operation=0.1`: an arithmetic operation takes a tenth of what a word in the cache takes
//! - `threads=11`: so many threads of each program
//! - `at=1`: the lower table at this point of the figure's axis, as level 1, instead of at the figure's own
//! - `section=32`: sections of a mutex, and the work between them or between barriers, take 32 times as long
//! - `after=1`: the figure on the other machine only; the first numbers are the same then
//! - `show=work`: instead of times, which part of the processors' time was work, in the lower table and in
//!   the claims. `show=turnaround`: the mean of the programs' ends; `show=sleeps`: how often threads slept

use sim::figure::{Figure, figure, literal};
use sim::{Machine, Program, Results, Workload, figure::Data};

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

/// What is no number of the machine.
#[derive(Default)]
struct Others {
    size: Option<f64>,
    repartition: Option<f64>,
    block: Option<f64>,
    levels: Option<f64>,
    owned: Option<f64>,
    small: Option<f64>,
    operation: Option<f64>,
    threads: Option<f64>,
    section: Option<f64>,
}

impl Others {
    /// They are taken out of the changes.
    fn of(changes: &mut Vec<String>) -> Self {
        let mut taken = |name: &str| {
            let place = changes.iter().position(|it| it.starts_with(name))?;
            let change = changes.remove(place);
            Some(change[name.len()..].parse().expect("a number"))
        };
        Self {
            size: taken("size="),
            repartition: taken("repartition="),
            block: taken("block="),
            levels: taken("levels="),
            owned: taken("owned="),
            small: taken("small="),
            operation: taken("operation="),
            threads: taken("threads="),
            section: taken("section="),
        }
    }

    fn change(&self, workload: &mut Workload) {
        if let (Some(it), Some(every_ms)) = (&mut workload.setting.repartition, self.repartition) {
            it.every_ms = every_ms;
        }
        workload.setting.operation = self.operation.unwrap_or(workload.setting.operation);
        workload.threads = self.threads.map_or(workload.threads, |it| it as u32);
        let section = self.section.unwrap_or(1.0);
        if let Program::Barrier { outside_ns, .. } | Program::Mutex { outside_ns, .. } = &mut workload.program
        {
            *outside_ns *= section;
        }
        if let Program::Mutex { critical_ns, .. } = &mut workload.program {
            *critical_ns *= section;
        }
        if let Program::Quicksort { small, .. } = &mut workload.program {
            *small = self.small.map_or(*small, |it| it as u32);
        }
        if let Program::Cholesky { lock, levels, block } = &mut workload.program {
            *block = self.block.map_or(*block, |it| it as u32);
            *levels = self.levels.map_or(*levels, |it| it as u32);
            if self.owned.is_some() {
                let (lock, levels, block) = (lock.clone(), *levels, *block);
                workload.program = Program::FanOut { lock, levels, block };
            }
        }
    }
}

fn numbers(figure: &Figure, machine: &Machine, seeds: u64, others: &Others) -> Vec<Data> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let size = others.size.unwrap_or(1.0);
    let change = |workload: &mut Workload| others.change(workload);
    let one = |seed| figure.run_changed(machine, seed, size, cores, change, || ()).expect("it runs");
    (1..=seeds).map(one).collect()
}

fn work(results: &Results, _: u64) -> f64 {
    results.work_ms / results.cpu_ms
}

fn sleeps(results: &Results, _: u64) -> f64 {
    results.threads.iter().map(|thread| thread.sleeps as f64).sum()
}

/// The mean of the ends of the programs.
fn turnaround(results: &Results, _: u64) -> f64 {
    let mut ends = Vec::new();
    for thread in &results.threads {
        ends.resize(ends.len().max(thread.instance + 1), 0.0f64);
        ends[thread.instance] = ends[thread.instance].max(thread.finished_ms.unwrap_or(f64::NAN));
    }
    ends.iter().sum::<f64>() / ends.len() as f64
}

/// The figure, with what it is to show on its axis.
fn showing(figure: &'static Figure, changes: &mut Vec<String>) -> Figure {
    let place = changes.iter().position(|it| it.starts_with("show="));
    let scale = match place.map(|place| changes.remove(place)).as_deref() {
        None => figure.scale,
        Some("show=work") => work,
        Some("show=sleeps") => sleeps,
        Some("show=turnaround") => turnaround,
        Some(other) => panic!("{other}: work, sleeps or turnaround"),
    };
    let place = changes.iter().position(|it| it.starts_with("at="));
    let at = place.map(|place| changes.remove(place)["at=".len()..].parse().expect("a number"));
    let at = at.map_or(figure.at, |at: f64| Vec::leak(vec![at]));
    Figure { scale, at, ..*figure }
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
    let seeds: u64 = seeds.parse().expect("a number of seeds");
    let mut changes = changes.to_vec();
    let figure = &showing(figure(name).expect("a figure of `wakeful sim figure`"), &mut changes);
    let described = figure.described();
    let others = Others::of(&mut changes);
    let only = changes.iter().position(|it| it == "after=1").map(|place| changes.remove(place));
    let after = numbers(figure, &changed(&described, &changes), seeds, &others);
    let before = match only {
        Some(_) => after.clone(),
        None => numbers(figure, &described, seeds, &Others::default()),
    };
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
