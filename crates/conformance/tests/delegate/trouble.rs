// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each request runs once, and each client comes back, whatever happens in sections and to clients.
//!
//! Of a hundred sections one blocks, one waits awake for another thread, and one touches a page that is not
//! there; each thousandth panics. Clients give up while they wait, where the lock lets them, and end and are
//! replaced. Now and then the process is copied, and the copy killed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread;
use std::time::Duration;

use conformance::long;
use linux::Linux;
use platform::{Clock, Deadline, Platform};
use sync::delegate::{RawDelegate, RawDelegateTimed, RclLock, RclServer, Section};

const CLIENTS: u64 = 8;
/// Requests of a client before its thread ends, and another one takes its place.
const LIFE: u64 = 500;

/// Requests of all clients: ten million under `long()`.
fn requests() -> u64 {
    if long() { 10_000_000 } else { 20_000 }
}

/// How a lock is asked: how to give up, how many threads serve, and on which way the other thread gets its
/// word to a section that waits for it.
struct Kind<L> {
    try_run: Option<TryRun<L>>,
    servers: usize,
    tells: fn(&L, &AtomicU64, u64),
}

/// [`RawDelegateTimed::run_until`].
type TryRun<L> = unsafe fn(&L, Section, *mut (), Deadline) -> bool;

/// What sections share. Only they touch `ran`, without atomics.
struct Load<L> {
    lock: L,
    kind: Kind<L>,
    ran: ptr::NonNull<u64>,
    /// The last word that a section waits for, and that it has been told.
    wanted: AtomicU64,
    told: AtomicU64,
    /// What clients know to have run.
    known: AtomicU64,
}

// SAFETY: `ran` is touched in sections only.
unsafe impl<L: Sync> Sync for Load<L> {}

/// A request, on its client's stack.
struct Request<'a, L> {
    load: &'a Load<L>,
    number: u64,
    page: *mut u8,
    times: u32,
    panic: Option<Box<dyn Any + Send>>,
}

unsafe fn section<L: Sync>(context: *mut ()) {
    // SAFETY: a request that its client waits with.
    let request = unsafe { &mut *context.cast::<Request<'_, L>>() };
    request.times += 1;
    let Request { load, number, page, .. } = *request;
    let trouble = move || {
        // SAFETY: one section at a time; the page is the client's, who waits.
        unsafe {
            let ran = load.ran.as_ptr();
            let seen = ran.read_volatile();
            match number % 100 {
                20 => thread::sleep(Duration::from_micros(20)),
                40 => load.wait_for_a_word(),
                60 => page.write_volatile(1),
                _ => {}
            }
            ran.write_volatile(seen + 1);
        }
        if number % 1_000 == 999 {
            resume_unwind(Box::new(number));
        }
    };
    request.panic = catch_unwind(AssertUnwindSafe(trouble)).err();
}

impl<L: Sync> Load<L> {
    /// In a section.
    fn wait_for_a_word(&self) {
        let word = self.wanted.load(Relaxed) + 1;
        self.wanted.store(word, Release);
        while self.told.load(Acquire) < word {
            thread::yield_now();
        }
    }

    /// Tells those who wait, until all is over.
    fn tell(&self) {
        loop {
            match self.wanted.load(Acquire) {
                u64::MAX => return,
                word if word > self.told.load(Relaxed) => (self.kind.tells)(&self.lock, &self.told, word),
                _ => thread::yield_now(),
            }
        }
    }

    /// One client's life.
    fn live(&self, first: u64)
    where
        L: RawDelegate<Linux>,
    {
        let page = Page::new();
        let mut ran = 0;
        for number in first..first + LIFE {
            if number % 100 == 60 {
                page.forget();
            }
            let mut request = Request { load: self, number, page: page.0, times: 0, panic: None };
            let context = (&raw mut request).cast();
            let patience = number % 7 * 2_000;
            let done = match self.kind.try_run {
                Some(try_run) if number % 3 == 0 => {
                    let deadline = Deadline { ns: Linux::now_ns() + patience, clock: Clock::Monotonic };
                    // SAFETY: it does not unwind, and the request is there.
                    unsafe { try_run(&self.lock, section::<L>, context, deadline) }
                }
                _ => {
                    // SAFETY: as above.
                    unsafe { self.lock.run(section::<L>, context) };
                    true
                }
            };
            assert_eq!(request.times, u32::from(done), "a request was lost, or ran twice");
            let panic = request.panic.and_then(|panic| panic.downcast().ok()).map(|number| *number);
            assert_eq!(panic, (done && number % 1_000 == 999).then_some(number), "another's panic");
            ran += u64::from(done);
        }
        self.known.fetch_add(ran, Relaxed);
    }

    /// Lives, one after the other; between them the process is copied now and then.
    fn client(&self, index: u64)
    where
        L: RawDelegate<Linux>,
    {
        let lives = requests() / CLIENTS / LIFE;
        for life in 0..lives {
            let first = (index * lives + life) * LIFE;
            thread::scope(|scope| drop(scope.spawn(|| self.live(first))));
            if index == 0 && life % (lives / 4).max(1) == 0 {
                copy_and_kill();
            }
        }
    }
}

/// A page of memory that a client can have taken away.
struct Page(*mut u8);

const PAGE: usize = 4096;

impl Page {
    fn new() -> Self {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory.
        let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, kind, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        Self(page.cast())
    }

    fn forget(&self) {
        // SAFETY: ours.
        assert_eq!(unsafe { libc::madvise(self.0.cast(), PAGE, libc::MADV_DONTNEED) }, 0);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: ours, and its client's last request is over.
        unsafe { libc::munmap(self.0.cast(), PAGE) };
    }
}

/// The copy has the lock as it is just then.
fn copy_and_kill() {
    // SAFETY: the child waits for its end and does nothing else.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            loop {
                libc::pause();
            }
        }
        assert!(child > 0);
        assert_eq!(libc::kill(child, libc::SIGKILL), 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
    }
}

fn trouble<L: RawDelegate<Linux>>(kind: Kind<L>) {
    let mut ran = 0;
    let zero = || AtomicU64::new(0);
    let load = Load {
        lock: L::new(),
        kind,
        ran: ptr::NonNull::from(&mut ran),
        wanted: zero(),
        told: zero(),
        known: zero(),
    };
    thread::scope(|scope| {
        let load = &load;
        let servers: Vec<_> = (0..load.kind.servers).map(|_| scope.spawn(|| load.lock.serve())).collect();
        let teller = scope.spawn(|| load.tell());
        let clients: Vec<_> = (0..CLIENTS).map(|index| scope.spawn(move || load.client(index))).collect();
        let came_back: Vec<_> = clients.into_iter().map(|client| client.join().is_ok()).collect();
        load.wanted.store(u64::MAX, Release);
        teller.join().unwrap();
        if !servers.is_empty() {
            load.lock.close();
        }
        assert!(servers.into_iter().all(|server| server.join().unwrap()));
        assert_eq!(came_back, [true; CLIENTS as usize]);
    });
    let known = load.known.into_inner();
    assert_eq!(ran, known, "a section ran beside another one, or a request was lost");
}

fn at_once<L>(_: &L, told: &AtomicU64, word: u64) {
    told.store(word, Release);
}

/// `timed` entries can give up.
macro_rules! trying {
    (timed $type:ty) => {
        Some(<$type as RawDelegateTimed<Linux>>::run_until as TryRun<$type>)
    };
    ($kind:ident $type:ty) => {
        None
    };
}

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(#[test]
        fn $ident() {
            type P = Linux;
            let servers = usize::from(<$type as RawDelegate<P>>::SERVED);
            trouble::<$type>(Kind { try_run: trying!($kind $type), servers, tells: at_once });
        })*
    };
}
catalog::delegates!(suite);

/// A server of two locks and few places. A section of the second tells what one of the first waits for.
struct Two {
    server: RclServer<Linux, 4>,
    locks: [RclLock<Linux>; 2],
}

impl RawDelegate<Linux> for Two {
    const SERVED: bool = true;

    fn new() -> Self {
        Self { server: RclServer::default(), locks: Default::default() }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        // SAFETY: as the caller promises.
        unsafe { self.server.run(&self.locks[0], section, context) };
    }

    fn serve(&self) -> bool {
        self.server.serve()
    }

    fn close(&self) {
        self.server.close();
    }
}

#[test]
fn two_locks_of_a_server() {
    fn inside(two: &Two, told: &AtomicU64, word: u64) {
        unsafe fn tell(context: *mut ()) {
            // SAFETY: what is passed below.
            let (told, word) = unsafe { *context.cast::<(&AtomicU64, u64)>() };
            told.store(word, Release);
        }
        let mut context = (told, word);
        // SAFETY: it does not unwind, and comes to no lock.
        unsafe { two.server.run(&two.locks[1], tell, (&raw mut context).cast()) };
    }
    unsafe fn try_run(two: &Two, section: Section, context: *mut (), deadline: Deadline) -> bool {
        // SAFETY: as the caller promises.
        unsafe { two.server.run_until(&two.locks[0], section, context, deadline) }
    }
    trouble::<Two>(Kind { try_run: Some(try_run), servers: 2, tells: inside });
}
