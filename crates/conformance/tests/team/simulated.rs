// SPDX-License-Identifier: MIT OR Apache-2.0
//! In the simulator, twins included.

use std::cell::Cell;

use super::*;
use platform::Platform;
use sim::explore::{Exploration, Strategy, explore};
use sim::{Explored, World};

/// A job of one helper, on the simulator's one processor; `fails`: its second part does.
fn simulated<T: RawTeam<Explored> + 'static>(fails: bool) -> impl Fn(&mut World)
where
    T::Place: 'static,
{
    #[repr(C)]
    struct Two {
        job: Job,
        fails: bool,
        ran: [Cell<u32>; 2],
    }
    unsafe fn run(job: *const Job, part: u32) -> bool {
        // SAFETY: only `Two` names this function, and the job begins it.
        let this = unsafe { &*job.cast::<Two>() };
        let ran = &this.ran[part as usize];
        let before = ran.get();
        // Somebody else's turn, perhaps.
        Explored::pause();
        ran.set(before + 1);
        !(this.fails && part == 1)
    }
    move |world| {
        let app = world.add_app();
        let team = world.place(T::new());
        let places = world.place_all([T::Place::default()].into_iter());
        world.spawn(app, move || {
            for _ in 0..2 {
                // Never freed: who is late finds it all the same.
                let two: &'static Two =
                    Box::leak(Box::new(Two { job: Job { run }, fails, ran: Default::default() }));
                // SAFETY: one thread calls; the job is one and stays until then, as do the places.
                let fine = unsafe { team.run(places.get(), std::ptr::from_ref(two).cast()) };
                if fine == fails {
                    sim::fail("a failure was lost, or made up".into());
                }
                if two.ran.iter().any(|ran| ran.get() != 1) {
                    sim::fail("a part was not run once".into());
                }
            }
            team.dismiss(&places.get()[0]);
        });
        world.spawn(app, move || {
            // SAFETY: one thread a place.
            unsafe { team.serve(&places.get()[0], 1, Kind::Free, |_| ()) };
        });
    }
}

/// What the simulator finds in the first of these ways that finds something.
fn sim_finds<T: RawTeam<Explored> + 'static>(fails: bool, longer: u64) -> Option<String>
where
    T::Place: 'static,
{
    let hints = [sim::Hints::True, sim::Hints::Inverted, sim::Hints::None];
    let strategies = [
        Strategy::Bounded { changes: 2, runs: 500 * longer },
        Strategy::Random { runs: 250 * longer },
        Strategy::Pct { runs: 250 * longer, depth: 4 },
    ];
    hints.into_iter().flat_map(|hints| strategies.map(|strategy| (hints, strategy))).find_map(
        |(hints, strategy)| {
            let exploration = Exploration { strategy, hints, seed: 1, steps: 20_000 };
            explore(&exploration, simulated::<T>(fails)).failure.map(|failure| failure.what)
        },
    )
}

#[test]
fn sim_team() {
    for fails in [false, true] {
        assert_eq!(sim_finds::<Wakeful<Explored>>(fails, further() as u64), None);
        assert_eq!(sim_finds::<Broken<Explored, NONE>>(fails, 1), None);
    }
    assert!(sim_finds::<Broken<Explored, LOSES_WAKE_UP>>(false, 10).is_some());
    assert!(sim_finds::<Broken<Explored, RUNS_TWICE>>(false, 10).is_some());
    assert!(sim_finds::<Broken<Explored, RETURNS_EARLY>>(false, 10).is_some());
    assert!(sim_finds::<Broken<Explored, LOSES_FAILURE>>(true, 10).is_some());
    assert!(sim_finds::<Broken<Explored, FORGETS_CALLER>>(false, 10).is_some());
}
