// SPDX-License-Identifier: MIT OR Apache-2.0
//! In shuttle.

use super::*;

#[test]
fn shuttle_team() {
    shuttle(|| jobs::<Shuttle, Wakeful<_>>(3, &[None, None, Some(2), None], Kind::Free));
    shuttle(|| jobs::<Shuttle, Wakeful<_>>(2, &[None, None], Kind::Bound));
    shuttle(|| chunks::<Shuttle>(3, Schedule::Guided { least: 1 }, 9));
    shuttle(|| chunks::<Shuttle>(3, Schedule::Dynamic { chunk: 2 }, 9));
}
