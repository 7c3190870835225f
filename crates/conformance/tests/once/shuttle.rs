// SPDX-License-Identifier: MIT OR Apache-2.0
//! In shuttle.

use super::*;

#[test]
fn shuttle_once() {
    shuttle(|| once::<Shuttle, Wakeful<Shuttle>>(5, 0));
    shuttle(|| once::<Shuttle, Wakeful<Shuttle>>(4, 3));
}
