// SPDX-License-Identifier: MIT OR Apache-2.0
//! Actors: each is a fiber with a mailbox, and handles one message a turn. The policy knows what the package
//! cannot know: how many messages wait for whom. It gives the turn to the actor with the fullest mailbox, so
//! no mailbox grows. First come, first served lets that of a busy actor grow with the program's length.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use wakeful::thread::policy::{Fifo, Policy, Queue, Ready};
use wakeful::thread::sync::Channel;
use wakeful::thread::{Activations, Builder, Config, JoinHandle, Runtime, yield_now};

const ACTORS: usize = 5;
const MESSAGES: u32 = 1_000;

/// Messages that wait for each actor. An actor's rank is its number.
#[derive(Debug)]
struct Waiting([AtomicU32; ACTORS]);

static WAITING: Waiting = Waiting([const { AtomicU32::new(0) }; ACTORS]);

struct Turns(VecDeque<Ready>);

impl Policy for Waiting {
    fn queue(&self) -> Box<dyn Queue> {
        Box::new(Turns(VecDeque::new()))
    }
}

impl Queue for Turns {
    fn push(&mut self, actor: Ready) {
        self.0.push_back(actor);
    }
    fn pop(&mut self) -> Option<Ready> {
        let waiting = |actor: &Ready| WAITING.0[actor.rank() as usize].load(Relaxed);
        // Of equal ones the last, so look from the other end.
        let (at, _) = self.0.iter().enumerate().rev().max_by_key(|(_, actor)| waiting(actor))?;
        self.0.remove(at)
    }
}

struct Mailbox {
    actor: usize,
    messages: Channel<u32>,
    most: AtomicU32,
}

impl Mailbox {
    fn new(actor: usize) -> Arc<Self> {
        Arc::new(Self { actor, messages: Channel::new(usize::MAX), most: AtomicU32::new(0) })
    }

    fn send(&self, message: u32) {
        let waiting = WAITING.0[self.actor].fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(waiting, Relaxed);
        self.messages.send(message).expect("it is open");
    }
}

/// Starts an actor. It ends when its mailbox is closed and empty.
fn actor(mailbox: &Arc<Mailbox>, mut handle: impl FnMut(u32) + Send + 'static) -> JoinHandle<()> {
    let (rank, mailbox) = (mailbox.actor as u32, mailbox.clone());
    let acts = move || {
        while let Some(message) = mailbox.messages.receive() {
            WAITING.0[mailbox.actor].fetch_sub(1, Relaxed);
            handle(message);
            yield_now();
        }
    };
    Builder::new().rank(rank).spawn(acts).expect("it starts")
}

/// Four actors count, and send each number to a fifth. Returns the most that waited for that one.
fn fullest(policy: &'static dyn Policy) -> u32 {
    // So that a block in the kernel changes no order.
    let activations = Activations::None;
    let config = Config { processors: Some(1), policy: Some(policy), activations, ..Config::default() };
    Runtime::start(config).expect("a runtime starts").run(|| {
        let sum = Arc::new(AtomicU32::new(0));
        let (adds, last) = (sum.clone(), Mailbox::new(ACTORS - 1));
        let sink = actor(&last, move |message| _ = adds.fetch_add(message, Relaxed));
        let counters: Vec<_> = (0..ACTORS - 1)
            .map(|number| {
                let (mailbox, last) = (Mailbox::new(number), last.clone());
                // Each message but the last makes the next one.
                let again = Arc::downgrade(&mailbox);
                let counts = actor(&mailbox, move |message| {
                    last.send(message);
                    let mailbox = again.upgrade().expect("it handles a message");
                    if message < MESSAGES { mailbox.send(message + 1) } else { mailbox.messages.close() }
                });
                mailbox.send(1);
                counts
            })
            .collect();
        counters.into_iter().for_each(|counts| counts.join().expect("it does not panic"));
        last.messages.close();
        sink.join().expect("it does not panic");
        assert_eq!(sum.load(Relaxed), (ACTORS as u32 - 1) * MESSAGES * (MESSAGES + 1) / 2);
        last.most.load(Relaxed)
    })
}

pub fn main() {
    let (knowing, ignorant) = (fullest(&WAITING), fullest(&Fifo));
    println!(
        "messages that waited for one actor: {knowing} fullest first, {ignorant} first come, first served"
    );
    assert!(knowing <= ACTORS as u32);
    assert!(ignorant > MESSAGES);
}
