// SPDX-License-Identifier: MIT OR Apache-2.0
//! In loom.

use super::*;

#[test]
fn loom_once() {
    loom("once, two", || once::<Loom, Wakeful<Loom>>(2, 0));
    loom("once, two, a failure", || once::<Loom, Wakeful<Loom>>(2, 1));
    loom("once, three", || once::<Loom, Wakeful<Loom>>(3, 0));
    loom("once, poison", poison::<Loom, Wakeful<Loom>>);
}
