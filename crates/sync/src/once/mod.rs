// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialisation that happens once.

mod wakeful;

pub use wakeful::Wakeful;

use platform::Platform;

/// How an initialisation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It has been done, and what it wrote can be read.
    Done,
    /// The caller is to do it, and to report to [`RawOnce::end`].
    Run {
        /// The one before it failed, and said so.
        poisoned: bool,
    },
    /// It failed, and the caller does not want to try again.
    Poisoned,
}

/// How an attempt to initialise ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is done.
    Done,
    /// It is not, and the next caller is to begin anew.
    Undone,
    /// It is not, and callers are to hear that.
    Poisoned,
}

/// Initialisation that happens once: the word, no data.
pub trait RawOnce<P: Platform>: Send + Sync {
    /// Nothing has been done yet.
    fn new() -> Self;

    /// Has it been done? If so, what it wrote can be read.
    fn is_done(&self) -> bool;

    /// Waits while another thread does it; then says how it stands. `again`: try even if it failed.
    fn begin(&self, again: bool) -> Begin;

    /// Ends what [`RawOnce::begin`] told this thread to do.
    fn end(&self, how: End);
}
