// SPDX-License-Identifier: MIT OR Apache-2.0
//! In loom.

use super::*;

#[test]
fn loom_team() {
    loom("team, one helper", 3, || jobs::<Loom, Wakeful<_>>(1, &[None, None], Kind::Free));
    loom("team, one helper, bound", 3, || jobs::<Loom, Wakeful<_>>(1, &[None, None], Kind::Bound));
    loom("team, two helpers", 2, || jobs::<Loom, Wakeful<_>>(2, &[None], Kind::Free));
    loom("team, a failure", 3, || jobs::<Loom, Wakeful<_>>(1, &[Some(1), None], Kind::Free));
    loom("team, nobody there", 3, || alone::<Loom, Wakeful<_>>(2));
}

#[test]
fn loom_chunks() {
    loom("chunks, dynamic", 3, || chunks::<Loom>(2, Schedule::Dynamic { chunk: 1 }, 3));
    loom("chunks, guided", 3, || chunks::<Loom>(2, Schedule::Guided { least: 1 }, 4));
}
