// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fibers' runtime on the simulated machine: what `carrier.rs`, `sentinel.rs` and `runtime.rs` of the
//! crate `fiber` do, around the same seats and deques.
//!
//! Not here: fibers that wait and are pinned, timers, policies, lending, rounds. So a carrier that comes back
//! without a seat ends its task and lies down.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::null_mut;

use fiber::deque::Deque;
use fiber::seats::{Awake, Called, Invited, Seats};
use platform::{Atomic, Ordering::*, Platform};
use sync::mutex::{Native, RawMutex};

use super::task::Task;
use crate::event::Event;
use crate::platform::Sim;
use crate::setting::Hints;
use crate::upcall;
use crate::word::Word;
use crate::world::{Placed, World};

/// As in the crate `fiber`.
const NEW: usize = 256;
const QUANTUM_NS: u64 = 1_000_000;
const LOOK_NS: u64 = 2_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Kernel threads at most, and at most so many a processor.
const CARRIERS: u32 = 3_000;
const EACH: u32 = 12;

/// What a carrier is told when it is made.
const SEATED: u32 = 1;
const SPARE: u32 = 2;
/// With so many seats at most a new sentinel looks at each carrier, as in the crate `fiber`.
const FEW: u32 = 16;
/// Nobody has the post.
const NOBODY: u32 = u32::MAX;

/// A kernel thread that runs fibers.
#[repr(align(128))]
struct Carrier {
    new: Deque<Sim, Task, NEW>,
    made: Word<u32>,
    watched: Word<u32>,
    handed: Cell<*mut Task>,
    since: Cell<u64>,
    thread: Cell<usize>,
}

/// Fibers that any carrier may run.
struct Common {
    lock: Native<Sim>,
    tasks: RefCell<VecDeque<*mut Task>>,
}

pub(crate) struct Package {
    seats: Seats<Sim>,
    carriers: Placed<[Carrier]>,
    common: Common,
    posts: Box<[Word<u32>]>,
    /// Carriers that were made.
    count: Cell<u32>,
    processors: u32,
    /// Nothing is told: the sentinel looks.
    deaf: bool,
    /// When a sentinel looked at all carriers last.
    looked: Cell<u64>,
    by: f64,
    /// A new sentinel looks at all carriers where there are few seats, as in the crate `fiber`.
    looks: bool,
    /// From this carrier the last new fiber was taken.
    rich: Word<u32>,
    left: Cell<u64>,
}

impl Package {
    /// With a seat for each processor, and a carrier for each seat.
    pub fn new(world: &mut World, processors: u32, posts: u32, looks: bool, by: f64) -> Placed<Self> {
        let most = CARRIERS.min(processors * EACH + posts).max(processors + 2 * posts);
        let carriers = world.place_all((0..most).map(|_| Carrier {
            new: Deque::new(),
            made: Word::holding(0),
            watched: Word::holding(0),
            handed: Cell::new(null_mut()),
            since: Cell::new(0),
            thread: Cell::new(usize::MAX),
        }));
        let package = Self {
            seats: Seats::new(0, most as usize),
            carriers,
            common: Common { lock: RawMutex::new(), tasks: RefCell::default() },
            posts: (0..posts).map(|_| Word::holding(NOBODY)).collect(),
            count: Cell::new(processors),
            processors,
            deaf: world.hints() == Hints::None,
            looked: Cell::new(0),
            by,
            looks,
            rich: Word::holding(0),
            left: Cell::new(0),
        };
        let package = world.keep(package);
        // The seats are granted and taken before anybody runs.
        package.get().seats.grant(processors, |_| {});
        for carrier in 0..processors {
            assert_eq!(package.get().seats.invite(true), Invited::Newcomer);
            package.get().seats.seat_newcomer(carrier);
            package.get().carrier(carrier).made.store(SEATED, Relaxed);
        }
        let app = world.add_app();
        for me in 0..most {
            let thread = world.add_thread(app, move || package.get().work(me));
            package.get().carrier(me).thread.set(thread);
        }
        package
    }

    /// Gives each carrier that has a seat its part of these.
    pub fn deal(&self, tasks: Placed<Vec<Task>>) {
        self.left.set(tasks.get().len() as u64);
        for (number, task) in tasks.get().iter().enumerate() {
            let task = std::ptr::from_ref(task).cast_mut();
            // SAFETY: nobody runs yet, so this is the owner.
            let pushed = unsafe { self.carrier(number as u32 % self.processors).new.push(task) };
            if !pushed {
                self.common.tasks.borrow_mut().push_back(task);
            }
        }
    }

    fn carrier(&self, index: u32) -> &Carrier {
        &self.carriers.get()[index as usize]
    }

    fn all(&self) -> impl Iterator<Item = (u32, &Carrier)> {
        (0..self.count.get()).map(|index| (index, self.carrier(index)))
    }

    /// What a carrier's thread does.
    fn work(&self, me: u32) {
        let it = self.carrier(me);
        while it.made.load(Acquire) == 0 {
            Sim::wait(&it.made, 0, None);
        }
        if it.made.load(Relaxed) == SEATED {
            self.is_seated(me)
        } else {
            self.rest(me)
        }
        loop {
            if self.has_seat(me)
                && let Some(task) = self.next(me)
            {
                // SAFETY: tasks are kept as long as the machine.
                unsafe { (*task).run(self.by) };
                self.left.set(self.left.get() - 1);
                if self.left.get() == 0 {
                    upcall::exit();
                }
            }
        }
    }

    fn has_seat(&self, me: u32) -> bool {
        if !self.seats.holds(me) {
            // No fiber is pinned here: what there is to do, others can.
            self.rest(me);
            return false;
        }
        !self.seats.wanted() || self.keeps_seat(me)
    }

    fn keeps_seat(&self, me: u32) -> bool {
        let (now, since) = (Sim::now_ns(), &self.carrier(me).since);
        if now - since.get() < QUANTUM_NS {
            return true;
        }
        since.set(now);
        match self.seats.pass(me) {
            None => return true,
            Some(woken) => self.rouse(woken),
        }
        self.sleep(me);
        false
    }

    fn rest(&self, me: u32) {
        self.rouse(self.seats.lie_down(me));
        if self.has_work() && self.seats.get_up(me, false) {
            return self.is_seated(me);
        }
        self.sleep(me);
    }

    fn sleep(&self, me: u32) {
        upcall::listen(self.carrier(me).thread.get(), false);
        let awake = loop {
            let awake = if self.begin(me) {
                self.stand_sentinel(me)
            } else {
                self.glance(me).unwrap_or_else(|| self.seats.sleep(me))
            };
            if awake != Awake::Called {
                break awake;
            }
        };
        if awake == Awake::Seated {
            self.is_seated(me);
        }
        self.carrier(me).since.set(Sim::now_ns());
    }

    fn next(&self, me: u32) -> Option<*mut Task> {
        let it = self.carrier(me);
        let handed = it.handed.replace(null_mut());
        if !handed.is_null() {
            return Some(handed);
        }
        // SAFETY: this is the owner's thread.
        let found = unsafe { it.new.pop() }.or_else(|| self.common.pop()).or_else(|| self.steal(me));
        if found.is_none() {
            self.rest(me);
        }
        found
    }

    fn steal(&self, me: u32) -> Option<*mut Task> {
        let count = self.count.get();
        let from = self.rich().unwrap_or(me);
        let others = (0..count).map(|step| (from + step) % count).filter(|&other| other != me);
        let (other, task) =
            others.filter_map(|other| Some((other, self.carrier(other).new.steal()?))).next()?;
        if self.rich().is_some_and(|rich| rich != other) {
            self.rich.store(other, Relaxed);
        }
        Some(task)
    }

    fn has_work(&self) -> bool {
        let has_any = |carrier: &Carrier| carrier.new.has_any();
        !self.common.is_empty()
            || self.rich().is_some_and(|rich| has_any(self.carrier(rich)))
            || self.all().any(|(_, carrier)| has_any(carrier))
    }

    fn is_large(&self) -> bool {
        self.processors > FEW
    }

    /// Where a search begins, where there are many seats.
    fn rich(&self) -> Option<u32> {
        self.is_large().then(|| self.rich.load(Relaxed))
    }

    /// Where there are many, who is about to sleep hears what there is, without waiting, until it has a seat.
    fn glance(&self, me: u32) -> Option<Awake> {
        while self.is_large() && !self.seats.is_told(me) {
            let (thread, event) = upcall::glance()?;
            if let Some(awake) = self.told(me, thread, event) {
                return Some(awake);
            }
        }
        None
    }

    fn rouse(&self, carrier: Option<u32>) {
        if let Some(carrier) = carrier {
            self.seats.wake(carrier);
        }
    }

    fn invite(&self) {
        match self.seats.invite(true) {
            Invited::Nobody => {}
            Invited::Carrier(carrier) => self.rouse(Some(carrier)),
            Invited::Newcomer => {
                if !self.add_carrier(true) {
                    self.rouse(self.seats.surrender());
                }
            }
        }
    }

    /// False: there are too many.
    fn add_carrier(&self, seated: bool) -> bool {
        let index = self.count.get();
        if index as usize == self.carriers.get().len() {
            return false;
        }
        self.count.set(index + 1);
        upcall::make_thread();
        if seated {
            self.seats.seat_newcomer(index);
        }
        let made = &self.carrier(index).made;
        made.store(if seated { SEATED } else { SPARE }, Release);
        Sim::wake(made, 1);
        true
    }

    fn is_seated(&self, me: u32) {
        if self.is_vacant() {
            self.fill_post(me);
        }
        upcall::listen(self.carrier(me).thread.get(), true);
    }

    // The sentinels.

    fn begin(&self, me: u32) -> bool {
        self.posts.iter().any(|post| post.compare_exchange(NOBODY, me, SeqCst, Relaxed).is_ok())
    }

    fn end(&self, me: u32) {
        for post in &self.posts {
            let _ = post.compare_exchange(me, NOBODY, SeqCst, Relaxed);
        }
    }

    fn is_vacant(&self) -> bool {
        self.posts.iter().all(|post| post.load(SeqCst) == NOBODY)
    }

    fn fill_post(&self, me: u32) {
        match self.seats.call(me) {
            Called::Carrier(carrier) => self.rouse(Some(carrier)),
            Called::Before => {}
            Called::Nobody => _ = self.add_carrier(false),
        }
    }

    fn stand_sentinel(&self, me: u32) -> Awake {
        let every = if self.deaf { LOOK_NS } else { SECOND_NS };
        let looks = self.deaf || self.looks && !self.is_large();
        let mut awake = if looks { self.look_at_all(me) } else { None };
        let mut looked = if looks { Sim::now_ns() } else { self.looked.get() };
        while awake.is_none() {
            awake = self.seats.look(me).filter(|awake| *awake != Awake::Called);
            if awake.is_some() {
                break;
            }
            if self.seats.sleepers(me) == 0 {
                self.add_carrier(false);
            }
            let (bed, asleep) = self.seats.bed(me);
            let deadline = upcall::deadline((looked + every).saturating_sub(Sim::now_ns()));
            if let Some((thread, event)) = upcall::stand(bed, asleep, deadline) {
                awake = self.told(me, thread, event);
            }
            let now = Sim::now_ns();
            if awake.is_none() && now >= looked + every {
                looked = now;
                awake = self.look_at_all(me);
                if awake.is_none() {
                    self.looked.set(now);
                }
            }
        }
        self.end(me);
        if self.is_vacant() {
            self.fill_post(me);
        } else if self.seats.sleepers(me) < 2 {
            upcall::ring();
        }
        awake.unwrap_or(Awake::Lost)
    }

    /// The upcall. What a thread does that can go on, or that lost its processor, it does itself; the kernel
    /// brings it back.
    fn told(&self, me: u32, thread: usize, event: Event) -> Option<Awake> {
        match event {
            Event::Blocked | Event::Faulted => {
                let (carrier, _) = self.all().find(|(_, carrier)| carrier.thread.get() == thread)?;
                self.has_switched(me, carrier)
            }
            Event::Unblocked | Event::Preempted => None,
        }
    }

    fn look_at_all(&self, me: u32) -> Option<Awake> {
        (0..self.count.get()).fold(None, |found, carrier| found.or_else(|| self.has_switched(me, carrier)))
    }

    fn has_switched(&self, me: u32, index: u32) -> Option<Awake> {
        let carrier = self.carrier(index);
        let thread = carrier.thread.get();
        if !self.seats.holds(index) || !upcall::is_blocked(thread) {
            return None;
        }
        let alone = carrier.watched.swap(1, AcqRel) == 0;
        let mut mine = false;
        loop {
            if !self.seats.take(index) {
                break;
            }
            mine |= self.hand_on(me);
            if alone && mine && self.carrier(me).handed.get().is_null() {
                // SAFETY: T3 of `deque.rs`: nothing here is out of order.
                let handed = unsafe { carrier.new.steal_from_blocked(|| upcall::is_blocked(thread)) };
                self.carrier(me).handed.set(handed.unwrap_or(null_mut()));
            }
            let silence = |on| upcall::listen(thread, on);
            if !alone
                || !self.seats.silence(index, || silence(false), || silence(true))
                || !upcall::is_blocked(thread)
            {
                break;
            }
        }
        if alone {
            carrier.watched.store(0, Release);
        }
        mine.then_some(Awake::Seated)
    }

    fn hand_on(&self, me: u32) -> bool {
        let wanted = self.seats.wanted();
        let mine = self.has_work() && !wanted && !self.seats.holds(me);
        self.rouse(if mine { self.seats.accept(me) } else { self.seats.surrender() });
        if self.has_work() {
            self.invite();
        }
        mine
    }
}

impl Common {
    fn is_empty(&self) -> bool {
        self.tasks.borrow().is_empty()
    }

    fn pop(&self) -> Option<*mut Task> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: released below, once.
        unsafe { self.lock.lock(&()) };
        let task = self.tasks.borrow_mut().pop_front();
        // SAFETY: locked above.
        unsafe { self.lock.unlock(&()) };
        task
    }
}
