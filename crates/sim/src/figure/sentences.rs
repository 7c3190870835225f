// SPDX-License-Identifier: MIT OR Apache-2.0
//! More sentences of the TR about one figure: orders that the text mentions in passing.

use super::Bound::{AtLeast, AtMost};
use super::{Claim, Data};

pub(super) const TR52: &str = "TR 1994, section 5.2";
pub(super) const TR53: &str = "TR 1994, section 5.3";
pub(super) const TR54: &str = "TR 1994, section 5.4";

/// The levels at which others run, too, and the highest.
pub(super) const SHARED: &[f64] = &[2.0, 3.0];
pub(super) const MOST: f64 = 3.0;
/// Locks that queue whatever the scheduler does.
pub(super) const OBLIVIOUS: &[&str] = &["queue", "queue-np", "ticket-spin"];

/// How many times as long Queue takes as Queue-np, the geometric mean of levels 2 and 3.
fn queue_by_np(data: &Data) -> f64 {
    let of = |level: f64| data.at("queue", level) / data.at("queue-np", level);
    (of(2.0) * of(3.0)).sqrt()
}

/// Of figure 13.
pub(super) const QUEUE_NP_HELPS: Claim = Claim {
    words: "Preventing preemption in the critical section helps Queue a little",
    source: TR52,
    measure: "Queue by Queue-np, geometric mean of levels 2 and 3",
    number: queue_by_np,
    note: "",
    bound: AtLeast(1.0),
};

/// The paper has no number for it: less than twice.
pub(super) const QUEUE_NP_NOT_MUCH: Claim = Claim {
    words: "Preventing preemption in the critical section does not help Queue much",
    source: TR52,
    measure: "Queue by Queue-np, geometric mean of levels 2 and 3",
    number: queue_by_np,
    note: "Nearly all that both lose is to preempted waiters (wakeful sim lost): how often one is handed the \
        lock is chance, and few quanta decide it",
    bound: AtMost(2.0),
};

/// Of figure 14: slower, and only a little.
pub(super) const SMART_Q: [Claim; 2] = [
    Claim {
        words: "Smart-Q is still slower than TAS-B-np",
        source: TR52,
        measure: "Smart-Q by TAS-B-np, at levels 2 and 3, the smaller; 5 % faster is allowed",
        number: |data| data.least(&["smart-q"], &["tas-b-np"], SHARED),
        note: "",
        bound: AtLeast(0.95),
    },
    Claim {
        words: "Smart-Q is only a little slower than TAS-B-np",
        source: TR52,
        measure: "Smart-Q by TAS-B-np, at levels 2 and 3, the larger",
        number: |data| data.worst(&["smart-q"], &["tas-b-np"], SHARED),
        note: "",
        bound: AtMost(1.25),
    },
];

/// Of figure 28.
pub(super) const COM_TREE: Claim = Claim {
    words: "Even Com-tree performs quite badly in the presence of multiprogramming",
    source: TR54,
    measure: "Com-tree by Scal-SC, at 16 to 57 processors, the smallest",
    number: |data| data.least(&["com-tree"], &["scal-sc"], &[16.0, 32.0, 48.0, 57.0]),
    note: "",
    bound: AtLeast(2.0),
};
