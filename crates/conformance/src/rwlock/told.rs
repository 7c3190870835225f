// SPDX-License-Identifier: MIT OR Apache-2.0
//! What writers tell a scheduler that listens.

use platform::{Priority, Wish};
use sync::rwlock::RawRwLock;
use sync::wait::publish;

use super::{As, Shared, mixed};
use crate::Machine;
use crate::bodies::together;

/// Where a scheduler listens, a writer tells all of what it is or nothing, also beside another lock that it
/// holds. A reader tells nothing. A thread that holds nothing is as before. For each writer that tells,
/// `told` is called.
pub fn publishing<M: Machine, L: RawRwLock<M> + 'static>(threads: u32, rounds: u32, told: fn()) {
    let outer = Shared::<M, L>::new();
    let inner = Shared::<M, L>::new();
    let (first, second) = (outer.clone(), inner.clone());
    together::<M>(threads, move |index| {
        let me = M::register();
        if index % 2 == 1 {
            publish::set_own::<M>(me, Priority::LockWaiter);
        }
        let nothing = (publish::own::<M>(me), Wish::Preemptable);
        let now = || (M::priority(me), M::wish(me));
        let tells = || match now() {
            (Priority::LockHolder, Wish::UnpreemptableSelf) => true,
            now => {
                assert_eq!(now, nothing, "a holder tells a part");
                false
            }
        };
        for round in 0..rounds {
            let (first_node, second_node, third_node) =
                (L::Node::default(), L::Node::default(), L::Node::default());
            let how = mixed(index, round);
            let a = first.guard(&first_node, how);
            let a_tells = tells();
            assert!(!a_tells || matches!(how, As::Writer), "a reader tells");
            a.work();
            let b = second.guard(&second_node, As::Writer);
            assert!(!a_tells || tells(), "a writer does not tell what it told before");
            assert!(first.try_guard(&third_node, As::Writer).is_none(), "a writer got in beside a holder");
            b.work();
            let both = tells();
            drop(b);
            assert_eq!(tells(), a_tells, "with one of two locks another one's word is gone");
            drop(a);
            assert_eq!(now(), nothing, "a thread that holds nothing is not as before");
            if both {
                told();
            }
            drop(first.try_guard(&third_node, mixed(index, round + 1)));
            assert_eq!(now(), nothing, "a thread that tried is not as before");
        }
        publish::set_own::<M>(me, Priority::Running);
    });
    outer.finish();
    inner.finish();
}
