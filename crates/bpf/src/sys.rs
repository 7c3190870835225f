// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of bpf(2) that are needed beside loading: a system call each, and nothing else.

use std::io;
use std::os::fd::RawFd;
#[cfg(feature = "load")]
use std::os::fd::{FromRawFd, OwnedFd};

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

#[cfg(feature = "load")]
/// Instructions that the verifier went through for this program (`verified_insns` of struct bpf_prog_info; Linux 5.16).
pub fn verified(fd: RawFd) -> io::Result<u32> {
    const AT: usize = 216 / 4;
    let mut info = [0u32; 64];
    let mut attribute =
        Info { fd: fd as u32, length: size_of_val(&info) as u32, info: info.as_mut_ptr().expose_provenance() as u64 };
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
    let mut attribute =
        Info { fd: fd as u32, length: size_of_val(&info) as u32, info: info.as_mut_ptr().expose_provenance() as u64 };
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
