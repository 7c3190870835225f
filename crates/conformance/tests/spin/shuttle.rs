// SPDX-License-Identifier: MIT OR Apache-2.0
//! In shuttle.

use super::*;

#[test]
fn shuttle_exclusion() {
    shuttle("spin, exclusion", || bodies::exclusion::<Shuttle, Spin<Shuttle>>(4, 3));
}

#[test]
fn shuttle_trying() {
    shuttle("spin, trying", || bodies::trying::<Shuttle, Spin<Shuttle>>(4, 3));
}

#[test]
fn shuttle_nesting() {
    shuttle("spin, nesting", || bodies::nesting::<Shuttle, Spin<Shuttle>>(3, 2, false));
}
