// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workers, actors and futures on the policies of fibers: the examples, which assert.

#[path = "../examples/actors.rs"]
mod actors;
#[path = "../examples/futures.rs"]
mod futures;
#[path = "../examples/workers.rs"]
mod workers;

#[test]
fn workers_keep_few_pieces() {
    workers::main();
}

#[test]
fn actors_keep_mailboxes_short() {
    actors::main();
}

#[test]
fn futures_that_nobody_touched_wait() {
    futures::main();
}
