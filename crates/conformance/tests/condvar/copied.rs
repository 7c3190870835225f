// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words that a fork copied, with threads of the parent on them that are not here.

use super::*;

const GENERATION_2: u32 = 2 << 2;
/// A standby; a signalled one; sleepers; in flight; pending; a chain; skip; all of them.
const COPIES: [u32; 8] =
    [1, 2, 3 << 22, 2 << 5, 1 << 13 | 1 << 5, 5 << 13, 7 << 10, 2 | 31 << 5 | 5 << 13 | 1023 << 22];

#[test]
fn works_afresh() {
    for state in COPIES {
        for settings in conformance::distinct(&hinted(&STEPS)) {
            let settings = Settings { generation: 3, ..settings };
            let bounds = Bounds { preemptions: 2, executions: 100 };
            let body = move || {
                bodies::signals_of::<Loom, Native<Loom>, _>(in_state(state | GENERATION_2), 1, 1, true)
            };
            conformance::loom::explore("condvar, copied by fork", settings, bounds, body);
            let body = move || {
                bodies::signals_of::<Shuttle, Native<Shuttle>, _>(in_state(state | GENERATION_2), 3, 2, false)
            };
            conformance::shuttle::explore(settings, Schedules::Random, 20, body);
        }
    }
}
