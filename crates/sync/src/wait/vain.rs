// SPDX-License-Identifier: MIT OR Apache-2.0
//! Learning by halving: who waited in vain waits half as long the next time.
//!
//! A waiter that cannot know whether its wait pays remembers how often of late it did not. Each time in
//! vain halves the next limit, at most [`MOST`] times; each time that paid doubles it again. So a wait that
//! never pays costs a thirty-second part of itself, and one that pays again is back at its full length
//! after five.

/// Halvings at most.
const MOST: u32 = 5;

/// The bits that it takes to remember.
pub const BITS: u32 = 3;
const FIELD: u32 = (1 << BITS) - 1;

/// How long to wait at most, if `most` is the limit of one to whom it paid; `times` was kept by
/// [`learned`], whatever lies above its [`BITS`].
#[inline]
pub fn limit(times: u32, most: u64) -> u64 {
    most >> (times & FIELD)
}

/// What to remember instead of `times` after a wait that was in vain, or was not.
#[inline]
pub fn learned(times: u32, in_vain: bool) -> u32 {
    let times = times & FIELD;
    if in_vain { (times + 1).min(MOST) } else { times.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vain_waits_become_short_and_long_again() {
        let after =
            |times, outcomes: &[bool]| outcomes.iter().fold(times, |times, &vain| learned(times, vain));
        assert_eq!(limit(0, 3_200), 3_200);
        assert_eq!(limit(after(0, &[true, true]), 3_200), 800);
        assert_eq!(limit(after(0, &[true; 9]), 3_200), 100);
        assert_eq!(limit(after(after(0, &[true; 9]), &[false; 5]), 3_200), 3_200);
        assert_eq!(after(0, &[false; 3]), 0);
        // What is above the field is another's.
        assert_eq!((limit(0b1000, 3_200), learned(0b1000, true)), (3_200, 1));
    }
}
