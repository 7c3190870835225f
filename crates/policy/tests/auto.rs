// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that let the server choose (`wakeful run --cpus auto`): what all together get done where the
//! server sees what they use, by what they would with equal shares.
//!
//! A program here is its speed-up by processors, after Amdahl (*AFIPS* 1967), up to the parallelism that it
//! has. Who has nothing to do sleeps, so its processor time is its speed-up. That is a model of programs; the
//! rules are the server's.

use policy::*;

const SECOND_NS: u64 = 1_000_000_000;

/// Of the work of one processor so much is serial; it is never more than so many times as fast.
#[derive(Clone, Copy, Debug)]
struct Program {
    serial: f64,
    parallelism: f64,
}

impl Program {
    fn speed(&self, processors: u32) -> f64 {
        let speed = 1.0 / (self.serial + (1.0 - self.serial) / f64::from(processors.max(1)));
        speed.min(self.parallelism)
    }
}

/// What they get done together in so many seconds, in seconds of one processor each; where the server is told
/// what they use, or not.
fn total(programs: &[Program], processors: u32, seconds: u64, told: bool) -> f64 {
    let machine = (0..processors).map(|number| (number, Processor { core: number, node: 0, online: true }));
    let mut system = System::new(machine.collect(), 1, SemiDynamic);
    for id in 0..programs.len() as Id {
        let demand = Demand { priority: 1, count: Count::Choose { most: u32::MAX } };
        system.apply(Event::Request(id, demand), 0).unwrap();
    }
    let mut done = 0.0;
    // Where nothing is told, each second is like the first.
    let alike = if told { 1 } else { seconds };
    for second in 1..=seconds / alike {
        // Who has none runs in the default partition, alone there.
        let holds = |id: Id| system.application(id).map_or(1, |application| application.holds().max(1));
        let speeds: Vec<f64> =
            programs.iter().zip(0..).map(|(program, id)| program.speed(holds(id))).collect();
        done += speeds.iter().sum::<f64>();
        if told {
            let used = (0..).zip(speeds).map(|(id, speed)| (id, (speed * 100.0) as u32)).collect();
            system.apply(Event::Used(used), second * SECOND_NS).unwrap();
        }
    }
    done * alike as f64
}

fn gain(programs: &[Program], processors: u32) -> f64 {
    total(programs, processors, 100, true) / total(programs, processors, 100, false)
}

const SCALES: Program = Program { serial: 0.0, parallelism: f64::INFINITY };

/// One that scales and one that does not, on 8 processors.
#[test]
fn one_that_scales_and_one_that_does_not() {
    for (serial, least) in [(0.3, 1.09), (0.5, 1.15), (0.9, 1.15), (1.0, 1.15)] {
        let gain = gain(&[SCALES, Program { serial, ..SCALES }], 8);
        println!("{serial} serial: {gain:.2}");
        assert!(gain >= least, "{gain}");
    }
}

#[test]
fn no_mix_loses() {
    let programs = [0.0, 0.02, 0.1, 0.3, 0.7, 1.0]
        .into_iter()
        .flat_map(|serial| [f64::INFINITY, 5.5, 2.0].map(|parallelism| Program { serial, parallelism }));
    let programs: Vec<_> = programs.collect();
    let long = std::env::var_os("WAKEFUL_LONG").is_some_and(|value| value == "1");
    let mut which = 0..;
    let (mut mixes, mut least, mut sum) = (0, f64::INFINITY, 0.0);
    for (number, one) in programs.iter().enumerate() {
        for other in &programs[..=number] {
            for processors in [3, 8, 9, 16, 64] {
                for third in [None, Some(SCALES)] {
                    if which.next().is_some_and(|number: u32| !number.is_multiple_of(7)) && !long {
                        continue;
                    }
                    let mix: Vec<_> = [Some(*one), Some(*other), third].into_iter().flatten().collect();
                    let gain = gain(&mix, processors);
                    assert!(gain >= 0.98, "{gain:.3}: {mix:?} on {processors}");
                    (mixes, least, sum) = (mixes + 1, gain.min(least), sum + gain.ln());
                }
            }
        }
    }
    println!("{mixes} mixes: least {least:.3}, geometric mean {:.3}", (sum / f64::from(mixes)).exp());
}
