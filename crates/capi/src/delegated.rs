// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delegated critical sections for C: [`rust::Delegated`].

use std::ffi::{c_int, c_void};
use std::mem::forget;
use std::ptr::null_mut;
use std::time::Duration;

use libc::{EAGAIN, EINVAL, ETIMEDOUT};
use linux::Uncancelled;
// By another name: what makes the header does not know one from the other.
use rust::{ByServer, Condvar, Delegated as RustDelegated};

use crate::Argument;

/// A lock whose sections another thread may run. All zero: free. It must not be moved or copied. Its users
/// are kernel threads. wakeful_delegated_init binds it to a server.
///
/// The rule: a section may run on another thread than the one that called. So nothing in it may depend on
/// the thread: no thread-local variable, errno, thread id, credentials, signal mask or scheduling policy. It
/// must not use a lock that its caller holds, and not come to its own lock again. It must not wait for what
/// another thread has yet to do, except that a section ends, or a lock is released which all take in the
/// same order. It returns to its caller: no exception and no longjmp leaves it, and it does not end the
/// thread (pthread_exit there ends the program by SIGABRT). It should be short, and not fork. It is not
/// cancelled, and its caller only after it.
///
/// An existing pair of lock and unlock is not delegated by itself: what lies between would have to run on
/// its caller's stack. wakeful_delegated_lock and wakeful_delegated_unlock take such a pair as it is,
/// beside sections.
#[repr(C)]
pub struct Delegated {
    served: *mut c_void,
    words: [u64; 31],
}

type Own = RustDelegated<()>;
type Served = RustDelegated<(), ByServer>;

/// What C has: who uses it, clients and holder.
enum Theirs<'a> {
    Own(&'a Own),
    Served(&'a Served),
}

const _: () = assert!(
    size_of::<Delegated>() - size_of::<*mut c_void>()
        >= size_of::<Own>() + align_of::<Own>() - align_of::<Delegated>()
);

/// The lock that lies there, behind the first word, where its alignment begins: C may have put it anywhere.
///
/// # Safety
/// Such a lock, all zero at first or initialized, that has been here since.
unsafe fn at<'a>(lock: *mut Delegated) -> Theirs<'a> {
    // SAFETY: by the assertion above it fits in. Zeros are a free lock; `served` is from `Box::into_raw`.
    unsafe {
        if let Some(served) = (*lock).served.cast::<Served>().as_ref() {
            return Theirs::Served(served);
        }
        let place = (&raw mut (*lock).words).cast::<u8>();
        Theirs::Own(&*place.add(place.align_offset(align_of::<Own>())).cast())
    }
}

/// Threads that run the sections of all locks that are bound to them: `rcl`, remote core locking. If a
/// section blocks, faults, or waits for another lock's section, the sections of the server's other locks
/// go on. While nobody asks, its threads sleep. It pays where data are large and a processor can be spared.
pub struct RclServer(rust::RclServer);

/// Starts a server, and writes it to `server`. Its threads stay on this processor, or with -1 run wherever
/// the caller may.
///
/// Returns 0; EINVAL: the calling thread may not run on the processor, or it is below -1; EAGAIN: no thread
/// could be started.
///
/// # Safety
/// `server` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_rcl_server_start(server: *mut *mut RclServer, processor: c_int) -> c_int {
    let started = match (usize::try_from(processor), processor) {
        (Ok(processor), _) => rust::RclServer::start_on(processor),
        (_, -1) => rust::RclServer::start(),
        _ => return EINVAL,
    };
    match started {
        Ok(started) => {
            // SAFETY: as the caller promised.
            unsafe { server.write(Box::into_raw(Box::new(RclServer(started)))) };
            0
        }
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => EINVAL,
        Err(error) => error.raw_os_error().unwrap_or(EAGAIN),
    }
}

/// Gives the server up. Its threads end here, or with the last lock that is bound to it. NULL: nothing.
///
/// # Safety
/// From `wakeful_rcl_server_start`, not used afterwards. Not in a section of this server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_rcl_server_stop(server: *mut RclServer) {
    if !server.is_null() {
        // SAFETY: from `Box::into_raw` above.
        drop(unsafe { Box::from_raw(server) });
    }
}

/// Makes a free lock, whose sections this server runs; NULL: those who come to it, as with zeros. In a forked
/// child a lock of a server cannot be used: the child then ends by SIGABRT.
///
/// # Safety
/// Nobody uses the lock. It is not one that is bound to a server and not destroyed: that would be lost, and
/// keep its server. `server` is NULL or from `wakeful_rcl_server_start`, and not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_delegated_init(lock: *mut Delegated, server: *const RclServer) {
    // SAFETY: as the caller promised.
    let served = match unsafe { server.as_ref() } {
        Some(server) => Box::into_raw(Box::new(Served::on(&server.0, ()))).cast(),
        None => null_mut(),
    };
    // SAFETY: the same.
    unsafe { lock.write(Delegated { served, words: [0; 31] }) };
}

/// Ends a lock that `wakeful_delegated_init` made, also while it is locked. One that was zeros needs no end.
///
/// # Safety
/// Nobody uses the lock, or will before it is made again. Not in a section of its server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_delegated_destroy(lock: *mut Delegated) {
    // SAFETY: as the caller promised; from `Box::into_raw` above.
    unsafe {
        let served = std::mem::replace(&mut (*lock).served, null_mut());
        if !served.is_null() {
            drop(Box::from_raw(served.cast::<Served>()));
        }
    }
}

/// What runs: it gets the pointer and the two numbers that its caller gave.
type Section = unsafe extern "C-unwind" fn(pointer: *mut c_void, first: u64, second: u64) -> u64;

/// Ends the program if what runs beside it is left by pthread_exit or an exception: the lock would remain
/// locked, and its client wait for ever.
struct Returns;

impl Drop for Returns {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// What `calls` returns.
fn returning<R>(calls: impl FnOnce() -> R) -> R {
    let returns = Returns;
    let result = calls();
    forget(returns);
    result
}

/// Runs `section(pointer, first, second)` once, while no other section of this lock runs, and returns what
/// it returned. Another thread may run it: see the rule at wakeful_delegated. What the caller did before,
/// the section sees; what it did, the caller and all later sections see.
///
/// # Safety
/// A lock that the caller does not hold; a section that keeps the rule.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_delegated_run(
    lock: *mut Delegated,
    section: unsafe extern "C-unwind" fn(pointer: *mut c_void, first: u64, second: u64) -> u64,
    pointer: *mut c_void,
    first: u64,
    second: u64,
) -> u64 {
    // SAFETY: as the caller promised.
    let lock = unsafe { at(lock) };
    let pointer = Argument(pointer);
    let _uncancelled = Uncancelled::new();
    // SAFETY: the same.
    let run = |(): &mut ()| returning(|| unsafe { section(pointer.get(), first, second) });
    match lock {
        Theirs::Own(lock) => lock.run(run),
        Theirs::Served(lock) => lock.run(run),
    }
}

/// The same, unless `section` has not begun within so many nanoseconds. One that has begun is waited for.
///
/// Returns 0, and writes to `result`, if that is not NULL, what the section returned; ETIMEDOUT: it has not
/// run and will not; EINVAL: `section` is NULL, which `wakeful_delegated_run` does not allow.
///
/// # Safety
/// As for `wakeful_delegated_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_delegated_run_for(
    lock: *mut Delegated,
    ns: u64,
    section: Option<unsafe extern "C-unwind" fn(pointer: *mut c_void, first: u64, second: u64) -> u64>,
    pointer: *mut c_void,
    first: u64,
    second: u64,
    result: *mut u64,
) -> c_int {
    let Some(section): Option<Section> = section else { return EINVAL };
    // SAFETY: as the caller promised.
    let lock = unsafe { at(lock) };
    let pointer = Argument(pointer);
    let _uncancelled = Uncancelled::new();
    // SAFETY: the same.
    let run = |(): &mut ()| returning(|| unsafe { section(pointer.get(), first, second) });
    let time = Duration::from_nanos(ns);
    let ran = match lock {
        Theirs::Own(lock) => lock.try_run_for(time, run).ok(),
        Theirs::Served(lock) => lock.try_run_for(time, run).ok(),
    };
    let Some(value) = ran else { return ETIMEDOUT };
    // SAFETY: the same.
    if let Some(result) = unsafe { result.as_mut() } {
        *result = value;
    }
    0
}

/// Waits until no section runs. None runs from then on until `wakeful_delegated_unlock`, which the same
/// thread calls.
///
/// # Safety
/// A lock that the caller does not hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_delegated_lock(lock: *mut Delegated) {
    // SAFETY: as the caller promised.
    match unsafe { at(lock) } {
        Theirs::Own(lock) => forget(lock.lock()),
        Theirs::Served(lock) => forget(lock.lock()),
    }
}

/// Releases the lock. It runs no section of others.
///
/// # Safety
/// The calling thread has locked it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_delegated_unlock(lock: *mut Delegated) {
    // SAFETY: as the caller promised; `lock` forgot the guard.
    unsafe {
        match at(lock) {
            Theirs::Own(lock) => lock.force_unlock(),
            Theirs::Served(lock) => lock.force_unlock(),
        }
    }
}

/// What changed in the data of a `wakeful_delegated`, for those who wait for that. All zero: nobody waits. It
/// must not be moved or copied.
#[repr(C)]
pub struct Change {
    words: [u64; 2],
}

const _: () =
    assert!(size_of::<Change>() >= size_of::<Condvar>() && align_of::<Change>() >= align_of::<Condvar>());

/// Is it what the section waits for? It gets what the section will get.
type Condition = unsafe extern "C-unwind" fn(pointer: *mut c_void, first: u64, second: u64) -> bool;

/// Runs `section` as soon as `condition` returns true, in the same turn, as `wakeful_delegated_run` does.
/// Until then the calling thread sleeps, and no thread that runs sections. A thread that changes the data
/// calls `wakeful_delegated_changed`, in the section or afterwards.
///
/// The condition is asked in sections, after each change and now and then besides: the rule at
/// wakeful_delegated holds for it.
///
/// # Safety
/// As for `wakeful_delegated_run`; a `change` of this lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_delegated_run_when(
    lock: *mut Delegated,
    change: *mut Change,
    condition: unsafe extern "C-unwind" fn(pointer: *mut c_void, first: u64, second: u64) -> bool,
    section: unsafe extern "C-unwind" fn(pointer: *mut c_void, first: u64, second: u64) -> u64,
    pointer: *mut c_void,
    first: u64,
    second: u64,
) -> u64 {
    let when = When { condition, section, pointer: Argument(pointer), first, second };
    // SAFETY: as the caller promised.
    unsafe { when.run(lock, change, None) }.unwrap_or_default()
}

/// The same, unless the condition does not hold within so many nanoseconds, apart from the time to come to
/// the lock. At their end it is asked once more.
///
/// Returns 0, and writes to `result`, if that is not NULL, what the section returned; ETIMEDOUT: it has not
/// run and will not; EINVAL: `condition` or `section` is NULL.
///
/// # Safety
/// As for `wakeful_delegated_run_when`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_delegated_run_when_for(
    lock: *mut Delegated,
    change: *mut Change,
    ns: u64,
    condition: Option<unsafe extern "C-unwind" fn(pointer: *mut c_void, first: u64, second: u64) -> bool>,
    section: Option<unsafe extern "C-unwind" fn(pointer: *mut c_void, first: u64, second: u64) -> u64>,
    pointer: *mut c_void,
    first: u64,
    second: u64,
    result: *mut u64,
) -> c_int {
    let (Some(condition), Some(section)) = (condition, section) else { return EINVAL };
    let when = When { condition, section, pointer: Argument(pointer), first, second };
    // SAFETY: as the caller promised.
    let ran = unsafe { when.run(lock, change, Some(Duration::from_nanos(ns))) };
    let Some(value) = ran else { return ETIMEDOUT };
    // SAFETY: the same.
    if let Some(result) = unsafe { result.as_mut() } {
        *result = value;
    }
    0
}

/// Those who wait for a condition are to ask it again; `all` 0: one of them.
///
/// # Safety
/// A `change`, all zero at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_delegated_changed(change: *mut Change, all: c_int) {
    // SAFETY: as the caller promised. Zeros are a condition variable that nobody waits for.
    let change = unsafe { &*change.cast::<Condvar>() };
    if all != 0 {
        change.notify_all();
    } else {
        change.notify_one();
    }
}

/// A section that waits for a condition.
struct When {
    condition: Condition,
    section: Section,
    pointer: Argument,
    first: u64,
    second: u64,
}

impl When {
    /// # Safety
    /// As for `wakeful_delegated_run_when`.
    unsafe fn run(&self, lock: *mut Delegated, change: *mut Change, time: Option<Duration>) -> Option<u64> {
        let Self { condition, section, pointer, first, second } = self;
        // SAFETY: here and below: as the caller promised.
        let (lock, change) = unsafe { (at(lock), &*change.cast::<Condvar>()) };
        let _uncancelled = Uncancelled::new();
        // SAFETY: as above.
        let holds = |(): &mut ()| returning(|| unsafe { condition(pointer.get(), *first, *second) });
        // SAFETY: as above.
        let run = |(): &mut ()| returning(|| unsafe { section(pointer.get(), *first, *second) });
        match (lock, time) {
            (Theirs::Own(lock), None) => Some(lock.run_when(change, holds, run)),
            (Theirs::Own(lock), Some(time)) => lock.run_when_for(change, time, holds, run).ok(),
            (Theirs::Served(lock), None) => Some(lock.run_when(change, holds, run)),
            (Theirs::Served(lock), Some(time)) => lock.run_when_for(change, time, holds, run).ok(),
        }
    }
}
