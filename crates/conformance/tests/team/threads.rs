// SPDX-License-Identifier: MIT OR Apache-2.0
//! On this computer.

use super::*;

#[test]
fn threads() {
    for kind in KINDS {
        for _ in 0..20 * further() {
            jobs::<Linux, Wakeful<_>>(7, &[None; 100], kind);
            jobs::<Linux, Wakeful<_>>(3, &[None, Some(3), None, Some(0), Some(1), None], kind);
            jobs::<Twisted<Linux, Lying>, Wakeful<_>>(3, &[None; 20], kind);
            jobs::<Twisted<Linux, Fickle>, Wakeful<_>>(3, &[None; 20], kind);
        }
    }
    alone::<Linux, Wakeful<_>>(3);
}

/// Before and between loops, and after them nobody is any more who would not be needed.
#[test]
fn threads_bound_helpers_without_work_are_spare() {
    for kind in KINDS {
        let (spare, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let work = Teamwork::<Linux, Wakeful<Linux>>::new(2, &[None]);
        std::thread::scope(|scope| {
            for index in 0..2 {
                let (work, spare, most) = (&work, &spare, &most);
                scope.spawn(move || {
                    work.help_and_tell(index, kind, |asleep| match asleep {
                        true => _ = most.fetch_max(spare.fetch_add(1, SeqCst) + 1, SeqCst),
                        false => _ = spare.fetch_sub(1, SeqCst),
                    });
                });
            }
            match kind {
                Kind::Bound => {
                    while spare.load(SeqCst) != 2 {
                        std::thread::yield_now();
                    }
                }
                // Longer than a bound one waits.
                Kind::Free => std::thread::sleep(std::time::Duration::from_millis(30)),
            }
            work.call();
        });
        assert_eq!(spare.into_inner(), 0);
        assert_eq!(most.into_inner(), if kind == Kind::Bound { 2 } else { 0 });
    }
}

const SCHEDULES: [Schedule; 5] = [
    Schedule::Static,
    Schedule::Dynamic { chunk: 0 },
    Schedule::Dynamic { chunk: 3 },
    Schedule::Guided { least: 0 },
    Schedule::Guided { least: 2 },
];

#[test]
fn threads_chunks() {
    for schedule in SCHEDULES {
        for length in [0, 1, 2, 7, 8, 9, 1000] {
            chunks::<Linux>(4, schedule, length);
        }
    }
}

/// By one thread, so that the arithmetic is all there is; also of lengths beyond 32 bits, where the
/// callers' ranges are added up.
#[test]
fn chunks_cover_each_length() {
    for schedule in SCHEDULES {
        for parts in [1, 2, 3, 64] {
            for length in (0..200).chain([1 << 20, u32::MAX as usize, 1 << 31]) {
                if matches!(schedule, Schedule::Dynamic { .. }) && length > 1 << 20 {
                    continue;
                }
                let chunks = Chunks::<Linux>::default();
                let mut next = 0;
                for part in 0..parts {
                    chunks.share(schedule, part, parts, length, |range| {
                        assert_eq!(range.start, next, "{schedule:?}, {parts} parts of {length}");
                        assert!(!range.is_empty());
                        next = range.end;
                    });
                }
                assert_eq!(next, length, "{schedule:?}, {parts} parts");
            }
        }
    }
    for schedule in [Schedule::Dynamic { chunk: usize::MAX / 3 }, Schedule::Guided { least: usize::MAX / 3 }]
    {
        let chunks = Chunks::<Linux>::default();
        let mut next = 0;
        chunks.share(schedule, 0, 2, usize::MAX, |range| {
            assert_eq!(range.start, next);
            next = range.end;
        });
        assert_eq!(next, usize::MAX);
    }
    let cancelled = Chunks::<Linux>::default();
    cancelled.cancel();
    cancelled.share(Schedule::Dynamic { chunk: 1 }, 0, 2, 10, |_| panic!("was cancelled"));
    cancelled.share(Schedule::Guided { least: 1 }, 0, 2, 10, |_| panic!("was cancelled"));
}
