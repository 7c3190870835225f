// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest of many, in bounded memory.

/// At most so many things, by their lengths: whatever is dropped is not longer than anything that stays.
#[derive(Debug)]
pub struct Longest<T> {
    most: usize,
    kept: Vec<(u64, T)>,
    /// Nothing that is shorter can stay.
    floor: u64,
    dropped: u64,
}

impl<T> Longest<T> {
    /// Keeps so many, in twice the memory.
    pub fn new(most: usize) -> Self {
        Self { most, kept: Vec::new(), floor: 0, dropped: 0 }
    }

    /// One more.
    pub fn push(&mut self, length: u64, one: T) {
        if length < self.floor {
            self.dropped += 1;
            return;
        }
        self.kept.push((length, one));
        if self.kept.len() >= 2 * self.most {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        if self.kept.len() > self.most {
            self.kept.select_nth_unstable_by_key(self.most, |(length, _)| std::cmp::Reverse(*length));
            self.dropped += (self.kept.len() - self.most) as u64;
            self.kept.truncate(self.most);
            self.floor = self.kept.iter().map(|(length, _)| *length).min().unwrap_or(0);
        }
    }

    /// Those that stay, the longest first; and how many were dropped.
    pub fn finish(mut self) -> (Vec<T>, u64) {
        self.shrink();
        self.kept.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
        (self.kept.into_iter().map(|(_, one)| one).collect(), self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stay_and_the_others_are_counted() {
        let mut longest = Longest::new(10);
        // 0, 7, 14, ...: each number below 1000 once, in no order.
        for step in 0..1000 {
            let number = step * 7 % 1000;
            longest.push(number, number);
            assert!(longest.kept.len() < 20);
        }
        let (kept, dropped) = longest.finish();
        assert_eq!((kept, dropped), ((990..1000).rev().collect(), 990));
        let mut few = Longest::new(10);
        few.push(3, 'a');
        few.push(5, 'b');
        assert_eq!(few.finish(), (vec!['b', 'a'], 0));
    }
}
