// SPDX-License-Identifier: MIT OR Apache-2.0
//! On this computer.

use super::*;

#[test]
fn threads() {
    for round in 0..100 * further() as u32 {
        once::<Linux, Wakeful<Linux>>(16, round % 4);
        once::<Twisted<Linux, Lying>, Wakeful<_>>(8, round % 2);
    }
    poison::<Linux, Wakeful<Linux>>();
}
