// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processors of the program's own, from the processor server (`wakefuld`).
//!
//! `wakeful run --cpus` asks for them before a program starts, and the program need not know. Here it asks
//! by itself:
//!
//! ```no_run
//! use wakeful::parallel::Team;
//! use wakeful::partition;
//!
//! static TEAM: Team = Team::bound();
//!
//! match partition::request(5, 1..=4) {
//!     Ok(0) => println!("others have them; we start without"),
//!     Ok(count) => println!("{count} processors of our own"),
//!     Err(error) => println!("we share, as everybody does: {error}"),
//! }
//! TEAM.for_each(0..1000, Default::default(), |i| println!("{i}"));
//! partition::leave()?;
//! # Ok::<(), partition::Error>(())
//! ```
//!
//! How many there are changes while the program runs; bound teams follow. What the program cannot use in a
//! phase it can lend: [`with_fewer`](crate::parallel::with_fewer).

use std::ops::RangeInclusive;

pub use linux::server::{Error, Refusal};

/// Asks for at least and at most so many processors, or again with other numbers; `0..=0`: the server
/// chooses. Higher priorities are served first.
///
/// Returns how many the program has now. With 0 it runs where everybody runs, until its turn comes; nothing
/// need be done for that.
///
/// # Errors
/// No server runs, or it refuses.
pub fn request(priority: u32, processors: RangeInclusive<usize>) -> Result<usize, Error> {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    linux::server::request(priority, number(*processors.start()), number(*processors.end()))
        .map(|count| count as usize)
}

/// Gives the partition back: the program runs where everybody runs.
///
/// # Errors
/// No server runs, or the program had none.
pub fn leave() -> Result<(), Error> {
    linux::server::leave()
}
