// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every barrier of the catalogue: on this computer, in loom, in shuttle; and the checkers find what is
//! broken.

mod loom;
mod shuttle;
mod threads;
mod twins;
