// SPDX-License-Identifier: MIT OR Apache-2.0
//! A look at a program that runs under `wakeful run`: which threads sleep for a lock, and what the words say.
//!
//! Nothing is told and nothing recorded. Each thread's system call says on which word it sleeps, and its
//! stack which function called the lock. Of the default mutex's waiters one sleeps on the mutex's own word
//! (the *standby*), and that word names the holder. The others sleep on words of their own, in the space in
//! which the interposer keeps its arena: there only the place is known.
//!
//! Everything is read from outside and may be older than it looks. So it is a hint.

use std::collections::HashMap;
use std::fs;
use std::time::SystemTime;

use abi::{Arena, MAGIC, MAX_THREADS, Thread};
use platform::{STAMP_ID, STAMP_SHIFT};

use crate::look;
use crate::maps::{Maps, Place};
use crate::unwind::Unwinder;

/// A thread that sleeps on a futex.
#[derive(Clone, Debug)]
pub struct Sleeper {
    /// Its number.
    pub thread: u32,
    /// On which word.
    pub word: u64,
    /// The functions, innermost first.
    pub places: Vec<Place>,
    /// How often it has given its processor up: as long as it sleeps this stays.
    pub switches: u64,
    /// The word lies in the interposer's space, so it is no lock's.
    pub is_own_word: bool,
    /// The thread that has the mutex of that word, if it is one.
    pub holder: Option<u32>,
}

/// A program at which we look again and again.
pub struct Outside {
    process: u32,
    maps: Maps,
    unwinder: Unwinder,
    space: Option<Space>,
}

/// Where the interposer keeps what it knows of threads.
#[derive(Clone, Copy)]
struct Space {
    start: u64,
    end: u64,
    arena: u64,
}

const PAGE: usize = 4096;
/// BOUND: pages before the arena. There are some 70.
const MOST_PAGES: usize = 512;

/// BOUND: threads that are looked at.
const MOST: usize = 2_000;

impl Outside {
    /// None if it has no arena: it is not on our locks, or none of its threads has waited yet.
    #[must_use]
    pub fn new(process: u32) -> Option<Self> {
        let mut own =
            Self { process, maps: Maps::default(), unwinder: Unwinder::new(SystemTime::now()), space: None };
        own.space = own.find_space();
        own.space.map(|_| own)
    }

    /// The private mapping that has an arena in it, or before it. Others may lie next to it on both sides.
    fn find_space(&self) -> Option<Space> {
        let text = fs::read_to_string(format!("/proc/{}/maps", self.process)).ok()?;
        let spans: Vec<(u64, u64)> = text.lines().filter_map(span).collect();
        // From above: then the first that has it begins with the space, and with nothing that lies before.
        for (index, &(start, mut end)) in spans.iter().enumerate().rev() {
            // Its parts have different rights.
            for (next, next_end) in &spans[index + 1..] {
                if *next != end {
                    break;
                }
                end = *next_end;
            }
            // A server's observer brings an arena of its own, which is mapped behind the first part.
            let mut pages = (start..=end).step_by(PAGE).take(MOST_PAGES);
            if let Some(arena) = pages.find(|at| self.read::<4>(*at) == Some(MAGIC.to_ne_bytes())) {
                let end = arena + (size_of::<Arena>() + MAX_THREADS * size_of::<Thread>()) as u64;
                return Some(Space { start, end, arena });
            }
        }
        None
    }

    fn read<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: N };
        let remote = libc::iovec { iov_base: address as *mut _, iov_len: N };
        // SAFETY: `local` lies in `bytes`; the kernel checks the address of the other process.
        let read = unsafe { libc::process_vm_readv(self.process as libc::pid_t, &local, 1, &remote, 1, 0) };
        (read == N as isize).then_some(bytes)
    }

    /// The thread with this number in lock words; none if the block is free.
    fn thread(&self, number: u32) -> Option<u32> {
        let start = self.space?.arena;
        let at =
            size_of::<Arena>() + number as usize * size_of::<Thread>() + std::mem::offset_of!(Thread, tid);
        let tid = u32::from_ne_bytes(self.read(start + at as u64)?);
        (number > 0 && (number as usize) < MAX_THREADS && tid != 0).then_some(tid)
    }

    /// Those who sleep now, and how many threads were not looked at. None when the program has ended, or may
    /// not be looked at.
    pub fn look(&mut self) -> Option<(Vec<Sleeper>, usize)> {
        let folder = fs::read_dir(format!("/proc/{}/task", self.process)).ok()?;
        // What was mapped since the last look.
        let _ = self.maps.look_up(self.process, 0);
        let threads = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let mut threads: Vec<u32> = threads.collect();
        let others = threads.len().saturating_sub(MOST);
        threads.truncate(MOST);
        Some((threads.into_iter().filter_map(|thread| self.sleeper(thread)).collect(), others))
    }

    fn sleeper(&mut self, thread: u32) -> Option<Sleeper> {
        let look = look::look(self.process, thread)?;
        let (number, arguments) = look.call?;
        if i64::from(number) != libc::SYS_futex {
            return None;
        }
        let word = arguments[0];
        let stack = self.unwinder.unwind(self.maps.of(self.process)?, &look);
        let sure = stack.guessed_from.unwrap_or(usize::MAX);
        let space = self.space?;
        let is_own_word = (space.start..space.end).contains(&word);
        Some(Sleeper {
            thread,
            word,
            places: stack.places.into_iter().take(sure).collect(),
            switches: switches(self.process, thread)?,
            is_own_word,
            holder: if is_own_word { None } else { self.holder(word) },
        })
    }

    /// The thread that has the mutex, if the word is one's.
    fn holder(&self, word: u64) -> Option<u32> {
        let value = u32::from_ne_bytes(self.read(word)?);
        (value & LOCKED != 0).then(|| self.thread((value & STAMP_ID) >> STAMP_SHIFT)).flatten()
    }
}

/// The default mutex's word: see `sync/src/mutex/wakeful.rs`.
const LOCKED: u32 = 1;

/// A line of /proc/PID/maps, if it is about memory that no file has.
fn span(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_private = words.next()?.ends_with('p');
    let is_anonymous = words.nth(2)? == "0" && words.next().is_none();
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    (is_private && is_anonymous).then_some((number(start)?, number(end)?))
}

/// How often the thread has given its processor up.
fn switches(process: u32, thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// Since when threads sleep, as far as we have looked: the kernel tells nobody when a sleep began.
#[derive(Default)]
pub struct Since(HashMap<u32, (u64, u64)>);

impl Since {
    /// Since when each of these sleeps at least.
    pub fn seen(&mut self, sleepers: &[Sleeper], now_ns: u64) -> HashMap<u32, u64> {
        let before = std::mem::take(&mut self.0);
        for one in sleepers {
            let known = before.get(&one.thread).filter(|(switches, _)| *switches == one.switches);
            let since_ns = known.map_or(now_ns, |(_, since_ns)| *since_ns);
            self.0.insert(one.thread, (one.switches, since_ns));
        }
        self.0.iter().map(|(thread, (_, since_ns))| (*thread, *since_ns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_private_memory_of_no_file() {
        assert_eq!(span("7f00-7f40 rw-p 00000000 00:00 0 "), Some((0x7f00, 0x7f40)));
        for other in [
            "7f00-7f40 rw-s 00000000 00:00 0 ",
            "7f00-7f40 r-xp 00000000 08:01 55  /bin/true",
            "7f00-7f40 rw-p 00000000 00:00 0   [heap]",
            "",
        ] {
            assert_eq!(span(other), None, "{other}");
        }
    }

    #[test]
    fn a_sleep_goes_on_as_long_as_nothing_was_switched() {
        let one = |switches| Sleeper {
            thread: 7,
            word: 0,
            places: Vec::new(),
            switches,
            is_own_word: false,
            holder: None,
        };
        let mut since = Since::default();
        assert_eq!(since.seen(&[one(5)], 100)[&7], 100);
        assert_eq!(since.seen(&[one(5)], 200)[&7], 100);
        assert_eq!(since.seen(&[one(6)], 300)[&7], 300);
        assert!(since.seen(&[], 400).is_empty());
        assert_eq!(since.seen(&[one(6)], 500)[&7], 500);
    }
}
