// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a lock was taken, and from whom to whom it went.
//!
//! While somebody waits for it, each thread that takes or releases it says so. The C library's plain mutex is
//! also counted by whoever takes it, and an event has that number: so the turns between two events are known,
//! of which a thread that takes its lock again and again says nothing.

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Acquisitions of all kinds, until the last event of all; 0 if nobody counts them.
    pub taken: u64,
    /// Those that were seen while somebody waited.
    pub while_waited: u64,
    /// Of them: by another thread than the one before, and on another processor.
    pub by_another: u64,
    /// See `by_another`.
    pub elsewhere: u64,
    /// The last number that an event had, and when that was.
    number: u32,
    numbered_ns: u64,
    /// Somebody waits since an event that had one.
    is_followed: bool,
    /// The thread that had it last, as long as somebody waits, and on which processor.
    last: Option<(u32, Option<u32>)>,
}

/// What an event says of that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hand {
    /// How often the lock was taken so far; 0: nobody counts that.
    pub number: u32,
    /// The event's own time, which may be before that of one that came earlier.
    pub time_ns: u64,
    /// The processor that its thread has.
    pub processor: Option<u32>,
}

impl Turns {
    /// Somebody comes, and nobody waited. What was before is unknown, but for the holder that the lock names.
    pub(super) fn first_waiter_comes(&mut self, owner: u32) {
        (self.is_followed, self.last) = (false, (owner != 0).then_some((owner, None)));
    }

    /// A thread takes it, while somebody waits; and nobody else has it then.
    pub(super) fn took(&mut self, thread: u32, is_alone: bool, hand: Hand) {
        let Some(new) = self.counted(hand) else { return };
        // The number of the last one: another new mutex was taken as often.
        self.taken += u64::from(hand.number != 0 && new == 0);
        self.while_waited += if self.is_followed { new.max(1) } else { 1 };
        self.is_followed = hand.number != 0;
        if is_alone {
            if let Some((last, processor)) = self.last {
                self.by_another += u64::from(last != thread);
                let is_known = processor.is_some() && hand.processor.is_some();
                self.elsewhere += u64::from(is_known && processor != hand.processor);
            }
            self.last = Some((thread, hand.processor));
        }
    }

    /// A thread that had it alone is about to release it, while somebody waits.
    pub(super) fn released(&mut self, thread: u32, hand: Hand) {
        let Some(new) = self.counted(hand) else { return };
        self.while_waited += if self.is_followed { new } else { 0 };
        self.is_followed = hand.number != 0;
        self.last = Some((thread, hand.processor));
    }

    /// How often it was taken since the last event; None if this one is late: those after it counted it. A
    /// number that is less without that is of a new mutex at the same address.
    fn counted(&mut self, hand: Hand) -> Option<u64> {
        if hand.number == 0 {
            return Some(0);
        }
        if hand.time_ns < self.numbered_ns {
            return None;
        }
        let new = if hand.number >= self.number { hand.number - self.number } else { hand.number };
        (self.number, self.numbered_ns) = (hand.number, hand.time_ns);
        self.taken += u64::from(new);
        Some(new.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hand(number: u32, processor: u32) -> Hand {
        Hand { number, time_ns: 0, processor: Some(processor) }
    }

    #[test]
    fn what_a_thread_does_alone_between_two_events_is_counted_too() {
        let mut turns = Turns::default();
        turns.first_waiter_comes(1);
        turns.released(1, hand(10, 0));
        // It took the lock 89 times more, and said nothing.
        turns.released(1, hand(99, 0));
        turns.took(2, true, hand(100, 1));
        turns.released(2, hand(100, 1));
        turns.took(1, true, hand(101, 1));
        assert_eq!((turns.taken, turns.while_waited), (101, 91));
        assert_eq!((turns.by_another, turns.elsewhere), (2, 1));
        // Nobody waited for a while, and it was taken 99 times.
        turns.first_waiter_comes(0);
        turns.took(3, true, hand(200, 1));
        assert_eq!((turns.taken, turns.while_waited, turns.by_another), (200, 92, 2));
    }

    #[test]
    fn what_comes_late_is_nothing_and_a_new_mutex_begins_with_one() {
        let mut turns = Turns::default();
        turns.first_waiter_comes(2);
        let story = [(10, 500_000), (13, 500_003), (12, 500_002), (14, 500_004), (20, 7), (11, 500_001)];
        for (time_ns, number) in story {
            turns.took(1, true, Hand { time_ns, ..hand(number, 0) });
        }
        assert_eq!((turns.taken, turns.while_waited), (500_004 + 7, 1 + 3 + 1 + 7));
        assert_eq!(turns.by_another, 1);
        // New ones again and again, each taken once before somebody waits.
        let mut turns = Turns::default();
        for time_ns in 1..=9 {
            turns.first_waiter_comes(1);
            turns.released(1, Hand { time_ns: 2 * time_ns, ..hand(1, 0) });
            turns.took(2, true, Hand { time_ns: 2 * time_ns + 1, ..hand(1, 0) });
        }
        assert_eq!((turns.taken, turns.while_waited, turns.by_another), (10, 9, 9));
        // Other kinds do not count.
        let mut turns = Turns::default();
        (0..3).for_each(|thread| turns.took(thread, false, Hand::default()));
        assert_eq!((turns.taken, turns.while_waited, turns.by_another), (0, 3, 0));
    }
}
