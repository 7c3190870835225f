// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful top`, live: which programs have which processors, what observed threads do, and how programs with
//! fibers do. With a process: the locks at which its threads wait (`program.rs`).

mod program;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use linux::server::{Connection, Error};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::widgets::{Paragraph, Row, Table};
use serde::Serialize;

use crate::fibers::{self, Program};
use crate::format;
use crate::format::whole_number;
use crate::partition::{self, Observed, Status, processors};
use program::Watched;

/// Watch which programs have processors of their own, which wait for some, and which threads are preempted
/// while they hold a lock
///
/// Asks `wakefuld` again and again. Of programs with fibers, which need no server, it shows virtual
/// processors, those in use, kernel threads that are blocked, and fibers. q or Ctrl-C ends it.
/// With a process it shows at which locks threads of that program wait, for whom and since when. It has to
/// run under `wakeful profile`, or under `wakeful run`: then only threads that sleep are seen, and the holder
/// of a mutex.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    every: Duration,
    /// Look once, and print it; as where standard output is no terminal
    #[arg(long, requires = "process")]
    once: bool,
    /// Print that look as JSON: a line for each lock, one for what it does not see, one if it is stopped
    #[arg(long, requires = "process")]
    json: bool,
    /// A process of a program under `wakeful profile` or `wakeful run`, or the profiler
    #[arg(value_name = "PID", value_parser = whole_number::<u32>(1..))]
    process: Option<u32>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give a number of seconds without a unit, from 0.05 to 3600, such as 1".into()),
    }
}

/// The program is stopped from outside.
#[derive(Serialize)]
struct Stopped {}

/// Threads that found no room.
#[derive(Serialize)]
struct Unlisted {
    threads: usize,
}

/// BOUND: from the first look to the second one, of which only the second one is shown.
const SECOND_LOOK: Duration = Duration::from_millis(100);

/// One program.
fn watch(process: u32, args: &Args) -> Result<ExitCode> {
    let mut watched = Watched::new(process)?;
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.json || args.once || !is_terminal {
        let mut look = watched.look();
        if watched.needs_time() {
            std::thread::sleep(SECOND_LOOK);
            look = watched.look();
        }
        let Some(look) = look else {
            program::heard(process)?;
            bail!("process {process} has ended, or nobody tells any more what it waits for")
        };
        if !args.json {
            program::lines(&look).iter().for_each(|line| println!("{line}"));
            return Ok(ExitCode::SUCCESS);
        }
        look.locks.iter().try_for_each(|lock| format::json("waiting", lock))?;
        if look.unlisted > 0 {
            format::json("unlisted", &Unlisted { threads: look.unlisted })?;
        }
        if let Some(unseen) = &look.unseen {
            format::json("unseen", unseen)?;
        }
        if look.is_stopped {
            format::json("stopped", &Stopped {})?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminal = ratatui::try_init()?;
    let result = loop {
        // It has ended, and with it whoever told of it.
        let Some(look) = watched.look() else { break Ok(()) };
        let lines = program::lines(&look);
        let draw = |frame: &mut Frame| {
            let text = program::cut_to(lines, frame.area().height.into()).join("\n");
            frame.render_widget(Paragraph::new(text), frame.area());
        };
        if let Err(error) = terminal.draw(draw) {
            break Err(error);
        }
        match ended(args.every) {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    result?;
    program::heard(process)?;
    Ok(ExitCode::SUCCESS)
}

pub fn main(args: Args) -> Result<ExitCode> {
    if let Some(process) = args.process {
        return watch(process, &args);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("this is no terminal; `wakeful status` prints once what `wakefuld` says");
    }
    let mut connection = None;
    let mut look = || {
        let status = match connection.take() {
            Some(open) => Ok(open),
            None => Connection::open(),
        }
        .and_then(|mut open| {
            let status = partition::status(&mut open)?;
            connection = Some(open);
            Ok(status)
        });
        status.map_err(|error: Error| error.to_string())
    };
    // Before the screen is ours: without a server and fibers there is nothing to watch.
    let mut status = look();
    let mut fibers = fibers::programs();
    if let (Err(error), true) = (&status, fibers.is_empty()) {
        bail!("{error}");
    }
    let mut terminal = ratatui::try_init()?;
    let result = loop {
        if let Err(error) = terminal.draw(|frame| draw_all(frame, &status, &fibers)) {
            break Err(error);
        }
        match ended(args.every) {
            Ok(false) => (status, fibers) = (look(), fibers::programs()),
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    result?;
    Ok(ExitCode::SUCCESS)
}

/// Waits; true if we are to end.
fn ended(wait: Duration) -> std::io::Result<bool> {
    if !event::poll(wait)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read()? else { return Ok(false) };
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(key.kind == KeyEventKind::Press
        && (control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)))
}

const COLUMNS: [(&str, u16); 7] = [
    ("PROCESS", 8),
    ("PROGRAM", 15),
    ("USER", 6),
    ("PRIORITY", 8),
    ("ASKED", 6),
    ("HAS", 4),
    ("PROCESSORS", 20),
];

/// Programs with fibers stand at the end, below what the server says.
fn draw_all(frame: &mut Frame, status: &Result<Status, String>, fibers: &[Program]) {
    let rows = if fibers.is_empty() { 0 } else { 1 + fibers.len() as u16 };
    let lengths = [Constraint::Min(1), Constraint::Length(rows.min(frame.area().height / 2))];
    let [above, below] = Layout::vertical(lengths).areas(frame.area());
    draw(frame, above, status);
    let rows = fibers.iter().map(|program| Row::new(program.row()));
    let widths = Program::COLUMNS.map(|(_, width)| Constraint::Length(width as u16));
    frame.render_widget(Table::new(rows, widths).header(Row::new(Program::head()).reversed()), below);
}

fn draw(frame: &mut Frame, area: Rect, status: &Result<Status, String>) {
    let status = match status {
        Ok(status) => status,
        // It may come back, and programs keep their processors meanwhile.
        Err(error) => return frame.render_widget(Paragraph::new(error.as_str()), area),
    };
    // What is observed stands below, and has what the other table does not need.
    let rows = 2 + status.applications.len() as u16;
    let lengths =
        [Constraint::Length(1), Constraint::Length(2), Constraint::Length(rows), Constraint::Min(0)];
    let [head, counts, table, below] = Layout::vertical(lengths).areas(area);
    let default = processors(status.default_count);
    let text = format!(
        "default partition: {default} ({}); kept by {}",
        status.default_partition, status.enforcement
    );
    frame.render_widget(Paragraph::new(text), head);
    let of = |name: &str| {
        status.counters.iter().find(|(counter, _)| *counter == name).map_or(0, |&(_, value)| value)
    };
    let text = format!(
        "{} messages, {} refused; {} moves, {} by hint; {} failures",
        of("messages"),
        of("refusals"),
        of("moves"),
        of("hinted_moves"),
        of("failures")
    );
    frame.render_widget(Paragraph::new(text), counts);
    let rows = status.applications.iter().map(|one| {
        let remark = partition::remark(one);
        let both = if one.processors.is_empty() || remark.is_empty() { "" } else { "; " };
        let row = Row::new([
            format!("{:>8}", one.process),
            one.program.clone(),
            format!("{:>6}", one.user),
            format!("{:>8}", one.priority),
            format!("{:>6}", one.asked),
            format!("{:>4}", one.holds),
            format!("{}{both}{remark}", one.processors),
        ]);
        if one.lacks > 0 { row.bold() } else { row }
    });
    let widths = COLUMNS.map(|(name, width)| match name {
        "PROCESSORS" => Constraint::Min(width),
        _ => Constraint::Length(width),
    });
    let names = COLUMNS.map(|(name, width)| match name {
        "PROGRAM" | "PROCESSORS" => name.to_string(),
        _ => format!("{name:>0$}", width as usize),
    });
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).reversed()), table);
    let rows = status.observed.iter().map(|one| {
        let row = Row::new(one.row());
        if one.holder_out() { row.bold() } else { row }
    });
    let widths = Observed::COLUMNS.map(|(_, width)| Constraint::Length(width as u16));
    frame.render_widget(Table::new(rows, widths).header(Row::new(Observed::head()).reversed()), below);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn shown(status: &Result<Status, String>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(79, 12)).unwrap();
        terminal.draw(|frame| draw_all(frame, status, &[])).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn fibers_are_shown_without_a_server() {
        let program = Program {
            process: 4321,
            name: "fibrous".into(),
            seats: 2,
            held: 1,
            blocked: 3,
            fibers: 1000,
            waiting: 900,
            ..Program::default()
        };
        let mut terminal = Terminal::new(TestBackend::new(79, 12)).unwrap();
        let status = Err("no processor server runs".into());
        terminal.draw(|frame| draw_all(frame, &status, &[program])).unwrap();
        let text = terminal.backend().to_string();
        for part in ["no processor server runs", "4321 fibrous", "1000        96       900"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn who_waits_is_shown() {
        let application = partition::Application {
            process: 4242,
            program: "waiting".into(),
            user: 1000,
            priority: 3,
            asked: "1-2".into(),
            holds: 0,
            processors: String::new(),
            spare: 0,
            lacks: 1,
            behind: 2,
            generation: 0,
        };
        let counters = linux::server::COUNTERS.into_iter().zip(10..).collect();
        let (enforcement, default_partition) = ("cgroup v1", "1".into());
        let applications = vec![application];
        let threads = linux::server::Threads::from_values([9, 2, 6, 1, 3, 4, 5, 0]);
        let observed = Observed { process: 77, program: "holder".into(), user: 1, threads };
        let (observer, observed, unlisted) = (true, vec![observed], 0);
        let status = Status {
            enforcement,
            default_partition,
            default_count: 1,
            applications,
            observer,
            observed,
            more: 0,
            unlisted,
            counters,
        };
        let text = shown(&Ok(status));
        for part in [
            "1 processor (1); kept by cgroup v1",
            "4242 waiting",
            "waits for 1, behind 2",
            "10 messages",
            "THREADS",
            "77 holder",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(shown(&Err("no processor server runs".into())).contains("no processor server runs"));
    }
}
