// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that this crate asks of the kernel about nodes, so that tests can have several, or a kernel that
//! refuses.

use core::ffi::{CStr, c_int, c_long};
use core::fmt::{self, Write};
use core::ptr::null_mut;

/// Why the kernel refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            libc::EPERM => f.write_str("not permitted: a container's seccomp profile, most often"),
            libc::ENOSYS => f.write_str("this kernel was built without NUMA"),
            libc::EINVAL => f.write_str("there is no such node, or this program may not have its memory"),
            number => write!(f, "errno {number}"),
        }
    }
}

/// What this crate asks of the kernel.
pub trait Kernel: Sync {
    /// `mbind`: pages of this range that do not exist yet come from `node`, while it has some; `None`: from
    /// where who touches them first runs. The range is whole pages.
    fn bind(&self, at: usize, size: usize, node: Option<u32>) -> Result<(), Errno>;

    /// `move_pages`: puts each page on the node of the same index, if any are given, and says of each where
    /// it is now, or the negative error. A page that stays where it is is no error.
    fn place(&self, pages: &[usize], to: Option<&[c_int]>, found: &mut [c_int]) -> Result<(), Errno>;

    /// `get_mempolicy`: on how many nodes the program may have memory.
    fn nodes(&self) -> Result<u32, Errno>;

    /// The node that has all processors on which the calling thread may run.
    fn home(&self) -> Option<u32>;
}

/// The kernel that this program runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

/// Leaves errno as it was: `free` must, and where `malloc` does not fail it need not tell.
pub struct Quiet(c_int);

impl Quiet {
    pub fn new() -> Self {
        // SAFETY: this thread's own.
        Self(unsafe { *libc::__errno_location() })
    }

    /// What a system call returned.
    fn result(&self, returned: c_long) -> Result<(), Errno> {
        // SAFETY: as above. More than 0: so many pages stayed where they were.
        if returned < 0 { Err(Errno(unsafe { *libc::__errno_location() })) } else { Ok(()) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// From linux/mempolicy.h. Preferred, and not bound strictly: where a node has no memory left, a page of
/// another one is better than the kernel's ending the program.
const MPOL_DEFAULT: c_int = 0;
const MPOL_PREFERRED: c_int = 1;
const MPOL_F_MEMS_ALLOWED: c_int = 4;
const MPOL_MF_MOVE: c_int = 2;

/// BOUND: Linux has at most 1024 nodes.
const NODES: usize = 1024;
type Mask = [u64; NODES / 64];

impl Kernel for Here {
    fn bind(&self, at: usize, size: usize, node: Option<u32>) -> Result<(), Errno> {
        let mut mask: Mask = [0; NODES / 64];
        let (mode, bits) = match node {
            None => (MPOL_DEFAULT, 0),
            Some(node) => {
                let node = node as usize;
                *mask.get_mut(node / 64).ok_or(Errno(libc::EINVAL))? |= 1 << (node % 64);
                // The kernel counts one bit more than it reads.
                (MPOL_PREFERRED, NODES + 1)
            }
        };
        let quiet = Quiet::new();
        // SAFETY: the mask has so many bits. It says where pages come from, never what they hold.
        quiet.result(unsafe { libc::syscall(libc::SYS_mbind, at, size, mode, mask.as_ptr(), bits, 0) })
    }

    fn place(&self, pages: &[usize], to: Option<&[c_int]>, found: &mut [c_int]) -> Result<(), Errno> {
        let count = pages.len().min(found.len()).min(to.map_or(usize::MAX, <[_]>::len));
        let to = to.map_or(core::ptr::null(), <[_]>::as_ptr);
        let quiet = Quiet::new();
        // SAFETY: all three have so many elements. Addresses that are not mapped are an answer, no error.
        quiet.result(unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                count,
                pages.as_ptr(),
                to,
                found.as_mut_ptr(),
                MPOL_MF_MOVE,
            )
        })
    }

    fn nodes(&self) -> Result<u32, Errno> {
        let mut mask: Mask = [0; NODES / 64];
        let quiet = Quiet::new();
        let mode = null_mut::<c_int>();
        // SAFETY: the mask has so many bits.
        quiet.result(unsafe {
            libc::syscall(libc::SYS_get_mempolicy, mode, mask.as_mut_ptr(), NODES + 1, 0, MPOL_F_MEMS_ALLOWED)
        })?;
        Ok(mask.iter().map(|word| word.count_ones()).sum())
    }

    fn home(&self) -> Option<u32> {
        let _quiet = Quiet::new();
        let (mut processor, mut node) = (0u32, 0u32);
        // SAFETY: two numbers that live.
        if unsafe { libc::syscall(libc::SYS_getcpu, &mut processor, &mut node, null_mut::<u8>()) } != 0 {
            return None;
        }
        // BOUND: for as many as Linux can have, 8192.
        let mut mask = [0u64; 128];
        // SAFETY: the mask has so many bytes.
        let bytes =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
        let processors = usize::try_from(bytes).ok()? * 8;
        let may = |processor: &usize| mask[processor / 64] >> (processor % 64) & 1 == 1;
        (0..processors).filter(may).all(|processor| is_on(processor, node)).then_some(node)
    }
}

/// Has this node this processor? By sysfs, which has a link of that name.
fn is_on(processor: usize, node: u32) -> bool {
    let mut path = Path([0; 80], 0);
    let written = write!(path, "/sys/devices/system/cpu/cpu{processor}/node{node}\0");
    let Ok(path) = CStr::from_bytes_until_nul(&path.0) else { return false };
    // SAFETY: a C string.
    written.is_ok() && unsafe { libc::access(path.as_ptr(), libc::F_OK) == 0 }
}

struct Path([u8; 80], usize);

impl Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.1 + text.len();
        self.0.get_mut(self.1..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.1 = end;
        Ok(())
    }
}
