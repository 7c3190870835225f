// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads behind a wait, in words: A waits for B, which waits for C, which had lost its processor to D.

use recorder::profile::{Link, Profile, Split, Wait};
use serde::Serialize;

use super::names::{Names, kind};
use crate::format::{ns, percent};

/// The longest wait for a lock, or at a barrier.
#[derive(Clone, Serialize)]
pub struct LongestWait {
    pub thread: u32,
    pub name: String,
    pub length_ns: u64,
    /// How often others were seen to take the lock meanwhile.
    pub turns: u64,
    /// The thread that had the lock for most of it, and for how long.
    pub whom: Option<u32>,
    pub whom_name: String,
    pub whom_ns: u64,
    /// The threads behind it: each waited for the next one, or for what that one did.
    pub chain: Vec<Chained>,
}

impl LongestWait {
    pub fn of(wait: &Wait, chain: &[Link], profile: &Profile, names: &mut Names) -> Self {
        let name = |thread: u32| profile.names.get(&thread).cloned().unwrap_or_default();
        let (whom, whom_ns) = wait.whom[0];
        Self {
            thread: wait.thread,
            name: name(wait.thread),
            length_ns: wait.to_ns - wait.from_ns,
            turns: wait.turns,
            whom: (whom != 0).then_some(whom),
            whom_name: name(whom),
            whom_ns,
            chain: chain.iter().map(|link| Chained::of(link, profile, names)).collect(),
        }
    }
}

/// A thread that one waited for, and what it did meanwhile.
#[derive(Clone, Debug, Serialize)]
pub struct Chained {
    pub thread: u32,
    pub name: String,
    /// What most of that time went to, by a word that stays: `running`, `preempted`, `blocked`, `waiting` or
    /// `unknown`.
    pub did: &'static str,
    pub running_ns: u64,
    pub preempted_ns: u64,
    /// Of that: another thread of the program had taken the processor; and which of them had it for longest.
    pub behind_own_ns: u64,
    pub behind: Option<Behind>,
    pub blocked_ns: u64,
    pub unknown_ns: u64,
    /// What it waited for itself, as far as it did. The next one is the thread that it waited for.
    pub waited: Option<Waited>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Behind {
    pub thread: u32,
    pub name: String,
    pub ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Waited {
    pub kind: &'static str,
    /// The variable, if one is there.
    pub lock: Option<String>,
    pub place: String,
    pub ns: u64,
}

impl Chained {
    pub fn of(link: &Link, profile: &Profile, names: &mut Names) -> Self {
        let name = |thread: u32| profile.names.get(&thread).cloned().unwrap_or_default();
        let waited = link.waited.map(|(key, site, ns)| Waited {
            kind: kind(key.class),
            lock: names.variable(profile, key).map(|variable| variable.label()),
            place: names.of(profile, key, site).0.label(),
            ns,
        });
        let Split { running_ns, preempted_ns, behind_own_ns, blocked_ns, unknown_ns } = link.did;
        let parts = [
            ("running", running_ns),
            ("preempted", preempted_ns),
            ("blocked", blocked_ns),
            ("unknown", unknown_ns),
        ];
        let most =
            parts.into_iter().rev().max_by_key(|(_, part_ns)| *part_ns).map_or("unknown", |(did, _)| did);
        let waits = waited.as_ref().is_some_and(|waited| waited.ns * 2 > link.did.total_ns());
        Self {
            thread: link.thread,
            name: name(link.thread),
            did: if waits { "waiting" } else { most },
            running_ns,
            preempted_ns,
            behind_own_ns,
            behind: link.behind.map(|(thread, ns)| Behind { thread, name: name(thread), ns }),
            blocked_ns,
            unknown_ns,
            waited,
        }
    }

    fn total_ns(&self) -> u64 {
        self.running_ns + self.preempted_ns + self.blocked_ns + self.unknown_ns
    }

    /// What it did, as "which ...".
    fn words(&self) -> String {
        match (self.did, &self.waited, &self.behind) {
            ("waiting", Some(waited), _) => {
                let lock = waited.lock.as_ref().map_or(String::new(), |lock| format!(" `{lock}`"));
                format!(
                    "waited itself for {} at the {}{lock} in {}",
                    ns(waited.ns),
                    waited.kind,
                    waited.place
                )
            }
            ("preempted", _, Some(behind)) if self.behind_own_ns * 2 > self.preempted_ns => {
                let by = thread(&behind.name, behind.thread);
                let is_alone = behind.ns * 10 >= self.preempted_ns * 9;
                let others = if is_alone { "" } else { " and other threads of the program" };
                format!("had no processor for {}: {by}{others} had it", ns(self.preempted_ns))
            }
            ("preempted", ..) => {
                format!("had no processor for {}: another program had it", ns(self.preempted_ns))
            }
            ("blocked", ..) => format!("was blocked for {}", ns(self.blocked_ns)),
            ("running", ..) => format!("ran for {}", ns(self.running_ns)),
            _ => "did what nobody knows".into(),
        }
    }
}

/// A thread, by its name and its number.
pub fn thread(name: &str, number: u32) -> String {
    if name.is_empty() { format!("thread {number}") } else { format!("`{name}` ({number})") }
}

/// The longest wait, if what is behind it says more than that a thread had the lock and worked.
pub fn words(longest: &LongestWait) -> Option<String> {
    let first = longest.chain.first().filter(|first| !matches!(first.did, "running" | "unknown"))?;
    if first.total_ns() * 2 < longest.length_ns {
        return None;
    }
    let mut words = format!(
        " The longest wait there: {} for {}, {} of it for {}, which {}",
        thread(&longest.name, longest.thread),
        ns(longest.length_ns),
        percent(first.total_ns() as f64 / longest.length_ns.max(1) as f64),
        thread(&first.name, first.thread),
        first.words()
    );
    for pair in longest.chain.windows(2) {
        let (before, link) = (&pair[0], &pair[1]);
        if before.did != "waiting" {
            break;
        }
        words += &format!(", for {}, which {}", thread(&link.name, link.thread), link.words());
    }
    Some(words + ".")
}
