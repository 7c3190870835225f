// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the record does not show, and how the verdict says so.

use crate::format::percent;
use crate::profile::summary::Summary;

/// BOUND: locks that are not seen are told from this part of the threads' time on, and from so many looks.
const ELSEWHERE: f64 = 0.10;
const ELSEWHERE_LOOKS: u32 = 3;

/// Locks that are not seen here took a part of the time that matters.
pub(super) fn elsewhere(summary: &Summary, all_ns: u64) -> Option<String> {
    let part = summary.elsewhere_ns as f64 / all_ns.max(1) as f64;
    if part < ELSEWHERE || summary.elsewhere_looks < ELSEWHERE_LOOKS {
        return None;
    }
    let place = summary.elsewhere_in.as_ref().map_or(String::new(), |place| format!(", mostly in {place}"));
    Some(format!(
        "For some {} of thread time, threads were blocked in futex(2) outside of the locks that are seen \
         here{place}: locks and queues of its own, as those of Rust's std, parking_lot, Go or malloc. \
         Nothing is known of their holders.",
        percent(part.min(1.0))
    ))
}

/// Why no wait of the program is seen, if that is so: the cause, the words and the advice.
pub(super) fn unseen(summary: &Summary) -> Option<(&'static str, String, String)> {
    let (words, advice) = if summary.obstacle.is_some() {
        match summary.is_hidden {
            true => (
                "the program has other rights than you: its threads are hidden, and nothing is preloaded.",
                "Run `wakeful profile` as the user to whom the program changes, by su or sudo. Or profile a \
                 copy of its file: cp(1) drops the set-user-ID bit.",
            ),
            false => (
                "the waits of this program cannot be seen.",
                "The times of its threads are all that is known.",
            ),
        }
    } else if summary.processes_elsewhere > 0 {
        (
            "a process runs in another PID namespace, and its waits cannot be seen.",
            "Run `wakeful profile` inside the container.",
        )
    } else if summary.processes_unmapped > 0 {
        (
            "a process could not map the memory for its events.",
            "Does ulimit -v or mlockall forbid 256 MB that are mostly holes?",
        )
    } else if summary.processes == 0 {
        (
            "the program did not load the library that tells the waits.",
            if std::path::Path::new("/proc/self").exists() {
                "Is LD_PRELOAD removed on the way, does another user's program start, or is /proc hidden?"
            } else {
                "Its library and this command meet in /proc, and there is none here: mount it."
            },
        )
    } else {
        return None;
    };
    Some(("unknown", format!("none: {words}"), advice.into()))
}

/// That programs which it started tell nothing, if there are such: in words that end a sentence.
pub(super) fn silent(summary: &Summary) -> Option<String> {
    let (some, tell) = match summary.programs_silent {
        0 => return None,
        1 => ("a program that it started".into(), "tells nothing of its waits: it is"),
        many => (format!("{many} programs that it started"), "tell nothing of their waits: each is"),
    };
    Some(format!(
        "none: {some} {tell} static, set-user-ID, or without our library, or /proc is hidden there."
    ))
}
