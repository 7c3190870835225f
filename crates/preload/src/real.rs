// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's own functions, for what we leave to it.
//!
//! Looked up behind us (`RTLD_NEXT`): `execve`, `sem_init` and `sem_post` at load, all others when the first
//! thread is created, or on first use before that. Most programs that a preloaded library comes into use no
//! other.
//! The condition variables have two generations of symbols (`GLIBC_2.2.5` kept a pointer in the object);
//! we ask for the newer by version.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};

use libc::{
    clockid_t, pid_t, pthread_attr_t, pthread_barrier_t, pthread_barrierattr_t, pthread_cond_t,
    pthread_condattr_t, pthread_key_t, pthread_mutex_t, pthread_mutexattr_t, pthread_rwlock_t,
    pthread_rwlockattr_t, pthread_t, sem_t, timespec,
};

/// Words of a program, or its environment.
type List = *const *const c_char;

/// The newer generation of condition variables on x86_64; elsewhere there is only one.
const COND_VERSION: Option<&CStr> = if cfg!(target_arch = "x86_64") { Some(c"GLIBC_2.3.2") } else { None };

/// One of them.
pub struct Symbol {
    name: &'static CStr,
    version: Option<&'static CStr>,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub const fn new(name: &'static CStr, version: Option<&'static CStr>) -> Self {
        Self { name, version, address: AtomicPtr::new(null_mut()) }
    }

    #[cold]
    #[unsafe(link_section = "wakeful_start")]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: names and versions are C strings; both functions may be called at any time after relocation.
        let address = unsafe {
            let versioned = match self.version {
                Some(version) => libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()),
                None => null_mut(),
            };
            if versioned.is_null() { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } else { versioned }
        };
        self.address.store(address, Relaxed);
        address
    }

    #[unsafe(link_section = "wakeful_start")]
    pub fn get(&self) -> *mut c_void {
        let address = self.address.load(Relaxed);
        if address.is_null() { self.look_up() } else { address }
    }
}

macro_rules! real {
    ($($ident:ident = $name:literal, $version:expr, ($($arg:ident: $type:ty),*);)*) => {
        $(
            /// The C library's function of this name; ENOSYS if it has none.
            #[allow(dead_code)] // those that wait are called from C, by address
            ///
            /// # Safety
            /// As the C library's.
            #[unsafe(link_section = "wakeful_start")]
            pub unsafe fn $ident($($arg: $type),*) -> c_int {
                let address = symbols::$ident.get();
                if address.is_null() {
                    return libc::ENOSYS;
                }
                // SAFETY: the symbol of this name has this type.
                unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(address)($($arg),*) }
            }
        )*

        #[allow(non_upper_case_globals)] // named like the functions
        mod symbols {
            use super::*;
            $(pub static $ident: Symbol = Symbol::new($name, $version);)*
        }

        /// Its address, for C; null if there is none.
        pub mod address {
            use super::*;
            $(
                #[allow(dead_code, missing_docs)]
                #[unsafe(link_section = "wakeful_start")]
                pub fn $ident() -> *mut c_void {
                    symbols::$ident.get()
                }
            )*
        }

        /// Looks all of them up.
        pub fn resolve() {
            $(symbols::$ident.get();)*
        }
    };
}

real! {
    mutex_init = c"pthread_mutex_init", None, (mutex: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t);
    mutex_destroy = c"pthread_mutex_destroy", None, (mutex: *mut pthread_mutex_t);
    mutex_lock = c"pthread_mutex_lock", None, (mutex: *mut pthread_mutex_t);
    mutex_trylock = c"pthread_mutex_trylock", None, (mutex: *mut pthread_mutex_t);
    mutex_timedlock = c"pthread_mutex_timedlock", None, (mutex: *mut pthread_mutex_t, time: *const timespec);
    mutex_clocklock = c"pthread_mutex_clocklock", None,
        (mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec);
    mutex_unlock = c"pthread_mutex_unlock", None, (mutex: *mut pthread_mutex_t);
    create = c"pthread_create", None,
        (thread: *mut pthread_t, attr: *const pthread_attr_t, start: *mut c_void, arg: *mut c_void);
    thrd_create = c"thrd_create", None, (thread: *mut pthread_t, start: *mut c_void, arg: *mut c_void);
    cancel = c"pthread_cancel", None, (thread: pthread_t);
    key_create = c"pthread_key_create", None,
        (key: *mut pthread_key_t, destructor: Option<unsafe extern "C" fn(*mut c_void)>);
    tss_create = c"tss_create", None,
        (key: *mut pthread_key_t, destructor: Option<unsafe extern "C" fn(*mut c_void)>);
    cond_init = c"pthread_cond_init", COND_VERSION, (cond: *mut pthread_cond_t, attr: *const pthread_condattr_t);
    cond_destroy = c"pthread_cond_destroy", COND_VERSION, (cond: *mut pthread_cond_t);
    cond_wait = c"pthread_cond_wait", COND_VERSION, (cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t);
    cond_timedwait = c"pthread_cond_timedwait", COND_VERSION,
        (cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec);
    cond_clockwait = c"pthread_cond_clockwait", None,
        (cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec);
    cond_signal = c"pthread_cond_signal", COND_VERSION, (cond: *mut pthread_cond_t);
    cond_broadcast = c"pthread_cond_broadcast", COND_VERSION, (cond: *mut pthread_cond_t);
    sem_init = c"sem_init", None, (sem: *mut sem_t, shared: c_int, value: c_uint);
    sem_wait = c"sem_wait", None, (sem: *mut sem_t);
    sem_trywait = c"sem_trywait", None, (sem: *mut sem_t);
    sem_timedwait = c"sem_timedwait", None, (sem: *mut sem_t, time: *const timespec);
    sem_clockwait = c"sem_clockwait", None, (sem: *mut sem_t, clock: clockid_t, time: *const timespec);
    sem_post = c"sem_post", None, (sem: *mut sem_t);
    sem_getvalue = c"sem_getvalue", None, (sem: *mut sem_t, value: *mut c_int);
    rwlock_init = c"pthread_rwlock_init", None, (lock: *mut pthread_rwlock_t, attr: *const pthread_rwlockattr_t);
    rwlock_rdlock = c"pthread_rwlock_rdlock", None, (lock: *mut pthread_rwlock_t);
    rwlock_wrlock = c"pthread_rwlock_wrlock", None, (lock: *mut pthread_rwlock_t);
    rwlock_tryrdlock = c"pthread_rwlock_tryrdlock", None, (lock: *mut pthread_rwlock_t);
    rwlock_trywrlock = c"pthread_rwlock_trywrlock", None, (lock: *mut pthread_rwlock_t);
    rwlock_timedrdlock = c"pthread_rwlock_timedrdlock", None, (lock: *mut pthread_rwlock_t, time: *const timespec);
    rwlock_timedwrlock = c"pthread_rwlock_timedwrlock", None, (lock: *mut pthread_rwlock_t, time: *const timespec);
    rwlock_clockrdlock = c"pthread_rwlock_clockrdlock", None,
        (lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec);
    rwlock_clockwrlock = c"pthread_rwlock_clockwrlock", None,
        (lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec);
    rwlock_unlock = c"pthread_rwlock_unlock", None, (lock: *mut pthread_rwlock_t);
    barrier_init = c"pthread_barrier_init", None,
        (barrier: *mut pthread_barrier_t, attr: *const pthread_barrierattr_t, count: c_uint);
    barrier_destroy = c"pthread_barrier_destroy", None, (barrier: *mut pthread_barrier_t);
    barrier_wait = c"pthread_barrier_wait", None, (barrier: *mut pthread_barrier_t);
    execve = c"execve", None, (path: *const c_char, words: List, list: List);
    execv = c"execv", None, (path: *const c_char, words: List);
    execvpe = c"execvpe", None, (name: *const c_char, words: List, list: List);
    execvp = c"execvp", None, (name: *const c_char, words: List);
    fexecve = c"fexecve", None, (fd: c_int, words: List, list: List);
    execveat = c"execveat", None, (folder: c_int, path: *const c_char, words: List, list: List, flags: c_int);
    posix_spawn = c"posix_spawn", None,
        (child: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, words: List,
            list: List);
    posix_spawnp = c"posix_spawnp", None,
        (child: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void, words: List,
            list: List);
}
