// SPDX-License-Identifier: MIT OR Apache-2.0
//! On this computer.

use super::*;

fn rounds() -> u32 {
    if long() { 20_000 } else { 1_000 }
}

#[test]
fn threads() {
    exclusion::<Linux, Wakeful<Linux>>(32, rounds());
    supply::<Linux, Wakeful<Linux>>(31, rounds());
    turns::<Linux, Wakeful<Linux>>(rounds() * 10);
    for patience_ns in [0, 1_000, 200_000] {
        timing::<Linux, Wakeful<Linux>>(32, rounds(), patience_ns);
    }
}

#[test]
fn threads_with_lying_hints() {
    type P = Twisted<Linux, Lying>;
    exclusion::<P, Wakeful<P>>(8, rounds());
    supply::<P, Wakeful<P>>(7, rounds());
}
