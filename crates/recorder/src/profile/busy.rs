// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long each processor was busy, whoever had it: `/proc/stat`.
//!
//! The kernel counts in ticks of 10 ms, and whom a tick finds has all of it. So nobody knows it of a short
//! time, nor where the file is hidden.

use std::fs;

use crate::fast::HashMap;

/// BOUND: in a shorter time there are too few ticks.
pub const LEAST_NS: u64 = 100_000_000;

/// By processor, in ns since the machine began.
#[derive(Debug, Default)]
pub(super) struct Busy(HashMap<u32, u64>);

impl Busy {
    pub fn look() -> Self {
        // SAFETY: asks for a number.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let tick_ns = 1_000_000_000 / u64::try_from(ticks).unwrap_or(100).max(1);
        fs::read_to_string("/proc/stat").map_or(Self::default(), |text| Self::parse(&text, tick_ns))
    }

    fn parse(text: &str, tick_ns: u64) -> Self {
        let processor = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
            let number = words.next()?.parse().ok()?;
            // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
            let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
            let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
            Some((number, (ticks.iter().sum::<u64>() - idle) * tick_ns))
        };
        Self(text.lines().filter_map(processor).collect())
    }

    /// These processors together, since an earlier look, which was so long ago. None if one of them was not
    /// there.
    pub fn since(&self, then: &Self, processors: &[u32], elapsed_ns: u64) -> Option<u64> {
        if elapsed_ns < LEAST_NS {
            return None;
        }
        let one = |number: &u32| Some(self.0.get(number)?.saturating_sub(*then.0.get(number)?));
        processors.iter().map(one).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_idle_is_busy() {
        let first = "cpu  9 9 9 9\ncpu0 10 1 5 1000 7 0 2 1 0 0\ncpu1 1 0 0 5 0 0 0 0 0 0\nintr 5 6\n";
        let last = "cpu  9 9 9 9\ncpu0 20 1 5 2000 9 0 4 2 0 0\ncpu1 1 0 0 9 0 0 0 0 0 0\nintr 7 7\n";
        let (first, last) = (Busy::parse(first, 10), Busy::parse(last, 10));
        let since = |processors: &[u32]| last.since(&first, processors, LEAST_NS);
        assert_eq!([since(&[0]), since(&[0, 1]), since(&[1])], [Some(130), Some(130), Some(0)]);
        assert_eq!((since(&[2]), Busy::default().since(&first, &[0], LEAST_NS)), (None, None));
        assert_eq!(last.since(&first, &[0], LEAST_NS / 2), None, "too short");
    }
}
