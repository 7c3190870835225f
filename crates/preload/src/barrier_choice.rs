// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which algorithm the barriers use: as [`crate::choice`], by `WAKEFUL_BARRIER`.
//!
//! Nothing is written at load unless there is a name: a page that a start touches costs it a fault. Barriers
//! that another library makes before that are default ones.

use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

use catalog::{NamedBarrier, named_barrier};
use linux::Linux;

/// Null for the default.
static ALGORITHM: AtomicPtr<NamedBarrier> = AtomicPtr::new(null_mut());

/// The default's name.
const DEFAULT: &str = "b-wakeful";

/// Makes the choice, at load, before a program can change the environment.
#[inline(always)]
pub fn decide() {
    linux::server::variable(linux::environment::BARRIER, choose);
}

/// A name that is not there, and the default's, leave the default.
#[cold]
#[inline(never)]
fn choose(name: &[u8]) -> Option<()> {
    let name = core::str::from_utf8(name).ok().filter(|&name| name != DEFAULT);
    let chosen = name.and_then(named_barrier::<Linux>)?;
    ALGORITHM.store(from_ref(chosen).cast_mut(), Relaxed);
    Some(())
}

/// The algorithm asked for, `None` for the default.
pub fn algorithm() -> Option<&'static NamedBarrier> {
    // SAFETY: null, or points to a constant, which needs no ordering.
    unsafe { ALGORITHM.load(Relaxed).as_ref() }
}
