// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moods: how the threads of a barrier wait. Two of them never change their mind; the default one is in
//! `learn.rs`.

use platform::Platform;

use super::episode::{Episodes, spin_for};
use super::limits::{self, SPIN_PAUSES};
use crate::wait::look;

/// How the threads of one barrier wait for the end of an episode.
///
/// A mood decides about time only. Whatever it does, nobody is released early and every sleeper is called.
pub trait Mood<P: Platform>: Send + Sync + Sized {
    /// The mood of a new barrier.
    fn new() -> Self;

    /// The barrier is new, and its parties are not on their way yet.
    fn begin(&self, episodes: &Episodes<P>) {
        let _ = episodes;
    }

    /// Waits until `done`, or by `sleep`, which returns when that is true. `others`: how many were missing
    /// when the caller arrived.
    fn wait(&self, episodes: &Episodes<P>, others: u32, done: &impl Fn() -> bool, sleep: &impl Fn());

    /// The caller has ended an episode, and is about to call those who sleep, if there are `sleepers`.
    #[inline]
    fn ends(&self, episodes: &Episodes<P>, sleepers: bool) {
        let _ = (episodes, sleepers);
    }
}

/// Sleeps at once, always.
pub struct Sleep;

impl<P: Platform> Mood<P> for Sleep {
    fn new() -> Self {
        Self
    }

    #[inline]
    fn wait(&self, _: &Episodes<P>, _: u32, _: &impl Fn() -> bool, sleep: &impl Fn()) {
        sleep();
    }
}

/// Spins while all others may be running, then yields, always; sleeps after `limits::patience`.
pub struct Yield;

impl<P: Platform> Mood<P> for Yield {
    fn new() -> Self {
        Self
    }

    #[inline]
    fn wait(&self, episodes: &Episodes<P>, others: u32, done: &impl Fn() -> bool, sleep: &impl Fn()) {
        let processors = P::processors();
        if others < processors && spin(episodes, processors, done) {
            return;
        }
        let began = look::begin_unnamed::<P>();
        while !done() {
            if P::now_ns() - began > limits::patience::<P>() {
                return sleep();
            }
            P::yield_now();
            if episodes.missing() < processors as i32 && spin(episodes, processors, done) {
                return;
            }
        }
    }
}

/// Spins while everybody else may be running. With a processor for each, the line of `state` goes to each of
/// them once, and the spin is for that, too.
#[inline]
pub fn spin<P: Platform>(episodes: &Episodes<P>, processors: u32, done: &impl Fn() -> bool) -> bool {
    let parties = episodes.parties();
    let pauses = if parties <= processors { SPIN_PAUSES / 2 * parties.max(2) } else { SPIN_PAUSES };
    spin_for::<P>(pauses, done)
}
