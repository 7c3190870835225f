// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quicksort: ranges on a shared stack.

use platform::{Atomic, AtomicInt, Ordering::*, Platform};
use sync::mutex::RawMutex;

use crate::{Digest, Host, Locked, Numbers, Word, digest, digest_of, words};

/// A range of at most so many numbers is sorted by insertion.
pub const SMALL: u32 = 32;

fn input(elements: u32) -> impl Iterator<Item = u32> {
    let mut numbers = Numbers(1);
    (0..elements).map(move |_| numbers.next())
}

pub(crate) fn expected(elements: u32) -> u32 {
    let mut all: Vec<u32> = input(elements).collect();
    all.sort_unstable();
    digest(all.into_iter())
}

struct Sort<H: Host> {
    data: H::Shared<Word<H>>,
    /// Begins and ends of ranges; under the lock.
    ranges: H::Shared<Word<H>>,
    /// How many, also for a look without the lock.
    top: H::Shared<Word<H>>,
    /// Elements that are not in their places yet.
    left: H::Shared<Word<H>>,
    /// The others get no range that is not larger.
    small: u32,
}

impl<H: Host> Clone for Sort<H> {
    fn clone(&self) -> Self {
        let Self { data, ranges, top, left, small } = self;
        let small = *small;
        Self { data: data.clone(), ranges: ranges.clone(), top: top.clone(), left: left.clone(), small }
    }
}

pub(crate) fn load<H: Host, L: RawMutex<H::Platform> + 'static>(
    host: &mut H,
    threads: u32,
    elements: u32,
    small: u32,
) -> Digest {
    // A range is pushed for each that is larger than a small one.
    let room = 2 * (elements as usize + 1);
    let shared = Sort::<H> {
        data: host.share(words::<H>(input(elements))),
        ranges: host.share(words::<H>([0, elements].into_iter().chain(std::iter::repeat_n(0, room)))),
        top: host.share(words::<H>([u32::from(elements > 0)].into_iter())),
        left: host.share(words::<H>([elements].into_iter())),
        small: small.max(SMALL),
    };
    for locked in Locked::<H, L>::share(host, 1, threads) {
        let shared = shared.clone();
        host.spawn(move || shared.work(&locked));
    }
    digest_of::<H>(shared.data)
}

impl<H: Host> Sort<H> {
    fn work<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>) {
        loop {
            // ORDER: Acquire, pairs with the release below: who leaves has seen all.
            if self.left[0].load(Acquire) == 0 {
                return;
            }
            if self.top[0].load(Relaxed) == 0 {
                H::Platform::pause();
                continue;
            }
            let range = locked.with(0, || {
                let top = self.top[0].load(Relaxed).checked_sub(1)?;
                self.top[0].store(top, Relaxed);
                Some((
                    self.ranges[2 * top as usize].load(Relaxed),
                    self.ranges[2 * top as usize + 1].load(Relaxed),
                ))
            });
            let Some((mut begin, mut end)) = range else { continue };
            while end - begin > self.small {
                let middle = self.partition(begin, end);
                // The larger one for the others, if there is something to sort in it.
                let other = if middle - begin > end - middle { (begin, middle) } else { (middle, end) };
                (begin, end) = if other.0 == begin { (middle, end) } else { (begin, middle) };
                locked.with(0, || {
                    let top = self.top[0].load(Relaxed);
                    self.ranges[2 * top as usize].store(other.0, Relaxed);
                    self.ranges[2 * top as usize + 1].store(other.1, Relaxed);
                    self.top[0].store(top + 1, Relaxed);
                });
            }
            self.alone(begin, end);
            // ORDER: Release, pairs with `work`; publishes the elements.
            self.left[0].fetch_sub(end - begin, Release);
        }
    }

    fn get(&self, index: u32) -> u32 {
        self.data[index as usize].load(Relaxed)
    }

    fn put(&self, index: u32, value: u32) {
        self.data[index as usize].store(value, Relaxed);
    }

    /// Hoare's; both parts are smaller than the whole.
    fn partition(&self, begin: u32, end: u32) -> u32 {
        let mut three = [self.get(begin), self.get(begin + (end - begin) / 2), self.get(end - 1)];
        three.sort_unstable();
        let pivot = three[1];
        let (mut low, mut high) = (begin, end - 1);
        loop {
            let (mut a, mut b) = (self.get(low), self.get(high));
            while a < pivot {
                low += 1;
                a = self.get(low);
            }
            while b > pivot {
                high -= 1;
                b = self.get(high);
            }
            H::computed(4);
            if low >= high {
                // `low` may be the pivot's own place.
                return (high + 1).clamp(begin + 1, end - 1);
            }
            self.put(low, b);
            self.put(high, a);
            low += 1;
            high -= 1;
        }
    }

    fn insertion(&self, begin: u32, end: u32) {
        for at in begin + 1..end {
            let value = self.get(at);
            let mut to = at;
            while to > begin {
                let before = self.get(to - 1);
                if before <= value {
                    break;
                }
                self.put(to, before);
                to -= 1;
            }
            self.put(to, value);
            H::computed(2 * (at - to + 1));
        }
        H::done(end - begin);
    }

    /// Sorts a range that nobody else has.
    fn alone(&self, begin: u32, end: u32) {
        if end - begin <= SMALL {
            return self.insertion(begin, end);
        }
        let middle = self.partition(begin, end);
        self.alone(begin, middle);
        self.alone(middle, end);
    }
}
