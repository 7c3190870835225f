// SPDX-License-Identifier: MIT OR Apache-2.0
//! W4: what a thread remembers of how it fared with locks, and what follows from it. Hints all.
//!
//! Some locks are not what their threads wait for: each is held for a moment and then free for long. There
//! choosiness (W3) only delays. A thread that meets such a lock *shares*: it takes locks when it finds them
//! free. It stops when it waits for more than a quarter of its time, and does not try again for `BAN`
//! waits. The thread also remembers how often of late it spun in vain for a holder of which nobody knows
//! whether it runs, or for how long ([`crate::wait::vain`]).

use platform::{Atomic, Ordering::*, Platform, ThreadId};

use super::limits;
use crate::wait::vain;

// Words of a thread's block, above those of the line: ns waited and ns between waits, both decaying; when
// it last had to wait; its mode.
const WAITED: usize = 4;
const BETWEEN: usize = 5;
const LAST: usize = 6;
const MODE: usize = 7;

/// MODE: the thread shares. Without this bit: for how many waits it does not try to.
const SHARING: u32 = 1 << 31;
/// COST: waits without a trial after one that failed, by trial. Cell: `bench mutex`, 20 lines, 400 outside.
const BAN: u32 = 60;

/// Bits of MODE where `vain` keeps what the thread learned as a standby (W5).
pub const STANDBY: u32 = 8;
/// The same, as an arrival (W1).
pub const ARRIVAL: u32 = STANDBY + vain::BITS;
const VAIN: u32 = ((1 << (2 * vain::BITS)) - 1) << STANDBY;

/// So many waits reaches the memory back, about: see [`shares`].
const MEMORY: u32 = 32;

/// What BETWEEN may hold, in ns, so that a thread which is back after a long time starts from recent memory
/// only.
const BETWEEN_MOST: u32 = 100_000;

/// Does this thread share locks now? It stops when it waits for more than a quarter of its time. COST: with
/// an eighth, one of several threads was often found not to share, which took up to a third of the rate (8
/// threads, 5 lines, 2000 units outside). With a MEMORY of 8 waits chance decided, and then BAN held for many
/// turns: 0.85 of the rate (4 to 32 threads, 20 lines, 400 units outside). Both are cells of `bench mutex`.
pub fn shares<P: Platform>(me: ThreadId, now: u64) -> bool {
    if me == ThreadId::NONE {
        return false;
    }
    let (waited, between) = (P::word(me, WAITED), P::word(me, BETWEEN));
    let since = (now as u32).wrapping_sub(P::word(me, LAST).load(Relaxed)).min(BETWEEN_MOST);
    let sum = faded(between.load(Relaxed)) + since;
    between.store(sum, Relaxed);
    match mode::<P>(me) {
        SHARING if waited.load(Relaxed) < sum / 4 => true,
        SHARING => {
            set_mode::<P>(me, BAN);
            false
        }
        ban => {
            set_mode::<P>(me, ban.saturating_sub(1));
            false
        }
    }
}

/// A sum of the memory, one wait later.
fn faded(sum: u32) -> u32 {
    sum - sum / MEMORY
}

fn mode<P: Platform>(thread: ThreadId) -> u32 {
    P::word(thread, MODE).load(Relaxed) & !VAIN
}

fn set_mode<P: Platform>(me: ThreadId, mode: u32) {
    let word = P::word(me, MODE);
    word.store(word.load(Relaxed) & VAIN | mode, Relaxed);
}

/// W1, W5. How long the thread spins for a holder of whom nobody knows whether it runs: this long at most.
pub fn in_the_dark<P: Platform>(me: ThreadId, shift: u32, most: u64) -> u64 {
    let times = if me == ThreadId::NONE { 0 } else { P::word(me, MODE).load(Relaxed) >> shift };
    vain::limit(times, most)
}

/// Remembers how that went.
pub fn learn<P: Platform>(me: ThreadId, shift: u32, in_vain: bool) {
    if me != ThreadId::NONE {
        let word = P::word(me, MODE);
        let old = word.load(Relaxed);
        let field = ((1 << vain::BITS) - 1) << shift;
        word.store(old & !field | vain::learned(old >> shift, in_vain) << shift, Relaxed);
    }
}

/// HINT: of another thread.
pub fn is_sharing<P: Platform>(thread: ThreadId) -> bool {
    thread != ThreadId::NONE && mode::<P>(thread) == SHARING
}

/// Adds a wait to the thread's memory.
pub fn remember<P: Platform>(me: ThreadId, arrived: u64) {
    if me == ThreadId::NONE {
        return;
    }
    let now = P::now_ns();
    let word = P::word(me, WAITED);
    let waited = now.saturating_sub(arrived).min(limits::wait_most::<P>()) as u32;
    word.store(faded(word.load(Relaxed)) + waited, Relaxed);
    P::word(me, LAST).store(now as u32, Relaxed);
}

/// The thread stood in another's way: it shares no more, until it finds out anew.
pub fn keep<P: Platform>(me: ThreadId) {
    if is_sharing::<P>(me) {
        set_mode::<P>(me, 0);
    }
}

/// The thread met a lock that is nearly always free: it may share, if it does not already. False while it
/// is banned.
pub fn try_share<P: Platform>(me: ThreadId) -> bool {
    if me == ThreadId::NONE || mode::<P>(me) != 0 {
        return is_sharing::<P>(me);
    }
    set_mode::<P>(me, SHARING);
    P::word(me, WAITED).store(0, Relaxed);
    P::word(me, BETWEEN).store(BETWEEN_MOST, Relaxed);
    true
}
