// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many threads, of all programs, compete for the processors?
//!
//! The fourth field of `/proc/loadavg` counts the threads of the whole machine that run or could run at this
//! moment; it is no average. That tells about the processors of this program only if it may use all of them.
//! In a container the file tells of the host, or (lxcfs) of the container, or is not there. It is opened anew
//! for each look, because this program may close what it did not open.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use abi::View;
use platform::{Crowd, Platform};

use crate::{Linux, futex, processors, registry, tls};

/// Processors of the machine that are online, as of the last look; above them, how often our own had changed
/// then. 0 before the first look.
static MACHINE: AtomicU32 = AtomicU32::new(0);
const COUNT: u32 = (1 << 16) - 1;

/// The last look, see [`Look`].
static LAST: AtomicU64 = AtomicU64::new(0);
/// The binary logarithm of a tick, in ns.
const TICK_SHIFT: u32 = 17;
/// BOUND: ticks from one look to the next, at least: a millisecond.
const LOOK_TICKS: u32 = 8;
/// COST: looks so many ticks apart, 16 ms, have nothing to do with each other. No cell known.
const APART: u32 = 128;

/// What was seen, in 64 bits. Threads of ours are among them, since each who asks knows of other ones.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    /// When.
    tick: u32,
    /// How many threads could run, at most [`MOST`]; none: it could not tell.
    runnable: Option<u16>,
    /// The same at the look before, if that was not long ago, else now.
    before: u16,
    /// There was a look not long before.
    lasts: bool,
}

/// In 15 bits, and one value less than they have.
const MOST: u32 = UNTOLD as u32 - 1;
const UNTOLD: u16 = (1 << 15) - 1;
const LASTS: u16 = 1 << 15;

impl Look {
    fn from(word: u64) -> Self {
        let runnable = (word >> 32) as u16;
        Self {
            tick: word as u32,
            // 0 before the first look.
            runnable: (word != 0 && runnable != UNTOLD).then_some(runnable),
            before: (word >> 48) as u16 & !LASTS,
            lasts: (word >> 48) as u16 & LASTS != 0,
        }
    }

    fn word(self) -> u64 {
        let before = self.before | if self.lasts { LASTS } else { 0 };
        (before as u64) << 48 | (self.runnable.unwrap_or(UNTOLD) as u64) << 32 | self.tick as u64
    }

    /// The next one. Threads that are here for less than a millisecond, as the kernel's own are, come and go
    /// between two.
    fn next(self, tick: u32, runnable: Option<u32>) -> Self {
        let runnable = runnable.map(|count| count.min(MOST) as u16);
        let recent = self.runnable.filter(|_| tick.wrapping_sub(self.tick) <= APART);
        Self { tick, runnable, before: recent.or(runnable).unwrap_or(0), lasts: recent.is_some() }
    }

    /// Is it too early for the next one? The clocks of two who look differ a little.
    fn is_new(self, tick: u32) -> bool {
        tick.wrapping_sub(self.tick).wrapping_add(LOOK_TICKS) < 2 * LOOK_TICKS
    }

    /// To one that knows of so many threads of ours that could run.
    fn crowd(self, awake: u32, processors: u32) -> Option<Crowd> {
        let runnable = self.runnable?.min(self.before) as u32;
        Some(Crowd { others: runnable.saturating_sub(awake), processors, lasts: self.lasts })
    }
}

/// See [`platform::Platform::crowd`]. About 5 us a millisecond.
pub fn crowd(now_ns: u64, awake: u32) -> Option<Crowd> {
    let (last, tick) = (Look::from(LAST.load(Relaxed)), tick(now_ns));
    let look = if last.is_new(tick) { last } else { look(last, tick) };
    look.crowd(awake, MACHINE.load(Relaxed) & COUNT)
}

fn tick(now_ns: u64) -> u32 {
    (now_ns >> TICK_SHIFT) as u32
}

/// For how many verdicts of [`is_beside_others`] it stays true, in the bits of [`STAYS`]; [`JUDGED`]; above
/// them when the last one was, in ms.
static VERDICT: AtomicU64 = AtomicU64::new(0);
/// Somebody judges.
const JUDGED: u64 = 1 << STAYS.count_ones();
/// Processor time idle and of ours at that time, in ns.
static IDLE: AtomicU64 = AtomicU64::new(0);
static OWN: AtomicU64 = AtomicU64::new(0);
/// Milliseconds between two verdicts: four of the units in which the kernel tells idle time.
const VERDICT_MS: u64 = 40;
/// Verdicts for which others stay: who sleeps and wakes often leaves them little for tens of ms.
const STAYS: u64 = 7;
/// Until there is a verdict, others have a part: with that a mutex is as fast as the C library's, everywhere.
const UNKNOWN: u64 = 1;
const TIME_SHIFT: u32 = STAYS.count_ones() + 1;
/// What lasted for so long may have been over long ago. A judge who takes so long has been lost by a fork.
const STALE_MS: u64 = 10 * VERDICT_MS;

/// See [`platform::Platform::is_beside_others`]. Counts time and not threads: nobody knows which threads of
/// ours sleep. Time in which a processor waits for a disk or for its host counts as others'. About 10 us each
/// [`VERDICT_MS`].
pub fn is_beside_others(now_ns: u64) -> bool {
    let last = VERDICT.load(Relaxed);
    let ms = now_ns >> 20;
    let age = ms.saturating_sub(last >> TIME_SHIFT);
    if age < VERDICT_MS || last & JUDGED != 0 && age < STALE_MS { last & STAYS != 0 } else { judge(last) }
}

#[cold]
#[inline(never)]
fn judge(last: u64) -> bool {
    // From now on, so that nobody else judges: the last time may be long ago.
    let now = (futex::now_ns() >> 20) << TIME_SHIFT;
    if VERDICT.compare_exchange(last, now | JUDGED | last & STAYS, Relaxed, Relaxed).is_err() {
        return last & STAYS != 0;
    }
    let told =
        machine_is_ours().filter(|&processors| processors <= FEW).zip(first_line(c"/proc/uptime", idle));
    let (own, ms) = (futex::cpu_ns(), futex::now_ns() >> 20);
    let stays = match told {
        None => 0,
        Some((processors, idle)) => {
            let (idle_before, own_before) = (IDLE.swap(idle, Relaxed), OWN.swap(own, Relaxed));
            let (idled, used) = (idle.saturating_sub(idle_before), own.saturating_sub(own_before));
            let elapsed = ms.saturating_sub(last >> TIME_SHIFT);
            let all = processors as u64 * (elapsed << 20);
            // A forked child has used nothing yet.
            if elapsed >= STALE_MS || own < own_before {
                UNKNOWN
            } else if had_a_part(all, idled, used) {
                STAYS
            } else {
                (last & STAYS).saturating_sub(1)
            }
        }
    };
    VERDICT.store(ms << TIME_SHIFT | stays, Relaxed);
    stays != 0
}

/// On more processors it was not tried, and the kernel adds up longer.
const FEW: u32 = 4;

/// Did others have more than 3/16 of all processor time, and more than was idle? In ns. The kernel's units of
/// 10 ms are not others' time.
fn had_a_part(all: u64, idle: u64, ours: u64) -> bool {
    let others = all.saturating_sub(idle + ours);
    others > (all / 16 * 3).max(12_000_000) && others > idle
}

/// `350735.47 234388.90`: how long all processors were idle, in ns.
fn idle(line: &str) -> Option<u64> {
    let (s, hundredths) = line.split_once(' ')?.1.split_once('.')?;
    Some((s.parse::<u64>().ok()? * 100 + hundredths.parse::<u64>().ok()?) * 10_000_000)
}

/// The time of the last yield that [`yield_now_and_then`] made while others' threads could run, in ns.
static YIELDED: AtomicU64 = AtomicU64::new(0);
/// How many threads of ours could run then, as of the tick in the upper half.
static OURS: AtomicU64 = AtomicU64::new(0);

/// Until then nobody else's thread could run, as of the last look, by the coarse clock. That costs a quarter
/// of the other one, and is some ms late.
static ALONE: AtomicU64 = AtomicU64::new(0);
/// BOUND: as from one look to the next.
const ALONE_NS: u64 = (LOOK_TICKS as u64) << TICK_SHIFT;

/// `sched_yield`; but beside other programs, to which it may give a time slice, once a slice only. They have
/// their share all the same, when the kernel ends our slice. HINT: where no view tells our own threads from
/// others', each call yields.
pub fn yield_now_and_then() {
    // A thread without an id would count as another program's.
    if tls::id() != 0 && futex::coarse_ns() < ALONE.load(Relaxed) {
        return Linux::yield_now();
    }
    if let Some(ours) = registry::live().filter(|ours| matches!(ours.view(), View::Bpf | View::Perf)) {
        // Whoever has never waited would count as another program's.
        Linux::register_lazily();
        let now = futex::now_ns();
        // Asked of each thread of ours, and so not at each yield.
        let known = OURS.load(Relaxed);
        let awake = if tick(now).wrapping_sub((known >> 32) as u32) < LOOK_TICKS {
            known as u32
        } else {
            let awake = ours.may_run().max(1);
            OURS.store((tick(now) as u64) << 32 | awake as u64, Relaxed);
            awake
        };
        if crowd(now, awake).is_some_and(|crowd| crowd.others > 0) {
            if now.saturating_sub(YIELDED.load(Relaxed)) < Linux::costs().slice {
                return;
            }
            YIELDED.store(now, Relaxed);
        } else {
            ALONE.store(futex::coarse_ns() + ALONE_NS, Relaxed);
        }
    }
    Linux::yield_now();
}

#[cold]
#[inline(never)]
fn look(last: Look, tick: u32) -> Look {
    // HINT: of two who look at the same time one is forgotten.
    let now = last.next(tick, runnable());
    LAST.store(now.word(), Relaxed);
    now
}

/// Threads that can run, of all programs, if the processors that they have are the same as ours.
fn runnable() -> Option<u32> {
    machine_is_ours()?;
    first_line(c"/proc/loadavg", running)
}

/// The machine's processors, if this program may use all of them.
fn machine_is_ours() -> Option<u32> {
    if !processors::standard_descriptors_are_open() {
        return None;
    }
    machine().filter(|&processors| processors::affinity() >= processors)
}

/// Processors of the machine, looked at again when ours have changed.
fn machine() -> Option<u32> {
    let changes = processors::changes() << 16;
    let last = MACHINE.load(Relaxed);
    if last & COUNT > 0 && last & !COUNT == changes {
        return Some(last & COUNT);
    }
    let online = first_line(c"/sys/devices/system/cpu/online", online)?.min(COUNT);
    MACHINE.store(changes | online, Relaxed);
    Some(online)
}

/// What `parse` makes of the file's first line. Small, and no cancellation point.
fn first_line<T>(file: &CStr, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let _errno = futex::Errno::save();
    let mut buffer = [0u8; 256];
    // SAFETY: a C string, and a buffer of the size told; the descriptor is ours.
    let got = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, file.as_ptr(), flags);
        if fd < 0 {
            return None;
        }
        let got = libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len());
        libc::syscall(libc::SYS_close, fd);
        got
    };
    let text = core::str::from_utf8(buffer.get(..usize::try_from(got).ok()?)?).ok()?;
    // A line that does not fit has no end.
    parse(text.split_once('\n')?.0)
}

/// `0.20 0.18 0.12 3/112 14384`: 3.
fn running(line: &str) -> Option<u32> {
    line.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// `0-3,8,10-11`: 7.
fn online(line: &str) -> Option<u32> {
    line.split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(running("0.20 0.18 0.12 3/112 14384"), Some(3));
        assert_eq!(running("0.20 0.18 0.12"), None);
        assert_eq!(running(""), None);
        assert_eq!(running("0.20 0.18 0.12 x/112 14384"), None);
        assert_eq!(idle("350735.47 234388.90"), Some(234_388_900_000_000));
        assert_eq!(idle("350735.47"), None);
        assert_eq!(idle("350735.47 x.90"), None);
        let ms =
            |all: u64, idle: u64, ours: u64| had_a_part(all * 1_000_000, idle * 1_000_000, ours * 1_000_000);
        assert!(ms(160, 0, 129) && !ms(160, 0, 130) && !ms(160, 0, 170));
        assert!(ms(160, 50, 50) && !ms(160, 60, 50), "where processors are idle, nobody takes one");
        assert!(ms(40, 0, 27) && !ms(40, 0, 28), "a unit of the kernel's on one processor");
        assert_eq!(online("0"), Some(1));
        assert_eq!(online("0-3,8,10-11"), Some(7));
        assert_eq!(online(""), None);
        assert_eq!(online("3-1"), None);
        assert_eq!(online("0-4294967295"), None);
        assert_eq!(first_line(c"/nonesuch", |_| Some(())), None);
        assert_eq!(first_line(c"/proc/self/cmdline", |_| Some(())), None, "it has no line");
    }

    #[test]
    fn looks() {
        let crowd = |others, lasts| Some(Crowd { others, processors: 2, lasts });
        let at = |ms: u32| ms * LOOK_TICKS;
        let first = Look::from(0).next(at(1_000), Some(5));
        assert_eq!(Look::from(first.word()), first);
        assert_eq!(
            first.crowd(2, 2),
            crowd(3, false),
            "the first look says what it sees, and that it is one"
        );
        assert_eq!(first.crowd(1, 2), crowd(4, false), "one who knows of fewer of ours sees more others");
        let gone = first.next(at(1_001), Some(2));
        assert_eq!(Look::from(gone.word()), gone);
        assert_eq!(gone.crowd(2, 2), crowd(0, true));
        assert_eq!(gone.crowd(3, 2), crowd(0, true));
        let brief = gone.next(at(1_002), Some(6));
        assert_eq!(brief.crowd(2, 2), crowd(0, true), "one look may be at what is brief");
        assert_eq!(brief.next(at(1_003), Some(7)).crowd(2, 2), crowd(4, true));
        assert_eq!(gone.next(at(2_000), Some(6)).crowd(2, 2), crowd(4, false), "long after");
        let untold = gone.next(at(1_002), None);
        assert_eq!((untold.crowd(2, 2), Look::from(untold.word())), (None, Look { before: 2, ..untold }));
        assert!(!untold.next(at(1_003), Some(3)).lasts, "the look before could not tell");
        assert_eq!(Look::from(0).crowd(0, 2), None, "nobody has looked yet");
        let many = first.next(at(1_002), Some(1 << 20)).next(at(1_003), Some(1 << 20));
        assert_eq!((many.crowd(0, 2), Look::from(many.word())), (crowd(MOST, true), many));
    }

    /// Two looks are a millisecond apart or more, so that one brief thread is not seen by both.
    #[test]
    fn when_to_look() {
        let look = Look::from(0).next(1_000, Some(3));
        let is_new = |ticks: &[u32]| ticks.iter().all(|&tick| look.is_new(tick));
        assert!(is_new(&[1_000, 1_000 + LOOK_TICKS - 1, 1_000 - LOOK_TICKS]));
        assert!(!look.is_new(1_000 + LOOK_TICKS));
        assert!(!look.is_new(1_000 + (1 << 31)));
        assert!(!Look::from(0).is_new(LOOK_TICKS), "nobody has looked yet");
    }

    /// Whoever asks runs; so does whoever else burns a processor.
    #[test]
    fn who_runs_is_counted() {
        assert!(machine().unwrap() >= processors::available());
        let first = running_now();
        assert!(first >= 1);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // Others end meanwhile, or begin; 64 do not. One that starts may sleep in the kernel, for a
            // lock whose holder waits for a processor: so looks are not counted, but seconds.
            let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
            let mut seen = false;
            while !seen && std::time::Instant::now() < end {
                std::thread::yield_now();
                seen = running_now() >= 65;
            }
            stop.store(true, Relaxed);
            assert!(seen);
        });
    }

    fn running_now() -> u32 {
        first_line(c"/proc/loadavg", running).expect("/proc is mounted")
    }
}
