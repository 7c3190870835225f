// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who gets which processors, and why.
//!
//! The high level of the two-level scheduling of Uemura and Kan (*A Two-level Processor Scheduling Scheme
//! for Shared-memory Multiprocessors*, Mitsubishi Electric): processors are divided into partitions, one
//! for each application that asked, and the *default partition* for all others. What an application does
//! with its processors is its own and the kernel's business.
//!
//! Everything here is a function of what it is told: no clock, no thread, no system call. [`System::apply`]
//! takes an [`Event`] and the time and answers with the [`Move`]s that follow, each with its reason; the
//! server carries them out.
//!
//! The rules, which `tests/properties.rs` states as properties, each shown able to fail:
//!
//! 1. The default partition has at least `floor` processors, 1 or more, as long as that many are online;
//!    also when one goes offline.
//! 2. Allocation is *semi-dynamic*: an application loses a processor only if it said that it can spare it,
//!    holds more than it asked for, or is gone; or if the processor is. (And for rule 1, when nothing else
//!    is left. And by a lease, where the administrator wants that: [`Lease`].)
//! 3. A hint costs nothing while nobody asks: a processor leaves an application for somebody who waits for
//!    it, and for nothing else.
//! 4. Requests are *prioritized*: a request that waits comes before lower ones, and before later ones of
//!    its priority. What is free may be less than its least. Then others may have that: [`PASSES`] times,
//!    after which all that becomes free is kept for it. (A request whose least is more than all
//!    applications can have now, because processors went offline, is passed over until they are back.)
//! 5. Few moves: nobody is given one processor for another, and a request takes no more than it lacks.
//! 6. Near processors: the rest of a core that one has, then the rest of the node, then whole free cores of
//!    the node that fits best.
//! 7. Who has nothing is given at least its *least*, or nothing: then it runs in the default partition and
//!    waits. Nobody is given more than its *most*.
//! 8. Nobody waits without need: who waits lacks more than is free, hinted and in excess, or is behind one
//!    for whom that is kept (rule 4).

mod lease;
mod machine;
mod place;
mod system;
mod worth;

pub use lease::Lease;
pub use machine::{Machine, Processor};
pub use system::{Adopted, Application, Event, Move, Owner, PASSES, Refusal, System, Waiting, Why};
pub use worth::{STEPS, Seen};

/// What stands for an application; the caller's choice.
pub type Id = u64;

/// How many processors are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// As many as the application can use well.
    Numbers {
        /// With fewer, none.
        least: u32,
        /// It waits until it has them.
        wanted: u32,
        /// It takes them too while nobody else asks.
        most: u32,
    },
    /// The server chooses: an equal share among all that asked of what the others can use, at least one; more
    /// while nobody else asks. Who can use less, by its hint, its numbers or what it was [`Seen`] to use,
    /// leaves the rest to the others.
    Choose {
        /// But never more than these, of which there is at least one; `u32::MAX`: as many as there are.
        most: u32,
    },
}

/// A prioritized request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Higher ones are served first.
    pub priority: u32,
    /// How many processors.
    pub count: Count,
}

/// What is left to choose: what an application must give up that neither hinted nor holds too much.
pub trait Policy {
    /// How many processors of `holder` the waiting `asker` may have at `now`; those hinted or in excess
    /// come on top.
    fn claim(&self, holder: &Application, asker: &Application, now: u64) -> u32;

    /// When [`Self::claim`] on this holder may come to say something else.
    fn due(&self, holder: &Application) -> Option<u64>;
}

/// The paper's: none. Who waits, waits for a hint.
#[derive(Clone, Copy, Debug, Default)]
pub struct SemiDynamic;

impl Policy for SemiDynamic {
    fn claim(&self, _: &Application, _: &Application, _: u64) -> u32 {
        0
    }

    fn due(&self, _: &Application) -> Option<u64> {
        None
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn claim(&self, holder: &Application, asker: &Application, now: u64) -> u32 {
        (**self).claim(holder, asker, now)
    }

    fn due(&self, holder: &Application) -> Option<u64> {
        (**self).due(holder)
    }
}
