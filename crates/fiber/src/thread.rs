// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spawning and joining, in the shape of `std::thread`.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, forget};
use core::sync::atomic::{AtomicU32, Ordering::*};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use corosensei::Coroutine;

pub use crate::cancel::{Cancelled, cancellation_point};
use crate::carrier::{self, Carrier};
use crate::machine::Fibers;
use crate::record::{Fiber, Scope as Words};
use crate::runtime::{Priority, Runtime};
pub use crate::waits::{park, park_timeout, sleep, uncancelled, yield_now};
use crate::{cancel, table};

/// What a fiber returned, or the payload of its panic.
pub type Result<T> = std::thread::Result<T>;

/// In the record below its top: first the closure, then the result.
union Packet<F, T> {
    _closure: ManuallyDrop<F>,
    _result: ManuallyDrop<Result<T>>,
}

/// The calling fiber's runtime, else the default one.
fn runtime() -> io::Result<&'static Runtime> {
    match carrier::here() {
        Some(carrier) => Ok(carrier.runtime),
        None => Runtime::default(),
    }
}

/// How a fiber is to be.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: Option<Arc<str>>,
    runtime: Option<Handle>,
    priority: Option<Priority>,
    rank: u32,
    stack_size: Option<usize>,
    scope: Option<Pointer>,
    raw: bool,
}

#[derive(Clone, Copy)]
struct Handle(&'static Runtime);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runtime")
    }
}

impl Builder {
    /// Without a name, in the calling fiber's runtime or the default one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For messages.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// In this runtime.
    #[must_use]
    pub fn runtime(mut self, runtime: &'static Runtime) -> Self {
        self.runtime = Some(Handle(runtime));
        self
    }

    /// Of this priority: in the default runtime of that. Without, it has its spawner's.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// What the runtime's [`crate::policy::Policy`] may look at. 0 without.
    #[must_use]
    pub fn rank(mut self, rank: u32) -> Self {
        self.rank = rank;
        self
    }

    /// With at least so many bytes of stack. Without, and at least, the runtime's ([`crate::Config`]).
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Starts a fiber. It stays with the kernel thread on which it begins.
    ///
    /// # Errors
    /// If there is no memory for a stack, or the runtime cannot be started.
    pub fn spawn<F, T>(self, body: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: what it borrows lives for ever, and it does not move.
        unsafe { self.spawn_unchecked(body, false) }
    }

    /// Starts a fiber that may go on with another kernel thread after each wait.
    ///
    /// # Errors
    /// As for [`Builder::spawn`].
    ///
    /// # Safety
    /// Where the fiber waits, yields or spawns, neither it nor who called it holds a reference to
    /// thread-local data, or anything that is not `Send`. That includes the place of `errno`.
    pub unsafe fn spawn_movable<F, T>(self, body: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: what it borrows lives for ever; the rest the caller promises.
        unsafe { self.spawn_unchecked(body, true) }
    }

    /// # Safety
    /// What `body` borrows lives until the fiber has ended and its result was taken or dropped. `movable`: as
    /// for [`Builder::spawn_movable`].
    pub(crate) unsafe fn spawn_unchecked<F, T>(self, body: F, movable: bool) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: as the caller promises.
        unsafe { self.start(body, movable, |_| ()) }.map(|(handle, ())| handle)
    }

    /// `look` sees the record before others do: then the fiber may end, and another one have its place.
    ///
    /// # Safety
    /// As for [`Builder::spawn_unchecked`].
    #[inline]
    unsafe fn start<F, T, L>(
        self,
        body: F,
        movable: bool,
        look: impl FnOnce(&Fiber) -> L,
    ) -> io::Result<(JoinHandle<T>, L)>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let runtime = match (self.runtime, self.priority) {
            (Some(Handle(runtime)), _) => runtime,
            (None, Some(priority)) => Runtime::of(priority)?,
            (None, None) => runtime()?,
        };
        let here = || carrier::here().filter(|carrier| core::ptr::eq(carrier.runtime, runtime));
        let class = match self.stack_size {
            None => 0,
            Some(size) => runtime.class(size).ok_or(io::ErrorKind::OutOfMemory)?,
        };
        let fiber = match here().filter(|_| class == 0).and_then(Carrier::record) {
            Some(fiber) => fiber,
            None => runtime.record(class)?,
        };
        // SAFETY: fresh, and nobody else's.
        let record = unsafe { &*fiber };
        if let Some(name) = self.name {
            // SAFETY: as above.
            unsafe { *record.name.get() = Some(name) };
        }
        // SAFETY: as above; the caller keeps what it borrows.
        unsafe { fill::<F, T>(record, body) };
        if self.raw {
            record.claim.store(record.claim.load(Relaxed) + 1, Relaxed);
        }
        record.movable.set(movable);
        record.rank.set(self.rank);
        record.scope.set(self.scope.map_or(core::ptr::null(), |Pointer(scope)| scope));
        let seen = look(record);
        // A movable caller may be on another carrier after `fill`, as the allocator may wait, and after this.
        match here().and_then(Carrier::safe_point) {
            Some(carrier) => carrier.publish(fiber),
            None => runtime.begin_elsewhere(fiber),
        }
        Ok((JoinHandle { fiber, result: PhantomData }, seen))
    }
}

/// Puts the closure into the record, and makes a coroutine of it.
///
/// # Safety
/// The record is nobody else's.
#[inline]
unsafe fn fill<F: FnOnce() -> T, T>(record: &Fiber, body: F) {
    let layout = Layout::new::<Packet<F, T>>();
    let fiber = core::ptr::from_ref(record).cast_mut();
    let (packet, base) = if layout.size() > record.size() / 4 {
        // SAFETY: the size is not 0.
        let packet = unsafe { std::alloc::alloc(layout) };
        if packet.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        record.allocated.set(Some(layout));
        (packet, record.top)
    } else {
        let place = record.place(layout.size(), layout.align());
        (core::ptr::with_exposed_provenance_mut::<u8>(place), place)
    };
    // SAFETY: the packet is big enough and aligned for both; the stack below it is free.
    unsafe {
        packet.cast::<F>().write(body);
        record.packet.set(packet);
        record.token.reset();
        record.started.set(false);
        record.nested.set(false);
        record.abode.release();
        record.done.reset();
        record.claim.store((record.claim.load(Relaxed) | 1) + 1, Relaxed);
        record.refs.store(2, Relaxed);
        let coroutine = Coroutine::with_stack_unchecked(record.part(base & !15), move |yielder, ()| {
            (*fiber).yielder.set(yielder);
            begin::<F, T>(&*fiber);
        });
        (*record.coroutine.get()).write(coroutine);
    }
}

/// What a fiber does first and last.
fn begin<F: FnOnce() -> T, T>(fiber: &Fiber) {
    let packet = fiber.packet.get();
    // SAFETY: the closure is there, and taken once; the place is big enough for the result.
    unsafe {
        let body = packet.cast::<F>().read();
        let result = catch_unwind(AssertUnwindSafe(body));
        if !(*fiber.locals.get()).is_empty() {
            drop_locals(fiber);
        }
        packet.cast::<Result<T>>().write(result);
    }
    if fiber.nested.get() {
        // Its joiner is on this kernel thread, and comes back when this one has ended or switched.
        fiber.done.end_nested();
    } else if fiber.done.end::<Fibers>() {
        // SAFETY: the result is there, and its handle is not.
        unsafe { drop_result::<T>(fiber) };
    }
    if !fiber.scope.get().is_null() {
        leave_scope(fiber);
    }
}

/// Who waits for the scope may go on: from here on the fiber uses nothing of it.
#[cold]
fn leave_scope(fiber: &Fiber) {
    // SAFETY: the scope waits for this count. After it only the address is used.
    unsafe {
        let running = &raw const (*fiber.scope.get()).running;
        // ORDER: Release, pairs with the Acquire in `scope`.
        if (*running).fetch_sub(1, Release) == 1 {
            table::wake::<false>(running, u32::MAX);
        }
    }
}

/// Its local storage, newest first, still as the fiber.
#[cold]
fn drop_locals(fiber: &Fiber) {
    // SAFETY: the calling fiber's own. A destructor may add some.
    while let Some(local) = unsafe { (*fiber.locals.get()).pop() } {
        drop_quietly(local);
    }
}

/// Drops what may panic at it. What that panic carries may do so as well: it is forgotten.
fn drop_quietly<T>(it: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(it))) {
        forget(payload);
    }
}

/// # Safety
/// The result is there, and nobody else takes it. The scope, if there is one, still waits.
unsafe fn drop_result<T>(fiber: &Fiber) {
    // SAFETY: as the caller promises.
    let result = unsafe { fiber.packet.get().cast::<Result<T>>().read() };
    // SAFETY: as above.
    let scope = unsafe { fiber.scope.get().as_ref() };
    if result.as_ref().is_err_and(|payload| !payload.is::<Cancelled>())
        && let Some(scope) = scope
    {
        scope.panicked.fetch_add(1, Relaxed);
    }
    drop_quietly(result);
}

/// Waits for the end of a fiber and has its result. Dropped, the fiber goes on by itself.
pub struct JoinHandle<T> {
    fiber: *mut Fiber,
    result: PhantomData<T>,
}

// SAFETY: the fiber is used by atomics, and its result, which is Send, is taken once.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: as above; by reference it only asks.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    fn record(&self) -> &Fiber {
        // SAFETY: a record stays one, and this reference is counted.
        unsafe { &*self.fiber }
    }

    /// To unpark it, or to ask for its name.
    #[must_use]
    pub fn thread(&self) -> Thread {
        Thread::of(self.record())
    }

    /// Has it ended?
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.record().done.has_ended()
    }

    /// Ends it at its next [`park`], [`sleep`], [`yield_now`] or [`cancellation_point`], or where the future
    /// that it drives is pending: it unwinds, and [`JoinHandle::join`] returns [`Cancelled`] as the error. Of
    /// one that does nothing of that it changes nothing, and of one that has ended.
    pub fn cancel(&self) {
        let record = self.record();
        cancel::cancel(record, record.claim.load(Relaxed) >> 1);
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The payload of its panic.
    #[inline]
    pub fn join(self) -> Result<T> {
        let fiber = self.fiber;
        forget(self);
        // SAFETY: the handle's reference, which is ours.
        let record = unsafe { &*fiber };
        let carrier = carrier::here();
        if !carrier.is_some_and(|carrier| run_now(carrier, fiber)) {
            record.done.wait::<Fibers>();
        }
        // SAFETY: it has ended, and the handle is the one that takes the result.
        let result = unsafe { record.packet.get().cast::<Result<T>>().read() };
        let_go(record);
        result
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if self.record().done.drop_handle() {
            // SAFETY: it is there, and the fiber left it to us. A scope cannot end before its handles.
            unsafe { drop_result::<T>(self.record()) };
        }
        let_go(self.record());
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

/// A [`JoinHandle`] as a value that may be copied, for other languages. One of its copies joins.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawHandle {
    /// Where its record is; null: it is no fiber's.
    pub place: *const (),
    /// Which of the fibers that were there.
    pub serial: u64,
}

// SAFETY: records stay, and what it does is by atomics.
unsafe impl Send for RawHandle {}
// SAFETY: as above.
unsafe impl Sync for RawHandle {}

impl Builder {
    /// As [`Builder::spawn`]. The fiber's memory comes back when one of the handle's copies has joined.
    ///
    /// # Errors
    /// As for [`Builder::spawn`].
    pub fn spawn_raw<F, T>(mut self, body: F) -> io::Result<RawHandle>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.raw = true;
        // SAFETY: as in `spawn`.
        let (handle, raw) = unsafe { self.start(body, false, RawHandle::of) }?;
        forget(handle);
        Ok(raw)
    }
}

impl RawHandle {
    fn of(fiber: &Fiber) -> Self {
        Self { place: core::ptr::from_ref(fiber).cast(), serial: fiber.claim.load(Relaxed) >> 1 }
    }

    /// That of the calling fiber, however it was spawned; `None` outside of fibers.
    #[must_use]
    pub fn current() -> Option<Self> {
        // SAFETY: the calling fiber runs.
        unsafe { carrier::current().as_ref() }.map(Self::of)
    }

    /// The handle that joins the fiber, once. `None`: some copy had it, or the fiber was spawned otherwise.
    ///
    /// # Safety
    /// Null, or of this library and process, and spawned with this `T`.
    #[must_use]
    pub unsafe fn claim<T>(self) -> Option<JoinHandle<T>> {
        // SAFETY: null, or a record, which it stays.
        let fiber = unsafe { self.place.cast::<Fiber>().as_ref() }?;
        let (joinable, joined) = ((self.serial << 1) | 1, self.serial << 1);
        fiber.claim.compare_exchange(joinable, joined, Relaxed, Relaxed).ok()?;
        Some(JoinHandle { fiber: core::ptr::from_ref(fiber).cast_mut(), result: PhantomData })
    }

    /// As [`Thread::unpark`]. False: it has ended, and another fiber is in its place. A fiber that comes
    /// there meanwhile may return from its [`park`] for no reason.
    ///
    /// # Safety
    /// Null, or of this library and process.
    pub unsafe fn unpark(self) -> bool {
        // SAFETY: null, or a record, which it stays.
        let fiber = unsafe { self.place.cast::<Fiber>().as_ref() };
        // No reference is counted: at worst this is the late giver of `token.rs`.
        fiber.filter(|fiber| Self::of(fiber) == self).map(Fiber::unpark).is_some()
    }

    /// As [`JoinHandle::cancel`]. False: it has ended, and another fiber is in its place.
    ///
    /// # Safety
    /// Null, or of this library and process.
    pub unsafe fn cancel(self) -> bool {
        // SAFETY: null, or a record, which it stays.
        let fiber = unsafe { self.place.cast::<Fiber>().as_ref() };
        let cancel = |fiber| cancel::cancel(fiber, self.serial);
        fiber.filter(|fiber| Self::of(fiber) == self).map(cancel).is_some()
    }
}

/// If the fiber is the newest that this carrier made and nobody has begun it, runs it at once, on top of the
/// calling one, unless others have waited for a turn. True: it has ended.
#[inline]
fn run_now(carrier: &'static Carrier, fiber: *mut Fiber) -> bool {
    // SAFETY: this is the owner's thread; the entry is ours once it is popped, and it has not begun.
    unsafe {
        if carrier.new.newest() != Some(fiber) || std::thread::panicking() || !carrier.may_nest() {
            return false;
        }
        match carrier.new.pop() {
            Some(found) if found == fiber => {}
            Some(other) => {
                carrier.publish(other);
                return false;
            }
            None => return false,
        }
        (*fiber).nested.set(true);
        match carrier.enter(fiber) {
            None => {
                // Its own reference; the caller has the other.
                if (*fiber).refs.load(Relaxed) == 2 {
                    (*fiber).refs.store(1, Relaxed);
                } else {
                    let_go(&*fiber);
                }
                true
            }
            why => {
                // From here on others may run it, and it says so when it ends.
                (*fiber).nested.set(false);
                carrier.put_away(fiber, why);
                false
            }
        }
    }
}

/// One reference less.
#[inline]
fn let_go(fiber: &Fiber) {
    if fiber.release() {
        let place = core::ptr::from_ref(fiber).cast_mut();
        // SAFETY: that was the last reference.
        unsafe { fiber.clear() };
        // A movable caller may be on another carrier after that: the allocator may wait.
        match carrier::here() {
            Some(carrier) if carrier.is_home_of(fiber) => carrier.recycle(place),
            _ => fiber.runtime.free(place),
        }
    }
}

/// A fiber that one may unpark.
pub struct Thread {
    fiber: *const Fiber,
}

// SAFETY: what it does is by atomics.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

impl Thread {
    fn of(fiber: &Fiber) -> Self {
        fiber.retain();
        Self { fiber }
    }

    fn record(&self) -> &Fiber {
        // SAFETY: a record stays one, and this reference is counted.
        unsafe { &*self.fiber }
    }

    /// Ends its [`park`], or the next one.
    pub fn unpark(&self) {
        self.record().unpark();
    }

    /// Its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.record().name()
    }
}

impl Clone for Thread {
    fn clone(&self) -> Self {
        Self::of(self.record())
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let_go(self.record());
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Starts a fiber. It stays with the kernel thread on which it begins.
///
/// # Panics
/// If there is no memory for a stack, or the runtime cannot be started; [`Builder::spawn`] says so instead.
#[inline]
pub fn spawn<F, T>(body: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(body).expect("a fiber could not be started")
}

/// The calling fiber; `None` outside of fibers.
#[must_use]
pub fn current() -> Option<Thread> {
    // SAFETY: the calling fiber runs.
    unsafe { carrier::current().as_ref() }.map(Thread::of)
}

/// Runs this while another carrier has the seat: for code that blocks where no upcall can be had. Never
/// needed.
pub fn blocking<T>(body: impl FnOnce() -> T) -> T {
    if let Some(carrier) = carrier::here() {
        carrier.leave_seat();
    }
    body()
    // The next safe point asks for a seat.
}

/// A place where fibers may borrow: see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    words: Words,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A fiber of a scope.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// As [`JoinHandle::join`].
    ///
    /// # Errors
    /// The payload of its panic.
    pub fn join(self) -> Result<T> {
        self.handle.join()
    }

    /// As [`JoinHandle::cancel`].
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// As [`JoinHandle::thread`].
    #[must_use]
    pub fn thread(&self) -> Thread {
        self.handle.thread()
    }

    /// As [`JoinHandle::is_finished`].
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

/// Fibers that borrow from the caller; all have ended when this returns. As `std::thread::scope`.
///
/// # Panics
/// If one of them did, and nobody joined it.
pub fn scope<'env, T, F>(body: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        words: Words { running: AtomicU32::new(0), panicked: AtomicU32::new(0) },
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    loop {
        // ORDER: Acquire, pairs with the Release in `spawn`: the fibers' accesses come before ours.
        match scope.words.running.load(Acquire) {
            0 => break,
            running => _ = table::wait::<false>(&scope.words.running, running, None),
        }
    }
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(_) if scope.words.panicked.load(Relaxed) != 0 => panic!("a scoped fiber panicked"),
        Ok(result) => result,
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a fiber in this scope.
    ///
    /// # Panics
    /// As [`spawn`].
    pub fn spawn<F, T>(&'scope self, body: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.words.running.fetch_add(1, Relaxed);
        // SAFETY: the scope outlives the fiber: `scope` waits until it has left. The result is 'scope,
        // and so is
        // the handle.
        let handle = unsafe {
            Builder { scope: Some(Pointer(&self.words)), ..Builder::new() }.spawn_unchecked(body, false)
        };
        match handle {
            Ok(handle) => ScopedJoinHandle { handle, scope: PhantomData },
            Err(error) => {
                self.words.running.fetch_sub(1, Relaxed);
                panic!("a fiber could not be started: {error}");
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Pointer(*const Words);

impl Runtime {
    /// Runs this as a fiber of this runtime and waits for its end.
    ///
    /// # Panics
    /// If it does, with its payload, or if it cannot be started.
    pub fn run<F, T>(&'static self, body: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: the caller waits here until it has ended, and takes the result.
        let handle = unsafe { Builder::new().runtime(self).spawn_unchecked(body, false) };
        match handle.expect("a fiber could not be started").join() {
            Ok(result) => result,
            Err(payload) => resume_unwind(payload),
        }
    }
}
