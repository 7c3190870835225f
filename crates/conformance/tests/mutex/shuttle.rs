// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every algorithm of the catalogue in shuttle: more threads and rounds than loom can bear, random schedules.

use conformance::shuttle::{Schedules, Shuttle, explore};
use conformance::{bodies, distinct, further};

use super::settings;

const SCHEDULES: [Schedules; 2] = [Schedules::Random, Schedules::Pct(3)];

fn count(default: usize) -> usize {
    default * further()
}

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(mod $ident {
            use super::*;
            type P = Shuttle;

            fn each(what: &str, default: usize, body: fn()) {
                let entry = catalog::entry($name).expect("it is in the catalogue");
                let mut ran = 0;
                for settings in distinct(&settings(entry)) {
                    for schedules in SCHEDULES {
                        ran += explore(settings, schedules, count(default), body);
                    }
                }
                eprintln!("shuttle: {}, {what}: {ran} executions", entry.name);
            }

            #[test]
            fn exclusion() {
                each("exclusion", 200, || bodies::exclusion::<P, $type>(4, 3));
            }

            #[test]
            fn trying() {
                each("trying", 100, || bodies::trying::<P, $type>(4, 3));
            }

            #[test]
            fn nesting() {
                each("nesting", 100, || bodies::nesting::<P, $type>(3, 2, $name.ends_with("-informing")));
            }

            #[test]
            fn wishing() {
                if catalog::entry($name).is_some_and(|entry| entry.wishes) {
                    each("wishing", 100, || bodies::wishing::<P, $type>(3, 2));
                }
            }

            timed_only! { $kind
                #[test]
                fn timing() {
                    each("timing", 200, || bodies::timing::<P, $type>(4, 3, 3_000_000));
                }

                #[test]
                fn timing_out() {
                    // Too sequential for PCT.
                    let entry = catalog::entry($name).expect("it is in the catalogue");
                    for settings in distinct(&settings(entry)) {
                        explore(settings, Schedules::Random, count(100), || {
                            bodies::timing_out::<P, $type>(3_000_000)
                        });
                    }
                }
            }
        })*
    };
}
catalog::mutexes!(suite);
