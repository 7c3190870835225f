// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another barrier than the default at which a team meets, where `WAKEFUL_BARRIER` names one.
//!
//! The catalogue's barriers know nothing of tasks. So a member runs tasks, and waits for those that others
//! run, before it arrives. A member that has arrived runs none. Tasks of a later member are run by that one,
//! or by members that come after it.
//! Regions end, and cancelled ones meet, at the default barrier all the same.

use std::alloc::Layout;

use catalog::NamedBarrier;

use crate::icv::settings;
use crate::memory::{self, Need};

/// A team's barrier, of a kind that the user has named.
pub struct Named {
    kind: &'static NamedBarrier,
    at: *mut u8,
    layout: Layout,
}

impl Named {
    /// For so many members. `None` where the default is to be used, or there is no memory.
    pub fn new(parties: u32) -> Option<Self> {
        let kind = settings().barrier?;
        let layout = kind.layout(parties)?;
        let at = memory::get(layout, Need::Wish);
        // SAFETY: memory of this layout.
        (!at.is_null()).then(|| unsafe {
            kind.make(at, parties);
            Self { kind, at, layout }
        })
    }

    /// Waits as this member.
    #[cold]
    #[inline(never)]
    pub fn wait(&self, number: u32) {
        // SAFETY: `new` has made it; each member has a number of its own.
        unsafe { self.kind.wait_as(self.at, number) };
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // SAFETY: between regions: all members have left, and come to the region's end. In a forked child
        // they are none.
        unsafe { memory::put(self.at, self.layout) };
    }
}
