// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two threads of ours on one processor, while another one is idle: one of them moves.
//!
//! The kernel seldom mends that by itself. A thread that spins and yields is always ready to run, and none of
//! the two runs for long without the other. With two threads on two processors this was seen for 22 of 24 ms,
//! and for 63 of 107.
//!
//! A yield that takes as long as two switches was *taken*: another thread ran here. With a processor for each
//! party and no foreign load that is one of ours. One such yield may be the kernel's own thread. So a waiter
//! moves after [`MOST_TAKEN`] in a row, whoever of the parties they belong to, with less than a slice from
//! one to the next. A yield that nobody takes ends the row, also a third party's: then it takes longer. For a
//! slice after a move, or until a sample ends, nobody moves: a second one would follow the first. To move is
//! [`Platform::migrate`]: where the program has bound the thread, it stays.
//!
//! HINT: wrong, a thread moves to a processor where it has to wait for another one; it is the next to move.
//!
//! [`Platform::migrate`]: platform::Platform::migrate

/// ASSUMED: brief threads of the kernel do not take so many yields in a row.
const MOST_TAKEN: u32 = 3;

/// What is remembered, in the fields of `phase` that mean something else in other phases.
const TAKEN: u32 = 3;
/// Somebody has moved.
const MOVED: u32 = 1 << 2;
/// When that was, or the last yield taken: the low bits of ms.
const WHEN: u32 = 1 << 8;
const MOST_WHEN: u32 = (1 << 16) - 1;

/// What a waiter does that has yielded.
#[derive(Debug, PartialEq)]
pub struct Next {
    /// What is remembered now.
    pub word: u32,
    /// It moves.
    pub moves: bool,
}

/// After a yield that was `taken`, or not, at this time.
#[inline]
pub fn after(word: u32, taken: bool, now_ms: u64, slice_ms: u64) -> Next {
    let now = now_ms as u32 & MOST_WHEN;
    let since = now.wrapping_sub(word / WHEN) & MOST_WHEN;
    let recent = u64::from(since) < slice_ms;
    let stays = |word| Next { word, moves: false };
    match word & TAKEN {
        0 if word & MOVED != 0 && recent => stays(word),
        _ if !taken => stays(0),
        count if recent && count + 1 >= MOST_TAKEN => Next { word: MOVED | (now * WHEN), moves: true },
        count => stays((if recent { count + 1 } else { 1 }) | (now * WHEN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE_MS: u64 = 3;

    /// Of these yields, from the first on: a bit for each after which somebody moves.
    fn moves(yields: &[(bool, u64)]) -> u32 {
        let (mut word, mut all) = (0, 0);
        for (index, &(taken, now_ms)) in yields.iter().enumerate() {
            let next = after(word, taken, now_ms, SLICE_MS);
            all |= u32::from(next.moves) << index;
            word = next.word;
        }
        all
    }

    #[test]
    fn three_in_a_row() {
        assert_eq!(moves(&[(true, 7); 2]), 0);
        assert_eq!(moves(&[(true, 7); 3]), 0b100);
        assert_eq!(moves(&[(true, 7), (true, 9), (true, 11)]), 0b100);
        assert_eq!(moves(&[(true, 7), (true, 8), (true, 11)]), 0, "the third is another matter");
        assert_eq!(moves(&[(true, 7), (true, 7), (false, 7), (true, 7), (true, 7)]), 0);
        assert_eq!(after(0, false, 7, SLICE_MS), Next { word: 0, moves: false }, "nothing to write");
    }

    #[test]
    fn not_again_at_once() {
        let end = u64::from(MOST_WHEN);
        for began in [7, end - 1, end] {
            let mut yields = [(true, began); 12];
            assert_eq!(moves(&yields), 0b100, "{began}");
            yields[9..].fill((true, began + SLICE_MS - 1));
            assert_eq!(moves(&yields), 0b100, "{began}");
            yields[9..].fill((true, began + SLICE_MS));
            assert_eq!(moves(&yields), 0b1000_0000_0100, "{began}");
        }
    }
}
