// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kits of which a pattern is built: families of mutex, condition variable, reader-writer lock and
//! semaphore.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A semaphore that begins with no permits.
pub(super) trait Semaphore: Send + Sync {
    fn new() -> Self;
    fn acquire(&self);
    fn release(&self);
}

/// A family of objects under test.
pub(super) trait Kit: Sized + 'static {
    type Mutex<T: Send>: Send + Sync;
    type Guard<'a, T: Send + 'a>: DerefMut<Target = T>;
    type Condvar: Default + Send + Sync;
    type RwLock<T: Send + Sync>: Send + Sync;
    type Semaphore: Semaphore;

    fn mutex<T: Send>(value: T) -> Self::Mutex<T>;
    fn lock<T: Send>(mutex: &Self::Mutex<T>) -> Self::Guard<'_, T>;
    fn wait<'a, T: Send>(condvar: &Self::Condvar, guard: Self::Guard<'a, T>) -> Self::Guard<'a, T>;
    fn wait_for<'a, T: Send>(
        condvar: &Self::Condvar,
        guard: Self::Guard<'a, T>,
        time: Duration,
    ) -> Self::Guard<'a, T>;
    fn notify_one(condvar: &Self::Condvar);
    fn notify_all(condvar: &Self::Condvar);
    fn rwlock<T: Send + Sync>(value: T) -> Self::RwLock<T>;
    fn read<T: Send + Sync, R>(lock: &Self::RwLock<T>, section: impl FnOnce(&T) -> R) -> R;
    fn write<T: Send + Sync>(lock: &Self::RwLock<T>, section: impl FnOnce(&mut T));
}

/// The semaphore of a kit that has none.
pub(super) struct Permits<K: Kit> {
    free: K::Mutex<u32>,
    more: K::Condvar,
}

impl<K: Kit> Semaphore for Permits<K> {
    fn new() -> Self {
        Self { free: K::mutex(0), more: K::Condvar::default() }
    }

    fn acquire(&self) {
        let mut free = K::lock(&self.free);
        while *free == 0 {
            free = K::wait(&self.more, free);
        }
        *free -= 1;
    }

    fn release(&self) {
        *K::lock(&self.free) += 1;
        K::notify_one(&self.more);
    }
}

pub(super) struct Std;

impl Kit for Std {
    type Mutex<T: Send> = std::sync::Mutex<T>;
    type Guard<'a, T: Send + 'a> = std::sync::MutexGuard<'a, T>;
    type Condvar = std::sync::Condvar;
    type RwLock<T: Send + Sync> = std::sync::RwLock<T>;
    type Semaphore = Permits<Self>;

    fn mutex<T: Send>(value: T) -> Self::Mutex<T> {
        std::sync::Mutex::new(value)
    }
    fn lock<T: Send>(mutex: &Self::Mutex<T>) -> Self::Guard<'_, T> {
        mutex.lock().expect("a section does not panic")
    }
    fn wait<'a, T: Send>(condvar: &Self::Condvar, guard: Self::Guard<'a, T>) -> Self::Guard<'a, T> {
        condvar.wait(guard).expect("a section does not panic")
    }
    fn wait_for<'a, T: Send>(
        condvar: &Self::Condvar,
        guard: Self::Guard<'a, T>,
        time: Duration,
    ) -> Self::Guard<'a, T> {
        condvar.wait_timeout(guard, time).expect("a section does not panic").0
    }
    fn notify_one(condvar: &Self::Condvar) {
        condvar.notify_one();
    }
    fn notify_all(condvar: &Self::Condvar) {
        condvar.notify_all();
    }
    fn rwlock<T: Send + Sync>(value: T) -> Self::RwLock<T> {
        std::sync::RwLock::new(value)
    }
    fn read<T: Send + Sync, R>(lock: &Self::RwLock<T>, section: impl FnOnce(&T) -> R) -> R {
        section(&lock.read().expect("a section does not panic"))
    }
    fn write<T: Send + Sync>(lock: &Self::RwLock<T>, section: impl FnOnce(&mut T)) {
        section(&mut lock.write().expect("a section does not panic"));
    }
}

/// Two crates with one interface.
macro_rules! lock_api_kit {
    ($kit:ident, $from:ident, $semaphore:ty) => {
        pub(crate) struct $kit;

        impl Kit for $kit {
            type Mutex<T: Send> = $from::Mutex<T>;
            type Guard<'a, T: Send + 'a> = $from::MutexGuard<'a, T>;
            type Condvar = $from::Condvar;
            type RwLock<T: Send + Sync> = $from::RwLock<T>;
            type Semaphore = $semaphore;

            fn mutex<T: Send>(value: T) -> Self::Mutex<T> {
                $from::Mutex::new(value)
            }
            fn lock<T: Send>(mutex: &Self::Mutex<T>) -> Self::Guard<'_, T> {
                mutex.lock()
            }
            fn wait<'a, T: Send>(
                condvar: &Self::Condvar,
                mut guard: Self::Guard<'a, T>,
            ) -> Self::Guard<'a, T> {
                condvar.wait(&mut guard);
                guard
            }
            fn wait_for<'a, T: Send>(
                condvar: &Self::Condvar,
                mut guard: Self::Guard<'a, T>,
                time: Duration,
            ) -> Self::Guard<'a, T> {
                condvar.wait_for(&mut guard, time);
                guard
            }
            fn notify_one(condvar: &Self::Condvar) {
                condvar.notify_one();
            }
            fn notify_all(condvar: &Self::Condvar) {
                condvar.notify_all();
            }
            fn rwlock<T: Send + Sync>(value: T) -> Self::RwLock<T> {
                $from::RwLock::new(value)
            }
            fn read<T: Send + Sync, R>(lock: &Self::RwLock<T>, section: impl FnOnce(&T) -> R) -> R {
                section(&lock.read())
            }
            fn write<T: Send + Sync>(lock: &Self::RwLock<T>, section: impl FnOnce(&mut T)) {
                section(&mut lock.write());
            }
        }
    };
}

#[cfg(test)]
pub(super) use lock_api_kit;

lock_api_kit!(ParkingLot, parking_lot, Permits<Self>);
lock_api_kit!(Ours, wakeful, wakeful::Semaphore);

impl Semaphore for wakeful::Semaphore {
    fn new() -> Self {
        Self::new(0)
    }
    fn acquire(&self) {
        self.acquire().forget();
    }
    fn release(&self) {
        self.release();
    }
}

pub(super) struct Glibc;

pub(super) struct PthreadMutex<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: a pthread mutex is made to be shared, it moves only before its first use, and it guards the value.
unsafe impl<T: Send> Sync for PthreadMutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for PthreadMutex<T> {}

/// Holds the mutex.
pub(super) struct PthreadGuard<'a, T>(&'a PthreadMutex<T>);

impl<T> Deref for PthreadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: under the mutex.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for PthreadGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: under the mutex.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for PthreadGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: locked by this thread.
        unsafe { libc::pthread_mutex_unlock(self.0.mutex.get()) };
    }
}

pub(super) struct PthreadCondvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: as for the mutex.
unsafe impl Sync for PthreadCondvar {}
// SAFETY: as for the mutex.
unsafe impl Send for PthreadCondvar {}

impl Default for PthreadCondvar {
    fn default() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }
}

pub(super) struct PthreadRwLock<T> {
    lock: UnsafeCell<libc::pthread_rwlock_t>,
    value: UnsafeCell<T>,
}

// SAFETY: as for the mutex.
unsafe impl<T: Send + Sync> Sync for PthreadRwLock<T> {}
// SAFETY: as for the mutex.
unsafe impl<T: Send + Sync> Send for PthreadRwLock<T> {}

impl Kit for Glibc {
    type Mutex<T: Send> = PthreadMutex<T>;
    type Guard<'a, T: Send + 'a> = PthreadGuard<'a, T>;
    type Condvar = PthreadCondvar;
    type RwLock<T: Send + Sync> = PthreadRwLock<T>;
    type Semaphore = PthreadSemaphore;

    fn mutex<T: Send>(value: T) -> Self::Mutex<T> {
        PthreadMutex {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            value: UnsafeCell::new(value),
        }
    }
    fn lock<T: Send>(mutex: &Self::Mutex<T>) -> Self::Guard<'_, T> {
        // SAFETY: initialised; unlocked when the guard is dropped.
        unsafe { libc::pthread_mutex_lock(mutex.mutex.get()) };
        PthreadGuard(mutex)
    }
    fn wait<'a, T: Send>(condvar: &Self::Condvar, guard: Self::Guard<'a, T>) -> Self::Guard<'a, T> {
        // SAFETY: initialised, and the guard's mutex is locked by this thread.
        unsafe { libc::pthread_cond_wait(condvar.0.get(), guard.0.mutex.get()) };
        guard
    }
    fn wait_for<'a, T: Send>(
        condvar: &Self::Condvar,
        guard: Self::Guard<'a, T>,
        time: Duration,
    ) -> Self::Guard<'a, T> {
        let until = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970") + time;
        let until = libc::timespec { tv_sec: until.as_secs() as _, tv_nsec: until.subsec_nanos().into() };
        // SAFETY: as above.
        unsafe { libc::pthread_cond_timedwait(condvar.0.get(), guard.0.mutex.get(), &until) };
        guard
    }
    fn notify_one(condvar: &Self::Condvar) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_signal(condvar.0.get()) };
    }
    fn notify_all(condvar: &Self::Condvar) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_broadcast(condvar.0.get()) };
    }
    fn rwlock<T: Send + Sync>(value: T) -> Self::RwLock<T> {
        PthreadRwLock {
            lock: UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER),
            value: UnsafeCell::new(value),
        }
    }
    fn read<T: Send + Sync, R>(lock: &Self::RwLock<T>, section: impl FnOnce(&T) -> R) -> R {
        // SAFETY: initialised; nobody writes meanwhile.
        unsafe {
            libc::pthread_rwlock_rdlock(lock.lock.get());
            let result = section(&*lock.value.get());
            libc::pthread_rwlock_unlock(lock.lock.get());
            result
        }
    }
    fn write<T: Send + Sync>(lock: &Self::RwLock<T>, section: impl FnOnce(&mut T)) {
        // SAFETY: initialised; nobody else is inside.
        unsafe {
            libc::pthread_rwlock_wrlock(lock.lock.get());
            section(&mut *lock.value.get());
            libc::pthread_rwlock_unlock(lock.lock.get());
        }
    }
}

pub(super) struct PthreadSemaphore(UnsafeCell<libc::sem_t>);

// SAFETY: as for the mutex.
unsafe impl Sync for PthreadSemaphore {}
// SAFETY: as for the mutex.
unsafe impl Send for PthreadSemaphore {}

impl Semaphore for PthreadSemaphore {
    fn new() -> Self {
        // SAFETY: zeros are valid bytes; a semaphore may move before its first use: it is plain words.
        unsafe {
            let semaphore = Self(UnsafeCell::new(std::mem::zeroed()));
            libc::sem_init(semaphore.0.get(), 0, 0);
            semaphore
        }
    }
    fn acquire(&self) {
        // SAFETY: initialised.
        unsafe { libc::sem_wait(self.0.get()) };
    }
    fn release(&self) {
        // SAFETY: initialised.
        unsafe { libc::sem_post(self.0.get()) };
    }
}
