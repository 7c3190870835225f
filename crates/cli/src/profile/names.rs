// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names for places in the program, and for what lies there.

use std::collections::{BTreeSet, HashMap};

use launch::interposer::PROFILE_NAME;
use recorder::maps::Place;
use recorder::profile::{Class, Key, Profile};
use recorder::symbols::{Frame, Symbols, Variable};
use serde::Serialize;

/// A place in the program.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Site {
    pub name: String,
    pub line: Option<String>,
    pub module: String,
    pub address: u64,
    pub build_id: Option<String>,
    pub waits: u64,
    pub waited_ns: u64,
}

/// Places, each looked up once.
pub struct Names {
    symbols: Symbols,
    known: HashMap<Place, Vec<Site>>,
}

impl Names {
    pub fn new(profile: &Profile) -> Self {
        let processes: BTreeSet<u32> = profile.account.ended.iter().map(|one| one.process).collect();
        Self { symbols: Symbols::new(profile.began).with_made_by(processes), known: HashMap::new() }
    }

    /// The functions at a place, innermost first.
    fn frames(&mut self, place: &Place) -> &[Site] {
        let symbols = &mut self.symbols;
        self.known
            .entry(place.clone())
            .or_insert_with(|| symbols.frames(place, false).into_iter().map(Site::of).collect())
    }

    /// The same for a caller. Our own library calls the functions of OpenMP's regions.
    fn caller(&mut self, place: &Place) -> &[Site] {
        let all = self.frames(place);
        if all.iter().any(|site| site.module == PROFILE_NAME) { &[] } else { all }
    }

    /// The function that waits there, and those that called it. What belongs to a lock is left out, if what
    /// is behind it is known.
    pub fn of(&mut self, profile: &Profile, key: Key, site: u32) -> (Site, Vec<Site>) {
        let Some(place) = profile.sites.get(site as usize) else {
            return (Site { name: ELSEWHERE.into(), ..Site::default() }, Vec::new());
        };
        let mut all = self.frames(place).to_vec();
        let seen = profile.callers.get(&(key, site));
        let most = seen.and_then(|seen| seen.iter().max_by_key(|(_, count)| **count));
        for caller in most.map_or(&[][..], |(callers, _)| callers) {
            all.extend_from_slice(self.caller(caller));
        }
        let own = all.iter().position(|site| !site.is_wrapper()).unwrap_or(0);
        let callers = all.split_off((own + 1).min(all.len()));
        (all.pop().unwrap_or_default(), callers)
    }

    /// The variable that is waited at, or that it is a part of.
    pub fn variable(&mut self, profile: &Profile, key: Key) -> Option<Variable> {
        self.symbols.variable(profile.lies.get(&key)?)
    }

    /// The function at a place, without its callers.
    pub fn site(&mut self, profile: &Profile, site: u32) -> Site {
        let place = profile.sites.get(site as usize);
        let own = place.and_then(|place| self.frames(place).first().cloned());
        own.unwrap_or_else(|| Site { name: ELSEWHERE.into(), ..Site::default() })
    }

    /// The innermost function of a stack that is the program's own, and not the C library's or a lock's.
    pub fn caller_of(&mut self, places: &[Place]) -> Site {
        let mut all: Vec<Site> = Vec::new();
        for place in places {
            all.extend_from_slice(self.caller(place));
        }
        let is_own = |site: &&Site| !site.is_wrapper() && !site.is_library();
        all.iter().find(is_own).or(all.first()).cloned().unwrap_or_default()
    }

    /// The function that waits there by locks of its own, without those locks. None if it waits in an OpenMP
    /// runtime, for the next region, or at a lock that is seen: not each of these waits is told.
    pub fn waits_in(&mut self, places: &[Place]) -> Option<Site> {
        let mut all: Vec<Site> = Vec::new();
        for place in places {
            all.extend_from_slice(self.frames(place));
        }
        if all.iter().any(|site| site.is_openmp() || SEEN.contains(&site.module.as_str())) {
            return None;
        }
        let is_lock = |site: &Site| LOCKS.iter().any(|lock| site.name.contains(lock));
        let own = all.iter().find(|site| !site.is_library() && !site.is_wrapper() && !is_lock(site));
        Some(own.or(all.last()).cloned().unwrap_or_default())
    }

    /// The same with those that called it, innermost first; and nothing of the C library, if there is more.
    pub fn own_stack(&mut self, places: &[Place]) -> Vec<Site> {
        let mut all: Vec<Site> = Vec::new();
        for place in places {
            all.extend_from_slice(self.caller(place));
        }
        let is_own = |site: &Site| !site.is_wrapper() && !site.is_library();
        if all.iter().any(is_own) {
            all.retain(is_own);
        }
        all
    }

    /// The names of all functions at a place, outermost first.
    pub fn functions(&mut self, profile: &Profile, site: u32) -> Vec<String> {
        match profile.sites.get(site as usize) {
            Some(place) => self.of_places(std::slice::from_ref(place)),
            None => vec![ELSEWHERE.into()],
        }
    }

    /// The same of a stack, of which the places are innermost first.
    pub fn of_places(&mut self, places: &[Place]) -> Vec<String> {
        let mut all = Vec::new();
        for place in places {
            all.extend(self.caller(place).iter().map(|site| site.name.clone()));
        }
        all.reverse();
        all
    }
}

/// A place beyond those that are told apart.
const ELSEWHERE: &str = "elsewhere";

/// Files through which a program waits at the locks that are seen.
const SEEN: &[&str] = &[PROFILE_NAME, "libwakeful_preload.so"];

/// Parts of the names of functions in locks that are not pthread's.
const LOCKS: &[&str] = &["std::sync", "std::sys", "core::", "std::thread::park", "parking_lot", "futex"];

/// Functions around a lock that say nothing of who locks.
const WRAPPERS: &[&str] = &[
    "__gthread",
    "std::mutex::",
    "std::recursive_mutex::",
    "std::timed_mutex::",
    "std::__mutex_base",
    "std::unique_lock",
    "std::lock_guard",
    "std::scoped_lock",
    "std::condition_variable::",
    "std::__condvar",
    "std::shared_mutex::",
    "std::__shared_mutex",
];

impl Site {
    /// Without a count of waits.
    pub fn of(frame: Frame) -> Self {
        Self {
            name: frame.name(),
            line: frame.short_line(),
            module: frame.module,
            address: frame.address,
            build_id: frame.build_id,
            ..Self::default()
        }
    }

    /// Is it a part of the lock, and not who locks?
    pub fn is_wrapper(&self) -> bool {
        let library = ["libstdc++.so", "libc++.so"].iter().any(|name| self.module.starts_with(name));
        library || WRAPPERS.iter().any(|wrapper| self.name.starts_with(wrapper))
    }

    /// Does it belong to an OpenMP runtime?
    fn is_openmp(&self) -> bool {
        ["libgomp", "libomp", "libiomp"].iter().any(|name| self.module.starts_with(name))
    }

    /// Does it belong to the C library?
    fn is_library(&self) -> bool {
        ["libc.so", "libc-", "ld-linux", "[vdso]"].iter().any(|name| self.module.starts_with(name))
    }

    /// As a sentence has it: where there is no name, that it has none.
    pub fn said(&self) -> String {
        let none = if self.name.contains("+0x") { " (no symbol)" } else { "" };
        self.label() + none
    }

    /// Name and line; without a line, name and file.
    pub fn label(&self) -> String {
        match &self.line {
            Some(line) => format!("{} {line}", self.name),
            None if self.module.is_empty() || self.name.starts_with(&self.module) => self.name.clone(),
            None => format!("{} {}", self.name, self.module),
        }
    }
}

/// As messages have it.
pub fn kind(class: Class) -> &'static str {
    match class {
        Class::Mutex => "mutex",
        Class::Spin => "spin lock",
        Class::Rwlock => "rwlock",
        Class::Semaphore => "semaphore",
        Class::Cond => "condition",
        Class::Barrier => "barrier",
        Class::Region => "region's end",
        Class::Team => "OpenMP barrier",
        Class::Critical => "critical",
    }
}
