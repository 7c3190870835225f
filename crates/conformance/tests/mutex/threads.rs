// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every algorithm of the catalogue on this computer, with many more threads than processors.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use conformance::threads::{this_thread, until_it_waits};
use conformance::twist::{Fickle, Lying, Twisted};
use conformance::{Machine, bodies, long};
use linux::Linux;
use platform::{Ordering::*, Platform};
use sync::mutex::{RawMutex, Ticket, TicketNp, Wakeful};
use sync::wait::{Block, Informing, Spin};

/// COST: a lock that keeps its waiters in order and is oblivious of the scheduler waits for a slice (3 ms
/// on 2 processors that do nothing else) at nearly each of these.
fn rounds(entry: &catalog::Entry) -> u32 {
    let slow = entry.fair && !entry.informed;
    match (slow, long()) {
        (true, false) => 20,
        (true, true) => 200,
        (false, false) => 100,
        (false, true) => 2_000,
    }
}

const MANY: u32 = 32;

/// Waiters are served as they came. A waiter may be preempted between saying that it comes and coming: then
/// again.
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
                    here.send(this_thread()).unwrap();
                    // SAFETY: unlocked with this node.
                    unsafe {
                        lock.lock(&node);
                        order.lock().unwrap().push(index);
                        lock.unlock(&node);
                    }
                });
                until_it_waits(&comes.recv().unwrap());
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

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(mod $ident {
            use super::*;

            fn entry() -> &'static catalog::Entry {
                catalog::entry($name).expect("it is in the catalogue")
            }

            #[test]
            fn exclusion() {
                type P = Linux;
                bodies::exclusion::<P, $type>(MANY, rounds(entry()));
            }

            #[test]
            fn exclusion_with_wrong_hints() {
                {
                    type P = Twisted<Linux, Lying>;
                    bodies::exclusion::<P, $type>(8, rounds(entry()));
                }
                type P = Twisted<Linux, Fickle>;
                bodies::exclusion::<P, $type>(8, rounds(entry()));
            }

            #[test]
            fn trying() {
                type P = Linux;
                bodies::trying::<P, $type>(8, rounds(entry()));
            }

            #[test]
            fn nesting() {
                type P = Linux;
                bodies::nesting::<P, $type>(4, rounds(entry()), $name.ends_with("-informing"));
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

            #[test]
            fn wishing() {
                type P = Linux;
                if entry().wishes {
                    bodies::wishing::<P, $type>(4, rounds(entry()));
                }
            }

            timed_only! { $kind
                #[test]
                fn timing() {
                    type P = Linux;
                    bodies::timing::<P, $type>(MANY, rounds(entry()), 200_000);
                    bodies::timing::<P, $type>(MANY, rounds(entry()), 0);
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

/// POSIX leaves open what a release too many does; a program that lives with the C library's answer shall
/// live with ours.
#[test]
fn tickets_released_too_often() {
    bodies::released_too_often::<Linux, Ticket<Linux, Spin>>();
    bodies::released_too_often::<Linux, Ticket<Linux, Block>>();
    bodies::released_too_often::<Linux, Ticket<Linux, Informing>>();
    bodies::released_too_often::<Linux, TicketNp<Linux>>();
}

/// A signal handler that waits for a lock may have interrupted its thread asleep in the line of another,
/// whose links are in the thread's words.
fn leaves_words_in_use<L: RawMutex<Linux, Node = ()> + 'static>() {
    /// OLDER or BELOW, and so on; the last says ASLEEP.
    const IN_USE: [u32; 4] = [7, 8, 9, 1];
    let lock = Arc::new(L::new());
    // SAFETY: unlocked below; there is no node.
    unsafe { lock.lock(&()) };
    let (here, comes) = mpsc::channel();
    let theirs = lock.clone();
    let waiter = std::thread::spawn(move || {
        let me = Linux::register();
        let words = || (0..4).map(|index| Linux::word(me, index));
        words().zip(IN_USE).for_each(|(word, value)| word.store(value, Relaxed));
        here.send(this_thread()).unwrap();
        // SAFETY: unlocked at once; there is no node.
        unsafe {
            theirs.lock(&());
            theirs.unlock(&());
        }
        let kept: Vec<u32> = words().map(|word| word.swap(0, Relaxed)).collect();
        assert_eq!(kept, IN_USE, "the links of another line were overwritten");
    });
    until_it_waits(&comes.recv().unwrap());
    // SAFETY: locked above.
    unsafe { lock.unlock(&()) };
    waiter.join().unwrap();
}

#[test]
fn words_in_use() {
    leaves_words_in_use::<Ticket<Linux, Block>>();
    leaves_words_in_use::<Ticket<Linux, Informing>>();
    leaves_words_in_use::<Wakeful<Linux>>();
}
