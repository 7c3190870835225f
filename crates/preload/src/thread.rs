// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_create` and `thrd_create`: the moment to get the privileged view. Builds with the feature `bpf` load it, if they may; all ask the
//! processor server for it, if there is one.
//!
//! **When.** Loading the observer takes about 10 ms, asking some tenths of one, and both allocate, which no lock operation may do, so it cannot wait until a thread first
//! waits. Program start would be safe, but most programs that a preloaded library comes into (shells, compilers, what they
//! execute) never have a second thread. The first creation of a thread is the last moment at which nobody waits yet: threads
//! register when they first wait for each other, so all of them, the first one included, register with the view that was loaded here.
//! It also is where the C library itself allocates, and whoever creates a thread is prepared for that.
//! The C library's functions are looked up there, too, before several threads may want one.
//!
//! **What is lost.** Whoever gives up root, changes its root directory or forbids itself bpf(2) before it has threads gets the perf view; so does a
//! process in which a thread registered before, by a timed wait with nobody there to end it, and threads made by a bare clone(2)
//! before the first of ours. A forked child loads its own, if its parent has not tried: what a parent found out holds for
//! its children, which had no observer before either.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};

use libc::{pthread_attr_t, pthread_t};
use linux::{Linux, Uncancelled};
use platform::Platform;
use sync::mutex::publishes_from_now;

use crate::{real, sem};

/// Loads the view, the first time. Whoever comes while it is being loaded does not wait.
pub fn before_first() {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    if TRIED.load(Relaxed) == 0 && TRIED.swap(1, Relaxed) == 0 {
        load();
    }
}

#[cold]
fn load() {
    // Loading opens files, which are cancellation points, and creating a thread is none.
    let _uncancelled = Uncancelled::new();
    // SAFETY: errno is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        real::resolve();
        sem::decide();
        linux::init_briefly();
        *libc::__errno_location() = errno;
    }
}

/// The calling thread creates another one. If it holds a lock, the new one will wait for it, and must know
/// for whom.
fn creates() {
    before_first();
    Linux::register_lazily();
}

/// What a thread starts in. It may end by a cancellation, which unwinds.
type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// What a thread is to do, under a scheduler.
struct Work {
    start: Start,
    arg: *mut c_void,
}

/// Under a scheduler each thread says from its first lock on that it holds one, not only once it has waited.
/// Many programs hardly wait, and lose their processors while they hold locks all the same.
extern "C-unwind" fn heard(work: *mut c_void) -> *mut c_void {
    // SAFETY: from `create_with`, which has given it to this thread.
    let Work { start, arg } = unsafe { work.cast::<Work>().read() };
    // SAFETY: as above.
    unsafe { libc::free(work) };
    publishes_from_now::<Linux>();
    start(arg)
}

/// Creates a thread by `create`, which says 0 if it has.
fn create_with(
    start: Start,
    arg: *mut c_void,
    create: impl FnOnce(*mut c_void, *mut c_void) -> c_int,
) -> c_int {
    creates();
    if !Linux::hands_off() {
        return create(start as *mut c_void, arg);
    }
    publishes_from_now::<Linux>();
    // SAFETY: plain numbers.
    let work = unsafe { libc::malloc(size_of::<Work>()) };
    if work.is_null() {
        return create(start as *mut c_void, arg);
    }
    // SAFETY: as large, and as aligned as anything.
    unsafe { work.cast::<Work>().write(Work { start, arg }) };
    let result = create(heard as *mut c_void, work);
    if result != 0 {
        // SAFETY: no thread has it.
        unsafe { libc::free(work) };
    }
    result
}

/// # Safety
/// As the C library's function of this name; likewise below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    start: Start,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: as promised.
    create_with(start, arg, |start, arg| unsafe { real::create(thread, attr, start, arg) })
}

/// The C library's does not go through `pthread_create`.
#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn thrd_create(thread: *mut pthread_t, start: Start, arg: *mut c_void) -> c_int {
    // SAFETY: as promised. A program that calls it comes with a C library that has it. What starts returns an
    // int, in the same register.
    create_with(start, arg, |start, arg| unsafe { real::thrd_create(thread, start, arg) })
}
