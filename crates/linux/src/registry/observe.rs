// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which observer fills the arena: one of our own, our parent's, or the processor server's.

use core::sync::atomic::{AtomicU32, Ordering::*};

use abi::View;
use abi::environment::OBSERVER;
use platform::{Clock, Deadline, Wait};

use super::space::{ARENA_AT, build, live, observed_by, publish, vacant};
use crate::view::{self, Request};
use crate::{futex, server};

/// An inherited observer is taken over at once: until then our children would inherit its descriptors.
#[inline(always)]
pub(super) fn inherit() {
    if server::variable(OBSERVER, |_| Some(())).is_some()
        && may_be_observed()
        && let Some(observer) = view::bpf::inherited()
    {
        let _ = observe_with(observer);
    }
}

/// Takes an arena of the scheduler's, if one that has started this program had one. True: it has one now.
pub(super) fn join() -> bool {
    server::variable(OBSERVER, |_| Some(())).is_some()
        && may_be_observed()
        && server::scheduled::join().is_some_and(|observer| observe_with(observer).is_ok())
}

/// The same, for a thread that registers before the program has called [`load`]: at a lock that registers its
/// thread at once, before there are others. Once; a forked child has what its parent found out. Only a
/// program that was started with an observer asks, and may have to wait.
#[inline]
pub(super) fn join_first() {
    static JOINED: Once = Once::new();
    let is_wanted = || server::variable(OBSERVER, |_| Some(())).is_some();
    JOINED.ask(is_wanted, || _ = join());
}

/// A question that is asked once in a process. A thread that comes while another one asks waits for the
/// answer: it would set up a space without the scheduler, and the other one would find that.
struct Once(AtomicU32);

const ASKED: u32 = 1;
const ANSWERED: u32 = 2;

/// BOUND: the scheduler's time to answer, [`server::scheduled`], and to send; in a child that was forked
/// meanwhile nobody asks, and so long its first thread waits.
const PATIENCE_NS: u64 = 1_000_000_000;

impl Once {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[inline]
    fn ask(&self, is_wanted: impl FnOnce() -> bool, question: impl FnOnce()) {
        // Whoever goes on and does not see the space that was published meanwhile publishes none: `publish`
        // finds it.
        if self.0.load(Relaxed) != ANSWERED {
            self.begin(is_wanted, question);
        }
    }

    #[cold]
    fn begin(&self, is_wanted: impl FnOnce() -> bool, question: impl FnOnce()) {
        if is_wanted() {
            self.ask_or_wait(question, PATIENCE_NS);
        } else {
            self.0.store(ANSWERED, Relaxed);
        }
    }

    fn ask_or_wait(&self, question: impl FnOnce(), patience_ns: u64) {
        if self.0.compare_exchange(0, ASKED, Relaxed, Relaxed).is_ok() {
            question();
        } else {
            let deadline = Deadline { clock: Clock::Monotonic, ns: futex::now_ns() + patience_ns };
            while self.0.load(Relaxed) == ASKED {
                if futex::wait(&self.0, ASKED, Some(deadline)) == Wait::TimedOut {
                    break;
                }
            }
        }
        self.0.store(ANSWERED, Relaxed);
        futex::wake(&self.0, u32::MAX >> 1);
    }
}

#[inline(always)]
fn may_be_observed() -> bool {
    Request::from_environment().allows_bpf() && live().is_none()
}

/// Why the bpf view could not be had.
#[derive(Debug)]
pub enum Refused {
    /// It could not be loaded, or not be used.
    Here(bpf::Error),
    /// The processor server did not lend it.
    Server(server::Error),
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        match self {
            Self::Here(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
        }
    }
}

/// Chooses the view, the privileged one included: see [`crate::init`]. Returns why the bpf view could not
/// be had, if it was tried.
pub fn load() -> Option<Refused> {
    if !may_be_observed() || join() {
        return None;
    }
    #[cfg(feature = "bpf")]
    let own = match bpf::Observer::load().and_then(observe_with) {
        Ok(()) => return None,
        Err(error) => Some(Refused::Here(error)),
    };
    #[cfg(not(feature = "bpf"))]
    let own = None;
    match server::observe() {
        Ok((observer, life)) => {
            view::bpf::lives_with(life);
            observe_with(observer).err().map(Refused::Here)
        }
        Err(server::Error::NoServer) => own,
        Err(error) => Some(Refused::Server(error)),
    }
}

/// Makes a space with the observer's arena in it that of this process.
fn observe_with(observer: bpf::Observer) -> Result<(), bpf::Error> {
    // Threads that have registered meanwhile stay where they are.
    let Ok(old) = vacant() else { return Ok(()) };
    let Some(registry) = build(View::Perf) else { return Err(std::io::Error::last_os_error().into()) };
    // SAFETY: the arena's place in a space that nobody has seen.
    let mapped = unsafe { observer.map(registry.start.as_ptr().add(ARENA_AT)) };
    // Whoever writes the magic number has the arena.
    let claimed =
        mapped.is_ok() && registry.arena().magic.compare_exchange(0, abi::MAGIC, Relaxed, Relaxed).is_ok();
    if !claimed {
        // SAFETY: as above.
        unsafe { registry.unmap() };
        return Err(mapped.map_or_else(Into::into, |_| bpf::Error::Taken));
    }
    registry.local().enrolment.store(observer.enrolment().number(), Relaxed);
    registry.head(View::Bpf);
    let handle = observer.handle()?;
    if publish(old, registry).is_some() {
        observer.keep_mapped();
        observed_by(handle);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_thread_waits_for_the_answer_and_asks_nothing() {
        static ONE: Once = Once::new();
        static KNOWN: AtomicU32 = AtomicU32::new(0);
        let first = std::thread::spawn(|| {
            ONE.ask(
                || true,
                || {
                    std::thread::sleep(Duration::from_millis(50));
                    KNOWN.store(1, Relaxed);
                },
            );
        });
        while ONE.0.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        ONE.ask(|| true, || panic!("asked again"));
        assert_eq!(KNOWN.load(Relaxed), 1);
        first.join().unwrap();
        // Where nobody asks any more, as in a child.
        ONE.0.store(ASKED, Relaxed);
        ONE.ask_or_wait(|| panic!("asked again"), 1_000_000);
        assert_eq!(ONE.0.load(Relaxed), ANSWERED);
    }
}
