// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every algorithm of the catalogue in loom.

use conformance::loom::{Bounds, Loom, explore};
use conformance::{bodies, distinct, further, long};

use super::settings;

fn bounds(preemptions: usize, executions: usize) -> Bounds {
    Bounds { preemptions: preemptions + long() as usize, executions: executions * further() }
}

/// Not further in the long exploration: where a thread is preempted in the model's futex while another one
/// unwinds, loom's own mutex takes itself for poisoned, because for the standard library both are one
/// thread.
const UNWINDING: Bounds = Bounds { preemptions: 2, executions: 500 };

fn report(name: &str, executions: usize) {
    eprintln!("loom: {name}: {executions} executions");
}

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(mod $ident {
            use super::*;
            type P = Loom;

            fn entry() -> &'static catalog::Entry {
                catalog::entry($name).expect("it is in the catalogue")
            }

            #[test]
            fn two() {
                for settings in distinct(&settings(entry())) {
                    let ran = explore(concat!($name, ", two"), settings, bounds(3, 2_000), || {
                        bodies::exclusion::<P, $type>(2, 2)
                    });
                    report(concat!($name, ", two"), ran);
                }
            }

            #[test]
            fn three() {
                for settings in distinct(&settings(entry())) {
                    let ran = explore(concat!($name, ", three"), settings, bounds(2, 2_000), || {
                        bodies::exclusion::<P, $type>(3, 1)
                    });
                    report(concat!($name, ", three"), ran);
                }
            }

            #[test]
            fn trying() {
                for settings in distinct(&settings(entry())) {
                    let ran = explore(concat!($name, ", trying"), settings, bounds(2, 1_000), || {
                        bodies::trying::<P, $type>(2, 2)
                    });
                    report(concat!($name, ", trying"), ran);
                }
            }

            #[test]
            fn wishing() {
                if !entry().wishes {
                    return;
                }
                for settings in distinct(&settings(entry())) {
                    let ran = explore(concat!($name, ", wishing"), settings, bounds(2, 500), || {
                        bodies::wishing::<P, $type>(2, 1)
                    });
                    report(concat!($name, ", wishing"), ran);
                }
            }

            #[test]
            fn unwinding() {
                for settings in distinct(&settings(entry())) {
                    let ran = explore(concat!($name, ", unwinding"), settings, UNWINDING, || {
                        bodies::unwinding::<P, $type>(2)
                    });
                    report(concat!($name, ", unwinding"), ran);
                }
            }

            #[test]
            fn going() {
                for settings in distinct(&settings(entry())) {
                    let ran = explore(concat!($name, ", going"), settings, bounds(2, 1_000), || {
                        bodies::going::<P, $type>()
                    });
                    report(concat!($name, ", going"), ran);
                }
            }

            timed_only! { $kind
                #[test]
                fn timing() {
                    for settings in distinct(&settings(entry())) {
                        let ran = explore(concat!($name, ", timing"), settings, bounds(2, 2_000), || {
                            bodies::timing::<P, $type>(3, 1, 3_000_000)
                        });
                        report(concat!($name, ", timing"), ran);
                    }
                }

                #[test]
                fn timing_out() {
                    for settings in distinct(&settings(entry())) {
                        let ran = explore(concat!($name, ", timing out"), settings, bounds(2, 1_000), || {
                            bodies::timing_out::<P, $type>(3_000_000)
                        });
                        report(concat!($name, ", timing out"), ran);
                    }
                }
            }
        })*
    };
}
catalog::mutexes!(suite);
