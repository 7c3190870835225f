// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets: the only place that knows where which number lies.
//!
//! Requests and answers have one layout, [`Wire`]. What a kind does not use is sent as 0, and is not looked
//! at when it comes. So whatever is decoded encodes to a packet that decodes to the same.
//!
//! All is inlined, and a packet is made where it stays: programs call this on threads with little stack, and
//! what a caller does not look at is not decoded.

use super::message::*;
use super::{MAGIC, VERSION};
use crate::{MAX_PROCESSORS, Processors};

/// Bytes of a packet.
pub const SIZE: usize = 304;

const JOIN: u32 = 1;
const SPARE: u32 = 2;
const WANT_BACK: u32 = 3;
const LEAVE: u32 = 4;
const STATUS: u32 = 5;
const OBSERVE: u32 = 6;
const STATE: u32 = 16;
const REFUSED: u32 = 17;
const ENTRY: u32 = 18;
const SUMMARY: u32 = 19;
const OBSERVED: u32 = 20;

/// What is sent. Packed, so that it can be looked at wherever it lies.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Wire {
    magic: u32,
    version: u32,
    kind: u32,
    tag: u32,
    /// Requests: 0 is the sender. Entries: whose state or threads.
    process: u32,
    priority: u32,
    least: u32,
    wanted: u32,
    /// A demand's; `REFUSED`: the limit.
    most: u32,
    /// `SPARE`, `STATE`, `ENTRY`: processors that can be spared. `SUMMARY`: applications.
    count: u32,
    /// `STATE`, `ENTRY`: processors that it has. `SUMMARY`: those of the default partition.
    holds: u32,
    /// `STATE`, `ENTRY`: processors that it waits for. `SUMMARY`: arenas that are being made.
    lacks: u32,
    /// `STATE`, `ENTRY`: requests before. `SUMMARY`: observed programs that are not listed.
    behind: u32,
    generation: u32,
    /// A `Refusal`; `ENTRY`: `Refusal::Unknown` of what is no member. `SUMMARY`: an `Enforcement`.
    error: u32,
    user: u32,
    /// `ENTRY`: 1 if `threads` says something. `SUMMARY`: 1 if there is an observer.
    observed: u32,
    reserved: u32,
    ids: [u64; MAX_PROCESSORS / 64],
    counters: [u64; COUNTERS.len()],
    threads: [u32; THREADS.len()],
}

const _: () = assert!(size_of::<Wire>() == SIZE && align_of::<Wire>() == 1);

/// A request or an answer, as it is sent.
#[derive(Clone, Copy)]
pub struct Packet(Wire);

impl Packet {
    const EMPTY: Self = Self(Wire {
        magic: MAGIC,
        version: VERSION,
        kind: 0,
        tag: 0,
        process: 0,
        priority: 0,
        least: 0,
        wanted: 0,
        most: 0,
        count: 0,
        holds: 0,
        lacks: 0,
        behind: 0,
        generation: 0,
        error: 0,
        user: 0,
        observed: 0,
        reserved: 0,
        ids: [0; MAX_PROCESSORS / 64],
        counters: [0; COUNTERS.len()],
        threads: [0; THREADS.len()],
    });

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8; SIZE] {
        // SAFETY: numbers without padding between them.
        unsafe { &*core::ptr::from_ref(&self.0).cast() }
    }
}

impl Wire {
    /// `None` if it is none, or of another version.
    #[inline]
    fn of(bytes: &[u8]) -> Option<&Self> {
        let bytes: &[u8; SIZE] = bytes.try_into().ok()?;
        // SAFETY: of this size, and all bytes are valid numbers, wherever they lie.
        let wire = unsafe { &*core::ptr::from_ref(bytes).cast::<Self>() };
        (wire.magic == MAGIC && wire.version == VERSION).then_some(wire)
    }

    #[inline]
    fn put_demand(&mut self, demand: &Demand) {
        self.priority = demand.priority;
        if let Some(numbers) = demand.numbers {
            (self.least, self.wanted, self.most) = (numbers.least(), numbers.wanted(), numbers.most());
        }
    }

    #[inline]
    fn demand(&self) -> Demand {
        Demand::new(self.priority, self.least, self.wanted, self.most)
    }

    #[inline]
    fn put_state(&mut self, state: &State) {
        let State { process, user, demand, spare, holds, lacks, behind, generation, ids } = state;
        (self.process, self.user) = (*process, *user);
        self.put_demand(demand);
        (self.count, self.holds, self.lacks, self.behind) = (*spare, *holds, *lacks, *behind);
        (self.generation, self.ids) = (*generation, *ids.words());
    }

    #[inline]
    fn state(&self) -> State {
        State {
            process: self.process,
            user: self.user,
            demand: self.demand(),
            spare: self.count,
            holds: self.holds,
            lacks: self.lacks,
            behind: self.behind,
            generation: self.generation,
            ids: Processors::from_words(self.ids),
        }
    }

    #[inline]
    fn put_entry(&mut self, entry: &Entry) {
        match &entry.program {
            Listed::Member(state) => self.put_state(state),
            Listed::Observed { process, user } => {
                (self.process, self.user) = (*process, *user);
                self.error = Refusal::Unknown as u32;
            }
        }
        if let Some(threads) = &entry.threads {
            (self.observed, self.threads) = (1, threads.values());
        }
    }

    #[inline]
    fn entry(&self) -> Entry {
        let program = match self.error == Refusal::Unknown as u32 {
            true => Listed::Observed { process: self.process, user: self.user },
            false => Listed::Member(self.state()),
        };
        Entry { program, threads: (self.observed == 1).then(|| Threads::from_values(self.threads)) }
    }

    #[inline]
    fn put_summary(&mut self, summary: &Summary) {
        let Summary { enforcement, default_partition, applications, making, unlisted, observer, counters } =
            summary;
        (self.error, self.observed) = (*enforcement as u32, u32::from(*observer));
        (self.ids, self.holds) = (*default_partition.words(), default_partition.count());
        (self.count, self.lacks, self.behind) = (*applications, *making, *unlisted);
        self.counters = counters.values();
    }

    #[inline]
    fn summary(&self) -> Summary {
        Summary {
            enforcement: Enforcement::from_u32(self.error),
            default_partition: Processors::from_words(self.ids),
            applications: self.count,
            making: self.lacks,
            unlisted: self.behind,
            observer: self.observed == 1,
            counters: Counters::from_values(self.counters),
        }
    }
}

impl Envelope {
    /// As it is sent.
    #[inline]
    pub fn encode(&self) -> Packet {
        let kind = match self.request {
            Request::Join(_) => JOIN,
            Request::Spare(_) => SPARE,
            Request::WantBack => WANT_BACK,
            Request::Leave => LEAVE,
            Request::Status => STATUS,
            Request::Observe => OBSERVE,
        };
        let mut packet = Packet::EMPTY;
        let wire = &mut packet.0;
        (wire.kind, wire.tag) = (kind, self.tag);
        wire.process = self.process;
        match &self.request {
            Request::Join(demand) => wire.put_demand(demand),
            Request::Spare(count) => wire.count = *count,
            Request::WantBack | Request::Leave | Request::Status | Request::Observe => {}
        }
        packet
    }

    /// As it was received; `None` if it is no request of this version.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let wire = Wire::of(bytes)?;
        let request = match wire.kind {
            JOIN => Request::Join(wire.demand()),
            SPARE => Request::Spare(wire.count),
            WANT_BACK => Request::WantBack,
            LEAVE => Request::Leave,
            STATUS => Request::Status,
            OBSERVE => Request::Observe,
            _ => return None,
        };
        Some(Self { tag: wire.tag, process: wire.process, request })
    }
}

impl Answer {
    /// As it is sent.
    #[inline]
    pub fn encode(&self) -> Packet {
        let kind = match self.reply {
            Reply::State(_) => STATE,
            Reply::Refused { .. } => REFUSED,
            Reply::Entry(_) => ENTRY,
            Reply::Summary(_) => SUMMARY,
            Reply::Observed { .. } => OBSERVED,
        };
        let mut packet = Packet::EMPTY;
        let wire = &mut packet.0;
        (wire.kind, wire.tag) = (kind, self.tag);
        match &self.reply {
            Reply::State(state) => wire.put_state(state),
            Reply::Refused { why, limit } => (wire.error, wire.most) = (*why as u32, *limit),
            Reply::Entry(entry) => wire.put_entry(entry),
            Reply::Summary(summary) => wire.put_summary(summary),
            Reply::Observed { process } => wire.process = *process,
        }
        packet
    }

    /// As it was received; `None` if it is no answer of this version.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let wire = Wire::of(bytes)?;
        let reply = match wire.kind {
            STATE => Reply::State(wire.state()),
            REFUSED => Reply::Refused { why: Refusal::from_u32(wire.error), limit: wire.most },
            ENTRY => Reply::Entry(wire.entry()),
            SUMMARY => Reply::Summary(wire.summary()),
            OBSERVED => Reply::Observed { process: wire.process },
            _ => return None,
        };
        Some(Self { tag: wire.tag, reply })
    }
}
