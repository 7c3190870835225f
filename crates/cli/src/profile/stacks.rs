// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting by call stack: for a flame graph, and for programs that draw one.
//!
//! The time at a place is exact. Its callers are known by looks at threads that wait there: each stack that
//! was seen has its share of the looks.

use std::collections::BTreeMap;
use std::io::{self, Write};

use recorder::profile::{Class, Profile, Shares};

use super::names::{Names, kind};

/// Why somebody waited, in the order of [`Stack::parts_ns`].
pub const PARTS: [&str; 5] =
    ["holder ran", "holder had no processor", "holder was blocked", "nobody held it", "holder unknown"];

/// The same at a barrier.
pub const BARRIER_PARTS: [&str; PARTS.len()] = [
    "last thread ran",
    "last thread had no processor",
    "last thread was blocked",
    "all had come",
    "last thread unknown",
];

/// The words for it.
pub fn part_names(class: Class) -> [&'static str; PARTS.len()] {
    if class.is_barrier() { BARRIER_PARTS } else { PARTS }
}

/// Time that was waited in one stack.
pub struct Stack {
    /// The functions, outermost first.
    pub functions: Vec<String>,
    pub class: Class,
    /// By why.
    pub parts_ns: [f64; PARTS.len()],
}

pub fn parts(shares: &Shares) -> [u64; PARTS.len()] {
    let Shares { holder, free_ns } = *shares;
    [holder.running_ns, holder.preempted_ns, holder.blocked_ns, free_ns, holder.unknown_ns]
}

pub fn stacks(profile: &Profile, names: &mut Names) -> Vec<Stack> {
    let mut all: BTreeMap<(Vec<String>, Class), [f64; PARTS.len()]> = BTreeMap::new();
    for (key, object) in &profile.objects {
        let told = parts(&object.shares);
        let told_ns = told.iter().sum::<u64>() as f64;
        for (site, sum) in &object.sites {
            let mut own = [0.0; PARTS.len()];
            match told_ns {
                // Of a condition variable nobody says why.
                0.0 => own[PARTS.len() - 1] = sum.total_ns as f64,
                all_ns => {
                    let one = |part: u64| part as f64 / all_ns * sum.total_ns as f64;
                    own = told.map(one);
                }
            }
            let inner = names.functions(profile, *site);
            let seen = profile.callers.get(&(*key, *site));
            let looks = seen.map_or(0, |seen| seen.values().sum::<u32>());
            let mut add = |callers: &[String], share: f64| {
                let functions = callers.iter().chain(&inner).cloned().collect();
                let sums = all.entry((functions, key.class)).or_default();
                sums.iter_mut().zip(own).for_each(|(sum, part)| *sum += part * share);
            };
            if looks == 0 {
                add(&[], 1.0);
            }
            for (callers, count) in seen.into_iter().flatten() {
                let outer = names.of_places(callers);
                add(&outer, f64::from(*count) / f64::from(looks));
            }
        }
    }
    let stack = |((functions, class), parts_ns)| Stack { functions, class, parts_ns };
    all.into_iter().map(stack).collect()
}

/// A line for each stack, outermost first, with its weight in us: what flamegraph.pl and its kind read.
pub fn write_folded(stacks: &[Stack], program: &str, to: &mut dyn Write) -> io::Result<()> {
    let clean = |text: &str| text.replace(';', ":").replace(char::is_control, "?");
    for stack in stacks {
        let mut path = clean(program);
        for function in &stack.functions {
            path = path + ";" + &clean(function);
        }
        for (part, part_ns) in part_names(stack.class).iter().zip(stack.parts_ns) {
            let us = (part_ns / 1000.0).round();
            if us >= 1.0 && stack.class == Class::Cond {
                writeln!(to, "{path};[{}] {us}", kind(stack.class))?;
            } else if us >= 1.0 {
                writeln!(to, "{path};[{}];[{part}] {us}", kind(stack.class))?;
            }
        }
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_other_separators_and_nothing_without_weight() {
        let stack =
            |class, parts_ns| Stack { functions: vec!["main".into(), "a;b\n".into()], class, parts_ns };
        let mut text = Vec::new();
        let stacks = [
            stack(Class::Mutex, [2_400.0, 499.0, 0.0, 0.0, 1_000.0]),
            stack(Class::Cond, [0.0, 0.0, 0.0, 0.0, 9e6]),
            stack(Class::Barrier, [3e6, 0.0, 0.0, 4e6, 0.0]),
        ];
        write_folded(&stacks, "prog", &mut text).unwrap();
        let lines = "prog;main;a:b?;[mutex];[holder ran] 2\nprog;main;a:b?;[mutex];[holder unknown] 1\n\
                     prog;main;a:b?;[condition] 9000\n\
                     prog;main;a:b?;[barrier];[last thread ran] 3000\n\
                     prog;main;a:b?;[barrier];[all had come] 4000\n";
        assert_eq!(String::from_utf8(text).unwrap(), lines);
    }
}
