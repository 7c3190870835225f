// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this process says to the processor server of processors that it can spare.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use platform::Platform;

use super::{Connection, PACKETS, Request, is_member, partition, path};
use crate::Linux;

/// How many processors this process has said it can spare. Written by who speaks, as the next two.
static OFFERED: AtomicU32 = AtomicU32::new(0);
/// How many it had when it said so first.
static HAD: AtomicU32 = AtomicU32::new(0);
/// The last word was not heard.
static UNHEARD: AtomicBool = AtomicBool::new(false);
/// What [`offer`] was told last.
static SAID: AtomicU32 = AtomicU32::new(0);
/// Processors of servers of delegated sections for which nobody has work.
static UNASKED: AtomicU32 = AtomicU32::new(0);
/// When to speak again, if nobody was heard; ms.
static NEXT: AtomicU64 = AtomicU64::new(0);
static SPEAKS: Speaks = Speaks::new();

/// BOUND: a server that did not hear is gone, or overloaded.
const AGAIN_MS: u64 = 1_000;

/// Who speaks: `0 -> process, speaks -> 0`, or `-> process, speaks, again -> process, speaks`.
///
/// - P1. Whoever has something new to say sets `again`, if a thread of this process speaks. That one says it.
/// - P2. The speaker ends if `again` is not set. Else it clears that, and speaks again.
/// - P3. In a forked child another process's speaker is none: that thread is not here.
///
/// P1 release -> P2 acquire publishes what is to be said. Nobody waits.
struct Speaks(AtomicU64);

impl Speaks {
    const SPEAKS: u64 = 1;
    const AGAIN: u64 = 2;
    const PROCESS: u32 = 2;

    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Has it said, by this thread or the one that speaks.
    fn speak(&self, process: u32, mut say: impl FnMut()) {
        let ours = u64::from(process) << Self::PROCESS | Self::SPEAKS;
        let come = |word| Some(if word & !Self::AGAIN == ours { word | Self::AGAIN } else { ours });
        // ORDER: AcqRel (P1), pairs with P2 either way.
        if self.0.fetch_update(AcqRel, Relaxed, come).is_ok_and(|before| before & !Self::AGAIN == ours) {
            return;
        }
        loop {
            say();
            // ORDER: Release (P2), pairs with P1; publishes what has been said.
            if self.0.compare_exchange(ours, 0, Release, Relaxed).is_ok() {
                return;
            }
            // ORDER: Acquire (P2), pairs with P1.
            self.0.swap(ours, Acquire);
        }
    }
}

/// Tells the server how many of the partition's processors this process can spare for now, if it has a
/// partition and it is another number than before. Waits for nobody: a server that is gone, or too busy to
/// let us in, hears it when somebody [`repeat`]s it.
///
/// Each time by a connection of its own: a program may close all descriptors but its own at any time, and
/// give their numbers to others.
/// HINT: a number that comes late, or not at all, leaves processors idle that others wait for, or others on
/// them that had them lent.
pub fn offer(count: u32) {
    // A partition that comes later has not been told of.
    if !is_member() {
        return;
    }
    if SAID.swap(count, Relaxed) == count && is_unheard() {
        return repeat();
    }
    say();
}

/// The same of a server of delegated sections that has a processor for itself, and that nobody asks; or is
/// asked again. Such a processor may be one of those that [`offer`] was told of: the greater number counts.
pub fn unasked(is: bool) {
    if is {
        UNASKED.fetch_add(1, Relaxed);
    } else {
        UNASKED.fetch_sub(1, Relaxed);
    }
    say();
}

/// Has the server not heard the last word? Then somebody who is awake now and then is to [`repeat`] it.
#[inline]
pub fn is_unheard() -> bool {
    UNHEARD.load(Relaxed)
}

/// Says what was not heard once more, each second at most.
#[cold]
pub fn repeat() {
    if !is_member() {
        // The word was a parent's.
        return UNHEARD.store(false, Relaxed);
    }
    let now = now_ms();
    if is_unheard() && now >= NEXT.load(Relaxed) {
        NEXT.store(now + AGAIN_MS, Relaxed);
        say();
    }
}

fn now_ms() -> u64 {
    Linux::now_ns() / 1_000_000
}

fn say() {
    if is_member() {
        SPEAKS.speak(std::process::id(), speak);
    }
}

/// Nothing has been offered. A speaker that is under way may say one thing more, or remember one that the
/// server has forgotten, and then not say it again.
pub fn forget() {
    SAID.store(0, Relaxed);
    OFFERED.store(0, Relaxed);
    UNHEARD.store(false, Relaxed);
}

/// The partition was a parent's, whose servers of sections this process has not.
pub fn forget_parent() {
    UNASKED.store(0, Relaxed);
}

/// Of threads that speak at once one does this at a time.
fn speak() {
    let (said, unasked, offered) = (SAID.load(Relaxed), UNASKED.load(Relaxed), OFFERED.load(Relaxed));
    let count = said.max(unasked);
    if offered == count {
        return heard(count);
    }
    let has = partition().map_or(0, |partition| partition.processors.load(Relaxed));
    // The server counts from what this process has when it hears. So fewer than before are none, until the
    // next word; and what it has taken since the first word is not offered once more. What a team offers is
    // counted from there already.
    // HINT: a processor that it takes at this moment, or took for another reason, is counted wrongly.
    let taken = if offered > 0 { HAD.load(Relaxed).saturating_sub(has) } else { 0 };
    let count = if unasked > 0 && count < offered { 0 } else { count };
    let request = match said.max(unasked.saturating_sub(taken)) {
        _ if count == 0 => Request::WantBack,
        0 => return heard(count),
        left => Request::Spare(left),
    };
    let told = Connection::open_by(path(), PACKETS | libc::SOCK_NONBLOCK, None)
        .and_then(|connection| connection.send(request));
    if told.is_err() {
        NEXT.store(now_ms() + AGAIN_MS, Relaxed);
        return UNHEARD.store(true, Relaxed);
    }
    if offered == 0 {
        HAD.store(has, Relaxed);
    }
    heard(count);
}

fn heard(count: u32) {
    OFFERED.store(count, Relaxed);
    UNHEARD.store(false, Relaxed);
}

/// What [`offer`] was told last.
#[inline]
pub fn offered() -> u32 {
    SAID.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    #[test]
    fn one_speaks_for_all_that_come_meanwhile() {
        let (speaks, said) = (Speaks::new(), Cell::new(0));
        speaks.speak(1, || {
            said.set(said.get() + 1);
            if said.get() == 1 {
                speaks.speak(1, || panic!("two speak at once"));
                speaks.speak(1, || panic!("two speak at once"));
            }
        });
        assert_eq!(said.get(), 2, "what came meanwhile is said once");
        speaks.speak(1, || said.set(0));
        assert_eq!(said.get(), 0, "and then anybody may speak");
    }

    /// P3. With a mutex in the place of `Speaks` the child would wait for ever.
    #[test]
    fn a_child_speaks_though_a_thread_of_its_parent_did() {
        static SPEAKS: Speaks = Speaks::new();
        let mut child = 0;
        SPEAKS.speak(std::process::id(), || {
            // SAFETY: the child uses what it inherited, then leaves by _exit. If it hangs, the alarm ends it.
            child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::alarm(20) };
                let mut said = 0;
                SPEAKS.speak(std::process::id(), || said += 1);
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(said != 1)) };
            }
        });
        let mut status = 0;
        // SAFETY: our child, and a valid pointer.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
