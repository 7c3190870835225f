// SPDX-License-Identifier: MIT OR Apache-2.0
//! The observer's arenas: who has been lent one, and what the threads in them do.
//!
//! One observer is loaded for all programs ([`bpf::shared`]). Each that asks gets a slot of it, with an arena that is a map of its own: its descriptor
//! leads to nobody else's, and what its threads enrol with acts on the calling thread, in the slot that its process was given here. The server
//! keeps each arena mapped, read-only. **Nothing in one is trusted**: the program can write all of it, the kernel's half too.
//!
//! **An image has one.** A program that executes another one asks again, and gets another arena; the same image does not, because its threads could not be in
//! two. Which image it is, the kernel says by where its stack begins. The slot stays the process's, because its threads could be in it already, by
//! a descriptor of the image before.
//!
//! **Ends.** With the process (its pidfd), its slot is free, and is used again when it has been so for [`REST`]. An arena can outlive its process, in
//! a child or in whoever was sent its descriptor; until the kernel has freed it, it counts against its user's limit. With the server ends
//! the observer. Programs see that in the server's *life* ([`abi::server::lives`]), and go over to what they can see themselves.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use abi::server::{Refusal, THREADS};
use abi::{Priority, RunState, Wish};
use tracing::{info, warn};

use crate::kernel::{Arena, Kernel, Life};

/// Slots of the observer, of which 0 is nobody's.
pub const SLOTS: u32 = 4096;
/// COST: of a process that has just ended, a thread may still be on its way off its processor, and would be counted in its slot's next arena.
const REST: Duration = Duration::from_secs(1);
/// COST: an arena is looked at this often, however often somebody asks: a full one takes some tens of microseconds.
const LOOK: Duration = Duration::from_millis(200);
/// COST: threads take the first free block, so behind so many free ones there are no others to speak of.
const GAP: u32 = 64;

/// What [`THREADS`] count.
pub type Threads = [u32; THREADS.len()];

/// A process that wants an arena.
pub struct Asker<'a> {
    pub process: u32,
    pub user: u32,
    pub pidfd: BorrowedFd<'a>,
    /// Of its own, for when it ends.
    pub token: u64,
}

struct Lent {
    process: u32,
    user: u32,
    pidfd: OwnedFd,
    slot: u32,
    /// None of the image before, whose arena counts in [`Arenas::left`].
    arena: Option<Arena>,
    /// Where the stack of the image that asked begins.
    image: u64,
    seen: (Threads, Duration),
}

#[derive(Default)]
pub struct Arenas {
    /// There is an observer.
    loaded: bool,
    life: Option<Life>,
    /// Free slots, with the time from when on they are.
    free: VecDeque<(u32, Duration)>,
    lent: BTreeMap<u64, Lent>,
    by_process: HashMap<u32, u64>,
    /// Of processes and images that have ended: user and arena.
    left: Vec<(u32, u32)>,
}

impl Arenas {
    /// Loads the observer, if that can be. If not, all else goes on without.
    pub fn begin(kernel: &impl Kernel) -> Self {
        match kernel.load_observer() {
            Ok(()) => {
                let free = (1..SLOTS).map(|slot| (slot, Duration::ZERO)).collect();
                Self { loaded: true, free, ..Self::default() }
            }
            Err(error) => {
                warn!("no observer, so programs get the views that they can have without: {error}");
                Self::default()
            }
        }
    }

    /// Is there an observer?
    pub fn loaded(&self) -> bool {
        self.loaded
    }

    /// Lends an arena; `life` is where the server's life is written. The descriptors for the program, or why there are none: an error is ours, and
    /// `Ok(Err(...))` a refusal.
    ///
    /// # Errors
    /// Those of the calls that it takes; nothing is lent then.
    pub fn lend(
        &mut self,
        kernel: &impl Kernel,
        asker: &Asker<'_>,
        limit: Option<u32>,
        life: &Path,
    ) -> io::Result<Result<[OwnedFd; 3], (Refusal, u32)>> {
        if !self.loaded {
            return Ok(Err((Refusal::NoObserver, 0)));
        }
        let stat = kernel.read(Path::new(&format!("/proc/{}/stat", asker.process)))?;
        let Some(image) = crate::partitions::image(&stat) else { return Ok(Err((Refusal::NoProcess, 0))) };
        // The number may be another's by now.
        if let Some(&token) = self.by_process.get(&asker.process)
            && kernel.ended(self.lent[&token].pidfd.as_fd())?
        {
            self.bury(kernel, token);
        }
        let known = self.by_process.get(&asker.process).copied();
        if let Some(lent) = known.and_then(|token| self.lent.get_mut(&token)) {
            match lent.arena.take() {
                Some(arena) if lent.image == image => {
                    lent.arena = Some(arena);
                    return Ok(Err((Refusal::Again, 0)));
                }
                Some(arena) => {
                    self.left.push((lent.user, arena.id));
                    release(kernel, lent.slot);
                }
                None => {}
            }
        }
        self.forget_freed(kernel);
        let others = self.lent.iter().filter(|&(&token, _)| Some(token) != known).map(|(_, lent)| lent.user);
        let has = others.chain(self.left.iter().map(|&(user, _)| user)).filter(|&user| user == asker.user).count();
        if let Some(limit) = limit.filter(|&limit| has >= limit as usize) {
            return Ok(Err((Refusal::Crowd, limit)));
        }
        let life = self.life(kernel, life)?;
        let token = match known {
            Some(token) => token,
            None if self.free.front().is_some_and(|&(_, from)| from <= kernel.now()) => self.enter(kernel, asker)?,
            None => return Ok(Err((Refusal::Crowd, SLOTS - 1))),
        };
        let lent = self.lent.get_mut(&token).expect("it is there");
        let (arena, [map, enrol]) = kernel.prepare(lent.slot)?;
        if let Err(error) = kernel.admit(lent.pidfd.as_fd(), lent.slot) {
            release(kernel, lent.slot);
            return Err(error);
        }
        info!(process = asker.process, lent.slot, "is observed");
        (lent.arena, lent.image, lent.user, lent.seen) = (Some(arena), image, asker.user, Default::default());
        Ok(Ok([map, enrol, life]))
    }

    /// A free slot becomes a process's, until that ends. It is not admitted yet: nothing may fail afterwards that would leave it in a slot of another.
    fn enter(&mut self, kernel: &impl Kernel, asker: &Asker<'_>) -> io::Result<u64> {
        let pidfd = asker.pidfd.try_clone_to_owned()?;
        kernel.watch(pidfd.as_fd(), asker.token)?;
        let (slot, _) = self.free.pop_front().expect("it is there");
        let Asker { process, user, token, .. } = *asker;
        self.lent.insert(token, Lent { process, user, pidfd, slot, arena: None, image: 0, seen: Default::default() });
        self.by_process.insert(process, token);
        Ok(token)
    }

    /// For programs to see whether we live.
    fn life(&mut self, kernel: &impl Kernel, file: &Path) -> io::Result<OwnedFd> {
        let life = match &mut self.life {
            Some(life) => life,
            none => none.insert(kernel.live(file)?),
        };
        life.reader().try_clone()
    }

    /// A process has ended, if the token is that of one.
    pub fn bury(&mut self, kernel: &impl Kernel, token: u64) {
        let Some(Lent { process, user, pidfd, slot, arena, .. }) = self.lent.remove(&token) else { return };
        self.by_process.remove(&process);
        if let Err(error) = kernel.unwatch(pidfd.as_fd()) {
            warn!("cannot stop watching a process: {error}");
        }
        if let Some(arena) = arena {
            self.left.push((user, arena.id));
            release(kernel, slot);
        }
        self.free.push_back((slot, kernel.now() + REST));
    }

    /// Arenas that the kernel has freed count no longer.
    pub fn forget_freed(&mut self, kernel: &impl Kernel) {
        // Where that cannot be told, it counts.
        self.left.retain(|&(_, arena)| kernel.exists(arena).unwrap_or(true));
    }

    /// Who is observed.
    pub fn processes(&self) -> impl Iterator<Item = (u32, u32)> {
        self.lent.values().filter(|lent| lent.arena.is_some()).map(|lent| (lent.process, lent.user))
    }

    /// HINT: what the threads of a process do, if it is observed; as old as [`LOOK`].
    pub fn threads(&mut self, process: u32, now: Duration) -> Option<Threads> {
        let lent = self.lent.get_mut(self.by_process.get(&process)?)?;
        let arena = lent.arena.as_ref()?;
        if now >= lent.seen.1 {
            lent.seen = (count(arena.threads()), now + LOOK);
        }
        Some(lent.seen.0)
    }
}

/// Takes a slot's arena away. If the kernel will not, the next arena of the slot takes its place.
fn release(kernel: &impl Kernel, slot: u32) {
    if let Err(error) = kernel.release(slot)
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("cannot release slot {slot} of the observer: {error}");
    }
}

/// The program has written what is counted here, and could have written anything: each word is read once, and only counted.
fn count(threads: &[abi::Thread]) -> Threads {
    let mut counts = Threads::default();
    let [known, running, preempted, blocked, holding, preempted_holding, wishing, preempted_wishing] = &mut counts;
    let mut free = 0;
    // The first block is never used.
    for thread in threads.iter().skip(1) {
        if thread.tid.load(Relaxed) == 0 {
            free += 1;
            if free == GAP {
                break;
            }
            continue;
        }
        free = 0;
        let state = RunState::from_u32(thread.run_state.load(Relaxed));
        let away = u32::from(state == RunState::Preempted);
        let holds = thread.holds.load(Relaxed) != 0 || thread.priority.load(Relaxed) == Priority::LockHolder as u32;
        let wishes = Wish::from_u32(thread.wish.load(Relaxed)) != Wish::Preemptable;
        *known += 1;
        *running += u32::from(state == RunState::Running);
        *preempted += away;
        *blocked += u32::from(state == RunState::Blocked);
        *holding += u32::from(holds);
        *preempted_holding += u32::from(holds) & away;
        *wishing += u32::from(wishes);
        *preempted_wishing += u32::from(wishes) & away;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(number: usize) -> Vec<abi::Thread> {
        // SAFETY: zeros are a valid block, of atomics.
        std::iter::repeat_with(|| unsafe { std::mem::zeroed() }).take(number).collect()
    }

    #[test]
    fn what_the_blocks_say_is_counted() {
        let all = threads(200);
        let set = |index: usize, state: RunState, holds: u32, wish: Wish| {
            all[index].tid.store(1, Relaxed);
            all[index].run_state.store(state as u32, Relaxed);
            all[index].holds.store(holds, Relaxed);
            all[index].wish.store(wish as u32, Relaxed);
        };
        set(1, RunState::Running, 1, Wish::UnpreemptableSelf);
        set(2, RunState::Preempted, 1 << 16, Wish::UnpreemptableOther);
        set(3, RunState::Preempted, 0, Wish::Preemptable);
        set(40, RunState::Blocked, 0, Wish::Preemptable);
        all[3].priority.store(Priority::LockHolder as u32, Relaxed);
        // Behind too many free ones.
        set(190, RunState::Running, 0, Wish::Preemptable);
        assert_eq!(count(&all), [4, 1, 2, 1, 3, 2, 2, 1]);
    }

    #[test]
    fn nonsense_is_counted_as_nothing_worse() {
        let all = threads(abi::MAX_THREADS);
        // SAFETY: the blocks consist of atomics, for which all bytes are valid.
        let bytes = unsafe {
            std::slice::from_raw_parts(all.as_ptr().cast::<std::sync::atomic::AtomicU8>(), size_of_val(&*all))
        };
        bytes.iter().for_each(|byte| byte.store(0xff, Relaxed));
        let most = abi::MAX_THREADS as u32 - 1;
        assert_eq!(count(&all), [most, 0, 0, 0, most, 0, 0, 0]);
    }
}
