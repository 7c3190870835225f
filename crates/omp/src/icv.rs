// SPDX-License-Identifier: MIT OR Apache-2.0
//! Internal control variables, and the environment variables that set them (OpenMP 5.1, sections 2.4 and 6).

use std::ffi::{CStr, c_int};
use std::fmt::{self, Display};
use std::sync::OnceLock;

use catalog::{NamedBarrier, named_barrier};
use linux::Linux;
use platform::Platform;

use crate::dialect::is_llvm;
use crate::memory::{List, Text};
use crate::places::{self, Place};
use crate::text::{Shown, environment, joined, word};

/// The host's number, after those of the devices.
pub const HOST: c_int = 0;

/// The number of a predefined allocator.
pub fn predefined(name: &str) -> Option<usize> {
    const NAMES: [&str; 8] = [
        "omp_default_mem_alloc",
        "omp_large_cap_mem_alloc",
        "omp_const_mem_alloc",
        "omp_high_bw_mem_alloc",
        "omp_low_lat_mem_alloc",
        "omp_cgroup_mem_alloc",
        "omp_pteam_mem_alloc",
        "omp_thread_mem_alloc",
    ];
    NAMES.iter().position(|known| name.eq_ignore_ascii_case(known)).map(|index| index + 1)
}

/// How the iterations of a loop are shared out; numbers as in `omp_sched_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    Static = 1,
    Dynamic = 2,
    Guided = 3,
    Auto = 4,
}

/// The bit of `omp_sched_t` beside the kind.
pub const MONOTONIC: u32 = 1 << 31;

impl Kind {
    pub fn from_u32(kind: u32) -> Option<Self> {
        Some(match kind {
            1 => Self::Static,
            2 => Self::Dynamic,
            3 => Self::Guided,
            4 => Self::Auto,
            _ => return None,
        })
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Static => "STATIC",
            Self::Dynamic => "DYNAMIC",
            Self::Guided => "GUIDED",
            Self::Auto => "AUTO",
        }
    }

    /// The chunk of a task's variable, from that which is asked for. Only a static schedule may be without,
    /// and LLVM's runtime gives `auto` none.
    pub fn chunk(self, wanted: Option<i32>) -> i32 {
        match (self, wanted) {
            (Self::Static, wanted) => wanted.unwrap_or(0).max(0),
            (Self::Auto, _) if is_llvm() => 1,
            (_, wanted) => wanted.unwrap_or(1).max(1),
        }
    }
}

/// What `schedule(runtime)` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub kind: Kind,
    /// 0: none given.
    pub chunk: i32,
    pub monotonic: bool,
}

/// Where the threads of a team go; numbers as in `omp_proc_bind_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bind {
    False = 0,
    True = 1,
    Primary = 2,
    Close = 3,
    Spread = 4,
}

impl Bind {
    fn name(self) -> &'static str {
        match self {
            Self::False => "FALSE",
            Self::True => "TRUE",
            Self::Primary => "PRIMARY",
            Self::Close => "CLOSE",
            Self::Spread => "SPREAD",
        }
    }

    pub fn from_u32(bind: u32) -> Option<Self> {
        [Self::False, Self::True, Self::Primary, Self::Close, Self::Spread].get(bind as usize).copied()
    }
}

/// The variables of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Icv {
    pub threads: u32,
    pub thread_limit: u32,
    pub max_active_levels: u32,
    pub schedule: Schedule,
    pub bind: Bind,
    pub dynamic: bool,
    pub device: i32,
    pub allocator: usize,
}

/// Active levels at most; more would not be told from it.
pub const MOST_LEVELS: u32 = 255;
/// Threads of a team at most: the barrier has room for 12,287 parties, and tasks need one.
pub const MOST_THREADS: u32 = 8192;

/// `omp_invalid_device`: what is meant where no number is given, and only devices other than the host will
/// do.
const NO_DEVICE: i32 = -4;

/// The variables of the program.
pub struct Settings {
    /// What the initial task starts with.
    pub initial: Icv,
    /// `OMP_NUM_THREADS`, by level.
    pub threads: List<u32>,
    /// `OMP_PROC_BIND`, by level.
    pub binds: List<Bind>,
    pub places: List<Place>,
    pub stack: Option<usize>,
    pub cancellation: bool,
    pub max_task_priority: u32,
    /// Members with many tasks that are not done run new ones at once.
    pub throttles: bool,
    pub display_affinity: bool,
    pub affinity_format: Text,
    pub wait_policy: Option<bool>,
    /// Another barrier than the default.
    pub barrier: Option<&'static NamedBarrier>,
    pub teams: u32,
    pub teams_thread_limit: u32,
    pub target_mandatory: bool,
    places_given: bool,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The program's variables, read from the environment when the first is wanted, and shown then if that is
/// asked for. Most programs into which the library is preloaded want none; and a Python program sets them
/// before it loads what uses them.
#[inline]
pub fn settings() -> &'static Settings {
    SETTINGS.get_or_init(|| {
        let settings = Settings::read();
        settings.display_if_asked();
        crate::tool::complain();
        settings
    })
}

/// What an environment variable says, without spaces around it. An empty one is none. One that makes no
/// sense is named on stderr, as OpenMP runtimes do, and the default holds.
fn parsed<T>(name: &CStr, expects: &str, parse: impl FnOnce(&'static str) -> Option<T>) -> Option<T> {
    let value = environment(name)?.trim_ascii();
    if value.is_empty() {
        return None;
    }
    let result = std::str::from_utf8(value).ok().and_then(parse);
    if result.is_none() {
        eprintln!("wakeful: {}={} is ignored; give {expects}", Shown(name.to_bytes()), Shown(value));
    }
    result
}

fn boolean(text: &str) -> Option<bool> {
    let known = word(text, &[("true", true), ("false", false)]);
    let truths = ["1", "on", "yes", "enabled", ".true.", ".t."];
    let untruths = ["0", "off", "no", "disabled", ".false.", ".f."];
    let is_one = |words: [&str; 6]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match known {
        None if is_llvm() && is_one(truths) => Some(true),
        None if is_llvm() && is_one(untruths) => Some(false),
        known => known,
    }
}

fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

fn positive(text: &str) -> Option<u32> {
    number(text).filter(|&number| number > 0)
}

/// `None` also where there is no memory.
fn list<T>(text: &str, each: impl Fn(&str) -> Option<T>) -> Option<List<T>> {
    let mut list = List::new();
    for part in text.split(',') {
        list.push(each(part.trim())?).then_some(())?;
    }
    Some(list)
}

/// `true` or `false`, or one of the others a level.
fn binds(text: &str) -> Option<List<Bind>> {
    match boolean(text) {
        Some(all) => List::wished(1, |_| if all { Bind::True } else { Bind::False }),
        None => list(text, bind),
    }
}

fn bind(text: &str) -> Option<Bind> {
    word(
        text,
        &[
            ("master", Bind::Primary),
            ("primary", Bind::Primary),
            ("close", Bind::Close),
            ("spread", Bind::Spread),
        ],
    )
}

fn schedule(text: &str) -> Option<Schedule> {
    let (modifier, rest) = match text.split_once(':') {
        Some((modifier, rest)) => (modifier.trim(), rest),
        None => ("", text),
    };
    let (kind, chunk) = match rest.split_once(',') {
        Some((kind, chunk)) => (kind, Some(chunk.trim().parse().ok().filter(|&chunk: &i32| chunk >= 0)?)),
        None => (rest, None),
    };
    const KINDS: [(&str, Kind); 4] = [
        ("static", Kind::Static),
        ("dynamic", Kind::Dynamic),
        ("guided", Kind::Guided),
        ("auto", Kind::Auto),
    ];
    let kind = word(kind.trim(), &KINDS)?;
    let monotonic = match modifier {
        "" => kind == Kind::Static && !is_llvm(),
        _ => word(modifier, &[("monotonic", true), ("nonmonotonic", false)])?,
    };
    Some(Schedule { kind, chunk: kind.chunk(chunk), monotonic })
}

/// Bytes; without a unit, thousands of 1024.
fn size(text: &str) -> Option<usize> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = word(unit.trim(), &[("b", 0), ("", 10), ("k", 10), ("m", 20), ("g", 30)])?;
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

impl Icv {
    /// Those of the initial task, as the environment has them.
    fn read(threads: &[u32], binds: &[Bind], target_mandatory: bool) -> Self {
        let nested = parsed(c"OMP_NESTED", "true or false", boolean);
        let levels = parsed(c"OMP_MAX_ACTIVE_LEVELS", "a number", number);
        let several = threads.len() > 1 || binds.len() > 1;
        let levels = levels.unwrap_or(if nested == Some(true) || several && nested.is_none() {
            MOST_LEVELS
        } else {
            1
        });
        let default_schedule = match is_llvm() {
            true => Schedule { kind: Kind::Static, chunk: 0, monotonic: false },
            false => Schedule { kind: Kind::Dynamic, chunk: 1, monotonic: false },
        };
        let thread_limit = parsed(c"OMP_THREAD_LIMIT", "a positive number", positive).unwrap_or(u32::MAX);
        Self {
            threads: threads.first().copied().unwrap_or_else(Linux::processors).min(MOST_THREADS),
            thread_limit,
            max_active_levels: levels.min(MOST_LEVELS),
            schedule: parsed(
                c"OMP_SCHEDULE",
                "static, dynamic, guided or auto, and perhaps a comma and a chunk",
                schedule,
            )
            .unwrap_or(default_schedule),
            bind: binds.first().copied().unwrap_or(Bind::False),
            dynamic: parsed(c"OMP_DYNAMIC", "true or false", boolean).unwrap_or(false),
            device: parsed(c"OMP_DEFAULT_DEVICE", "a number", |text| {
                text.parse().ok().filter(|&device: &i32| device >= 0)
            })
            .unwrap_or(if target_mandatory && !is_llvm() { NO_DEVICE } else { HOST }),
            allocator: parsed(c"OMP_ALLOCATOR", "the name of a predefined allocator", predefined)
                .unwrap_or(1),
        }
    }
}

impl Settings {
    fn read() -> Self {
        let many = "a positive number";
        let threads =
            parsed(c"OMP_NUM_THREADS", "positive numbers with commas between, one a level", |text| {
                list(text, positive)
            })
            .unwrap_or_default();
        let binds = parsed(c"OMP_PROC_BIND", "true, false, or primary, close and spread, one a level", binds);
        let places =
            parsed(c"OMP_PLACES", "threads, cores, sockets, or places such as {0,1},{2,3}", places::places);
        let places =
            places.or_else(|| parsed(c"GOMP_CPU_AFFINITY", "processors such as 0 2-6:2", places::processors));
        let places = places.filter(|_| binds.as_deref() != Some(&[Bind::False][..]));
        let places_given = places.is_some();
        // Who names places wants threads there (OpenMP 5.1, section 6.4).
        let binds = binds.unwrap_or_else(|| {
            let own = places_given.then(|| List::wished(1, |_| Bind::True));
            own.flatten().unwrap_or_default()
        });
        let target_mandatory = parsed(c"OMP_TARGET_OFFLOAD", "mandatory, disabled or default", |text| {
            word(text, &[("mandatory", true), ("disabled", false), ("default", false)])
        });
        let target_mandatory = target_mandatory.unwrap_or(false);
        let initial = Icv::read(&threads, &binds, target_mandatory);
        Self {
            initial,
            threads,
            // Who binds threads and names no places means processors.
            places: match (places, binds.iter().any(|&bind| bind != Bind::False)) {
                (Some(places), _) => places,
                (None, true) => places::places("threads").unwrap_or_default(),
                (None, false) => List::new(),
            },
            binds,
            places_given,
            stack: [c"OMP_STACKSIZE", c"GOMP_STACKSIZE"]
                .iter()
                .find_map(|name| parsed(name, "a number, and perhaps B, K, M or G", size)),
            cancellation: parsed(c"OMP_CANCELLATION", "true or false", boolean).unwrap_or(false),
            max_task_priority: parsed(c"OMP_MAX_TASK_PRIORITY", "a number", number).unwrap_or(0),
            throttles: !is_llvm()
                || parsed(c"KMP_ENABLE_TASK_THROTTLING", "true or false", boolean).unwrap_or(true),
            display_affinity: parsed(c"OMP_DISPLAY_AFFINITY", "true or false", boolean).unwrap_or(false),
            affinity_format: match environment(c"OMP_AFFINITY_FORMAT") {
                Some(format) => Text::of(Shown(format)),
                None => Text::of(places::default_format()),
            },
            wait_policy: parsed(c"OMP_WAIT_POLICY", "active or passive", |text| {
                word(text, &[("active", true), ("passive", false)])
            }),
            barrier: barrier(),
            teams: parsed(c"OMP_NUM_TEAMS", many, positive).unwrap_or(0),
            teams_thread_limit: parsed(c"OMP_TEAMS_THREAD_LIMIT", many, positive).unwrap_or(0),
            target_mandatory,
        }
    }

    /// The variables of the tasks one level further in.
    #[inline]
    pub fn inherit(&self, mut icv: Icv, level: u32) -> Icv {
        if let Some(&threads) = self.threads.get(level as usize) {
            icv.threads = threads.min(MOST_THREADS);
        }
        if let Some(&bind) = self.binds.get(level as usize) {
            icv.bind = bind;
        }
        icv
    }

    /// What `OMP_DISPLAY_ENV` asks for (OpenMP 5.1, section 6.12).
    pub fn display(&self, verbose: bool) {
        let upper = |value: bool| if value { "TRUE" } else { "FALSE" };
        let icv = &self.initial;
        let threads = fmt::from_fn(|f| match self.threads.len() {
            0 => write!(f, "{}", icv.threads),
            _ => joined(f, self.threads.iter()),
        });
        let binds = fmt::from_fn(|f| match self.binds.len() {
            0 => f.write_str(upper(false)),
            _ => joined(f, self.binds.iter().map(|bind| bind.name())),
        });
        let places = fmt::from_fn(|f| if self.places_given { joined(f, self.places.iter()) } else { Ok(()) });
        let schedule = fmt::from_fn(|f| {
            f.write_str(icv.schedule.kind.name())?;
            if icv.schedule.chunk > 0 { write!(f, ",{}", icv.schedule.chunk) } else { Ok(()) }
        });
        let wait_policy = if self.wait_policy == Some(true) { "ACTIVE" } else { "PASSIVE" };
        let lines: [(&str, &dyn Display); 18] = [
            ("_OPENMP", &"201511"),
            ("OMP_DYNAMIC", &upper(icv.dynamic)),
            ("OMP_NESTED", &upper(icv.max_active_levels > 1)),
            ("OMP_NUM_THREADS", &threads),
            ("OMP_SCHEDULE", &schedule),
            ("OMP_PROC_BIND", &binds),
            ("OMP_PLACES", &places),
            ("OMP_STACKSIZE", &self.stack.unwrap_or(0)),
            ("OMP_WAIT_POLICY", &wait_policy),
            ("OMP_THREAD_LIMIT", &icv.thread_limit),
            ("OMP_MAX_ACTIVE_LEVELS", &icv.max_active_levels),
            ("OMP_NUM_TEAMS", &self.teams),
            ("OMP_TEAMS_THREAD_LIMIT", &self.teams_thread_limit),
            ("OMP_CANCELLATION", &upper(self.cancellation)),
            ("OMP_DEFAULT_DEVICE", &icv.device),
            ("OMP_MAX_TASK_PRIORITY", &self.max_task_priority),
            ("OMP_DISPLAY_AFFINITY", &upper(self.display_affinity)),
            ("OMP_AFFINITY_FORMAT", &self.affinity_format.as_str()),
        ];
        eprintln!("\nOPENMP DISPLAY ENVIRONMENT BEGIN");
        for (index, (name, value)) in lines.iter().enumerate() {
            eprintln!("  {}{name} = '{value}'", if index == 0 { "" } else { "[host] " });
        }
        if verbose {
            eprintln!("  [host] WAKEFUL_PROCESSORS = '{}'", Linux::processors());
        }
        eprintln!("OPENMP DISPLAY ENVIRONMENT END");
    }

    /// What `OMP_DISPLAY_ENV` asks for.
    fn display_if_asked(&self) {
        let verbose = parsed(c"OMP_DISPLAY_ENV", "true, false or verbose", |text| {
            boolean(text)
                .map(|show| (show, false))
                .or(text.eq_ignore_ascii_case("verbose").then_some((true, true)))
        });
        if let Some((true, verbose)) = verbose {
            self.display(verbose);
        }
    }
}

/// The kind that `WAKEFUL_BARRIER` names; `None` for the default, and for what is no name.
fn barrier() -> Option<&'static NamedBarrier> {
    linux::server::variable(linux::environment::BARRIER, |name| {
        let name = core::str::from_utf8(name).ok().filter(|&name| name != "b-wakeful")?;
        named_barrier::<Linux>(name)
    })
}
