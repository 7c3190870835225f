// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of barriers, generic over algorithm and machine. Each panics on failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};

use platform::{Atomic, AtomicInt as _, Priority};
use sync::barrier::{
    BSleep, BWakeful, BWakefulNode, Combined, RawBarrier, RawBarrierDrained, RawBarrierDynamic,
};
use sync::seated::{Seat, Seated};
use sync::wait::publish;

use crate::{Cell, Machine};

/// Cells that members write in even rounds, and others for odd ones: a round's are read until the next is
/// over.
type Marks<M> = [Vec<<M as Machine>::Cell>; 2];

fn marks<M: Machine>(members: u32) -> Marks<M> {
    std::array::from_fn(|_| (0..members).map(|_| M::Cell::new()).collect())
}

struct Shared<M: Machine, B: RawBarrier<M>> {
    barrier: B,
    places: Vec<B::Place>,
    marks: Marks<M>,
    /// Threads that were told that they are the serial one, for each round.
    serial: Vec<AtomicU32>,
}

impl<M: Machine, B: RawBarrier<M> + 'static> Shared<M, B> {
    fn new(parties: u32, rounds: u32, places: usize) -> Self {
        Self {
            barrier: B::new(parties),
            places: (0..places).map(|_| B::Place::default()).collect(),
            marks: marks::<M>(parties.max(1)),
            serial: (0..rounds).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn member(&self, index: u32, rounds: u32) {
        let mut member = B::Member::default();
        for round in 0..rounds {
            let marks = &self.marks[round as usize % 2];
            marks[index as usize].bump();
            // SAFETY: places as many as asked for; each member has an index of its own and brings the same
            // variables.
            let serial = unsafe { self.barrier.wait(&self.places, index, &mut member) };
            self.serial[round as usize].fetch_add(serial as u32, Relaxed);
            for (other, mark) in marks.iter().enumerate() {
                assert_eq!(
                    mark.get(),
                    round / 2 + 1,
                    "round {round}: {index} came out, {other} is in another round"
                );
            }
        }
    }

    fn finish(&self) {
        for (round, serial) in self.serial.iter().enumerate() {
            assert_eq!(
                serial.load(Relaxed),
                1,
                "round {round}: threads that were told that they are the serial one"
            );
        }
    }
}

/// Nobody comes out before all have come; one of them is the serial one; it can be used again at once.
pub fn episodes<M: Machine, B: RawBarrier<M> + 'static>(parties: u32, rounds: u32)
where
    B::Place: 'static,
{
    episodes_with::<M, B>(parties, rounds, B::places(parties));
}

/// The same with so many places.
pub fn episodes_with<M: Machine, B: RawBarrier<M> + 'static>(parties: u32, rounds: u32, places: usize)
where
    B::Place: 'static,
{
    let shared = Arc::new(Shared::<M, B>::new(parties, rounds, places));
    let handles: Vec<_> = (1..parties)
        .map(|index| {
            let shared = shared.clone();
            M::spawn(move || shared.member(index, rounds))
        })
        .collect();
    shared.member(0, rounds);
    handles.into_iter().for_each(M::join);
    shared.finish();
}

fn wait<M: Machine, B: RawBarrierDynamic<M>>(barrier: &B) -> bool {
    // SAFETY: no places, no variables: any thread may come.
    unsafe { barrier.wait(&[], 0, &mut ()) }
}

/// Parties join in each round, stay for some, and drop out.
pub fn coming_and_going<M: Machine, B: RawBarrierDynamic<M> + 'static>(threads: u32, rounds: u32) {
    let shared = Arc::new((B::new(1), marks::<M>(threads)));
    let mut handles = Vec::new();
    for round in 0..threads + rounds {
        if round < threads {
            assert!(shared.0.join(), "there is room");
            let theirs = shared.clone();
            handles.push(M::spawn(move || {
                for mine in round..round + rounds {
                    theirs.1[mine as usize % 2][round as usize].bump();
                    wait::<M, B>(&theirs.0);
                }
                theirs.1[(round + rounds) as usize % 2][round as usize].bump();
                theirs.0.arrive_and_drop();
            }));
        }
        wait::<M, B>(&shared.0);
        for (other, mark) in shared.1[round as usize % 2].iter().enumerate() {
            // The rounds in which it has come and that are even, or odd, as this one.
            let came =
                (other as u32..=other as u32 + rounds).filter(|come| *come <= round && come % 2 == round % 2);
            assert_eq!(mark.get(), came.count() as u32, "round {round}: {other} is in another round");
        }
    }
    handles.into_iter().for_each(M::join);
    assert!(wait::<M, B>(&shared.0), "nobody else is left, so this is the serial one");
}

/// More threads than parties: they come out in groups.
pub fn groups<M: Machine, B: RawBarrierDynamic<M> + 'static>(parties: u32, groups: u32) {
    struct Counts {
        came: AtomicU32,
        left: AtomicU32,
        serial: AtomicU32,
    }
    let counts = Counts { came: AtomicU32::new(0), left: AtomicU32::new(0), serial: AtomicU32::new(0) };
    let shared = Arc::new((B::new(parties), counts));
    let handles: Vec<_> = (0..parties * groups)
        .map(|_| {
            let shared = shared.clone();
            M::spawn(move || {
                let (barrier, counts) = &*shared;
                counts.came.fetch_add(1, SeqCst);
                if wait::<M, B>(barrier) {
                    counts.serial.fetch_add(1, SeqCst);
                }
                let left = counts.left.fetch_add(1, SeqCst) + 1;
                let came = counts.came.load(SeqCst);
                assert!(left <= came / parties * parties, "{left} came out where {came} had come");
            })
        })
        .collect();
    handles.into_iter().for_each(M::join);
    assert_eq!(shared.1.serial.load(SeqCst), groups, "threads that were told that they are the serial one");
}

/// The default barrier with so many nodes.
pub struct Noded<M: Machine, const NODES: usize> {
    barrier: BWakeful<M>,
    nodes: Vec<BWakefulNode<M>>,
}

/// So many, and one for all, if any.
pub fn nodes<M: Machine>(count: usize) -> Vec<BWakefulNode<M>> {
    (0..count + usize::from(count > 0)).map(|_| BWakefulNode::default()).collect()
}

impl<M: Machine, const NODES: usize> Noded<M, NODES> {
    fn combined(&self) -> Combined<'_, M> {
        self.barrier.with(&self.nodes)
    }

    /// Waits until the episode is over, and not until that was told (N5).
    fn wait_for_its_end_only(&self) {
        if let Some(episode) = self.combined().enter() {
            while !self.barrier.await_or(&episode, || false) {}
        }
    }
}

impl<M: Machine, const NODES: usize> RawBarrier<M> for Noded<M, NODES> {
    type Place = ();
    type Member = ();

    fn new(parties: u32) -> Self {
        Self { barrier: BWakeful::new(parties), nodes: nodes(NODES) }
    }
    fn places(_: u32) -> usize {
        0
    }
    unsafe fn wait(&self, _: &[()], _: u32, _: &mut ()) -> bool {
        self.combined().wait()
    }
}

impl<M: Machine, const NODES: usize> RawBarrierDynamic<M> for Noded<M, NODES> {
    fn join(&self) -> bool {
        self.combined().join()
    }
    fn arrive_and_drop(&self) {
        self.combined().arrive_and_drop();
    }
}

/// The first thread that comes out gives the words and nodes to other barriers. Others may still be leaving.
/// With a mistake, it comes out before N5.
pub fn renewing<M: Machine, const NODES: usize, const MISTAKE: bool>(parties: u32) {
    let shared = Arc::new((Noded::<M, NODES>::new(parties), marks::<M>(parties), AtomicU32::new(0)));
    let ours = shared.clone();
    let member = move |index: u32| {
        let (barrier, marks, out) = &*ours;
        marks[0][index as usize].bump();
        match MISTAKE {
            false => _ = barrier.combined().wait(),
            true => barrier.wait_for_its_end_only(),
        }
        assert!(marks[0].iter().all(|mark| mark.get() == 1), "a member has not come");
        if out.fetch_add(1, SeqCst) == 0 {
            for _ in 0..2 {
                let alone = barrier.combined().renewed(NODES as u32);
                (1..NODES).for_each(|_| alone.arrive_and_drop());
                assert!(alone.wait() && alone.wait());
            }
        }
    };
    let handles: Vec<_> = (1..parties)
        .map(|index| {
            let member = member.clone();
            M::spawn(move || member(index))
        })
        .collect();
    member(0);
    handles.into_iter().for_each(M::join);
}

/// The first thread that comes out gives the nodes to another barrier, whose episodes have come round to the
/// number of the one that the others are on their way out of. They do not wait for its end.
pub fn coming_round<M: Machine, const NODES: usize>(parties: u32) {
    let barriers = (Noded::<M, NODES>::new(parties), BWakeful::<M>::new(parties));
    let shared = Arc::new((barriers, marks::<M>(parties), AtomicU32::new(0)));
    let member = move |index: u32| {
        let ((old, new), marks, out) = &*shared;
        marks[0][index as usize].bump();
        old.combined().wait();
        assert!(marks[0].iter().all(|mark| mark.get() == 1), "a member has not come");
        // Orders nothing: what the members wrote they see by the barrier alone.
        if out.fetch_add(1, Relaxed) == 0 {
            let _ = new.with(&old.nodes).renewed(parties);
        }
    };
    let handles: Vec<_> = (1..parties)
        .map(|index| {
            let member = member.clone();
            M::spawn(move || member(index))
        })
        .collect();
    member(0);
    handles.into_iter().for_each(M::join);
}

/// As [`coming_round`], and who leaves may learn by the era alone that its episode is over: it sees a state
/// of before the end with SLEEPERS set, so that W3 changes nothing.
pub fn leaving_by_era<M: Machine>() {
    let shared = Arc::new((BSleep::<M>::new(3), BWakeful::<M>::new(3), nodes::<M>(1), marks::<M>(2)));
    let (old, _, nodes, marks) = &*shared;
    let combined = old.with(nodes);
    // One of three wants to be called, and does something else.
    let first = combined.enter().expect("two more are to come");
    assert!(!old.sleep_or(&first, || true));
    let ours = shared.clone();
    let other = M::spawn(move || {
        let (old, new, nodes, marks) = &*ours;
        marks[0][1].bump();
        old.with(nodes).wait();
        let _ = new.with(nodes).renewed(3);
    });
    marks[0][0].bump();
    combined.wait();
    assert_eq!(marks[0][1].get(), 1, "a member has not come");
    M::join(other);
}

/// A thread that is one too many may take its time between its look at the episode and the nodes. It counts
/// in an episode that goes on then (N1), and comes out after all of that. Parties fall below the nodes'
/// number meanwhile, and rise again, so that the nodes are cleared.
pub fn one_too_many<M: Machine, const NODES: usize>() {
    let shared = Arc::new((Noded::<M, NODES>::new(NODES as u32), M::Cell::new()));
    let theirs = shared.clone();
    let other = M::spawn(move || {
        theirs.0.combined().wait();
        theirs.1.get();
    });
    let barrier = shared.0.combined();
    // An episode of so many arrivals, none of which waits. False: the other thread has come meanwhile.
    let alone = |count| (1..=count).all(|index| barrier.enter().is_none() == (index == count));
    let drop = || {
        barrier.arrive_and_drop();
        NODES - 1
    };
    let join = || {
        assert!(barrier.join(), "there is room");
        NODES
    };
    if alone(NODES) && alone(drop()) && alone(join()) {
        // All that is missing now is the other thread, for as long as this takes.
        shared.1.bump();
        (1..NODES).for_each(|_| _ = barrier.enter());
    } else {
        (0..NODES).for_each(|_| barrier.arrive_and_drop());
    }
    M::join(other);
}

/// Everybody has left once `drain` returns, and it does.
pub fn draining<M: Machine, B: RawBarrierDrained<M> + 'static>(parties: u32, rounds: u32) {
    let barrier = Arc::new(B::new(parties));
    let handles: Vec<_> = (0..parties)
        .map(|_| {
            let barrier = barrier.clone();
            M::spawn(move || {
                for _ in 0..rounds {
                    // SAFETY: no places, no variables: any thread may come.
                    unsafe { barrier.wait(&[], 0, &mut ()) };
                }
            })
        })
        .collect();
    handles.into_iter().for_each(M::join);
    barrier.drain();
}

/// Who comes out first drains it and frees it.
pub fn freeing<M: Machine, B: RawBarrierDrained<M> + 'static>() {
    struct Theirs<B>(*const B);
    // SAFETY: a barrier is made for that.
    unsafe impl<B> Send for Theirs<B> {}
    let barrier = Box::into_raw(Box::new(B::new(2)));
    let theirs = Theirs(barrier.cast_const());
    let other = M::spawn(move || {
        let Theirs(barrier) = { theirs };
        // SAFETY: it is there until we have come out, which `drain` waits for.
        unsafe { (*barrier).wait(&[], 0, &mut Default::default()) };
    });
    // SAFETY: as above; freed once.
    unsafe {
        (*barrier).wait(&[], 1, &mut Default::default());
        (*barrier).drain();
        drop(Box::from_raw(barrier));
    }
    M::join(other);
}

/// Those who wait are called to something else, and come; then they wait again.
pub fn summoning<M: Machine>(waiters: u32, times: u32) {
    let barrier = Arc::new(BWakeful::<M>::new(waiters + 1));
    // Calls that nobody has answered yet, and how often somebody has.
    let calls = Arc::new(M::AtomicU32::new(0));
    let answers = Arc::new(M::AtomicU32::new(0));
    let handles: Vec<_> = (0..waiters)
        .map(|_| {
            let (barrier, calls, answers) = (barrier.clone(), calls.clone(), answers.clone());
            M::spawn(move || {
                let Some(episode) = barrier.enter() else { return };
                while !barrier.await_or(&episode, || calls.load(Relaxed) > 0) {
                    if calls.swap(0, Relaxed) > 0 {
                        answers.fetch_add(1, Release);
                        M::wake(&*answers, 1);
                    }
                }
            })
        })
        .collect();
    for time in 0..times {
        calls.store(1, Relaxed);
        barrier.summon(1);
        while answers.load(Acquire) == time {
            M::wait(&answers, time, None);
        }
    }
    barrier.wait();
    handles.into_iter().for_each(M::join);
}

/// One is called while it goes to sleep: it sees so, or is woken (W3, C1).
pub fn called<M: Machine>() {
    let barrier = Arc::new(BSleep::<M>::new(2));
    let calls = Arc::new(M::AtomicU32::new(0));
    let (theirs, call) = (barrier.clone(), calls.clone());
    let other = M::spawn(move || {
        call.store(1, Relaxed);
        theirs.summon(1);
    });
    let episode = barrier.enter().expect("nobody else arrives");
    assert!(!barrier.sleep_or(&episode, || calls.load(Relaxed) > 0));
    M::join(other);
}

/// Where a scheduler listens, who waits awake is a contender (S6 of `wait::publish`), beside a lock that it
/// holds more, and afterwards as before. `told` is called for each look that finds it so.
pub fn publishing<M: Machine>(parties: u32, rounds: u32, told: fn()) {
    let barrier = Arc::new(BWakeful::<M>::new(parties));
    crate::bodies::together::<M>(parties, move |index| {
        let me = M::register();
        let own = [Priority::Running, Priority::LockImmediateWaiter][index as usize % 2];
        publish::set_own::<M>(me, own);
        for round in 0..rounds {
            let holds = (index + round).is_multiple_of(2);
            if holds {
                publish::claim::<M>();
                publish::entered::<M>();
            }
            let waits = if holds { Priority::LockImmediateWaiter } else { Priority::Running };
            let before = M::priority(me);
            if let Some(episode) = barrier.enter() {
                barrier.await_or(&episode, || {
                    let now = M::priority(me);
                    assert!(now == before || now == waits, "it has another priority");
                    if now == waits && now != before {
                        told();
                    }
                    false
                });
            }
            assert_eq!(M::priority(me), before, "a thread that came out is not as before");
            if holds {
                publish::left::<M>();
            }
            assert_eq!(M::priority(me), own, "a thread that came out and holds nothing is not as before");
        }
        publish::set_own::<M>(me, Priority::Running);
    });
}

/// One waits for the others to have come, before it comes itself; it sees what they wrote.
pub fn awaiting_others<M: Machine>(others: u32) {
    let shared = Arc::new((BWakeful::<M>::new(others + 1), marks::<M>(others)));
    let handles: Vec<_> = (0..others)
        .map(|index| {
            let shared = shared.clone();
            M::spawn(move || {
                shared.1[0][index as usize].bump();
                shared.0.wait();
            })
        })
        .collect();
    while !shared.0.lacks_one() {
        M::yield_now();
    }
    assert!(shared.1[0].iter().all(|mark| mark.get() == 1), "a member has come that has not written");
    assert!(shared.0.wait(), "the last one is the serial one");
    handles.into_iter().for_each(M::join);
}

/// A thread that is no party becomes one while others may be at the barrier; they wait for it from then on.
pub fn joining_alone<M: Machine, B: RawBarrierDynamic<M> + 'static>() {
    struct Joined<M: Machine, B> {
        barrier: B,
        rounds: M::AtomicU32,
        joined: M::AtomicU32,
        done: M::AtomicU32,
    }
    let zero = <M::AtomicU32 as Atomic<u32>>::new;
    let shared = Joined::<M, B> { barrier: B::new(1), rounds: zero(0), joined: zero(0), done: zero(0) };
    let shared = Arc::new(shared);
    let ours = shared.clone();
    let other = M::spawn(move || {
        assert!(ours.barrier.join(), "there is room");
        ours.joined.store(1, SeqCst);
        wait::<M, B>(&ours.barrier);
        let before = ours.rounds.load(SeqCst);
        (0..3).for_each(|_| M::pause());
        let now = ours.rounds.load(SeqCst);
        assert!(now <= before + 1, "{} rounds without a party that had not come", now - before);
        ours.done.store(1, SeqCst);
        ours.barrier.arrive_and_drop();
    });
    // A few rounds alone: no checker is fair, so that the other might never get there.
    while shared.done.load(SeqCst) == 0 {
        if shared.rounds.load(SeqCst) < 3 || shared.joined.load(SeqCst) != 0 {
            wait::<M, B>(&shared.barrier);
            shared.rounds.fetch_add(1, SeqCst);
        }
        M::pause();
    }
    M::join(other);
    for _ in 0..2 {
        assert!(wait::<M, B>(&shared.barrier), "nobody else is left, so this is the serial one");
    }
}

/// A barrier of the papers with seats: threads that nobody has numbered.
struct Hall<M: Machine, B: RawBarrier<M>> {
    barrier: B,
    places: Vec<B::Place>,
    seats: Vec<Seat<M, B::Member>>,
    next: M::AtomicU32,
}

/// A [`RawBarrierDynamic`] of it for [`groups`], of which no party joins or leaves.
pub struct Anonymous<M: Machine, B: RawBarrier<M>>(Hall<M, B>);

impl<M: Machine, B: RawBarrier<M>> RawBarrier<M> for Anonymous<M, B> {
    type Place = ();
    type Member = ();

    fn new(parties: u32) -> Self {
        Self(Hall {
            barrier: B::new(parties),
            places: (0..B::places(parties)).map(|_| B::Place::default()).collect(),
            seats: (0..parties.max(1)).map(|_| Seat::default()).collect(),
            next: M::AtomicU32::new(0),
        })
    }

    fn places(_: u32) -> usize {
        0
    }

    unsafe fn wait(&self, _: &[()], _: u32, _: &mut ()) -> bool {
        let Hall { barrier, places, seats, next } = &self.0;
        // SAFETY: the parts are the same each time.
        unsafe { Seated { barrier, places, seats, next }.wait() }
    }
}

impl<M: Machine, B: RawBarrier<M>> RawBarrierDynamic<M> for Anonymous<M, B> {
    fn join(&self) -> bool {
        false
    }

    fn arrive_and_drop(&self) {}
}

/// A barrier by its name, in memory of the caller's: as [`episodes`], and freed by the first to come out for
/// good.
pub fn named<M: Machine>(name: &'static str, parties: u32, rounds: u32) {
    struct Memory(*mut u8);
    // SAFETY: a barrier is there, for any thread.
    unsafe impl Sync for Memory {}
    // SAFETY: as above.
    unsafe impl Send for Memory {}
    let kind = catalog::named_barrier::<M>(name).expect("a name of the catalogue");
    let layout = kind.layout(parties).expect("so much memory");
    // SAFETY: the layout is not empty; what is made there is used until it is drained.
    let at = unsafe {
        let at = std::alloc::alloc(layout);
        kind.make(at, parties);
        at
    };
    let shared = Arc::new((Memory(at), [const { AtomicU32::new(0) }; 2]));
    let member = move |shared: &(Memory, [AtomicU32; 2])| {
        let mut last = false;
        for round in 0..rounds {
            shared.1[0].fetch_add(1, SeqCst);
            // SAFETY: as above.
            last = unsafe { kind.wait(shared.0.0) };
            shared.1[1].fetch_add(last as u32, SeqCst);
            assert!(shared.1[0].load(SeqCst) >= (round + 1) * parties, "{name}: it came out early");
        }
        if last {
            // SAFETY: the last episode is over; the others are on their way out, for which `drain` waits.
            unsafe {
                kind.drain(shared.0.0);
                std::alloc::dealloc(shared.0.0, layout);
            }
        }
    };
    let others: Vec<_> = (1..parties)
        .map(|_| {
            let shared = shared.clone();
            M::spawn(move || member(&shared))
        })
        .collect();
    member(&shared);
    others.into_iter().for_each(M::join);
    assert_eq!(
        shared.1[1].load(SeqCst),
        rounds,
        "{name}: threads that were told that they are the serial one"
    );
}
