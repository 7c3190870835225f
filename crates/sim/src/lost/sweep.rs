// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the log to the sums: moment by moment, what each thread does, and for what it waits.

use std::collections::HashMap;

use super::log::{Entry, Mark};
use super::{Lost, Waited};
use crate::engine::Engine;
use crate::memory::Time;
use crate::thread::{FOREIGN, NOBODY, State};
use crate::tree::NEVER;

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    /// A processor changes to it; so much of the switch is left, and then the cache is filled, until then.
    Starting {
        switch: Time,
        until: Time,
    },
    Running,
    /// It lost its processor.
    Lost,
    /// It gave it up.
    Yielded,
    Asleep,
    Done,
}

impl Phase {
    /// Wants a processor, and does not run on one.
    fn is_away(self) -> bool {
        matches!(self, Self::Starting { .. } | Self::Lost | Self::Yielded)
    }
}

/// Why somebody waits.
#[derive(Clone, Copy, PartialEq)]
enum Why {
    HolderPreempted,
    WaiterPreempted,
    HolderRuns,
    HandOver,
}

impl Waited {
    fn add(&mut self, why: Why, time: Time) {
        *match why {
            Why::HolderPreempted => &mut self.holder_preempted,
            Why::WaiterPreempted => &mut self.waiter_preempted,
            Why::HolderRuns => &mut self.holder_runs,
            Why::HandOver => &mut self.hand_over,
        } += time;
    }
}

#[derive(Clone)]
struct Member {
    phase: Phase,
    /// The lock or barrier that it waits for.
    waits: Option<usize>,
    /// On a processor, outside of waits.
    outside: Time,
}

/// A part of a hand-over.
struct Piece {
    time: Time,
    /// Who wants a processor and has none.
    away: Vec<bool>,
    /// Somebody lost it while giving the lock back.
    giver_away: bool,
    /// Waiters on a processor, and asleep.
    spun: u32,
    slept: u32,
}

/// A thread that does not take part.
const NEVER_COMES: u64 = u64::MAX;

/// A lock, or a barrier.
#[derive(Default)]
struct Place {
    holders: Vec<usize>,
    giving: Vec<usize>,
    /// Nobody has it.
    pieces: Vec<Piece>,
    /// Of a barrier: how often each thread has come, or [`NEVER_COMES`]. Empty for a lock.
    turns: Vec<u64>,
}

struct Sweep {
    lost: Lost,
    members: Vec<Member>,
    places: Vec<Place>,
    /// By the address.
    numbers: HashMap<usize, usize>,
}

impl Engine {
    /// Something has happened to a thread.
    pub(crate) fn mark(&mut self, thread: usize, at: Time, mark: Mark) {
        if let Some(log) = &mut self.tally.log
            && self.threads[thread].app != FOREIGN
        {
            log.add(thread, at, mark);
        }
    }

    /// What the log says, if there is one.
    pub(crate) fn lost(&self) -> Option<Lost> {
        let log = self.tally.log.as_ref()?;
        let end = self.tally.end;
        let mut order: Vec<&Entry> = log.entries.iter().filter(|entry| entry.at <= end).collect();
        order.sort_by_key(|entry| entry.at);
        let phase =
            |thread: &crate::thread::Thread| if thread.app == FOREIGN { Phase::Done } else { Phase::Lost };
        let members =
            self.threads.iter().map(|thread| Member { phase: phase(thread), waits: None, outside: 0 });
        let (members, lost) = (members.collect(), Lost::default());
        let mut sweep = Sweep { lost, members, places: Vec::new(), numbers: HashMap::new() };
        for entry in &order {
            if let Mark::Comes(barrier) = entry.mark {
                // All of them are awaited from the beginning.
                let (place, all) = (sweep.number(barrier), self.threads.len());
                sweep.places[place].turns.resize(all, NEVER_COMES);
                sweep.places[place].turns[entry.thread] = 0;
            }
        }
        let mut now = 0;
        for entry in order {
            sweep.pass(entry.at - now);
            now = entry.at;
            sweep.change(entry);
        }
        sweep.pass(end - now);
        Some(sweep.close(self))
    }

    /// Work that was counted when it began, and was not done.
    fn undone(&self, number: usize) -> Time {
        let thread = &self.threads[number];
        if self.tally.over.is_some() || thread.state == State::Done {
            return 0;
        }
        let on = self.processors.iter().find(|it| it.thread == number && it.thread != NOBODY);
        match on {
            Some(it) if it.resume != NEVER => it.resume.saturating_sub(self.tally.end),
            Some(_) => 0,
            None => thread.owed,
        }
    }
}

impl Sweep {
    fn number(&mut self, address: usize) -> usize {
        let next = self.places.len();
        let number = *self.numbers.entry(address).or_insert(next);
        if number == next {
            self.places.push(Place::default());
        }
        number
    }

    fn close(mut self, engine: &Engine) -> Lost {
        for place in 0..self.places.len() {
            self.settle(place, None);
        }
        for (number, member) in self.members.iter().enumerate() {
            let work = engine.threads[number].work.saturating_sub(engine.undone(number)).min(member.outside);
            self.lost.work += work;
            self.lost.rest += member.outside - work;
        }
        self.lost
    }

    fn change(&mut self, entry: &Entry) {
        let Entry { at, thread, mark } = *entry;
        let phase = &mut self.members[thread].phase;
        match mark {
            Mark::Starts { switch, refill } => {
                *phase = Phase::Starting { switch, until: at + switch + refill };
            }
            // Not of an earlier time on a processor, which ended before it had begun.
            Mark::Runs => match *phase {
                Phase::Starting { until, .. } if until == at => *phase = Phase::Running,
                _ => {}
            },
            Mark::Loses => *phase = Phase::Lost,
            Mark::Yields => *phase = Phase::Yielded,
            Mark::Sleeps => *phase = Phase::Asleep,
            Mark::Ends => *phase = Phase::Done,
            Mark::Wants(lock) => {
                let place = self.number(lock);
                self.members[thread].waits = Some(place);
            }
            Mark::Has(lock) => {
                let place = self.number(lock);
                self.members[thread].waits = None;
                self.settle(place, Some(thread));
                self.places[place].holders.push(thread);
            }
            Mark::Frees(lock) => {
                let place = self.number(lock);
                self.places[place].holders.retain(|&holder| holder != thread);
                self.places[place].giving.push(thread);
            }
            Mark::Freed(lock) => {
                let place = self.number(lock);
                self.places[place].giving.retain(|&giver| giver != thread);
            }
            Mark::Comes(barrier) => {
                let place = self.number(barrier);
                self.places[place].turns[thread] += 1;
                self.members[thread].waits = Some(place);
            }
            Mark::Goes(_) => self.members[thread].waits = None,
        }
    }

    /// So much time passes.
    fn pass(&mut self, time: Time) {
        if time == 0 {
            return;
        }
        let mut open: Vec<(usize, u32, u32)> = Vec::new();
        let mut known: Option<((usize, u64), Option<Why>)> = None;
        for number in 0..self.members.len() {
            let Member { phase, waits, .. } = self.members[number];
            if phase == Phase::Done {
                continue;
            }
            self.lost.whole += time;
            let asleep = match phase {
                Phase::Starting { switch, .. } => {
                    self.starts(number, switch, time);
                    continue;
                }
                Phase::Lost | Phase::Yielded => {
                    self.lost.away += time;
                    continue;
                }
                Phase::Asleep => true,
                _ => false,
            };
            let Some(place) = waits else {
                let sum = if asleep { &mut self.lost.asleep } else { &mut self.members[number].outside };
                *sum += time;
                continue;
            };
            // The same for all who have come as often.
            let key = (place, self.places[place].turns.get(number).copied().unwrap_or(0));
            let why = match known {
                Some((last, why)) if last == key => why,
                _ => self.why(place, number),
            };
            known = Some((key, why));
            match why {
                Some(why) if asleep => self.lost.slept.add(why, time),
                Some(why) => self.lost.spun.add(why, time),
                None => {
                    let (spun, slept) = (u32::from(!asleep), u32::from(asleep));
                    match open.last_mut() {
                        Some((last, all, more)) if *last == place => {
                            (*all, *more) = (*all + spun, *more + slept)
                        }
                        _ => open.push((place, spun, slept)),
                    }
                }
            }
        }
        for (place, spun, slept) in open {
            let lost = |&giver: &usize| self.members[giver].phase == Phase::Lost;
            let giver_away = self.places[place].giving.iter().any(lost);
            let away = self.members.iter().map(|member| member.phase.is_away()).collect();
            self.places[place].pieces.push(Piece { time, away, giver_away, spun, slept });
        }
    }

    /// A processor changes to the thread.
    fn starts(&mut self, number: usize, switch: Time, time: Time) {
        let now = switch.min(time);
        self.lost.switches += now;
        self.lost.refills += time - now;
        if let Phase::Starting { switch, .. } = &mut self.members[number].phase {
            *switch -= now;
        }
    }

    /// Why a thread waits there; `None` if that is known when somebody has the lock.
    fn why(&self, place: usize, number: usize) -> Option<Why> {
        let Place { holders, turns, .. } = &self.places[place];
        let away = |other: usize| self.members[other].phase.is_away();
        let Some(&turn) = turns.get(number) else {
            return match holders.iter().any(|&holder| away(holder)) {
                true => Some(Why::HolderPreempted),
                false => (!holders.is_empty()).then_some(Why::HolderRuns),
            };
        };
        let (mut absent, mut absent_away, mut here_away) = (false, false, false);
        for (other, &others) in turns.iter().enumerate() {
            let is_away = others <= turn && away(other);
            absent |= others < turn;
            absent_away |= others < turn && is_away;
            here_away |= others == turn && is_away && self.members[other].waits == Some(place);
        }
        Some(match (absent, absent_away, here_away) {
            (true, true, _) => Why::HolderPreempted,
            (true, false, _) => Why::HolderRuns,
            (false, _, true) => Why::WaiterPreempted,
            (false, _, false) => Why::HandOver,
        })
    }

    /// The lock goes to this thread, or the simulation is over.
    fn settle(&mut self, place: usize, next: Option<usize>) {
        for Piece { time, away, giver_away, spun, slept } in self.places[place].pieces.drain(..) {
            let why = if giver_away {
                Why::HolderPreempted
            } else if next.is_some_and(|next| away[next]) {
                Why::WaiterPreempted
            } else {
                Why::HandOver
            };
            self.lost.spun.add(why, Time::from(spun) * time);
            self.lost.slept.add(why, Time::from(slept) * time);
        }
    }
}
