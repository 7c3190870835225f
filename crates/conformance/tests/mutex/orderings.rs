// SPDX-License-Identifier: MIT OR Apache-2.0
//! Situations that the other loom tests do not come to at their bounds and that some ordering is for.
//! `cargo xtask mutate` says which.

use conformance::Hints;
use conformance::bodies;
use conformance::loom::{Loom, reach};
use platform::RunState;
use sync::mutex::{Mcs, Wakeful};
use sync::wait::Informing;

const PREEMPTED: Hints = Hints::Always(RunState::Preempted);

/// A thread that has slept for the lock releases it while one sleeps in line behind its successor (R4).
#[test]
fn loom_mcs_informing_sleepers_in_line() {
    reach("mcs-informing, convoy", PREEMPTED, (1, 15_000), || {
        bodies::convoy::<Loom, Mcs<Loom, Informing>>(4, 0)
    });
}

/// Sleepers come while the standby takes the lock and promotes the oldest.
#[test]
fn loom_wakeful_sleepers_come() {
    reach("wakeful, convoy", PREEMPTED, (1, 5_000), || bodies::convoy::<Loom, Wakeful<Loom>>(3, 2));
    reach("wakeful, convoy of four", PREEMPTED, (2, 15_000), || bodies::convoy::<Loom, Wakeful<Loom>>(4, 0));
}

/// The standby, promoted from the line, takes the lock while another thread, the relay, is to promote the
/// next (A3, Q4).
#[test]
fn loom_wakeful_relay() {
    reach("wakeful, relay", PREEMPTED, (2, 15_000), || bodies::convoy::<Loom, Wakeful<Loom>>(4, 1));
}
