// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder's end of the file that a profiled program writes into: [`abi::profile`] has its layout.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::*;

use abi::profile::{
    self, CONTROLS_AT, Class, Control, EVENTS, EVENTS_AT, FREE, Header, Kind, MAGIC, MOST_EVERY, READY,
    RINGS, SHARED, SIZE, UNTOLD, UNTOLD_AT, VERSION, WRITER,
};

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the monotonic clock.
    pub time_ns: u64,
    /// Its process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// What.
    pub kind: Kind,
    /// With what.
    pub class: Class,
    /// Other processes may use it, too.
    pub shared: bool,
    /// Of a reader-writer lock: as a writer.
    pub writer: bool,
    /// See [`Kind`].
    pub number: u32,
    /// The address of the lock, or of what it is.
    pub object: u64,
    /// Where the program called.
    pub caller: u64,
}

/// BOUND: waits, and ns, that a thread can count in one turn. More is nonsense: that is 52 days.
const MOST_UNTOLD: u64 = 1 << 52;

/// Waits that were counted and not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untold {
    /// As [`Event`]'s.
    pub process: u32,
    /// See `process`.
    pub thread: u32,
    /// See `process`.
    pub class: Class,
    /// See `process`.
    pub object: u64,
    /// See `process`.
    pub caller: u64,
    /// How many, and how long together.
    pub count: u64,
    /// See `count`.
    pub ns: u64,
}

impl Untold {
    /// One of [`Kind::Counted`].
    pub fn of(event: &Event) -> Self {
        let Event { process, thread, class, object, caller, number, .. } = *event;
        Self { process, thread, class, object, caller, count: 1, ns: u64::from(number) * 1000 }
    }
}

/// The file.
pub struct Events {
    file: File,
    base: *mut u8,
    /// Events that found no room, in rings that have been freed since.
    dropped: u64,
    /// Rings that have ever been taken: none behind them.
    used: usize,
    /// When each of them was first seen with its thread; the last time of all: not yet.
    seen_ns: Vec<u64>,
}

// SAFETY: the mapping is this value's alone, as far as this process is concerned.
unsafe impl Send for Events {}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference into it.
        unsafe { libc::munmap(self.base.cast(), SIZE) };
    }
}

impl Events {
    /// A new file.
    ///
    /// # Errors
    /// As memfd_create(2), ftruncate(2), fcntl(2) and mmap(2).
    pub fn new() -> io::Result<Self> {
        // SAFETY: C strings and numbers; the descriptor is new, and nobody else's.
        let file = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            let number = libc::memfd_create(c"wakeful-profile".as_ptr(), flags);
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(number)
        };
        // Under a limit of file sizes (ulimit -f) the kernel would end us, instead of an error.
        // SAFETY: nothing is handled: the signal is ignored, and then as it was.
        let sized = unsafe {
            let before = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let sized = file.set_len(SIZE as u64);
            libc::signal(libc::SIGXFSZ, before);
            sized
        };
        sized?;
        // The program can open it. If it made the file shorter, we would end at our next look.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: a descriptor and numbers.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh mapping.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
            libc::mmap(null_mut(), SIZE, access, flags, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let events = Self { file, base: base.cast(), dropped: 0, used: 0, seen_ns: vec![u64::MAX; RINGS] };
        events.header().magic.store(MAGIC, Relaxed);
        events.header().version.store(VERSION, Relaxed);
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino());
        events.header().namespace.store(namespace, Relaxed);
        Ok(events)
    }

    /// How the program finds it, as long as this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with it, and all of it are atomics.
        unsafe { &*self.base.cast() }
    }

    fn control(&self, ring: usize) -> &Control {
        assert!(ring < RINGS);
        // SAFETY: in the mapping, and all of it are atomics.
        unsafe { &*self.base.add(CONTROLS_AT).cast::<Control>().add(ring) }
    }

    fn event(&self, ring: usize, at: u64) -> &profile::Event {
        assert!(ring < RINGS);
        let index = ring * EVENTS + (at as usize & (EVENTS - 1));
        // SAFETY: in the mapping, and all of it are atomics.
        unsafe { &*self.base.add(EVENTS_AT).cast::<profile::Event>().add(index) }
    }

    /// Takes all events that there are, of one thread after the other. Says how full the fullest ring was, of
    /// [`EVENTS`].
    pub fn drain(&mut self, mut take: impl FnMut(Event)) -> usize {
        let mut most = 0;
        // Threads take the rings in turn, from the first one on, and free ones again only after the last.
        let taken = self.header().next.load(Relaxed) as usize;
        self.used = self.used.max(taken).min(RINGS);
        for ring in 0..self.used {
            // ORDER: Acquire, pairs with the thread's Release; it has written who it is.
            if self.control(ring).state.load(Acquire) != READY {
                continue;
            }
            if self.seen_ns[ring] == u64::MAX {
                self.seen_ns[ring] = crate::now_ns();
            }
            let control = self.control(ring);
            let (process, thread) = (control.process.load(Relaxed), control.thread.load(Relaxed));
            // ORDER: Acquire, pairs with the thread's Release; it has written the events.
            let (end, mut at) = (control.head.load(Acquire), control.tail.0.load(Relaxed));
            // A program may write anything here.
            if end.wrapping_sub(at) > EVENTS as u64 {
                at = end;
            }
            most = most.max(end.wrapping_sub(at) as usize);
            while at != end {
                let event = self.event(ring, at);
                let words = [&event.time_ns, &event.object, &event.caller, &event.what];
                let words = words.map(|word| word.load(Relaxed));
                parse(words, process, thread).into_iter().for_each(&mut take);
                at = at.wrapping_add(1);
            }
            // ORDER: Release, pairs with the thread's Acquire; we have read what it may overwrite.
            control.tail.0.store(end, Release);
            if let Some((time_ns, what, object)) = control.take_release() {
                parse([time_ns, object, 0, what], process, thread).into_iter().for_each(&mut take);
            }
        }
        most
    }

    /// One wait of so many is told from now on, as a power of two; and of those at barriers.
    pub fn tell_each(&self, every: [u32; 2]) {
        let words = self.header().every.iter().zip(every);
        words.for_each(|(word, every)| word.store(every.min(MOST_EVERY), Relaxed));
    }

    /// Takes what was counted and not told, with when its ring was first seen: there was no exec(2) between.
    pub fn drain_untold(&self, mut take: impl FnMut(Untold, u64)) {
        for ring in 0..self.used {
            let control = self.control(ring);
            // ORDER: Acquire, as in `drain`.
            if control.state.load(Acquire) != READY {
                continue;
            }
            // ORDER: Acquire, pairs with the thread's Release; it has written the words.
            if control.has_untold.load(Relaxed) == 0 || control.has_untold.swap(0, Acquire) == 0 {
                continue;
            }
            let (process, thread) = (control.process.load(Relaxed), control.thread.load(Relaxed));
            for at in 0..UNTOLD {
                // SAFETY: in the mapping, and all of it are atomics.
                let words =
                    unsafe { &*self.base.add(UNTOLD_AT).cast::<profile::Untold>().add(ring * UNTOLD + at) };
                // The thread writes here just now: the next time.
                let Ok(taken) = words.take() else {
                    control.has_untold.store(1, Relaxed);
                    continue;
                };
                if let Some([object, caller, what, count, ns]) = taken
                    && let Some(class) = Class::of((what >> 8) as u8)
                {
                    // A program may write nonsense, and these are added up.
                    let (count, ns) = (count.min(MOST_UNTOLD), ns.min(MOST_UNTOLD));
                    take(Untold { process, thread, class, object, caller, count, ns }, self.seen_ns[ring]);
                }
            }
        }
    }

    /// Frees the rings of threads that are gone, once they are empty. Says which threads those were.
    pub fn free_rings(&mut self) -> Vec<u32> {
        let mut gone = Vec::new();
        for ring in 0..self.used {
            let control = self.control(ring);
            // ORDER: Acquire, as in `drain`.
            if control.state.load(Acquire) != READY {
                continue;
            }
            let (process, thread) = (control.process.load(Relaxed), control.thread.load(Relaxed));
            // SAFETY: no signal is sent: only asks whether the thread is there.
            let asked = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
            let is_gone = asked != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
            let is_empty = control.head.load(Relaxed) == control.tail.0.load(Relaxed)
                && control.released.load(Relaxed) == 0
                // One that was killed at work leaves a count that cannot be taken.
                && (control.has_untold.load(Relaxed) == 0 || control.busy.load(Relaxed) != 0);
            if is_gone && is_empty {
                let dropped = u64::from(control.dropped.swap(0, Relaxed));
                // ORDER: Release, pairs with the Acquire of a thread that takes it; it is empty.
                control.state.store(FREE, Release);
                (self.dropped, self.seen_ns[ring]) = (self.dropped + dropped, u64::MAX);
                gone.push(thread);
            }
        }
        gone
    }

    /// Events that found no room so far.
    pub fn dropped(&self) -> u64 {
        let here = (0..self.used).map(|ring| u64::from(self.control(ring).dropped.load(Relaxed)));
        self.dropped + here.sum::<u64>()
    }

    /// Releases that were told and maybe taken back, and what found no room: what threads wrote, and nobody
    /// reads.
    pub fn untaken(&self) -> (u64, u64) {
        let releases = (0..self.used).map(|ring| u64::from(self.control(ring).releases.load(Relaxed)));
        (releases.sum(), self.dropped())
    }

    /// Processes that write here, or did.
    pub fn processes(&self) -> u32 {
        self.header().processes.load(Relaxed)
    }

    /// Processes in another PID namespace, and such that had no room for the file.
    pub fn refused(&self) -> (u32, u32) {
        (self.header().elsewhere.load(Relaxed), self.header().unmapped.load(Relaxed))
    }

    /// Threads for which there was no ring.
    pub fn without_ring(&self) -> u32 {
        self.header().without_ring.load(Relaxed)
    }
}

/// An event's words; none if they are nonsense.
fn parse([time_ns, object, caller, what]: [u64; 4], process: u32, thread: u32) -> Option<Event> {
    let (kind, class) = (Kind::of(what as u8)?, Class::of((what >> 8) as u8)?);
    let (shared, writer, number) = (what & SHARED != 0, what & WRITER != 0, (what >> 32) as u32);
    Some(Event { time_ns, process, thread, kind, class, shared, writer, number, object, caller })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a thread does it, but for the ring's choice.
    fn write(events: &Events, ring: usize, what: u64) -> bool {
        let control = events.control(ring);
        let head = control.head.load(Relaxed);
        if head - control.tail.0.load(Acquire) >= EVENTS as u64 {
            control.dropped.fetch_add(1, Relaxed);
            return false;
        }
        let event = events.event(ring, head);
        event.object.store(head, Relaxed);
        event.what.store(what, Relaxed);
        control.head.store(head + 1, Release);
        true
    }

    fn taken(events: &Events, ring: usize, process: u32, thread: u32) {
        events.control(ring).process.store(process, Relaxed);
        events.control(ring).thread.store(thread, Relaxed);
        events.control(ring).state.store(READY, Release);
        events.header().next.fetch_max(ring as u32 + 1, Relaxed);
    }

    #[test]
    fn what_is_written_comes_out_once_and_what_finds_no_room_is_counted() {
        let mut events = Events::new().unwrap();
        taken(&events, 3, 5, 6);
        let wait = Kind::Wait as u64 | (Class::Mutex as u64) << 8 | 9 << 32;
        let written = (0..EVENTS + 7).filter(|_| write(&events, 3, wait)).count();
        assert_eq!((written, events.dropped()), (EVENTS, 0), "no ring is known before the first look");
        let mut all = Vec::new();
        assert_eq!(events.drain(|event| all.push(event)), EVENTS);
        assert_eq!((all.len(), events.dropped()), (EVENTS, 7));
        let (kind, class) = (Kind::Wait, Class::Mutex);
        let first = Event {
            time_ns: 0,
            process: 5,
            thread: 6,
            kind,
            class,
            shared: false,
            writer: false,
            number: 9,
            object: 0,
            caller: 0,
        };
        assert_eq!(all[0], first);
        assert_eq!(events.drain(|event| panic!("{event:?}")), 0);
        assert!(write(&events, 3, 0) && write(&events, 3, wait));
        let mut objects = Vec::new();
        events.drain(|event| objects.push(event.object));
        assert_eq!(objects, [EVENTS as u64 + 1], "nonsense is left out");
    }

    #[test]
    fn a_ring_is_free_again_when_its_thread_is_gone_and_it_is_empty() {
        let mut events = Events::new().unwrap();
        let own = std::process::id();
        // No thread has this number: the kernel's limit is 2^22.
        taken(&events, 0, own, i32::MAX as u32);
        taken(&events, 1, own, own);
        let got = Kind::Got as u64 | (Class::Mutex as u64) << 8;
        write(&events, 0, got);
        events.used = 2;
        let states = |events: &Events| [0, 1].map(|ring| events.control(ring).state.load(Relaxed));
        assert_eq!((events.free_rings(), states(&events)), (vec![], [READY, READY]));
        events.drain(|_| {});
        assert_eq!((events.free_rings(), states(&events)), (vec![i32::MAX as u32], [FREE, READY]));
        assert_eq!(events.free_rings(), []);
    }

    #[test]
    fn the_last_release_is_taken_once() {
        let mut events = Events::new().unwrap();
        taken(&events, 0, 5, 6);
        events.control(0).put_release((70, RELEASED, 16));
        let mut all = Vec::new();
        events.drain(|event| all.push(event));
        events.drain(|event| all.push(event));
        let (kind, class) = (Kind::Released, Class::Spin);
        let one = Event {
            time_ns: 70,
            process: 5,
            thread: 6,
            kind,
            class,
            shared: false,
            writer: false,
            number: 0,
            object: 16,
            caller: 0,
        };
        assert_eq!(all, [one]);
        assert_eq!(events.control(0).take_back(), None);
        events.control(0).put_release((71, RELEASED, 32));
        assert_eq!(events.control(0).take_back(), Some((71, RELEASED, 32)));
        assert_eq!(events.control(0).take_release(), None);
    }

    #[test]
    fn what_is_not_told_is_counted_by_object_and_place() {
        let mut events = Events::new().unwrap();
        taken(&events, 1, 5, 6);
        events.drain(|_| {});
        // SAFETY: the mapping outlives this, and all of it are atomics.
        let words = unsafe { &*events.base.add(UNTOLD_AT).cast::<profile::Untold>().add(UNTOLD) };
        let what = (Class::Mutex as u64) << 8;
        events.control(1).has_untold.store(1, Relaxed);
        assert!(words.add(16, 4, what, 70) && words.add(16, 4, what, 30));
        assert!(!words.add(32, 4, what, 1), "not all was read");
        let mut all = Vec::new();
        let before_ns = crate::now_ns();
        events.drain_untold(|one, seen_ns| {
            assert!((1..=before_ns).contains(&seen_ns), "since the first drain");
            all.push(one);
        });
        let class = Class::Mutex;
        let one = Untold { process: 5, thread: 6, class, object: 16, caller: 4, count: 2, ns: 100 };
        assert_eq!(all, [one]);
        events.drain_untold(|one, _| panic!("{one:?}"));
        assert!(words.add(32, 4, what, 7));
        events.control(1).has_untold.store(1, Relaxed);
        events.drain_untold(|one, _| all.push(one));
        assert_eq!((all[1].object, all[1].count, all[1].ns), (32, 1, 7));
        // Another lock of the same place, where there is no room for it; and one of another place.
        assert!(words.add(32, 4, what, 7) && !words.add(48, 4, what, 1));
        assert!(words.add_at_place(4, what, 9) && !words.add_at_place(5, what, 9));
        events.control(1).has_untold.store(1, Relaxed);
        events.drain_untold(|one, _| all.push(one));
        assert_eq!((all[2].object, all[2].count, all[2].ns), (32, 2, 16));
        let word = Kind::Counted as u64 | what | 5 << 32;
        let one = parse([1, 48, 5, word], 5, 6).unwrap();
        let one = Untold::of(&one);
        assert_eq!((one.object, one.caller, one.count, one.ns), (48, 5, 1, 5_000));
    }

    const RELEASED: u64 = Kind::Released as u64 | (Class::Spin as u64) << 8;

    /// A thread that releases one lock after another, all the time.
    #[test]
    fn a_release_comes_with_its_own_time() {
        const RELEASES: u64 = 2_000_000;
        let mut events = Events::new().unwrap();
        taken(&events, 0, 5, 6);
        // SAFETY: the mapping outlives the scope, and all of it are atomics.
        let control = unsafe { &*std::ptr::from_ref(events.control(0)) };
        let mut seen = 0u64;
        let back = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut back = 0u64;
                for time_ns in 1..=RELEASES {
                    if let Some((time_ns, _, object)) = control.take_back() {
                        assert_eq!(object, time_ns << 4);
                        back += 1;
                    }
                    control.put_release((time_ns, RELEASED, time_ns << 4));
                }
                back
            });
            while !thread.is_finished() {
                events.drain(|event| {
                    assert_eq!(event.object, event.time_ns << 4);
                    seen += 1;
                });
            }
            thread.join().unwrap()
        });
        events.drain(|_| seen += 1);
        assert_eq!(back + seen, RELEASES, "each once");
    }

    /// We would end by SIGBUS at the next look.
    #[test]
    fn the_program_cannot_take_the_file_away() {
        let mut events = Events::new().unwrap();
        let theirs = File::options().write(true).open(events.path()).unwrap();
        for size in [0, 2 * SIZE as u64] {
            assert_eq!(theirs.set_len(size).unwrap_err().raw_os_error(), Some(libc::EPERM));
        }
        events.drain(|event| panic!("{event:?}"));
    }

    #[test]
    fn a_ring_that_the_program_has_spoilt_does_no_harm() {
        let mut events = Events::new().unwrap();
        taken(&events, 0, 1, 2);
        events.control(0).head.store(u64::MAX, Relaxed);
        assert_eq!(events.drain(|event| panic!("{event:?}")), 0);
    }
}
