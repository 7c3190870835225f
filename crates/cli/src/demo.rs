// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful demo`: what more threads than processors do to a small program, without us and with.
//!
//! The program is this one: `bench job` locks by the C library's functions, and so needs no compiler. The
//! interposer comes into it as `wakeful run` brings it into any program.

use std::io::IsTerminal;
use std::process::{Command, ExitCode};
use std::time::Duration;

use ::bench::harness::Sample;
use ::bench::job::{Job, Work};
use ::bench::stats::{self, Finding, Interval};
use ::bench::workload::{Length, barrier::Barrier, mutex::Mutex};
use anyhow::Result;
use launch::closure::Reach;
use launch::{Launch, Target, When, library, probe, suggest};
use linux::environment::{BARRIER, LOCK, RWLOCK, VIEW};
use ratatui::crossterm::terminal;

use crate::bench::{bar, seconds};
use crate::format::{count, whole_number};

/// Show in half a minute what more threads than processors do to a program, and what wakeful changes
///
/// Runs small programs with wakeful and without, in turns, and draws how much each gets done.
/// They lock by pthread, and wakeful gets into them as `wakeful run` does.
/// Exit status: 0 if they ran, whatever came of it.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds that each run is counted
    #[arg(long, default_value = "0.3", value_parser = seconds)]
    seconds: Duration,
    /// Pairs of runs for each bar
    #[arg(short = 'n', long, default_value = "5", value_parser = whole_number::<u16>(1..))]
    pairs: u16,
}

/// A program of the demonstration.
struct Scene {
    title: &'static str,
    unit: &'static str,
    work: Work,
}

/// What came of one.
struct Act {
    scene: Scene,
    plain: f64,
    helped: f64,
    ratio: Interval,
}

impl Act {
    fn finding(&self) -> Finding {
        self.ratio.finding()
    }
}

/// Runs before counting starts: threads start, a view is set up.
const WARM_UP: Duration = Duration::from_millis(50);

/// BOUND: what a run takes beyond what is counted. A promise to the user, which a busy machine breaks.
const OVERHEAD: Duration = Duration::from_millis(250);

fn scenes(processors: usize) -> Vec<Scene> {
    let spin = |threads| Scene {
        title: "pthread_spin_lock, sections of 10 us",
        unit: "sections/s",
        work: Work::Spin(Mutex { critical: Length::Time(Duration::from_micros(10)), outside: 100, threads }),
    };
    let threads = 4 * processors;
    vec![
        spin(processors),
        spin(2 * processors),
        spin(threads),
        Scene {
            title: "pthread_barrier, some microseconds between two",
            unit: "rounds/s",
            work: Work::Barrier(Barrier { outside: 6000, uneven: false, memory: false, threads }),
        },
        Scene {
            title: "pthread_mutex, short sections",
            unit: "sections/s",
            work: Work::Mutex(Mutex { critical: Length::Lines(20), outside: 400, threads }),
        },
    ]
}

/// This program in the role of the one that is measured.
fn prepare() -> Result<Launch> {
    launch::check_not_preloaded()?;
    let command = vec![library::this_program()?.into(), "bench".into(), "job".into()];
    Launch::prepare(
        Target { lock: None, rwlock: None, barrier: None, view: None, openmp: When::Auto, command },
        Reach::Near,
    )
}

fn play(launch: &Launch, scene: Scene, args: &Args, before_run: &dyn Fn()) -> Result<(Act, Option<String>)> {
    let job =
        Job { work: scene.work.clone(), lock: "glibc".to_string(), warm_up: WARM_UP, interval: args.seconds };
    let take = |command: Command| -> Result<Sample> {
        before_run();
        Ok(job.take(command)?)
    };
    let (mut plain, mut helped, mut view) = (Vec::new(), Vec::new(), None);
    for pair in 0..args.pairs {
        // As `wakeful compare`: every other pair the other way round.
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                plain.push(take(launch.plain())?.rate());
            } else {
                let sample = take(launch.helped())?;
                helped.push(sample.rate());
                view = sample.view;
            }
        }
    }
    let nothing = Interval { median: f64::NAN, low: 0.0, high: f64::INFINITY, confidence: 0.0 };
    let ratio = stats::paired_ratio(&helped, &plain).unwrap_or(nothing);
    let (plain, helped) = (stats::median(&plain), stats::median(&helped));
    Ok((Act { scene, plain, helped, ratio }, view))
}

pub fn main(args: Args) -> Result<ExitCode> {
    let launch = prepare()?;
    let processors = probe::processors().usable as usize;
    let scenes = scenes(processors);
    let scene_count = scenes.len();
    let width = width();
    say(&format!(
        "We have {} here. Small programs with as many threads, or up to four times as many, lock by \
         pthread. Each runs as it is (plain) and by `wakeful run` (wakeful), in turns. A bar says how much \
         it gets done in a second. That takes about {} s.",
        number(processors, "processor"),
        (scene_count as f64 * f64::from(2 * args.pairs) * (args.seconds + OVERHEAD).as_secs_f64()).ceil(),
    ));
    let bar = bar(scene_count * 2 * usize::from(args.pairs))?;
    let (mut acts, mut shown, mut view): (Vec<Act>, usize, _) = (Vec::new(), 0, None);
    let mut scenes = scenes.into_iter().peekable();
    while let Some(scene) = scenes.next() {
        let (act, taken) = play(&launch, scene, &args, &|| bar.inc(1))?;
        view = taken.or(view);
        acts.push(act);
        // Bars of one title have one scale.
        if scenes.peek().is_none_or(|next| next.title != acts[shown].scene.title) {
            bar.suspend(|| println!("\n{}", picture(&acts[shown..], width)));
            shown = acts.len();
        }
    }
    bar.finish_and_clear();
    println!();
    say(&format!(
        "Medians of {}; in brackets, from where to where the ratio lies. Lock {}, view {}.",
        number(args.pairs.into(), "pair"),
        launch.lock(),
        view.as_deref().unwrap_or("unknown")
    ));
    println!();
    say(&sum_up(&acts));
    let environment =
        [LOCK, RWLOCK, BARRIER, VIEW].iter().any(|variable| std::env::var_os(variable.name()).is_some());
    if environment {
        say("The environment chooses a lock or the view: WAKEFUL_LOCK, WAKEFUL_RWLOCK, WAKEFUL_BARRIER, \
             WAKEFUL_VIEW.");
    } else if view.as_deref() == Some("none") {
        say("No kernel view works here, so the locks guess which threads run. `wakeful doctor` says what \
             would help.");
    }
    println!("\nTry your own: wakeful compare -- ./program");
    Ok(ExitCode::SUCCESS)
}

fn number(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// BOUND: columns of what nobody looks at on a terminal.
const PIPE: u16 = suggest::WIDTH as u16;
/// BOUND: columns that the words of a row take: on a narrower terminal its lines break.
const WORDS: usize = 2 + 8 + 1 + 1 + 6;

/// Columns that there are.
fn width() -> usize {
    let columns = match std::io::stdout().is_terminal() {
        true => terminal::size().map_or(PIPE, |(columns, _)| columns),
        false => PIPE,
    };
    usize::from(columns.min(PIPE))
}

fn say(text: &str) {
    println!("{}", suggest::wrap(text, width()));
}

/// What bars are made of: a letter that every terminal has, unless the locale has blocks.
fn brick() -> &'static str {
    let value = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(value).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    if locale.contains("utf-8") || locale.contains("utf8") { "█" } else { "#" }
}

/// Programs of one title, on one scale.
fn picture(acts: &[Act], width: usize) -> String {
    let title = format!("{} ({})", acts[0].scene.title, acts[0].scene.unit);
    let mut lines = vec![suggest::wrap(&title, width)];
    let most = acts.iter().flat_map(|act| [act.plain, act.helped]).fold(f64::MIN_POSITIVE, f64::max);
    let room = width.saturating_sub(WORDS).max(1) as f64;
    for act in acts {
        lines.push(number(act.scene.work.threads(), "thread"));
        for (name, rate) in [("plain", act.plain), ("wakeful", act.helped)] {
            let length = (rate / most * room).round() as usize;
            lines.push(format!("  {name:<8} {} {}", brick().repeat(length), count(rate)));
        }
        let Interval { median, low, high, .. } = act.ratio;
        lines.push(suggest::wrap(&format!("  {median:.2} times plain ({low:.2} to {high:.2})"), width));
    }
    lines.join("\n")
}

/// A lock that many threads slow down as much collapses, and does not merely vary.
const COLLAPSE: f64 = 0.8;

/// What the bars say, in words.
fn sum_up(acts: &[Act]) -> String {
    let spins = || acts.iter().filter(|act| matches!(act.scene.work, Work::Spin(_)));
    let mut text = String::new();
    if let (Some(first), Some(last)) = (spins().next(), spins().next_back())
        && last.plain < COLLAPSE * first.plain
    {
        let (most, few) = (last.scene.work.threads(), first.scene.work.threads());
        text += &format!(
            "With {} instead of {few}, the plain spin lock gets {:.0} % as much done. A thread that holds it \
             loses its processor, and the others spin in vain. ",
            number(most, "thread"),
            100.0 * last.plain / first.plain
        );
    }
    let of = |finding| acts.iter().filter(move |act| act.finding() == finding);
    let list = |finding| {
        let (mut list, mut title) = (String::new(), "");
        for act in of(finding) {
            let name = act.scene.title.split(',').next().unwrap_or_default();
            let again = std::mem::replace(&mut title, name) == name;
            list += if list.is_empty() { "" } else { ", " };
            list += &if again { String::new() } else { format!("{name} ") };
            list += &format!("with {} {:.2}", number(act.scene.work.threads(), "thread"), act.ratio.median);
        }
        list
    };
    if of(Finding::TooFew).count() > 0 {
        return text + "Fewer than 5 pairs are too few to judge; take -n 5.";
    }
    match of(Finding::Greater).count() {
        0 => text += "Nothing is gained on this machine beyond the spread of the runs.",
        _ => text += &format!("Faster with wakeful, beyond the spread: {}.", list(Finding::Greater)),
    }
    if of(Finding::Less).count() > 0 {
        text += &format!(" Slower, beyond the spread: {}.", list(Finding::Less));
    }
    if of(Finding::Undecided).count() > 0 && of(Finding::Greater).count() > 0 {
        text += &format!(" No difference beyond the spread: {}.", list(Finding::Undecided));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scenes with these rates without us, and these ratios.
    fn acts(plain: [f64; 5], ratios: [(f64, f64); 5]) -> Vec<Act> {
        let act = |((scene, plain), (low, high))| {
            let ratio = Interval { median: (low + high) / 2.0, low, high, confidence: stats::CONFIDENCE };
            Act { scene, plain, helped: plain * ratio.median, ratio }
        };
        scenes(2).into_iter().zip(plain).zip(ratios).map(act).collect()
    }

    #[test]
    fn what_is_not_gained_is_said() {
        let same = [(0.9, 1.1); 5];
        let text = sum_up(&acts([1.0; 5], same));
        assert_eq!(text, "Nothing is gained on this machine beyond the spread of the runs.");
        let mut mixed = same;
        (mixed[2], mixed[4]) = ((7.0, 9.0), (0.5, 0.7));
        let text = sum_up(&acts([100.0, 50.0, 20.0, 1.0, 1.0], mixed));
        for words in [
            "With 8 threads instead of 2, the plain spin lock gets 20 % as much done",
            "Faster with wakeful, beyond the spread: pthread_spin_lock with 8 threads 8.00.",
            "Slower, beyond the spread: pthread_mutex with 8 threads 0.60.",
            "No difference beyond the spread: pthread_spin_lock with 2 threads 1.00, \
             with 4 threads 1.00, pthread_barrier with 8 threads 1.00.",
        ] {
            assert!(text.contains(words), "{text}");
        }
        // A plain program that does not collapse is not said to.
        for last in [1.5, 0.99, 0.81] {
            assert!(!sum_up(&acts([1.0, 1.0, last, 1.0, 1.0], mixed)).contains("in vain"), "{last}");
        }
    }

    #[test]
    fn few_pairs_judge_nothing() {
        let mut acts = acts([1.0; 5], [(2.0, 3.0); 5]);
        acts[0].ratio.confidence = 0.5;
        assert_eq!(sum_up(&acts), "Fewer than 5 pairs are too few to judge; take -n 5.");
    }

    #[test]
    fn bars_fit_a_narrow_terminal() {
        let acts = acts([123_456.0, 1.0, 0.0, 1.0, 1.0], [(2.0, 3.0); 5]);
        for width in [24, 40, 79] {
            let picture = picture(&acts[..3], width);
            assert!(picture.lines().all(|line| line.chars().count() <= width), "{width}:\n{picture}");
            let longest = picture.matches(brick()).count();
            // The longest bar, and the other one of the same two programs.
            assert!(longest > width - WORDS && longest < 2 * width, "{width}:\n{picture}");
        }
    }
}
