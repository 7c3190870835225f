// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every algorithm of the catalogue on this computer, with many more threads than processors.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::twist::{Lying, Twisted};
use conformance::{Machine, bodies, long};
use linux::Linux;
use sync::mutex::RawMutex;

/// COST: a lock that is oblivious of the scheduler waits for a slice (3 ms on 2 processors) at nearly each of these.
fn rounds() -> u32 {
    if long() { 2_000 } else { 12 }
}

const MANY: u32 = 32;

/// Waiters are served as they came. A waiter may be preempted between saying that it comes and coming: then again.
fn in_order<M: Machine, L: RawMutex<M> + 'static>() {
    let waiters = 4;
    let attempt = || {
        let lock = Arc::new(L::new());
        let node = L::Node::default();
        let order = Arc::new(Mutex::new(Vec::new()));
        // SAFETY: unlocked below, with this node.
        unsafe { lock.lock(&node) };
        let handles: Vec<_> = (0..waiters)
            .map(|index| {
                let (lock, order) = (lock.clone(), order.clone());
                let (here, comes) = mpsc::channel();
                let handle = M::spawn(move || {
                    let node = L::Node::default();
                    here.send(()).unwrap();
                    // SAFETY: unlocked with this node.
                    unsafe {
                        lock.lock(&node);
                        order.lock().unwrap().push(index);
                        lock.unlock(&node);
                    }
                });
                comes.recv().unwrap();
                std::thread::sleep(Duration::from_millis(10));
                handle
            })
            .collect();
        // SAFETY: locked above, with this node.
        unsafe { lock.unlock(&node) };
        handles.into_iter().for_each(M::join);
        order.lock().unwrap().is_sorted()
    };
    assert!((0..10).any(|_| attempt()), "not served in the order of arrival, ten times");
}

macro_rules! timed_only {
    (timed $($item:item)*) => { $($item)* };
    ($kind:ident $($item:item)*) => {};
}

macro_rules! suite {
    ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*], $citation:literal, $summary:literal })*) => {
        $(mod $ident {
            use super::*;

            fn entry() -> &'static catalog::Entry {
                catalog::entry($name).expect("it is in the catalogue")
            }

            #[test]
            fn exclusion() {
                type P = Linux;
                bodies::exclusion::<P, $type>(MANY, rounds());
            }

            #[test]
            fn exclusion_with_lying_hints() {
                type P = Twisted<Linux, Lying>;
                bodies::exclusion::<P, $type>(8, rounds());
            }

            #[test]
            fn trying() {
                type P = Linux;
                bodies::trying::<P, $type>(8, rounds());
            }

            #[test]
            fn nesting() {
                type P = Linux;
                bodies::nesting::<P, $type>(4, rounds(), $name.ends_with("-informing"));
            }

            #[test]
            fn unwinding() {
                type P = Linux;
                bodies::unwinding::<P, $type>(4);
            }

            #[test]
            fn order() {
                type P = Linux;
                if entry().fair {
                    in_order::<P, $type>();
                }
            }

            timed_only! { $kind
                #[test]
                fn timing() {
                    type P = Linux;
                    bodies::timing::<P, $type>(MANY, rounds(), 200_000);
                    bodies::timing::<P, $type>(MANY, rounds(), 0);
                }

                #[test]
                fn timing_out() {
                    type P = Linux;
                    for patience_ns in [0, 1, 50_000, 5_000_000] {
                        bodies::timing_out::<P, $type>(patience_ns);
                    }
                }
            }
        })*
    };
}
catalog::mutexes!(suite);
