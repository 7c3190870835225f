// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful doctor`: what this machine offers, and how to get what is missing.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use launch::closure::Reach;
use launch::interposer::preload_list;
use launch::probe::{self, Processors, View};
use launch::{library, names, program, suggest};
use linux::environment::{BARRIER, LOCK, RWLOCK, VIEW, Variable};
use serde::Serialize;

use crate::format;

/// Say which kernel views this machine offers and what the missing ones need
#[derive(clap::Args)]
pub struct Args {
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// A program: say what `wakeful run` would do with it
    program: Option<OsString>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}

#[derive(Serialize)]
struct Report {
    kernel: String,
    glibc: String,
    processors: Processors,
    library: Option<String>,
    library_problem: Option<String>,
    view: String,
    view_problem: Option<String>,
    /// Of variables whose value `wakeful run` would refuse.
    variable_problems: Vec<String>,
    /// Of variables that look like ours and do nothing.
    variables_ignored: Vec<String>,
    views: Vec<View>,
    extras: Vec<View>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Asked>,
    /// The one thing to do now.
    next: String,
}

/// What `run` would do with a program.
#[derive(Serialize)]
struct Asked {
    name: String,
    /// Why nothing is preloaded.
    obstacle: Option<String>,
    /// Where OpenMP regions would run: its own, or of what it loads or starts.
    openmp: Option<String>,
    /// Locks of its language that are not replaced.
    own_locks: Option<&'static str>,
}

impl Asked {
    fn new(name: &OsStr) -> anyhow::Result<Self> {
        let shown = name.to_string_lossy().into_owned();
        let path = program::find(name).map_err(|error| launch::cannot_run(name, None, &error))?;
        program::executable(&path).map_err(|error| launch::cannot_run(name, Some(&path), &error))?;
        let program = program::inspect(&path).with_context(|| format!("cannot look at `{shown}`"))?;
        let helped = program.obstacle.is_none();
        let interposer = library::find().ok().filter(|_| helped);
        let openmp =
            interposer.and_then(|interposer| library::openmp(&interposer, &program.image, Reach::All).says());
        let own_locks = own_locks(&program.image).filter(|_| helped);
        let obstacle = program.obstacle.map(|obstacle| obstacle.to_string());
        Ok(Self { name: shown, obstacle, openmp, own_locks })
    }
}

/// Locks that do not wait through pthread, if the program's file says so.
fn own_locks(image: &Path) -> Option<&'static str> {
    if program::is_go(image) {
        return Some("Go's own do not use pthread and stay as they are; only C code in it gains");
    }
    program::is_rust(image).then_some(
        "those of Rust's std and parking_lot do not use pthread and stay as they are: take the locks of the \
         crate `wakeful`",
    )
}

pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let library = library::find();
    let views = probe::views_and_limits();
    let best = views.iter().find(|view| view.available).map_or("none", |view| view.name);
    // The interposer may be of another build than this program.
    let taken = library.as_ref().ok().map(|path| {
        launch::taken_view(path, |mut command| {
            command.env("LD_PRELOAD", preload_list(path)).env(VIEW.name(), "auto");
            command
        })
    });
    let mut report = Report {
        kernel: probe::kernel_release(),
        glibc: probe::glibc_version(),
        processors: probe::processors(),
        library: library.as_ref().ok().map(|path| path.display().to_string()),
        library_problem: library.as_ref().err().map(|error| format!("{error:#}")),
        view: taken.as_ref().and_then(|taken| taken.as_ref().ok()).map_or(best, String::as_str).to_string(),
        view_problem: taken.and_then(Result::err).map(|error| suggest::reason(&error)),
        variable_problems: variable_problems(),
        variables_ignored: names::ignored(),
        views,
        extras: vec![probe::slice(), probe::sched_ext()],
        program: args.program.as_deref().map(Asked::new).transpose()?,
        next: String::new(),
    };
    report.next = next(&report);
    match args.format {
        Format::Json => format::json("doctor", &report)?,
        Format::Text => text(&report),
    }
    Ok(if library.is_ok() && report.variable_problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The one thing to do now: what is broken first, then what would help most, then a try.
fn next(report: &Report) -> String {
    let perf = || report.views.iter().find(|view| view.name == "perf").filter(|view| !view.available);
    if report.library.is_none() {
        "put the interposer in its place, as said above".to_string()
    } else if !report.variable_problems.is_empty() {
        "correct the environment variable, or unset it".to_string()
    } else if let Some(Asked { name, obstacle: Some(_), .. }) = &report.program {
        format!("try another program: `{name}` would run unchanged")
    } else if report.view == "none" && perf().is_some() {
        let remedy = perf().and_then(|view| view.remedy.clone());
        let remedy = remedy.unwrap_or_else(|| "start wakefuld, which lends its view".to_string());
        format!("{remedy}. Until then the locks guess which threads run")
    } else if let Some(Asked { name, .. }) = &report.program {
        format!("wakeful compare -- {}", launch::shell_words([name.clone()]))
    } else {
        "wakeful demo, and then: wakeful compare -- ./program".to_string()
    }
}

/// Values of variables that `run` refuses, and why.
fn variable_problems() -> Vec<String> {
    type Check = fn(&str) -> anyhow::Result<()>;
    let problem = |(variable, check): (Variable, Check)| {
        let value = std::env::var_os(variable.name()).filter(|value| !value.is_empty())?;
        let problem = check(&value.to_string_lossy()).err()?;
        Some(format!("{variable}: {problem}"))
    };
    let checks: [(Variable, Check); 4] = [
        (LOCK, names::check_lock),
        (RWLOCK, names::check_rwlock),
        (BARRIER, names::check_barrier),
        (VIEW, names::check_view),
    ];
    checks.into_iter().filter_map(problem).collect()
}

/// Columns of the names.
const NAME: usize = 11;

fn line(name: &str, text: &str) {
    let text = suggest::wrap(text, suggest::WIDTH - NAME - 1);
    for (index, line) in text.lines().enumerate() {
        println!("{:<NAME$} {line}", if index == 0 { name } else { "" });
    }
}

fn show(view: &View) {
    line(view.name, &view.finding);
    if !view.available {
        line("", &format!("  needs {}", view.needs.replace("; ", ";\n  ")));
    }
    if let Some(remedy) = &view.remedy {
        line("", &format!("  {}", remedy.replace('\n', "\n  ")));
    }
}

fn text(report: &Report) {
    line("kernel", &format!("Linux {}", report.kernel));
    line("C library", &format!("glibc {}", report.glibc));
    let Processors { usable, online, affinity, quota } = &report.processors;
    line("processors", &format!("{usable} usable of {online} online"));
    if affinity < online {
        line("", &format!("affinity or cpuset leave {affinity} (taskset -p, cpuset.cpus.effective)"));
    }
    if let Some(quota) = quota {
        let files = "cpu.max, or cpu.cfs_quota_us";
        line("", &format!("a control group's quota leaves the time of {quota} ({files})"));
    }
    match (&report.library, &report.library_problem) {
        (Some(path), _) => line("interposer", path),
        (None, problem) => line("interposer", problem.as_deref().unwrap_or_default()),
    }
    if let Some(problem) = &report.view_problem {
        line("", problem);
    }
    let problems = report.variable_problems.iter().chain(&report.variables_ignored);
    problems.for_each(|problem| line("environment", problem));
    println!("\nKernel views, best first; `auto` takes {} here:", report.view);
    report.views.iter().for_each(show);
    println!("\nIn the kernel, to build on:");
    report.extras.iter().for_each(show);
    if let Some(Asked { name, obstacle, openmp, own_locks }) = &report.program {
        println!("\n`wakeful run -- {name}`:");
        match obstacle {
            Some(obstacle) => line("unchanged", obstacle),
            None => line("locks", "those of pthread are replaced"),
        }
        if let Some(own_locks) = own_locks {
            line("", own_locks);
        }
        if let Some(openmp) = openmp {
            line("OpenMP", openmp.strip_prefix("OpenMP ").unwrap_or(openmp));
        }
    }
    println!();
    line("Next", &report.next);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(view: &str, perf: Option<&str>, library: bool) -> Report {
        let perf = View {
            name: "perf",
            available: view == "perf",
            finding: String::new(),
            needs: String::new(),
            remedy: perf.map(String::from),
        };
        Report {
            kernel: String::new(),
            glibc: String::new(),
            processors: Processors { usable: 2, online: 2, affinity: 2, quota: None },
            library: library.then(String::new),
            library_problem: None,
            view: view.to_string(),
            view_problem: None,
            variable_problems: Vec::new(),
            variables_ignored: Vec::new(),
            views: vec![perf],
            extras: Vec::new(),
            program: None,
            next: String::new(),
        }
    }

    #[test]
    fn the_next_thing_is_what_helps_most() {
        let asked = |obstacle: Option<&str>| {
            let obstacle = obstacle.map(String::from);
            Some(Asked { name: "./a b".to_string(), obstacle, openmp: None, own_locks: None })
        };
        assert!(next(&report("none", Some("sysctl x"), false)).contains("interposer"));
        let wrong = Report { variable_problems: vec![String::new()], ..report("perf", None, true) };
        assert!(next(&wrong).contains("environment variable"));
        let denied = report("none", Some("as root: sysctl x=2"), true);
        assert!(next(&denied).starts_with("as root: sysctl x=2. "));
        assert!(next(&report("none", None, true)).contains("wakefuld"));
        assert!(next(&report("perf", Some("for more: x"), true)).starts_with("wakeful demo"));
        let with = |obstacle| Report { program: asked(obstacle), ..report("perf", None, true) };
        assert_eq!(next(&with(None)), "wakeful compare -- './a b'");
        assert_eq!(next(&with(Some("static"))), "try another program: `./a b` would run unchanged");
    }
}
