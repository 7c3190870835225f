// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flat-combining`: clients publish requests in an array, and whoever gets the lock runs all it finds.
//!
//! Choose it to compare with, or where requests are few and long: a combiner looks at each record that was
//! ever used. Hendler, Incze, Shavit, Tzafrir, "Flat combining and the synchronization-parallelism
//! tradeoff", SPAA 2010, section 2. Changed: records are an array, not a list that ages, so that nothing is
//! allocated. Clients sleep, so the lock says whether one has fallen asleep (NEWS). A combiner that has
//! done its share hands the lock to a client, which the paper leaves to chance.
//!
//! # State
//!
//! `word`: FREE 0, HELD 1, NEWS 3 (held, and a client went to sleep). `used`: records that were ever used.
//! A record has a seat, a request and an `answer`: waiting, asleep, DONE (or unused), LEAD (its client
//! has the lock, and its request has not been run).
//!
//! # Invariants
//!
//! - I1. Only the thread that has the lock runs sections.
//! - I2. A client that sleeps unanswered has set NEWS since it marked itself, and the lock has been held
//!   since.
//! - I3. Who sets the lock FREE has looked at all records after the last NEWS that it saw.
//!
//! # Protocol
//!
//! F0. If the lock is FREE, take it, run one's own section, then F4. F1. Else sit, write the request, ask.
//! F2. If the lock is FREE, take it (L1). F3. Else look until there is an answer or the lock is FREE. Before
//! sleep: mark oneself asleep, and change HELD to NEWS, or take the lock if it is FREE. L1. With the lock,
//! taken or by LEAD: run one's own request, unless it is DONE, then F4. F4. Run each request that is found,
//! and answer DONE. H1. After so many, answer LEAD to the next one found, and keep the lock for it. R1. HELD
//! to FREE. R2. At NEWS, back to HELD, and F4 again.
//!
//! # Memory order
//!
//! F1 release (`ask`) -> F4 acquire (`is_asked`) publishes the request. R1 release -> F0 and F2 acquire, and
//! the answer's release -> acquire, publish what sections wrote. F3 release (NEWS) -> R2 acquire publishes
//! the request and `used`.
//!
//! # Under the scheduler
//!
//! Combiner preempted: clients see it and sleep. Next combiner preempted: who finds the lock FREE takes it;
//! after H1 all wait for the one chosen, at most once in so many requests. More threads than processors:
//! most requests cost a sleep and a wake-up. Hint stale: a spin as long as a sleep, or a sleep. Killed while
//! combining: lost. A copy made by fork while the lock was held is lost in the child.
//!
//! # Fairness and space
//!
//! Each round of F4 runs all requests that it finds, so a client waits for one request of each other client,
//! and for the lock to be taken. A line a record, and three more.
//!
//! # Rejected
//!
//! The paper's list with ages: it needs memory for each thread, and a look at its clock. NEWS at each
//! request: a write to the lock's line that all clients share.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; also with fewer records than clients. A twin that sets FREE
//! over NEWS is caught, one that hands the lock to nobody after its share (H1), one that answers before it
//! has run the section, and one that runs a request twice.

use core::array;
use platform::{Atomic, Ordering::*, Platform, ThreadId};

use super::{RawDelegate, Request, Seat, Seated, Section, lead, most_requests, sit, stand};
use crate::wait::answer::{self, Answer, DONE};
use crate::wait::look;

const FREE: u32 = 0;
const HELD: u32 = 1;
const NEWS: u32 = 3;

/// The client has the lock.
const LEAD: u32 = DONE + 1;

#[repr(align(64))]
struct Record<P: Platform> {
    seat: Seat<P>,
    answer: Answer<P>,
    request: Request<P>,
}

impl<P: Platform> Seated<P> for Record<P> {
    fn seat(&self) -> &Seat<P> {
        &self.seat
    }
}

#[repr(align(64))]
struct Line<A>(A);

/// See the head of this file.
pub struct FlatCombining<P: Platform, const RECORDS: usize = 32> {
    word: Line<P::AtomicU32>,
    /// The combiner's thread. HINT.
    combiner: Line<P::AtomicU32>,
    used: P::AtomicU32,
    /// See [`crate::wait::vain`].
    vain: P::AtomicU32,
    records: [Record<P>; RECORDS],
}

impl<P: Platform, const RECORDS: usize> RawDelegate<P> for FlatCombining<P, RECORDS> {
    fn new() -> Self {
        Self {
            word: Line(P::AtomicU32::new(FREE)),
            combiner: Line(P::AtomicU32::new(0)),
            used: P::AtomicU32::new(0),
            vain: P::AtomicU32::new(0),
            records: array::from_fn(|_| Record {
                seat: Seat::new(),
                answer: Answer::given(DONE),
                request: Request::none(),
            }),
        }
    }

    #[inline]
    unsafe fn run(&self, section: Section, context: *mut ()) {
        // F0.
        if !self.try_take() {
            return self.ask(section, context);
        }
        lead::<P>(&self.combiner.0);
        // SAFETY: as the caller promises; nobody else runs sections.
        unsafe { section(context) };
        self.combine();
    }
}

impl<P: Platform, const RECORDS: usize> FlatCombining<P, RECORDS> {
    /// F1.
    #[cold]
    #[inline(never)]
    fn ask(&self, section: Section, context: *mut ()) {
        let number = sit(&self.records);
        self.use_up_to(number as u32 + 1);
        let record = &self.records[number];
        record.request.set(section, context);
        record.answer.ask();
        if self.try_take() {
            self.lead(record);
        } else {
            self.wait(record);
        }
        stand(&self.records, number);
    }

    fn use_up_to(&self, count: u32) {
        let mut used = self.used.load(Relaxed);
        while used < count {
            match self.used.compare_exchange(used, count, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => used = now,
            }
        }
    }

    /// F2.
    fn try_take(&self) -> bool {
        // ORDER: Acquire (F2), pairs with R1.
        self.word.0.load(Relaxed) == FREE
            && self.word.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// F3 and L1.
    fn wait(&self, record: &Record<P>) {
        look::begin::<P>();
        loop {
            answer::watch::<P>(&self.vain, || {
                let waits = record.answer.get().is_none() && self.word.0.load(Relaxed) != FREE;
                waits.then(|| ThreadId(self.combiner.0.load(Relaxed)))
            });
            match record.answer.get() {
                Some(LEAD) => return self.lead(record),
                Some(_) => return,
                None if self.try_take() => return self.lead(record),
                None if record.answer.fall_asleep() && self.tell_news() => record.answer.sleep(),
                None => {}
            }
        }
    }

    /// F3. False if the lock is free.
    fn tell_news(&self) -> bool {
        let mut word = self.word.0.load(Relaxed);
        // A write of our own, also where there are NEWS: that of another client does not publish ours.
        while word != FREE {
            // ORDER: Release, pairs with R2; publishes that we sleep, our request, and `used`.
            match self.word.0.compare_exchange_weak(word, NEWS, Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// L1: the client of this record has the lock.
    fn lead(&self, record: &Record<P>) {
        lead::<P>(&self.combiner.0);
        if record.answer.get() != Some(DONE) {
            // SAFETY: our own request, which nobody has run.
            unsafe { record.request.run() };
            // Nobody but us waits for it, and we are awake.
            record.answer.word().store(DONE, Relaxed);
        }
        self.combine();
    }

    /// F4, H1, R1 and R2.
    fn combine(&self) {
        let mut left = most_requests::<P>();
        loop {
            let used = self.used.load(Relaxed) as usize;
            for record in self.records.iter().take(used).filter(|record| record.answer.is_asked()) {
                // SAFETY: records live as long as the lock, and this one's client waits.
                unsafe {
                    if left == 0 {
                        return Answer::give(&raw const record.answer, LEAD);
                    }
                    record.request.run();
                    Answer::give(&raw const record.answer, DONE);
                }
                left -= 1;
            }
            // ORDER: Release (R1), pairs with F2; publishes what sections wrote.
            if self.word.0.compare_exchange(HELD, FREE, Release, Relaxed).is_ok() {
                return;
            }
            // ORDER: Acquire (R2), pairs with F3: the records of those who went to sleep are seen.
            self.word.0.swap(HELD, Acquire);
        }
    }
}
