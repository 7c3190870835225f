// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a waiter does while it is awake: it looks, pauses, and looks again, less and less often.

use platform::{Platform, Priority, RunState, ThreadId};

use super::Preemption;

/// Begins a wait. The thread becomes known to the kernel view, and the count of processors is not older
/// than a second. Returns the thread and the time.
#[inline]
pub fn begin<P: Platform>() -> (ThreadId, u64) {
    let me = P::register_lazily();
    (me, begin_unnamed::<P>())
}

/// The same for a thread that nobody waits for by its name, as at a barrier, or that is known. Returns the
/// time.
#[inline]
pub fn begin_unnamed<P: Platform>() -> u64 {
    let now = P::now_ns();
    P::refresh_processors(Some(now));
    now
}

/// COST: threads of other programs for each processor. Beside more of them a thread has less than a third of
/// its processor. Cells: those of `wakeful sim knowledge`. Beside one, staying awake is the gain; beside
/// three it loses.
const CROWDED: u32 = 2;

/// HINT: has each thread of ours a processor ([`Platform::roomy`]), and yet other programs take most of it,
/// so that who waits awake waits for them? Not asked of two processors, where nobody waits for long. Nor is
/// it asked if the holder says what it is to somebody who acts on it: then it keeps its processor, and to
/// sleep takes 2.3 to 6 times as long (`wakeful sim defaults`, level 4).
pub fn is_crowded<N: Preemption, P: Platform>(now: u64) -> bool {
    let stays = || N::WISHES && P::honours_wishes() || N::PUBLISHES && P::hands_off();
    P::roomy()
        && P::processors() > 2
        && !stays()
        && P::crowd(now, P::processors()).is_some_and(|crowd| crowd.others > CROWDED * crowd.processors)
}

/// HINT: has each thread of ours a processor, and nobody takes it from those that matter?
pub fn has_room<N: Preemption, P: Platform>(now: u64) -> bool {
    P::roomy() && !is_crowded::<N, P>(now)
}

/// HINT: do other programs share few processors with us, on which not each thread of ours has room? Not asked
/// where a scheduler goes by what the threads say.
pub fn is_beside_others<N: Preemption, P: Platform>(now: u64) -> bool {
    let told = N::PUBLISHES && P::hands_off();
    !told && !P::roomy() && P::is_beside_others(now)
}

/// HINT: the state of a thread that the caller has waited for, for so many ns. If no view watches it, and it
/// was last on the caller's processor, it does not run ([`Platform::last_here`]). That costs a system call,
/// so a waiter of less than a switch does not ask.
pub fn state_after<P: Platform>(thread: ThreadId, waited: u64) -> RunState {
    match P::run_state(thread) {
        RunState::Unknown if waited >= P::costs().switch && P::last_here(thread) => RunState::Preempted,
        state => state,
    }
}

/// HINT: may this thread be running? A thread of which nobody knows may.
#[inline]
pub fn may_run<P: Platform>(thread: ThreadId) -> bool {
    may_run_after::<P>(thread, 0)
}

/// HINT: the same, by [`state_after`].
pub fn may_run_after<P: Platform>(thread: ThreadId, waited: u64) -> bool {
    !matches!(state_after::<P>(thread, waited), RunState::Preempted | RunState::Blocked)
}

/// HINT: does a preempted thread of this program matter more than one that waits? False where no view looks.
#[inline]
pub fn is_wanted<P: Platform>() -> bool {
    P::higher_preempted(Priority::LockWaiter)
}

/// Pauses until then, at least once. Returns the time.
pub fn pause_until<P: Platform>(ns: u64) -> u64 {
    loop {
        P::pause();
        let now = P::now_ns();
        if now >= ns {
            return now;
        }
    }
}

/// Looks until there is nothing to wait for (true), until the thread that is waited for does not run, or
/// until `limit` has passed (false).
///
/// Each look returns the thread that is waited for, or `None` if the wait is over. The gaps between looks
/// double, from `gap` to `most`. Times in ns.
pub fn while_it_runs<P: Platform>(
    limit: u64,
    gap: u64,
    most: u64,
    mut look: impl FnMut() -> Option<ThreadId>,
) -> bool {
    let start = P::now_ns();
    let (mut now, mut gap) = (start, gap);
    loop {
        let Some(thread) = look() else { return true };
        if now >= start + limit || !may_run_after::<P>(thread, now - start) {
            return false;
        }
        now = pause_until::<P>(now + gap);
        gap = (gap * 2).min(most);
    }
}
