// SPDX-License-Identifier: MIT OR Apache-2.0
//! In shuttle.

use super::*;

#[test]
fn shuttle_all() {
    each::<Shuttle>().into_iter().for_each(shuttle);
    shuttle(regions::<Shuttle>);
}
