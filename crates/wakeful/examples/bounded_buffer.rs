// SPDX-License-Identifier: MIT OR Apache-2.0
//! Producers and consumers around a small buffer: `cargo run --release -p wakeful --example bounded_buffer`.

use std::collections::VecDeque;
use std::thread;
use std::time::Instant;

use wakeful::{Condvar, Mutex};

struct Buffer<T, const CAPACITY: usize> {
    items: Mutex<VecDeque<T>>,
    filled: Condvar,
    drained: Condvar,
}

impl<T, const CAPACITY: usize> Buffer<T, CAPACITY> {
    const fn new() -> Self {
        Self { items: Mutex::new(VecDeque::new()), filled: Condvar::new(), drained: Condvar::new() }
    }

    fn put(&self, item: T) {
        let mut items = self.items.lock();
        self.drained.wait_while(&mut items, |items| items.len() == CAPACITY);
        items.push_back(item);
        self.filled.notify_one();
    }

    fn take(&self) -> T {
        let mut items = self.items.lock();
        loop {
            if let Some(item) = items.pop_front() {
                self.drained.notify_one();
                return item;
            }
            self.filled.wait(&mut items);
        }
    }
}

static BUFFER: Buffer<u64, 16> = Buffer::new();

const PAIRS: u64 = 4;
const ITEMS: u64 = 100_000;

fn main() {
    let start = Instant::now();
    let sum: u64 = thread::scope(|scope| {
        for producer in 0..PAIRS {
            scope.spawn(move || (0..ITEMS).for_each(|item| BUFFER.put(producer * ITEMS + item)));
        }
        let consumers: Vec<_> =
            (0..PAIRS).map(|_| scope.spawn(|| (0..ITEMS).map(|_| BUFFER.take()).sum::<u64>())).collect();
        consumers.into_iter().map(|consumer| consumer.join().expect("a consumer does not panic")).sum()
    });
    let total = PAIRS * ITEMS;
    assert_eq!(sum, total * (total - 1) / 2, "an item was lost or came twice");
    println!("{PAIRS} producers handed {total} items to {PAIRS} consumers in {:.2?}", start.elapsed());
    println!("each arrived once: their sum is {sum}");
}
