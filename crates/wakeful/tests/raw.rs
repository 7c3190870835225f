// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every lock of the catalogue that lives in place, through lock_api.

use std::thread;

macro_rules! each {
    ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, $($rest:tt)* })*) => { $(each!(@test $kind $ident);)* };
    (@test queue $ident:ident) => {};
    (@test $kind:ident $ident:ident) => {
        #[test]
        fn $ident() {
            use wakeful::raw::$ident as lock;
            static TOTAL: lock::Mutex<usize> = lock::Mutex::new(0);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..200 {
                            *TOTAL.lock() += 1;
                            if let Some(mut total) = TOTAL.try_lock() {
                                *total += 1;
                                assert!(TOTAL.is_locked());
                                *total -= 1;
                            }
                        }
                    });
                }
            });
            assert_eq!(*TOTAL.lock(), 800);
            only_of_this_crate::<lock::RawMutex>();
            each!(@timed $kind TOTAL);
        }
    };
    (@timed timed $total:ident) => {{
        let guard = $total.lock();
        thread::scope(|scope| {
            scope.spawn(|| {
                let start = std::time::Instant::now();
                let timeout = std::time::Duration::from_millis(20);
                assert!($total.try_lock_for(timeout).is_none());
                assert!(start.elapsed() >= timeout);
            });
        });
        drop(guard);
        assert!($total.try_lock_for(std::time::Duration::ZERO).is_some());
    }};
    (@timed $kind:ident $total:ident) => {};
}

catalog::mutexes!(each);

/// What users name is made of this crate's types: other crates of ours may change at any time.
fn only_of_this_crate<T>() {
    let name = std::any::type_name::<T>();
    let mut paths = name.split(['<', '>', ',', ' ']).filter(|path| !path.is_empty());
    assert!(paths.all(|path| path.starts_with("wakeful::")), "{name}");
}

#[test]
fn the_defaults_are_made_of_this_crate_s_types() {
    only_of_this_crate::<wakeful::RawMutex>();
    only_of_this_crate::<wakeful::RawRwLock>();
}
