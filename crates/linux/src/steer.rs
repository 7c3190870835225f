// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another thread, which waits for a processor, is sent to one of some processors.
//!
//! That is its affinity made smaller for a moment. The thread itself makes it as it was, before it does
//! anything else: see [`Steered::undo`]. The kernel has no compare-and-set for it. **Limits:**
//!
//! - A mask that somebody sets from outside between the look and the change is undone. So is one that is set
//!   until the thread runs, if it equals the smaller one: nobody can tell these two apart.
//! - A mask that leaves out no processor of the cpuset is taken for none: the thread follows the cpuset if
//!   that grows later. If the cpuset grows before the thread runs, it has those of before, as a mask of its
//!   own. If the cpuset loses all that the smaller mask has, the thread's own mask is lost.

use crate::futex::Errno;
use crate::processors::{self, Narrowed, OwnMask};

/// Some processors, of the first 1,024.
#[derive(Clone, Copy)]
pub struct Set(OwnMask);

impl Default for Set {
    fn default() -> Self {
        Self(OwnMask::none())
    }
}

impl Set {
    /// With this one.
    pub fn insert(&mut self, processor: u32) {
        self.0.insert(processor);
    }

    /// Without this one.
    pub fn remove(&mut self, processor: u32) {
        self.0.remove(processor);
    }

    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.0.count() == 0
    }
}

/// What a thread must undo that was steered.
#[derive(Clone, Copy)]
pub struct Steered(Narrowed);

/// Sends a thread of this process to one of those. `None`: nothing was done.
pub fn steer(tid: i32, to: &Set) -> Option<Steered> {
    let _errno = Errno::save();
    processors::narrow(tid, to.0).map(Steered)
}

impl Steered {
    /// By that thread: its affinity is as it was before, unless somebody else has set it since.
    pub fn undo(self) {
        let _errno = Errno::save();
        processors::widen(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn set(processors: &[u32]) -> Set {
        let mut set = Set::default();
        processors.iter().for_each(|&processor| set.insert(processor));
        set
    }

    fn mask() -> Vec<u32> {
        let mut mask = [0u64; 16];
        // SAFETY: the kernel writes at most the size it is told.
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
        (0..1024).filter(|&processor| mask[processor as usize / 64] >> (processor % 64) & 1 == 1).collect()
    }

    /// A sleeper is steered, and undoes it; one with a mask of its own has that again.
    #[test]
    fn it_is_undone() {
        let all = mask();
        let others = &all[1..];
        for pinned in [None, Some(&all[..1])] {
            let (tell, told) = channel();
            let (send, sent) = channel::<Option<Steered>>();
            let pin = pinned.map(set);
            let sleeper = std::thread::spawn(move || {
                let its = pin.and_then(|pin| steer(0, &pin));
                let before = mask();
                // SAFETY: no arguments.
                tell.send(unsafe { libc::gettid() }).unwrap();
                let steered = sent.recv().unwrap();
                let narrow = mask();
                if let Some(steered) = steered {
                    steered.undo();
                }
                (its.is_some(), before, narrow, mask())
            });
            let thread = told.recv().unwrap();
            let steered = steer(thread, &set(others));
            assert_eq!(steered.is_some(), pinned.is_none() && !others.is_empty());
            assert!(steer(thread, &Set::default()).is_none() && steer(thread, &set(&[1023])).is_none());
            send.send(steered).unwrap();
            let (was_pinned, before, narrow, after) = sleeper.join().unwrap();
            assert_eq!(was_pinned, pinned.is_some() && all.len() > 1);
            assert_eq!(before, after);
            assert_eq!(narrow, if steered.is_some() { others } else { &before });
        }
    }
}
