// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the simulator is, on one core: shared accesses a second, with and without those of spinners
//! that were passed over, and the memory. `cargo bench -p wakeful-sim`; an argument picks the rows whose
//! name contains it.

use std::time::Instant;

use sim::{Machine, Program, Setting, Workload, simulate};

fn lock(name: &str, processors: u32, level: f64, rounds: u64) -> Workload {
    Workload::tr_lock(name, processors, level, f64::from(processors), rounds)
}

fn gauss(barrier: &str, threads: u32) -> Workload {
    let program = Program::Gauss { barrier: barrier.into(), rows: 192 };
    Workload {
        program,
        setting: Setting { bound: true, ..Setting::default() },
        ..Workload::tr_barrier("", threads, 1)
    }
}

/// The most memory that this process has had until now.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? / 1024)
}

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    println!("{:<44}{:>9}{:>12}{:>12}{:>9}", "", "s", "accesses/s", "executed/s", "MiB");
    for (machine, what, workload) in [
        ("sgi-challenge-11", "gauss, c-sched: mostly hits", gauss("c-sched", 11)),
        ("sgi-challenge-11", "tas-b at level 2", lock("tas-b", 11, 2.0, 3000)),
        ("sgi-challenge-11", "queue at level 1", lock("queue", 11, 1.0, 20_000)),
        ("ksr1-63", "ticket-np at level 2", lock("ticket-np", 63, 2.0, 100)),
        (
            "ksr1-63",
            "scal-sc, 63 threads",
            Workload { rounds: 3000, ..Workload::tr_barrier("scal-sc", 63, 1) },
        ),
        ("cxl-1024", "mcs-spin at level 1", lock("mcs-spin", 1024, 1.0, 10)),
        ("cxl-1024", "smart-q at level 2", lock("smart-q", 1024, 2.0, 10)),
        ("cxl-1024", "wakeful at level 2", lock("wakeful", 1024, 2.0, 10)),
    ] {
        let name = format!("{machine}: {what}");
        if !name.contains(&wanted) {
            continue;
        }
        let machine = Machine::named(machine).expect("it comes with the crate");
        let begin = Instant::now();
        let results = simulate(&machine, &workload, 1).expect("names of the catalogue");
        let took = begin.elapsed().as_secs_f64();
        assert_eq!(results.failure, None, "{name}");
        let executed = results.accesses - results.passed_over;
        let rate = |accesses: u64| format!("{:.1} M", accesses as f64 / took / 1e6);
        let memory = peak_mib().map_or("?".into(), |mib| mib.to_string());
        println!("{name:<44}{took:>9.2}{:>12}{:>12}{memory:>9}", rate(results.accesses), rate(executed));
    }
}
