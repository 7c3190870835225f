// SPDX-License-Identifier: MIT OR Apache-2.0
//! On this computer.

use super::*;

#[test]
fn threads_exclusion() {
    let rounds = if long() { 20_000 } else { 500 };
    bodies::exclusion::<Linux, Spin<Linux>>(32, rounds);
    bodies::exclusion::<Twisted<Linux, Lying>, Spin<Twisted<Linux, Lying>>>(8, rounds / 10);
}

#[test]
fn threads_trying() {
    bodies::trying::<Linux, Spin<Linux>>(8, 500);
}
