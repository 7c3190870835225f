// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs [`unregister`](super::register::unregister) when a thread exits.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// 1 + the key, 0 if it is not made yet, or [`GONE`]; and above that how many threads are in [`arm`].
/// It is where the library's other variables are that a start writes, so that it costs no page of its own.
#[unsafe(link_section = ".data")]
static KEY: AtomicU32 = AtomicU32::new(0);

/// The C library offers no key without allocation, or the program has it.
const GONE: u32 = 0xff;
const ARMING: u32 = 0x100;

/// BOUND: glibc keeps the values of this many keys in the thread itself (PTHREAD_KEY_2NDLEVEL_SIZE) and
/// allocates for more, which we may not; musl allocates for none of its 128. Past it, the blocks of threads
/// that exited are reclaimed when they are needed.
const KEYS_WITHOUT_ALLOCATION: u32 = if cfg!(target_env = "gnu") { 32 } else { 128 };

unsafe extern "C" fn destructor(_: *mut c_void) {
    super::register::unregister();
}

/// The last key whose values need no allocation, so that the program gets those before it, as without us.
#[inline(always)]
fn make() -> Option<libc::pthread_key_t> {
    let mut keys = [0; KEYS_WITHOUT_ALLOCATION as usize];
    let (mut made, mut ours) = (0, None);
    for key in &mut keys {
        // SAFETY: the pointer is valid and the destructor takes what a destructor takes.
        if unsafe { libc::pthread_key_create(key, Some(destructor)) } != 0 {
            break;
        }
        made += 1;
        if *key < KEYS_WITHOUT_ALLOCATION {
            ours = Some(*key);
        }
        if *key >= KEYS_WITHOUT_ALLOCATION - 1 {
            break;
        }
    }
    // No iterator's adapter: its code would be a page more of each start.
    for &key in &keys[..made] {
        if ours != Some(key) {
            // SAFETY: ours, and unused.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
    ours
}

/// Makes the key; the earlier the better, see [`KEYS_WITHOUT_ALLOCATION`]. But most programs never have a
/// second thread: the interposer comes here when the first is created, which makes each start 9 us shorter.
pub fn key() {
    if KEY.load(Relaxed) != 0 {
        return;
    }
    let key = make();
    // The key is a number that stands for itself: nothing is published with it.
    let word = key.map_or(GONE, |key| key + 1);
    if KEY.compare_exchange(0, word, Relaxed, Relaxed).is_err()
        && let Some(key) = key
    {
        // SAFETY: ours, and unused.
        unsafe { libc::pthread_key_delete(key) };
    }
}

/// With signals off, and so not for long.
pub fn arm() {
    key();
    let mut word = KEY.load(Relaxed);
    while word % ARMING != GONE {
        match KEY.compare_exchange_weak(word, word + ARMING, Relaxed, Relaxed) {
            Ok(_) => {
                let key = word % ARMING - 1;
                // SAFETY: the key is live until ARMING is taken back; any non-null value makes the
                // destructor run.
                unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(1)) };
                // ORDER: Release, pairs with the Acquire in `give_back`: the key ends after this use.
                KEY.fetch_sub(ARMING, Release);
                return;
            }
            Err(now) => word = now,
        }
    }
}

/// BOUND: how often threads that are in [`arm`], a few instructions, are waited for. In a forked child they
/// may be the parent's, for ever.
const LOOKS: u32 = 1_000;

pub fn give_back() -> bool {
    for _ in 0..LOOKS {
        let word = KEY.load(Relaxed);
        if matches!(word % ARMING, 0 | GONE) {
            return false;
        }
        // ORDER: Acquire, pairs with the Release in `arm`.
        if word < ARMING && KEY.compare_exchange(word, GONE, Acquire, Relaxed).is_ok() {
            // SAFETY: ours, and nobody sets a value any more.
            return unsafe { libc::pthread_key_delete(word - 1) } == 0;
        }
        // SAFETY: no arguments.
        unsafe { libc::syscall(libc::SYS_sched_yield) };
    }
    false
}
