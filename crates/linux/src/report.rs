// SPDX-License-Identifier: MIT OR Apache-2.0
//! What there is to tell a person about the views and processors, as data.

use std::fs;

use abi::View;

use crate::view::{Request, perf};
use crate::{Processors, registry, server};

/// One view on this machine, for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which.
    pub view: View,
    /// Its name in [`crate::view::NAMES`].
    pub name: &'static str,
    /// Can this process have it?
    pub available: bool,
    /// Why not, if not.
    pub reason: Option<String>,
    /// What it needs at all.
    pub needs: &'static str,
    /// What a person can do to get it, if it is not available and something can be done.
    pub remedy: Option<&'static str>,
}

/// See [`report`].
#[derive(Clone, Debug)]
pub struct Report {
    /// What the environment asks for.
    pub requested: Request,
    /// The view in use; `None` until a thread has registered or [`crate::init`] chose bpf.
    pub chosen: Option<View>,
    /// Why [`crate::init`] did not choose bpf, if it tried.
    pub init_error: Option<String>,
    /// All views, best first.
    pub views: Vec<Status>,
    /// Threads registered now.
    pub registered: u32,
    /// Of these, threads that the view does not see: for want of locked memory or permission.
    pub unseen: u32,
    /// Times that a search for a free block found none; above 0, there were more threads than blocks.
    pub turned_away: u32,
    /// Processors, and where the number comes from.
    pub processors: Processors,
}

fn init_error() -> Option<String> {
    Some(crate::REFUSED.lock().ok()?.as_ref()?.to_string())
}

fn bpf_status(chosen: Option<View>) -> (Option<String>, Option<&'static str>) {
    if chosen == Some(View::Bpf) || server::lends() {
        return (None, None);
    }
    own_bpf_status()
}

#[cfg(feature = "bpf")]
fn own_bpf_status() -> (Option<String>, Option<&'static str>) {
    match bpf::Observer::load() {
        Ok(_) => (None, None),
        Err(error @ bpf::Error::NotPermitted) => (
            Some(error.to_string()),
            Some(
                "run as root, or grant the capabilities cap_bpf and cap_perfmon;\nor, as root, start wakefuld: it lends its programs an observer",
            ),
        ),
        Err(error) => (Some(error.to_string()), None),
    }
}

#[cfg(not(feature = "bpf"))]
fn own_bpf_status() -> (Option<String>, Option<&'static str>) {
    (
        Some("this build loads none, and no processor server lends one".into()),
        Some("as root, start wakefuld, built with the cargo feature bpf; or build with it here"),
    )
}

/// The signal that ends whoever opens an event, if one does: a seccomp filter may kill. Tried in a child.
fn deadly() -> Option<i32> {
    let mut status = 0;
    // SAFETY: the child only makes system calls; a live pointer.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            let _ = perf::probe();
            libc::_exit(0);
        }
        while child > 0 && libc::waitpid(child, &mut status, 0) != child {
            if *libc::__errno_location() != libc::EINTR {
                return None;
            }
        }
    }
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

fn perf_status() -> (Option<String>, Option<&'static str>) {
    if let Some(signal) = deadly() {
        let by = if signal == libc::SIGSYS { "a seccomp filter".into() } else { format!("signal {signal}") };
        return (
            Some(format!("{by} ends a program that calls perf_event_open")),
            Some("allow perf_event_open in that filter; until then WAKEFUL_VIEW=none is needed"),
        );
    }
    let Err(error) = perf::probe() else { return (None, None) };
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let level: Option<i32> = level.and_then(|text| text.trim().parse().ok());
    match (error.raw_os_error(), level) {
        (Some(libc::EACCES | libc::EPERM), Some(level)) if level > 2 => (
            Some(format!("kernel.perf_event_paranoid is {level}")),
            Some("as root: sysctl kernel.perf_event_paranoid=2"),
        ),
        (Some(libc::EACCES | libc::EPERM | libc::ENOSYS), _) => (
            Some(format!("perf_event_open is forbidden ({error}), probably by a seccomp filter")),
            Some("allow perf_event_open in the container's seccomp profile"),
        ),
        _ => (Some(format!("perf_event_open: {error}")), None),
    }
}

/// Looks at everything now. Tries each view, and so may load an eBPF program for a moment; allocates; takes milliseconds.
pub fn report() -> Report {
    let status = |view, name, needs, (reason, remedy): (Option<String>, _)| Status {
        view,
        name,
        available: reason.is_none(),
        reason,
        needs,
        remedy,
    };
    let live = registry::live();
    let (registered, unseen, turned_away) = live.map_or((0, 0, 0), |registry| registry.census());
    let chosen = live.map(|registry| registry.view());
    Report {
        requested: Request::from_environment(),
        chosen,
        init_error: init_error(),
        views: vec![
            status(
                View::Bpf,
                "bpf",
                "root, or CAP_BPF and CAP_PERFMON, when loaded, or a wakefuld that lends its observer; Linux 5.17 with BTF (5.19 without privilege afterwards)",
                bpf_status(chosen),
            ),
            status(
                View::Perf,
                "perf",
                "kernel.perf_event_paranoid of at most 2; 8 KiB of lockable memory a thread",
                perf_status(),
            ),
            status(View::None, "none", "nothing", (None, None)),
        ],
        registered,
        unseen,
        turned_away,
        processors: Processors::look(),
    }
}
