// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a registry is lent and borrowed: step B1 of `lent.rs`.

use core::ffi::CStr;
use core::ptr::null_mut;

use abi::environment::OBSERVER;
use abi::{Thread, View};

use super::lent::{Owner, borrow_from, borrowed};
use super::space::{Local, SIZE, ensure, live};
use crate::{server, tls};

/// Counts changes of [`Local`] that its size does not show.
const CHANGES: u64 = 1;
/// Of the space, and of the version.
const LAYOUT: u64 = {
    let mut hash =
        CHANGES << 56 ^ (SIZE as u64) << 24 ^ (size_of::<Local>() as u64) << 12 ^ size_of::<Thread>() as u64;
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let mut at = 0;
    while at < version.len() {
        hash = (hash ^ version[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
};

/// The owner's side.
pub static OWNER: Owner = Owner { layout: LAYOUT, observed, space, register, borrowed };

/// By this name the interposer has a function without arguments that returns its [`Owner`].
const SYMBOL: &CStr = c"wakeful_preload_registry_1";

extern "C" fn observed() -> *mut u8 {
    super::prepare();
    // The runtime's first look: the program has no other thread yet.
    super::observe::join();
    let observed = live().filter(|registry| registry.view() == View::Bpf);
    observed.map_or(null_mut(), |registry| registry.start.as_ptr())
}

extern "C" fn space() -> *mut u8 {
    ensure().map_or(null_mut(), |registry| registry.start.as_ptr())
}

extern "C" fn register(always: u32) -> u32 {
    super::register(always != 0).0
}

/// B4, the borrower's side.
extern "C" fn forget() {
    tls::close();
    tls::set_id(0);
    tls::set_epoch(0);
}

/// B1. True if this library's registry is the interposer's from now on. To be called at program start.
pub fn adopt() -> bool {
    if server::variable(OBSERVER, |_| Some(())).is_none() || live().is_some() {
        return false;
    }
    let found = crate::exported(SYMBOL);
    if found.is_null() {
        return false;
    }
    // SAFETY: of the name that only such a function has.
    let owner = unsafe { core::mem::transmute::<*mut _, extern "C" fn() -> *const Owner>(found)() };
    // SAFETY: a static of the interposer's. If its layout is another one, nothing else of it is used.
    let owner = unsafe { owner.as_ref() }.filter(|owner| owner.layout == LAYOUT);
    let Some(owner) = owner.filter(|owner| !(owner.observed)().is_null()) else { return false };
    (owner.borrowed)(forget);
    borrow_from(owner);
    ensure().is_some()
}
