// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkers find what is broken.

use super::*;

#[test]
fn loom_finds_the_broken() {
    let finds = |what: &str, body: fn()| conformance::loom::finds(Settings::default(), what, body);
    unfenced(|| {
        finds("a deque without fences", || stealing::<Loom, Of<Loom>>(1, 2));
        finds("a bolt without fences", || bolting::<Loom, Bolt<Loom>>(2, 1));
        finds("seats without fences", || seats::<Loom, NONE>(1, 1, 2));
        finds("an owner that comes back without a fence", stealing_from_the_blocked::<Loom, 1>);
        finds("a thief that has looked before", stealing_from_the_blocked::<Loom, 2>);
    });
    finds("a thief that looks first", || stealing::<Loom, LooksFirst<Loom, <Loom as Machine>::Cell>>(1, 2));
    finds("a token taken by a store", || parking::<Loom, BrokenToken<Loom, 1>>(2));
    finds("a context that is not published", || parking::<Loom, BrokenToken<Loom, 2>>(1));
    finds("a token parked by a store", || parking::<Loom, BrokenToken<Loom, 3>>(1));
    finds("one token for two kinds of wait", || parking_and_waiting::<Loom, BrokenToken<Loom, 4>>(1));
    finds("an unpark that is told late", || parking_and_waiting::<Loom, BrokenToken<Loom, 5>>(1));
    finds("a token given by a store", || parking::<Loom, BrokenToken<Loom, 7>>(2));
    finds("an unpark taken by a store", || parking_and_waiting::<Loom, BrokenToken<Loom, 6>>(2));
    finds("an end that nobody hears of", || ending::<Loom, 1>(true));
    finds("a handle dropped by a look", || ending::<Loom, 2>(false));
    finds("an upcall delivered twice", || seats::<Loom, TWICE>(1, 1, 2));
    finds("a carrier that does not look again", || seats::<Loom, BLIND>(1, 1, 2));
    finds("an upcall lost", || seats::<Loom, FORGOTTEN>(1, 1, 2));
    finds("a carrier silenced with a seat", hearing::<Loom, DEAF>);
    finds("a block while it was silenced", hearing::<Loom, HASTY>);
    finds("an event enabled before there is a seat", hearing::<Loom, EARLY>);
    finds("a block that is over", || coming_back::<Loom, STALE>(Then::Waits));
    finds("another block that is over", || coming_back::<Loom, STALE>(Then::Blocks));
    finds("a carrier that lies down while it is silenced", || coming_back::<Loom, LINGERING>(Then::Rests));
    finds("a call that the other sentinel keeps", calling::<Loom, SELFISH>);
    finds("a fiber left to who is not told", leaving::<Loom, UNTOLD>);
    finds("a fiber left twice", || spreading::<Loom, AGAIN>(1, 4));
    finds("a bell silenced after the poll", || ringing::<Loom, SILENCED_LATE>(1));
    finds("a round that is ended once", rounds::<Loom, ONCE>);
    finds("a carrier that does not wait for who steers it", || {
        steering::<Loom, BrokenSteer<Loom, IMPATIENT>>(1, 2)
    });
    finds("a carrier that does not know that it was steered", || {
        steering::<Loom, BrokenSteer<Loom, UNAWARE>>(1, 2)
    });
    finds("a carrier that waits and is not woken", || steering::<Loom, BrokenSteer<Loom, UNWOKEN>>(1, 2));
    finds("a word before the deed", || steering::<Loom, BrokenSteer<Loom, RASH>>(1, 2));
    finds("who steers and claims nothing", || steering::<Loom, BrokenSteer<Loom, UNCLAIMED>>(1, 2));
    finds("a handler that does not ask", || posting::<Loom, LOUD>(true));
    finds("a section that makes up for nothing", || posting::<Loom, FORGETFUL>(true));
    finds("a section that makes up too early", || posting::<Loom, PREMATURE>(true));
    finds("a section that is busy late", || posting::<Loom, BUSY_LATE>(true));
    finds("two words of which one is kept", || posting::<Loom, ONE_WORD>(true));
    finds("a bolt released without a fence", || bolting::<Loom, BrokenBolt<Loom, 1>>(2, 1));
    finds("a bolt awaited without a fence", || bolting::<Loom, BrokenBolt<Loom, 2>>(2, 1));
    finds("a waiter of a bolt that is counted late", || bolting::<Loom, BrokenBolt<Loom, 3>>(2, 1));
    finds("a bolt that wakes once", || bolting::<Loom, BrokenBolt<Loom, 4>>(3, 1));
    finds("a bolt whose release publishes nothing", || bolting::<Loom, BrokenBolt<Loom, 5>>(2, 1));
    finds("a waiter that joins late", || notifying::<Loom, JOINS_LATE>(1, false, false));
    finds("a waiter that is counted late", || notifying::<Loom, COUNTS_LATE>(1, false, true));
    finds("a guest without a fence", || visiting::<Loom, BrokenGuests<Loom, 1>, NONE>(1));
    finds("a release without a fence", || visiting::<Loom, BrokenGuests<Loom, 2>, NONE>(1));
    finds("a guest that is counted late", || visiting::<Loom, Guests<Loom>, LATE>(1));
    finds("a guest that is not counted", || visiting::<Loom, Guests<Loom>, EARLY_LEAVE>(1));
}

#[test]
fn shuttle_finds_the_broken() {
    let finds = |what: &str, body: fn()| conformance::shuttle::finds(Settings::default(), what, body);
    finds("a token parked by a store", || parking::<Shuttle, BrokenToken<Shuttle, 3>>(2));
    finds("one token for two kinds of wait", || parking_and_waiting::<Shuttle, BrokenToken<Shuttle, 4>>(1));
    finds("an unpark that is told late", || parking_and_waiting::<Shuttle, BrokenToken<Shuttle, 5>>(1));
    finds("an end that nobody hears of", || ending::<Shuttle, 1>(true));
    finds("a handle dropped by a look", || ending::<Shuttle, 2>(false));
    finds("an upcall delivered twice", || seats::<Shuttle, TWICE>(2, 1, 3));
    finds("a carrier that does not look again", || seats::<Shuttle, BLIND>(2, 1, 3));
    finds("an upcall lost", || seats::<Shuttle, FORGOTTEN>(2, 1, 3));
    finds("pinned work without a seat", || seats::<Shuttle, HOSTAGE>(2, 1, 5));
    finds("a carrier silenced with a seat", hearing::<Shuttle, DEAF>);
    finds("a block while it was silenced", hearing::<Shuttle, HASTY>);
    finds("an event enabled before there is a seat", hearing::<Shuttle, EARLY>);
    finds("a block that is over", || coming_back::<Shuttle, STALE>(Then::Waits));
    finds("a carrier that lies down while it is silenced", || coming_back::<Shuttle, LINGERING>(Then::Rests));
    finds("a call that the other sentinel keeps", calling::<Shuttle, SELFISH>);
    finds("a fiber left to who is not told", leaving::<Shuttle, UNTOLD>);
    finds("a fiber left twice", || spreading::<Shuttle, AGAIN>(1, 4));
    finds("a task that is not fastened", || moving::<Shuttle, ADRIFT>(2, false));
    finds("a task made ready here and there", || moving::<Shuttle, DOUBLE>(2, false));
    finds("a task's bell silenced after the poll", || moving::<Shuttle, SILENCED_LATE>(2, false));
    finds("a bell silenced after the poll", || ringing::<Shuttle, SILENCED_LATE>(1));
    finds("a waiter of a bolt that is counted late", || bolting::<Shuttle, BrokenBolt<Shuttle, 3>>(2, 1));
    finds("a bolt that wakes once", || bolting::<Shuttle, BrokenBolt<Shuttle, 4>>(3, 1));
    finds("a waiter that joins late", || notifying::<Shuttle, JOINS_LATE>(1, false, false));
    finds("a waiter that is counted late", || notifying::<Shuttle, COUNTS_LATE>(1, false, true));
    finds("a round that is ended once", rounds::<Shuttle, ONCE>);
    finds("a carrier that does not wait for who steers it", || {
        steering::<Shuttle, BrokenSteer<Shuttle, IMPATIENT>>(1, 2)
    });
    finds("a carrier that does not know that it was steered", || {
        steering::<Shuttle, BrokenSteer<Shuttle, UNAWARE>>(1, 2)
    });
    finds("a carrier that waits and is not woken", || {
        steering::<Shuttle, BrokenSteer<Shuttle, UNWOKEN>>(1, 2)
    });
    finds("a word before the deed", || steering::<Shuttle, BrokenSteer<Shuttle, RASH>>(1, 2));
    finds("who steers and claims nothing", || steering::<Shuttle, BrokenSteer<Shuttle, UNCLAIMED>>(1, 2));
    finds("a handler that does not ask", || posting::<Shuttle, LOUD>(true));
    finds("a section that makes up for nothing", || posting::<Shuttle, FORGETFUL>(true));
    finds("a section that makes up too early", || posting::<Shuttle, PREMATURE>(true));
    finds("a section that is busy late", || posting::<Shuttle, BUSY_LATE>(true));
    finds("two words of which one is kept", || posting::<Shuttle, ONE_WORD>(true));
    finds("a guest that is counted late", || visiting::<Shuttle, Guests<Shuttle>, LATE>(1));
    finds("a guest that is not counted", || visiting::<Shuttle, Guests<Shuttle>, EARLY_LEAVE>(2));
}
