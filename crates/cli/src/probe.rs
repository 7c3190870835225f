// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this machine offers. Looks and tries; changes nothing.

use std::fs;
use std::io;
use std::path::Path;

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
    /// How to get it, if it is missing.
    pub remedy: Option<String>,
}

/// Processors and what limits them.
#[derive(Debug, Serialize)]
pub struct Processors {
    /// That wakeful counts on.
    pub usable: u32,
    /// That the kernel has online.
    pub online: usize,
    /// In the affinity mask, which is within the cpuset.
    pub affinity: u32,
    /// What makes the difference.
    pub limits: Vec<String>,
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

fn status(field: &str) -> Option<String> {
    read("/proc/self/status")?.lines().find_map(|line| Some(line.strip_prefix(field)?.trim().to_string()))
}

fn capability(number: u32) -> bool {
    status("CapEff:").and_then(|set| u64::from_str_radix(&set, 16).ok()).is_some_and(|set| set >> number & 1 == 1)
}

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Opens events until the kernel has enough, and closes them again: how many threads the perf view can see in one process.
fn perf_threads() -> (usize, io::Error) {
    let most = abi::MAX_THREADS - 1;
    let bytes = most * perf::RING;
    // SAFETY: a fresh anonymous mapping, wholly ours; each ring lies inside it, and all go with it.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let space = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, -1, 0);
        if space == libc::MAP_FAILED {
            return (0, io::Error::last_os_error());
        }
        let space = space.cast::<u8>();
        let mut error = io::Error::from_raw_os_error(0);
        let threads = (0..most)
            .take_while(|ring| {
                let seen = perf::attach(space.add(ring * perf::RING));
                if !seen {
                    error = io::Error::last_os_error();
                }
                seen
            })
            .count();
        libc::munmap(space.cast(), bytes);
        (threads, error)
    }
}

fn perf_view() -> View {
    let name = "perf";
    let (threads, error) = perf_threads();
    let paranoid = read("/proc/sys/kernel/perf_event_paranoid").and_then(|text| text.parse::<i32>().ok());
    let budget = read("/proc/sys/kernel/perf_event_mlock_kb").unwrap_or_else(|| "?".into());
    if threads == abi::MAX_THREADS - 1 {
        let finding = format!("yes, for all {threads} threads that a process can register");
        return View { name, available: true, finding, remedy: None };
    }
    if threads > 0 {
        let finding = format!("yes, for {threads} threads of this user at a time; those beyond run without hints");
        let remedy = format!(
            "for more threads raise the locked memory limit (ulimit -l), or perf_event_mlock_kb, now {budget}:\n\
             sudo sysctl kernel.perf_event_mlock_kb=8192"
        );
        return View { name, available: true, finding, remedy: Some(remedy) };
    }
    let filtered = status("Seccomp:").is_some_and(|mode| mode == "2");
    let (finding, remedy) = match paranoid {
        None => ("no: this kernel has no perf events".to_string(), "run a kernel with CONFIG_PERF_EVENTS".to_string()),
        Some(level) if level > 2 => (
            format!("no: kernel.perf_event_paranoid is {level}, and must be 2 or less ({error})"),
            "sudo sysctl kernel.perf_event_paranoid=2 (to keep it: a line in /etc/sysctl.d/)".to_string(),
        ),
        Some(_) if filtered => (
            format!("no: a seccomp filter is on, as in containers, and perf_event_open fails ({error})"),
            "allow perf_event_open in the container's seccomp profile".to_string(),
        ),
        Some(_) => (
            format!("no: perf_event_open or its mapping fails ({error})"),
            format!(
                "look for a limit on locked memory (ulimit -l; perf_event_mlock_kb is {budget}), other programs of\n\
                 this user that use it up, or a security module"
            ),
        ),
    };
    View { name, available: false, finding, remedy: Some(remedy) }
}

fn bpf_view() -> View {
    let name = "bpf";
    let missing = |finding: &str, remedy: &str| View {
        name,
        available: false,
        finding: format!("no: {finding}"),
        remedy: Some(remedy.to_string()),
    };
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return missing("this kernel has no type information (BTF)", "run a kernel with CONFIG_DEBUG_INFO_BTF");
    }
    if !(capability(CAP_SYS_ADMIN) || capability(CAP_BPF) && capability(CAP_PERFMON)) {
        return missing(
            "this process has neither CAP_BPF and CAP_PERFMON nor CAP_SYS_ADMIN",
            "run as root, or with the two capabilities alone:\n\
             sudo setpriv --reuid=$USER --init-groups --inh-caps=+bpf,+perfmon --ambient-caps=+bpf,+perfmon \
             wakeful run ...",
        );
    }
    View {
        name,
        available: true,
        finding: "yes: privileges and kernel type information are there".into(),
        remedy: None,
    }
}

fn none_view() -> View {
    let finding = "yes: handshakes and heuristics, nothing needed".to_string();
    View { name: "none", available: true, finding, remedy: None }
}

/// The view of this name.
pub fn view(name: &str) -> Option<View> {
    match name {
        "bpf" => Some(bpf_view()),
        "perf" => Some(perf_view()),
        "none" => Some(none_view()),
        _ => None,
    }
}

/// All views, best first.
pub fn views() -> Vec<View> {
    vec![bpf_view(), perf_view(), none_view()]
}

/// What `auto` comes to.
pub fn best_view() -> &'static str {
    views().iter().find(|view| view.available).map_or("none", |view| view.name)
}

/// sched_ext schedulers; nothing here uses them yet, the kernel may.
pub fn sched_ext() -> View {
    let state = read("/sys/kernel/sched_ext/state");
    let finding = match &state {
        Some(state) => format!("yes: the kernel has it; a scheduler of this kind is {state}"),
        None => "no: this kernel has no sched_ext".to_string(),
    };
    let remedy = state.is_none().then(|| "Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT".to_string());
    View { name: "sched_ext", available: state.is_some(), finding, remedy }
}

/// Slice extension by restartable sequences.
pub fn slice() -> View {
    const PR_RSEQ_SLICE_EXTENSION: libc::c_int = 79;
    const GET: libc::c_ulong = 1;
    // SAFETY: plain numbers; asks only.
    let (result, error) = unsafe {
        let result = libc::prctl(PR_RSEQ_SLICE_EXTENSION, GET, 0, 0, 0);
        (result, io::Error::last_os_error())
    };
    let available = result >= 0 || error.raw_os_error() != Some(libc::EINVAL);
    let release = bench::machine::kernel_release();
    let finding = if available {
        "yes: the kernel can put off a preemption that a program asks it to".to_string()
    } else {
        format!("no: Linux {release} has no slice extension")
    };
    let remedy = (!available).then(|| "Linux 7.0 or newer with CONFIG_RSEQ_SLICE_EXTENSION".to_string());
    View { name: "slice", available, finding, remedy }
}

/// Processors and limits.
pub fn processors() -> Processors {
    // SAFETY: zeros are a valid set and the kernel writes at most its size; sysconf takes a number.
    let (online, affinity) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (libc::sysconf(libc::_SC_NPROCESSORS_ONLN).max(1) as usize, libc::CPU_COUNT(&set) as u32)
    };
    // std looks at cgroup quotas, both versions, as well as at affinity.
    let quota = std::thread::available_parallelism().map_or(affinity, |count| count.get() as u32);
    let mut limits = Vec::new();
    if (affinity as usize) < online {
        limits.push(format!("affinity or cpuset leave {affinity}"));
    }
    if quota < affinity {
        limits.push(format!("a cgroup CPU quota leaves the time of {quota}"));
    }
    let usable = <linux::Linux as platform::Platform>::processors();
    Processors { usable, online, affinity, limits }
}
