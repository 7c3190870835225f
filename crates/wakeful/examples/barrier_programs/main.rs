// SPDX-License-Identifier: MIT OR Apache-2.0
//! Three programs that meet at barriers: `cargo run --release -p wakeful --example barrier_programs
//! [KERNEL] [THREADS] [SIDE]`.
//!
//! Prints a checksum of the result and the time. `programs.c` beside this file is the same with
//! pthread_barrier: `cc -O2 -ffp-contract=off -pthread programs.c -o programs && wakeful compare --
//! ./programs lu 8`.

mod kernels;

use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kernel = arguments.next().unwrap_or_else(|| "gauss".to_string());
    let mut number = |default: usize| arguments.next().map_or(Some(default), |text| text.parse().ok());
    let (threads, side) = (number(8), number(256));
    let began = Instant::now();
    let result = match (threads, side) {
        (Some(threads @ 1..=1000), Some(side @ 16..=4096)) if side % 16 == 0 => {
            kernels::run(&kernel, side, threads)
        }
        _ => None,
    };
    let Some(checksum) = result else {
        let kernels = kernels::KERNELS.join("|");
        eprintln!("usage: barrier_programs [{kernels}] [THREADS] [SIDE]");
        eprintln!("THREADS from 1 to 1000 (8), SIDE a multiple of 16 up to 4096 (256)");
        std::process::exit(2);
    };
    println!("{checksum:016x}");
    eprintln!("{:.3} s", began.elapsed().as_secs_f64());
}
