// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delegating locks with one mistake each. A checker that lets one of them pass is itself broken.
//!
//! They are what the algorithms are made of, for few threads: two places, and nothing that makes it quick.

use std::marker::PhantomData;
use std::ptr;

use platform::{Atomic, Ordering::*, Platform};
use sync::delegate::{RawDelegate, Section};

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const ASLEEP: u32 = 2;
const LEAD: u32 = 3;

/// What a twin does wrong.
pub trait Mistake: Send + Sync + 'static {
    /// Answers before it has run the section, so that the place is used anew too early.
    const ANSWERS_EARLY: bool = false;
    /// Looks for a request a second time before it answers the first. It does so in every schedule.
    const RUNS_TWICE: bool = false;
    /// Gives the lock free without a look at who went to sleep meanwhile.
    const FORGETS_NEWS: bool = false;
    /// After its share it leaves the lock held, and tells nobody.
    const FORGETS_TO_HAND_OVER: bool = false;
    /// The server sleeps without telling the places that it does.
    const SLEEPS_OVER_REQUESTS: bool = false;
    /// Withdraws its request, and runs it itself, though another may run it already.
    const WITHDRAWS_BLINDLY: bool = false;
    /// A spare thread takes over though the one in charge is in no section.
    const TAKES_BETWEEN: bool = false;
    /// A thread that has lost the charge goes on as if it had it.
    const GOES_ON: bool = false;
    /// After it has found the lock not busy, it does not look at the request again, which may have been run.
    const LOOKS_ONCE: bool = false;
    /// A thread that has lost the charge does not tell the one in charge that its section has ended.
    const FORGETS_TO_RING: bool = false;
    /// Looks for the next request after the answer, when the place may be used anew.
    const FOLLOWS_LATE: bool = false;
    /// Takes a seat for its own that it has seen free, though another thread may do so too.
    const CLAIMS_BLINDLY: bool = false;
    /// Reads that there is a request, and then its number, which may be the next one's.
    const NUMBERS_LATE: bool = false;
}

macro_rules! mistakes {
    ($($(#[$doc:meta])* $name:ident: $($what:ident)?;)*) => {
        $($(#[$doc])*
        pub struct $name;

        impl Mistake for $name {
            $(const $what: bool = true;)?
        })*
    };
}
mistakes! {
    /// None.
    Right: ;
    /// See [`Mistake::ANSWERS_EARLY`].
    AnswersEarly: ANSWERS_EARLY;
    /// See [`Mistake::RUNS_TWICE`].
    RunsTwice: RUNS_TWICE;
    /// See [`Mistake::FORGETS_NEWS`].
    ForgetsNews: FORGETS_NEWS;
    /// See [`Mistake::FORGETS_TO_HAND_OVER`].
    ForgetsToHandOver: FORGETS_TO_HAND_OVER;
    /// See [`Mistake::SLEEPS_OVER_REQUESTS`].
    SleepsOverRequests: SLEEPS_OVER_REQUESTS;
    /// See [`Mistake::WITHDRAWS_BLINDLY`].
    WithdrawsBlindly: WITHDRAWS_BLINDLY;
    /// See [`Mistake::TAKES_BETWEEN`].
    TakesBetween: TAKES_BETWEEN;
    /// See [`Mistake::GOES_ON`].
    GoesOn: GOES_ON;
    /// See [`Mistake::LOOKS_ONCE`].
    LooksOnce: LOOKS_ONCE;
    /// See [`Mistake::FORGETS_TO_RING`].
    ForgetsToRing: FORGETS_TO_RING;
    /// See [`Mistake::FOLLOWS_LATE`].
    FollowsLate: FOLLOWS_LATE;
    /// See [`Mistake::CLAIMS_BLINDLY`].
    ClaimsBlindly: CLAIMS_BLINDLY;
    /// See [`Mistake::NUMBERS_LATE`].
    NumbersLate: NUMBERS_LATE;
}

/// A place for one request. Each thread has its own.
struct Place<P: Platform> {
    state: P::AtomicU32,
    section: P::AtomicPtr<()>,
    context: P::AtomicPtr<()>,
}

impl<P: Platform> Place<P> {
    fn new() -> Self {
        Self {
            state: Atomic::new(IDLE),
            section: Atomic::new(ptr::null_mut()),
            context: Atomic::new(ptr::null_mut()),
        }
    }

    fn ask(&self, section: Section, context: *mut ()) -> u32 {
        self.section.store(section as *mut (), Relaxed);
        self.context.store(context, Relaxed);
        self.state.swap(ASKED, AcqRel)
    }

    fn is_asked(&self) -> bool {
        matches!(self.state.load(Acquire), ASKED | ASLEEP)
    }

    fn run(&self) {
        // SAFETY: `ask` stored a function of this type.
        let section = unsafe { std::mem::transmute::<*mut (), Option<Section>>(self.section.load(Relaxed)) };
        // SAFETY: as the client promised; or not, which is the mistake.
        unsafe { section.expect("there is a request")(self.context.load(Relaxed)) };
    }

    fn answer(&self, answer: u32) {
        if self.state.swap(answer, AcqRel) == ASLEEP {
            P::wake(&raw const self.state, 1);
        }
    }

    /// Runs the request and answers, with the twin's mistakes.
    fn serve<E: Mistake>(&self) {
        if E::ANSWERS_EARLY {
            self.answer(IDLE);
            return self.run();
        }
        self.run();
        if E::RUNS_TWICE && self.is_asked() {
            self.run();
        }
        self.answer(IDLE);
    }
}

/// A thread has the place of its id.
fn own<P: Platform, T>(places: &[T; 4]) -> &T {
    &places[P::register().0 as usize % 4]
}

/// Flat combining: `word` is 0 free, 1 held, 2 held and somebody went to sleep. A combiner serves one other.
pub struct Combining<P: Platform, E> {
    word: P::AtomicU32,
    places: [Place<P>; 4],
    mistake: PhantomData<E>,
}

impl<P: Platform, E: Mistake> RawDelegate<P> for Combining<P, E> {
    fn new() -> Self {
        Self { word: Atomic::new(0), places: std::array::from_fn(|_| Place::new()), mistake: PhantomData }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        let own = own::<P, _>(&self.places);
        own.ask(section, context);
        let mut looks = 0;
        loop {
            match own.state.load(Acquire) {
                IDLE => return,
                LEAD => {
                    own.run();
                    own.state.store(IDLE, Relaxed);
                    return self.combine();
                }
                _ => {}
            }
            if self.word.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                if own.is_asked() {
                    own.serve::<Right>();
                }
                return self.combine();
            }
            looks += 1;
            if looks == 1 {
                P::pause();
            } else {
                let marked = own.state.compare_exchange(ASKED, ASLEEP, Relaxed, Relaxed);
                if matches!(marked, Ok(_) | Err(ASLEEP)) && self.tell_news() {
                    P::wait(&own.state, ASLEEP, None);
                }
            }
        }
    }
}

impl<P: Platform, E: Mistake> Combining<P, E> {
    fn tell_news(&self) -> bool {
        self.word.compare_exchange(1, 2, AcqRel, Relaxed).is_ok()
            || self.word.compare_exchange(2, 2, AcqRel, Relaxed).is_ok()
    }

    fn combine(&self) {
        let mut left = 1;
        loop {
            for place in self.places.iter().filter(|place| place.is_asked()) {
                if left == 0 {
                    if !E::FORGETS_TO_HAND_OVER {
                        place.answer(LEAD);
                    }
                    return;
                }
                place.serve::<E>();
                left -= 1;
            }
            if E::FORGETS_NEWS {
                return self.word.store(0, Release);
            }
            if self.word.compare_exchange(1, 0, Release, Relaxed).is_ok() {
                return;
            }
            self.word.swap(1, Acquire);
        }
    }
}

/// RCL: IDLE and LEAD are "no request"; LEAD says that the server may sleep.
pub struct Served<P: Platform, E> {
    bell: P::AtomicU32,
    closed: P::AtomicU32,
    places: [Place<P>; 4],
    mistake: PhantomData<E>,
}

impl<P: Platform, E: Mistake> RawDelegate<P> for Served<P, E> {
    const SERVED: bool = true;

    fn new() -> Self {
        Self {
            bell: Atomic::new(0),
            closed: Atomic::new(0),
            places: std::array::from_fn(|_| Place::new()),
            mistake: PhantomData,
        }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        let own = own::<P, _>(&self.places);
        if own.ask(section, context) == LEAD {
            self.close_or_ring();
        }
        while own.is_asked() {
            if own.state.compare_exchange(ASKED, ASLEEP, Relaxed, Relaxed).is_ok() {
                P::wait(&own.state, ASLEEP, None);
            }
        }
    }

    fn serve(&self) -> bool {
        loop {
            for place in self.places.iter().filter(|place| place.is_asked()) {
                place.serve::<E>();
            }
            self.bell.swap(0, Acquire);
            let mark = |place: &Place<P>| {
                !place.is_asked()
                    && (place.state.load(Relaxed) == LEAD
                        || E::SLEEPS_OVER_REQUESTS
                        || place.state.compare_exchange(IDLE, LEAD, Relaxed, Relaxed).is_ok())
            };
            if !self.places.iter().all(mark) {
                continue;
            }
            if self.closed.load(Relaxed) != 0 {
                return true;
            }
            P::wait(&self.bell, 0, None);
        }
    }

    fn close(&self) {
        self.closed.store(1, Relaxed);
        self.close_or_ring();
    }
}

impl<P: Platform, E> Served<P, E> {
    fn close_or_ring(&self) {
        if self.bell.swap(1, AcqRel) == 0 {
            P::wake(&raw const self.bell, 1);
        }
    }
}

/// RCL's requests that are taken back: the odd number of one is claimed by client or server. All look.
pub struct Recalled<P: Platform, E> {
    closed: P::AtomicU32,
    places: [(Place<P>, P::AtomicU32); 4],
    mistake: PhantomData<E>,
}

impl<P: Platform, E: Mistake> RawDelegate<P> for Recalled<P, E> {
    const SERVED: bool = true;

    fn new() -> Self {
        let places = std::array::from_fn(|_| (Place::new(), Atomic::new(0)));
        Self { closed: Atomic::new(0), places, mistake: PhantomData }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        let (own, number) = own::<P, _>(&self.places);
        for patient in [false, false, true] {
            let ours = number.load(Relaxed) + 1;
            number.store(ours, Release);
            own.ask(section, context);
            P::pause();
            let mut takes_back = !patient && own.is_asked();
            if takes_back && E::WITHDRAWS_BLINDLY {
                number.store(ours + 1, Relaxed);
            } else if takes_back {
                takes_back = number.compare_exchange(ours, ours + 1, Relaxed, Relaxed).is_ok();
            }
            if takes_back {
                own.state.store(IDLE, Relaxed);
                continue;
            }
            while own.is_asked() {
                P::pause();
            }
            return;
        }
    }

    fn serve(&self) -> bool {
        while self.closed.load(Relaxed) == 0 {
            for (place, number) in &self.places {
                let early = number.load(Acquire);
                if !place.is_asked() {
                    continue;
                }
                let seen = if E::NUMBERS_LATE { number.load(Acquire) } else { early };
                let claims = || number.compare_exchange(seen, seen + 1, Relaxed, Relaxed).is_ok();
                if seen % 2 == 1 && (E::CLAIMS_BLINDLY || claims()) {
                    place.serve::<E>();
                }
            }
            P::pause();
        }
        true
    }

    fn close(&self) {
        self.closed.store(1, Relaxed);
    }
}

/// The default: a lock whose holder takes a published request before it releases.
pub struct Holding<P: Platform, E> {
    word: P::AtomicU32,
    place: Place<P>,
    mistake: PhantomData<E>,
}

impl<P: Platform, E: Mistake> RawDelegate<P> for Holding<P, E> {
    fn new() -> Self {
        Self { word: Atomic::new(0), place: Place::new(), mistake: PhantomData }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        // LEAD: taken by the holder. ASLEEP: being written.
        if self.word.load(Relaxed) != 0
            && self.place.state.compare_exchange(IDLE, ASLEEP, Acquire, Relaxed).is_ok()
        {
            self.place.ask(section, context);
            P::pause();
            let withdrawn = self.place.state.compare_exchange(ASKED, IDLE, Relaxed, Relaxed).is_ok();
            if !withdrawn && !E::WITHDRAWS_BLINDLY {
                while self.place.state.load(Acquire) != 4 {
                    P::pause();
                }
                return self.place.state.store(IDLE, Release);
            }
        }
        while self.word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            P::pause();
        }
        // SAFETY: as the client promised.
        unsafe { section(context) };
        if self.place.state.compare_exchange(ASKED, LEAD, Acquire, Relaxed).is_ok() {
            self.place.run();
            self.place.state.store(if E::WITHDRAWS_BLINDLY { IDLE } else { 4 }, Release);
        }
        self.word.store(0, Release);
    }
}

/// RCL with a spare thread: `charge` is who is in charge, and [`IN`] while that one is in a section. It
/// sleeps at the bell.
pub struct Spared<P: Platform, E> {
    charge: P::AtomicU32,
    bell: P::AtomicU32,
    busy: P::AtomicU32,
    closed: P::AtomicU32,
    places: [Place<P>; 4],
    mistake: PhantomData<E>,
}

const IN: u32 = 1 << 16;

impl<P: Platform, E: Mistake> RawDelegate<P> for Spared<P, E> {
    const SERVED: bool = true;

    fn new() -> Self {
        Self {
            charge: Atomic::new(0),
            bell: Atomic::new(0),
            busy: Atomic::new(0),
            closed: Atomic::new(0),
            places: std::array::from_fn(|_| Place::new()),
            mistake: PhantomData,
        }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        let own = own::<P, _>(&self.places);
        own.ask(section, context);
        self.ring();
        while own.is_asked() {
            P::pause();
        }
    }

    fn serve(&self) -> bool {
        let me = P::register().0;
        while self.closed.load(Acquire) == 0 {
            let charge = self.charge.load(Relaxed);
            let takes = charge == 0 || charge & IN != 0 || E::TAKES_BETWEEN;
            if takes && self.charge.compare_exchange(charge, me, Acquire, Relaxed).is_ok() {
                while self.closed.load(Acquire) == 0 && self.serve_once(me) {
                    self.bell.swap(0, Acquire);
                    if self.closed.load(Acquire) == 0 && !self.places.iter().any(|place| self.can_run(place))
                    {
                        P::wait(&self.bell, 0, None);
                    }
                }
            }
            P::pause();
        }
        true
    }

    fn close(&self) {
        self.closed.store(1, Release);
        self.ring();
    }
}

impl<P: Platform, E: Mistake> Spared<P, E> {
    fn ring(&self) {
        if self.bell.swap(1, AcqRel) == 0 {
            P::wake(&raw const self.bell, 1);
        }
    }

    /// As `rcl` asks: the request, its lock, and the request again.
    fn can_run(&self, place: &Place<P>) -> bool {
        place.is_asked() && self.busy.load(Acquire) == 0 && (E::LOOKS_ONCE || place.is_asked())
    }

    /// False if another thread is in charge.
    fn serve_once(&self, me: u32) -> bool {
        for place in &self.places {
            if !self.can_run(place) {
                continue;
            }
            self.busy.store(1, Relaxed);
            self.charge.store(me | IN, Release);
            place.serve::<Right>();
            self.busy.store(0, Release);
            let kept = self.charge.compare_exchange(me | IN, me, Release, Relaxed).is_ok();
            if !kept && !E::FORGETS_TO_RING {
                self.ring();
            }
            if !kept && !E::GOES_ON {
                return false;
            }
        }
        true
    }
}

/// CC-Synch: a client brings a place for the next one, and gets the one that was the tail.
pub struct Queue<P: Platform, E> {
    tail: P::AtomicU32,
    /// Whose the first seat is: one thread's, whose place is `own[0]`.
    owner: P::AtomicU32,
    /// The place that the thread of this id brings, if the first seat is another's.
    own: [P::AtomicU32; 4],
    places: [(Place<P>, P::AtomicU32); 5],
    mistake: PhantomData<E>,
}

impl<P: Platform, E: Mistake> RawDelegate<P> for Queue<P, E> {
    fn new() -> Self {
        let queue = Self {
            tail: Atomic::new(0),
            owner: Atomic::new(0),
            own: std::array::from_fn(|thread| Atomic::new(thread as u32 + 1)),
            places: std::array::from_fn(|_| (Place::new(), Atomic::new(0))),
            mistake: PhantomData,
        };
        queue.places[0].0.state.store(LEAD, Relaxed);
        queue
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        let own = if self.claim() { &self.own[0] } else { own::<P, _>(&self.own) };
        let brought = own.load(Relaxed);
        let (end, end_next) = &self.places[brought as usize];
        end_next.store(0, Relaxed);
        end.state.store(ASKED, Relaxed);
        let number = self.tail.swap(brought, AcqRel);
        own.store(number, Relaxed);
        let (place, next) = &self.places[number as usize];
        place.section.store(section as *mut (), Relaxed);
        place.context.store(context, Relaxed);
        next.store(brought + 1, Release);
        loop {
            match place.state.load(Acquire) {
                IDLE => return,
                LEAD => return self.combine(number),
                _ if place.state.compare_exchange(ASKED, ASLEEP, Relaxed, Relaxed).is_ok() => {
                    P::wait(&place.state, ASLEEP, None);
                }
                _ => {}
            }
        }
    }
}

impl<P: Platform, E: Mistake> Queue<P, E> {
    fn claim(&self) -> bool {
        let me = P::register().0;
        let owner = self.owner.load(Relaxed);
        if owner == 0 && E::CLAIMS_BLINDLY {
            self.owner.store(me, Relaxed);
            return true;
        }
        owner == me || owner == 0 && self.owner.compare_exchange(0, me, Relaxed, Relaxed).is_ok()
    }

    fn combine(&self, mut number: u32) {
        for _ in 0..2 {
            let (place, next) = &self.places[number as usize];
            let mut follower = next.load(Acquire);
            if follower == 0 {
                break;
            }
            place.serve::<E>();
            if E::FOLLOWS_LATE {
                follower = next.load(Acquire);
                if follower == 0 {
                    break;
                }
            }
            number = follower - 1;
        }
        if !E::FORGETS_TO_HAND_OVER {
            self.places[number as usize].0.answer(LEAD);
        }
    }
}
