// SPDX-License-Identifier: MIT OR Apache-2.0
//! In shuttle.

use super::*;

#[test]
fn shuttle_exclusion() {
    shuttle("semaphore, exclusion", 200, || exclusion::<Shuttle, Wakeful<Shuttle>>(5, 4));
}

#[test]
fn shuttle_supply() {
    // Tokens come while those who were woken for others are on their way.
    shuttle("semaphore, supply", 300, || supply::<Shuttle, Wakeful<Shuttle>>(6, 3));
}

#[test]
fn shuttle_timing() {
    shuttle("semaphore, timing", 200, || timing::<Shuttle, Wakeful<Shuttle>>(5, 3, 3_000_000));
}
