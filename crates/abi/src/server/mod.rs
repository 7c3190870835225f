// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program and the processor server say to each other.
//!
//! A Unix socket of type SOCK_SEQPACKET at [`SOCKET`]. Each packet from a program is an [`Envelope`] with a
//! [`Request`], each packet from the server an [`Answer`] with a [`Reply`]; all have [`SIZE`] bytes, in the
//! machine's byte order. A packet that is no request of this version is answered with [`Refusal::Malformed`],
//! if it can be, and is the last of its connection. Who sends, the kernel says: a request is about the
//! sender's process, unless the envelope names another one of the same user.
//!
//! | request | answer |
//! |---|---|
//! | `Join` | `State`, with a descriptor of the [`Block`], read-only |
//! | `Spare`, `WantBack` | `State` |
//! | `Leave` | `State` of nobody |
//! | `Observe` | `Observed`, with three descriptors |
//! | `Status` | `Entry` for each program, then `Summary` |
//!
//! The descriptors of `Observed` are an arena of the process's own, what its threads enrol with, and the
//! server's life (see [`lives`]).
//!
//! An answer has its request's tag. It says what the kernel has done, so it comes after that
//! (`daemon/src/server/requests.rs`). When a partition changes later, its last connection gets a `State` with
//! tag 0. A program that ends need say nothing.

mod codec;
mod message;

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

pub use codec::{Packet, SIZE};
pub use message::*;

use crate::Partition;

/// Where the server listens.
pub const SOCKET: &str = "/run/wakeful/wakefuld";

/// Where `wakeful scheduler` listens: a socket of type SOCK_STREAM, with words for requests.
pub const SCHEDULER: &str = "/run/wakeful/scheduler";

/// `SCHED_EXT`, for sched_setscheduler(2): who has it is the scheduler's, or, while there is none, as ever.
pub const POLICY: i32 = 7;
/// The first word of each message ("KWSV").
pub const MAGIC: u32 = 0x5653_574b;
/// Version of the messages, and of the blocks.
pub const VERSION: u32 = 3;

/// Whether the server lives whose life reads so: the first word of a page that the program maps read-only. It
/// is the futex word of a robust mutex that the server holds, and the kernel clears the owner when the server
/// ends, however it does. Its observer has ended with it.
pub const fn lives(word: u32) -> bool {
    const OWNER: u32 = 0x3fff_ffff; // FUTEX_TID_MASK
    word & OWNER != 0
}

/// The file that server and program share: written by the server alone, read by the program through a
/// descriptor that lets it do no more.
#[derive(Debug)]
#[repr(C)]
pub struct Block {
    /// KE-3.
    pub partition: Partition,
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// What a server that is started anew needs to know: process and, to tell it from a later one of this
    /// number, its start, in clock ticks after boot.
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
