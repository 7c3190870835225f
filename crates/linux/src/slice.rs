// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time-slice extension of restartable sequences (Linux 7.0): KE-1's wish and KE-2's warning without privilege, for sections of
//! some microseconds.
//!
//! Each thread has a control word that it shares with the kernel, in its `struct rseq`: *request* is the wish, *granted* the
//! warning. An interrupt that would take the processor from a thread whose request stands grants it a few microseconds instead (debugfs
//! `rseq/slice_ext_nsec`), and clears the request. The thread owes: at the end of its section it yields ([`repay`]), or any system call, or the
//! end of the grant, takes the processor from it. So a section costs two stores and a load where nothing happens, and where the kernel has no
//! such extension a load.
//!
//! A thread has one `struct rseq`, and the kernel knows who registered it. We take the C library's where it is long enough to have the
//! word (glibc 2.41). Where it is too short (glibc 2.35 to 2.40) it cannot be replaced under the libraries that rely on it; the
//! program has to be started with `GLIBC_TUNABLES=glibc.pthread.rseq=0`, as `wakeful run` does, and then we register our own. If another
//! library did so before, the thread has no extension.
//!
//! Reached from locks: system calls and this thread's own memory only, errno unchanged.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};

/// Who honours a wish by this extension, in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Support {
    /// The kernel, or this build for its processor, has none.
    Absent = 1,
    /// The kernel's command line turned it off.
    Off = 2,
    /// The C library's registration is too short for it; see [`TUNABLE`].
    TooShort = 3,
    /// Another library has registered the thread.
    Taken = 4,
    /// The kernel does.
    Ready = 5,
}

/// The environment variable of glibc's tunables.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
/// The tunable with which a program starts without the C library's registration.
pub const TUNABLE: &str = "glibc.pthread.rseq";

/// What the last thread that tried has found; 0: none has.
static FOUND: AtomicU8 = AtomicU8::new(0);

const READY: u8 = Support::Ready as u8;

/// What the calling thread has, which is tried if it has not been yet.
pub fn support() -> Support {
    if control().is_some() {
        return Support::Ready;
    }
    match FOUND.load(Relaxed) {
        2 => Support::Off,
        3 => Support::TooShort,
        4 => Support::Taken,
        // Ready for another thread, not for this one.
        READY => Support::Taken,
        _ => Support::Absent,
    }
}

/// The calling thread wishes not to be preempted.
#[inline]
pub fn request() {
    if let Some(control) = control() {
        control.request.store(1, Relaxed);
    }
}

/// It does not any more. If it [`owes`] then, it is to [`repay`].
#[inline]
pub fn withdraw() {
    // Who never wished has no control word, and gets none here.
    if let Some(control) = known() {
        control.request.store(0, Relaxed);
    }
}

/// Was the calling thread granted an extension that is not over? HINT: an interrupt may end it at any moment.
#[inline]
pub fn owes() -> bool {
    known().is_some_and(|control| control.granted.load(Relaxed) != 0)
}

/// Gives the processor up to whom it was denied.
#[cold]
pub fn repay() {
    let _errno = crate::futex::Errno::save();
    // SAFETY: no arguments.
    unsafe { libc::syscall(RSEQ_SLICE_YIELD) };
}

const RSEQ_SLICE_YIELD: libc::c_long = 471;

/// `slice_ctrl` of `struct rseq`. The kernel writes on this thread's behalf only, when it enters or leaves it.
#[repr(C)]
struct Control {
    request: AtomicU8,
    granted: AtomicU8,
}

/// The control word, if the thread has it by now.
#[inline(always)]
fn known() -> Option<&'static Control> {
    match place::get() {
        0 | NOT_THIS => None,
        // SAFETY: `prepare` has put the address of this thread's control word here.
        address => Some(unsafe { &*core::ptr::with_exposed_provenance(address) }),
    }
}

/// The control word; on the thread's first call it is set up.
#[inline(always)]
fn control() -> Option<&'static Control> {
    if place::get() == 0 && FOUND.load(Relaxed) != Support::Absent as u8 {
        prepare();
    }
    known()
}

/// Where the kernel writes the processor that this thread is on, for as long as the thread lives.
#[inline]
pub fn processor_word() -> Option<&'static AtomicU32> {
    const PROCESSOR_AT: usize = 4;
    // SAFETY: `cpu_id` of a registration, which the thread keeps for as long as it lives. Callers use the
    // reference on this thread only.
    place::of_libc().map(|(rseq, _)| unsafe { &*core::ptr::with_exposed_provenance(rseq + PROCESSOR_AT) })
}

/// In the place of an address: this thread has none.
const NOT_THIS: usize = 1;

#[cold]
fn prepare() {
    let _errno = crate::futex::Errno::save();
    let found = match place::rseq() {
        Ok(rseq) => {
            place::set(rseq + CONTROL_AT);
            Support::Ready
        }
        Err(why) => {
            place::set(NOT_THIS);
            why
        }
    };
    FOUND.store(found as u8, Relaxed);
}

/// Where the control word is in `struct rseq`.
const CONTROL_AT: usize = 28;

#[cfg(target_arch = "x86_64")]
mod place {
    use core::arch::{asm, global_asm};

    use super::Support;
    use crate::{own_asm, own_variable};

    // The thread's own registration, then the address of its control word.
    own_variable!("wakeful_rseq", size 128, align 6);
    // The C library's, weak: they came with glibc 2.35.
    global_asm!(".weak __rseq_offset", ".weak __rseq_size");

    /// Bytes that a registration must have for the kernel to use the control word.
    const LONG_ENOUGH: u32 = 33;
    /// Bytes of our registration.
    const SIZE: usize = 64;
    /// The signature that x86 programs use; unused, because we have no restartable sequences.
    const SIGNATURE: u32 = 0x5305_3053;
    const PR_RSEQ_SLICE_EXTENSION: libc::c_int = 79;
    const GET: libc::c_ulong = 1;
    const SET: libc::c_ulong = 2;
    const ENABLE: libc::c_ulong = 1;
    /// The kernel's ENOTSUPP, which libc does not know.
    const ENOTSUPP: i32 = 524;

    #[inline(always)]
    pub fn get() -> usize {
        let value;
        // SAFETY: reads this thread's own variable.
        unsafe {
            own_asm!(
                "wakeful_rseq",
                "mov {v}, qword ptr fs:[{a} + {offset}]",
                v = lateout(reg) value,
                offset = const SIZE,
                options(nostack, preserves_flags, readonly),
            );
        }
        value
    }

    pub fn set(address: usize) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            own_asm!(
                "wakeful_rseq",
                "mov qword ptr fs:[{a} + {offset}], {v}",
                v = in(reg) address,
                offset = const SIZE,
                options(nostack, preserves_flags),
            );
        }
    }

    /// This thread's thread pointer.
    fn thread_pointer() -> usize {
        let value;
        // SAFETY: the first word of a thread's control block is its own address, as the x86-64 ABI has it.
        unsafe {
            asm!("mov {v}, qword ptr fs:[0]", v = out(reg) value, options(nostack, preserves_flags, readonly))
        };
        value
    }

    /// The thread's own room for a registration.
    fn ours() -> usize {
        let offset: usize;
        // SAFETY: reads a constant of the linker's.
        unsafe {
            own_asm!("wakeful_rseq", "mov {v}, {a}", v = lateout(reg) offset, options(nostack, preserves_flags, readonly));
        };
        thread_pointer().wrapping_add(offset)
    }

    /// The C library's registration of this thread: its address, and the bytes it has for the kernel; `None` if there is none.
    pub fn of_libc() -> Option<(usize, u32)> {
        let (offset, size): (usize, usize);
        // SAFETY: reads two addresses, null where the C library lacks the symbols.
        unsafe {
            asm!(
                "mov {o}, qword ptr [rip + __rseq_offset@GOTPCREL]",
                "mov {s}, qword ptr [rip + __rseq_size@GOTPCREL]",
                o = out(reg) offset,
                s = out(reg) size,
                options(nostack, preserves_flags, readonly),
            );
        }
        if offset == 0 || size == 0 {
            return None;
        }
        // SAFETY: glibc's constants, of these types: `const ptrdiff_t` and `const unsigned int`.
        let (offset, size) = unsafe {
            (
                *core::ptr::with_exposed_provenance::<isize>(offset),
                *core::ptr::with_exposed_provenance::<u32>(size),
            )
        };
        (size != 0).then(|| (thread_pointer().wrapping_add_signed(offset), size))
    }

    fn errno() -> i32 {
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() }
    }

    fn prctl(what: libc::c_ulong, value: libc::c_ulong) -> Result<(), Support> {
        // SAFETY: plain numbers.
        match unsafe { libc::prctl(PR_RSEQ_SLICE_EXTENSION, what, value, 0, 0) } {
            0.. => Ok(()),
            _ if errno() == ENOTSUPP || errno() == libc::EOPNOTSUPP => Err(Support::Off),
            _ if errno() == libc::EINVAL => Err(Support::Absent),
            _ => Err(Support::Taken),
        }
    }

    /// The thread's `struct rseq`, long enough, with the extension enabled.
    pub fn rseq() -> Result<usize, Support> {
        prctl(GET, 0)?;
        let rseq = match of_libc() {
            Some((_, size)) if size < LONG_ENOUGH => return Err(Support::TooShort),
            Some((rseq, _)) => rseq,
            None => {
                let rseq = ours();
                // SAFETY: the room is this thread's, aligned and as long as stated, for as long as the thread lives: the C library frees
                // a thread's memory after the kernel has done with the thread.
                let result = unsafe { libc::syscall(libc::SYS_rseq, rseq, SIZE, 0, SIGNATURE) };
                if result != 0 {
                    return Err(Support::Taken);
                }
                rseq
            }
        };
        prctl(SET, ENABLE)?;
        Ok(rseq)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod place {
    use super::Support;

    pub fn get() -> usize {
        super::NOT_THIS
    }

    pub fn set(_: usize) {}

    pub fn of_libc() -> Option<(usize, u32)> {
        None
    }

    pub fn rseq() -> Result<usize, Support> {
        Err(Support::Absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_asked_owes_nothing() {
        std::thread::spawn(|| {
            withdraw();
            assert!(!owes());
            assert!(known().is_none());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_was_found_stays_found() {
        std::thread::spawn(|| {
            let found = support();
            assert_eq!(support(), found);
            request();
            withdraw();
            assert_eq!(known().is_some(), found == Support::Ready);
        })
        .join()
        .unwrap();
    }
}
