// SPDX-License-Identifier: MIT OR Apache-2.0
//! In loom.

use super::*;

#[test]
fn loom_exclusion() {
    loom("spin, two", 3, || bodies::exclusion::<Loom, Spin<Loom>>(2, 2));
    loom("spin, three", 2, || bodies::exclusion::<Loom, Spin<Loom>>(3, 1));
}

#[test]
fn loom_trying() {
    loom("spin, trying", 2, || bodies::trying::<Loom, Spin<Loom>>(2, 2));
}
