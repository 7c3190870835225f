// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the ways of making partitions share: names, a process's group, and errors.

use std::io;

use crate::kernel::Set;

pub(super) const DEFAULT: &str = "wakeful-default";
pub(super) const PREFIX: &str = "wakeful-";
/// In a group that takes no processes itself: where those go that go back there.
pub(super) const LEFT: &str = "wakeful-left";
/// BOUND: of members without processors, so many have a control group. To each of these groups every change
/// of the default partition is written too, which takes 10 to 40 us (Linux 6.18, 2 processors, Nov 2026).
pub const READY: usize = 16;
/// BOUND: to look who has come meanwhile. A thread that is born has its creator's mask and group, so two are
/// enough but for those that do it to hold us up.
pub(super) const ROUNDS: usize = 8;
/// Not 0 while grace periods of RCU are to be short, at the cost of interrupts to all processors.
pub const EXPEDITE: &str = "/sys/kernel/rcu_expedited";
/// What we write there. The kernel takes each number but 0 for the same, and administrators write 1.
pub(super) const EXPEDITED: &str = "2";

/// A process's control group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) processors: Set,
    /// They are nobody else's.
    pub(super) own: bool,
}

pub(super) fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

pub(super) fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

pub(super) fn numbers(text: &str) -> impl Iterator<Item = u32> {
    text.split_whitespace().filter_map(|word| word.parse().ok())
}
