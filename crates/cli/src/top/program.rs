// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful top PID`: for whom the threads of one program wait at this moment, and since when.
//!
//! Under `wakeful profile` the profiler is asked. Under `wakeful run` the program's memory is looked at
//! ([`recorder::outside`]): that knows only those who sleep, and since when we have seen it.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use launch::interposer::PROFILE_NAME;
use launch::suggest::{WIDTH, wrap};
use linux::environment::PROFILE;
use recorder::maps::{File, Place};
use recorder::outside::{Outside, Since, Sleeper};
use recorder::symbols::Symbols;
use serde::Serialize;

use crate::format::{grouped, ns, plain, whole};
use crate::profile::live::{Head, Line, ask, is_there};
use crate::profile::names::Site;

/// What is waited at.
#[derive(Serialize)]
pub struct Lock {
    pub process: u32,
    pub kind: String,
    pub object: u64,
    /// From where the one waits that has waited longest.
    pub place: Site,
    pub waiters: Vec<Waiter>,
    /// The thread that has it. None: unknown.
    pub holder: Option<Holder>,
    /// Nobody has it: the waiters wake up.
    pub is_free: bool,
    /// The times are those that we have looked for: the waits may be longer.
    pub at_least: bool,
}

#[derive(Serialize)]
pub struct Waiter {
    pub thread: u32,
    pub name: String,
    pub waits_ns: u64,
}

#[derive(Serialize)]
pub struct Holder {
    pub thread: u32,
    pub name: String,
    pub does: Option<String>,
    pub for_ns: u64,
    /// It waits itself, for what this is.
    pub waits_at: Option<String>,
}

/// What is known at one moment.
#[derive(Default)]
pub struct Look {
    pub locks: Vec<Lock>,
    /// Threads for which there was no room: maybe they wait, too.
    pub unlisted: usize,
    /// What else is not seen.
    pub unseen: Option<Unseen>,
    /// The program is stopped from outside.
    pub is_stopped: bool,
}

/// What a look does not see.
#[derive(Serialize)]
pub struct Unseen {
    /// In words.
    pub why: String,
    /// One wait of so many is told: for locks and semaphores, and at barriers. Without a number none is.
    pub locks_one_in: Option<u64>,
    pub barriers_one_in: Option<u64>,
}

impl Unseen {
    fn none(why: String) -> Option<Self> {
        Some(Self { why, locks_one_in: None, barriers_one_in: None })
    }

    /// Of a program under a profiler.
    fn of(head: &Head) -> Option<Self> {
        if let Some(obstacle) = &head.obstacle {
            let obstacle = obstacle.replace('\n', " ");
            return Self::none(format!("No wait of this program can be seen: {obstacle}."));
        }
        if head.processes == 0 {
            let why = "No wait is seen yet: no process has loaded the library that tells the waits.";
            return Self::none(why.into());
        }
        let told = |one_in: u64, of: &str| format!("one of {} waits {of}", grouped(one_in));
        let [locks, barriers] = head.one_in;
        let told = match (locks > 1, barriers > 1) {
            (false, false) => return None,
            (true, false) => told(locks, "for locks"),
            (false, true) => told(barriers, "at barriers"),
            (true, true) => format!("{}, and {}", told(locks, "for locks"), told(barriers, "at barriers")),
        };
        let why = format!(
            "Other threads may wait. The program waits so often that the profiler is told only {told}."
        );
        Some(Self { why, locks_one_in: Some(locks), barriers_one_in: Some(barriers) })
    }
}

/// A program at which we look again and again.
pub struct Watched {
    process: u32,
    source: Source,
    symbols: Symbols,
}

/// Where it is known from.
enum Source {
    /// This profiler; and all its processes are told if it is the one that was named.
    Profiler(u32),
    /// The program's memory.
    Memory(Box<Outside>, Since),
}

/// The number of the profiler of a process, as its environment says.
fn profiler_of(process: u32) -> Option<u32> {
    let all = fs::read(format!("/proc/{process}/environ")).ok()?;
    let mut words = all.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
    let path = words.find_map(|word| word.strip_prefix(PROFILE.name())?.strip_prefix('='))?;
    path.strip_prefix("/proc/")?.split('/').next()?.parse().ok()
}

/// BOUND: parents of parents that are asked.
const MOST_PARENTS: usize = 16;

fn parent_of(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let parent = text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    (parent > 0).then_some(parent)
}

/// From a parent to its parent: of a program that tells nothing, one of them is the profiler.
fn parents(process: u32) -> impl Iterator<Item = u32> {
    iter::successors(parent_of(process), |one| parent_of(*one)).take(MOST_PARENTS)
}

/// Does its profiler not answer, as it is stopped itself?
pub fn heard(process: u32) -> Result<()> {
    let mut all = [Some(process), profiler_of(process)].into_iter().flatten().chain(parents(process));
    match all.find(|one| is_stopped(*one) && is_there(*one)) {
        Some(profiler) => bail!(
            "the profiler, process {profiler}, is stopped itself;\nlet it go on, by `fg` or `kill -CONT \
             {profiler}`"
        ),
        None => Ok(()),
    }
}

/// May another user's rights be needed to look at it? The files of such a process are theirs, or root's.
fn is_anothers(process: u32) -> bool {
    // SAFETY: no arguments.
    let own = unsafe { libc::geteuid() };
    let owner = fs::metadata(format!("/proc/{process}")).map(|about| about.uid());
    own != 0 && owner.is_ok_and(|owner| owner != own)
}

/// Has the process loaded what tells its waits? One that may not be looked at has not.
fn tells(process: u32) -> bool {
    let maps = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&maps).contains(PROFILE_NAME)
}

/// What a thread calls itself.
fn name(process: u32, thread: u32) -> String {
    let name = fs::read(format!("/proc/{process}/task/{thread}/comm")).unwrap_or_default();
    plain(String::from_utf8_lossy(&name).trim_end())
}

impl Watched {
    pub fn new(process: u32) -> Result<Self> {
        if !fs::exists(format!("/proc/{process}")).unwrap_or(false) {
            bail!("there is no process {process}");
        }
        // Without descriptors nobody can be asked, which would look as if nobody told.
        let ask_by = UnixStream::pair();
        drop(ask_by.with_context(|| format!("cannot ask about process {process}"))?);
        heard(process)?;
        let profilers = [Some(process), profiler_of(process)];
        let asked = |one: &u32| ask(*one).is_some();
        let profiler = profilers.into_iter().flatten().find(asked).map(Source::Profiler);
        let memory = || Some(Source::Memory(Box::new(Outside::new(process)?), Since::default()));
        let parent = || parents(process).find(asked).map(Source::Profiler);
        let Some(source) = profiler.or_else(memory).or_else(parent) else {
            // It may have been stopped since.
            heard(process)?;
            if is_anothers(process) {
                bail!(
                    "process {process} is another user's, or has other rights than you;\n\
                     ask as that user, by su or sudo, or as root"
                );
            }
            bail!(
                "nobody tells what process {process} waits for;\nstart it by `wakeful profile -- program`, \
                 or by `wakeful run -- program`.\nOf the latter, only its user may look, and only if \
                 ptrace(2) would be allowed"
            );
        };
        Ok(Self { process, source, symbols: Symbols::new(SystemTime::now()) })
    }

    /// Does a first look know less than a second one?
    pub fn needs_time(&self) -> bool {
        matches!(self.source, Source::Memory(..))
    }

    /// The locks at which threads wait now. None when the program has ended.
    pub fn look(&mut self) -> Option<Look> {
        match &mut self.source {
            Source::Profiler(profiler) => {
                let (mut lines, head) = ask(*profiler)?;
                if self.process != *profiler {
                    lines.retain(|line| line.process == self.process);
                }
                let silent = || {
                    let is_it = self.process != *profiler && !tells(self.process);
                    let why = "No wait of this process is seen: it did not load the library that tells them.";
                    if is_it { Unseen::none(why.into()) } else { None }
                };
                let (unlisted, unseen) = (head.others, Unseen::of(&head).or_else(silent));
                let is_stopped = head.is_stopped || is_stopped(self.process);
                Some(Look { locks: self.locks(&lines, recorder::now_ns()), unlisted, unseen, is_stopped })
            }
            Source::Memory(memory, since) => {
                let ((sleepers, unlisted), now_ns) = (memory.look()?, recorder::now_ns());
                let since = since.seen(&sleepers, now_ns);
                let unseen = Unseen::none("Threads that spin for a lock are not seen.".into());
                let is_stopped = is_stopped(self.process);
                Some(Look { locks: self.sleeping(&sleepers, &since, now_ns), unlisted, unseen, is_stopped })
            }
        }
    }

    /// What a thread sleeps at: which kind of lock, and the place in the program. None for another futex.
    fn called(&mut self, one: &Sleeper) -> Option<(&'static str, Site)> {
        let mut frames: Vec<Site> = Vec::new();
        for place in &one.places {
            frames.extend(self.symbols.frames(place, false).into_iter().map(Site::of));
        }
        let is_ours = |site: &Site| site.module.starts_with("libwakeful_preload");
        let first = frames.iter().position(is_ours)?;
        let ours = frames[first..].iter().take_while(|site| is_ours(site)).count();
        let kinds = [
            ("mutex", "mutex"),
            ("cond", "condition"),
            ("barrier", "barrier"),
            ("sem_", "semaphore"),
            ("lock", "rwlock"),
        ];
        let entry = &frames[first + ours - 1].name;
        let kind = kinds.iter().find(|(part, _)| entry.contains(part)).map_or("lock", |(_, kind)| kind);
        let place = frames.drain(first + ours..).find(|site| !site.is_wrapper()).unwrap_or_default();
        Some((kind, place))
    }

    fn sleeping(
        &mut self,
        sleepers: &[Sleeper],
        since: &std::collections::HashMap<u32, u64>,
        now_ns: u64,
    ) -> Vec<Lock> {
        let process = self.process;
        let mut locks: Vec<Lock> = Vec::new();
        // Those on a lock's own word first: see `where_sleeps`.
        let mut order: Vec<&Sleeper> = sleepers.iter().collect();
        order.sort_by_key(|one| one.is_own_word);
        for one in order {
            let Some((kind, place)) = self.called(one) else { continue };
            let since_ns = since.get(&one.thread).copied().unwrap_or(now_ns);
            let waits_ns = now_ns.saturating_sub(since_ns);
            let waiter = Waiter { thread: one.thread, name: name(process, one.thread), waits_ns };
            let object = if one.is_own_word { 0 } else { one.word };
            if let Some(at) = where_sleeps(&locks, kind, object, &place.label()) {
                locks[at].waiters.push(waiter);
                continue;
            }
            let holder = one.holder.filter(|_| kind == "mutex").map(|thread| Holder {
                thread,
                name: name(process, thread),
                does: kernel_says(process, thread),
                for_ns: 0,
                waits_at: None,
            });
            let (kind, waiters) = (kind.into(), vec![waiter]);
            locks.push(Lock {
                process,
                kind,
                object,
                place,
                waiters,
                holder,
                is_free: false,
                at_least: true,
            });
        }
        locks.iter_mut().for_each(|lock| lock.waiters.sort_by_key(|one| std::cmp::Reverse(one.waits_ns)));
        locks
    }

    fn place(&mut self, line: &Line) -> Site {
        let file = line.file.as_ref().map(|(path, inode)| {
            let path = PathBuf::from(path);
            Arc::new(File { path, inode: *inode })
        });
        let place = Place { file, offset: line.offset };
        let frames: Vec<Site> = self.symbols.frames(&place, false).into_iter().map(Site::of).collect();
        let own = frames.iter().position(|site| !site.is_wrapper()).unwrap_or(0);
        frames.into_iter().nth(own).unwrap_or_default()
    }

    fn locks(&mut self, lines: &[Line], now_ns: u64) -> Vec<Lock> {
        let mut groups: BTreeMap<(u32, &str, u64), Vec<&Line>> = BTreeMap::new();
        for line in lines {
            groups.entry((line.process, &line.kind, line.object)).or_default().push(line);
        }
        let at = |thread: u32| lines.iter().find(|line| line.thread == thread);
        let mut locks: Vec<Lock> = Vec::new();
        for ((process, kind, object), mut waiters) in groups {
            waiters.sort_by_key(|line| line.since_ns);
            let Some(first) = waiters.first() else { continue };
            let place = self.place(first);
            let holder = first.holder.filter(|holder| *holder != 0).map(|thread| {
                let (does, since_ns) = first.does.clone().unzip();
                // The profiler's records say no more than that it has no processor.
                let is_stopped = kernel_says(process, thread).as_deref() == Some(STOPPED);
                let (does, since_ns) =
                    if is_stopped { (Some(STOPPED.into()), None) } else { (does, since_ns) };
                let waits_at = at(thread).map(|line| {
                    let place = self.place(line);
                    format!("{}: {}", line.kind, place.label())
                });
                let for_ns = since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
                Holder { thread, name: name(process, thread), does, for_ns, waits_at }
            });
            let waiter = |line: &&Line| Waiter {
                thread: line.thread,
                name: name(process, line.thread),
                waits_ns: now_ns.saturating_sub(line.since_ns),
            };
            locks.push(Lock {
                process,
                kind: kind.into(),
                object,
                place,
                waiters: waiters.iter().map(waiter).collect(),
                is_free: first.holder == Some(0),
                at_least: false,
                holder,
            });
        }
        let longest = |lock: &Lock| lock.waiters.first().map_or(0, |one| one.waits_ns);
        locks.sort_by_key(|lock| std::cmp::Reverse(longest(lock)));
        locks
    }
}

/// Which of the locks a thread sleeps at, by the lock's word. A thread on a word of its own (0) is at the one
/// lock at which others from the same place sleep. If there are several, nobody knows which.
fn where_sleeps(locks: &[Lock], kind: &str, object: u64, place: &str) -> Option<usize> {
    let all = || locks.iter().enumerate().filter(|(_, lock)| lock.kind == kind);
    if object != 0 {
        return all().find(|(_, lock)| lock.object == object).map(|(at, _)| at);
    }
    let mut there = all().filter(|(_, lock)| lock.place.label() == place);
    match (there.next(), there.next()) {
        (Some((at, _)), None) => Some(at),
        (first, second) => {
            first.into_iter().chain(second).chain(there).find(|(_, lock)| lock.object == 0).map(|(at, _)| at)
        }
    }
}

const STOPPED: &str = "is stopped";

/// What the kernel says that a thread does.
fn kernel_says(process: u32, thread: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    let state = text.rsplit_once(") ")?.1.chars().next()?;
    let words = match state {
        'R' => "runs or has no processor",
        'S' | 'D' => "is blocked",
        'T' | 't' => STOPPED,
        _ => return None,
    };
    Some(words.into())
}

/// By a signal or a debugger: its first thread is.
fn is_stopped(process: u32) -> bool {
    kernel_says(process, process).as_deref() == Some(STOPPED)
}

/// BOUND: waiters of one lock that are named.
const MOST_WAITERS: usize = 3;

/// The look in lines, each lock with its holder and those that have waited longest.
pub fn lines(Look { locks, unlisted, unseen, is_stopped }: &Look) -> Vec<String> {
    let mut all: Vec<String> = locks.iter().flat_map(of_lock).collect();
    if *is_stopped {
        let words = "It is stopped from outside (SIGSTOP, Ctrl-Z, a debugger, a frozen control group).";
        all.insert(0, words.into());
    }
    match (unlisted, unseen) {
        (0, None) if locks.is_empty() => all.push("Nobody waits.".into()),
        (0, Some(_)) if locks.is_empty() => all.push("No thread is seen to wait.".into()),
        (0, _) => {}
        (some, _) => {
            all.push(format!("{} more threads, which may wait, too, found no room", whole(*some as u64)));
        }
    }
    if let Some(unseen) = unseen {
        all.extend(wrap(&plain(&unseen.why), WIDTH).lines().map(String::from));
    }
    all
}

/// As many of the lines as find room on the screen. The last one says how many do not.
pub fn cut_to(mut lines: Vec<String>, height: usize) -> Vec<String> {
    if lines.len() > height {
        let rest = lines.len() + 1 - height.max(1);
        lines.truncate(height.saturating_sub(1));
        lines.push(format!("and {} more lines; --once has all", whole(rest as u64)));
    }
    lines
}

fn of_lock(lock: &Lock) -> Vec<String> {
    let count = lock.waiters.len() as u64;
    let threads = if count == 1 { "thread waits" } else { "threads wait" };
    let head = format!("{}: {}", lock.kind, lock.place.label());
    let mut all = vec![format!("{}; {} {threads}", plain(&head), whole(count))];
    let holder = match &lock.holder {
        Some(holder) => {
            let does = match (&holder.waits_at, &holder.does) {
                (Some(at), _) => format!(", waits itself at the {}", plain(at)),
                (None, Some(does)) if lock.at_least || does == STOPPED => format!(", {does}"),
                (None, Some(does)) => format!(", {does} since {}", ns(holder.for_ns)),
                (None, None) => String::new(),
            };
            format!("  for {} ({}){does}", holder.name, holder.thread)
        }
        None if lock.is_free => "  for nobody: they wake up, or have no processor".into(),
        None if lock.kind.contains("barrier") || lock.kind.contains("end") => {
            "  for threads that have not come".into()
        }
        None => "  for whom is unknown".into(),
    };
    all.push(holder);
    for one in lock.waiters.iter().take(MOST_WAITERS) {
        let since = match (lock.at_least, one.waits_ns) {
            (true, 0) => ", seen for the first time".into(),
            (true, waits_ns) => format!(" since at least {}", ns(waits_ns)),
            (false, waits_ns) => format!(" since {}", ns(waits_ns)),
        };
        all.push(format!("    {} ({}){since}", one.name, one.thread));
    }
    if lock.waiters.len() > MOST_WAITERS {
        all.push(format!("    and {} more", whole((lock.waiters.len() - MOST_WAITERS) as u64)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_its_holder_and_the_longest_waits() {
        let line = |thread, object, since_ns, holder| Line {
            process: u32::MAX,
            thread,
            kind: "mutex".into(),
            object,
            since_ns,
            holder,
            does: Some(("runs".into(), 500)),
            ..Line::default()
        };
        let lines = [
            line(3, 64, 900, Some(2)),
            line(1, 64, 400, Some(2)),
            line(2, 128, 300, Some(9)),
            line(4, 256, 990, Some(0)),
        ];
        let symbols = Symbols::new(SystemTime::now());
        let mut watched = Watched { process: 1, source: Source::Profiler(2), symbols };
        let locks = watched.locks(&lines, 1_000);
        let seen: Vec<_> = locks.iter().map(|lock| (lock.object, lock.waiters[0].thread)).collect();
        assert_eq!(seen, [(128, 2), (64, 1), (256, 4)]);
        let text = super::lines(&Look { locks, ..Look::default() }).join("\n");
        for part in ["2 threads wait", "waits itself at the mutex", "runs since 500ns", "for nobody"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(super::lines(&Look::default()), ["Nobody waits."]);
        let cut = super::lines(&Look { unlisted: 7, ..Look::default() });
        assert_eq!(cut, ["7 more threads, which may wait, too, found no room"]);
    }

    #[test]
    fn what_is_not_seen_is_told() {
        let head = |one_in, processes, obstacle: Option<&str>| Head {
            one_in,
            processes,
            obstacle: obstacle.map(String::from),
            ..Head::default()
        };
        let text = |unseen| super::lines(&Look { unseen, ..Look::default() }).join("\n");
        assert_eq!(text(Unseen::of(&head([1, 1], 1, None))), "Nobody waits.");
        for (head, part) in [
            (head([8, 1], 1, None), "one of 8 waits for locks."),
            (head([1, 4], 1, None), "one of 4 waits at barriers."),
            (head([8, 1_024], 1, None), "for locks, and one of 1,024 waits at barriers."),
            (head([1, 1], 0, None), "no process has loaded"),
            (head([1, 1], 0, Some("it has\nthe bit")), "can be seen: it has the bit."),
        ] {
            let text = text(Unseen::of(&head));
            assert!(text.starts_with("No thread is seen to wait.\n"), "{text}");
            assert!(text.replace('\n', " ").contains(part), "{part}: {text}");
            assert!(text.lines().all(|line| line.len() < 80), "{text}");
        }
    }

    #[test]
    fn a_sleeper_on_a_word_of_its_own_is_at_the_one_lock_of_its_place() {
        let lock = |object, place: &str| Lock {
            process: 1,
            kind: "mutex".into(),
            object,
            place: Site { name: place.into(), ..Site::default() },
            waiters: Vec::new(),
            holder: None,
            is_free: false,
            at_least: true,
        };
        let mut locks = vec![lock(64, "put"), lock(128, "get"), lock(0, "fill")];
        let at = |locks: &[Lock], object, place| where_sleeps(locks, "mutex", object, place);
        assert_eq!((at(&locks, 128, "put"), at(&locks, 256, "put")), (Some(1), None));
        assert_eq!(
            (at(&locks, 0, "get"), at(&locks, 0, "fill"), at(&locks, 0, "other")),
            (Some(1), Some(2), None)
        );
        assert_eq!(where_sleeps(&locks, "rwlock", 0, "get"), None);
        // Two mutexes that one place locks.
        locks.push(lock(256, "put"));
        assert_eq!(at(&locks, 0, "put"), None);
        locks.push(lock(0, "put"));
        assert_eq!(at(&locks, 0, "put"), Some(4));
    }

    #[test]
    fn what_the_screen_has_no_room_for_is_counted() {
        let lines = || (0..5).map(|line| line.to_string()).collect();
        assert_eq!(cut_to(lines(), 5).len(), 5);
        assert_eq!(cut_to(lines(), 3), ["0", "1", "and 3 more lines; --once has all"]);
        assert_eq!(cut_to(lines(), 1), ["and 5 more lines; --once has all"]);
    }
}
