// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every mutex of the catalogue: on this computer, in loom, in shuttle; and the checkers find what is broken.

mod array_queue;
mod loom;
mod orderings;
mod shuttle;
mod threads;
mod twins;
mod wakeful;
