// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the parts of OpenMP must do, and what goes wrong without one of their steps.
//!
//! A body with a mistake uses the same part in a wrong order, or a twin of it.

mod regions;
mod shares;

use std::marker::PhantomData;
use std::sync::Arc;

use platform::{Atomic, AtomicInt, Ordering::*, Platform, Wide};
use sync::barrier::{BWakeful, RawBarrier, RawBarrierDynamic};
use sync::mutex::{RawMutex, Wakeful};
use sync::openmp::{
    Awaited, Crew, Dependent, Deque, Event, Flag, ForkJoin, Holders, Kin, Linked, Links, Patience, Tasks,
};

use crate::bodies::together;
use crate::{Cell, Machine};

pub use regions::*;
pub use shares::*;

/// No mistake.
pub const NONE: u32 = 0;

/// Sleeps at once; where it cannot, it pauses.
pub struct Sleepy<P>(PhantomData<P>);

/// Waits awake.
pub struct Sleepless<P>(PhantomData<P>);

fn pausing<P: Platform>(done: impl Fn() -> bool) -> bool {
    while !done() {
        P::pause();
    }
    true
}

impl<P: Platform> Patience for Sleepy<P> {
    fn is_passive() -> bool {
        true
    }
    fn awake(done: impl Fn() -> bool) -> bool {
        done()
    }
    fn briefly(done: impl Fn() -> bool) {
        pausing::<P>(done);
    }
}

impl<P: Platform> Patience for Sleepless<P> {
    fn is_passive() -> bool {
        false
    }
    fn awake(done: impl Fn() -> bool) -> bool {
        pausing::<P>(done)
    }
    fn briefly(done: impl Fn() -> bool) {
        pausing::<P>(done);
    }
}

// --- events and counts -------------------------------------------------------

/// Gives notice before it writes what the notice is about.
pub const NOTICE_FIRST: u32 = 1;

/// A thread writes twice, giving notice each time; others wait for each. The flag itself orders nothing.
pub fn event<M: Machine + Wide, W: Patience, const MISTAKE: u32>(waiters: u32) {
    let shared = Arc::new((Event::<M>::default(), M::AtomicU32::new(0)));
    together::<M>(waiters + 1, move |index| {
        let (event, flag) = &*shared;
        for round in 1..=2 {
            if index > 0 {
                event.wait_until::<W>(|| flag.load(Relaxed) >= round);
                continue;
            }
            if MISTAKE == NOTICE_FIRST {
                event.notify();
            }
            flag.store(round, Relaxed);
            if MISTAKE != NOTICE_FIRST {
                event.notify();
            }
        }
    });
}

/// Counts down in two steps.
pub const TWO_STEPS: u32 = 1;

/// Each counted thread writes, and the one who waits for all reads.
pub fn awaited<M: Machine>(threads: u32) {
    let cells: Vec<_> = (0..threads).map(|_| M::Cell::new()).collect();
    let shared = Arc::new((Awaited::<M>::default(), cells));
    (0..threads).for_each(|_| _ = shared.0.add());
    together::<M>(threads + 1, move |index| {
        let (count, cells) = &*shared;
        match index.checked_sub(1) {
            Some(index) => {
                cells[index as usize].bump();
                count.done();
            }
            None => {
                pausing::<M>(|| count.are_none());
                assert!(cells.iter().all(|cell| cell.get() == 1), "not all were done");
            }
        }
    });
}

/// The last holder reads what all have written, and there is one last.
pub fn holders<M: Machine, const MISTAKE: u32>(threads: u32) {
    struct Shared<M: Machine> {
        count: Holders<M>,
        broken: M::AtomicU32,
        cells: Vec<M::Cell>,
        ends: M::AtomicU32,
    }
    let shared = Arc::new(Shared::<M> {
        count: Holders::new(1),
        broken: Atomic::new(threads),
        cells: (0..threads).map(|_| M::Cell::new()).collect(),
        ends: Atomic::new(0),
    });
    (1..threads).for_each(|_| shared.count.add());
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        let Shared { count, broken, cells, ends } = &*ours;
        cells[index as usize].bump();
        let last = match MISTAKE {
            TWO_STEPS => {
                let was = broken.load(Acquire);
                broken.store(was - 1, Release);
                was == 1
            }
            _ => count.let_go(),
        };
        if last {
            ends.fetch_add(1, Relaxed);
            assert!(cells.iter().all(|cell| cell.get() == 1), "somebody still held it");
        }
    });
    assert_eq!(shared.ends.load(Relaxed), 1, "nobody, or more than one, was the last");
}

/// A holder that waits until it is the only one has seen what the others did.
pub fn alone<M: Machine>() {
    let shared = Arc::new((Holders::<M>::new(2), M::Cell::new()));
    together::<M>(2, move |index| {
        if index == 0 {
            pausing::<M>(|| shared.0.is_one());
            assert_eq!(shared.1.get(), 1);
        } else {
            shared.1.bump();
            assert!(!shared.0.let_go());
        }
    });
}

/// Children end, in one step or in two. Their parent may wait for them, and sees what they did. So does the
/// last holder, and there is one.
pub fn kin<M: Machine + Wide>(children: u32, waits: bool) {
    let cells: Vec<_> = (0..=children).map(|_| M::Cell::new()).collect();
    let shared = Arc::new((Kin::<M>::default(), cells, M::AtomicU32::new(0)));
    (0..children).for_each(|_| shared.0.add_child());
    let ours = shared.clone();
    together::<M>(children + 1, move |index| {
        let (kin, cells, ends) = &*ours;
        let all_wrote = || cells.iter().all(|cell| cell.get() == 1);
        cells[index as usize].bump();
        let last = match index {
            0 => {
                if waits {
                    pausing::<M>(|| kin.is_childless());
                    assert!(all_wrote(), "not all children were done");
                }
                kin.let_go()
            }
            1 => kin.child_gone().1,
            _ => {
                kin.child_done();
                kin.let_go()
            }
        };
        if last {
            ends.fetch_add(1, Relaxed);
            assert!(all_wrote(), "somebody still held it");
        }
    });
    assert_eq!(shared.2.load(Relaxed), 1, "nobody, or more than one, was the last");
}

/// Who sees the flag sees what was written before.
pub fn flag<M: Machine>() {
    let shared = Arc::new((Flag::<M>::default(), M::Cell::new()));
    together::<M>(2, move |index| {
        if index == 0 {
            pausing::<M>(|| shared.0.is_up());
            assert_eq!(shared.1.get(), 1);
        } else {
            shared.1.bump();
            shared.0.raise();
        }
    });
}

// --- dependences -------------------------------------------------------------

/// The maker has no 1 in the count while it is still following.
pub const FORGETS_MAKER: u32 = 1;

/// A task follows two others, which end meanwhile. Whoever is last runs it, once.
pub fn dependent<M: Machine, const MISTAKE: u32>() {
    struct Shared<M: Machine> {
        tasks: [Dependent<M, u32>; 3],
        cells: [M::Cell; 3],
        ran: M::AtomicU32,
    }
    let cells = [(); 3].map(|_| M::Cell::new());
    let tasks = [(); 3].map(|_| Dependent::default());
    let shared = Arc::new(Shared::<M> { tasks, cells, ran: Atomic::new(0) });
    let ours = shared.clone();
    together::<M>(3, move |index| {
        let Shared { tasks: [one, two, last], cells, ran } = &*ours;
        let run_last = || {
            ran.fetch_add(1, Relaxed);
            assert!(cells[..2].iter().all(|cell| cell.get() == 1), "it did not wait for a predecessor");
            cells[2].bump();
        };
        if index == 0 {
            if MISTAKE == FORGETS_MAKER {
                last.has_none();
            }
            for other in [one, two] {
                assert!(last.follow(other, |list| {
                    *list += 1;
                    true
                }));
            }
            if MISTAKE != FORGETS_MAKER && last.preceded() {
                run_last();
            }
            return;
        }
        let (mine, cell) = if index == 1 { (one, &cells[0]) } else { (two, &cells[1]) };
        cell.bump();
        for _ in 0..mine.end().unwrap_or(0) {
            if last.preceded() {
                run_last();
            }
        }
        assert!(mine.is_done());
    });
    assert_eq!(shared.ran.load(Relaxed), 1, "it was not run once");
}

/// A thread that waits for a predecessor itself, as before a task that it runs at once.
pub fn followed<M: Machine>() {
    let shared = Arc::new(([(); 2].map(|_| Dependent::<M, u32>::default()), M::Cell::new()));
    together::<M>(2, move |index| {
        let ([first, second], cell) = &*shared;
        if index == 0 {
            second.follow(first, |list| {
                *list += 1;
                true
            });
            second.preceded();
            pausing::<M>(|| second.predecessors() == 0);
            assert_eq!(cell.get(), 1);
        } else {
            cell.bump();
            for _ in 0..first.end().unwrap_or(0) {
                second.preceded();
            }
        }
    });
}

// --- the deque ---------------------------------------------------------------

/// A task that counts how often it was run.
pub struct Job<C: 'static> {
    links: Links<Self>,
    number: u32,
    /// What it makes when it is run.
    child: Option<&'static Self>,
    ran: C,
}

// SAFETY: the links are the deque's, which are used under its lock; the machine watches the cell.
unsafe impl<C: Cell> Sync for Job<C> {}

impl<C: Cell> Linked for Job<C> {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

impl<C: Cell> Job<C> {
    /// Never freed: who is late finds it all the same.
    fn leak(number: u32) -> &'static Self {
        Self::parent(number, None)
    }

    fn parent(number: u32, child: Option<&'static Self>) -> &'static Self {
        Box::leak(Box::new(Self { links: Links::default(), number, child, ran: C::new() }))
    }
}

/// Tasks, each of which may be taken once.
pub trait TaskQueue<M: Machine>: Default + Send + Sync + 'static {
    /// As the newest.
    fn push(&self, job: &'static Job<M::Cell>);
    /// The newest.
    fn own(&self) -> Option<&'static Job<M::Cell>>;
    /// The oldest.
    fn steal(&self) -> Option<&'static Job<M::Cell>>;
}

impl<M: Machine> TaskQueue<M> for Deque<M, Job<M::Cell>> {
    fn push(&self, job: &'static Job<M::Cell>) {
        Deque::push(self, job);
    }
    fn own(&self) -> Option<&'static Job<M::Cell>> {
        self.take_newest(usize::MAX, || false, |_| true)
    }
    fn steal(&self) -> Option<&'static Job<M::Cell>> {
        self.take_oldest(usize::MAX, || false, |_| true)
    }
}

/// The taker looks at the end, and takes it out in a second section: another one has taken it in between.
pub const DOUBLES: u32 = 1;
/// The maker looks for the end, and links behind it in a second section: another task has got there in
/// between.
pub const LOSES: u32 = 2;

/// A deque of few places with one mistake.
pub struct BrokenQueue<M: Machine, const MISTAKE: u32> {
    lock: Wakeful<M>,
    places: [M::AtomicPtr<Job<M::Cell>>; 4],
    ends: [M::AtomicU32; 2],
}

impl<M: Machine, const MISTAKE: u32> Default for BrokenQueue<M, MISTAKE> {
    fn default() -> Self {
        Self {
            lock: Wakeful::new(),
            places: [(); 4].map(|_| Atomic::new(std::ptr::null_mut())),
            ends: [(); 2].map(|_| Atomic::new(0)),
        }
    }
}

impl<M: Machine, const MISTAKE: u32> BrokenQueue<M, MISTAKE> {
    fn locked<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: released below.
        unsafe {
            self.lock.lock(&());
            let result = work();
            self.lock.unlock(&());
            result
        }
    }

    fn take(&self, newest: bool) -> Option<&'static Job<M::Cell>> {
        let ends = || [0, 1].map(|end| self.ends[end].load(Relaxed));
        let take = |[oldest, newer]: [u32; 2]| {
            let (place, change) = if newest { (newer - 1, 1) } else { (oldest, 0) };
            let job = self.places[place as usize].load(Relaxed);
            self.ends[change].store(if newest { newer - 1 } else { oldest + 1 }, Relaxed);
            // SAFETY: leaked, or null.
            unsafe { job.as_ref() }
        };
        match MISTAKE {
            DOUBLES => {
                let [oldest, newer] = self.locked(ends);
                if oldest < newer { self.locked(|| take([oldest, newer])) } else { None }
            }
            _ => self.locked(|| {
                let [oldest, newer] = ends();
                if oldest < newer { take([oldest, newer]) } else { None }
            }),
        }
    }
}

impl<M: Machine, const MISTAKE: u32> TaskQueue<M> for BrokenQueue<M, MISTAKE> {
    fn push(&self, job: &'static Job<M::Cell>) {
        let end = || self.ends[1].load(Relaxed);
        let link = |end: u32| {
            self.places[end as usize % 4].store(std::ptr::from_ref(job).cast_mut(), Relaxed);
            self.ends[1].store(end + 1, Relaxed);
        };
        if MISTAKE == LOSES {
            let end = self.locked(end);
            self.locked(|| link(end));
        } else {
            self.locked(|| link(end()));
        }
    }
    fn own(&self) -> Option<&'static Job<M::Cell>> {
        self.take(true)
    }
    fn steal(&self) -> Option<&'static Job<M::Cell>> {
        self.take(false)
    }
}

/// Two threads make tasks, and take from either end; each task is had once.
pub fn queue<M: Machine, Q: TaskQueue<M>>(each: u32) {
    let jobs: Vec<_> = (0..2 * each).map(Job::<M::Cell>::leak).collect();
    let shared = Arc::new((Q::default(), jobs));
    let ours = shared.clone();
    together::<M>(2, move |index| {
        let (queue, jobs) = &*ours;
        for &job in jobs.iter().filter(|job| job.number % 2 == index) {
            queue.push(job);
            let taken = if index == 0 { queue.own() } else { queue.steal() };
            if let Some(taken) = taken {
                taken.ran.bump();
            }
        }
    });
    while let Some(left) = shared.0.own() {
        left.ran.bump();
    }
    let ran: Vec<u32> = shared.1.iter().map(|job| job.ran.get()).collect();
    assert!(ran.iter().all(|&times| times == 1), "tasks were had {ran:?} times");
}

// --- tasks at a barrier ------------------------------------------------------

/// The barrier is not held for tasks.
pub const HOLDS_NOTHING: u32 = 1;
/// Who puts a task from outside calls nobody.
pub const CALLS_NOBODY: u32 = 2;

/// A team of few.
pub struct Group<M: Machine + Wide, const MISTAKE: u32> {
    size: u32,
    /// Written between regions; read by whoever looks for tasks.
    region: M::Cell,
    barrier: BWakeful<M>,
    deques: Vec<Deque<M, Job<M::Cell>>>,
    bells: [Event<M>; 2],
    tasks: Tasks<M, Job<M::Cell>>,
}

impl<M: Machine + Wide, const MISTAKE: u32> Crew<M> for Group<M, MISTAKE> {
    type Task = Job<M::Cell>;

    fn size(&self) -> u32 {
        self.region.get();
        self.size
    }
    fn deque(&self, member: usize) -> &Deque<M, Self::Task> {
        &self.deques[member]
    }
    fn summon(&self) {
        if MISTAKE != CALLS_NOBODY {
            self.barrier.summon(1);
        }
    }
    fn hold(&self) {
        if MISTAKE != HOLDS_NOTHING {
            self.barrier.join();
        }
    }
    fn let_go(&self) {
        if MISTAKE != HOLDS_NOTHING {
            self.barrier.arrive_and_drop();
        }
    }
    fn bells(&self) -> [&Event<M>; 2] {
        if MISTAKE == CALLS_NOBODY { [&self.bells[1]; 2] } else { [&self.bells[0], &self.bells[1]] }
    }
    fn are_back(&self) -> bool {
        true
    }
}

impl<M: Machine + Wide, const MISTAKE: u32> Group<M, MISTAKE> {
    fn new(size: u32) -> Self {
        Self {
            size,
            region: M::Cell::new(),
            barrier: BWakeful::new(size),
            deques: (0..size).map(|_| Deque::default()).collect(),
            bells: Default::default(),
            tasks: Tasks::default(),
        }
    }

    fn run(&self, job: &'static Job<M::Cell>) {
        job.ran.bump();
        if let Some(child) = job.child {
            self.tasks.one_more();
            self.put(child, Some(0));
        }
        self.tasks.one_done(self, false);
    }

    fn put(&self, job: &'static Job<M::Cell>, by: Option<u32>) {
        self.tasks.put(self, job, None::<fn(&Job<M::Cell>) -> bool>, by, || job.number);
    }

    fn meet<W: Patience>(&self, own: usize) {
        self.tasks.meet_at::<_, W>(self, &self.barrier, || own, |job| self.run(job), || false);
    }
}

/// Member 0 makes tasks and goes to the barrier as the others do. After it all tasks are done, and each was
/// run once.
pub fn tasks<M: Machine + Wide, W: Patience, const MISTAKE: u32>(members: u32, count: u32) {
    let group = Arc::new((Group::<M, MISTAKE>::new(members), (0..count).map(Job::leak).collect::<Vec<_>>()));
    together::<M>(members, move |index| {
        let (group, jobs) = &*group;
        if index == 0 {
            for &job in jobs {
                group.tasks.one_more();
                group.put(job, Some(0));
            }
        }
        group.meet::<W>(index as usize);
        let ran: Vec<u32> = jobs.iter().map(|job| job.ran.get()).collect();
        assert!(
            ran.iter().all(|&times| times == 1),
            "the barrier opened when tasks had been run {ran:?} times"
        );
    });
}

/// A task makes another one, while all members may be at the barrier.
pub fn descendants<M: Machine + Wide, W: Patience>(members: u32) {
    let child = Job::leak(1);
    let group = Arc::new((Group::<M, NONE>::new(members), [Job::parent(0, Some(child)), child]));
    together::<M>(members, move |index| {
        let (group, jobs) = &*group;
        if index == 0 {
            group.tasks.one_more();
            group.put(jobs[0], Some(0));
        }
        group.meet::<W>(index as usize);
        assert!(jobs.iter().all(|job| job.ran.get() == 1), "the barrier opened before a task");
    });
}

/// A task comes from outside of the team, whose members are at the barrier, or on the way there, or look for
/// tasks.
pub fn from_outside<M: Machine + Wide, W: Patience, const MISTAKE: u32>(members: u32) {
    let group = Arc::new((Group::<M, MISTAKE>::new(members), [Job::leak(0), Job::leak(1)]));
    group.0.tasks.one_more();
    let ours = group.clone();
    together::<M>(members + 1, move |index| {
        let (group, jobs) = &*ours;
        if index == members {
            return group.put(jobs[0], None);
        }
        if index == 0 {
            group.tasks.one_more();
            group.put(jobs[1], Some(0));
        }
        group.meet::<W>(index as usize);
        assert!(jobs.iter().all(|job| job.ran.get() == 1), "the barrier opened before a task");
    });
}

/// When all tasks are done and nobody looks for any, the members may be changed.
pub fn regions<M: Machine + Wide>() {
    let group = Arc::new((Group::<M, NONE>::new(2), [Job::leak(0), Job::leak(1)]));
    together::<M>(2, move |index| {
        let (group, jobs) = &*group;
        let run_all = || group.tasks.run_all(group, index as usize, |job| group.run(job), || false);
        if index == 1 {
            for _ in 0..2 {
                if group.tasks.are_there() {
                    run_all();
                }
                M::pause();
            }
            return;
        }
        for &job in jobs {
            group.region.bump();
            group.tasks.one_more();
            group.put(job, Some(0));
            run_all();
            pausing::<M>(|| !group.tasks.are_open() && !group.tasks.are_run());
            assert_eq!(job.ran.get(), 1);
        }
    });
}

/// Who sees a task sees the region that it belongs to.
pub fn sees_region<M: Machine + Wide>() {
    let group = Arc::new((Group::<M, NONE>::new(2), Job::leak(0)));
    together::<M>(2, move |index| {
        let (group, job) = &*group;
        if index == 0 {
            group.region.bump();
            group.put(job, Some(0));
        } else if group.tasks.are_there() {
            group.size();
        }
    });
}

/// A runner that has left looks at no member any more.
pub fn leaves<M: Machine + Wide>() {
    let group = Arc::new((Group::<M, NONE>::new(2), Job::leak(0)));
    group.0.put(group.1, Some(0));
    together::<M>(2, move |index| {
        let (group, job) = &*group;
        if index == 1 {
            return group.tasks.run_all(group, 1, |_| (), || false);
        }
        group.tasks.take(group, 0, |_| true, || false);
        pausing::<M>(|| !group.tasks.are_there() && !group.tasks.are_run());
        group.region.bump();
        assert_eq!(job.ran.get(), 0);
    });
}

/// When none is open, what the tasks did is seen, by whoever asks and by whoever did the last.
pub fn done<M: Machine + Wide>() {
    let group = Arc::new((Group::<M, NONE>::new(1), [Job::leak(0), Job::leak(1)]));
    group.1.iter().for_each(|_| group.0.tasks.one_more());
    together::<M>(3, move |index| {
        let (group, jobs) = &*group;
        match index.checked_sub(1) {
            Some(index) => group.run(jobs[index as usize]),
            None => {
                pausing::<M>(|| !group.tasks.are_open());
                assert!(jobs.iter().all(|job| job.ran.get() == 1));
            }
        }
    });
}

/// Two tasks, and a barrier that may not be let go before both are done.
struct Two<M: Machine + Wide> {
    group: Group<M, NONE>,
    jobs: [&'static Job<M::Cell>; 2],
    holds: M::AtomicU32,
}

impl<M: Machine + Wide> Two<M> {
    fn new() -> Arc<Self> {
        let (group, jobs) = (Group::new(1), [Job::leak(0), Job::leak(1)]);
        jobs.iter().for_each(|_| group.tasks.one_more());
        Arc::new(Self { group, jobs, holds: Atomic::new(0) })
    }

    fn run(&self, job: usize) {
        self.jobs[job].ran.bump();
        self.group.tasks.one_done(self, false);
    }

    fn are_seen(&self) {
        assert!(self.jobs.iter().all(|job| job.ran.get() == 1));
    }
}

impl<M: Machine + Wide> Crew<M> for Two<M> {
    type Task = Job<M::Cell>;
    fn size(&self) -> u32 {
        1
    }
    fn deque(&self, member: usize) -> &Deque<M, Self::Task> {
        self.group.deque(member)
    }
    fn summon(&self) {}
    fn hold(&self) {
        self.holds.fetch_add(1, Relaxed);
    }
    fn let_go(&self) {
        self.are_seen();
    }
    fn bells(&self) -> [&Event<M>; 2] {
        self.group.bells()
    }
    fn are_back(&self) -> bool {
        true
    }
}

/// Whoever ends the last task has seen what the others did, and lets the barrier go.
pub fn last<M: Machine + Wide>() {
    let two = Two::<M>::new();
    two.group.tasks.hold(&*two);
    let ours = two.clone();
    together::<M>(2, move |index| ours.run(index as usize));
    assert_eq!(two.holds.load(Relaxed), 1, "it was held once");
}

/// A member that arrives at the barrier holds it for the tasks, or has seen what they did. Both threads are
/// tried as that member: loom does not explore the same in both.
pub fn arrives<M: Machine + Wide>(member: u32) {
    let two = Two::<M>::new();
    two.run(0);
    together::<M>(2, move |index| {
        if index != member {
            return two.run(1);
        }
        two.group.tasks.hold(&*two);
        if two.holds.load(Relaxed) == 0 {
            two.are_seen();
        }
    });
}

/// A lone member, whose task is fulfilled elsewhere.
pub fn finish<M: Machine + Wide, W: Patience>() {
    let group = Arc::new((Group::<M, NONE>::new(1), Job::leak(0)));
    group.0.tasks.one_more();
    together::<M>(2, move |index| {
        let (group, job) = &*group;
        if index == 1 {
            return group.put(job, None);
        }
        group.tasks.finish::<_, W>(group, 0, |job| group.run(job));
        assert_eq!(job.ran.get(), 1);
    });
}

// --- fork and join -----------------------------------------------------------

/// The primary thread does not wait for the helpers.
pub const JOINS_EARLY: u32 = 1;
/// The primary thread writes what is to be run after it has released the helpers.
pub const FORKS_EARLY: u32 = 2;

/// A primary thread runs regions with helpers. All helpers but `keep` leave before the last region.
pub fn fork_join<M: Machine + Wide, W: Patience, const MISTAKE: u32>(helpers: u32, regions: u32, keep: u32) {
    struct Shared<M: Machine + Wide> {
        pool: ForkJoin<M>,
        back: Event<M>,
        input: M::Cell,
        ran: Vec<M::Cell>,
    }
    let shared = Arc::new(Shared::<M> {
        pool: ForkJoin::default(),
        back: Event::default(),
        input: M::Cell::new(),
        ran: (0..helpers).map(|_| M::Cell::new()).collect(),
    });
    (0..helpers).for_each(|_| shared.pool.recruit());
    let ours = shared.clone();
    together::<M>(helpers + 1, move |index| {
        let Shared { pool, back, input, ran } = &*ours;
        if let Some(own) = index.checked_sub(1) {
            let region = || {
                let own = &ran[own as usize];
                own.bump();
                assert_eq!(own.get(), input.get(), "a helper does not see its region");
            };
            return pool.serve::<W>(index, 0, back, |_| false, |_| (), region);
        }
        let join = || pool.join::<W>(back, || true, || false, || ());
        for region in 1..=regions {
            if MISTAKE != FORKS_EARLY {
                input.bump();
            }
            let there = if region == regions { keep } else { helpers };
            pool.fork(there, |_| ());
            if MISTAKE == FORKS_EARLY {
                input.bump();
            }
            if MISTAKE != JOINS_EARLY {
                join();
            }
            assert!(ran[..there as usize].iter().all(|ran| ran.get() == region), "the join was early");
        }
        pool.fork(0, |_| ());
        if MISTAKE != JOINS_EARLY {
            join();
        }
    });
}
