// SPDX-License-Identifier: MIT OR Apache-2.0
//! Was this process itself away, as one that is frozen along with the program? Nobody tells it so. But then
//! it neither ran nor waited for a processor, for much longer than it wanted to sleep. What it does between
//! two sleeps may wait for a disk, and does not count.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::now_ns;

/// BOUND: a shorter time is none: it sleeps for 10 ms.
const LEAST_NS: u64 = 100_000_000;
/// BOUND: from one question for its times to the next.
const LOOK_NS: u64 = 5_000_000;

#[derive(Debug)]
pub(crate) struct Away {
    /// Of this thread, which is the only one: how long it ran, and how long it wanted to.
    times: Option<File>,
    /// When that was asked for, and their sum then.
    before: Option<(u64, u64)>,
    /// When the last sleep began, after that.
    slept_ns: u64,
}

fn times() -> Option<File> {
    File::open("/proc/thread-self/schedstat").ok()
}

impl Default for Away {
    fn default() -> Self {
        // Where `ulimit -s` is small, another thread hears of a stop, and maybe later.
        // SAFETY: no arguments.
        let is_first = unsafe { libc::gettid() == libc::getpid() };
        Self { times: is_first.then(times).flatten(), before: None, slept_ns: u64::MAX }
    }
}

impl Away {
    /// It is about to sleep.
    pub fn sleeps(&mut self) {
        if self.before.is_none_or(|(then_ns, _)| then_ns + LOOK_NS <= now_ns()) {
            self.before = self.busy_ns().map(|busy_ns| (now_ns(), busy_ns));
        }
        self.slept_ns = now_ns();
    }

    /// Was it away in the sleep that has ended at that time?
    pub fn look(&self, woke_ns: u64) -> bool {
        let gap_ns = woke_ns.saturating_sub(self.slept_ns);
        let Some((_, before_ns)) = self.before.filter(|_| gap_ns >= LEAST_NS) else { return false };
        self.busy_ns().is_some_and(|busy_ns| is_away(gap_ns, busy_ns.saturating_sub(before_ns)))
    }

    /// For how long it has run or wanted to.
    fn busy_ns(&self) -> Option<u64> {
        let mut text = [0; 64];
        let length = self.times.as_ref()?.read_at(&mut text, 0).ok()?;
        busy_ns(&text[..length])
    }
}

/// In a gap, of which it ran or wanted to for so long at most.
fn is_away(gap_ns: u64, busy_ns: u64) -> bool {
    gap_ns >= busy_ns + LEAST_NS
}

/// The first two numbers of three. A kernel that does not count has only zeros.
fn busy_ns(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let busy_ns = numbers.next()?.ok()? + numbers.next()?.ok()?;
    (busy_ns > 0).then_some(busy_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_wants_a_processor_is_not_away() {
        const MS: u64 = 1_000_000;
        assert!(is_away(155 * MS, MS) && !is_away(95 * MS, MS) && !is_away(495 * MS, 449 * MS));
        assert_eq!((busy_ns(b"70 7 5\n"), busy_ns(b""), busy_ns(b"7")), (Some(77), None, None));
        assert_eq!(busy_ns(b"0 0 0\n"), None);
        let mut away = Away { times: times(), before: None, slept_ns: u64::MAX };
        // It has not slept yet.
        assert!(!away.look(u64::MAX));
        if away.busy_ns().is_none() {
            return;
        }
        // It has hardly run since; or wanted a processor for all that it has ever run.
        away.sleeps();
        let (slept_ns, ran_ns) = (away.slept_ns, away.busy_ns().unwrap());
        assert!(away.look(slept_ns + 3_600_000 * MS) && !away.look(slept_ns + 99 * MS));
        away.before = Some((slept_ns, 0));
        assert!(!away.look(slept_ns + 100 * MS + ran_ns / 2));
    }
}
