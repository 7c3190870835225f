// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel views: where the knowledge about threads comes from. One file per view.

pub mod perf;
