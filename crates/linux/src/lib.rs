// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Platform`] on Linux.

mod costs;
mod futex;
pub mod host;
pub mod hurry;
pub mod image;
mod kernel;
pub mod lines;
mod load;
pub mod memory;
mod naps;
mod processors;
mod quota;
mod reading;
mod registry;
mod report;
pub mod server;
pub mod serving;
mod signals;
pub mod slice;
pub mod steer;
mod tls;
#[cfg(target_arch = "x86_64")]
pub use tls::stamp_at;
pub mod upcall;
pub mod view;
mod wish;
mod yields;

pub use abi::{environment, fibers};
pub use futex::Errno;
pub use kernel::Kernel;
pub use load::yield_now_and_then;
pub use processors::{Processors, throttling};
pub use quota::{Throttling, Throttlings};
pub use registry::{MOST_THREADS, Owner};
pub use report::{Report, Status, report};
pub use signals::Uncancelled;
pub use yields::yield_informed;

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*, fence};
use std::sync::Mutex;

use platform::{
    Costs, Crowd, Deadline, Ordering, Platform, Priority, Readers, Room, RunState, STAMP_ID, StaticPlatform,
    ThreadId, Wait, Wide, Wish, ke1,
};

/// The machine that this program runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

/// What is better done at program start than later, and costs some tens of microseconds: counts the processors, and takes an inherited
/// observer and partition block over. To be called once, early, where memory may be allocated.
pub fn prepare() {
    inherit();
    processors::available();
}

/// The part of [`prepare`] that cannot wait: takes over what was inherited, an observer and a partition block. The processors are counted, which
/// takes ten times as long, when [`init`] is called or somebody asks for their number.
///
/// All of it is inlined: each start of a program runs it, and pays some microseconds for each part of the
/// library's code that it comes to.
#[inline(always)]
pub fn inherit() {
    server::decide_path();
    server::inherit();
    registry::prepare();
}

/// As [`inherit`], for a library beside the interposer: if that has inherited an observer, this library's
/// registry is the interposer's, so that what its threads say is heard.
pub fn inherit_beside() {
    server::decide_path();
    server::inherit();
    if !registry::adopt() {
        registry::prepare();
    }
}

/// What the interposer lends to such a library.
pub fn owner() -> &'static Owner {
    &registry::OWNER
}

/// Chooses the view, the privileged one included: loads an eBPF program, if this build can and the process may, or asks the processor server for
/// an arena, if one runs. To be called once, where memory may be allocated and some milliseconds be
/// spent, and early: best before the first thread is created, because programs of one thread have no use for
/// it. Without it, threads set up what needs nobody's help on first use.
///
/// HINT: too late (a thread has registered already) it changes nothing.
pub fn init() {
    prepare();
    choose_view();
}

/// The same for an interposer, whose programs may end soon: the quota of processors is looked for later, by a
/// thread that waits.
pub fn init_briefly() {
    inherit();
    processors::begin();
    choose_view();
}

fn choose_view() {
    let refused = registry::load();
    if let Ok(mut place) = REFUSED.lock() {
        *place = refused;
    }
}

/// What [`init`] was told.
static REFUSED: Mutex<Option<registry::Refused>> = Mutex::new(None);

/// The view that sees the calling thread, which registers if it has not. `None` may also mean that there was no room for this one.
pub fn view() -> view::View {
    let id = registry::register(true);
    match registry::live() {
        Some(registry) if registry.run_state(id) != RunState::Unknown => registry.view(),
        _ => view::View::None,
    }
}

/// The view in use; `None` until a thread has registered or [`init`] chose bpf.
pub fn chosen() -> Option<view::View> {
    registry::live().map(|registry| registry.view())
}

/// What the program or its libraries export under this name; null: nothing.
pub fn exported(name: &CStr) -> *mut c_void {
    // SAFETY: a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// For an interposer: the program has asked for a pthread key and there is none left, because we have one. Gives that up; false if there is
/// none to give. From then on blocks of threads that exited are found when they are needed.
pub fn give_key_back() -> bool {
    registry::give_key_back()
}

/// Unregisters the calling thread for good; it keeps working, unseen. Happens by itself when a thread exits, where the C
/// library lets us have a destructor without allocating; an interposer that sees threads end should call it.
pub fn thread_exit() {
    registry::unregister();
}

impl Platform for Linux {
    type AtomicU32 = AtomicU32;
    type AtomicPtr<T: 'static> = AtomicPtr<T>;

    const ROOMS: u32 = registry::ROOMS;

    #[inline]
    fn costs() -> Costs {
        costs::costs()
    }

    fn room(number: u32) -> Option<Room<Self>> {
        registry::room(number)
    }

    #[inline(always)]
    fn stamp() -> u32 {
        tls::stamp()
    }

    fn set_stamp(rest: u32) {
        let mut stamp = tls::stamp();
        // A signal handler may register in between: its id must stay.
        while let Err(now) = tls::change_stamp(stamp, stamp & STAMP_ID | rest & !STAMP_ID) {
            stamp = now;
        }
    }

    fn register() -> ThreadId {
        registry::register(true)
    }

    fn register_lazily() -> ThreadId {
        registry::register(false)
    }

    #[inline]
    fn run_state(thread: ThreadId) -> RunState {
        // A fiber has better to do than to wait awake for one of which nobody knows, or of its own carrier.
        if thread == ThreadId::NONE && host::here().is_some() {
            return RunState::Blocked;
        }
        registry::live().map_or(RunState::Unknown, |registry| registry.run_state(thread))
    }

    fn last_here(thread: ThreadId) -> bool {
        host::here().is_none() && registry::live().is_some_and(|registry| registry.last_here(thread))
    }

    fn higher_preempted(than: Priority) -> bool {
        host::here().is_some()
            || registry::live().is_some_and(|registry| registry.higher_preempted(than as u32))
    }

    fn hand_off() {
        Self::yield_now();
    }

    fn hands_off() -> bool {
        registry::live().is_some_and(|registry| registry.scheduled())
    }

    #[inline]
    fn priority(thread: ThreadId) -> Priority {
        match registry::live() {
            Some(registry) if thread != ThreadId::NONE => {
                Priority::from_u32(registry.priority(thread).load(Relaxed))
            }
            _ => Priority::Running,
        }
    }

    #[inline]
    fn set_priority(thread: ThreadId, priority: Priority) {
        if thread != ThreadId::NONE
            && let Some(registry) = registry::live()
        {
            registry.priority(thread).store(priority as u32, Relaxed);
        }
    }

    #[inline]
    fn change_priority(thread: ThreadId, from: Priority, to: Priority) -> bool {
        thread == ThreadId::NONE
            || registry::live().is_none_or(|registry| {
                registry.priority(thread).compare_exchange(from as u32, to as u32, Relaxed, Relaxed).is_ok()
            })
    }

    #[inline]
    fn holds(thread: ThreadId) -> Option<&'static AtomicU32> {
        let registry = registry::live()?;
        (thread != ThreadId::NONE).then(|| registry.holds(thread))
    }

    fn away(lock: *const ()) -> &'static AtomicU32 {
        registry::away(lock)
    }

    fn spare_processors() -> bool {
        registry::live().is_some_and(|registry| registry.runnable() < Self::processors())
    }

    fn roomy() -> bool {
        let processors = Self::processors();
        processors > 2 && registry::live().is_some_and(|registry| registry.registered() <= processors)
    }

    #[inline]
    fn set_wish(thread: ThreadId, wish: Wish) {
        if thread != ThreadId::NONE
            && let Some(registry) = registry::live()
        {
            wish::set(registry.state(thread), wish);
            told(wish);
        }
    }

    #[inline]
    fn wish(thread: ThreadId) -> Wish {
        match registry::live() {
            Some(registry) if thread != ThreadId::NONE => {
                abi::state::wish(registry.state(thread).load(Relaxed))
            }
            _ => Wish::Preemptable,
        }
    }

    fn honours_wishes() -> bool {
        Self::hands_off() || slice::support() == slice::Support::Ready
    }

    #[inline]
    fn change_wish(thread: ThreadId, from: Wish, to: Wish) -> bool {
        if thread == ThreadId::NONE {
            return true;
        }
        let Some(registry) = registry::live() else { return true };
        let changed = !matches!(registry.run_state(thread), RunState::Preempted | RunState::Blocked)
            && ke1::change_wish(registry.state(thread), from, to);
        if changed && thread == Self::current() {
            told(to);
        }
        changed
    }

    #[inline]
    fn warning(thread: ThreadId) -> bool {
        thread != ThreadId::NONE
            && (slice::owes()
                || registry::live().is_some_and(|registry| registry.warning(thread).load(Relaxed) != 0))
    }

    #[inline]
    fn word(thread: ThreadId, index: usize) -> &'static AtomicU32 {
        registry::word(thread, index)
    }

    fn generation() -> u32 {
        registry::generation()
    }

    fn processors() -> u32 {
        let available = processors::available();
        granted().map_or(available, |(count, _)| available.min(count))
    }

    #[inline]
    fn metered() -> bool {
        processors::metered()
    }

    #[inline]
    fn refresh_processors(now_ns: Option<u64>) {
        if processors::refresh(now_ns)
            && let Some(registry) = registry::live()
        {
            registry.set_partition(processors::available(), processors::changes());
        }
    }

    fn partition_generation() -> u32 {
        processors::changes().wrapping_add(granted().map_or(0, |(_, changes)| changes))
    }

    fn cluster() -> u32 {
        Self::running_on().unwrap_or(0) / platform::CLUSTER
    }

    #[inline]
    fn running_on() -> Option<u32> {
        processors::running_on()
    }

    fn migrate(to: Option<u32>) -> bool {
        processors::migrate(to)
    }

    fn hurry(on: bool) {
        hurry::hurry(on);
    }

    fn serves(server: *const (), serves: bool) {
        serving::tell(server, serves);
    }

    fn cpu_ns() -> u64 {
        futex::cpu_ns()
    }

    fn crowd(now_ns: u64, awake: u32) -> Option<Crowd> {
        load::crowd(now_ns, awake)
    }

    fn is_beside_others(now_ns: u64) -> bool {
        load::is_beside_others(now_ns)
    }

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
        host::wait(word, expected, deadline)
    }

    fn wake(word: *const AtomicU32, count: u32) -> u32 {
        host::wake(word, count)
    }

    fn now_ns() -> u64 {
        futex::now_ns()
    }

    fn past(deadline: Deadline) -> bool {
        futex::past(deadline)
    }

    #[inline(always)]
    fn pause() {
        core::hint::spin_loop();
    }

    fn nap_beside(lock: *const AtomicU32, ns: u64) {
        naps::nap_beside(lock, ns);
    }

    fn rouse(lock: *const AtomicU32) {
        naps::rouse(lock);
    }

    fn nap(ns: u64) {
        match host::here() {
            Some(host) => (host.nap)(ns),
            None => futex::nap(ns),
        }
    }

    fn yield_now() {
        match host::here() {
            Some(host) => (host.yield_now)(),
            None => Kernel::yield_now(),
        }
    }
}

/// What the scheduler gives us: [`registry::Registry::granted`].
#[inline]
fn granted() -> Option<(u32, u32)> {
    registry::live()?.granted()
}

/// The calling thread's wish, for the slice extension. Of another's nobody can tell the kernel by this: it is heard when that thread wishes itself.
#[inline]
fn told(wish: Wish) {
    match wish {
        Wish::Preemptable => slice::withdraw(),
        Wish::UnpreemptableSelf | Wish::UnpreemptableOther => slice::request(),
    }
}

impl Readers for Linux {
    #[inline]
    fn reading(thread: ThreadId) -> &'static AtomicPtr<()> {
        reading::place(thread)
    }

    fn most_threads() -> u32 {
        reading::most_threads()
    }

    fn turn(lock: *const ()) -> &'static AtomicU32 {
        reading::turn(lock)
    }
}

impl Wide for Linux {
    type AtomicU64 = AtomicU64;

    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }
}

impl StaticPlatform for Linux {
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser, used once per static
    const ZERO_U32: AtomicU32 = AtomicU32::new(0);
}
