// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of [`super::mutex`], whose critical sections may be run by another thread.

use std::mem::MaybeUninit;

use catalog::{DelegateEntry, DelegateVisitor};
use linux::Linux;
use platform::Platform;
use sync::delegate::RawDelegate;

use super::mutex::{self, Counted, Lock, Measure, Mutex};
use crate::error::{JobError, check_view};
use crate::harness::{Padded, Plan, Sample};

struct Delegating<L>(L);

/// A section on its way to whoever runs it.
struct Call<F, R> {
    section: Option<F>,
    result: MaybeUninit<R>,
}

/// # Safety
/// `context` is such a call, whose section has not been run.
#[inline(always)]
unsafe fn call<F: FnOnce() -> R, R>(context: *mut ()) {
    // SAFETY: as promised.
    let call = unsafe { &mut *context.cast::<Call<F, R>>() };
    if let Some(section) = call.section.take() {
        call.result.write(section());
    }
}

impl<L: RawDelegate<Linux>> Lock for Delegating<L> {
    type Node = ();
    fn new() -> Self {
        Self(L::new())
    }
    #[inline(always)]
    fn with<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        fn section_of<F: FnOnce() -> R, R>(_: &Call<F, R>) -> unsafe fn(*mut ()) {
            call::<F, R>
        }
        let mut pending = Call { section: Some(section), result: MaybeUninit::uninit() };
        let section = section_of(&pending);
        // SAFETY: the sections of this workload do not panic, touch their data only, and come to no lock.
        unsafe { self.0.run(section, (&raw mut pending).cast()) };
        // SAFETY: it has been run.
        unsafe { pending.result.assume_init() }
    }
}

/// Closes the lock also if the workload panics: the scope waits for the server.
struct Close<'a, L: RawDelegate<Linux>>(&'a L);

impl<L: RawDelegate<Linux>> Drop for Close<'_, L> {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Visitor<M>(M);

impl<M: Measure> DelegateVisitor<Linux> for Visitor<M> {
    type Output = Result<M::Output, JobError>;
    fn visit<L: RawDelegate<Linux> + 'static>(self, _: &'static DelegateEntry) -> Self::Output {
        // As for mutexes.
        linux::init();
        Linux::register();
        check_view(|| linux::report().chosen)?;
        let lock = Padded(Delegating(L::new()));
        std::thread::scope(|scope| {
            let server = L::SERVED.then(|| scope.spawn(|| lock.0.0.serve()));
            let close = Close(&lock.0.0);
            let sample = self.0.on(&lock);
            drop(close);
            match server.map(|server| server.join()) {
                None | Some(Ok(true)) => sample,
                Some(_) => Err(JobError::Failed("the server could not serve".to_string())),
            }
        })
    }
}

/// Measures a delegating lock, or a mutex, in this process.
pub fn run(work: &Mutex, lock: &str, plan: Plan) -> Result<Sample, JobError> {
    with_lock(lock, Counted(work, plan))
}

/// Of a delegating lock of this name, or a mutex, in this process.
pub(super) fn with_lock<M: Measure>(lock: &str, measure: M) -> Result<M::Output, JobError> {
    match catalog::delegate(lock) {
        Some(_) => catalog::visit_delegate(lock, Visitor(measure)).expect("it is in the catalogue"),
        None => mutex::with_lock(lock, measure),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::harness;
    use crate::workload::Length;

    #[test]
    fn every_lock_runs_and_keeps_exclusion() {
        let plan = |threads| Plan {
            threads,
            counted: threads,
            warm_up: Duration::from_millis(5),
            interval: Duration::from_millis(40),
        };
        let work = |threads| Mutex { critical: Length::Lines(5), outside: 100, threads };
        for name in catalog::DELEGATES.iter().map(|entry| entry.name).chain(["wakeful", "std"]) {
            let alone = harness::some(name, || run(&work(1), name, plan(1)));
            assert!(alone.operations > 0 && alone.fairness.is_none(), "{name}: {alone:?}");
            // That no section was lost is checked where it is measured.
            run(&work(3), name, plan(3)).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
