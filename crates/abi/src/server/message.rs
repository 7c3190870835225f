// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is asked and answered. How it looks on the wire, `codec.rs` alone knows.

use crate::Processors;

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A partition, please; or another one than there is.
    Join(Demand),
    /// So many processors can be spared.
    Spare(u32),
    /// They can be used again.
    WantBack,
    /// No partition any more.
    Leave,
    /// What is there?
    Status,
    /// An arena, please, which the server's observer fills. Once for each image that the process executes.
    Observe,
}

impl Request {
    /// About this process; 0: the sender.
    pub const fn of(self, process: u32) -> Envelope {
        Envelope { tag: 0, process, request: self }
    }
}

/// A request, and what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Comes back with the answer.
    pub tag: u32,
    /// A process; 0: the sender.
    pub process: u32,
    /// What is asked.
    pub request: Request,
}

impl From<Request> for Envelope {
    /// About the sender.
    fn from(request: Request) -> Self {
        request.of(0)
    }
}

/// How many processors, and how urgently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Higher is served first.
    pub priority: u32,
    /// `None`: the server chooses.
    pub numbers: Option<Numbers>,
}

impl Demand {
    /// So many; three zeros: the server chooses.
    pub const fn new(priority: u32, least: u32, wanted: u32, most: u32) -> Self {
        Self { priority, numbers: Numbers::new(least, wanted, most) }
    }
}

/// Numbers of processors, not all 0. That they are in order, the server checks ([`Refusal::Disordered`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    least: u32,
    wanted: u32,
    most: u32,
}

impl Numbers {
    /// `None` if all are 0.
    pub const fn new(least: u32, wanted: u32, most: u32) -> Option<Self> {
        if least | wanted | most == 0 { None } else { Some(Self { least, wanted, most }) }
    }

    /// Without so many it does not begin.
    pub const fn least(self) -> u32 {
        self.least
    }

    /// So many it asks for.
    pub const fn wanted(self) -> u32 {
        self.wanted
    }

    /// So many it could use.
    pub const fn most(self) -> u32 {
        self.most
    }
}

/// An answer, or news of the sender's partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// That of the request; 0: there was none.
    pub tag: u32,
    /// What is answered.
    pub reply: Reply,
}

/// What the server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The state of a process's partition.
    State(State),
    /// No.
    Refused {
        /// The reason.
        why: Refusal,
        /// The limit, with a reason that speaks of one; else 0.
        limit: u32,
    },
    /// To `Status`: one of the programs.
    Entry(Entry),
    /// To `Status`: the end of the entries.
    Summary(Summary),
    /// The arena.
    Observed {
        /// Whose it is.
        process: u32,
    },
}

/// How a process stands with the server. All zeros: the server does not know it any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The process.
    pub process: u32,
    /// Whose it is.
    pub user: u32,
    /// What it has asked for.
    pub demand: Demand,
    /// How many it has hinted that it can spare.
    pub spare: u32,
    /// Processors that it has.
    pub holds: u32,
    /// Processors that it waits for.
    pub lacks: u32,
    /// Requests that are served before.
    pub behind: u32,
    /// See [`crate::Partition::generation`].
    pub generation: u32,
    /// The processors that it has.
    pub ids: Processors,
}

/// A program that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which, and how it stands.
    pub program: Listed,
    /// HINT: what its threads do, if it is observed; the program could say what it likes.
    pub threads: Option<Threads>,
}

/// Why a program is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// It has asked for a partition.
    Member(State),
    /// It has an arena, and has asked for no partition.
    Observed {
        /// The process.
        process: u32,
        /// Whose it is.
        user: u32,
    },
}

impl Entry {
    /// Which process.
    pub const fn process(&self) -> u32 {
        match self.program {
            Listed::Member(State { process, .. }) | Listed::Observed { process, .. } => process,
        }
    }

    /// Whose process.
    pub const fn user(&self) -> u32 {
        match self.program {
            Listed::Member(State { user, .. }) | Listed::Observed { user, .. } => user,
        }
    }

    /// Its state, if it has asked for a partition.
    pub const fn state(&self) -> Option<&State> {
        match &self.program {
            Listed::Member(state) => Some(state),
            Listed::Observed { .. } => None,
        }
    }
}

/// What the server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What keeps programs on their processors.
    pub enforcement: Enforcement,
    /// The default partition.
    pub default_partition: Processors,
    /// How many programs have asked for a partition.
    pub applications: u32,
    /// Arenas that are being made.
    pub making: u32,
    /// Observed programs that are not listed.
    pub unlisted: u32,
    /// Is there an observer?
    pub observer: bool,
    /// Since the server was started.
    pub counters: Counters,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// Not a message of this version.
    Malformed = 1,
    /// Not 1 <= least <= wanted <= most.
    Disordered = 2,
    /// The limit is what the machine can give.
    TooMany = 3,
    /// The process has asked for no partition.
    Unknown = 4,
    /// The administrator does not let this user ask.
    NotAllowed = 5,
    /// `least` is more than what the administrator lets this user have, which is the limit.
    Share = 6,
    /// The limit is the highest priority that the administrator lets this user have.
    Priority = 7,
    /// Too many connections or applications of this user.
    Crowd = 8,
    /// There is no such process, or it is another user's.
    NoProcess = 9,
    /// The server could not do it; its log says why.
    Failed = 10,
    /// The server has loaded no observer.
    NoObserver = 11,
    /// The process has an arena already.
    Again = 12,
    /// The process is in a control group that the server may not take it from.
    Elsewhere = 13,
    /// No arena is ready; some will be in a few milliseconds.
    Later = 14,
}

from_u32!(
    Refusal: Malformed, Disordered, TooMany, Unknown, NotAllowed, Share, Priority, Crowd, NoProcess,
    NoObserver, Again, Elsewhere, Later; else Failed
);

/// What keeps programs on their processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Enforcement {
    /// Nobody else runs on a partition's processors: cgroup v2's cpuset partitions.
    CgroupV2 = 1,
    /// The same for everybody in the server's control group: cgroup v1's cpusets.
    CgroupV1 = 2,
    /// Affinity masks: who has no partition is not kept away.
    Affinity = 3,
}

// What is unknown promises no more than the weakest.
from_u32!(Enforcement: CgroupV2, CgroupV1; else Affinity);

/// Numbers that have names.
macro_rules! named {
    (
        $(#[$doc:meta])* $type:ident of $number:ty, called $names:ident:
        $($(#[$each:meta])* $field:ident,)+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type {
            $($(#[$each])* pub $field: $number,)+
        }

        #[doc = concat!("The names of what [`", stringify!($type), "`] counts.")]
        pub const $names: [&str; [$(stringify!($field)),+].len()] = [$(stringify!($field)),+];

        impl $type {
            /// In the order of the names.
            pub const fn from_values(values: [$number; $names.len()]) -> Self {
                let [$($field),+] = values;
                Self { $($field),+ }
            }

            /// In the order of the names.
            pub const fn values(&self) -> [$number; $names.len()] {
                [$(self.$field),+]
            }

            /// With the names.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, $number)> + use<> {
                $names.into_iter().zip(self.values())
            }
        }
    };
}

named!(
    /// What the server counts.
    Counters of u64, called COUNTERS:
    /// Messages that it has read.
    messages,
    /// Requests, and connections, that it has refused.
    refusals,
    /// Processors that have become another's.
    moves,
    /// Of these, those that a hint has moved.
    hinted_moves,
    /// Connections that it has accepted.
    connections,
    /// Members whose processes have ended.
    clients_gone,
    /// What it could not do.
    failures,
    /// What others had changed, and it has set right.
    repairs,
    /// Arenas that it has lent.
    arenas,
);

named!(
    /// What the threads of an observed program do.
    Threads of u32, called THREADS:
    /// They have a block.
    known,
    /// The kernel saw them running last.
    running,
    /// Or preempted.
    preempted,
    /// Or blocked.
    blocked,
    /// They hold a lock, as far as the lock says so.
    holding,
    /// And were preempted.
    preempted_holding,
    /// They wish not to be preempted (KE-1).
    wishing,
    /// And were preempted.
    preempted_wishing,
);
