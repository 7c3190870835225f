// SPDX-License-Identifier: MIT OR Apache-2.0
//! In shuttle.

use super::*;

#[test]
fn shuttle_all() {
    shuttle(hearing::<Shuttle, NONE>);
    shuttle(|| coming_back::<Shuttle, NONE>(Then::Waits));
    shuttle(|| coming_back::<Shuttle, NONE>(Then::Blocks));
    shuttle(|| coming_back::<Shuttle, NONE>(Then::Rests));
    shuttle(calling::<Shuttle, NONE>);
    shuttle(|| spreading::<Shuttle, NONE>(1, 5));
    shuttle(|| moving::<Shuttle, NONE>(1, false));
    shuttle(|| moving::<Shuttle, NONE>(2, false));
    shuttle(|| ringing::<Shuttle, NONE>(3));
    shuttle(|| steering::<Shuttle, Steer<Shuttle>>(3, 5));
    shuttle(|| bolting::<Shuttle, Bolt<Shuttle>>(3, 3));
    shuttle(|| notifying::<Shuttle, NONE>(3, false, true));
    shuttle(|| notifying::<Shuttle, NONE>(3, true, true));
    shuttle(rounds::<Shuttle, NONE>);
    shuttle(|| posting::<Shuttle, NONE>(false));
    shuttle(|| posting::<Shuttle, NONE>(true));
    shuttle(|| visiting::<Shuttle, Guests<Shuttle>, NONE>(3));
    shuttle(|| stealing::<Shuttle, Of<Shuttle>>(3, 8));
    shuttle(|| parking::<Shuttle, Token<Shuttle>>(4));
    shuttle(|| parking_and_waiting::<Shuttle, Token<Shuttle>>(3));
    shuttle(|| ending::<Shuttle, 0>(true));
    shuttle(|| ending::<Shuttle, 0>(false));
    shuttle(|| seats::<Shuttle, NONE>(3, 2, 4));
}
