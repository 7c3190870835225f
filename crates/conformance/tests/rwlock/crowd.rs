// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where readers are counted in a word beside other bits, so many that the count is full keep the next one
//! out; they do not come to look like a writer, or like nobody. (Guards that are forgotten are counted for
//! ever.)

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::*;
use sync::rwlock::{Native, RawRwLock, RawRwLockRecursive, TasB, Wakeful};

fn stays_full<L: RawRwLock<Linux, Node = ()>>(lock: &L) {
    // SAFETY: acquired only if it returns true, and then released.
    unsafe {
        assert!(!lock.try_read(&()), "a reader more than can be counted");
        assert!(!lock.try_write(&()), "a writer beside readers");
        for _ in 0..2 {
            lock.unlock_read(&());
        }
        for _ in 0..2 {
            assert!(lock.try_read(&()), "no reader, though there is room");
            assert!(!lock.try_write(&()), "a writer beside readers");
        }
        assert!(!lock.try_read(&()), "a reader more than can be counted");
    }
}

#[test]
fn of_tas_b() {
    // SAFETY: one word, `repr(transparent)`: so many readers.
    let lock: TasB<Linux> = unsafe { std::mem::transmute(AtomicU32::new(1 << 30)) };
    stays_full(&lock);
}

#[test]
fn of_native() {
    // SAFETY: one word, `repr(transparent)`: so many readers, counted from bit 2 on.
    let lock: Native<Linux> = unsafe { std::mem::transmute(AtomicU32::new(1 << 31)) };
    stays_full(&lock);
}

#[test]
fn of_wakeful() {
    stays_full(&*wakeful(1 << 17));
}

/// So many readers.
fn wakeful(readers: u32) -> Arc<Wakeful<Linux>> {
    let words = [readers << 8, 0, 0, 0, 0].map(AtomicU32::new);
    // SAFETY: five words, `repr(C)`: readers are counted in the first, from bit 8 on.
    Arc::new(unsafe { std::mem::transmute::<[AtomicU32; 5], Wakeful<Linux>>(words) })
}

/// A reader that waits for room to read once more does not wait behind a writer that waits for it.
#[test]
fn a_reader_of_a_crowd_reads_once_more() {
    const ROOM: u32 = 1 << 17;
    let lock = wakeful(ROOM - 1);
    let (ours, theirs) = (lock.clone(), lock.clone());
    // SAFETY: here and below, each is released once.
    let writer = move || unsafe {
        theirs.write(&());
        theirs.unlock_write(&());
    };
    let (ended, ends) = mpsc::channel();
    thread::spawn(move || {
        // SAFETY: see above.
        unsafe { ours.read(&()) };
        let writer = thread::spawn(writer);
        // More likely, the writer waits by now.
        thread::sleep(Duration::from_millis(50));
        ours.read_recursive();
        // SAFETY: see above.
        (0..2).for_each(|_| unsafe { ours.unlock_read(&()) });
        writer.join().unwrap();
        ended.send(()).unwrap();
    });
    thread::sleep(Duration::from_millis(100));
    // SAFETY: they are counted.
    (1..ROOM).for_each(|_| unsafe { lock.unlock_read(&()) });
    ends.recv_timeout(Duration::from_secs(120)).expect("a reader and a writer wait for each other");
}
