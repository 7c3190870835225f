// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a default lock tells a scheduler that listens: that its holder matters, and wishes not to be
//! preempted.
//!
//! A lock of the catalogue tells because it was chosen for that. A default tells only where somebody acts on
//! it ([`Platform::hands_off`]), and nowhere else does it cost anything. A thread *publishes* from its first
//! `lock` on that has to do more than one compare-and-swap under such a scheduler: so much is in its stamp,
//! which the lock looks at anyway.
//!
//! - S1. Before it tries for a lock, the thread wishes not to be preempted, and has the priority of a holder
//!   ([`claim`]). If it gets the lock at once, no moment inside is without.
//! - S2. If it has to wait, it stands as a contender (S8), and the wish ends, unless it holds another lock
//!   ([`wait`]). Then it keeps the wish, and stands above those who do nothing special: others wait for it.
//! - S3. With the lock it counts it ([`entered`]) in [`Platform::holds`], with those of `-informing` and
//!   `-np`. After a wait it wishes again here, some instructions after it has got the lock.
//! - S4. After the release the count is one less. With the last lock the wish ends, and the priority is the
//!   thread's own again ([`left`]), which the program may have set ([`set_own`]).
//! - S5. If the kernel has put a preemption off (KE-2), the thread yields. If a thread that matters more is
//!   without a processor, it hands its own off (ICPP 2001, figure 1, lines 32 and 42).
//!
//! - S6. At a barrier or as a standby, nobody can name the threads that are waited for. A thread that waits
//!   there awake is a contender meanwhile ([`waiting`]).
//! - S7. Whom somebody waits for stands above all ([`Priority::AwaitedHolder`]), if it does not say itself
//!   that it holds a lock: the waiter says it for it ([`hand_along`]). A waiter that is a holder has been
//!   raised itself by those who wait for it. So the priority goes along the chain of owners that the lock
//!   words name. The waiter has seen to it before that the holder's release takes its slow path, which ends
//!   it ([`let_go`]).
//! - S8. No default names the thread that goes on next. Whoever lets waiters go on could not raise one that
//!   has lost its processor, and threads that poll would come before it for ever. So a waiter is a
//!   *contender*: it stands as high as those that compute, and gives way to them by falling asleep, or by
//!   yielding. The paper has LOCK_IMMEDIATE_WAITER_PRIORITY, "equal to, or higher than RUNNING", for whoever
//!   may have the lock next (section 4).
//!
//! HINT: all of it. A lock that was taken before the thread published counts at its release all the same.
//! Then the wish of one that is held yet ends too early, once.

use platform::{Atomic, Ordering::*, Platform, Priority, ThreadId};

use super::{Informing, SHIELD, Unpreemptable};

/// In [`Platform::holds`]: the thread's own priority, by exclusive or with that of one who does nothing
/// special, so that zeros say this.
pub(super) const OWN_SHIFT: u32 = 12;
const OWN: u32 = (SHIELD - 1) & !((1 << OWN_SHIFT) - 1);

/// The priority that a thread has while it neither waits nor holds a lock.
pub fn own<P: Platform>(thread: ThreadId) -> Priority {
    own_of(P::holds(thread).map_or(0, |holds| holds.load(Relaxed)))
}

pub(super) fn own_of(holds: u32) -> Priority {
    Priority::from_u32((holds & OWN) >> OWN_SHIFT ^ Priority::Running as u32)
}

/// Sets that of the calling thread, and returns what it was. Above it stands whoever holds a lock.
pub fn set_own<P: Platform>(me: ThreadId, priority: Priority) -> Priority {
    let before = own::<P>(me);
    if let Some(holds) = P::holds(me) {
        let bits = (priority as u32 ^ Priority::Running as u32) << OWN_SHIFT;
        let now = holds.load(Relaxed) & !OWN | bits;
        holds.store(now, Relaxed);
        if now & super::RAISED == 0 {
            P::set_priority(me, priority);
        }
    }
    before
}

/// S1. Returns the thread.
pub fn claim<P: Platform>() -> ThreadId {
    let me = super::shield::<Unpreemptable, P>();
    P::set_priority(me, Priority::LockHolder);
    me
}

/// S2.
pub fn wait<P: Platform>(me: ThreadId) {
    super::unshield::<Unpreemptable, P>(me);
    P::set_priority(me, contender::<P>(me));
}

/// S8.
fn contender<P: Platform>(me: ThreadId) -> Priority {
    match super::raised::<P>(me) {
        true => Priority::LockImmediateWaiter,
        false => own::<P>(me).min(Priority::Running),
    }
}

/// S8, for one that tells wherever a view looks: where nobody acts on it, its priority is `seen` by others.
pub fn waits_as<P: Platform>(me: ThreadId, seen: Priority) -> Priority {
    if P::hands_off() { contender::<P>(me) } else { seen }
}

/// What a thread has that does not wait.
fn of_its_own<P: Platform>(me: ThreadId) -> Priority {
    if super::raised::<P>(me) { Priority::LockHolder } else { own::<P>(me) }
}

fn restore<P: Platform>(me: ThreadId) {
    P::set_priority(me, of_its_own::<P>(me));
}

/// S6.
pub fn waiting<P: Platform, T>(wait: impl FnOnce() -> T) -> T {
    if !P::hands_off() {
        return wait();
    }
    let me = P::register_lazily();
    P::set_priority(me, contender::<P>(me));
    let result = wait();
    restore::<P>(me);
    result
}

/// S7. The calling thread waits for this one, which `holds` what it waits for: asked again afterwards.
pub fn hand_along<P: Platform>(holder: ThreadId, holds: impl Fn() -> bool) {
    let now = P::priority(holder);
    if now < Priority::LockHolder && P::change_priority(holder, now, Priority::AwaitedHolder) && !holds() {
        P::change_priority(holder, Priority::AwaitedHolder, now);
    }
}

/// S7. This thread, which does not publish, has released a lock for which somebody waits; or nobody waits any
/// more.
pub fn let_go<P: Platform>(holder: ThreadId) {
    if P::hands_off() {
        P::change_priority(holder, Priority::AwaitedHolder, of_its_own::<P>(holder));
    }
}

/// S3, after S1 or a wait.
pub fn entered<P: Platform>() {
    let me = super::shield::<Unpreemptable, P>();
    super::inside::<Unpreemptable, P>(me);
    super::entered::<Informing, P>(me);
}

/// It will not have the lock: as if it had not come.
pub fn gave_up<P: Platform>() {
    let me = P::current();
    super::unshield::<Unpreemptable, P>(me);
    restore::<P>(me);
}

/// S4.
pub fn left<P: Platform>() -> ThreadId {
    let me = super::withdraw::<Unpreemptable, P>();
    super::left::<Informing, P>(me);
    me
}

/// S5, when those are woken who were to be.
pub fn repay<P: Platform>(me: ThreadId) {
    super::repay::<Unpreemptable, P>(me);
    // HINT: wrong, a thread that matters more has to wait for a processor, or a yield is in vain.
    let holds = super::raised::<P>(me) || super::is_inside::<P>(me);
    if !holds && P::higher_preempted(own::<P>(me)) {
        P::hand_off();
    }
}
