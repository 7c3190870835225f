// SPDX-License-Identifier: MIT OR Apache-2.0
//! The observer's arenas: who has been lent one, and what the threads in them do.
//!
//! One observer is loaded for all programs ([`bpf::shared`]). Each that asks gets a slot of it, with an
//! arena that is a map of its own: its descriptor leads to nobody else's, and what its threads enrol with
//! acts on the calling thread, in the slot that its process was given here. The server keeps each arena
//! mapped, read-only. **Nothing in one is trusted**: the program can write all of it, the kernel's half
//! too.
//!
//! **An image has one.** A program that executes another one asks again, and gets another arena; the same
//! image does not, because its threads could not be in two, unless it has not taken the one that it was
//! lent: the answer came too late for it. Which image it is, the kernel says by where its stack begins. The
//! slot stays the process's, because its threads could be in it already, by a descriptor of the image
//! before.
//!
//! **Ends.** With the process (its pidfd), its slot is free, and is used again when it has been so for
//! [`REST`]. An arena can outlive its process, in a child or in whoever was sent its descriptor; until the
//! kernel has freed it, it counts against its user's limit. With the server ends the observer. Programs see
//! that in the server's *life* ([`abi::server::lives`]), and go over to what they can see themselves.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use abi::server::{Refusal, Threads};
use abi::{Priority, RunState, Wish};
use tracing::{info, warn};

use crate::kernel::{Arena, Kernel, Life, Prepared};

/// Slots of the observer, of which 0 is nobody's.
pub const SLOTS: u32 = 4096;
/// BOUND: of a process that has just ended, a thread may still be on its way off its processor, and would
/// be counted in its slot's next arena.
const REST: Duration = Duration::from_secs(1);
/// BOUND: from lending an arena until the program has written its head. An answer that takes longer is one
/// that the program did not wait for (it waits for some milliseconds), so the image may ask again.
const TAKING: Duration = Duration::from_secs(1);
/// BOUND: to make an arena takes the kernel some milliseconds (a grace period of RCU), for which nobody
/// should wait; half a MB of the kernel's memory each.
const READY: usize = 16;
/// BOUND: an arena is looked at this often, however often somebody asks: a full one takes some tens of
/// microseconds.
const LOOK: Duration = Duration::from_millis(200);
/// BOUND: threads take the first free block, so behind so many free ones there are no others to speak of.
const GAP: u32 = 64;

/// A process that wants an arena.
pub struct Asker<'a> {
    pub process: u32,
    pub user: u32,
    /// Whose limits hold.
    pub account: u32,
    pub pidfd: BorrowedFd<'a>,
    /// Of its own, for when it ends.
    pub token: u64,
}

struct Lent {
    process: u32,
    user: u32,
    account: u32,
    pidfd: OwnedFd,
    slot: u32,
    /// None of the image before, whose arena counts in [`Arenas::left`].
    arena: Option<Arena>,
    /// The slot's next one, for the image that will ask again.
    next: Option<(Arena, [OwnedFd; 2])>,
    /// Where the stack of the image that asked begins.
    image: u64,
    /// When it was lent.
    since: Duration,
    seen: (Threads, Duration),
}

#[derive(Default)]
pub struct Arenas {
    /// There is an observer.
    loaded: bool,
    life: Option<Life>,
    /// Free slots, with the time from when on they are.
    free: VecDeque<(u32, Duration)>,
    /// Arenas that nobody has yet, and how many more are ordered.
    ready: VecDeque<(u32, Arena, [OwnedFd; 2])>,
    ordered: usize,
    /// Of those ordered, slots that are a process's.
    again: Vec<u32>,
    lent: BTreeMap<u64, Lent>,
    by_process: HashMap<u32, u64>,
    /// Of processes and images that have ended: account and arena.
    left: Vec<(u32, u32)>,
}

impl Arenas {
    /// Loads the observer, if that can be. If not, all else goes on without.
    pub fn begin(kernel: &impl Kernel) -> Self {
        match kernel.load_observer() {
            Ok(()) => {
                let free = (1..SLOTS).map(|slot| (slot, Duration::ZERO)).collect();
                let mut arenas = Self { loaded: true, free, ..Self::default() };
                arenas.refill(kernel);
                arenas
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

    /// Lends an arena; `life` is where the server's life is written. The descriptors for the program, or
    /// why there are none: an error is ours, and `Ok(Err(...))` a refusal.
    ///
    /// # Errors
    /// Those of the calls that it takes; nothing is lent then.
    pub fn lend(
        &mut self,
        kernel: &impl Kernel,
        asker: &Asker<'_>,
        limit: Option<(u32, u32)>,
        life: &Path,
    ) -> io::Result<Result<[OwnedFd; 3], (Refusal, u32)>> {
        if !self.loaded {
            return Ok(Err((Refusal::NoObserver, 0)));
        }
        let image = kernel.image(asker.process)?;
        // The number may be another's by now.
        if let Some(&token) = self.by_process.get(&asker.process)
            && kernel.ended(self.lent[&token].pidfd.as_fd())?
        {
            self.bury(kernel, token);
        }
        let known = self.by_process.get(&asker.process).copied();
        if let Some(token) = known
            && !self.take_back(kernel, token, image)?
        {
            return Ok(Err((Refusal::Again, 0)));
        }
        self.refill(kernel);
        self.forget_freed(kernel);
        if let Some((limit, _)) = limit.filter(|limit| self.is_crowded(asker.account, known, *limit)) {
            // What it gave back a moment ago the kernel may still have.
            let why = if known.is_some() { (Refusal::Later, 0) } else { (Refusal::Crowd, limit) };
            return Ok(Err(why));
        }
        let life = self.life(kernel, life)?;
        let (token, arena, [map, enrol]) = match known {
            Some(token) => {
                let lent = self.lent.get_mut(&token).expect("it is there");
                let Some((arena, fds)) = lent.next.take() else { return Ok(Err((Refusal::Later, 0))) };
                (token, arena, fds)
            }
            None => {
                let Some((slot, arena, fds)) = self.ready.pop_front() else {
                    let (why, limit) =
                        if self.ordered > 0 { (Refusal::Later, 0) } else { (Refusal::Crowd, SLOTS - 1) };
                    return Ok(Err((why, limit)));
                };
                match self.enter(kernel, asker, slot) {
                    Ok(token) => (token, arena, fds),
                    Err(error) => {
                        self.give_back(kernel, slot);
                        return Err(error);
                    }
                }
            }
        };
        self.refill(kernel);
        let lent = self.lent.get_mut(&token).expect("it is there");
        let slot = lent.slot;
        if let Err(error) = kernel.admit(lent.pidfd.as_fd(), slot) {
            release(kernel, slot);
            return Err(error);
        }
        info!(process = asker.process, slot, "is observed");
        (lent.arena, lent.image, lent.seen) = (Some(arena), image, Default::default());
        lent.since = kernel.now();
        (lent.user, lent.account) = (asker.user, asker.account);
        Ok(Ok([map, enrol, life]))
    }

    /// What was lent to this process has not been sent.
    pub fn undo(&mut self, kernel: &impl Kernel, process: u32) {
        if let Some(&token) = self.by_process.get(&process) {
            self.vacate(kernel, token);
        }
    }

    /// The process stays in its slot, without an arena.
    fn vacate(&mut self, kernel: &impl Kernel, token: u64) {
        let lent = self.lent.get_mut(&token).expect("it is there");
        if let Some(arena) = lent.arena.take() {
            self.left.push((lent.account, arena.id));
            drop(arena);
            release(kernel, lent.slot);
        }
    }

    /// A process that is known executes another image, or has not taken its arena: that goes, and another one
    /// is ordered. False if the same image has it. One that denies that spends what its user may have.
    fn take_back(&mut self, kernel: &impl Kernel, token: u64, image: u64) -> io::Result<bool> {
        let lent = &self.lent[&token];
        let taken = |arena: &Arena| arena.is_taken() || kernel.now() < lent.since + TAKING;
        if lent.image == image && lent.arena.as_ref().is_some_and(taken) {
            return Ok(false);
        }
        self.vacate(kernel, token);
        let lent = &self.lent[&token];
        let slot = lent.slot;
        if lent.next.is_none() && !self.again.contains(&slot) {
            kernel.prepare(slot)?;
            self.again.push(slot);
            self.ordered += 1;
        }
        Ok(true)
    }

    /// Have this user's programs, or all users', as many as they may, beside the one that is known?
    fn is_crowded(&self, account: u32, known: Option<u64>, (own, of_all): (u32, u32)) -> bool {
        let others =
            self.lent.iter().filter(|&(&token, _)| Some(token) != known).map(|(_, lent)| lent.account);
        let users = others.chain(self.left.iter().map(|&(account, _)| account));
        let (has, all) = users.fold((0, 0), |(has, all), other| {
            (has + usize::from(other == account), all + usize::from(other != 0))
        });
        has >= own as usize || all >= of_all as usize
    }

    /// A slot becomes a process's, until that ends: its threads may be in it as long. It is not admitted
    /// yet: nothing may fail afterwards that would leave it in a slot of another.
    fn enter(&mut self, kernel: &impl Kernel, asker: &Asker<'_>, slot: u32) -> io::Result<u64> {
        let pidfd = asker.pidfd.try_clone_to_owned()?;
        kernel.watch(pidfd.as_fd(), asker.token)?;
        let Asker { process, user, account, token, .. } = *asker;
        let (arena, next, image, since, seen) = Default::default();
        let lent = Lent { process, user, account, pidfd, slot, arena, next, image, since, seen };
        self.lent.insert(token, lent);
        self.by_process.insert(process, token);
        Ok(token)
    }

    /// Arenas that are being made.
    pub fn ordered(&mut self, kernel: &impl Kernel) -> u32 {
        if self.loaded {
            self.refill(kernel);
        }
        self.ordered as u32
    }

    /// Sees to it that arenas are ready.
    fn refill(&mut self, kernel: &impl Kernel) {
        while self.ordered > 0 {
            match kernel.prepared() {
                Ok(Some(Prepared { slot, arena })) => {
                    self.ordered -= 1;
                    let again = self
                        .again
                        .iter()
                        .position(|&other| other == slot)
                        .map(|at| self.again.swap_remove(at));
                    let owner = again.and_then(|slot| self.lent.values_mut().find(|lent| lent.slot == slot));
                    match (arena, owner) {
                        (Ok(next), Some(owner)) => owner.next = Some(next),
                        (Ok((arena, fds)), None) if again.is_none() => {
                            self.ready.push_back((slot, arena, fds))
                        }
                        // Its process has ended meanwhile.
                        (Ok(_), None) => self.give_back(kernel, slot),
                        (Err(error), owner) => {
                            warn!("cannot make an arena: {error}");
                            if owner.is_none() {
                                self.free.push_back((slot, kernel.now() + REST));
                            }
                        }
                    }
                }
                Ok(None) => break,
                Err(error) => return warn!("cannot make arenas: {error}"),
            }
        }
        let now = kernel.now();
        while self.ready.len() + self.ordered < READY
            && self.free.front().is_some_and(|&(_, from)| from <= now)
        {
            let (slot, from) = self.free.pop_front().expect("it is there");
            if let Err(error) = kernel.prepare(slot) {
                self.free.push_back((slot, from));
                return warn!("cannot order an arena: {error}");
            }
            self.ordered += 1;
        }
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
        let Some(Lent { process, account, pidfd, slot, arena, .. }) = self.lent.remove(&token) else {
            return;
        };
        self.by_process.remove(&process);
        if let Err(error) = kernel.unwatch(pidfd.as_fd()) {
            warn!("cannot stop watching a process: {error}");
        }
        if let Some(arena) = arena {
            self.left.push((account, arena.id));
        }
        // What has been ordered for it comes first.
        if !self.again.contains(&slot) {
            self.give_back(kernel, slot);
        }
    }

    fn give_back(&mut self, kernel: &impl Kernel, slot: u32) {
        release(kernel, slot);
        self.free.push_back((slot, kernel.now() + REST));
    }

    /// What is to be done now and then.
    pub fn tidy(&mut self, kernel: &impl Kernel) {
        self.forget_freed(kernel);
        if self.loaded {
            self.refill(kernel);
        }
    }

    /// Arenas that the kernel has freed count no longer.
    fn forget_freed(&mut self, kernel: &impl Kernel) {
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

/// Takes a slot's arena away. If the kernel will not, the slot's next arena takes its place.
fn release(kernel: &impl Kernel, slot: u32) {
    if let Err(error) = kernel.release(slot)
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("cannot release slot {slot} of the observer: {error}");
    }
}

/// The program has written what is counted here, and could have written anything: each word is read once,
/// and only counted.
fn count(threads: &[abi::Thread]) -> Threads {
    let mut counts = Threads::default();
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
        let word = thread.state.load(Relaxed);
        let state = abi::state::run_state(word);
        let away = u32::from(state == RunState::Preempted);
        let wish = abi::state::wish(word);
        // A lock that neither informs nor wishes says nothing here.
        let holds = Priority::from_u32(thread.priority.load(Relaxed)) >= Priority::LockHolder
            || wish == Wish::UnpreemptableSelf;
        let wishes = wish != Wish::Preemptable;
        counts.known += 1;
        counts.running += u32::from(state == RunState::Running);
        counts.preempted += away;
        counts.blocked += u32::from(state == RunState::Blocked);
        counts.holding += u32::from(holds);
        counts.preempted_holding += u32::from(holds) & away;
        counts.wishing += u32::from(wishes);
        counts.preempted_wishing += u32::from(wishes) & away;
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
        let set = |index: usize, state: RunState, priority: Priority, wish: Wish| {
            all[index].tid.store(1, Relaxed);
            all[index].state.store(abi::state::new(state, wish), Relaxed);
            all[index].priority.store(priority as u32, Relaxed);
        };
        set(1, RunState::Running, Priority::Running, Wish::UnpreemptableSelf);
        set(2, RunState::Preempted, Priority::LockHolder, Wish::UnpreemptableOther);
        set(3, RunState::Preempted, Priority::LockHolder, Wish::Preemptable);
        set(40, RunState::Blocked, Priority::Running, Wish::Preemptable);
        // Behind too many free ones.
        set(190, RunState::Running, Priority::Running, Wish::Preemptable);
        assert_eq!(count(&all).values(), [4, 1, 2, 1, 3, 2, 2, 1]);
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
        assert_eq!(count(&all).values(), [most, 0, 0, 0, 0, 0, 0, 0]);
    }
}
