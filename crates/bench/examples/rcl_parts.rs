// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paznikov 2016, figure 1, measured: how long a section takes, and how long it takes from the end of one to
//! the beginning of the next, whoever's that is. `rcl_parts [seconds a sample] [lines]`.
//!
//! Each section reads the clock twice, which is in both times. Misses are in `wakeful sim figure paz1c`.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use catalog::{DelegateEntry, DelegateVisitor};
use linux::Linux;
use platform::Platform;
use sync::delegate::RawDelegate;
use sync::mutex::RawMutex;

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(u64);

/// What the lock protects.
struct Data {
    lines: Vec<Line>,
    end: u64,
    owner: usize,
    /// Time in sections; between two of one client, and of two clients, and how many there were.
    inside: u64,
    same: [u64; 2],
    other: [u64; 2],
    sections: u64,
}

struct Shared(UnsafeCell<Data>);

// SAFETY: only sections touch it.
unsafe impl Sync for Shared {}

/// A section of this client.
fn section(data: &mut Data, client: usize) {
    let begin = Linux::now_ns();
    for line in &mut data.lines {
        line.0 = line.0.wrapping_add(1);
    }
    if data.sections > 0 {
        let between = if data.owner == client { &mut data.same } else { &mut data.other };
        between[0] += begin.saturating_sub(data.end);
        between[1] += 1;
    }
    data.sections += 1;
    data.owner = client;
    let end = Linux::now_ns();
    data.inside += end - begin;
    data.end = end;
}

struct Request<'a>(&'a Shared, usize);

unsafe fn call(context: *mut ()) {
    // SAFETY: a request that its client waits with; one section runs at a time.
    unsafe {
        let Request(shared, client) = *context.cast::<Request<'_>>();
        section(&mut *shared.0.get(), client);
    }
}

/// Clients call `run` until the time is over.
fn sample(name: &str, clients: usize, seconds: f64, lines: usize, run: impl Fn(&Shared, usize) + Sync) {
    let lines = vec![Line(0); lines];
    let data = Data { lines, end: 0, owner: 0, inside: 0, same: [0; 2], other: [0; 2], sections: 0 };
    let (shared, stop) = (Shared(UnsafeCell::new(data)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (shared, stop, run) = (&shared, &stop, &run);
            scope.spawn(move || {
                Linux::register();
                while !stop.load(Relaxed) {
                    run(shared, client);
                }
            });
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Relaxed);
    });
    let data = shared.0.into_inner();
    let ns = |[sum, count]: [u64; 2]| match count {
        0 => "-".to_string(),
        _ => format!("{:.0}", sum as f64 / count as f64),
    };
    let other = 100.0 * data.other[1] as f64 / data.sections as f64;
    println!(
        "{name:<8} {clients} clients, ns: section {:>5}, to its next {:>5}, to another {:>5} ({other:.1} %)",
        ns([data.inside, data.sections]),
        ns(data.same),
        ns(data.other)
    );
}

struct Visitor(&'static str, usize, f64, usize);

impl DelegateVisitor<Linux> for Visitor {
    type Output = ();
    fn visit<L: RawDelegate<Linux> + 'static>(self, _: &'static DelegateEntry) {
        let lock = L::new();
        std::thread::scope(|scope| {
            if L::SERVED {
                scope.spawn(|| assert!(lock.serve()));
            }
            sample(self.0, self.1, self.2, self.3, |shared, client| {
                let mut request = Request(shared, client);
                // SAFETY: it neither unwinds nor comes to a lock.
                unsafe { lock.run(call, (&raw mut request).cast()) };
            });
            lock.close();
        });
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(0.3, |seconds| seconds.parse().expect("seconds"));
    let lines = arguments.next().map_or(5, |lines| lines.parse().expect("lines"));
    linux::init();
    Linux::register();
    for clients in [1, 2] {
        sample_pthread(clients, seconds, lines);
        sample_mcs(clients, seconds, lines);
        catalog::visit_delegate("rcl", Visitor("rcl", clients, seconds, lines)).expect("it is there");
    }
}

fn sample_pthread(clients: usize, seconds: f64, lines: usize) {
    struct Mutex(UnsafeCell<libc::pthread_mutex_t>);
    // SAFETY: made for that.
    unsafe impl Sync for Mutex {}
    impl Mutex {
        fn get(&self) -> *mut libc::pthread_mutex_t {
            self.0.get()
        }
    }
    let mutex = Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    sample("pthread", clients, seconds, lines, |shared, client| {
        // SAFETY: a mutex that stays here, locked and unlocked by one thread.
        unsafe {
            libc::pthread_mutex_lock(mutex.get());
            section(&mut *shared.0.get(), client);
            libc::pthread_mutex_unlock(mutex.get());
        }
    });
}

fn sample_mcs(clients: usize, seconds: f64, lines: usize) {
    type Mcs = sync::mutex::Mcs<Linux, sync::wait::Spin>;
    let lock = Mcs::new();
    sample("mcs", clients, seconds, lines, |shared, client| {
        let node = <Mcs as RawMutex<Linux>>::Node::default();
        // SAFETY: the node stays until the lock is released.
        unsafe {
            lock.lock(&node);
            section(&mut *shared.0.get(), client);
            lock.unlock(&node);
        }
    });
}
