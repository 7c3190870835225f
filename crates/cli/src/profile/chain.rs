// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads behind a wait, in words: A waits for B, which waits for C, which had lost its processor to D.

use recorder::profile::{Link, Profile, Split, Wait};
use serde::Serialize;

use super::names::{Names, kind};
use crate::format::{ns, percent};
use crate::recorded::cut;

/// BOUND: threads of one chain that a sentence has, and letters of a lock's name; `--json` has all.
const MOST_LINKS: usize = 3;
pub const NAME: usize = 40;
/// BOUND: from this part on, in percent, it is all of it.
const ALL: u64 = 90;

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
    /// Of that: another thread of the program had taken the processor; and which took it, mostly. Others may
    /// have had it from that one.
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
            place: names.of(profile, key, site).0.said(),
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
            behind: link.behind.map(|thread| Behind { thread, name: name(thread) }),
            blocked_ns,
            unknown_ns,
            waited,
        }
    }

    fn total_ns(&self) -> u64 {
        self.running_ns + self.preempted_ns + self.blocked_ns + self.unknown_ns
    }

    /// What it did, as "which ...".
    fn words(&self, is_throttled: bool) -> String {
        match (self.did, &self.waited) {
            ("waiting", Some(waited)) => {
                let lock =
                    waited.lock.as_ref().map_or(String::new(), |lock| format!(" `{}`", cut(lock, NAME)));
                let (length, kind) = (ns(waited.ns), waited.kind);
                format!("waited itself for {length} at the {kind}{lock} in {}", waited.place)
            }
            ("preempted", _) => {
                let is_own = self.behind_own_ns * 100 >= self.preempted_ns * ALL;
                let quota = if is_throttled && !is_own { ", or the quota stopped it" } else { "" };
                format!("had no processor for {}: {} had it{quota}", ns(self.preempted_ns), self.whose())
            }
            ("blocked", _) => format!("was blocked for {}", ns(self.blocked_ns)),
            ("running", _) => format!("ran for {}", ns(self.running_ns)),
            _ => "did what nobody knows".into(),
        }
    }

    /// Who had its processor. One thread of the program may leave it to the next, and nobody says that.
    fn whose(&self) -> String {
        let own = self.behind_own_ns * 100 / self.preempted_ns.max(1);
        let mostly = if (100 - ALL..ALL).contains(&own) { "mostly " } else { "" };
        match &self.behind {
            Some(first) if own > 50 => {
                format!("{mostly}threads of the program, {} first,", thread(&first.name, first.thread))
            }
            _ if own > 50 => format!("{mostly}threads of the program"),
            _ => format!("{mostly}another program"),
        }
    }
}

/// A thread, by its name and its number.
pub fn thread(name: &str, number: u32) -> String {
    if name.is_empty() { format!("thread {number}") } else { format!("`{name}` ({number})") }
}

/// The longest wait, if what is behind it says more than that a thread had the lock and worked.
pub fn words(longest: &LongestWait, is_throttled: bool) -> Option<String> {
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
        first.words(is_throttled)
    );
    for pair in longest.chain.windows(2).take(MOST_LINKS - 1) {
        let (before, link) = (&pair[0], &pair[1]);
        if before.did != "waiting" {
            break;
        }
        words += &format!(", for {}, which {}", thread(&link.name, link.thread), link.words(is_throttled));
    }
    Some(words + ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(thread: u32, did: &'static str, preempted_ns: u64, behind_own_ns: u64) -> Chained {
        let behind = (behind_own_ns > 0).then(|| Behind { thread: 7, name: "burner".into() });
        let waited = (did == "waiting").then(|| Waited {
            kind: "mutex",
            lock: Some("a".repeat(90)),
            place: "f".into(),
            ns: 1_000,
        });
        let (name, blocked_ns) = (String::new(), 1_000 - preempted_ns);
        let (running_ns, unknown_ns) = (0, 0);
        Chained {
            thread,
            name,
            did,
            running_ns,
            preempted_ns,
            behind_own_ns,
            behind,
            blocked_ns,
            unknown_ns,
            waited,
        }
    }

    #[test]
    fn who_had_the_processor_is_said_as_far_as_it_is_known() {
        let whose = |own_ns| link(1, "preempted", 1_000, own_ns).whose();
        assert_eq!(whose(950), "threads of the program, `burner` (7) first,");
        assert_eq!(whose(600), "mostly threads of the program, `burner` (7) first,");
        assert_eq!([whose(500), whose(0)], ["mostly another program", "another program"]);
        let words = link(1, "preempted", 1_000, 0).words(true);
        assert_eq!(words, "had no processor for 1.00us: another program had it, or the quota stopped it");
    }

    #[test]
    fn a_long_chain_is_told_in_part() {
        let chain = (1..=6).map(|thread| link(thread, "waiting", 0, 0)).collect();
        let whom = (None, String::new());
        let longest = LongestWait {
            thread: 9,
            name: String::new(),
            length_ns: 1_000,
            turns: 0,
            whom: whom.0,
            whom_name: whom.1,
            whom_ns: 1_000,
            chain,
        };
        let words = words(&longest, false).unwrap();
        assert!(words.contains("thread 3, which") && !words.contains("thread 4"), "{words}");
        assert!(words.contains(&format!("`{}..`", "a".repeat(NAME - 2))), "{words}");
    }
}
