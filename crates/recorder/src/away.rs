// SPDX-License-Identifier: MIT OR Apache-2.0
//! Was this process itself away, as one that is frozen along with the program? Nobody tells it so. But then
//! it neither ran nor waited for a processor, for much longer than it wanted to sleep.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// BOUND: a shorter time is none: it sleeps for 10 ms, and may wait for a disk.
const LEAST_NS: u64 = 100_000_000;
/// BOUND: from one look to the next.
const LOOK_NS: u64 = 5_000_000;

#[derive(Debug)]
pub(crate) struct Away {
    /// Of this thread, which is the only one: how long it ran, and how long it wanted to.
    times: Option<File>,
    /// When that was asked, and their sum then.
    before: Option<(u64, u64)>,
}

impl Default for Away {
    fn default() -> Self {
        Self { times: File::open("/proc/thread-self/schedstat").ok(), before: None }
    }
}

impl Away {
    /// Was it away just before that time?
    pub fn look(&mut self, now_ns: u64) -> bool {
        if self.before.is_some_and(|(then_ns, _)| now_ns < then_ns + LOOK_NS) {
            return false;
        }
        let mut text = [0; 64];
        let read = self.times.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        let Some(busy_ns) = read.and_then(|length| busy_ns(&text[..length])) else { return false };
        let before = self.before.replace((now_ns, busy_ns));
        before.is_some_and(|before| is_away(before, (now_ns, busy_ns)))
    }
}

/// A time, and for how long it had run or wanted to until then.
fn is_away((then_ns, before_ns): (u64, u64), (now_ns, busy_ns): (u64, u64)) -> bool {
    now_ns - then_ns >= busy_ns.saturating_sub(before_ns) + LEAST_NS
}

/// The first two numbers of three.
fn busy_ns(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    Some(numbers.next()?.ok()? + numbers.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_wants_a_processor_is_not_away() {
        const MS: u64 = 1_000_000;
        assert!(is_away((5 * MS, MS), (160 * MS, 2 * MS)));
        assert!(!is_away((5 * MS, MS), (100 * MS, 2 * MS)));
        assert!(!is_away((5 * MS, MS), (500 * MS, 450 * MS)));
        assert_eq!((busy_ns(b"70 7 5\n"), busy_ns(b""), busy_ns(b"7")), (Some(77), None, None));
        let mut away = Away::default();
        assert!(!away.look(5 * MS) && !away.look(6 * MS));
    }
}
