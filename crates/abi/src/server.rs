// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program and the processor server say to each other.
//!
//! A Unix socket of type SOCK_SEQPACKET at [`SOCKET`]. Each packet in either direction is one [`Message`], of exactly that many bytes in the machine's byte order;
//! a packet of another size, magic number or version is answered with [`Kind::Refused`], if it can be, and is the last of its connection. Who sends, the
//! kernel says: a request is about the sender's process, unless `process` names another one of the same user.
//!
//! | request | fields | answer |
//! |---|---|---|
//! | `Join` | `priority`, `least`, `wanted`, `most`; these three 0: the server chooses | `State`, with a descriptor of the [`Block`], read-only |
//! | `Spare` | `count` | `State` |
//! | `WantBack` | | `State` |
//! | `Leave` | | `State` of nobody |
//! | `Observe` | | `Observed`, with three descriptors: an arena of the process's own, what its threads enrol with, and the server's life (see [`lives`]) |
//! | `Status` | | `Entry` for each application, then `Summary` |
//!
//! An answer has its request's `tag`. When a partition changes later, its last connection gets a `State` with tag 0. A program that ends need say nothing.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::{MAX_PROCESSORS, Partition};

/// Where the server listens.
pub const SOCKET: &str = "/run/wakeful/wakefuld";
/// The first word of each message ("KWSV").
pub const MAGIC: u32 = 0x5653_574b;
/// Version of the messages.
pub const VERSION: u32 = 2;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A partition, please; or other numbers for the one there is.
    Join = 1,
    /// So many processors can be spared.
    Spare = 2,
    /// They can be used again.
    WantBack = 3,
    /// No partition any more.
    Leave = 4,
    /// What is there?
    Status = 5,
    /// An arena, please, which the server's observer fills. Once for each image that the process executes.
    Observe = 6,
    /// The state of the process's partition.
    State = 16,
    /// No, for the reason in `error`.
    Refused = 17,
    /// An application.
    Entry = 18,
    /// The end of the entries: the default partition and the server's counters.
    Summary = 19,
    /// The arena.
    Observed = 20,
}

impl Kind {
    /// The kind that a number stands for.
    pub const fn from_u32(word: u32) -> Option<Self> {
        Some(match word {
            1 => Self::Join,
            2 => Self::Spare,
            3 => Self::WantBack,
            4 => Self::Leave,
            5 => Self::Status,
            6 => Self::Observe,
            16 => Self::State,
            17 => Self::Refused,
            18 => Self::Entry,
            19 => Self::Summary,
            20 => Self::Observed,
            _ => return None,
        })
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// Not a message of this version.
    Malformed = 1,
    /// Not 1 <= least <= wanted <= most.
    Disordered = 2,
    /// `most` is what the machine can give.
    TooMany = 3,
    /// The process has asked for no partition.
    Unknown = 4,
    /// The administrator does not let this user ask.
    NotAllowed = 5,
    /// `least` is more than what the administrator lets this user have, which is in `most`.
    Share = 6,
    /// `priority` is the highest that the administrator lets this user have.
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

impl Refusal {
    /// The reason that a number stands for.
    pub const fn from_u32(word: u32) -> Self {
        match word {
            1 => Self::Malformed,
            2 => Self::Disordered,
            3 => Self::TooMany,
            4 => Self::Unknown,
            5 => Self::NotAllowed,
            6 => Self::Share,
            7 => Self::Priority,
            8 => Self::Crowd,
            9 => Self::NoProcess,
            11 => Self::NoObserver,
            12 => Self::Again,
            13 => Self::Elsewhere,
            14 => Self::Later,
            _ => Self::Failed,
        }
    }
}

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

/// A message of either direction; what does not matter is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Message {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// A [`Kind`].
    pub kind: u32,
    /// Comes back with the answer.
    pub tag: u32,
    /// A process; 0: the sender.
    pub process: u32,
    /// Higher is served first.
    pub priority: u32,
    /// See `policy::Count`.
    pub least: u32,
    /// The same.
    pub wanted: u32,
    /// The same; in a refusal, the limit.
    pub most: u32,
    /// `Spare`: how many. `Entry`: how many it has hinted that it can spare. `Summary`: how many applications.
    pub count: u32,
    /// Processors that it has.
    pub holds: u32,
    /// Processors that it waits for. `Summary`: arenas that are being made.
    pub lacks: u32,
    /// Requests that are served before. `Summary`: observed programs that are not listed.
    pub behind: u32,
    /// See [`Partition::generation`].
    pub generation: u32,
    /// A [`Refusal`]; `Entry`: [`Refusal::Unknown`] if the process has asked for no partition. `Summary`: an [`Enforcement`].
    pub error: u32,
    /// `Entry`: whose process.
    pub user: u32,
    /// 1 if the server's observer sees its threads; `Summary`: if there is one.
    pub observed: u32,
    #[doc(hidden)]
    pub reserved: u32,
    /// Bit n: processor n. `Summary`: the default partition.
    pub ids: [u64; MAX_PROCESSORS / 64],
    /// `Summary`: since the server was started, in the order of [`COUNTERS`].
    pub counters: [u64; COUNTERS.len()],
    /// HINT: of an observed application, in the order of [`THREADS`]; the application could say what it likes.
    pub threads: [u32; THREADS.len()],
}

/// What [`Message::counters`] count.
pub const COUNTERS: [&str; 9] = [
    "messages",
    "refusals",
    "moves",
    "hinted_moves",
    "connections",
    "clients_gone",
    "failures",
    "repairs",
    "arenas",
];

/// What [`Message::threads`] count: threads with a block; of these, those that the kernel saw running, preempted and blocked last; those that hold a
/// lock, as far as the lock says so, and of these the preempted ones; those that wish not to be preempted (KE-1), and of these the preempted ones.
pub const THREADS: [&str; 8] = [
    "known",
    "running",
    "preempted",
    "blocked",
    "holding",
    "preempted_holding",
    "wishing",
    "preempted_wishing",
];

/// Whether the server lives whose life reads so: the first word of a page that the program maps read-only. It is the futex word of a robust
/// mutex that the server holds, and the kernel clears the owner when the server ends, however it does. Its observer has ended with it.
pub const fn lives(word: u32) -> bool {
    const OWNER: u32 = 0x3fff_ffff; // FUTEX_TID_MASK
    word & OWNER != 0
}

const _: () = assert!(size_of::<Message>() == 304);

impl Message {
    /// Of a kind, with the rest zeros.
    pub fn new(kind: Kind) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: kind as u32, ..Self::default() }
    }

    /// As it is sent.
    pub fn bytes(&self) -> &[u8; size_of::<Self>()] {
        // SAFETY: numbers without padding between them.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }

    /// As it was received; `None` if it is none, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, Kind)> {
        let bytes: &[u8; size_of::<Self>()] = bytes.try_into().ok()?;
        // SAFETY: all bytes are valid numbers.
        let message: Self = unsafe { core::mem::transmute_copy(bytes) };
        let kind = Kind::from_u32(message.kind)?;
        (message.magic == MAGIC && message.version == VERSION).then_some((message, kind))
    }
}

/// The file that server and program share: written by the server alone, read by the program through a descriptor that lets it do no more.
#[derive(Debug)]
#[repr(C)]
pub struct Block {
    /// KE-3.
    pub partition: Partition,
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// What a server that is started anew needs to know: process and, to tell it from a later one of this number, its start, in clock ticks after boot.
    pub process: AtomicU32,
    /// Its demand and its hint (usable + 1, or 0).
    pub demand: [AtomicU32; 5],
    /// See `process`.
    pub started: AtomicU64,
    #[doc(hidden)]
    pub reserved: [AtomicU64; 7],
    /// The control group below the mount from which the server took it, and zeros; empty: the base group.
    pub origin: [AtomicU8; ORIGIN_SIZE],
}

/// Bytes of [`Block::origin`].
pub const ORIGIN_SIZE: usize = 2048;

/// Bytes of a block's file.
pub const BLOCK_SIZE: usize = 4096;

const _: () = assert!(size_of::<Block>() <= BLOCK_SIZE);
