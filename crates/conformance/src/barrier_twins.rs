// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers with one mistake each. A checker that lets one of them pass is itself broken.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

use platform::{Atomic, AtomicInt, Ordering::*, Platform};
use sync::barrier::{BWakeful, BWakefulNode, RawBarrier, RawBarrierDrained, RawBarrierDynamic};

macro_rules! twin {
    ($(#[$doc:meta])* $name:ident, [$($field:ident)*], |$this:ident, $parties:ident, $member:ident| $body:block) => {
        $(#[$doc])*
        pub struct $name<P: Platform> {
            parties: u32,
            $($field: P::AtomicU32,)*
            platform: PhantomData<P>,
        }

        impl<P: Platform> RawBarrier<P> for $name<P> {
            type Place = ();
            type Member = u32;

            fn new(parties: u32) -> Self {
                Self { parties, $($field: Atomic::new(0),)* platform: PhantomData }
            }
            fn places(_: u32) -> usize {
                0
            }
            unsafe fn wait(&self, _: &[()], _: u32, $member: &mut u32) -> bool {
                let ($this, $parties) = (self, self.parties);
                $body
            }
        }
    };
}

twin! {
    /// A counter that its waiters watch, without a sense: who is slow to look finds the next episode in it.
    NoSense, [count],
    |this, parties, _member| {
        if this.count.fetch_add(1, AcqRel) == parties - 1 {
            this.count.store(0, Release);
            return true;
        }
        while this.count.load(Acquire) != 0 {
            P::pause();
        }
        false
    }
}

twin! {
    /// `c-spin` that takes the last but one for the last.
    ReleasesEarly, [count sense],
    |this, parties, member| {
        *member = 1 - *member;
        let arrivals = this.count.fetch_add(1, AcqRel) + 1;
        if arrivals == parties {
            this.count.store(0, Relaxed);
        }
        if arrivals >= parties - 1 {
            this.sense.store(*member, Release);
        }
        while this.sense.load(Acquire) != *member {
            P::pause();
        }
        arrivals == parties
    }
}

twin! {
    /// `c-spin` that opens the barrier before it has cleared the counter.
    ClearsLate, [count sense],
    |this, parties, member| {
        *member = 1 - *member;
        if this.count.fetch_add(1, AcqRel) == parties - 1 {
            this.sense.store(*member, Release);
            this.count.store(0, Relaxed);
            return true;
        }
        while this.sense.load(Acquire) != *member {
            P::pause();
        }
        false
    }
}

twin! {
    /// `c-block` that wakes only those it has seen asleep.
    ForgetsSleepers, [count sense sleepers],
    |this, parties, member| {
        *member = 1 - *member;
        if this.count.fetch_add(1, AcqRel) == parties - 1 {
            this.count.store(0, Relaxed);
            let sleepers = this.sleepers.swap(0, AcqRel);
            this.sense.store(*member, Release);
            if sleepers > 0 {
                P::wake(&this.sense, u32::MAX);
            }
            return true;
        }
        while this.sense.load(Acquire) != *member {
            this.sleepers.fetch_add(1, AcqRel);
            P::wait(&this.sense, 1 - *member, None);
        }
        false
    }
}

twin! {
    /// `c-spin` whose last two both take themselves for the serial one.
    TwoSerial, [count sense],
    |this, parties, member| {
        *member = 1 - *member;
        let arrivals = this.count.fetch_add(1, AcqRel) + 1;
        if arrivals == parties {
            this.count.store(0, Relaxed);
            this.sense.store(*member, Release);
            return true;
        }
        while this.sense.load(Acquire) != *member {
            P::pause();
        }
        arrivals == parties - 1
    }
}

/// `tree` of three whose root does not wait for its last child.
pub struct LeavesAChild<P: Platform> {
    parties: u32,
    children: [P::AtomicU32; 2],
    wakeup: P::AtomicU32,
}

impl<P: Platform> RawBarrier<P> for LeavesAChild<P> {
    type Place = ();
    type Member = u32;

    fn new(parties: u32) -> Self {
        assert_eq!(parties, 3);
        Self { parties, children: [Atomic::new(0), Atomic::new(0)], wakeup: Atomic::new(0) }
    }
    fn places(_: u32) -> usize {
        0
    }
    unsafe fn wait(&self, _: &[()], index: u32, episode: &mut u32) -> bool {
        let until = |flag: &P::AtomicU32, episode| {
            while flag.load(Acquire) < episode {
                P::pause();
            }
        };
        *episode += 1;
        if index == 0 {
            self.children[..self.parties as usize - 2].iter().for_each(|child| until(child, *episode));
            self.wakeup.store(*episode, Release);
        } else {
            self.children[index as usize - 1].store(*episode, Release);
            until(&self.wakeup, *episode);
        }
        index == 0
    }
}

/// `c-sched` as figure 10 of TR 1994 prints it: one thread fewer blocks than units are put into the
/// semaphore.
pub struct CSchedAsPrinted<P: Platform> {
    parties: u32,
    count: P::AtomicU32,
    sense: P::AtomicU32,
    wakeup: [P::AtomicU32; 2],
}

impl<P: Platform> RawBarrier<P> for CSchedAsPrinted<P> {
    type Place = ();
    type Member = u32;

    fn new(parties: u32) -> Self {
        let zero = || Atomic::new(0);
        Self { parties, count: zero(), sense: zero(), wakeup: [zero(), zero()] }
    }
    fn places(_: u32) -> usize {
        0
    }
    unsafe fn wait(&self, _: &[()], _: u32, sense: &mut u32) -> bool {
        *sense = 1 - *sense;
        let blocks = self.parties.saturating_sub(P::processors());
        let wakeup = &self.wakeup[*sense as usize];
        let count = self.count.fetch_add(1, AcqRel);
        if count + 1 == self.parties {
            self.count.store(0, Relaxed);
            self.sense.store(*sense, Release);
            wakeup.fetch_add(blocks, Release);
            P::wake(wakeup, blocks);
            return true;
        }
        if count + 1 >= blocks {
            while self.sense.load(Acquire) != *sense {
                P::pause();
            }
        } else {
            let mut units = wakeup.load(Relaxed);
            loop {
                if units == 0 {
                    P::wait(wakeup, 0, None);
                    units = wakeup.load(Relaxed);
                } else {
                    match wakeup.compare_exchange(units, units - 1, Acquire, Relaxed) {
                        Ok(_) => break,
                        Err(now) => units = now,
                    }
                }
            }
        }
        false
    }
}

/// `b-wakeful` with nodes, whose leaving parties arrive past them.
pub struct LeavesPastNodes<P: Platform, const NODES: usize> {
    barrier: BWakeful<P>,
    nodes: Vec<BWakefulNode<P>>,
}

impl<P: Platform, const NODES: usize> RawBarrier<P> for LeavesPastNodes<P, NODES> {
    type Place = ();
    type Member = ();

    fn new(parties: u32) -> Self {
        Self { barrier: BWakeful::new(parties), nodes: (0..NODES).map(|_| BWakefulNode::default()).collect() }
    }
    fn places(_: u32) -> usize {
        0
    }
    unsafe fn wait(&self, _: &[()], _: u32, _: &mut ()) -> bool {
        self.barrier.with(&self.nodes).wait()
    }
}

impl<P: Platform, const NODES: usize> RawBarrierDynamic<P> for LeavesPastNodes<P, NODES> {
    fn join(&self) -> bool {
        self.barrier.join()
    }
    fn arrive_and_drop(&self) {
        self.barrier.arrive_and_drop();
    }
}

/// `b-wakeful`, drained, whose last one out wakes nobody.
pub struct LeavesSilently<P: Platform> {
    barrier: BWakeful<P>,
    inside: P::AtomicU32,
}

impl<P: Platform> RawBarrier<P> for LeavesSilently<P> {
    type Place = ();
    type Member = ();

    fn new(parties: u32) -> Self {
        Self { barrier: BWakeful::new(parties), inside: Atomic::new(0) }
    }
    fn places(_: u32) -> usize {
        0
    }
    unsafe fn wait(&self, _: &[()], _: u32, _: &mut ()) -> bool {
        self.inside.fetch_add(1, Relaxed);
        let serial = self.barrier.wait();
        self.inside.fetch_sub(1, Release);
        serial
    }
}

impl<P: Platform> RawBarrierDrained<P> for LeavesSilently<P> {
    fn drain(&self) {
        loop {
            match self.inside.load(Acquire) {
                0 => return,
                inside => P::wait(&self.inside, inside, None),
            };
        }
    }
}

/// `Seated` whose members take no lock: a thread sits down where another one is on its way out.
pub struct SeatsUnlocked<P: Platform, B: RawBarrier<P, Place = ()>> {
    barrier: B,
    members: [UnsafeCell<B::Member>; 2],
    next: P::AtomicU32,
}

// SAFETY: it is not safe, which is to be found. The members are numbers, and no part of loom's.
unsafe impl<P: Platform, B: RawBarrier<P, Place = ()>> Sync for SeatsUnlocked<P, B> {}

impl<P: Platform, B: RawBarrier<P, Place = ()>> RawBarrier<P> for SeatsUnlocked<P, B> {
    type Place = ();
    type Member = ();

    fn new(parties: u32) -> Self {
        assert_eq!(parties, 2);
        Self { barrier: B::new(parties), members: Default::default(), next: Atomic::new(0) }
    }
    fn places(_: u32) -> usize {
        0
    }
    unsafe fn wait(&self, _: &[()], _: u32, _: &mut ()) -> bool {
        let index = self.next.fetch_add(1, Relaxed) % 2;
        // SAFETY: as above.
        unsafe { self.barrier.wait(&[], index, &mut *self.members[index as usize].get()) }
    }
}

impl<P: Platform, B: RawBarrier<P, Place = ()>> RawBarrierDynamic<P> for SeatsUnlocked<P, B> {
    fn join(&self) -> bool {
        false
    }
    fn arrive_and_drop(&self) {}
}
