// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sentinels: carriers without a seat that hear from the kernel. All others sleep on their words. Where
//! there are many seats, they hear first what there is (`look.rs`).
//!
//! There are two, so that one may leave for a fiber without waking another first. Each event wakes one of
//! them (the carriers' events are edge-triggered). So a call may wake the wrong one, who calls again.
//!
//! They sleep in epoll on the events of the carriers that run ([`linux::upcall`]), on a timer for the fibers
//! that sleep, and on an event by which others call them. They are SCHED_BATCH meanwhile: so they never
//! preempt a carrier that runs, and run at once where one has blocked.
//!
//! Once there were low fibers, carriers that sleep have short slices: who was woken waits less behind a low
//! one. A carrier that got up gives them back before it runs a fiber: what fibers start would inherit them.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*, fence};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use linux::{Kernel, Linux, hurry, upcall};
use platform::Platform;

/// Sentinels at most.
const POSTS: usize = 2;
/// Nobody is the sentinel.
const NOBODY: u32 = u32::MAX;
/// What epoll says of the two descriptors that are no carrier's.
const CALLED: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// Where nothing tells the sentinel, it looks so often.
pub const LOOK_NS: u64 = 2_000_000;

/// Events that are heard together, at most.
pub const HEARD: usize = 16;

/// What the sentinel is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This carrier left its processor or came back.
    Switched(u32),
    /// A timer is due.
    Timer,
    /// Somebody is called.
    Called,
    /// Nothing can be told: somebody closed the descriptors.
    Deaf,
}

/// The role, and what its holder sleeps on.
pub struct Sentinel {
    who: [AtomicU32; POSTS],
    /// They sleep for long: no carrier runs that it has to look at.
    dozes: AtomicBool,
    epoll: OwnedFd,
    /// Always ready: see [`Sentinel::ring`].
    call: OwnedFd,
    timer: OwnedFd,
}

fn owned(descriptor: i32) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(upcall::high(descriptor)) })
}

impl Sentinel {
    /// # Errors
    /// Those of `epoll_create1`, `eventfd`, `timerfd_create`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let (epoll, call, timer) = unsafe {
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
                owned(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK))?,
            )
        };
        let sentinel = Self {
            who: [const { AtomicU32::new(NOBODY) }; POSTS],
            dozes: AtomicBool::new(false),
            epoll,
            call,
            timer,
        };
        sentinel.watch(sentinel.call.as_raw_fd(), CALLED)?;
        sentinel.watch(sentinel.timer.as_raw_fd(), TIMER)?;
        Ok(sentinel)
    }

    /// From now on switches of this carrier, whose event this is, wake the sentinel.
    ///
    /// # Errors
    /// That of `epoll_ctl`.
    pub fn watch(&self, descriptor: i32, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, number)
    }

    fn control(&self, operation: i32, descriptor: i32, number: u64) -> io::Result<()> {
        let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
        let mut event = libc::epoll_event { events, u64: number };
        // SAFETY: the event lives across the call.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The caller is a sentinel, if a post is empty. `usual`: see [`is_usual`]. `short`: with short slices.
    pub fn begin(&self, me: u32, usual: bool, short: bool) -> bool {
        // ORDER: SeqCst and a fence, pairs with `call`: whoever calls us sees that we are it, or we see why.
        let begun = self.who.iter().any(|who| who.compare_exchange(NOBODY, me, SeqCst, Relaxed).is_ok());
        fence(SeqCst);
        if begun && usual {
            set_usual(libc::SCHED_BATCH, short);
        }
        begun
    }

    /// The caller is a sentinel no longer. `short`: it had short slices.
    pub fn end(&self, me: u32, usual: bool, short: bool) {
        for who in &self.who {
            let _ = who.compare_exchange(me, NOBODY, SeqCst, Relaxed);
        }
        if usual {
            be_usual(short);
        }
    }

    /// Is nobody a sentinel?
    pub fn is_vacant(&self) -> bool {
        self.all().next().is_none()
    }

    /// The sentinels.
    pub fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.who.iter().map(|who| who.load(SeqCst)).filter(|&who| who != NOBODY)
    }

    /// Wakes this carrier if it is a sentinel. Its word was changed before.
    pub fn call(&self, carrier: u32) {
        // ORDER: as in `begin`.
        fence(SeqCst);
        if self.all().any(|who| who == carrier) {
            self.ring();
        }
    }

    /// Wakes a sentinel: epoll looks again at what is always ready, and tells of it once more. Nothing is
    /// written: the program may have closed the descriptors, and used their high numbers again.
    pub fn ring(&self) {
        let _ = self.control(libc::EPOLL_CTL_MOD, self.call.as_raw_fd(), CALLED);
    }

    /// The sentinel is about to sleep for long, unless the caller finds a reason not to after this.
    pub fn doze(&self, dozes: bool) {
        self.dozes.store(dozes, Relaxed);
        // ORDER: SeqCst, pairs with `rouse`: it sees that we doze, or we see its seat.
        fence(SeqCst);
    }

    /// A carrier runs from now on that the sentinel has to look at.
    pub fn rouse(&self) {
        // ORDER: as in `doze`.
        fence(SeqCst);
        if self.dozes.swap(false, Relaxed) {
            self.ring();
        }
    }

    /// The first timer is due then; 0: there is none.
    pub fn set_timer(&self, ns: u64) {
        let time = libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = libc::itimerspec { it_interval: none, it_value: time };
        // SAFETY: the structure lives across the call.
        unsafe {
            libc::timerfd_settime(
                self.timer.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &timer,
                core::ptr::null_mut(),
            )
        };
    }

    /// Sleeps for at most this long, rounded up to milliseconds, and says when it is `awoken`. Returns what
    /// `handle` returned first, after so many of the first events.
    pub fn sleep<T>(
        &self,
        most_ns: u64,
        most: usize,
        awoken: impl FnOnce(),
        mut handle: impl FnMut(Event) -> Option<T>,
    ) -> Option<T> {
        let most_ms = most_ns.div_ceil(1_000_000) as i32;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; HEARD];
        let most = most.min(HEARD) as i32;
        // SAFETY: the array lives across the call.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), most, most_ms) };
        let deaf = count < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted;
        awoken();
        if deaf {
            if most_ns > 0 {
                Kernel::nap(most_ns.min(LOOK_NS));
            }
            return handle(Event::Deaf);
        }
        let mut found = None;
        for event in &events[..count.max(0) as usize] {
            let told = match event.u64 {
                CALLED => Event::Called,
                TIMER => Event::Timer,
                carrier => Event::Switched(carrier as u32),
            };
            // All are heard: an event of a carrier comes once.
            found = found.or(handle(told));
        }
        found
    }
}

/// Is the calling thread of the usual policy? One that is not keeps what it has.
pub fn is_usual() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_OTHER }
}

/// Is the calling thread as [`be_low`] makes it?
pub fn is_low() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_IDLE }
}

/// The calling thread, which a sentinel made, is of the usual policy. `short`: its maker had short slices.
pub fn be_usual(short: bool) {
    if !(short && hurry::be(libc::SCHED_OTHER, false)) {
        set_policy(libc::SCHED_OTHER);
    }
}

fn set_usual(policy: i32, short: bool) {
    if !(short && hurry::be(policy, true)) {
        set_policy(policy);
    }
}

/// The calling thread runs where the processor would idle, or nearly so, from now on for ever: the kernel
/// takes nothing back without privilege.
pub fn be_low() {
    set_policy(libc::SCHED_IDLE);
}

fn set_policy(policy: i32) {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::sched_setscheduler(0, policy, &parameter) };
}

/// HINT: does this thread of the process sleep in the kernel? For carriers without an event.
pub fn is_blocked(thread: i32) -> bool {
    let path = format!("/proc/self/task/{thread}/stat");
    let Ok(text) = std::fs::read(path) else { return false };
    // The name, in brackets, may hold anything.
    let state = text.iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 2));
    matches!(state, Some(b'S' | b'D'))
}

/// The monotonic clock.
pub fn now_ns() -> u64 {
    Linux::now_ns()
}
