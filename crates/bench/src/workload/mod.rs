// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads, one file each, and the lengths that they are made of.

pub mod barrier;
pub mod condvar;
pub mod delegate;
pub mod mutex;
pub mod parallel;
pub mod parts;
pub mod patterns;
pub mod rwlock;
pub mod switch;

use std::cell::UnsafeCell;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long a critical section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Increments one word in each of so many cache lines, which all threads share.
    Lines(usize),
    /// Burns so much time by the clock; being preempted counts.
    Time(Duration),
}

/// A critical section length that is neither a number nor a time.
#[derive(Debug, thiserror::Error)]
#[error("give a number of cache lines, such as 20, or a time, such as 10us")]
pub struct LengthError;

impl FromStr for Length {
    type Err = LengthError;
    fn from_str(text: &str) -> Result<Self, LengthError> {
        match text.parse() {
            Ok(lines) => Ok(Self::Lines(lines)),
            Err(_) => humantime::parse_duration(text).map(Self::Time).map_err(|_| LengthError),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Lines(lines) => lines.fmt(f),
            Self::Time(time) => f.write_str(&humantime::format_duration(*time).to_string().replace(' ', "")),
        }
    }
}

impl Serialize for Length {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What threads do outside: so many turns of an empty loop, which touches no memory.
#[inline(never)]
pub fn units(count: u64) {
    for turn in 0..count {
        std::hint::black_box(turn);
    }
}

/// A word alone in its cache line.
#[repr(align(64))]
struct Line(UnsafeCell<u64>);

/// What a critical section works on; each line counts the sections.
struct Data {
    lines: Vec<Line>,
    time: Option<Duration>,
}

// SAFETY: `section` demands exclusion.
unsafe impl Sync for Data {}

impl Data {
    fn new(length: Length) -> Self {
        let (lines, time) = match length {
            Length::Lines(lines) => (lines.max(1), None),
            Length::Time(time) => (1, Some(time)),
        };
        Self { lines: (0..lines).map(|_| Line(UnsafeCell::new(0))).collect(), time }
    }

    /// A function of its own, so that it is the same code under each lock: inlined behind a pointer, where
    /// delegating locks have it, 100 lines took a fifth longer.
    ///
    /// # Safety
    /// No two at the same time.
    #[inline(never)]
    unsafe fn section(&self) {
        if let Some(time) = self.time {
            let began = Instant::now();
            while began.elapsed() < time {}
        }
        for line in &self.lines {
            // SAFETY: as the caller promised.
            unsafe { *line.0.get() += 1 };
        }
    }

    /// Reads what a section writes; true if it saw one half done.
    ///
    /// # Safety
    /// No section at the same time.
    #[inline(always)]
    unsafe fn read(&self) -> bool {
        if let Some(time) = self.time {
            let began = Instant::now();
            while began.elapsed() < time {}
        }
        // SAFETY: as the caller promised. Volatile, because a lock that fails is to be seen to.
        let read = |line: &Line| unsafe { line.0.get().read_volatile() };
        let first = read(&self.lines[0]);
        self.lines.iter().any(|line| read(line) != first)
    }

    /// Sections that left their mark on every line.
    fn sections(&mut self) -> u64 {
        self.lines.iter_mut().map(|line| *line.0.get_mut()).min().expect("there is a line")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_lines_or_times_and_print_as_they_parse() {
        assert_eq!("20".parse::<Length>().unwrap(), Length::Lines(20));
        assert_eq!("10us".parse::<Length>().unwrap(), Length::Time(Duration::from_micros(10)));
        for text in ["0", "100", "10us", "1ms", "1ms500us"] {
            assert_eq!(text.parse::<Length>().unwrap().to_string(), text);
        }
        for text in ["", "x", "-1", "10 parsecs"] {
            assert!(text.parse::<Length>().is_err(), "{text}");
        }
    }
}
