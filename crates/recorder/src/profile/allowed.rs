// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many processors the program's threads may use: sched_getaffinity(2), which knows of cpusets, too.

use crate::account::Account;
use crate::fast::HashMap;

/// BOUND: threads that are asked in a turn, and threads that are known.
const IN_TURN: usize = 4;
const MOST: usize = 1_000;

/// By thread: its process, and how many processors it might use when it was asked last.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    all: HashMap<u32, (u32, u32)>,
    next: usize,
}

impl Allowed {
    /// Asks some threads.
    pub fn look(&mut self, account: &Account) {
        let some = account.threads.values().skip(self.next).take(IN_TURN);
        let asked: Vec<(u32, u32)> = some.map(|one| (one.thread, one.process)).collect();
        self.next = if asked.len() < IN_TURN { 0 } else { self.next + IN_TURN };
        for (thread, process) in asked {
            if let Some(count) = processors(thread) {
                self.told(thread, process, count);
            }
        }
    }

    fn told(&mut self, thread: u32, process: u32, count: u32) {
        if self.all.len() < MOST || self.all.contains_key(&thread) {
            self.all.insert(thread, (process, count));
        }
    }

    /// The process is another program now: taskset(1) binds itself before it becomes one.
    pub fn forget(&mut self, process: u32) {
        self.all.retain(|_, (of, _)| *of != process);
    }

    /// The most of any thread, if one was asked.
    pub fn most(&self) -> Option<u32> {
        self.all.values().map(|(_, count)| *count).max()
    }
}

/// BOUND: processors of the machine, eight a byte.
const BYTES: usize = 1_024;

fn processors(thread: u32) -> Option<u32> {
    let mut set = [0u64; BYTES / 8];
    // SAFETY: room for so many bytes, which lives across the call.
    let size =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread as libc::pid_t, BYTES, set.as_mut_ptr()) };
    (size > 0).then(|| set.iter().map(|word| word.count_ones()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_any_thread_counts_until_its_process_is_another_program() {
        assert!(processors(0).is_some_and(|count| count > 0));
        let mut allowed = Allowed::default();
        assert_eq!(allowed.most(), None);
        for (thread, process, count) in [(1, 1, 8), (9, 9, 2), (2, 1, 8)] {
            allowed.told(thread, process, count);
        }
        assert_eq!(allowed.most(), Some(8));
        allowed.forget(1);
        assert_eq!(allowed.most(), Some(2));
        // It binds itself.
        allowed.told(9, 9, 1);
        assert_eq!(allowed.most(), Some(1));
    }
}
