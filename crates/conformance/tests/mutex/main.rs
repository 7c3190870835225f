// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every mutex of the catalogue: on this computer, in loom, in shuttle; and the checkers find what is broken.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

mod array_queue;
mod loom;
mod orderings;
mod shuttle;
mod threads;
#[cfg(feature = "twins")]
mod twins;
mod wakeful;
