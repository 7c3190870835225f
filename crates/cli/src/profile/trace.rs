// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace for Perfetto's and Chrome's viewer: <https://ui.perfetto.dev>, chrome://tracing.
//!
//! Each thread is a track. Its waits have the place as their name, and the rest is what the kernel says. An
//! arrow goes from the thread that was waited for to the end of the wait.

use std::collections::HashMap;
use std::io::{self, Write};

use recorder::profile::timeline::{Does, Stretch};
use recorder::profile::{Profile, Timeline, Wait};
use serde_json::json;

use super::names::{Names, kind};
use super::stacks::{part_names, parts};

/// What a thread does, in words.
pub fn does(does: Does, is_throttled: bool) -> &'static str {
    match does {
        Does::Ready if is_throttled => "ready, kept from running by the quota or another program",
        Does::Run => "runs",
        Does::Ready => "ready, another program has the processor",
        Does::Behind => "ready, another thread has the processor",
        Does::Blocked => "blocked",
        Does::Lock => "waits for a lock",
        Does::Barrier => "waits at a barrier",
        Does::Work => "waits at a semaphore or condition variable",
    }
}

pub fn write(
    profile: &Profile,
    timeline: &Timeline,
    (stretches, shorter): &(Vec<Stretch>, u64),
    throttled: &[(u64, u64)],
    names: &mut Names,
    to: &mut dyn Write,
) -> io::Result<()> {
    // The first records are from before the recorder's first turn.
    let us = |time_ns: u64| time_ns.saturating_sub(profile.from_ns) as f64 / 1000.0;
    let other = json!({
        "tool": "wakeful profile",
        "shorter stretches left out": shorter,
        "shorter waits left out": profile.longest.1,
        "threads left out": timeline.left_out.0,
    });
    write!(to, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":[")?;
    let first = json!({"ph": "M", "name": "trace", "pid": 0, "args": {}});
    write!(to, "{first}")?;
    for lane in &timeline.lanes {
        let name = profile.names.get(&lane.thread).map_or("thread", String::as_str);
        let event = json!({
            "ph": "M", "name": "thread_name", "pid": lane.process, "tid": lane.thread, "args": {"name": name}
        });
        write!(to, ",\n{event}")?;
    }
    // What was over before the recorder's first turn has no length here.
    for one in stretches.iter().filter(|one| us(one.from_ns) < us(one.to_ns)) {
        let Some(lane) = timeline.lanes.get(one.lane as usize) else { continue };
        let next = throttled.partition_point(|(_, to_ns)| *to_ns <= one.from_ns);
        let is_throttled = throttled.get(next).is_some_and(|(from_ns, _)| *from_ns < one.to_ns);
        let event = json!({
            "ph": "X", "name": does(one.does, is_throttled), "cat": "processor", "pid": lane.process,
            "tid": lane.thread, "ts": us(one.from_ns), "dur": us(one.to_ns) - us(one.from_ns)
        });
        write!(to, ",\n{event}")?;
    }
    for stop in &profile.stops {
        let name = format!("stopped from outside for {}", crate::format::ns(stop.length_ns));
        let event = json!({"ph": "i", "s": "g", "name": name, "pid": 0, "tid": 0, "ts": us(stop.at_ns)});
        write!(to, ",\n{event}")?;
    }
    let processes: HashMap<u32, u32> =
        timeline.lanes.iter().map(|lane| (lane.thread, lane.process)).collect();
    for (number, wait) in profile.longest.0.iter().enumerate() {
        let Some(&own) = processes.get(&wait.thread) else { continue };
        let (place, _) = names.of(profile, wait.key, wait.site);
        let event = json!({
            "ph": "X", "name": format!("{}: {}", kind(wait.key.class), place.label()), "cat": "wait",
            "pid": own, "tid": wait.thread, "ts": us(wait.from_ns),
            "dur": us(wait.to_ns) - us(wait.from_ns), "args": arguments(wait)
        });
        write!(to, ",\n{event}")?;
        let (holder, _) = wait.whom[0];
        if let Some(&other) = processes.get(&holder).filter(|_| holder != wait.thread) {
            let arrow = |phase: &str, process: u32, thread: u32| {
                json!({
                    "ph": phase, "bp": "e", "name": "waited for", "cat": "waits for", "id": number,
                    "pid": process, "tid": thread, "ts": us(wait.to_ns)
                })
            };
            write!(to, ",\n{},\n{}", arrow("s", other, holder), arrow("f", own, wait.thread))?;
        }
    }
    writeln!(to, "]}}")?;
    to.flush()
}

/// Why it waited, and for whom.
fn arguments(wait: &Wait) -> serde_json::Value {
    let mut all = serde_json::Map::new();
    for (name, part_ns) in part_names(wait.key.class).iter().zip(parts(&wait.shares)) {
        if part_ns > 0 {
            all.insert(format!("{name}, us"), (part_ns as f64 / 1000.0).into());
        }
    }
    for (thread, part_ns) in wait.whom.iter().filter(|(thread, _)| *thread != 0) {
        all.insert(format!("for thread {thread}, us"), (*part_ns as f64 / 1000.0).into());
    }
    all.insert("address".into(), format!("{:#x}", wait.key.object).into());
    all.into()
}
