// SPDX-License-Identifier: MIT OR Apache-2.0
//! A look at a thread that is blocked: which call it is in, and a copy of its stack.
//!
//! The thread is not stopped, woken or asked. If it runs on meanwhile, the look is of no use: the records say
//! so later, as they have the times of the block.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

/// BOUND: bytes of a stack that are read. A stack of 64 KiB has hundreds of frames.
const STACK: usize = 64 * 1024;
const PAGE: usize = 4096;

/// A system call's number and arguments.
pub type Call = (u32, [u64; 6]);

/// What was seen.
#[derive(Debug)]
pub struct Look {
    /// The system call; none in a page fault.
    pub call: Option<Call>,
    /// The stack pointer.
    pub sp: u64,
    /// The program counter.
    pub pc: u64,
    /// The frame pointer, if that is known.
    pub bp: Option<u64>,
    /// What lies on the stack from `sp` on.
    pub stack: Vec<u8>,
}

/// Looks. None if the thread runs or has ended, or if we may not look.
pub fn look(process: u32, thread: u32) -> Option<Look> {
    let (call, sp, pc) = parse(&read(process, thread)?)?;
    let stack = stack(thread, sp);
    // Has it gone on? It may be back in the same place, which the records know.
    let (_, sp_after, pc_after) = parse(&read(process, thread)?)?;
    ((sp, pc) == (sp_after, pc_after)).then_some(Look { call, sp, pc, bp: None, stack })
}

/// The call that a thread is blocked in, if it is in one.
pub fn call(process: u32, thread: u32) -> Option<Call> {
    parse(&read(process, thread)?)?.0
}

/// Is the thread alive, and may we not look at it? A program may forbid it (prctl(2), PR_SET_DUMPABLE).
pub fn is_forbidden(process: u32, thread: u32) -> bool {
    let read = fs::File::open(path(process, thread)).and_then(|mut file| file.read(&mut [0; 8]));
    let is_denied = read.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    is_denied && has_memory(process, thread)
}

/// What the kernel says that a thread does: the letter of its state.
pub(crate) fn state(process: u32, thread: u32) -> Option<u8> {
    letter(&fs::read(format!("/proc/{process}/task/{thread}/stat")).ok()?)
}

/// Behind the name, which may have any characters.
fn letter(text: &[u8]) -> Option<u8> {
    let end = text.iter().rposition(|byte| *byte == b')')?;
    text.get(end + 2).copied()
}

/// A thread that ends has given its memory up, and its files in /proc are root's from then on. Nobody forbids
/// anything by that.
fn has_memory(process: u32, thread: u32) -> bool {
    let sizes = fs::read_to_string(format!("/proc/{process}/task/{thread}/statm"));
    sizes.is_ok_and(|sizes| !sizes.starts_with("0 "))
}

fn path(process: u32, thread: u32) -> String {
    format!("/proc/{process}/task/{thread}/syscall")
}

fn read(process: u32, thread: u32) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path(process, thread)).ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// "running", "-1 SP PC", or "NUMBER ARGUMENT... SP PC".
fn parse(text: &str) -> Option<(Option<Call>, u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    let hex = |words: &mut std::str::SplitAsciiWhitespace| {
        u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()
    };
    let number: i64 = words.next()?.parse().ok()?;
    let call = match u32::try_from(number) {
        Ok(number) => {
            let mut arguments = [0; 6];
            for argument in &mut arguments {
                *argument = hex(&mut words)?;
            }
            Some((number, arguments))
        }
        Err(_) => None,
    };
    Some((call, hex(&mut words)?, hex(&mut words)?))
}

fn stack(thread: u32, sp: u64) -> Vec<u8> {
    let mut bytes = vec![0; STACK];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: STACK };
    // A part that is not there ends the call, and it is one page at most.
    let mut remote = Vec::new();
    let (mut at, end) = (sp as usize, (sp as usize).saturating_add(STACK));
    while at < end {
        let next = ((at | (PAGE - 1)) + 1).min(end);
        remote.push(libc::iovec { iov_base: at as *mut _, iov_len: next - at });
        at = next;
    }
    // SAFETY: `local` lies in `bytes`; the kernel checks the addresses of the other process.
    let read = unsafe {
        libc::process_vm_readv(thread as libc::pid_t, &local, 1, remote.as_ptr(), remote.len() as _, 0)
    };
    bytes.truncate(usize::try_from(read).unwrap_or(0));
    bytes
}

/// What a descriptor of the process leads to.
pub fn descriptor(process: u32, number: u64) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/fd/{number}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_ended_hides_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // SAFETY: a structure of zeros is valid, and lives across the call, which leaves the child as it is.
        let ended = unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child.id(), &mut about, libc::WEXITED | libc::WNOWAIT)
        };
        assert_eq!(ended, 0);
        let own = std::process::id();
        assert!(has_memory(own, own) && !has_memory(child.id(), child.id()));
        child.wait().unwrap();
        assert!(!has_memory(child.id(), child.id()));
    }

    #[test]
    fn a_state_stands_behind_the_name() {
        assert_eq!(letter(b"12 (a) b) T 1 2"), Some(b'T'));
        assert_eq!([letter(b""), letter(b"12 (a)")], [None, None]);
    }

    #[test]
    fn what_the_kernel_says_of_a_call() {
        let (call, sp, pc) = parse("0 0x3 0x7ffd 0x1 0x0 0x0 0x8 0x7ffe 0x40\n").unwrap();
        assert_eq!((call, sp, pc), (Some((0, [3, 0x7ffd, 1, 0, 0, 8])), 0x7ffe, 0x40));
        assert_eq!(parse("-1 0x7ffe 0x40\n"), Some((None, 0x7ffe, 0x40)));
        for bad in ["running\n", "", "0 0x3", "-1 0x7ffe"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
