// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel views: where the knowledge about threads comes from. One file per view; each implements [`Source`], and the
//! registry is the only one that calls it.

pub mod bpf;
pub mod none;
pub mod perf;

use abi::Thread;
pub use abi::View;
use platform::{RunState, ThreadId};

/// A thread's places in the registry.
#[derive(Clone, Copy)]
pub struct Slot {
    pub(crate) id: ThreadId,
    pub(crate) block: &'static Thread,
    /// [`perf::RING`] bytes of address space.
    pub(crate) ring: *mut u8,
    /// See `bpf::Enrolment`.
    pub(crate) enrolment: i32,
}

/// What came of attaching a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// The view sees the thread.
    Yes,
    /// There is no room for this one; it stays [`RunState::Unknown`].
    NotThis,
    /// The view will not see any further thread of this process.
    Never,
}

/// One view. System calls and atomics only: called within locks and `malloc`. May change errno.
pub(crate) trait Source {
    /// Begins to watch the calling thread, whose slot this is.
    fn attach(slot: Slot) -> Attached;
    /// Ends it.
    fn detach(slot: Slot);
    /// HINT: what the view last heard of the slot's thread.
    fn run_state(slot: Slot) -> RunState;
    /// How often the slot's thread, which is watched, left its processor; from any start, modulo at least 2^32.
    fn switches(slot: Slot) -> u32;
}

/// A person's choice of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The best one that there is.
    Auto,
    /// This one, or what comes after it if it cannot be had: bpf, perf, none.
    Only(View),
}

/// The names that [`abi::environment::VIEW`] may hold, with their meaning, best first.
pub const NAMES: [(&str, Request); 4] = [
    ("auto", Request::Auto),
    ("bpf", Request::Only(View::Bpf)),
    ("perf", Request::Only(View::Perf)),
    ("none", Request::Only(View::None)),
];

/// The name of a view in [`NAMES`].
pub fn name(view: View) -> &'static str {
    NAMES.iter().find(|(_, request)| *request == Request::Only(view)).map_or("none", |(name, _)| name)
}

impl Request {
    /// The request of this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|&(_, request)| request)
    }

    /// What the environment asks for. An unknown name counts as `auto`: a library has nobody to complain to.
    #[inline(always)]
    pub(crate) fn from_environment() -> Self {
        crate::server::variable(abi::environment::VIEW, Self::named).unwrap_or(Self::Auto)
    }

    /// May the bpf view be tried?
    pub(crate) fn allows_bpf(self) -> bool {
        matches!(self, Self::Auto | Self::Only(View::Bpf))
    }

    /// The view to begin with where bpf is not to be had.
    pub(crate) fn without_bpf(self) -> View {
        if self == Self::Only(View::None) { View::None } else { View::Perf }
    }
}
