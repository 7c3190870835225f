// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers under an allocator that waits at locks where fibers park. This one lets others go first at each
//! call that a fiber makes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::Duration;

use fiber::{Config, Priority, Runtime, thread};

struct Waits;

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU32 = AtomicU32::new(0);

fn wait() {
    if ON.load(Relaxed) {
        CALLS.fetch_add(1, Relaxed);
        thread::yield_now();
    }
}

// SAFETY: the system's.
unsafe impl GlobalAlloc for Waits {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        wait();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        wait();
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Waits = Waits;

fn on(processors: u32, body: impl FnOnce() + Send) {
    // SAFETY: no pointers. A test that hangs is ended.
    unsafe { libc::alarm(60) };
    let config = Config { processors: Some(processors), ..Config::default() };
    let runtime = Runtime::start(config).unwrap();
    runtime.run(|| {
        ON.store(true, Relaxed);
        body();
        ON.store(false, Relaxed);
    });
    assert!(CALLS.load(Relaxed) > 0);
}

/// One test: they share the allocator.
#[test]
fn the_runtime_holds_no_lock_of_its_own_where_it_waits() {
    on(1, || {
        thread::scope(|scope| {
            for number in 0..200 {
                scope.spawn(move || (0..20).for_each(|_| thread::sleep(Duration::from_micros(number))));
            }
        });
    });
    // Many, so that they need new stacks.
    on(1, || {
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    thread::scope(|inner| {
                        (0..500).for_each(|_| drop(inner.spawn(thread::yield_now)));
                    });
                });
            }
        });
    });
    on(1, || {
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let low = thread::Builder::new().priority(Priority::Low).spawn(|| 7).unwrap();
                    assert_eq!(low.join().unwrap(), 7);
                });
            }
        });
    });
    on(2, || {
        let fibers: Vec<_> = (0..20)
            .map(|_| {
                let spawns = || {
                    for _ in 0..200 {
                        // Too large for the stack: it is allocated, and the caller moves.
                        let large = [1_u8; 128 << 10];
                        let name = thread::Builder::new().name("large");
                        let fiber =
                            name.spawn(move || large.iter().map(|&byte| u32::from(byte)).sum::<u32>());
                        assert_eq!(fiber.unwrap().join().unwrap(), 128 << 10);
                    }
                };
                let builder = thread::Builder::new().stack_size(2 << 20);
                // SAFETY: it keeps no reference to thread-local data.
                unsafe { builder.spawn_movable(spawns) }.unwrap()
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    // And once warm, to begin and to end a fiber allocates nothing.
    on(1, || {
        let again = || (0..1_000).for_each(|_| thread::spawn(|| ()).join().unwrap());
        again();
        let before = CALLS.load(Relaxed);
        again();
        assert_eq!(CALLS.load(Relaxed), before);
    });
}
