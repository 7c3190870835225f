// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many processors may this program use?
//!
//! The lesser of two: the affinity mask, which also reflects cpusets and hot-unplugging, and the CPU quota ([`crate::quota`]).
//! The first caller may be inside `malloc`, on a small stack. So what a look needs lies in static memory, for one looker at
//! a time ([`Room`]), and a line that does not fit there is passed over.
//!
//! A fraction of a processor counts in two ways. [`Processors::count`] rounds it up: so many threads can be of use. And where the quota is
//! less than the processors ([`metered`]), an idle processor is not free: what one thread spins away others lack.
//!
//! The first look is made when the program starts ([`crate::prepare`]), or in an interposed program in two
//! parts ([`begin`]). Then a barrier or a slow path asks for one ([`refresh`]). That is once a second at
//! most, or as soon as the processor server says that the partition has changed ([`crate::server`]). A mask
//! is a thread's, and programs pin threads: where the asking thread may use fewer than there were, what
//! counts is what all threads together may use. A later look must not be noticed: it opens no file where
//! one of the first three descriptors is closed, because the program may be about to put another in its
//! place; and what it cannot read any more (a sandbox, `chroot`) stays as it was.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::quota::{self, Throttlings};
use crate::signals::NoSignals;
use crate::{futex, registry, server};

/// What the number of processors comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors {
    /// Processors in the calling thread's affinity mask.
    pub affinity: u32,
    /// The least CPU quota on the path, in thousandths of a processor.
    pub quota_milli: Option<u64>,
}

impl Processors {
    /// Looks now. About 50 us.
    pub fn look() -> Self {
        Room::wait_for(|room| Self {
            affinity: room.mask.read(0).count().max(1),
            quota_milli: quota::least(&mut room.quota, &quota::OWN).flatten(),
        })
    }

    /// Looks again, some time after this. Two microseconds with the descriptors closed, else as [`Self::look`]; more if threads are pinned.
    fn look_again(self, room: &mut Room) -> Self {
        room.mask.read(0);
        if !standard_descriptors_are_open() {
            return Self { affinity: room.mask.count().max(self.affinity), ..self };
        }
        let all = room.mask.count() >= self.affinity || room.join_threads(self.affinity);
        let affinity = if all { room.mask.count().max(1) } else { self.affinity };
        Self { affinity, quota_milli: quota::least(&mut room.quota, &quota::OWN).unwrap_or(self.quota_milli) }
    }

    /// The number to reckon with: so many threads can be of use. At least 1.
    pub fn count(&self) -> u32 {
        let quota = self.quota_milli.map_or(u64::MAX, |milli| milli.div_ceil(1000));
        quota.min(self.affinity as u64).max(1) as u32
    }

    /// Is the quota what limits?
    pub fn limited_by_quota(&self) -> bool {
        self.quota_milli.is_some_and(|milli| milli < u64::from(self.affinity) * 1000)
    }
}

/// The last look.
struct Last {
    /// [`Processors::count`]; 0 before the first look.
    count: AtomicU32,
    changes: AtomicU32,
    affinity: AtomicU32,
    /// `u64::MAX`: none.
    quota_milli: AtomicU64,
    /// The next look is due.
    next_ns: AtomicU64,
}

static LAST: Last = Last {
    count: AtomicU32::new(0),
    changes: AtomicU32::new(0),
    affinity: AtomicU32::new(1),
    quota_milli: AtomicU64::new(u64::MAX),
    next_ns: AtomicU64::new(0),
};

/// BOUND: ns between two looks, which take about 50 us.
const AGAIN_NS: u64 = 1_000_000_000;

/// BOUND: ns after which the quota of an interposed program is looked for. To find it takes about 100 us in a
/// young process, and so a hundredth of its life at most. Many create a thread or two and end before.
const LATER_NS: u64 = 10_000_000;

/// The part of the first look that cannot wait: the mask, because a thread may be pinned later. The quota is
/// read [`LATER_NS`] later, by whoever asks for a look then; until that it counts as none.
pub fn begin() {
    if LAST.count.load(Relaxed) != 0 {
        return;
    }
    let count = OwnMask::own().count();
    if count == 0 {
        first_look();
        return;
    }
    LAST.next_ns.store(futex::now_ns() + LATER_NS, Relaxed);
    LAST.affinity.store(count, Relaxed);
    LAST.count.store(count, Relaxed);
}

/// Processors, as of the last look. At least 1.
#[inline]
pub fn available() -> u32 {
    match LAST.count.load(Relaxed) {
        0 => first_look(),
        count => count,
    }
}

/// Those that some thread may run on, whatever the quota, as of the last look.
pub fn affinity() -> u32 {
    available();
    LAST.affinity.load(Relaxed)
}

/// Is the quota less than the processors, as of the last look?
#[inline]
pub fn metered() -> bool {
    let affinity = u64::from(LAST.affinity.load(Relaxed));
    LAST.quota_milli.load(Relaxed) < affinity * 1000
}

/// How often the kernel has kept this program from running because its quota was spent; `None` without a quota. About 50 us.
pub fn throttling() -> Option<Throttlings> {
    Room::wait_for(|room| quota::throttling(&mut room.quota, &quota::OWN))
}

/// How often the number has changed since the first look.
pub fn changes() -> u32 {
    // ORDER: Acquire, pairs with `see`: who knows of a change reads the number after it.
    LAST.changes.load(Acquire)
}

#[cold]
fn first_look() -> u32 {
    let seen = Processors::look();
    LAST.next_ns.store(futex::now_ns() + AGAIN_NS, Relaxed);
    LAST.affinity.store(seen.affinity, Relaxed);
    LAST.quota_milli.store(seen.quota_milli.unwrap_or(u64::MAX), Relaxed);
    LAST.count.store(seen.count(), Relaxed);
    seen.count()
}

/// Looks again if it is time to; true if the number has changed.
#[inline]
pub fn refresh(now_ns: Option<u64>) -> bool {
    let now = now_ns.unwrap_or_else(futex::coarse_ns);
    let due = LAST.next_ns.load(Relaxed);
    let changed = server::changed();
    (now >= due || changed.is_some()) && look_again(now, due, changed)
}

#[cold]
#[inline(never)]
fn look_again(now: u64, due: u64, partition: Option<u32>) -> bool {
    let was = available();
    // One of those who find that it is time.
    if LAST.next_ns.compare_exchange(due, now + AGAIN_NS, Relaxed, Relaxed).is_err() {
        return false;
    }
    if let Some(generation) = partition {
        server::seen(generation);
    }
    registry::come_back();
    let generation = server::generation();
    let quota_milli = Some(LAST.quota_milli.load(Relaxed)).filter(|&milli| milli != u64::MAX);
    let last = Processors { affinity: LAST.affinity.load(Relaxed), quota_milli };
    let Some(seen) = Room::with(|room| last.look_again(room)) else {
        // Another thread still looks, perhaps since before that change.
        LAST.next_ns.store(now, Relaxed);
        return false;
    };
    LAST.affinity.store(seen.affinity, Relaxed);
    LAST.quota_milli.store(seen.quota_milli.unwrap_or(u64::MAX), Relaxed);
    let changed = seen.count() != was;
    if changed {
        LAST.count.store(seen.count(), Relaxed);
        // ORDER: Release, pairs with `changes`; publishes the number.
        LAST.changes.fetch_add(1, Release);
    }
    if server::generation() != generation {
        // A look that began after that change may have been faster than this one.
        LAST.next_ns.store(now, Relaxed);
    }
    changed
}

/// See [`platform::Platform::migrate`]. Some microseconds, and the wait for the other processor. Who sets
/// this thread's affinity from outside at the same moment may find it undone.
pub fn migrate(to: Option<u32>) -> bool {
    migrate_and(to, || ())
}

/// `meanwhile`: before it may run elsewhere again.
fn migrate_and(to: Option<u32>, meanwhile: impl FnOnce()) -> bool {
    let _errno = futex::Errno::save();
    let there = match to {
        Some(processor) => OwnMask::one(processor),
        None => OwnMask::one(running_on().unwrap_or(0)).not(),
    };
    let Some(narrowed) = Narrowed::of(0, there).filter(|narrowed| narrowed.now.set(0)) else {
        return false;
    };
    meanwhile();
    widen(narrowed);
    true
}

/// What was taken from a thread's affinity for a moment.
#[derive(Clone, Copy)]
pub(crate) struct Narrowed {
    before: OwnMask,
    now: OwnMask,
}

impl Narrowed {
    /// What is left of a thread's affinity, or with 0 of the calling one's. `None`: nothing is, or it is gone.
    fn of(tid: i32, to: OwnMask) -> Option<Self> {
        let before = *OwnMask::none().read(tid);
        let mut now = to;
        now.0.iter_mut().zip(before.0).for_each(|(now, before)| *now &= before);
        (now.count() > 0).then_some(Self { before, now })
    }
}

/// Takes all processors but those from another thread. `None`: nothing was done, as it has no other ones, or
/// none of those. Where it waits for one that it has no longer, it goes to one of those.
pub(crate) fn narrow(tid: i32, to: OwnMask) -> Option<Narrowed> {
    Narrowed::of(tid, to).filter(|narrowed| narrowed.now.0 != narrowed.before.0 && narrowed.now.set(tid))
}

/// By that thread: gives back what was taken. What somebody else has made of it in that time stays.
pub(crate) fn widen(narrowed: Narrowed) {
    let now = OwnMask::own();
    let wanted = if now.0 == narrowed.now.0 { narrowed.before } else { now };
    // Who has never set a mask follows its cpuset where that grows, and does so with this one.
    if !OwnMask::none().not().set(0) || OwnMask::own().0 != wanted.0 {
        wanted.set(0);
    }
}

/// See [`platform::Platform::running_on`].
#[inline]
pub fn running_on() -> Option<u32> {
    // SAFETY: no arguments.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Processors that a thread may use, 64 a word.
#[derive(Clone, Copy)]
pub(crate) struct Mask<const WORDS: usize>([u64; WORDS]);

/// BOUND: for as many as Linux can have, 8192.
type AllMask = Mask<128>;
/// For what must not need much stack. On a machine with more than 1024 processors it reads as empty.
pub(crate) type OwnMask = Mask<16>;

impl<const WORDS: usize> Mask<WORDS> {
    pub(crate) const fn none() -> Self {
        Self([0; WORDS])
    }

    /// Of the calling thread.
    fn own() -> Self {
        *Self::none().read(0)
    }

    /// Of a thread, or with 0 of the calling one; empty if there is none.
    fn read(&mut self, tid: i32) -> &mut Self {
        self.0.fill(0);
        // SAFETY: the kernel writes at most the size it is told.
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&self.0), self.0.as_mut_ptr()) };
        self
    }

    fn one(processor: u32) -> Self {
        let mut mask = Self::none();
        mask.insert(processor);
        mask
    }

    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// Makes it this thread's, or with 0 the calling one's.
    fn set(&self, tid: i32) -> bool {
        // SAFETY: the kernel reads the size it is told.
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size_of_val(&self.0), self.0.as_ptr()) == 0 }
    }

    pub(crate) fn insert(&mut self, processor: u32) {
        self.change(processor, |word, bit| *word |= bit);
    }

    pub(crate) fn remove(&mut self, processor: u32) {
        self.change(processor, |word, bit| *word &= !bit);
    }

    fn change(&mut self, processor: u32, change: impl Fn(&mut u64, u64)) {
        if let Some(word) = self.0.get_mut(processor as usize / 64) {
            change(word, 1 << (processor % 64));
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// What a look needs. Static, because the stack of the thread that looks may be small.
struct Room {
    mask: AllMask,
    theirs: AllMask,
    entries: Entries,
    quota: quota::Room,
}

struct Place(UnsafeCell<Room>);

// SAFETY: `Room::with` lets one thread at a time have it.
unsafe impl Sync for Place {}

static ROOM: Place = Place(UnsafeCell::new(Room {
    mask: Mask([0; 128]),
    theirs: Mask([0; 128]),
    entries: Entries([0; 1024]),
    quota: quota::Room::new(),
}));

/// The process of which a thread has the room; 0: none. A copy by fork says that it is the parent's, and so it is free.
static LOOKER: AtomicU32 = AtomicU32::new(0);

impl Room {
    /// Calls `each` with the room, unless another thread has it. No signal is handled meanwhile: a handler that waited for a
    /// lock, or forked, would find the room taken by its own thread.
    fn with<T>(each: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let _errno = futex::Errno::save();
        let _signals = NoSignals::new();
        // SAFETY: no arguments.
        let process = unsafe { libc::syscall(libc::SYS_getpid) } as u32;
        let looker = LOOKER.load(Relaxed);
        // ORDER: Acquire, pairs with the Release below; the last looker is done.
        if looker == process || LOOKER.compare_exchange(looker, process, Acquire, Relaxed).is_err() {
            return None;
        }
        // SAFETY: whoever changes LOOKER to this process has the room until it changes it back.
        let result = each(unsafe { &mut *ROOM.0.get() });
        // ORDER: Release, pairs with the Acquire above.
        LOOKER.store(0, Release);
        Some(result)
    }

    /// The same, after those who have it: some tens of microseconds each, in which they wait for nobody.
    fn wait_for<T>(mut each: impl FnMut(&mut Self) -> T) -> T {
        loop {
            if let Some(result) = Self::with(&mut each) {
                return result;
            }
            futex::nap(50_000);
        }
    }

    /// Adds to the mask those of all threads of this process, or of so many that there are `enough` processors. False if not all could be asked.
    fn join_threads(&mut self, enough: u32) -> bool {
        // SAFETY: system calls with a C string and a buffer of the size told; the descriptor is ours.
        unsafe {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
            let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/proc/self/task".as_ptr(), flags);
            if fd < 0 {
                return false;
            }
            let all = loop {
                let buffer = &mut self.entries.0;
                let got = libc::syscall(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len());
                if got <= 0 {
                    break got == 0;
                }
                for tid in self.entries.tids(got as usize) {
                    let theirs = self.theirs.read(tid);
                    self.mask.0.iter_mut().zip(theirs.0.iter()).for_each(|(ours, theirs)| *ours |= theirs);
                    if self.mask.count() >= enough {
                        break;
                    }
                }
                if self.mask.count() >= enough {
                    break true;
                }
            };
            libc::syscall(libc::SYS_close, fd);
            all
        }
    }
}

/// What getdents64 writes: records of an inode (8 bytes), an offset (8), the record's length (2), a type (1) and a name with its end.
#[repr(align(8))]
struct Entries([u8; 1024]);

impl Entries {
    /// The names that are numbers.
    fn tids(&self, length: usize) -> impl Iterator<Item = i32> {
        let mut rest = &self.0[..length];
        core::iter::from_fn(move || {
            let record = u16::from_ne_bytes([*rest.get(16)?, *rest.get(17)?]) as usize;
            let name = rest.get(19..record)?;
            rest = &rest[record..];
            Some(name.split(|&byte| byte == 0).next().and_then(quota::number))
        })
        .flatten()
        .map(|tid| tid as i32)
    }
}

pub fn standard_descriptors_are_open() -> bool {
    // SAFETY: F_GETFD changes nothing.
    (0..=2).all(|fd| unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) } >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of its own: affinity is a thread's.
    #[test]
    fn migration() {
        let moves = || {
            let all = OwnMask::own();
            assert!(!migrate(Some(8191)), "there is no such processor");
            let here = running_on().unwrap();
            assert!(migrate(Some(here)));
            assert_eq!(migrate(None), all.count() > 1);
            assert_eq!(OwnMask::own().0, all.0, "it may run where it might before");
            if all.count() > 1 {
                let mut other = all.0;
                other[here as usize / 64] &= !(1 << (here % 64));
                let other = Mask::<16>(other);
                assert!(migrate_and(Some(here), || assert!(other.set(0))));
                assert_eq!(OwnMask::own().0, other.0, "what another sets meanwhile stays");
                assert!(all.set(0));
            }
            assert!(OwnMask::one(running_on().unwrap()).set(0));
            assert!(!migrate(None), "pinned");
            assert_eq!(OwnMask::own().count(), 1, "and still is");
        };
        std::thread::spawn(moves).join().unwrap();
    }

    #[test]
    fn quotas() {
        for (quota_milli, count, limited) in [
            (None, 8, false),
            (Some(1), 1, true),
            (Some(1001), 2, true),
            (Some(7001), 8, true),
            (Some(8000), 8, false),
        ] {
            let processors = Processors { affinity: 8, quota_milli };
            assert_eq!((processors.count(), processors.limited_by_quota()), (count, limited));
        }
        assert_eq!(Processors { affinity: 0, quota_milli: None }.count(), 1);
    }

    /// Two at once would read each other's lines.
    #[test]
    fn one_looks_at_a_time() {
        let nobody_else = Room::wait_for(|_| Room::with(|_| ()).is_none());
        assert!(nobody_else);
        assert!(Room::wait_for(|_| true), "and then another");
    }

    #[test]
    fn tasks() {
        let mut entries = Entries([0; 1024]);
        let mut end = 0;
        for name in [&b"."[..], b"..", b"123", b"4567890"] {
            let record = (19 + name.len() + 1).next_multiple_of(8);
            entries.0[end + 16..end + 18].copy_from_slice(&(record as u16).to_ne_bytes());
            entries.0[end + 19..end + 19 + name.len()].copy_from_slice(name);
            end += record;
        }
        assert_eq!(entries.tids(end).collect::<Vec<_>>(), [123, 4_567_890]);
        assert_eq!(entries.tids(0).count(), 0);
        let joined = Room::wait_for(|room| {
            room.mask.0.fill(0);
            room.join_threads(u32::MAX).then(|| room.mask.count())
        });
        assert!(joined >= Some(OwnMask::own().count()));
    }
}
