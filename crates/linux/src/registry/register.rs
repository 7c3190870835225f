// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread registers, and unregisters.

use core::sync::atomic::Ordering::*;

use abi::View;
use platform::ThreadId;

use super::space::{VIEWS, ensure, live};
use super::watch::{ALWAYS, ON_DEMAND, RESTLESS, UNWATCHED};
use super::{exit, lent, observe};
use crate::signals::NoSignals;
use crate::view::bpf::Bpf;
use crate::view::{Attached, Source};
use crate::{futex, tls};

/// The calling thread's id, registering it on first use, and watched, at once or when it is worth while: see
/// [`platform::Platform::register_lazily`].
///
/// Under a scheduler a thread is always watched at once: the scheduler writes the arena at each switch
/// anyway, and what a thread does not enrol for, the scheduler does not act on.
pub fn register(mut always: bool) -> ThreadId {
    if let Some(registry) = live() {
        let local = registry.local();
        always |= registry.is_schedulers();
        if tls::epoch() == local.epoch.load(Relaxed) {
            let id = ThreadId(tls::id());
            if registry.sees_me(id) && registry.content(id, always) {
                return id;
            }
        } else if local.full.load(Relaxed) != 0 && futex::now_ns() < local.reclaim_at.load(Relaxed) {
            return ThreadId::NONE;
        }
    }
    match lent::lender() {
        Some(owner) => register_with(owner, always),
        None => register_slow(always),
    }
}

/// B3 of `lent`: by the owner of the space.
#[cold]
#[inline(never)]
fn register_with(owner: &lent::Owner, always: bool) -> ThreadId {
    while !tls::closed() && ensure().is_some() {
        let id = (owner.register)(u32::from(always));
        let Some(registry) = live() else { continue };
        // ORDER: Acquire, as in `register_slow`.
        let epoch = registry.local().epoch.load(Acquire);
        if id != tls::id() {
            // Its locks' part of the stamp goes with the old id.
            tls::set_id(id);
        }
        if id == 0 {
            break;
        }
        crate::reading::announce(id);
        tls::set_epoch(epoch);
        if epoch == registry.local().epoch.load(Relaxed) {
            return ThreadId(id);
        }
    }
    ThreadId::NONE
}

#[cold]
#[inline(never)]
fn register_slow(always: bool) -> ThreadId {
    if tls::closed() {
        return ThreadId::NONE;
    }
    let _errno = futex::Errno::save();
    let _signals = NoSignals::new();
    observe::join_first();
    let Some(registry) = ensure() else { return ThreadId::NONE };
    let local = registry.local();
    let always = always || registry.is_schedulers();
    let mine = ThreadId(tls::id());
    if tls::epoch() == local.epoch.load(Relaxed) {
        let chosen = registry.chosen();
        // The thread is not content, or a handler registered us before signals were off, or we read that we
        // do not run: the view has missed a switch, or it is dead.
        if registry.sees_me(mine) || Bpf::attach(registry.slot(mine)) == Attached::Yes {
            registry.reconsider(mine, always);
            return mine;
        }
        if chosen.view() == View::Bpf {
            registry.lose(chosen);
        }
    }
    // ORDER: Acquire, pairs with `change_epoch`: the thread enrols with what the view has now.
    let epoch = local.epoch.load(Acquire);
    let id = if mine != ThreadId::NONE && tls::epoch() >> VIEWS == epoch >> VIEWS {
        // The same process, another view: the block stays ours.
        if registry.view() == View::Bpf {
            registry.end_ring(mine);
        }
        match registry.own(mine).watch.load(Relaxed) {
            UNWATCHED | RESTLESS if !always => {}
            ON_DEMAND if !always => registry.watch(mine, ON_DEMAND),
            _ => registry.watch(mine, ALWAYS),
        }
        mine
    } else {
        registry.add(always)
    };
    if id != mine {
        // Its locks' part of the stamp goes with the old id.
        tls::set_id(id.0);
    }
    if id != ThreadId::NONE {
        tls::set_epoch(epoch);
        exit::arm();
    }
    id
}

/// Unregisters the calling thread for good; it keeps working, unseen.
pub fn unregister() {
    let _errno = futex::Errno::save();
    let _signals = NoSignals::new();
    let id = ThreadId(tls::id());
    let epoch = tls::epoch();
    tls::close();
    tls::set_id(0);
    tls::set_epoch(0);
    lent::ends();
    if id != ThreadId::NONE
        && let Some(registry) = live()
        && epoch >> VIEWS == registry.local().epoch.load(Relaxed) >> VIEWS
    {
        registry.remove(id);
    }
}

/// Gives the program the pthread key by which exits of threads are noticed: it has none left. From then on
/// the blocks of threads that exited are reclaimed when they are needed. False if there is no such key.
pub fn give_key_back() -> bool {
    exit::give_back()
}
