// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful man`: writes the manual pages. Options come from the argument definitions, the rest from `man/`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;

/// Write the manual pages into a folder
#[derive(clap::Args)]
pub struct Args {
    /// The folder; it must exist
    folder: PathBuf,
}

const OVERHEAD: &str = include_str!("../man/overhead.roff");

/// What each page says beyond its options.
fn sections(page: &str) -> Option<&'static [&'static str]> {
    Some(match page {
        "wakeful" => &[include_str!("../man/wakeful.roff"), OVERHEAD],
        "wakeful-demo" => &[include_str!("../man/demo.roff")],
        "wakeful-run" => &[include_str!("../man/run.roff"), OVERHEAD],
        "wakeful-compare" => &[include_str!("../man/compare.roff")],
        "wakeful-bench" => &[include_str!("../man/bench.roff")],
        page if page.starts_with("wakeful-bench-") => &[],
        "wakeful-sim" => &[include_str!("../man/sim.roff")],
        page if page.starts_with("wakeful-sim-") => &[],
        "wakeful-doctor" => &[include_str!("../man/doctor.roff")],
        "wakeful-scheduler" => &[include_str!("../man/scheduler.roff")],
        page if page.starts_with("wakeful-scheduler-") => &[],
        "wakeful-status" => &[include_str!("../man/status.roff")],
        "wakeful-top" => &[include_str!("../man/top.roff")],
        "wakeful-profile" => &[include_str!("../man/profile.roff")],
        "wakeful-watch" => &[include_str!("../man/watch.roff")],
        "wakeful-set" => &[include_str!("../man/set.roff")],
        "wakeful-locks" => &[include_str!("../man/locks.roff")],
        "wakeful-completions" => &[include_str!("../man/completions.roff")],
        _ => return None,
    })
}

/// The pages: name and text.
fn pages(command: Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(command, &mut pages)?;
    Ok(pages)
}

fn add(command: Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        add(inner.clone(), pages)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_string();
    let mut text = Vec::new();
    Man::new(command.display_name(&name)).render(&mut text)?;
    for section in sections(&name).unwrap_or_default() {
        text.write_all(section.as_bytes())?;
    }
    pages.push((name, text));
    Ok(())
}

pub fn main(args: Args, command: Command) -> anyhow::Result<ExitCode> {
    for (name, text) in pages(command)? {
        let path: &Path = &args.folder.join(format!("{name}.1"));
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_verb_has_a_page_and_every_page_is_of_a_verb() {
        let pages = pages(crate::Cli::command()).unwrap();
        for (name, text) in &pages {
            assert!(sections(name).is_some(), "{name} has no sections in man/");
            let text = String::from_utf8_lossy(text);
            assert!(text.contains(".SH NAME") && text.contains(".SH OPTIONS"), "{name}");
        }
        let page =
            |name| pages.iter().find(|(page, _)| page == name).map(|(_, text)| String::from_utf8_lossy(text));
        let wakeful = page("wakeful").unwrap();
        for variable in linux::environment::ALL {
            assert!(wakeful.contains(variable.name()), "{variable} is in no ENVIRONMENT");
        }
        let run = page("wakeful-run").unwrap();
        for section in ["PERMISSIONS", "OVERHEAD", "EXAMPLES"] {
            assert!(run.contains(&format!(".SH {section}\n")), "{section}");
        }
    }
}
