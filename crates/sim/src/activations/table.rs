// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table I of the paper: Null Fork and Signal-Wait, on one processor.
//!
//! Instructions cost nothing here but where they are counted as procedure calls. So the fibers' times are
//! the calls of the path, by the machine's price for one, and the shared words that the path touches.

use std::cell::Cell;
use std::ptr::null_mut;

use fiber::deque::Deque;
use fiber::seats::Seats;
use fiber::token::Token;
use platform::{Atomic, Ordering::*, Platform};

use super::task::Task;
use crate::platform::{Sim, fail, passed};
use crate::upcall;
use crate::word::Word;
use crate::world::World;

/// One carrier of the fibers' runtime, and who stands sentinel beside it.
struct Alone {
    seats: Seats<Sim>,
    new: Deque<Sim, Task, 256>,
    tokens: [Token<Sim>; 2],
    turn: Cell<u32>,
}

/// Fibers, while so many kernel threads stand ready for an upcall.
pub(super) fn fibers(world: &mut World, posts: u32, rounds: u64, forks: bool) {
    let alone = world.place(Alone {
        seats: Seats::new(1, 1 + posts as usize),
        new: Deque::new(),
        tokens: [Token::new(), Token::new()],
        turn: Cell::new(0),
    });
    let app = world.add_app();
    world.spawn(app, move || {
        let it = alone.get();
        it.seats.seat_newcomer(0);
        upcall::listen(upcall::me(), true);
        for _ in 0..rounds {
            if forks {
                it.null_fork()
            } else {
                it.signal_wait()
            }
            passed(0.0);
        }
        upcall::exit();
    });
    for me in 1..=posts {
        world.spawn(app, move || {
            let (bed, asleep) = alone.get().seats.bed(me);
            alone.get().seats.lie_down(me);
            loop {
                upcall::stand(bed, asleep, upcall::deadline(1_000_000_000));
            }
        });
    }
}

impl Alone {
    /// Spawn, and a join that runs the new fiber on top of its caller.
    fn null_fork(&self) {
        // spawn: the record, the deque, the invitation.
        upcall::calls(1);
        let fiber = std::ptr::from_ref(&self.turn).cast_mut().cast::<Task>();
        // SAFETY: this is the owner's thread. Nobody looks into the fiber.
        if !unsafe { self.new.push(fiber) } {
            fail("one fiber fills the deque".into());
        }
        let _ = self.seats.invite(false);
        // join: is it the newest, and does nobody want the seat?
        upcall::calls(1);
        // SAFETY: as above.
        let found = if self.seats.wanted() { None } else { unsafe { self.new.pop() } };
        if found.unwrap_or(null_mut()) != fiber {
            fail("the new fiber is gone".into());
        }
        // The switch to it, the null procedure, and the end, which leads back.
        upcall::calls(3);
    }

    /// One of two fibers unparks the other, and parks; its carrier takes the other.
    fn signal_wait(&self) {
        let me = self.turn.get() as usize % 2;
        let (mine, other) = (&self.tokens[me], &self.tokens[1 - me]);
        // unpark
        upcall::calls(1);
        let was_parked = other.unpark();
        // park
        upcall::calls(1);
        if !mine.take_unpark() && !mine.take() {
            // The switch to the carrier, which settles it, looks at its seat, and goes on with the other.
            upcall::calls(1);
            let _given_meanwhile = !mine.settle();
            if !self.seats.holds(0) || self.seats.wanted() {
                fail("the seat is gone".into());
            }
            // The carrier's next fiber, and the switch to it: it takes its token, if it was given one (G2).
            upcall::calls(2);
            if !was_parked && !other.take() || !other.take_unpark() {
                fail("a token is lost".into());
            }
        }
        self.turn.set(self.turn.get() + 1);
    }
}

/// A word and its waiters, as kernel threads have it.
fn wait(word: &Word<u32>) {
    while word.swap(0, Acquire) == 0 {
        Sim::wait(word, 0, None);
    }
}

fn signal(word: &Word<u32>) {
    word.store(1, Release);
    Sim::wake(word, 1);
}

/// Kernel threads. The new one is made, starts, calls the null procedure and ends.
pub(super) fn fork(world: &mut World, rounds: u64) {
    let words = world.place([Word::holding(0), Word::holding(0)]);
    let app = world.add_app();
    world.spawn(app, move || {
        for _ in 0..rounds {
            upcall::make_thread();
            signal(&words.get()[0]);
            wait(&words.get()[1]);
            passed(0.0);
        }
        upcall::exit();
    });
    world.spawn(app, move || {
        loop {
            wait(&words.get()[0]);
            // The thread's body, which calls the null procedure.
            upcall::calls(2);
            signal(&words.get()[1]);
        }
    });
}

/// Two kernel threads signal each other and wait.
pub(super) fn signal_wait(world: &mut World, rounds: u64) {
    let words = world.place([Word::holding(0), Word::holding(0)]);
    let app = world.add_app();
    for me in 0..2 {
        world.spawn(app, move || {
            if me == 1 {
                wait(&words.get()[1]);
            }
            for _ in 0..rounds.div_ceil(2) {
                signal(&words.get()[1 - me]);
                wait(&words.get()[me]);
                passed(0.0);
            }
            upcall::exit();
        });
    }
}
