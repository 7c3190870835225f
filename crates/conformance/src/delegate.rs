// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a delegating lock must do, whichever machine it runs on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use platform::{Atomic, Clock, Deadline, Ordering::*, Priority};
use sync::delegate::{
    Ask, DWakeful, Left, RawDelegate, RawDelegateTimed, Rcl, RclAsk, RclLock, RclServer, Section,
};

use crate::bodies::together;
use crate::{Cell, Machine};

/// A closure on its way to whoever runs it. It is never freed, and neither is what it borrows in a client of
/// its own: a mistake in the order of threads shall not become one of memory.
struct Call<F, R> {
    section: Option<F>,
    result: Option<Result<R, Box<dyn Any + Send>>>,
}

/// Runs it where a [`Section`] runs; a panic stays in it.
unsafe fn call<F: FnOnce() -> R, R>(context: *mut ()) {
    assert!(!context.is_null(), "a request was run before it was written");
    // SAFETY: `delegated` passes such a call, and waits.
    let call = unsafe { &mut *context.cast::<Call<F, R>>() };
    let section = call.section.take().expect("a section ran twice");
    call.result = Some(catch_unwind(AssertUnwindSafe(section)));
}

/// Has `run` run a closure; returns what that returned, or `None` if it has not run. Its panic goes on here.
fn delegated<F: FnOnce() -> R, R>(section: F, run: impl FnOnce(Section, *mut ())) -> Option<R> {
    let pending = Box::into_raw(Box::new(Call { section: Some(section), result: None }));
    run(call::<F, R>, pending.cast());
    // SAFETY: made above, and `run` has returned.
    match unsafe { (*pending).result.take() }? {
        Ok(result) => Some(result),
        Err(panic) => resume_unwind(panic),
    }
}

/// A lock, what it protects, and who serves.
pub struct Shared<M: Machine, L> {
    lock: L,
    cell: M::Cell,
}

impl<M: Machine, L: RawDelegate<M>> Shared<M, L> {
    // Its own frame: a shuttle's thread has a small stack, and some locks are large.
    #[inline(never)]
    fn new() -> Arc<Self> {
        Arc::new(Self { lock: L::new(), cell: M::Cell::new() })
    }

    fn run<R>(&self, section: impl FnOnce(&M::Cell) -> R) -> R {
        let run = |section, context| {
            // SAFETY: it does not unwind, and does not come here again.
            unsafe { self.lock.run(section, context) }
        };
        delegated(|| section(&self.cell), run).expect("a section did not run")
    }

    /// A request whose client writes before it and reads after it.
    fn bump(&self) {
        let own = &*Box::leak(Box::new(M::Cell::new()));
        own.bump();
        let count = self.run(|cell| {
            own.bump();
            cell.bump();
            cell.get()
        });
        own.bump();
        assert_eq!(own.get(), 3, "a request was not run exactly once before its client went on");
        assert!(count > 0);
    }
}

/// Runs `body(0..threads)` at once beside whoever serves; then the lock works, and this many sections ran.
fn together_beside<M: Machine, L: RawDelegate<M> + 'static>(
    threads: u32,
    sections: u32,
    body: impl Fn(&Arc<Shared<M, L>>, u32) + Send + Sync + 'static,
) {
    beside(u32::from(L::SERVED), threads, sections, body);
}

/// The same beside so many threads that serve.
fn beside<M: Machine, L: RawDelegate<M> + 'static>(
    servers: u32,
    threads: u32,
    sections: u32,
    body: impl Fn(&Arc<Shared<M, L>>, u32) + Send + Sync + 'static,
) {
    let shared = Shared::<M, L>::new();
    let serve = |_| {
        let shared = shared.clone();
        M::spawn(move || assert!(shared.lock.serve(), "it could not serve"))
    };
    let serving: Vec<_> = (0..servers).map(serve).collect();
    let ours = shared.clone();
    together::<M>(threads, move |index| body(&ours, index));
    shared.bump();
    if servers > 0 {
        shared.lock.close();
    }
    serving.into_iter().for_each(M::join);
    assert_eq!(shared.cell.get(), sections + 1, "a section got lost: two ran at once, or one did not");
    assert_eq!(M::priority(M::current()), Priority::Running, "a thread that holds nothing kept its priority");
}

/// One section at a time, each exactly once, and everybody gets there.
pub fn exclusion<M: Machine, L: RawDelegate<M> + 'static>(threads: u32, rounds: u32) {
    together_beside(threads, threads * rounds, move |shared: &Arc<Shared<M, L>>, _| {
        (0..rounds).for_each(|_| shared.bump());
    });
}

/// Threads come one after the other, each with another one that stays.
pub fn passing<M: Machine, L: RawDelegate<M> + 'static>(threads: u32, rounds: u32) {
    let all = 2 * threads * rounds;
    together_beside(2, all, move |shared: &Arc<Shared<M, L>>, index| {
        for _ in 0..threads {
            if index == 0 {
                (0..rounds).for_each(|_| shared.bump());
                continue;
            }
            let ours = shared.clone();
            M::join(M::spawn(move || (0..rounds).for_each(|_| ours.bump())));
        }
    });
}

/// The same with two threads that serve.
pub fn with_a_spare<M: Machine, L: RawDelegate<M> + 'static>(threads: u32, rounds: u32) {
    beside(2, threads, threads * rounds, move |shared: &Arc<Shared<M, L>>, _| {
        (0..rounds).for_each(|_| shared.bump());
    });
}

/// A panic in a section reaches its own client and nobody else.
pub fn unwinding<M: Machine, L: RawDelegate<M> + 'static>(threads: u32, rounds: u32) {
    unwinding_beside::<M, L>(u32::from(L::SERVED), threads, rounds);
}

/// The same beside so many threads that serve.
pub fn unwinding_beside<M: Machine, L: RawDelegate<M> + 'static>(servers: u32, threads: u32, rounds: u32) {
    beside(servers, threads, threads * rounds, move |shared: &Arc<Shared<M, L>>, index| {
        for round in 0..rounds {
            let panics = (index + round) % 2 == 1;
            let result = catch_unwind(AssertUnwindSafe(|| {
                shared.run(|cell| {
                    cell.bump();
                    if panics {
                        resume_unwind(Box::new(index));
                    }
                })
            }));
            let panic = result.err().and_then(|panic| panic.downcast::<u32>().ok());
            assert_eq!(panic.as_deref(), panics.then_some(&index), "a panic went to the wrong client");
        }
    });
}

/// Sections of one lock come to another one.
pub fn nesting<M: Machine, L: RawDelegate<M> + 'static>(threads: u32, rounds: u32) {
    let inner = Shared::<M, L>::new();
    let server = L::SERVED.then(|| {
        let inner = inner.clone();
        M::spawn(move || assert!(inner.lock.serve()))
    });
    let ours = inner.clone();
    together_beside(threads, threads * rounds, move |outer: &Arc<Shared<M, L>>, _| {
        for _ in 0..rounds {
            outer.run(|cell| {
                ours.bump();
                cell.bump();
            });
        }
    });
    if let Some(server) = server {
        inner.lock.close();
        M::join(server);
    }
    assert_eq!(inner.cell.get(), threads * rounds);
}

/// Some hold the lock, the others delegate.
pub fn holding<M: Machine, L: RawDelegateTimed<M> + 'static>(threads: u32, rounds: u32) {
    together_beside(threads, threads * rounds, move |shared: &Arc<Shared<M, L>>, index| {
        for _ in 0..rounds {
            if index % 2 == 1 {
                shared.bump();
                continue;
            }
            // SAFETY: unlocked at once.
            unsafe {
                shared.lock.lock();
                shared.cell.bump();
                shared.lock.unlock();
            }
        }
    });
}

/// Who gives up comes back after the deadline, its section has not run, and it harms nobody.
pub fn timing<M: Machine, L: RawDelegateTimed<M> + 'static>(threads: u32, rounds: u32, patience_ns: u64) {
    let ran = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = ran.clone();
    let shared = Shared::<M, L>::new();
    let server = L::SERVED.then(|| {
        let ours = shared.clone();
        M::spawn(move || assert!(ours.lock.serve()))
    });
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        for _ in 0..rounds {
            let deadline = Deadline { ns: M::now_ns() + patience_ns, clock: Clock::Monotonic };
            // Never freed, as a call.
            let own = &*Box::leak(Box::new(M::Cell::new()));
            let section = || {
                own.bump();
                ours.cell.bump();
            };
            let mut done = true;
            delegated(section, |section, context| {
                // SAFETY: it does not unwind, and does not come here again.
                done = unsafe {
                    if index == 0 && threads > 1 {
                        ours.lock.run(section, context);
                        true
                    } else {
                        ours.lock.run_until(section, context, deadline)
                    }
                };
            });
            assert_eq!(own.get(), u32::from(done), "a section ran though its client gave up, or did not");
            assert!(done || M::past(deadline), "gave up before the deadline");
            count.fetch_add(u32::from(done), std::sync::atomic::Ordering::Relaxed);
        }
    });
    if let Some(server) = server {
        // Nobody's request is left, and the next one is run.
        shared.bump();
        ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        shared.lock.close();
        M::join(server);
    }
    assert_eq!(shared.cell.get(), ran.load(std::sync::atomic::Ordering::Relaxed));
}

/// Clients of a server leave their requests, have others run, and fetch the first ones.
pub fn leaving_with_a_server<M: Machine>(servers: u32, threads: u32, rounds: u32) {
    Two::<M>::served_by(servers, threads, [threads * rounds, threads * rounds], move |two, _| {
        for _ in 0..rounds {
            let section = || two.cells[0].bump();
            let pending = Box::into_raw(Box::new(Call { section: Some(section), result: None }));
            let ask = Box::into_raw(Box::new(RclAsk::new(section_of(pending), pending.cast())));
            // SAFETY: the request is fetched below; never freed, as a call.
            unsafe { two.server.leave_request(&two.locks[0], ask) };
            two.run(1, Cell::bump);
            // SAFETY: it was left there, and has been run then.
            let became = unsafe { two.server.fetch(&two.locks[0], ask, M::generation()) };
            assert_eq!(became, Left::Ran);
            // SAFETY: it has been run.
            assert!(unsafe { (*pending).result.is_some() }, "a request was fetched that had not been run");
        }
    });
}

/// One client leaves two requests, and looks for their answers: nobody asks, and nobody is about to sleep.
/// The first one's section waits, awake or asleep, for the other lock's.
pub fn leaving_one_that_waits<M: Machine>(asleep: bool) {
    Two::<M>::served_by(2, 1, [1, 1], move |two, _| {
        let first = || {
            loop {
                match two.flag.load(Acquire) {
                    1.. => break,
                    flag if asleep => drop(M::wait(&two.flag, flag, None)),
                    _ => M::pause(),
                }
            }
            two.cells[0].bump();
        };
        let second = || {
            two.cells[1].bump();
            // ORDER: as a flag has them.
            two.flag.store(1, Release);
            M::wake(&raw const two.flag, 1);
        };
        // Never freed, as a call.
        let first = Box::into_raw(Box::new(Call { section: Some(first), result: None }));
        let second = Box::into_raw(Box::new(Call { section: Some(second), result: None }));
        let asks = [
            Box::into_raw(Box::new(RclAsk::new(section_of(first), first.cast()))),
            Box::into_raw(Box::new(RclAsk::new(section_of(second), second.cast()))),
        ];
        for (lock, ask) in two.locks.iter().zip(asks) {
            // SAFETY: the request is fetched below.
            unsafe { two.server.leave_request(lock, ask) };
        }
        // SAFETY: they are never freed.
        while !asks.iter().all(|&ask| unsafe { (*ask).is_answered() }) {
            M::pause();
        }
        for (lock, ask) in two.locks.iter().zip(asks) {
            // SAFETY: it was left there.
            assert_eq!(unsafe { two.server.fetch(lock, ask, M::generation()) }, Left::Ran);
        }
    });
}

/// Clients leave their requests and fetch them, at once or after they had another one run. Returns how many
/// requests others have run, and how many were withdrawn.
pub fn leaving<M: Machine>(threads: u32, rounds: u32) -> [u32; 2] {
    use std::sync::atomic::AtomicU32;
    let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let count = counts.clone();
    let shared = Shared::<M, DWakeful<M, true>>::new();
    let ours = shared.clone();
    together::<M>(threads, move |_| {
        for round in 0..rounds {
            let section = || ours.cell.bump();
            let pending = Box::into_raw(Box::new(Call { section: Some(section), result: None }));
            let section = section_of(pending);
            let ask = Box::into_raw(Box::new(Ask::new(section, pending.cast())));
            // SAFETY: the request is fetched below; never freed, as a call.
            let left = unsafe { ours.lock.leave(ask) };
            // Whoever has the lock runs requests until there is none, so after a section few are left.
            let at_once = round % 2 == 1;
            if !at_once {
                ours.bump();
            }
            // SAFETY: it was left there.
            let became = left.then(|| unsafe { ours.lock.fetch(ask, M::generation()) });
            if let Some(became) = became {
                let withdrawn = usize::from(became == Left::Withdrawn);
                count[withdrawn].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            if became != Some(Left::Ran) {
                // SAFETY: nobody else runs it.
                unsafe { ours.lock.run(section, pending.cast()) };
            }
            if at_once {
                ours.bump();
            }
            // SAFETY: it has been run.
            assert!(unsafe { (*pending).result.is_some() }, "a request was fetched that had not been run");
        }
    });
    assert_eq!(shared.cell.get(), 2 * threads * rounds);
    counts.each_ref().map(|count| count.load(std::sync::atomic::Ordering::Relaxed))
}

/// What runs such a call.
fn section_of<F: FnOnce() -> R, R>(_: *mut Call<F, R>) -> Section {
    call::<F, R>
}

/// A server with two locks.
struct Two<M: Machine> {
    server: RclServer<M, 2>,
    locks: [RclLock<M>; 2],
    cells: [M::Cell; 2],
    flag: M::AtomicU32,
}

impl<M: Machine> Two<M> {
    #[inline(never)]
    fn new() -> Arc<Self> {
        Arc::new(Self {
            server: RclServer::default(),
            locks: Default::default(),
            cells: [M::Cell::new(), M::Cell::new()],
            flag: Atomic::new(0),
        })
    }

    fn run(&self, lock: usize, section: impl FnOnce(&M::Cell)) {
        let run = |section, context| {
            // SAFETY: it does not unwind, and the second lock's does not come here again.
            unsafe { self.server.run(&self.locks[lock], section, context) }
        };
        delegated(|| section(&self.cells[lock]), run).expect("a section did not run");
    }

    /// Runs `body(0..threads)` beside so many threads that serve; then this many sections of each lock ran.
    fn served_by(
        servers: u32,
        threads: u32,
        sections: [u32; 2],
        body: impl Fn(&Self, u32) + Send + Sync + 'static,
    ) {
        let two = Self::new();
        let serve = |_| {
            let ours = two.clone();
            M::spawn(move || assert!(ours.server.serve()))
        };
        let serving: Vec<_> = (0..servers).map(serve).collect();
        let ours = two.clone();
        together::<M>(threads, move |index| body(&ours, index));
        two.server.close();
        serving.into_iter().for_each(M::join);
        assert_eq!(two.cells.each_ref().map(Cell::get), sections);
    }
}

/// Two locks of one server; a section of the first comes to the second, which runs it in place.
pub fn two_locks<M: Machine>(servers: u32, threads: u32, rounds: u32) {
    let sections = [threads.div_ceil(2) * rounds, threads * rounds];
    Two::<M>::served_by(servers, threads, sections, move |two, index| {
        for _ in 0..rounds {
            if index % 2 == 0 {
                two.run(0, |cell| {
                    cell.bump();
                    two.run(1, Cell::bump);
                });
            } else {
                two.run(1, Cell::bump);
            }
        }
    });
}

/// Some hold the second lock; a section of the first comes to it, and so waits for them. It is one thread's,
/// so two that serve are enough.
pub fn held_locks<M: Machine>(threads: u32, rounds: u32) {
    Two::<M>::served_by(2, threads, [rounds, (threads + 1) * rounds], move |two, index| {
        for _ in 0..rounds {
            if index == 0 {
                two.run(0, |cell| {
                    cell.bump();
                    two.run(1, Cell::bump);
                });
            }
            if index % 2 == 0 {
                two.run(1, Cell::bump);
                continue;
            }
            // SAFETY: released at once.
            unsafe {
                two.server.hold(&two.locks[1]);
                two.cells[1].bump();
                two.server.release(&two.locks[1]);
            }
        }
    });
}

/// A section of the first lock waits for one of the second, awake or asleep, and then comes to the second.
/// The first lock's next section is another client's, and may be run by another thread.
pub fn waiting_inside<M: Machine>(rounds: u32, asleep: bool) {
    Two::<M>::served_by(2, 2, [rounds + 1, 3 * rounds], move |two, index| {
        for round in 1..=rounds {
            if index == 1 {
                two.run(1, |cell| {
                    cell.bump();
                    // ORDER: as a flag has them.
                    two.flag.store(round, Release);
                    M::wake(&raw const two.flag, 1);
                });
                // Earlier, the other client's next section could have the first lock, and wait for us.
                if round == rounds {
                    two.run(0, Cell::bump);
                }
                continue;
            }
            two.run(0, |cell| {
                loop {
                    match two.flag.load(Acquire) {
                        flag if flag >= round => break,
                        flag if asleep => drop(M::wait(&two.flag, flag, None)),
                        _ => M::pause(),
                    }
                }
                cell.bump();
                two.run(1, Cell::bump);
            });
            // The same slot, another lock.
            two.run(1, Cell::bump);
        }
    });
}

/// Two threads serve one lock, and both leave when it is closed.
pub fn serving_in_turn<M: Machine>() {
    let rcl = Arc::new(Rcl::<M, 2>::new());
    let servers: Vec<_> = (0..2)
        .map(|_| {
            let rcl = rcl.clone();
            M::spawn(move || assert!(rcl.serve()))
        })
        .collect();
    let cell = M::Cell::new();
    for _ in 0..2 {
        let run = |section, context| {
            // SAFETY: it does not unwind, and does not come here again.
            unsafe { rcl.run(section, context) }
        };
        delegated(|| cell.bump(), run).expect("a section did not run");
    }
    rcl.close();
    servers.into_iter().for_each(M::join);
    assert_eq!(cell.get(), 2);
}
