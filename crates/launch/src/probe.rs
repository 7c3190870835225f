// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this machine offers, in words. Looks and tries; changes nothing.

use std::ffi::{CStr, OsString};
use std::fs;

use linux::Status;
use linux::slice::{self, Support};
use linux::view::perf;
use serde::Serialize;

/// A kernel view, or something that adds to one.
#[derive(Debug, Serialize)]
pub struct View {
    /// Its name, as WAKEFUL_VIEW takes it where it can.
    pub name: &'static str,
    /// This process can have it.
    pub available: bool,
    /// What was found.
    pub finding: String,
    /// What it needs at all.
    pub needs: String,
    /// How to get it, or more of it.
    pub remedy: Option<String>,
}

/// Processors and what limits them.
#[derive(Debug, Serialize)]
pub struct Processors {
    /// That wakeful counts on.
    pub usable: u32,
    /// That the kernel has online.
    pub online: u32,
    /// In the affinity mask, which is within the cpuset.
    pub affinity: u32,
    /// Control group quota, in processors.
    pub quota: Option<f64>,
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

fn view_of(status: Status) -> View {
    let Status { name, available, reason, needs, remedy, .. } = status;
    View {
        name,
        available,
        finding: reason.map_or_else(|| "yes".to_string(), |reason| format!("no: {reason}")),
        needs: needs.to_string(),
        remedy: remedy.map(String::from),
    }
}

/// BOUND: more threads than this are rare, and each event takes the kernel some tens of us to open and close.
const ENOUGH_THREADS: usize = 512;

/// Tries how many threads the perf view has room for, and says how to make more.
fn with_room(view: &mut View) {
    let room = perf::room(ENOUGH_THREADS);
    if room == ENOUGH_THREADS {
        view.finding = format!("yes, for {room} threads at least");
        return;
    }
    view.available = room > 0;
    view.finding = match room {
        0 => "no: no memory may be locked for it".to_string(),
        room => format!("yes, for {room} threads of this user at a time; others run without hints"),
    };
    let now = read("/proc/sys/kernel/perf_event_mlock_kb").unwrap_or_else(|| "unknown".to_string());
    // BOUND: KiB a processor, of which the processors of a machine make one budget; 8 KiB a thread.
    view.remedy = Some(format!(
        "for more: a higher limit of locked memory (ulimit -l), or as root\n\
         \x20        sysctl kernel.perf_event_mlock_kb=32768 (now {now})"
    ));
}

/// All views, best first.
pub fn views() -> Vec<View> {
    linux::report().views.into_iter().map(view_of).collect()
}

/// All views, and what limits them; takes longer.
pub fn views_and_limits() -> Vec<View> {
    let mut views = views();
    views.iter_mut().filter(|view| view.name == "perf" && view.available).for_each(with_room);
    views
}

/// Version of the C library that we run on.
pub fn glibc_version() -> String {
    // SAFETY: returns a static C string.
    unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned()
}

/// Release of the kernel, also where there is no /proc.
pub fn kernel_release() -> String {
    // SAFETY: a structure of zeros is valid, and the call fills it with C strings.
    unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&mut names);
        CStr::from_ptr(names.release.as_ptr()).to_string_lossy().into_owned()
    }
}

/// Slice extension by restartable sequences.
pub fn slice() -> View {
    let (available, finding) = match slice::support() {
        Support::Absent => (false, format!("no: Linux {} has none", kernel_release())),
        Support::Off => (false, "no: turned off on the kernel's command line".to_string()),
        Support::Taken => (false, "no: another library has registered restartable sequences".to_string()),
        Support::TooShort => {
            let libc = glibc_version();
            (
                true,
                format!(
                    "yes, for what `wakeful run` and `bench` start: glibc {libc} registers too little,\n\
                     so they turn that off and register enough"
                ),
            )
        }
        Support::Ready => (true, "yes: the kernel puts a preemption off when asked to".to_string()),
    };
    let remedy = (available && slice::support() == Support::TooShort)
        .then(|| format!("elsewhere: {}={}=0, or glibc 2.41", slice::TUNABLES, slice::TUNABLE));
    let needs = "Linux 7.0 with CONFIG_RSEQ_SLICE_EXTENSION".to_string();
    View { name: "slice", available, finding, needs, remedy }
}

/// Does anybody act on the wishes of what we start, without being asked to?
pub fn wishes_are_heard() -> bool {
    matches!(slice::support(), Support::Ready | Support::TooShort)
}

/// The scheduler in charge that is an eBPF program, ours or another one.
fn scheduler() -> Option<String> {
    read("/sys/kernel/sched_ext/root/ops")
}

/// Is it ours? Then it acts on the wishes of what `run --scheduled` starts.
pub fn our_scheduler() -> bool {
    scheduler().is_some_and(|name| name == "wakeful")
}

/// The value of [`slice::TUNABLES`] that a program needs whose locks wish, if it is not what it inherits.
pub fn tunables() -> Option<OsString> {
    let mut value = std::env::var_os(slice::TUNABLES).unwrap_or_default();
    let chosen = value.to_string_lossy().split(':').any(|tunable| tunable.starts_with(slice::TUNABLE));
    if chosen || slice::support() != Support::TooShort {
        return None;
    }
    if !value.is_empty() {
        value.push(":");
    }
    value.push(slice::TUNABLE);
    value.push("=0");
    Some(value)
}

/// Schedulers that are eBPF programs.
pub fn sched_ext() -> View {
    let state = read("/sys/kernel/sched_ext/state");
    let finding = match (&state, scheduler()) {
        (Some(_), _) if our_scheduler() => {
            "yes: `wakeful scheduler` is in charge of what `wakeful run --scheduled` starts,\n\
             and acts on its threads' wishes and priorities"
                .to_string()
        }
        (Some(_), Some(name)) => format!("yes; the scheduler `{name}` is in charge"),
        (Some(state), None) => format!("yes; a scheduler of this kind is {state}"),
        (None, _) => "no: this kernel has none".to_string(),
    };
    let remedy = match (&state, cfg!(feature = "bpf")) {
        (Some(state), true) if state == "disabled" => {
            Some("to use it, as root: wakeful scheduler start".to_string())
        }
        (Some(_), false) => {
            Some("to use it, build with --features wakeful-cli/bpf,wakeful-preload/bpf".to_string())
        }
        _ => None,
    };
    let needs = "Linux 6.12 with CONFIG_SCHED_CLASS_EXT".to_string();
    View { name: "sched_ext", available: state.is_some(), finding, needs, remedy }
}

/// Processors and limits.
pub fn processors() -> Processors {
    let processors = linux::Processors::look();
    // SAFETY: a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as u32;
    Processors {
        usable: processors.count(),
        online,
        affinity: processors.affinity,
        quota: processors.quota_milli.map(|milli| milli as f64 / 1000.0),
    }
}
