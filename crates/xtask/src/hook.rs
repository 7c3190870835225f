// SPDX-License-Identifier: MIT OR Apache-2.0
//! Part of the copy of `sync` that `cargo xtask mutate` builds, and of nothing else: each ordering in it
//! goes through [`at`].

use platform::Ordering;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

struct Choice {
    /// The ordering that is another in this process, and what it is; from WAKEFUL_MUTANT=17:Relaxed.
    mutant: Option<(usize, Ordering)>,
    /// Where to write the numbers of those that were used; from WAKEFUL_REACHED=file.
    reached: Option<std::path::PathBuf>,
}

fn choice() -> &'static Choice {
    static CHOICE: OnceLock<Choice> = OnceLock::new();
    CHOICE.get_or_init(|| Choice {
        mutant: std::env::var("WAKEFUL_MUTANT").ok().map(|text| {
            let (site, order) = text.split_once(':').expect("WAKEFUL_MUTANT=number:ordering");
            let order = match order {
                "Relaxed" => Ordering::Relaxed,
                "Acquire" => Ordering::Acquire,
                "Release" => Ordering::Release,
                "AcqRel" => Ordering::AcqRel,
                other => panic!("WAKEFUL_MUTANT: no ordering {other}"),
            };
            (site.parse().expect("WAKEFUL_MUTANT=number:ordering"), order)
        }),
        reached: std::env::var_os("WAKEFUL_REACHED").map(Into::into),
    })
}

/// The ordering number `site`, which is `order` in the source.
pub fn at(site: usize, order: Ordering) -> Ordering {
    static REACHED: [AtomicBool; 4096] = [const { AtomicBool::new(false) }; 4096];
    let choice = choice();
    if let Some(path) = &choice.reached
        && !REACHED[site].swap(true, Relaxed)
    {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.expect("WAKEFUL_REACHED"), "{site}").expect("WAKEFUL_REACHED");
    }
    match choice.mutant {
        Some((chosen, weaker)) if chosen == site => weaker,
        _ => order,
    }
}
