// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workers: a problem is cut in two until the pieces are small, and whoever is idle takes a piece. The policy
//! decides how many pieces wait at a time. Taking the newest works through one branch before the next, as a
//! call would. Taking the oldest makes all pieces of a level before the first of the next.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use wakeful::thread::policy::{Fifo, Policy, Queue, Ready};
use wakeful::thread::{self, Activations, Config, Runtime};

/// The newest piece first; who lets others go first comes last.
#[derive(Debug)]
struct DepthFirst;

struct Pieces(std::collections::VecDeque<Ready>);

impl Policy for DepthFirst {
    fn queue(&self) -> Box<dyn Queue> {
        Box::new(Pieces(Default::default()))
    }
}

impl Queue for Pieces {
    fn push(&mut self, piece: Ready) {
        if piece.has_yielded() { self.0.push_front(piece) } else { self.0.push_back(piece) }
    }
    fn pop(&mut self) -> Option<Ready> {
        self.0.pop_back()
    }
}

/// Pieces that have been made and are not done yet, and the most of these.
#[derive(Default)]
struct Alive {
    now: AtomicU32,
    most: AtomicU32,
}

/// Sorts by merging halves, each a fiber that borrows its part of the numbers.
fn sort(numbers: &mut [u32], alive: &Alive) {
    if numbers.len() <= 16 {
        numbers.sort_unstable();
        return;
    }
    let (low, high) = numbers.split_at_mut(numbers.len() / 2);
    thread::scope(|scope| {
        for half in [&mut *low, &mut *high] {
            let now = alive.now.fetch_add(1, Relaxed) + 1;
            alive.most.fetch_max(now, Relaxed);
            scope.spawn(move || {
                sort(half, alive);
                alive.now.fetch_sub(1, Relaxed);
            });
        }
    });
    let (mut left, mut right) = (low.iter().copied().peekable(), high.iter().copied().peekable());
    let merged: Vec<u32> = std::iter::from_fn(|| match (left.peek(), right.peek()) {
        (Some(a), Some(b)) if a <= b => left.next(),
        (_, None) => left.next(),
        _ => right.next(),
    })
    .collect();
    numbers.copy_from_slice(&merged);
}

/// Sorts on so many processors. Returns the most pieces at a time.
fn most_pieces(processors: u32, policy: &'static dyn Policy) -> u32 {
    // So that a block in the kernel changes no order.
    let activations = Activations::None;
    let config =
        Config { processors: Some(processors), policy: Some(policy), activations, ..Config::default() };
    let runtime = Runtime::start(config).expect("a runtime starts");
    let mut numbers: Vec<u32> = (0..32_768).map(|number: u32| number.wrapping_mul(2_654_435_761)).collect();
    let mut expected = numbers.clone();
    expected.sort_unstable();
    let alive = Alive::default();
    runtime.run(|| sort(&mut numbers, &alive));
    assert_eq!(numbers, expected);
    alive.most.into_inner()
}

pub fn main() {
    let (newest, oldest) = (most_pieces(1, &DepthFirst), most_pieces(1, &Fifo));
    println!("pieces at a time: {newest} newest first, {oldest} oldest first");
    // Two for each of 11 levels; all 4,094.
    assert!(newest <= 2 * 11);
    assert!(oldest >= 2048);
    println!("on two processors, newest first: {}", most_pieces(2, &DepthFirst));
}
