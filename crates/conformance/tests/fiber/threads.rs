// SPDX-License-Identifier: MIT OR Apache-2.0
//! On this computer.

use super::*;

#[test]
fn threads() {
    for _ in 0..2_000 * further() {
        stealing::<Linux, Of<Linux>>(3, 40);
        parking::<Linux, Token<Linux>>(4);
        parking_and_waiting::<Linux, Token<Linux>>(3);
        ending::<Linux, 0>(true);
        ending::<Linux, 0>(false);
    }
    for _ in 0..500 * further() {
        seats::<Linux, NONE>(4, 2, 50);
        hearing::<Linux, NONE>();
        coming_back::<Linux, NONE>(Then::Waits);
        coming_back::<Linux, NONE>(Then::Blocks);
        coming_back::<Linux, NONE>(Then::Rests);
        calling::<Linux, NONE>();
        spreading::<Linux, NONE>(1, 9);
        moving::<Linux, NONE>(2, false);
        ringing::<Linux, NONE>(3);
        steering::<Linux, Steer<Linux>>(3, 50);
        rounds::<Linux, NONE>();
        bolting::<Linux, Bolt<Linux>>(4, 100);
        notifying::<Linux, NONE>(4, false, true);
        notifying::<Linux, NONE>(4, true, false);
        visiting::<Linux, Guests<Linux>, NONE>(4);
    }
}
