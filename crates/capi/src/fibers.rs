// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers for C, and locks that they wait in: [`rust::thread`].

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::mem::{ManuallyDrop, forget};
use std::ptr::null_mut;
use std::time::Duration;

use libc::{EBUSY, ECANCELED, EDEADLK, EINVAL, EIO, ENOMEM, EOVERFLOW, EPERM, ESRCH, ETIMEDOUT};
use rust::thread::local::LocalKey;
use rust::thread::{self, Builder, Priority, RawHandle, sync, uncancelled};

use crate::Argument;

/// A fiber: a value that may be copied. All zero: none. A fiber that has ended and was joined or detached is
/// known to be gone, however many copies there are.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Fiber {
    place: *const c_void,
    serial: u64,
}

/// The priority of the fiber that spawns, or the usual one.
pub const WAKEFUL_PRIORITY_SAME: c_int = 0;
/// As other threads.
pub const WAKEFUL_PRIORITY_USUAL: c_int = 1;
/// Only where the processor would idle, or nearly so (SCHED_IDLE). Threads and processes that such a fiber
/// starts are as it is, and stay so.
pub const WAKEFUL_PRIORITY_LOW: c_int = 2;

/// How a fiber is to be. All zero: as without.
#[repr(C)]
pub struct Attributes {
    /// For messages; NULL: none. It is copied.
    name: *const c_char,
    /// WAKEFUL_PRIORITY_...
    priority: c_int,
    /// Bytes of stack at least; 0: 256 KiB. An overflow ends the program, with a message: there is a guard of
    /// 64 KiB. Only a frame that is longer may jump over it, in code without -fstack-clash-protection.
    stack_size: usize,
}

/// A value that each fiber has for itself, NULL at first. The object's address is the key, so it is static.
#[repr(C)]
pub struct Local {
    /// Called with a value that is not NULL when its fiber's body has returned, as the fiber; the fiber's
    /// value is NULL then. Those set last come first. Values that are set meanwhile are destroyed too, in at
    /// most 4 rounds, as those of pthread_key_create. NULL: nothing is called.
    destroy: Option<unsafe extern "C" fn(value: *mut c_void)>,
}

/// Mutual exclusion among fibers; kernel threads may use it as well. All zero: free.
#[repr(C)]
pub struct Mutex {
    word: u32,
}

/// Many readers or one writer. All zero: free.
#[repr(C)]
pub struct RwLock {
    word: u32,
}

/// A condition variable for wakeful_mutex. All zero: nobody waits. It must not end before all waits have
/// returned, even if all were woken.
#[repr(C)]
pub struct Condvar {
    words: [u32; 2],
}

/// Permits that any fiber or thread may add and take. All zero: none.
#[repr(C)]
pub struct Semaphore {
    words: [u32; 2],
}

/// A point that fibers pass together.
#[repr(C)]
pub struct Barrier {
    words: [u64; 5],
}

/// What C sees of a lock is as large as the lock, and aligned for it.
macro_rules! same {
    ($($ours:ty, $theirs:ty;)*) => {
        $(const _: () = assert!(
            size_of::<$ours>() == size_of::<$theirs>() && align_of::<$ours>() >= align_of::<$theirs>()
        );)*
    };
}

same! {
    Mutex, sync::Mutex<()>;
    RwLock, sync::RwLock<()>;
    Condvar, sync::Condvar;
    Semaphore, sync::Semaphore;
    Barrier, sync::Barrier;
}

/// The lock that lies there.
macro_rules! at {
    ($place:expr, $theirs:ty) => {
        // SAFETY: the caller promises such a lock; by `same` it is one of these.
        unsafe { &*$place.cast::<$theirs>() }
    };
}

fn time(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// 0 or this error.
fn unless(done: bool, error: c_int) -> c_int {
    if done { 0 } else { error }
}

fn number(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::OutOfMemory => ENOMEM,
        io::ErrorKind::PermissionDenied => EPERM,
        _ => EIO,
    })
}

impl Fiber {
    const NONE: Self = Self { place: std::ptr::null(), serial: 0 };

    fn of(raw: RawHandle) -> Self {
        Self { place: raw.place.cast(), serial: raw.serial }
    }

    fn raw(self) -> RawHandle {
        RawHandle { place: self.place.cast(), serial: self.serial }
    }

    /// # Safety
    /// From `wakeful_fiber_spawn` or `wakeful_fiber_self`, or none.
    unsafe fn claim(self) -> Option<thread::JoinHandle<Argument>> {
        // SAFETY: as the caller promises. All that have a claim were spawned here.
        unsafe { self.raw().claim() }
    }
}

/// # Safety
/// The name is NULL, or a string.
unsafe fn builder(attributes: &Attributes) -> Option<Builder> {
    let mut builder = Builder::new();
    if !attributes.name.is_null() {
        // SAFETY: as the caller promises.
        builder = builder.name(unsafe { CStr::from_ptr(attributes.name) }.to_string_lossy());
    }
    if attributes.stack_size != 0 {
        builder = builder.stack_size(attributes.stack_size);
    }
    Some(match attributes.priority {
        WAKEFUL_PRIORITY_SAME => builder,
        WAKEFUL_PRIORITY_USUAL => builder.priority(Priority::Usual),
        WAKEFUL_PRIORITY_LOW => builder.priority(Priority::Low),
        _ => return None,
    })
}

/// Starts a fiber, a user-level thread, that calls `body(argument)`, and writes it to `fiber`; NULL: nobody
/// will join it. It stays with the kernel thread on which it begins. As many kernel threads run fibers as the
/// program has processors; if one blocks in the kernel, another takes its place. `attributes` may be NULL.
///
/// `body` may do what a thread may, but must return: neither an exception nor `longjmp` may leave it, nor may
/// it end the thread (pthread_exit there ends the program by SIGABRT). It waits best in the locks of this
/// header. Unless the program runs under `wakeful run`, pthread's block the kernel thread, and must not be
/// held where it waits. Fibers of one kernel thread share its errno and its _Thread_local variables: where a
/// fiber waits, others may change them.
///
/// Returns 0; EINVAL: `body` is NULL, or there is no such priority; ENOMEM: there is no memory for a stack of
/// this size; EPERM: a thread of low priority would have to start one that is not; or what epoll_create,
/// eventfd, timerfd_create or pthread_create say to the first fiber. Then nothing was started.
///
/// # Safety
/// `body` may be called from another thread with this argument; `name` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_fiber_spawn(
    fiber: *mut Fiber,
    attributes: *const Attributes,
    body: Option<unsafe extern "C" fn(argument: *mut c_void) -> *mut c_void>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    let builder = match unsafe { attributes.as_ref() } {
        // SAFETY: the same.
        Some(attributes) => unsafe { self::builder(attributes) },
        None => Some(Builder::new()),
    };
    let (Some(builder), Some(body)) = (builder, body) else { return EINVAL };
    let argument = Argument(argument);
    let body = move || {
        // SAFETY: as the caller promises.
        let result = unsafe { body(argument.get()) };
        VALUES.with_made(Values::destroy);
        Argument(result)
    };
    // SAFETY: the caller's, if it is not null.
    let started = match unsafe { fiber.as_mut() } {
        Some(fiber) => builder.spawn_raw(body).map(|raw| *fiber = Fiber::of(raw)),
        None => builder.spawn(body).map(drop),
    };
    started.map_or_else(|error| number(&error), |()| 0)
}

/// Waits for the end of a fiber, and writes what its body returned to `result` unless that is NULL. One call
/// joins a fiber, and nobody need: see `wakeful_fiber_detach`.
///
/// Returns 0; ESRCH: it was joined or detached before, or is none; EDEADLK: it is the caller.
///
/// # Safety
/// A fiber from here, or all zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_fiber_join(fiber: Fiber, result: *mut *mut c_void) -> c_int {
    if RawHandle::current() == Some(fiber.raw()) {
        return EDEADLK;
    }
    // SAFETY: as the caller promises.
    let Some(handle) = (unsafe { fiber.claim() }) else { return ESRCH };
    // The body cannot panic: a panic that comes to a C function ends the program.
    let value = handle.join().map_or(null_mut(), |value| value.get());
    // SAFETY: the caller's, if it is not null.
    if let Some(result) = unsafe { result.as_mut() } {
        *result = value;
    }
    0
}

/// Nobody will join this fiber; it goes on.
///
/// Returns 0; ESRCH: it was joined or detached before, or is none.
///
/// # Safety
/// A fiber from here, or all zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_fiber_detach(fiber: Fiber) -> c_int {
    // SAFETY: as the caller promises.
    unless(unsafe { fiber.claim() }.is_some(), ESRCH)
}

/// The calling fiber; all zero outside of fibers.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_fiber_self() -> Fiber {
    RawHandle::current().map_or(Fiber::NONE, Fiber::of)
}

/// Lets other fibers go first. Outside of fibers it is sched_yield.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_fiber_yield() {
    uncancelled::yield_now();
}

/// Waits for at least so many nanoseconds, in a fiber or in a thread. `wakeful_fiber_cancel` ends it.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_fiber_sleep(ns: u64) {
    uncancelled::sleep(time(ns));
}

/// Waits until somebody has called `wakeful_fiber_unpark` for the calling fiber since the last time. It may
/// return for no reason, so look at what you wait for.
///
/// Returns 0; ECANCELED: the caller was cancelled; EPERM: it is no fiber.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_fiber_park() -> c_int {
    if RawHandle::current().is_none() {
        return EPERM;
    }
    uncancelled::park();
    wakeful_fiber_cancelled()
}

/// As `wakeful_fiber_park`, but no longer than so many nanoseconds.
///
/// Returns 0, also when the time is over; ECANCELED: the caller was cancelled; EPERM: it is no fiber.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_fiber_park_for(ns: u64) -> c_int {
    if RawHandle::current().is_none() {
        return EPERM;
    }
    uncancelled::park_timeout(time(ns));
    wakeful_fiber_cancelled()
}

/// Ends the fiber's `wakeful_fiber_park`, or the next one. Any thread may call it. Of a fiber that has ended
/// it does nothing.
///
/// Returns 0; ESRCH: it is none, or another fiber has its place.
///
/// # Safety
/// A fiber from here, or all zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_fiber_unpark(fiber: Fiber) -> c_int {
    // SAFETY: as the caller promises.
    unless(unsafe { fiber.raw().unpark() }, ESRCH)
}

/// Tells a fiber to end. It ends the fiber's `wakeful_fiber_park` or `wakeful_fiber_sleep`, or the next one.
/// Nothing is unwound: one `wakeful_fiber_park`, `_park_for` or `_cancelled` of the fiber returns ECANCELED,
/// and its body returns then, if it is written so. After that it waits as before.
///
/// Returns 0; ESRCH: it is none, or another fiber has its place.
///
/// # Safety
/// A fiber from here, or all zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_fiber_cancel(fiber: Fiber) -> c_int {
    // SAFETY: as the caller promises.
    unless(unsafe { fiber.raw().cancel() }, ESRCH)
}

/// Was the calling fiber cancelled? Returns ECANCELED, once for each time; else 0.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_fiber_cancelled() -> c_int {
    if uncancelled::take() { ECANCELED } else { 0 }
}

/// The calling fiber's values.
struct Values(RefCell<Vec<Value>>);

type Destroy = unsafe extern "C" fn(value: *mut c_void);

struct Value {
    key: *const Local,
    value: *mut c_void,
}

static VALUES: LocalKey<Values> = LocalKey::new(|| Values(RefCell::new(Vec::new())));

/// As pthread's: PTHREAD_DESTRUCTOR_ITERATIONS.
const ROUNDS: u32 = 4;

impl Values {
    /// Destroys what the fiber has set, newest first. A destructor may get and set values: so each is called
    /// while nobody borrows the list.
    fn destroy(&self) {
        for _ in 0..ROUNDS {
            let mut destroyed = false;
            // A key that is new comes in the next round.
            let count = self.0.borrow().len();
            for index in (0..count).rev() {
                if let Some((destroy, value)) = self.take(index) {
                    destroyed = true;
                    // SAFETY: who set the value promised that this destroys it.
                    unsafe { destroy(value) };
                }
            }
            if !destroyed {
                break;
            }
        }
    }

    /// A value that is to be destroyed; from now on it is NULL.
    fn take(&self, index: usize) -> Option<(Destroy, *mut c_void)> {
        let Value { key, value } = &mut self.0.borrow_mut()[index];
        if value.is_null() {
            return None;
        }
        // SAFETY: who set the value promised that the key stays as long as the fiber has it.
        let destroy = unsafe { (**key).destroy }?;
        Some((destroy, std::mem::replace(value, null_mut())))
    }
}

/// The calling fiber's value; NULL if it has set none, and outside of fibers.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_local_get(key: *const Local) -> *mut c_void {
    if RawHandle::current().is_none() {
        return null_mut();
    }
    let find = |values: &Values| {
        let values = values.0.borrow();
        values.iter().find(|value| value.key == key).map_or(null_mut(), |value| value.value)
    };
    VALUES.with_made(find).unwrap_or(null_mut())
}

/// Sets the calling fiber's value. What it was before is not destroyed.
///
/// Returns 0; EPERM: the caller is no fiber; ENOMEM: there is no memory for one more value. Where there is
/// none even for the first one's list, the program ends.
///
/// # Safety
/// The key stays as long as fibers have values of it, and its destructor takes this value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_local_set(key: *const Local, value: *mut c_void) -> c_int {
    if RawHandle::current().is_none() {
        return EPERM;
    }
    VALUES.with(|values| {
        let mut values = values.0.borrow_mut();
        if let Some(found) = values.iter_mut().find(|value| value.key == key) {
            found.value = value;
        } else if values.try_reserve(1).is_ok() {
            values.push(Value { key, value });
        } else {
            return ENOMEM;
        }
        0
    })
}

/// Acquires the mutex; the calling fiber waits, and its kernel thread takes another one.
///
/// # Safety
/// A mutex that the caller does not hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_mutex_lock(mutex: *mut Mutex) {
    forget(at!(mutex, sync::Mutex<()>).lock());
}

/// Acquires the mutex if it is free. Returns 0 or EBUSY.
///
/// # Safety
/// A mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_mutex_try_lock(mutex: *mut Mutex) -> c_int {
    unless(at!(mutex, sync::Mutex<()>).try_lock().map(forget).is_some(), EBUSY)
}

/// Acquires the mutex within so many nanoseconds. Returns 0 or ETIMEDOUT.
///
/// # Safety
/// As for `wakeful_mutex_lock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_mutex_lock_for(mutex: *mut Mutex, ns: u64) -> c_int {
    unless(at!(mutex, sync::Mutex<()>).try_lock_for(time(ns)).map(forget).is_some(), ETIMEDOUT)
}

/// Releases the mutex.
///
/// # Safety
/// The caller holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_mutex_unlock(mutex: *mut Mutex) {
    let mutex = at!(mutex, sync::Mutex<()>);
    // SAFETY: as the caller promises.
    unsafe { mutex.force_unlock() };
}

/// Acquires the lock as one of many readers.
///
/// # Safety
/// A lock that the caller does not hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_rwlock_read(lock: *mut RwLock) {
    forget(at!(lock, sync::RwLock<()>).read());
}

/// Acquires the lock as a reader if no writer has it. Returns 0 or EBUSY.
///
/// # Safety
/// A lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_rwlock_try_read(lock: *mut RwLock) -> c_int {
    unless(at!(lock, sync::RwLock<()>).try_read().map(forget).is_some(), EBUSY)
}

/// Releases the lock as a reader.
///
/// # Safety
/// The caller is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_rwlock_unlock_read(lock: *mut RwLock) {
    let lock = at!(lock, sync::RwLock<()>);
    // SAFETY: as the caller promises.
    unsafe { lock.force_unlock_read() };
}

/// Acquires the lock as its one writer.
///
/// # Safety
/// A lock that the caller does not hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_rwlock_write(lock: *mut RwLock) {
    forget(at!(lock, sync::RwLock<()>).write());
}

/// Acquires the lock as its writer if it is free. Returns 0 or EBUSY.
///
/// # Safety
/// A lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_rwlock_try_write(lock: *mut RwLock) -> c_int {
    unless(at!(lock, sync::RwLock<()>).try_write().map(forget).is_some(), EBUSY)
}

/// Releases the lock as its writer.
///
/// # Safety
/// The caller is it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_rwlock_unlock_write(lock: *mut RwLock) {
    let lock = at!(lock, sync::RwLock<()>);
    // SAFETY: as the caller promises.
    unsafe { lock.force_unlock_write() };
}

/// What a condition variable releases meanwhile.
///
/// # Safety
/// The caller holds the mutex.
unsafe fn guard<'a>(mutex: *mut Mutex) -> ManuallyDrop<sync::MutexGuard<'a, ()>> {
    let mutex = at!(mutex, sync::Mutex<()>);
    // SAFETY: as the caller promises; whoever waits holds it again afterwards, and nobody drops this.
    ManuallyDrop::new(unsafe { mutex.make_guard_unchecked() })
}

/// Releases the mutex, waits for a signal, acquires the mutex again. It may return for no reason.
///
/// # Safety
/// The caller holds the mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_condvar_wait(condvar: *mut Condvar, mutex: *mut Mutex) {
    // SAFETY: as the caller promises.
    let mut guard = unsafe { guard(mutex) };
    at!(condvar, sync::Condvar).wait(&mut guard);
}

/// As `wakeful_condvar_wait`, for no longer than so many nanoseconds. Returns 0, or ETIMEDOUT if no signal
/// came; the caller holds the mutex in both cases.
///
/// # Safety
/// The caller holds the mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_condvar_wait_for(
    condvar: *mut Condvar,
    mutex: *mut Mutex,
    ns: u64,
) -> c_int {
    // SAFETY: as the caller promises.
    let mut guard = unsafe { guard(mutex) };
    unless(at!(condvar, sync::Condvar).wait_for(&mut guard, time(ns)), ETIMEDOUT)
}

/// Wakes one who waits.
///
/// # Safety
/// A condition variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_condvar_signal(condvar: *mut Condvar) {
    at!(condvar, sync::Condvar).notify_one();
}

/// Wakes all who wait.
///
/// # Safety
/// A condition variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_condvar_broadcast(condvar: *mut Condvar) {
    at!(condvar, sync::Condvar).notify_all();
}

/// Gives a semaphore that nobody uses so many permits. Returns 0, or EINVAL: more than 2^30 - 1.
///
/// # Safety
/// Room for a semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_semaphore_init(semaphore: *mut Semaphore, permits: u32) -> c_int {
    if permits >= 1 << 30 {
        return EINVAL;
    }
    // SAFETY: as the caller promises.
    unsafe { semaphore.cast::<sync::Semaphore>().write(sync::Semaphore::new(permits)) };
    0
}

/// Takes a permit, waiting for one if there is none.
///
/// # Safety
/// A semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_semaphore_acquire(semaphore: *mut Semaphore) {
    at!(semaphore, sync::Semaphore).acquire();
}

/// Takes a permit if there is one. Returns 0 or EBUSY.
///
/// # Safety
/// A semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_semaphore_try_acquire(semaphore: *mut Semaphore) -> c_int {
    unless(at!(semaphore, sync::Semaphore).try_acquire(), EBUSY)
}

/// Takes a permit within so many nanoseconds. Returns 0 or ETIMEDOUT.
///
/// # Safety
/// A semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_semaphore_acquire_for(semaphore: *mut Semaphore, ns: u64) -> c_int {
    unless(at!(semaphore, sync::Semaphore).try_acquire_for(time(ns)), ETIMEDOUT)
}

/// Adds a permit. Returns 0, or EOVERFLOW: there are 2^30 - 1.
///
/// # Safety
/// A semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_semaphore_release(semaphore: *mut Semaphore) -> c_int {
    unless(at!(semaphore, sync::Semaphore).try_release(), EOVERFLOW)
}

/// Makes a barrier for so many; 0 counts as 1.
///
/// # Safety
/// Room for a barrier that nobody uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_barrier_init(barrier: *mut Barrier, parties: u32) {
    // SAFETY: as the caller promises.
    unsafe { barrier.cast::<sync::Barrier>().write(sync::Barrier::new(parties)) };
}

/// Waits for the others. Returns 1 to one of those who pass together, 0 to the others.
///
/// # Safety
/// A barrier that was made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_barrier_wait(barrier: *mut Barrier) -> c_int {
    c_int::from(at!(barrier, sync::Barrier).wait())
}
