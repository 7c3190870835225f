// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which algorithm the barriers use: as [`crate::choice`], by `WAKEFUL_BARRIER`.

use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use catalog::{NamedBarrier, named_barrier};
use linux::Linux;

static DECIDED: AtomicBool = AtomicBool::new(false);
static ALGORITHM: AtomicPtr<NamedBarrier> = AtomicPtr::new(null_mut());

/// The default's name.
const DEFAULT: &str = "b-wakeful";

/// Makes the choice, once. Two threads that come here together find the same.
#[cold]
pub fn decide() {
    if DECIDED.load(Relaxed) {
        return;
    }
    // At load, before a program can change the environment.
    let asked_for = linux::server::variable(linux::environment::BARRIER, |name| {
        let name = core::str::from_utf8(name).ok().filter(|&name| name != DEFAULT)?;
        named_barrier::<Linux>(name)
    });
    ALGORITHM.store(asked_for.map_or(null_mut(), |it| from_ref(it).cast_mut()), Relaxed);
    // ORDER: Release, pairs with the Acquire in `algorithm`; publishes ALGORITHM.
    DECIDED.store(true, Release);
}

/// The algorithm asked for, `None` for the default.
pub fn algorithm() -> Option<&'static NamedBarrier> {
    // ORDER: Acquire, pairs with the Release in `decide`.
    if !DECIDED.load(Acquire) {
        decide();
    }
    // SAFETY: null, or points to a constant.
    unsafe { ALGORITHM.load(Relaxed).as_ref() }
}
