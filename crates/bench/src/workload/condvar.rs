// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bounded buffer over one pthread mutex and two pthread condition variables: half of the threads put,
//! half take.

use std::cell::UnsafeCell;

use serde::{Deserialize, Serialize};

use super::units;
use crate::error::JobError;
use crate::harness::{self, Plan, Sample, Worker};

/// What to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condvar {
    /// Items that fit.
    pub capacity: u64,
    /// Units of work outside; see [`units`].
    pub outside: u64,
    /// Threads; the larger half takes.
    pub threads: usize,
}

struct Buffer {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    not_full: UnsafeCell<libc::pthread_cond_t>,
    not_empty: UnsafeCell<libc::pthread_cond_t>,
    /// Guarded by the mutex.
    items: UnsafeCell<Items>,
}

#[derive(Default)]
struct Items {
    now: u64,
    put: u64,
    taken: u64,
}

// SAFETY: the pthread objects are made to be shared, and `items` is touched only under the mutex.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Waits until `ready`, then does `act` and signals; false if it was time to stop.
    #[inline]
    fn step(
        &self,
        worker: &Worker,
        wait_on: &UnsafeCell<libc::pthread_cond_t>,
        signal: &UnsafeCell<libc::pthread_cond_t>,
        ready: impl Fn(&Items) -> bool,
        act: impl FnOnce(&mut Items),
    ) -> bool {
        // SAFETY: initialised objects that do not move while in use; the items are touched under the mutex.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            let mut goes_on = worker.goes_on();
            while goes_on && !ready(&*self.items.get()) {
                libc::pthread_cond_wait(wait_on.get(), self.mutex.get());
                goes_on = worker.goes_on();
            }
            if goes_on {
                act(&mut *self.items.get());
            }
            libc::pthread_mutex_unlock(self.mutex.get());
            if goes_on {
                libc::pthread_cond_signal(signal.get());
            }
            goes_on
        }
    }

    fn release(&self) {
        // SAFETY: as in `step`. Under the mutex: nobody is between looking at the phase and sleeping.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            libc::pthread_cond_broadcast(self.not_full.get());
            libc::pthread_cond_broadcast(self.not_empty.get());
            libc::pthread_mutex_unlock(self.mutex.get());
        }
    }
}

impl Condvar {
    /// Threads that take items; these are counted.
    pub fn takers(&self) -> usize {
        self.threads.div_ceil(2)
    }

    /// Measures items taken, in this process.
    pub fn run(&self, plan: Plan) -> Result<Sample, JobError> {
        let buffer = Buffer {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            not_full: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            not_empty: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            items: UnsafeCell::default(),
        };
        let (takers, capacity) = (self.takers(), self.capacity);
        let (sample, counted) = harness::measure(
            Plan { counted: takers, ..plan },
            |worker| {
                let takes = worker.index < takers;
                loop {
                    let stepped = if takes {
                        buffer.step(
                            worker,
                            &buffer.not_empty,
                            &buffer.not_full,
                            |items| items.now > 0,
                            |items| {
                                items.now -= 1;
                                items.taken += 1;
                            },
                        )
                    } else {
                        buffer.step(
                            worker,
                            &buffer.not_full,
                            &buffer.not_empty,
                            |items| items.now < capacity,
                            |items| {
                                items.now += 1;
                                items.put += 1;
                            },
                        )
                    };
                    if !stepped {
                        break;
                    }
                    worker.count();
                    units(self.outside);
                }
            },
            || buffer.release(),
        )?;
        let items = buffer.items.into_inner();
        if items.taken != counted || items.put != items.taken + items.now {
            return Err(JobError::Exclusion { sections: items.taken, counted });
        }
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn items_flow_and_everybody_stops() {
        for threads in [2, 3, 8] {
            let work = Condvar { capacity: 4, outside: 10, threads };
            let plan = Plan {
                threads,
                counted: threads,
                warm_up: Duration::from_millis(5),
                interval: Duration::from_millis(40),
            };
            assert!(harness::some("condvar", || work.run(plan)).operations > 0);
        }
    }
}
