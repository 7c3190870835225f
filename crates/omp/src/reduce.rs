// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions of a construct's variables, for compilers that let the runtime add up what the members have.

use std::cell::Cell;
use std::ffi::c_void;

use linux::Linux;
use sync::openmp::Part;

use crate::thread::Thread;
use crate::wait::ByUser;

/// A member's part of that.
pub struct Reducing {
    /// Reductions in this region; `None` in a league's team, which the member runs for itself.
    count: Cell<Option<u32>>,
    is_in: Cell<bool>,
    part: Part<Linux, c_void>,
}

impl Default for Reducing {
    fn default() -> Self {
        Self { count: Cell::new(Some(0)), is_in: Cell::new(false), part: Part::default() }
    }
}

impl Reducing {
    /// A region begins.
    #[inline]
    pub(crate) fn restart(&self) {
        self.count.set(Some(0));
        self.is_in.set(false);
    }

    /// Does what the others do not come to.
    pub fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        let count = self.count.take();
        let result = work();
        self.count.set(count);
        result
    }
}

/// Has the member's data added to those of others; true if it is to add what it has now, and then call
/// [`leave`]. `None` where the members cannot do it together.
///
/// # Safety
/// All members of the team come here, with data for which `combine(to, from)` may be called.
pub unsafe fn enter(
    thread: &Thread,
    data: *mut c_void,
    combine: unsafe extern "C" fn(*mut c_void, *mut c_void),
) -> Option<bool> {
    let (team, member) = (thread.team(), thread.member());
    let number = member.reducing.count.get().filter(|_| !team.is_alone())?;
    member.reducing.count.set(Some(number.wrapping_add(1)));
    let part = |member: u32| &team.member(member as usize).reducing.part;
    let is_in = team.reduction.0.enter::<ByUser, _>(member.number(), number, data, part, |to, from| {
        // SAFETY: as promised; they are of the same reduction.
        unsafe { combine(to, from) };
    });
    member.reducing.is_in.set(is_in);
    Some(is_in)
}

/// Leaves, if it is in; true then.
pub fn leave(thread: &Thread) -> bool {
    let is_in = thread.member().reducing.is_in.replace(false);
    if is_in {
        let team = thread.team();
        team.reduction.0.leave(|member| &team.member(member as usize).reducing.part);
    }
    is_in
}
