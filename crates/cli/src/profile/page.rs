// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report as one page that needs no network: text, pictures and their data in one file.
//!
//! Its parts are in `page/`. What the program or its files are called reaches the page as JSON, from which
//! the script makes text, and never markup.

use std::collections::HashMap;
use std::io::{self, Write};

use recorder::profile::timeline::{Does, Held, Lane, NO_PLACE, Place, Stretch};
use recorder::profile::{Profile, Timeline, Wait};
use serde::Serialize;

use super::names::{Names, kind};
use super::report::{One, RegionRow, Report, Row};
use super::stacks::{BARRIER_PARTS, PARTS, Stack, parts};
use super::verdict::{Verdict, gained, others};
use crate::format::{grouped, ns, plain};

/// BOUND: what the page has of each, so that it stays small.
const MOST_WAITS: usize = 4_000;
const MOST_STRETCHES: usize = 12_000;
const MOST_HELD: usize = 12_000;
const MOST_ROWS: usize = 200;
const MOST_THREADS: usize = 1_000;
const MOST_STACKS: usize = 3_000;
const MOST_FUNCTIONS: usize = 48;

/// A digit each for 0 to 63; none of them means anything in JSON or HTML.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// What all parts use, the verdict, the time line, what the pointer does there, the tables, the flame graph.
const SCRIPT: &str = concat!(
    include_str!("page/words.js"),
    include_str!("page/verdict.js"),
    include_str!("page/time.js"),
    include_str!("page/point.js"),
    include_str!("page/tables.js"),
    include_str!("page/stacks.js"),
);

#[derive(Serialize)]
struct Page<'a> {
    head: String,
    program: &'a str,
    version: &'static str,
    elapsed_ns: u64,
    cause: &'static str,
    /// The part of the threads' time.
    waited: f64,
    words: &'a str,
    then: Option<String>,
    /// One wait that took long, and what the profiler itself took, if that is much.
    longest: &'a Option<String>,
    dear: Option<String>,
    /// That it was stopped from outside; and when, in the program's time, and for how long.
    stopped: Option<String>,
    stops: Vec<[u64; 2]>,
    advice: &'a str,
    gained: Option<String>,
    parts: [&'static str; PARTS.len()],
    barrier_parts: [&'static str; PARTS.len()],
    /// What the waiting was for, by these parts: at locks, and at barriers.
    shares: [[u64; PARTS.len()]; 2],
    column_ns: u64,
    lanes: Vec<Track>,
    places: Vec<PlaceTrack>,
    /// Lane, place, from, length, lock, its parts in percent, then whom: lane and percent.
    waits: Vec<Vec<i64>>,
    /// By the locks of these waits: lane of the holder, from, length.
    held: Vec<Vec<[u64; 3]>>,
    /// Lane, what, from, length, and the lane of the thread that took the processor, if one did.
    stretches: Vec<Vec<u64>>,
    throttled: Vec<[u64; 2]>,
    rows: &'a [Row],
    regions: &'a [RegionRow],
    threads: &'a [One],
    names: Vec<String>,
    stacks: Vec<Flame>,
    remarks: Vec<String>,
}

/// Functions by number, outermost first; then what was waited at, and the parts.
type Flame = (Vec<usize>, &'static str, [u64; PARTS.len()]);

#[derive(Serialize)]
struct Track {
    name: String,
    thread: u32,
    process: u32,
    from: u64,
    to: u64,
    columns: String,
    places: String,
    /// How often it was woken in vain in each column, up to 63; empty if never.
    vain: String,
}

#[derive(Serialize)]
struct PlaceTrack {
    kind: &'static str,
    label: String,
    /// Threads that wait on average in the fullest column.
    most: f32,
    columns: String,
}

/// What the page is made of.
pub struct Parts<'a> {
    pub profile: &'a Profile,
    pub report: &'a Report,
    pub timeline: &'a Timeline,
    pub stretches: &'a (Vec<Stretch>, u64),
    pub held: &'a [Held],
    pub stacks: &'a [Stack],
    /// From and to: a quota stopped the program in between.
    pub throttled: &'a [(u64, u64)],
}

fn digit(share: f32) -> char {
    char::from(DIGITS[((share * 63.0).round() as usize).min(63)])
}

fn lane(lane: &Lane, timeline: &Timeline, profile: &Profile) -> Track {
    let width = timeline.column_ns as f32;
    let columns = lane.columns.iter().flat_map(|sums| sums.iter().map(|sum| digit(sum / width))).collect();
    let mut places = String::new();
    for index in 0..lane.columns.len() {
        let (place, _) = lane.places.get(index).copied().unwrap_or((NO_PLACE, 0.0));
        places.push_str(&format!("{place:02x}"));
    }
    let since = |time_ns: u64| time_ns.saturating_sub(timeline.from_ns);
    Track {
        name: plain(profile.names.get(&lane.thread).map_or("", String::as_str)),
        thread: lane.thread,
        process: lane.process,
        from: since(lane.from_ns),
        to: since(lane.to_ns),
        columns,
        places,
        vain: lane.vain.iter().map(|count| char::from(DIGITS[(*count).min(63) as usize])).collect(),
    }
}

fn place(place: &Place, label: String, width_ns: u64) -> PlaceTrack {
    let sums = place.columns.iter().map(|sums| sums.iter().sum::<f32>());
    let most = sums.fold(0.0, f32::max);
    let share = |sum: &f32| digit(sum / most.max(1.0));
    let columns = place.columns.iter().flat_map(|sums| sums.iter().map(share)).collect();
    PlaceTrack { kind: kind(place.class), label, most: most / width_ns as f32, columns }
}

/// The lanes of each thread.
fn lanes(timeline: &Timeline) -> HashMap<u32, Vec<usize>> {
    let mut lanes: HashMap<u32, Vec<usize>> = HashMap::new();
    for (index, lane) in timeline.lanes.iter().enumerate() {
        lanes.entry(lane.thread).or_default().push(index);
    }
    lanes
}

/// The lane of a thread at a time: its number may come again.
fn lane_at(
    lanes: &HashMap<u32, Vec<usize>>,
    timeline: &Timeline,
    thread: u32,
    time_ns: u64,
) -> Option<usize> {
    let of_thread = lanes.get(&thread)?;
    of_thread.iter().copied().rfind(|&index| timeline.lanes[index].from_ns <= time_ns)
}

/// The longest waits, and who held their locks when.
fn waits(parts_of: &Parts) -> (Vec<Vec<i64>>, Vec<Vec<[u64; 3]>>) {
    let (profile, timeline) = (parts_of.profile, parts_of.timeline);
    let lanes = lanes(timeline);
    let place = |wait: &Wait| {
        let is_its = |place: &Place| (place.class, place.site) == (wait.key.class, wait.site);
        timeline.places.iter().position(is_its).map_or(-1, |index| index as i64)
    };
    let mut locks = HashMap::new();
    let mut all = Vec::new();
    for wait in profile.longest.0.iter().take(MOST_WAITS) {
        let Some(own) = lane_at(&lanes, timeline, wait.thread, wait.from_ns) else { continue };
        let length_ns = wait.to_ns - wait.from_ns;
        let percent = |part_ns: u64| (part_ns as f64 * 100.0 / length_ns.max(1) as f64).round() as i64;
        let from_ns = wait.from_ns.saturating_sub(timeline.from_ns);
        let next = locks.len();
        let lock = *locks.entry(wait.key).or_insert(next);
        let mut one = vec![own as i64, place(wait), from_ns as i64, length_ns as i64, lock as i64];
        one.extend(parts(&wait.shares).map(percent));
        for (thread, part_ns) in wait.whom.iter().filter(|(thread, _)| *thread != 0) {
            if let Some(other) = lane_at(&lanes, timeline, *thread, wait.to_ns) {
                one.extend([other as i64, percent(*part_ns)]);
            }
        }
        all.push(one);
    }
    let mut held = vec![Vec::new(); locks.len()];
    let wanted = parts_of.held.iter().filter_map(|one| Some((*locks.get(&one.key)?, one)));
    for (lock, one) in wanted.take(MOST_HELD) {
        if let Some(other) = lane_at(&lanes, timeline, one.thread, one.from_ns) {
            let from_ns = one.from_ns.saturating_sub(timeline.from_ns);
            held[lock].push([other as u64, from_ns, one.to_ns - one.from_ns]);
        }
    }
    (all, held)
}

/// The stacks that weigh most, with their functions by number.
fn flames(stacks: &[Stack]) -> (Vec<String>, Vec<Flame>) {
    let mut names: Vec<String> = Vec::new();
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut heavy: Vec<&Stack> = stacks.iter().collect();
    heavy.sort_by(|a, b| b.parts_ns.iter().sum::<f64>().total_cmp(&a.parts_ns.iter().sum()));
    let mut all = Vec::new();
    for stack in heavy.into_iter().take(MOST_STACKS) {
        let skipped = stack.functions.len().saturating_sub(MOST_FUNCTIONS);
        let functions = stack.functions[skipped..].iter().map(|function| {
            *numbers.entry(function).or_insert_with(|| {
                names.push(plain(function));
                names.len() - 1
            })
        });
        all.push((functions.collect(), kind(stack.class), stack.parts_ns.map(|part_ns| part_ns as u64)));
    }
    (names, all)
}

/// What all waiting at such rows was for, by [`PARTS`].
fn shares(rows: &[Row], is_meant: impl Fn(&&Row) -> bool) -> [u64; PARTS.len()] {
    let mut shares = [0; PARTS.len()];
    for row in rows.iter().filter(is_meant) {
        let parts = [
            row.holder_running_ns,
            row.holder_preempted_ns,
            row.holder_blocked_ns,
            row.free_ns,
            row.holder_unknown_ns,
        ];
        shares.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
    }
    shares
}

pub fn write(of: &Parts, names: &mut Names, to: &mut dyn Write) -> io::Result<()> {
    let Parts { profile, report, timeline, .. } = *of;
    let Report { summary, rows, regions, threads, verdict, .. } = report;
    let (functions, stacks) = flames(of.stacks);
    let (waits, held) = waits(of);
    let since = |time_ns: u64| time_ns.saturating_sub(timeline.from_ns);
    let lanes = lanes(timeline);
    let stretch = |one: &Stretch| {
        let mut all = vec![
            u64::from(one.lane),
            one.does as u64,
            since(one.from_ns),
            since(one.to_ns) - since(one.from_ns),
        ];
        all.extend(lane_at(&lanes, timeline, one.by, one.from_ns).map(|lane| lane as u64));
        all
    };
    let places = timeline.places.iter().map(|one| {
        let key = recorder::profile::Key { image: 0, object: 0, class: one.class };
        let (site, _) = names.of(profile, key, one.site);
        place(one, plain(&site.label()), timeline.column_ns)
    });
    let Verdict { words, advice, .. } = verdict;
    let page = Page {
        head: super::text::head(&report.summary),
        program: &summary.program,
        version: env!("CARGO_PKG_VERSION"),
        elapsed_ns: summary.elapsed_ns,
        cause: verdict.cause,
        waited: verdict.waited,
        words,
        then: others(verdict),
        longest: &verdict.longest,
        dear: summary.dear(),
        stopped: summary.stopped(),
        stops: profile.stops.iter().map(|stop| [since(stop.at_ns), stop.length_ns]).collect(),
        advice,
        gained: gained(verdict),
        parts: PARTS,
        barrier_parts: BARRIER_PARTS,
        shares: [shares(rows, super::verdict::is_lock), shares(rows, super::verdict::is_barrier)],
        column_ns: timeline.column_ns,
        lanes: timeline.lanes.iter().map(|one| lane(one, timeline, profile)).collect(),
        places: places.collect(),
        waits,
        held,
        stretches: of.stretches.0.iter().take(MOST_STRETCHES).map(stretch).collect(),
        throttled: of.throttled.iter().map(|(from_ns, to_ns)| [since(*from_ns), since(*to_ns)]).collect(),
        rows: &rows[..rows.len().min(MOST_ROWS)],
        regions: &regions[..regions.len().min(MOST_ROWS)],
        threads: &threads[..threads.len().min(MOST_THREADS)],
        names: functions,
        stacks,
        remarks: remarks(of),
    };
    // Nothing in it ends the element that it is in.
    let data = serde_json::to_string(&page)?.replace('<', "\\u003c");
    let mut rest = HTML;
    for (mark, text) in [("/*STYLE*/", STYLE), ("/*DATA*/", &data), ("/*SCRIPT*/", SCRIPT)] {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        to.write_all(before.as_bytes())?;
        to.write_all(text.as_bytes())?;
        rest = after;
    }
    to.write_all(rest.as_bytes())?;
    to.flush()
}

/// What the page does not have, and what the text says at its end.
fn remarks(of: &Parts) -> Vec<String> {
    let (profile, timeline) = (of.profile, of.timeline);
    let mut all = super::text::remarks(of.report);
    let shown = |kept: usize, most: usize, shorter: u64| kept.saturating_sub(most) as u64 + shorter;
    let waits = shown(profile.longest.0.len(), MOST_WAITS, profile.longest.1);
    if waits > 0 {
        all.push(format!(
            "The time line has the {} longest waits one by one. {} shorter ones are in its columns, {} wide, \
             as shares.",
            grouped(MOST_WAITS as u64),
            grouped(waits),
            ns(timeline.column_ns)
        ));
    }
    if timeline.left_out != (0, 0) {
        all.push(format!(
            "{} threads and {} places have no lane: the first ones have.",
            grouped(timeline.left_out.0),
            grouped(timeline.left_out.1)
        ));
    }
    if of.report.rows.len() > MOST_ROWS || of.report.threads.len() > MOST_THREADS {
        all.push("The tables have the first rows; --json has all.".into());
    }
    if timeline.lanes.is_empty() {
        all.push("There is no time line: the kernel has told nothing of the threads.".into());
    }
    all
}

/// The page's script numbers them so.
const _: () = assert!(Does::Run as u8 == 0 && Does::Blocked as u8 == 3 && Does::Work as u8 == 6);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_each_part_and_nothing_from_elsewhere() {
        let marks = ["/*STYLE*/", "/*DATA*/", "/*SCRIPT*/"].map(|mark| HTML.find(mark).unwrap());
        assert!(marks.is_sorted());
        for text in [HTML, STYLE, SCRIPT] {
            for part in ["http:", "https:", "@import", "url(", "innerHTML", "document.write", "eval("] {
                let is_name = part == "http:" && text.contains("http://www.w3.org/2000/svg");
                assert!(is_name || !text.contains(part), "{part}");
            }
        }
        assert!(!SCRIPT.contains("</"), "the script would end there");
    }

    #[test]
    fn a_share_is_a_digit() {
        assert_eq!([0.0, 0.5, 1.0, 1.1].map(digit), ['A', 'g', '-', '-']);
        assert!(DIGITS.iter().all(|digit| digit.is_ascii_alphanumeric() || b"+-".contains(digit)));
    }

    #[test]
    fn stacks_share_their_functions_and_the_heaviest_come_first() {
        let stack = |functions: &[&str], weight| Stack {
            functions: functions.iter().map(ToString::to_string).collect(),
            class: recorder::profile::Class::Mutex,
            parts_ns: [weight, 0.0, 0.0, 0.0, 0.0],
        };
        let (names, all) = flames(&[stack(&["main", "light"], 1.0), stack(&["main", "heavy"], 2.0)]);
        assert_eq!(names, ["main", "heavy", "light"]);
        assert_eq!(all[0], (vec![0, 1], "mutex", [2, 0, 0, 0, 0]));
        assert_eq!(all[1].0, [0, 2]);
    }
}
