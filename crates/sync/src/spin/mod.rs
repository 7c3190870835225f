// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spin locks: mutual exclusion whose release is a plain store.

mod wakeful;

pub use wakeful::Wakeful;
