// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futures as in Multilisp: `future(|| ..)` begins to compute a value that may never be needed, `touch`
//! waits for it. A future is a fiber. The policy runs those that somebody has touched before those that
//! nobody needs yet. So what is speculative waits for an idle processor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use wakeful::thread::policy::{Fifo, Policy, Queue, Ready};
use wakeful::thread::{Activations, Builder, Config, JoinHandle, Runtime};

const FUTURES: usize = 1_000;

/// Which futures somebody waits for, by their rank. Rank 0 is whoever touches.
static TOUCHED: [AtomicBool; FUTURES + 1] = [const { AtomicBool::new(false) }; FUTURES + 1];

#[derive(Debug)]
struct TouchedFirst;

struct Futures(VecDeque<Ready>);

impl Policy for TouchedFirst {
    fn queue(&self) -> Box<dyn Queue> {
        Box::new(Futures(VecDeque::new()))
    }
}

impl Queue for Futures {
    fn push(&mut self, future: Ready) {
        self.0.push_back(future);
    }
    fn pop(&mut self) -> Option<Ready> {
        let touched = |future: &Ready| future.rank() == 0 || TOUCHED[future.rank() as usize].load(Relaxed);
        let at = self.0.iter().position(touched).unwrap_or(0);
        self.0.remove(at)
    }
}

struct Future<T> {
    rank: usize,
    value: JoinHandle<T>,
}

fn future<T: Send + 'static>(rank: usize, compute: impl FnOnce() -> T + Send + 'static) -> Future<T> {
    TOUCHED[rank].store(false, Relaxed);
    Future { rank, value: Builder::new().rank(rank as u32).spawn(compute).expect("it starts") }
}

impl<T> Future<T> {
    fn touch(self) -> T {
        TOUCHED[self.rank].store(true, Relaxed);
        self.value.join().expect("it does not panic")
    }
}

/// A search with a thousand beginnings, of which one turns out to be needed. Returns how many were computed.
fn computed(policy: &'static dyn Policy) -> u32 {
    // So that a block in the kernel changes no order.
    let activations = Activations::None;
    let config = Config { processors: Some(1), policy: Some(policy), activations, ..Config::default() };
    Runtime::start(config).expect("a runtime starts").run(|| {
        let computed = Arc::new(AtomicU32::new(0));
        let mut futures: Vec<_> = (1..=FUTURES)
            .map(|rank| {
                let computed = computed.clone();
                future(rank, move || {
                    computed.fetch_add(1, Relaxed);
                    rank * rank
                })
            })
            .collect();
        assert_eq!(futures.swap_remove(699).touch(), 490_000);
        let computed = computed.load(Relaxed);
        // The others are still there for who wants them.
        let sum: usize = futures.into_iter().map(Future::touch).sum();
        assert_eq!(sum + 490_000, FUTURES * (FUTURES + 1) * (2 * FUTURES + 1) / 6);
        computed
    })
}

pub fn main() {
    let (touched, oldest) = (computed(&TouchedFirst), computed(&Fifo));
    println!("futures computed before the one that was needed: {} and {}", touched - 1, oldest - 1);
    assert!(touched <= 2);
    assert!(oldest >= 700);
}
