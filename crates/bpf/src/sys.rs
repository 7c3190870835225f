// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of bpf(2) that are needed beside loading: a system call each, and nothing else.

use std::io;
use std::os::fd::RawFd;
#[cfg(feature = "shared")]
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BPF_PROG_TEST_RUN: libc::c_long = 10;
#[cfg(feature = "load")]
const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

/// The `test` member of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    reserved: u32,
}

/// The `info` member of `union bpf_attr`.
#[repr(C)]
struct Info {
    fd: u32,
    length: u32,
    info: u64,
}

fn bpf<T>(command: libc::c_long, attribute: &mut T) -> io::Result<RawFd> {
    // SAFETY: the callers pass the attribute of the command, with pointers to live memory of the sizes they state.
    match unsafe { libc::syscall(libc::SYS_bpf, command, attribute, size_of::<T>()) } {
        result @ 0.. => Ok(result as RawFd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs a program of type SYSCALL with a context of two words; its result, or `None` if it did not run.
pub fn run(program: RawFd, mut context: [u32; 2]) -> Option<u32> {
    let mut attribute = TestRun {
        prog_fd: program as u32,
        ctx_size_in: size_of_val(&context) as u32,
        ctx_in: context.as_mut_ptr().expose_provenance() as u64,
        ..TestRun::default()
    };
    bpf(BPF_PROG_TEST_RUN, &mut attribute).ok().map(|_| attribute.retval)
}

/// What a descriptor stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A map of type ARRAY.
    Arena,
    /// A program of type SYSCALL.
    Enrol,
    /// A link to a tracepoint.
    Link,
}

/// Instructions that the verifier went through for this program (`verified_insns` of struct bpf_prog_info; Linux 5.16).
#[cfg(feature = "load")]
pub fn verified(fd: RawFd) -> io::Result<u32> {
    const AT: usize = 216 / 4;
    let mut info = [0u32; 64];
    let mut attribute = Info {
        fd: fd as u32,
        length: size_of_val(&info) as u32,
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attribute)?;
    Ok(info[AT])
}

/// Whether the kernel has a program of this id. Needs CAP_SYS_ADMIN, or CAP_BPF from Linux 5.8 on.
#[cfg(feature = "load")]
pub fn program_exists(id: u32) -> io::Result<bool> {
    // The start of `union bpf_attr` for this command: the id, a word that it does not use, flags.
    match bpf(BPF_PROG_GET_FD_BY_ID, &mut [id, 0, 0]) {
        Ok(descriptor) => {
            // SAFETY: the kernel has just opened it for us, and nobody else knows it.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
            Ok(true)
        }
        Err(problem) if problem.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(problem) => Err(problem),
    }
}

/// The kernel's id of what the descriptor stands for, which must be a `what`.
pub fn id(fd: RawFd, what: What) -> io::Result<u32> {
    // struct bpf_map_info, bpf_prog_info and bpf_link_info all begin with the type and the id.
    let mut info = [0u32; 64];
    let mut attribute = Info {
        fd: fd as u32,
        length: size_of_val(&info) as u32,
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attribute)?;
    let [kind, id, ..] = info;
    let right = match what {
        What::Arena => kind == 2,
        What::Enrol => kind == 31,
        // RAW_TRACEPOINT or TRACING, by the kernel's age.
        What::Link => kind == 1 || kind == 2,
    };
    if right { Ok(id) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
}

/// Commands for who loads and admits, each with the part of `union bpf_attr` that it needs. In each attribute a descriptor or a number is half a word.
#[cfg(feature = "shared")]
pub mod privileged {
    use super::*;

    const ARRAY: u32 = 2;
    const MMAPABLE: u32 = 1 << 10;
    const SYSCALL: u32 = 31;
    const SLEEPABLE: u64 = 1 << 4;

    const fn pair(first: u32, second: u32) -> u64 {
        // The machines of the object are little-endian.
        first as u64 | (second as u64) << 32
    }

    fn number(fd: BorrowedFd<'_>) -> u32 {
        fd.as_raw_fd() as u32
    }

    fn pointer<T: ?Sized>(to: &T) -> u64 {
        core::ptr::from_ref(to).cast::<u8>().expose_provenance() as u64
    }

    fn new(command: libc::c_long, mut attribute: [u64; 16]) -> io::Result<OwnedFd> {
        // SAFETY: these commands answer with a new descriptor, which is ours.
        bpf(command, &mut attribute).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn words<const N: usize>(first: [u64; N]) -> [u64; 16] {
        let mut words = [0; 16];
        words[..N].copy_from_slice(&first);
        words
    }

    /// A map of one element of so many bytes, zeros, which can be mapped into memory if that is asked for.
    pub fn array(size: u32, mappable: bool) -> io::Result<OwnedFd> {
        let flags = if mappable { MMAPABLE } else { 0 };
        new(0, words([pair(ARRAY, 4), pair(size, 1), pair(flags, 0)]))
    }

    /// Writes an element; key and value are as long as the map says.
    pub fn update<K, V: ?Sized>(map: BorrowedFd<'_>, key: &K, value: &V) -> io::Result<()> {
        bpf(2, &mut words([pair(number(map), 0), pointer(key), pointer(value), 0])).map(drop)
    }

    pub fn delete<K>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
        bpf(3, &mut words([pair(number(map), 0), pointer(key)])).map(drop)
    }

    pub fn map_by_id(id: u32) -> io::Result<OwnedFd> {
        new(14, words([pair(id, 0)]))
    }

    /// Loads a program of type SYSCALL that may sleep, and that knows one map by its place in a list of descriptors.
    pub fn load(instructions: &[u64], map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let (license, fds) = (c"Dual BSD/GPL", [map.as_raw_fd()]);
        let mut attribute = [0; 16];
        attribute[0] = pair(SYSCALL, instructions.len() as u32);
        (attribute[1], attribute[2]) = (pointer(instructions), pointer(license.to_bytes_with_nul()));
        (attribute[5], attribute[15]) = (SLEEPABLE << 32, pointer(&fds));
        new(5, attribute)
    }

    /// Runs such a program; it returns 0, or an error's number below 0.
    pub fn run(program: BorrowedFd<'_>, context: &mut [u32]) -> io::Result<()> {
        let mut attribute = TestRun {
            prog_fd: number(program),
            ctx_size_in: size_of_val(context) as u32,
            ctx_in: context.as_mut_ptr().expose_provenance() as u64,
            ..TestRun::default()
        };
        bpf(BPF_PROG_TEST_RUN, &mut attribute)?;
        match attribute.retval as i32 {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
        }
    }

    /// Attaches a program to the tracepoint that it was loaded for, as long as the descriptor is open.
    pub fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        new(17, words([0, pair(number(program), 0)]))
    }
}
