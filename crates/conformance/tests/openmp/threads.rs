// SPDX-License-Identifier: MIT OR Apache-2.0
//! On this computer.

use super::*;

#[test]
fn threads() {
    let lies = [each::<Linux>(), each::<Twisted<Linux, Lying>>(), each::<Twisted<Linux, Fickle>>()];
    for _ in 0..20 * further() {
        lies.iter().flatten().for_each(|body| body());
    }
    regions::<Linux>();
}

/// By one thread, so that the arithmetic is all there is.
#[test]
fn iterations_cover_each_length() {
    for all in (0..100).chain([1 << 20, u64::MAX >> 1, u64::MAX - 1]) {
        for (guided, chunk) in
            [(false, 0), (false, 3), (false, u64::MAX / 3), (true, 0), (true, 4), (true, u64::MAX / 3)]
        {
            let (taken, mut next) = (Iterations::<Linux>::default(), 0);
            if !guided && all / u64::max(chunk, 1) > 1 << 21 {
                continue;
            }
            while let Some((first, last)) = match guided {
                true => taken.take_guided(all, chunk, 2, 3),
                false => taken.take_chunk(all, chunk, 3),
            } {
                assert_eq!(first, next, "{all} iterations in chunks of {chunk}");
                assert!(last > first && (!guided || last == all || (last - first) % 2 == 0));
                next = last;
            }
            assert_eq!(next, all, "in chunks of {chunk}");
        }
    }
}

/// Priorities: the greatest is the newest, and of equals the first stands before the others.
#[test]
fn a_task_of_a_priority_stands_among_its_like() {
    priorities();
}
