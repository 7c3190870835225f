// SPDX-License-Identifier: MIT OR Apache-2.0
//! Internal control variables, and the environment variables that set them (OpenMP 5.1, sections 2.4 and 6).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use linux::Linux;
use platform::Platform;

use crate::affinity::{self, Place};
use crate::device::HOST;
use crate::dialect::is_llvm;

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
    pub threads: Vec<u32>,
    /// `OMP_PROC_BIND`, by level.
    pub binds: Vec<Bind>,
    pub places: Vec<Place>,
    pub stack: Option<usize>,
    pub cancellation: bool,
    pub max_task_priority: u32,
    /// Members with many tasks that are not done run new ones at once.
    pub throttles: bool,
    pub display_affinity: bool,
    pub affinity_format: String,
    pub wait_policy: Option<bool>,
    pub teams: u32,
    pub teams_thread_limit: u32,
    pub target_mandatory: bool,
    places_given: bool,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The program's variables, read from the environment when the first is wanted, and shown then if that is asked for. Most programs into which
/// the library is preloaded want none; and a Python program sets them before it loads what uses them.
pub fn settings() -> &'static Settings {
    SETTINGS.get_or_init(|| {
        let settings = Settings::read();
        settings.display_if_asked();
        crate::tool::complain();
        settings
    })
}

/// The value of an environment variable, without spaces around it; `None` where it is empty.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?;
    let value = OsStr::from_bytes(value.as_bytes().trim_ascii()).to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}

/// What an environment variable says; complains, on the program's standard error as OpenMP runtimes do, and uses the default, where that makes no sense.
fn parsed<T>(name: &str, expects: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let value = variable(name)?;
    let result = parse(&value);
    if result.is_none() {
        eprintln!("wakeful: {name}={value} is ignored; give {expects}");
    }
    result
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        "1" | "on" | "yes" | "enabled" | ".true." | ".t." if is_llvm() => Some(true),
        "0" | "off" | "no" | "disabled" | ".false." | ".f." if is_llvm() => Some(false),
        _ => None,
    }
}

fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

fn positive(text: &str) -> Option<u32> {
    number(text).filter(|&number| number > 0)
}

fn list<T>(text: &str, each: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(|part| each(part.trim())).collect()
}

/// `true` or `false`, or one of the others a level.
fn binds(text: &str) -> Option<Vec<Bind>> {
    match boolean(text) {
        Some(true) => Some(vec![Bind::True]),
        Some(false) => Some(vec![Bind::False]),
        None => list(text, bind),
    }
}

fn bind(text: &str) -> Option<Bind> {
    Some(match text.to_ascii_lowercase().as_str() {
        "master" | "primary" => Bind::Primary,
        "close" => Bind::Close,
        "spread" => Bind::Spread,
        _ => return None,
    })
}

fn schedule(text: &str) -> Option<Schedule> {
    let (modifier, rest) = match text.split_once(':') {
        Some((modifier, rest)) => (modifier.trim().to_ascii_lowercase(), rest),
        None => (String::new(), text),
    };
    let (kind, chunk) = match rest.split_once(',') {
        Some((kind, chunk)) => (kind, Some(chunk.trim().parse().ok().filter(|&chunk: &i32| chunk >= 0)?)),
        None => (rest, None),
    };
    let kind = match kind.trim().to_ascii_lowercase().as_str() {
        "static" => Kind::Static,
        "dynamic" => Kind::Dynamic,
        "guided" => Kind::Guided,
        "auto" => Kind::Auto,
        _ => return None,
    };
    let monotonic = match modifier.as_str() {
        "" => kind == Kind::Static && !is_llvm(),
        "monotonic" => true,
        "nonmonotonic" => false,
        _ => return None,
    };
    Some(Schedule { kind, chunk: kind.chunk(chunk), monotonic })
}

/// Bytes; without a unit, thousands of 1024.
fn size(text: &str) -> Option<usize> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "b" => 0,
        "" | "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

impl Settings {
    fn read() -> Self {
        let many = "a positive number";
        let threads =
            parsed("OMP_NUM_THREADS", "positive numbers with commas between, one a level", |text| list(text, positive))
                .unwrap_or_default();
        let binds = parsed("OMP_PROC_BIND", "true, false, or primary, close and spread, one a level", binds);
        let places = parsed("OMP_PLACES", "threads, cores, sockets, or places such as {0,1},{2,3}", affinity::places);
        let places = places.or_else(|| parsed("GOMP_CPU_AFFINITY", "processors such as 0 2-6:2", affinity::processors));
        let places = places.filter(|_| binds.as_deref() != Some(&[Bind::False]));
        let places_given = places.is_some();
        // Who names places wants threads there (OpenMP 5.1, section 6.4).
        let binds = binds.unwrap_or_else(|| if places_given { vec![Bind::True] } else { Vec::new() });
        let nested = parsed("OMP_NESTED", "true or false", boolean);
        let levels = parsed("OMP_MAX_ACTIVE_LEVELS", "a number", number);
        let several = threads.len() > 1 || binds.len() > 1;
        let levels =
            levels.unwrap_or(if nested == Some(true) || several && nested.is_none() { MOST_LEVELS } else { 1 });
        let default_schedule = match is_llvm() {
            true => Schedule { kind: Kind::Static, chunk: 0, monotonic: false },
            false => Schedule { kind: Kind::Dynamic, chunk: 1, monotonic: false },
        };
        let thread_limit = parsed("OMP_THREAD_LIMIT", many, positive).unwrap_or(u32::MAX);
        let target_mandatory = parsed("OMP_TARGET_OFFLOAD", "mandatory, disabled or default", |text| {
            match text.to_ascii_lowercase().as_str() {
                "mandatory" => Some(true),
                "disabled" | "default" => Some(false),
                _ => None,
            }
        });
        let target_mandatory = target_mandatory.unwrap_or(false);
        let initial = Icv {
            threads: threads.first().copied().unwrap_or_else(Linux::processors).min(MOST_THREADS),
            thread_limit,
            max_active_levels: levels.min(MOST_LEVELS),
            schedule: parsed(
                "OMP_SCHEDULE",
                "static, dynamic, guided or auto, and perhaps a comma and a chunk",
                schedule,
            )
            .unwrap_or(default_schedule),
            bind: binds.first().copied().unwrap_or(Bind::False),
            dynamic: parsed("OMP_DYNAMIC", "true or false", boolean).unwrap_or(false),
            device: parsed("OMP_DEFAULT_DEVICE", "a number", |text| {
                text.parse().ok().filter(|&device: &i32| device >= 0)
            })
            .unwrap_or(if target_mandatory && !is_llvm() { NO_DEVICE } else { HOST }),
            allocator: parsed("OMP_ALLOCATOR", "the name of a predefined allocator", crate::alloc::predefined)
                .unwrap_or(1),
        };
        Self {
            initial,
            threads,
            // Who binds threads and names no places means processors.
            places: match (places, binds.iter().any(|&bind| bind != Bind::False)) {
                (Some(places), _) => places,
                (None, true) => affinity::places("threads").unwrap_or_default(),
                (None, false) => Vec::new(),
            },
            binds,
            places_given,
            stack: ["OMP_STACKSIZE", "GOMP_STACKSIZE"]
                .iter()
                .find_map(|name| parsed(name, "a number, and perhaps B, K, M or G", size)),
            cancellation: parsed("OMP_CANCELLATION", "true or false", boolean).unwrap_or(false),
            max_task_priority: parsed("OMP_MAX_TASK_PRIORITY", "a number", number).unwrap_or(0),
            throttles: !is_llvm() || parsed("KMP_ENABLE_TASK_THROTTLING", "true or false", boolean).unwrap_or(true),
            display_affinity: parsed("OMP_DISPLAY_AFFINITY", "true or false", boolean).unwrap_or(false),
            affinity_format: std::env::var_os("OMP_AFFINITY_FORMAT")
                .map_or_else(|| affinity::default_format().into(), |format| format.to_string_lossy().into_owned()),
            wait_policy: parsed("OMP_WAIT_POLICY", "active or passive", |text| {
                match text.to_ascii_lowercase().as_str() {
                    "active" => Some(true),
                    "passive" => Some(false),
                    _ => None,
                }
            }),
            teams: parsed("OMP_NUM_TEAMS", many, positive).unwrap_or(0),
            teams_thread_limit: parsed("OMP_TEAMS_THREAD_LIMIT", many, positive).unwrap_or(0),
            target_mandatory,
        }
    }

    /// The variables of the tasks one level further in.
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
        let joined = |numbers: Vec<String>| numbers.join(",");
        let icv = &self.initial;
        let threads = match self.threads.len() {
            0 => icv.threads.to_string(),
            _ => joined(self.threads.iter().map(u32::to_string).collect()),
        };
        let binds = match self.binds.len() {
            0 => upper(false).to_string(),
            _ => joined(self.binds.iter().map(|bind| format!("{bind:?}").to_uppercase()).collect()),
        };
        let places = match self.places_given {
            true => joined(self.places.iter().map(Place::to_string).collect()),
            false => String::new(),
        };
        let chunk = if icv.schedule.chunk > 0 { format!(",{}", icv.schedule.chunk) } else { String::new() };
        let lines = [
            ("_OPENMP", "201511".to_string()),
            ("OMP_DYNAMIC", upper(icv.dynamic).to_string()),
            ("OMP_NESTED", upper(icv.max_active_levels > 1).to_string()),
            ("OMP_NUM_THREADS", threads),
            ("OMP_SCHEDULE", format!("{:?}{chunk}", icv.schedule.kind).to_uppercase()),
            ("OMP_PROC_BIND", binds),
            ("OMP_PLACES", places),
            ("OMP_STACKSIZE", self.stack.unwrap_or(0).to_string()),
            ("OMP_WAIT_POLICY", if self.wait_policy == Some(true) { "ACTIVE" } else { "PASSIVE" }.to_string()),
            ("OMP_THREAD_LIMIT", icv.thread_limit.to_string()),
            ("OMP_MAX_ACTIVE_LEVELS", icv.max_active_levels.to_string()),
            ("OMP_NUM_TEAMS", self.teams.to_string()),
            ("OMP_TEAMS_THREAD_LIMIT", self.teams_thread_limit.to_string()),
            ("OMP_CANCELLATION", upper(self.cancellation).to_string()),
            ("OMP_DEFAULT_DEVICE", icv.device.to_string()),
            ("OMP_MAX_TASK_PRIORITY", self.max_task_priority.to_string()),
            ("OMP_DISPLAY_AFFINITY", upper(self.display_affinity).to_string()),
            ("OMP_AFFINITY_FORMAT", self.affinity_format.clone()),
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
        let verbose = parsed("OMP_DISPLAY_ENV", "true, false or verbose", |text| {
            boolean(text).map(|show| (show, false)).or(text.eq_ignore_ascii_case("verbose").then_some((true, true)))
        });
        if let Some((true, verbose)) = verbose {
            self.display(verbose);
        }
    }
}
