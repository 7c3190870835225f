// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a team must do, and some that do not.

use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use platform::{Atomic, Ordering::*, Platform};
use sync::team::{Chunks, Job, Kind, RawTeam, Schedule};

use crate::bodies::together;
use crate::{Cell, Machine};

/// A job whose parts each count that they were run. In all that follows `C` is a number that the machine
/// watches, see [`Cell`].
#[repr(C)]
struct Counted<C> {
    job: Job,
    /// Written by the caller before the job, read by each part.
    input: C,
    /// One for each part.
    ran: Vec<C>,
    /// This part fails.
    fails: Option<u32>,
}

impl<C: Cell> Counted<C> {
    fn new(parts: u32, fails: Option<u32>) -> Self {
        let ran = (0..parts).map(|_| C::new()).collect();
        Self { job: Job { run: Self::run }, input: C::new(), ran, fails }
    }

    unsafe fn run(job: *const Job, part: u32) -> bool {
        // SAFETY: only `Counted` names this function, and the job begins it.
        let this = unsafe { &*job.cast::<Self>() };
        assert_eq!(this.input.get(), 1, "a part does not see what the caller wrote");
        this.ran[part as usize].bump();
        this.fails != Some(part)
    }
}

/// A team, its places and the jobs that it is to run, one after the other. Jobs outlive what goes wrong.
pub struct Teamwork<M: Machine, T: RawTeam<M>> {
    team: T,
    places: Vec<T::Place>,
    jobs: Vec<Counted<M::Cell>>,
}

impl<M: Machine, T: RawTeam<M>> Teamwork<M, T> {
    /// So many helpers; a job for each of `fails`, of which this part fails.
    pub fn new(helpers: u32, fails: &[Option<u32>]) -> Self {
        Self {
            team: T::new(),
            places: (0..helpers).map(|_| T::Place::default()).collect(),
            jobs: fails.iter().map(|&fails| Counted::new(helpers + 1, fails)).collect(),
        }
    }

    /// The caller's part: runs all jobs, and dismisses the helpers.
    pub fn call(&self) {
        for (index, job) in self.jobs.iter().enumerate() {
            job.input.bump();
            // SAFETY: one thread calls; the job is one, and stays, as do the places.
            let fine = unsafe { self.team.run(&self.places, ptr::from_ref(job).cast()) };
            let ran: Vec<u32> = job.ran.iter().map(Cell::get).collect();
            assert_eq!(fine, job.fails.is_none(), "job {index}: a failure was lost, or made up ({ran:?})");
            // After a failure parts may be left out.
            let right = |&times: &u32| times == 1 || job.fails.is_some() && times == 0;
            assert!(ran.iter().all(right), "job {index}: its parts were run {ran:?} times");
        }
        self.places.iter().for_each(|place| self.team.dismiss(place));
    }

    /// A helper's part.
    pub fn help(&self, index: u32, kind: Kind) {
        self.help_and_tell(index, kind, |_| ());
    }

    /// The same; `spare` hears when it sleeps.
    pub fn help_and_tell(&self, index: u32, kind: Kind, spare: impl Fn(bool)) {
        // SAFETY: one thread a place.
        unsafe { self.team.serve(&self.places[index as usize], index + 1, kind, spare) };
    }
}

/// Helpers help with jobs, of which the named parts fail.
pub fn jobs<M: Machine, T: RawTeam<M> + 'static>(helpers: u32, fails: &'static [Option<u32>], kind: Kind)
where
    T::Place: 'static,
{
    let work = Teamwork::<M, T>::new(helpers, fails);
    together::<M>(helpers + 1, move |index| match index {
        0 => work.call(),
        _ => work.help(index - 1, kind),
    });
}

/// Nobody serves, as in a forked child.
pub fn alone<M: Machine, T: RawTeam<M>>(helpers: u32) {
    Teamwork::<M, T>::new(helpers, &[None, None, Some(0), None]).call();
}

/// Each iteration of a loop is run once, whoever comes to it.
pub fn chunks<M: Machine>(threads: u32, schedule: Schedule, length: usize) {
    let shared = Arc::new((Chunks::<M>::default(), (0..length).map(|_| M::Cell::new()).collect::<Vec<_>>()));
    let ours = shared.clone();
    together::<M>(threads, move |part| {
        ours.0.share(schedule, part, threads, length, |range| range.for_each(|index| ours.1[index].bump()));
    });
    let ran: Vec<u32> = shared.1.iter().map(Cell::get).collect();
    assert!(ran.iter().all(|&times| times == 1), "{schedule:?}: iterations were run {ran:?} times");
}

/// A simple team with one mistake. Helpers spin; with the mistakes about sleep they sleep at once.
pub struct Broken<P: Platform, const MISTAKE: u32> {
    failed: P::AtomicU32,
    platform: PhantomData<P>,
}

/// None: what the others differ from.
pub const NONE: u32 = 0;
/// The caller looks whether the helper sleeps, and then offers: the helper has fallen asleep in between.
pub const LOSES_WAKE_UP: u32 = 1;
/// The caller looks whether a part is still there, and then takes it back: the helper has taken it in
/// between.
pub const RUNS_TWICE: u32 = 2;
/// The caller does not wait for parts that helpers are at.
pub const RETURNS_EARLY: u32 = 3;
/// A helper says that it has failed when it has said that it is done.
pub const LOSES_FAILURE: u32 = 4;
/// A helper looks whether the caller sleeps, and then says that it is done: the caller has fallen asleep in
/// between.
pub const FORGETS_CALLER: u32 = 5;

/// A place of [`Broken`].
pub struct BrokenPlace<P: Platform> {
    word: P::AtomicU32,
    job: P::AtomicPtr<Job>,
}

impl<P: Platform> Default for BrokenPlace<P> {
    fn default() -> Self {
        Self { word: Atomic::new(0), job: Atomic::new(ptr::null_mut()) }
    }
}

const IDLE: u32 = 0;
const ASLEEP: u32 = 1;
const OFFERED: u32 = 2;
const TAKEN: u32 = 3;
const AWAITED: u32 = 4;
const GONE: u32 = 5;

impl<P: Platform, const MISTAKE: u32> RawTeam<P> for Broken<P, MISTAKE> {
    type Place = BrokenPlace<P>;

    fn new() -> Self {
        Self { failed: Atomic::new(0), platform: PhantomData }
    }

    unsafe fn run(&self, places: &[BrokenPlace<P>], job: *const Job) -> bool {
        for place in places {
            place.job.store(job.cast_mut(), Relaxed);
            let before = match MISTAKE {
                LOSES_WAKE_UP => {
                    let before = place.word.load(Relaxed);
                    place.word.store(OFFERED, Release);
                    before
                }
                _ => place.word.swap(OFFERED, Release),
            };
            if before == ASLEEP {
                P::wake(&place.word, 1);
            }
        }
        // SAFETY: as promised to us.
        let mut fine = unsafe { ((*job).run)(job, 0) };
        for (part, place) in (1..).zip(places) {
            let back = match MISTAKE {
                RUNS_TWICE => {
                    let offered = place.word.load(Relaxed) == OFFERED;
                    if offered {
                        place.word.store(IDLE, Relaxed);
                    }
                    offered
                }
                _ => place.word.compare_exchange(OFFERED, IDLE, Relaxed, Relaxed).is_ok(),
            };
            if back {
                // SAFETY: as promised to us.
                fine &= unsafe { ((*job).run)(job, part) };
            }
        }
        for place in places {
            while MISTAKE != RETURNS_EARLY && place.word.load(Acquire) > ASLEEP {
                if MISTAKE != FORGETS_CALLER {
                    P::pause();
                } else if place.word.compare_exchange(TAKEN, AWAITED, Relaxed, Acquire).is_ok() {
                    P::wait(&place.word, AWAITED, None);
                }
            }
        }
        if self.failed.load(Relaxed) != 0 {
            self.failed.store(0, Relaxed);
            fine = false;
        }
        fine
    }

    unsafe fn serve(&self, place: &BrokenPlace<P>, part: u32, _: Kind, _: impl Fn(bool)) {
        loop {
            match place.word.load(Relaxed) {
                GONE => return,
                OFFERED if place.word.compare_exchange(OFFERED, TAKEN, Acquire, Relaxed).is_ok() => {
                    let job = place.job.load(Relaxed);
                    // SAFETY: the caller of `run` promised it.
                    let fine = unsafe { ((*job).run)(job, part) };
                    if !fine && MISTAKE != LOSES_FAILURE {
                        self.failed.store(1, Relaxed);
                    }
                    if MISTAKE == FORGETS_CALLER {
                        let awaited = place.word.load(Relaxed) == AWAITED;
                        place.word.store(IDLE, Release);
                        if awaited {
                            P::wake(&place.word, 1);
                        }
                    } else {
                        place.word.store(IDLE, Release);
                    }
                    if !fine && MISTAKE == LOSES_FAILURE {
                        self.failed.store(1, Relaxed);
                    }
                }
                IDLE if MISTAKE == LOSES_WAKE_UP => {
                    if place.word.compare_exchange(IDLE, ASLEEP, Relaxed, Relaxed).is_ok() {
                        P::wait(&place.word, ASLEEP, None);
                    }
                }
                _ => P::pause(),
            }
        }
    }

    fn dismiss(&self, place: &BrokenPlace<P>) {
        if place.word.swap(GONE, Relaxed) == ASLEEP {
            P::wake(&place.word, 1);
        }
    }
}
