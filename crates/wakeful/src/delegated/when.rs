// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections that wait for a condition, before they begin and outside of the lock.

use core::time::Duration;
use std::time::Instant;

use platform::Deadline;

use super::{Delegated, Way};
use crate::Condvar;

impl<T: ?Sized + Send, W: Way> Delegated<T, W> {
    /// Runs a section as soon as `condition` holds of the data, in the same turn, and returns what it
    /// returns. Until then the calling thread sleeps, not the thread that runs sections.
    ///
    /// Whoever changes the data, in a section or with the guard, calls [`Condvar::notify_one`] or
    /// [`Condvar::notify_all`] of `changed`, then or afterwards. The condition is asked in sections, each
    /// time after such a call and now and then besides. So the [rule](Self#the-rule) holds for it, too.
    ///
    /// ```
    /// use std::thread;
    /// use wakeful::{Condvar, Delegated};
    ///
    /// static QUEUE: Delegated<Vec<u32>> = Delegated::new(Vec::new());
    /// static PUSHED: Condvar = Condvar::new();
    ///
    /// let consumer = thread::spawn(|| {
    ///     QUEUE.run_when(&PUSHED, |queue| !queue.is_empty(), |queue| queue.pop())
    /// });
    /// QUEUE.run(|queue| {
    ///     queue.push(7);
    ///     PUSHED.notify_one();
    /// });
    /// assert_eq!(consumer.join().unwrap(), Some(7));
    /// ```
    ///
    /// # Panics
    /// If the condition or the section does.
    pub fn run_when<C, F, R>(&self, changed: &Condvar, condition: C, section: F) -> R
    where
        C: FnMut(&mut T) -> bool + Send,
        F: FnOnce(&mut T) -> R + Send,
        R: Send,
    {
        match self.run_when_before(changed, condition, section, None) {
            Ok(result) => result,
            Err(_) => unreachable!("it gives up at a deadline only"),
        }
    }

    /// As [`run_when`](Self::run_when), but gives the section back if the condition does not hold within
    /// `timeout`, apart from the time to come to the lock again. At its end the condition is asked once more.
    /// A server has a millisecond at least to ask it.
    ///
    /// # Errors
    /// The section, which has not run.
    ///
    /// # Panics
    /// If the condition or the section does.
    pub fn run_when_for<C, F, R>(
        &self,
        changed: &Condvar,
        timeout: Duration,
        condition: C,
        section: F,
    ) -> Result<R, F>
    where
        C: FnMut(&mut T) -> bool + Send,
        F: FnOnce(&mut T) -> R + Send,
        R: Send,
    {
        self.run_when_before(changed, condition, section, Some(crate::time::after(timeout)))
    }

    /// As [`run_when_for`](Self::run_when_for), until `moment`.
    ///
    /// # Errors
    /// The section, which has not run.
    ///
    /// # Panics
    /// If the condition or the section does.
    pub fn run_when_until<C, F, R>(
        &self,
        changed: &Condvar,
        moment: Instant,
        condition: C,
        section: F,
    ) -> Result<R, F>
    where
        C: FnMut(&mut T) -> bool + Send,
        F: FnOnce(&mut T) -> R + Send,
        R: Send,
    {
        self.run_when_before(changed, condition, section, Some(crate::time::at(moment)))
    }

    fn run_when_before<C, F, R>(
        &self,
        changed: &Condvar,
        mut condition: C,
        section: F,
        deadline: Option<Deadline>,
    ) -> Result<R, F>
    where
        C: FnMut(&mut T) -> bool + Send,
        F: FnOnce(&mut T) -> R + Send,
        R: Send,
    {
        let mut section = Some(section);
        let mut in_time = true;
        let mut first = deadline;
        loop {
            let ask = |data: &mut T| {
                if condition(data) {
                    return Ok(section.take().map(|section| section(data)));
                }
                // Who changes the data later comes after this, so no notification is lost.
                Err(in_time.then(|| changed.algorithm.enter()))
            };
            // Later ones have waited already, and have to ask once more.
            let outcome = match first.take() {
                None => self.run(ask),
                Some(deadline) => self.try_run_before(W::at_least(deadline), ask).unwrap_or(Err(None)),
            };
            match (outcome, section.take()) {
                (Ok(Some(result)), _) => return Ok(result),
                (Err(Some(waiter)), back) => {
                    section = back;
                    in_time = changed.algorithm.wait(waiter, deadline);
                }
                (_, Some(section)) => return Err(section),
                (_, None) => unreachable!("a section that has run has a result"),
            }
        }
    }
}
