// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which thread goes to which place (OpenMP 5.1, section 2.6.2).

use std::cell::Cell;

use crate::icv::{Bind, settings};
use crate::places::Place;

/// Places of the list that a thread's teams may use: the first, and how many.
pub type Partition = (u32, u32);

/// Where a thread of a team goes, and the partition that it has then; from the primary thread's place and
/// partition.
pub fn assign(
    bind: Bind,
    number: u32,
    team: u32,
    primary: u32,
    (first, count): Partition,
) -> Option<(u32, Partition)> {
    if count == 0 {
        return None;
    }
    let offset = primary.checked_sub(first).filter(|&offset| offset < count).unwrap_or(0);
    let whole = (first, count);
    match bind {
        Bind::False => None,
        Bind::Primary => Some((first + offset, whole)),
        // True is the implementation's choice.
        Bind::True | Bind::Close => {
            // With fewer places than threads neighbours share one.
            let step =
                if team <= count { number } else { (number as u64 * count as u64 / team as u64) as u32 };
            Some((first + (offset + step) % count, whole))
        }
        Bind::Spread if team <= count => {
            let begin = |index: u32| (index as u64 * count as u64 / team as u64) as u32;
            // The subpartition in which the primary thread is, is the first one.
            let mine = (0..team).rfind(|&index| begin(index) <= offset).unwrap_or(0);
            let index = (mine + number) % team;
            let part = (first + begin(index), begin(index + 1) - begin(index));
            Some((if number == 0 { first + offset } else { part.0 }, part))
        }
        Bind::Spread => {
            let place = first + (offset + (number as u64 * count as u64 / team as u64) as u32) % count;
            Some((place, (place, 1)))
        }
    }
}

/// Moves the calling thread to a place of the list. What the kernel refuses stays as it was.
pub fn go(place: u32) {
    let Some(Place(processors)) = settings().places.get(place as usize) else { return };
    // SAFETY: zeros are an empty set; the numbers are usable processors and so below the size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        processors.iter().for_each(|&cpu| libc::CPU_SET(cpu as usize, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Where a thread is, as far as we have put it there.
#[derive(Default)]
pub struct Location {
    /// 1 more than the place's number, or 0.
    place: Cell<u32>,
    partition: Cell<Option<Partition>>,
}

impl Location {
    pub fn place(&self) -> Option<u32> {
        self.place.get().checked_sub(1)
    }

    pub fn partition(&self) -> Partition {
        self.partition.get().unwrap_or((0, settings().places.len() as u32))
    }

    pub fn set_partition(&self, partition: Option<Partition>) {
        self.partition.set(partition);
    }

    /// Goes where a member of a team belongs.
    pub fn enter(&self, (place, partition): (u32, Partition)) {
        if self.place() != Some(place) {
            go(place);
            self.place.set(place + 1);
        }
        self.partition.set(Some(partition));
    }
}
