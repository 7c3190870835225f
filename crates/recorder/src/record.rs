// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's records say: `include/uapi/linux/perf_event.h`, as far as it is asked for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A record, and whom it is about.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// When, on the monotonic clock.
    pub time_ns: u64,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum What {
    /// The thread has a processor.
    In,
    /// It has none any more, and does not want one: it blocked.
    Out,
    /// It wants one and has none.
    Preempted,
    /// It began: in a new process, or in one that there was.
    Forked {
        /// The process that it comes from.
        parent: u32,
        /// The thread of that process.
        creator: u32,
    },
    /// It ended.
    Exited,
    /// It has a name. With exec(2) its process has a new address space.
    Named {
        /// The name.
        name: String,
        /// Was that exec(2)?
        by_exec: bool,
    },
    /// A file, or memory without one, may be executed from these addresses on.
    Mapped(Box<Mapping>),
    /// It computes, and was seen so.
    Sample(Box<Sample>),
    /// So many records found no room.
    Lost(u64),
}

/// Where a thread computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The program counter.
    pub pc: u64,
    /// The frame pointer, or whatever that register has.
    pub bp: u64,
    /// The stack pointer.
    pub sp: u64,
    /// What lies on the stack from there on.
    pub stack: Vec<u8>,
}

/// Where a file was mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Where in the file.
    pub offset: u64,
    /// The file's number in its file system.
    pub inode: u64,
    /// The file; or what the kernel calls it.
    pub file: PathBuf,
}

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const SWITCH: u32 = 14;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// Bytes of a switch's record.
pub const SWITCH_SIZE: usize = 24;

/// A switch, by its three words; none if it is another record. Nearly all records are switches.
pub fn switch([header, who, time_ns]: [u64; 3]) -> Option<Record> {
    let (kind, misc) = (header as u32, (header >> 32) as u16);
    let what = match kind {
        SWITCH if misc & MISC_SWITCH_OUT == 0 => What::In,
        SWITCH if misc & MISC_SWITCH_OUT_PREEMPT != 0 => What::Preempted,
        SWITCH => What::Out,
        _ => return None,
    };
    Some(Record { process: who as u32, thread: (who >> 32) as u32, time_ns, what })
}

/// A sample: the program counter, thread and time, three registers if they are those of a program of 64 bits,
/// and a part of the stack.
fn sample(bytes: &[u8]) -> Option<Record> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    const OF_64_BITS: u64 = 2;
    if word(32)? != OF_64_BITS {
        return None;
    }
    let (who, time_ns, size) = (word(16)?, word(24)?, usize::try_from(word(64)?).ok()?);
    // Behind the stack: how much of it is there.
    let there = if size == 0 { 0 } else { usize::try_from(word(72 + size)?).ok()?.min(size) };
    let stack = bytes.get(72..72 + there)?.to_vec();
    let what = What::Sample(Box::new(Sample { pc: word(8)?, bp: word(40)?, sp: word(48)?, stack }));
    Some(Record { process: who as u32, thread: (who >> 32) as u32, time_ns, what })
}

/// A record of bytes that begin with its header and, but for a sample, end with its `sample_id`: thread and
/// time.
pub fn parse(bytes: &[u8]) -> Option<Record> {
    if bytes.first_chunk().is_some_and(|kind| u32::from_ne_bytes(*kind) == SAMPLE) {
        return sample(bytes);
    }
    let (bytes, id) = bytes.split_at_checked(bytes.len().checked_sub(16)?)?;
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let misc = (half(4)? & 0xffff) as u16;
    let [mut process, mut thread] =
        [0, 4].map(|at| u32::from_ne_bytes([id[at], id[at + 1], id[at + 2], id[at + 3]]));
    let time_ns = u64::from_ne_bytes(id[8..].try_into().ok()?);
    let text = |at: usize| {
        let bytes = bytes.get(at..)?;
        Some(bytes.iter().copied().take_while(|&byte| byte != 0).collect::<Vec<u8>>())
    };
    let what = match half(0)? {
        FORK | EXIT => {
            (process, thread) = (half(8)?, half(16)?);
            let (parent, creator) = (half(12)?, half(20)?);
            if half(0)? == EXIT { What::Exited } else { What::Forked { parent, creator } }
        }
        COMM => {
            (process, thread) = (half(8)?, half(12)?);
            let name = String::from_utf8_lossy(&text(16)?).into_owned();
            What::Named { name, by_exec: misc & MISC_COMM_EXEC != 0 }
        }
        MMAP2 => {
            (process, thread) = (half(8)?, half(12)?);
            let file = PathBuf::from(OsString::from_vec(text(72)?));
            let (start, length, offset, inode) = (word(16)?, word(24)?, word(32)?, word(48)?);
            What::Mapped(Box::new(Mapping { start, length, offset, inode, file }))
        }
        LOST => What::Lost(word(16)?),
        _ => return None,
    };
    Some(Record { process, thread, time_ns, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend((body.len() as u16 + 24).to_ne_bytes());
        bytes.extend(body);
        bytes.extend([7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat());
        bytes.extend(99u64.to_ne_bytes());
        bytes
    }

    #[test]
    fn switches_are_told_apart() {
        for (misc, what) in [(0, What::In), (1 << 13, What::Out), (3 << 13, What::Preempted)] {
            let bytes = bytes(SWITCH, misc, &[]);
            assert_eq!(bytes.len(), SWITCH_SIZE);
            let word = |at: usize| u64::from_ne_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
            let record = switch([word(0), word(1), word(2)]).unwrap();
            assert_eq!(record, Record { process: 7, thread: 8, time_ns: 99, what });
        }
    }

    #[test]
    fn a_record_that_is_too_short_or_unknown_is_none() {
        assert_eq!(parse(&[]), None);
        assert_eq!(switch([u64::from(FORK), 0, 0]), None);
        assert_eq!(parse(&bytes(FORK, 0, &[0; 8])).map(|record| record.what), None);
        assert_eq!(parse(&bytes(77, 0, &[])), None);
    }

    #[test]
    fn a_thread_comes_from_a_thread() {
        let body = [1u32, 2, 3, 4].map(u32::to_ne_bytes).concat();
        let record = parse(&bytes(FORK, 0, &[&body[..], &[0; 8]].concat())).unwrap();
        let what = What::Forked { parent: 2, creator: 4 };
        assert_eq!(record, Record { process: 1, thread: 3, time_ns: 99, what });
    }

    #[test]
    fn a_sample_has_the_stack_that_is_there() {
        let record = |abi: u64, size: u64, there: u64| {
            let mut bytes = [SAMPLE.to_ne_bytes(), 0u32.to_ne_bytes()].concat();
            let who =
                u64::from_ne_bytes([7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat().try_into().unwrap());
            let words = [0x40, who, 99, abi, 0xb, 0x50, 0x40, size].map(u64::to_ne_bytes).concat();
            bytes.extend(words);
            bytes.extend((0..size as u8).collect::<Vec<u8>>());
            bytes.extend(if size > 0 { there.to_ne_bytes().to_vec() } else { Vec::new() });
            parse(&bytes)
        };
        let sample = |stack: &[u8]| {
            let what = What::Sample(Box::new(Sample { pc: 0x40, bp: 0xb, sp: 0x50, stack: stack.to_vec() }));
            Some(Record { process: 7, thread: 8, time_ns: 99, what })
        };
        assert_eq!(record(2, 16, 3), sample(&[0, 1, 2]));
        assert_eq!(record(2, 0, 0), sample(&[]));
        assert_eq!(record(2, 8, 99), sample(&[0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(record(1, 16, 3), None, "of 32 bits");
        assert_eq!(parse(&[SAMPLE.to_ne_bytes(), 0u32.to_ne_bytes()].concat()), None);
    }

    #[test]
    fn a_name_ends_at_its_zero() {
        let body = [&1u32.to_ne_bytes()[..], &2u32.to_ne_bytes(), b"pool-1\0\0"].concat();
        let record = parse(&bytes(COMM, MISC_COMM_EXEC, &body)).unwrap();
        assert_eq!((record.process, record.thread), (1, 2));
        assert_eq!(record.what, What::Named { name: "pool-1".into(), by_exec: true });
    }
}
