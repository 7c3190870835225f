// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every delegating lock on this computer, with many more threads than processors.

use conformance::delegate as bodies;
use conformance::long;
use conformance::twist::{Fickle, Lying, Roomy, Strangers, Twisted};
use linux::Linux;
use platform::{Atomic, Ordering::Relaxed, ThreadId};
use sync::delegate::{CcSynch, FlatCombining, Rcl};
use sync::wait::answer::{Answer, DONE};

fn rounds() -> u32 {
    if long() { 2_000 } else { 100 }
}

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(mod $ident {
            use super::*;

            #[test]
            fn exclusion() {
                type P = Linux;
                for threads in [1, 2, 8, 32] {
                    bodies::exclusion::<P, $type>(threads, rounds());
                }
            }

            #[test]
            fn exclusion_with_wrong_hints() {
                {
                    type P = Twisted<Linux, Lying>;
                    bodies::exclusion::<P, $type>(8, rounds());
                }
                type P = Twisted<Linux, Fickle>;
                bodies::exclusion::<P, $type>(8, rounds());
            }

            #[test]
            fn unwinding() {
                type P = Linux;
                bodies::unwinding::<P, $type>(8, rounds());
            }

            #[test]
            fn nesting() {
                type P = Linux;
                bodies::nesting::<P, $type>(8, rounds());
            }

            timed_only! { $kind
                #[test]
                fn holding() {
                    type P = Linux;
                    bodies::holding::<P, $type>(32, rounds());
                }

                #[test]
                fn timing() {
                    type P = Linux;
                    bodies::timing::<P, $type>(32, rounds(), 200_000);
                    bodies::timing::<P, $type>(32, rounds(), 0);
                }

                #[test]
                fn strangers() {
                    type P = Twisted<Linux, Strangers>;
                    bodies::exclusion::<P, $type>(8, rounds());
                }
            }
        })*
    };
}
catalog::delegates!(suite);

#[test]
fn more_clients_than_places() {
    bodies::exclusion::<Linux, CcSynch<Linux, 3>>(32, rounds());
    bodies::exclusion::<Linux, FlatCombining<Linux, 3>>(32, rounds());
    bodies::exclusion::<Linux, Rcl<Linux, 3>>(32, rounds());
}

/// More threads at once, and one after the other, than there are seats for one thread each.
#[test]
fn seats_of_threads_that_are_gone() {
    for _ in 0..3 {
        bodies::exclusion::<Linux, CcSynch<Linux>>(80, rounds() / 10);
        bodies::exclusion::<Linux, FlatCombining<Linux>>(80, rounds() / 10);
        bodies::exclusion::<Linux, Rcl<Linux>>(80, rounds() / 10);
    }
    bodies::passing::<Linux, CcSynch<Linux, 2>>(40, rounds() / 10);
    bodies::passing::<Linux, FlatCombining<Linux, 2>>(40, rounds() / 10);
    bodies::passing::<Linux, Rcl<Linux, 2>>(40, rounds() / 10);
}

/// Threads without an id have no place of their own, and a server must have one.
#[test]
fn strangers() {
    type P = Twisted<Linux, Strangers>;
    bodies::exclusion::<P, CcSynch<P>>(8, rounds());
    bodies::exclusion::<P, FlatCombining<P>>(8, rounds());
    assert!(!sync::delegate::RawDelegate::<P>::serve(&<Rcl<P> as sync::delegate::RawDelegate<P>>::new()));
}

#[test]
fn two_locks_of_one_server() {
    bodies::two_locks::<Linux>(1, 8, rounds());
    bodies::two_locks::<Linux>(3, 8, rounds());
    bodies::two_locks::<Twisted<Linux, Lying>>(3, 8, rounds());
    bodies::serving_in_turn::<Linux>();
}

#[test]
fn locks_that_clients_hold() {
    bodies::held_locks::<Linux>(8, rounds());
    bodies::held_locks::<Twisted<Linux, Lying>>(8, rounds());
}

/// Two servers of one lock, which relieve each other.
#[test]
fn spare_threads() {
    for threads in [2, 8] {
        bodies::with_a_spare::<Linux, Rcl<Linux, 2>>(threads, rounds());
        bodies::unwinding_beside::<Linux, Rcl<Linux, 2>>(2, threads, rounds());
    }
    bodies::with_a_spare::<Twisted<Linux, Lying>, Rcl<_, 2>>(8, rounds());
}

/// Who knows nothing waits two ticks for a spare thread.
#[test]
fn sections_that_wait_for_others() {
    for asleep in [false, true] {
        bodies::waiting_inside::<Linux>(rounds(), asleep);
        bodies::waiting_inside::<Twisted<Linux, Fickle>>(rounds(), asleep);
    }
}

/// Clients of a server give up, with slots for all of them and without, and with deadlines that are past.
#[test]
fn requests_that_are_taken_back() {
    for patience in [0, 2_000, 20_000, 200_000] {
        bodies::timing::<Linux, Rcl<Linux>>(8, rounds(), patience);
        bodies::timing::<Linux, Rcl<Linux, 2>>(16, rounds(), patience);
    }
    bodies::timing::<Twisted<Linux, Fickle>, Rcl<_, 2>>(8, rounds(), 20_000);
}

#[test]
fn requests_that_are_left_with_a_server() {
    bodies::leaving_with_a_server::<Linux>(1, 8, rounds());
    bodies::leaving_with_a_server::<Linux>(2, 8, rounds());
    bodies::leaving_with_a_server::<Twisted<Linux, Fickle>>(2, 8, rounds());
}

/// Without a call at each request that is left this hangs.
#[test]
fn requests_that_wait_for_one_another() {
    for _ in 0..100 {
        for asleep in [false, true] {
            bodies::leaving_one_that_waits::<Linux>(asleep);
            bodies::leaving_one_that_waits::<Twisted<Linux, Fickle>>(asleep);
        }
    }
}

#[test]
fn requests_that_are_left() {
    // As often as it takes until both have happened.
    let mut came = [0, 0];
    for _ in 0..1_000 {
        let more = bodies::leaving::<Linux>(16, rounds());
        came = [came[0] + more[0], came[1] + more[1]];
        if came.iter().all(|&count| count > 0) {
            break;
        }
    }
    assert!(came.iter().all(|&count| count > 0), "others ran, and were withdrawn: {came:?}");
    bodies::leaving::<Twisted<Linux, Fickle>>(8, rounds());
}

/// Where there is room, a client says that it waits before it looks for long, and not only before it sleeps.
#[test]
fn a_long_look_is_told_of() {
    type P = Twisted<Linux, Roomy>;
    let answer = Answer::<P>::waiting();
    let waiting = answer.word().load(Relaxed);
    let tell = || {
        assert_eq!(answer.word().load(Relaxed), waiting, "it was asleep before it told anybody");
        // SAFETY: the word is there.
        unsafe { Answer::give(&raw const answer, DONE) };
    };
    assert_eq!(answer.wait_telling(&Atomic::new(0), || ThreadId::NONE, tell), DONE);
}

/// A section that forks: in the child the server leaves, and runs nobody else's request.
#[test]
fn a_section_forks() {
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};
    use sync::delegate::RawDelegate;

    static HOME: AtomicU32 = AtomicU32::new(0);
    unsafe fn section(context: *mut ()) {
        if std::process::id() != HOME.load(SeqCst) {
            // SAFETY: ends the child, which runs a request of a thread that it has not.
            unsafe { libc::_exit(2) };
        }
        // SAFETY: null, or what the client passes.
        if let Some(child) = unsafe { context.cast::<AtomicI32>().as_ref() } {
            // SAFETY: the child uses what it inherited, then leaves by _exit. If it hangs, the alarm ends it.
            unsafe {
                child.store(libc::fork(), SeqCst);
                if child.load(SeqCst) == 0 {
                    libc::alarm(10);
                }
            }
        }
    }
    HOME.store(std::process::id(), SeqCst);
    let rcl = Rcl::<Linux, 4>::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let served = rcl.serve();
            if std::process::id() != HOME.load(SeqCst) {
                // SAFETY: ends the child, running nothing of the parent's.
                unsafe { libc::_exit(i32::from(served)) };
            }
            assert!(served, "it could not serve");
        });
        let client = |forks: bool| {
            for _ in 0..10 {
                let child = AtomicI32::new(0);
                let context = if forks { (&raw const child).cast_mut().cast() } else { std::ptr::null_mut() };
                // SAFETY: it does not unwind, and does not come here again.
                unsafe { rcl.run(section, context) };
                let mut status = 0;
                if forks {
                    let child = child.load(SeqCst);
                    // SAFETY: our child, and a valid pointer.
                    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                }
                assert_eq!(status, 0, "the child went on as a server");
            }
        };
        let clients: Vec<_> = (0..4).map(|index| scope.spawn(move || client(index < 2))).collect();
        let ended: Vec<_> = clients.into_iter().map(|client| client.join().is_ok()).collect();
        rcl.close();
        assert_eq!(ended, [true; 4]);
    });
}
