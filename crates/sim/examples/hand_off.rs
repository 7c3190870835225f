// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the second level of scheduling is worth (ICPP 2001, section 3): the figures of that paper on a
//! machine whose kernel has it, and on the same machine without. With it the kernel runs a program's thread
//! of highest priority, and a waiter gives its processor to a preempted one (figure 1, lines 18 to 20).
//!
//! `cargo run --profile ci -p wakeful-sim --example hand_off -- FIGURE SIZE SEEDS`: the time without by the
//! time with it, the median of the seeds and their range, for each line and degree of the figure.

use sim::figure::{Data, Figure, figure};

fn run(figure: &Figure, on: bool, seed: u64, size: f64, cores: usize) -> Data {
    let mut machine = figure.described();
    machine.kernel.second_level.value = on;
    figure.run_on(&machine, seed, size, cores, || ()).expect("the figure's machine is sound")
}

fn main() {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_else(|| "icppml".into());
    let size: f64 = words.next().map_or(0.02, |word| word.parse().expect("a part of the figure's size"));
    let seeds: u64 = words.next().map_or(3, |word| word.parse().expect("a number of seeds"));
    let figure = figure(&name).expect("a figure of `wakeful sim figure`");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runs: Vec<_> =
        (1..=seeds).map(|seed| [true, false].map(|on| run(figure, on, seed, size, cores))).collect();
    println!("{}, size {size}, {seeds} seeds: without by with the second level", figure.name);
    for series in figure.series {
        print!("{series:<24}");
        for &x in figure.at {
            let mut worth: Vec<f64> =
                runs.iter().map(|[with, without]| without.at(series, x) / with.at(series, x)).collect();
            worth.sort_by(f64::total_cmp);
            let (least, most) = (worth[0], worth[worth.len() - 1]);
            print!("  {:.3} ({least:.3}-{most:.3})", worth[worth.len() / 2]);
        }
        println!();
    }
}
