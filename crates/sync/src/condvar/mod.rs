// SPDX-License-Identifier: MIT OR Apache-2.0
//! Condition variables.

mod wakeful;

pub use wakeful::{Step, Waiter, Wakeful};
