// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers: threads of their own that run the sections of all locks that are bound to them.
//!
//! What threads, server and clients use lies in one place, which ends after the threads. A lock of the
//! server is asked for by address, and may be looked at as long as a thread serves. So the words of locks
//! that have ended are kept there, for the next ones.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};

use linux::Linux;
use platform::{Deadline, Platform, ThreadId};
use sync::delegate::{Left, Outcome, RclAsk, RclLock, RclServer as Raw, Section, Serving};

use super::{Delegated, Way};

/// BOUND: so many sections of a server may be stuck at a time, but for one.
const MOST_THREADS: usize = 64;

/// BOUND: one who wants to know of a condition gives a server so long to say it: a sleeping one is there
/// within 0.1 ms, and one whose section is stuck within 1 ms.
const COMES_NS: u64 = 1_000_000;

/// Of each thread of a server.
const NAME: &str = "rcl server";

/// Threads that run the sections of those [`Delegated`] that are bound to them ([`Delegated::on`]).
///
/// One thread runs sections, and another one stands by. If a section blocks, faults, or waits for another
/// lock's section, the second goes on with the other locks' sections, and a third one stands by from then
/// on; there are at most 64. While nobody asks, all of them sleep. Sections of one lock exclude each other.
/// Those of two locks of one server do so only as long as they do not wait.
///
/// This is a handle, and clones of it are handles of the same server. The threads end when the last handle
/// and the last lock of the server have been dropped; that drop waits for them.
///
/// ```
/// use wakeful::{Delegated, RclServer};
///
/// let server = RclServer::start()?;
/// let names = Delegated::on(&server, Vec::new());
/// let count = Delegated::on(&server, 0);
/// names.run(|names| {
///     names.push("Ada");
///     // A section may come to another lock: in an order that all sections keep.
///     count.run(|count| *count += 1);
/// });
/// assert_eq!((names.run(|names| names.len()), count.run(|count| *count)), (1, 1));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// It pays where the sections' data are large, and a processor can be spared for the server. On two
/// processors it loses to a mutex. `wakeful bench delegate --locks rcl,wakeful` measures it.
///
/// A forked child has no server: a section that it asks for panics. A guard's end does nothing there.
#[derive(Clone)]
pub struct RclServer {
    owner: Arc<Owner>,
}

/// What the threads share with all others.
struct Core {
    raw: Raw<Linux>,
    /// Locks that have ended.
    free: Mutex<Vec<Arc<RclLock<Linux>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    processor: Option<usize>,
}

struct Owner {
    core: Arc<Core>,
    generation: u32,
}

/// [`Delegated`]'s sections are run by an [`RclServer`].
pub struct ByServer {
    owner: Arc<Owner>,
    lock: Arc<RclLock<Linux>>,
    /// A guard of this lock is there, or was forgotten. Only its holder writes this.
    held: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RclServer {
    /// Starts a server. Its threads may run wherever the calling thread may.
    ///
    /// # Errors
    /// A thread could not be started, or the program has more than 3,800 threads that wait for locks.
    pub fn start() -> io::Result<Self> {
        Self::start_with(None)
    }

    /// The same, with threads that stay on this processor, whose cache then has the sections' data. In a
    /// partition (`wakeful run --cpus`) the processor is offered to others when nobody has asked for a
    /// second.
    ///
    /// # Errors
    /// As [`start`](Self::start); or the calling thread may not run on the processor, which is
    /// [`InvalidInput`](io::ErrorKind::InvalidInput).
    pub fn start_on(processor: usize) -> io::Result<Self> {
        if !may_run_on(processor)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Self::start_with(Some(processor))
    }

    fn start_with(processor: Option<usize>) -> io::Result<Self> {
        let core = Core { raw: Raw::default(), free: Mutex::default(), threads: Mutex::default(), processor };
        let owner = Owner { core: Arc::new(core), generation: Linux::generation() };
        let server = Self { owner: Arc::new(owner) };
        for _ in 0..2 {
            let (tell, told) = mpsc::channel();
            Core::add(&server.owner.core, Some(tell))?;
            told.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        }
        Ok(server)
    }
}

impl Core {
    /// Starts a thread that serves, or ends if it cannot. It tells which.
    fn add(this: &Arc<Self>, tell: Option<mpsc::Sender<io::Result<()>>>) -> io::Result<()> {
        let mut threads = locked(&this.threads);
        if threads.len() >= MOST_THREADS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let core = Serves(this.clone());
        let serve = move || {
            let ready = core.0.make_ready(tell.is_some());
            let serves = ready.is_ok();
            if let Some(tell) = tell {
                let _ = tell.send(ready);
            }
            if serves {
                core.0.raw.serve_with(&core);
            }
        };
        threads.push(Builder::new().name(NAME.into()).spawn(serve)?);
        Ok(())
    }

    /// Of the calling thread, before it serves. One of the `first` must get the processor. A later one serves
    /// anywhere: the processor may be lent, and stuck sections may need this thread.
    fn make_ready(&self, first: bool) -> io::Result<()> {
        if let Some(Err(error)) = self.processor.map(pin)
            && first
        {
            return Err(error);
        }
        match Linux::register() {
            ThreadId::NONE => Err(io::Error::other("too many threads wait for locks")),
            _ => Ok(()),
        }
    }
}

/// A thread that serves.
struct Serves(Arc<Core>);

impl Serving for Serves {
    /// Without another thread it goes on: sections that are stuck then keep others waiting. It does not wait
    /// for that thread, because it has taken the charge, and requests wait.
    fn alone(&self) {
        drop(Core::add(&self.0, None));
    }

    fn lends(&self) -> bool {
        self.0.processor.is_some() && linux::server::is_member()
    }

    fn idle(&self, is: bool) {
        linux::server::unasked(is);
        // The processor server may have moved this thread meanwhile. Where it has not given the processor
        // back yet, the thread runs elsewhere until the next time.
        if let Some(processor) = self.0.processor.filter(|_| !is) {
            let _ = pin(processor);
        }
    }

    fn is_unheard(&self) -> bool {
        linux::server::is_unheard()
    }

    fn repeat(&self) {
        linux::server::repeat();
    }
}

/// Processors, one bit each: as many as the kernel can have.
type Set = [u64; 8_192 / WORD];
const WORD: usize = u64::BITS as usize;

/// May the calling thread run there? To set its affinity, or a server's, would give it more than it has.
fn may_run_on(processor: usize) -> io::Result<bool> {
    let mut set: Set = [0; size_of::<Set>() / size_of::<u64>()];
    // SAFETY: the set lives, and is of the size stated.
    match unsafe { libc::sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr().cast()) } {
        0 => Ok(set.get(processor / WORD).is_some_and(|word| (word >> (processor % WORD)) & 1 != 0)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn pin(processor: usize) -> io::Result<()> {
    let mut set: Set = [0; size_of::<Set>() / size_of::<u64>()];
    let word = set.get_mut(processor / WORD).ok_or(io::ErrorKind::InvalidInput)?;
    *word = 1 << (processor % WORD);
    // SAFETY: the set lives, and is of the size stated.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Owner {
    /// A forked child has none of the threads. What they had locked stays so.
    fn is_copy(&self) -> bool {
        self.generation != Linux::generation()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // In a forked child the threads' handles keep the place.
        if self.is_copy() {
            return;
        }
        self.core.raw.close();
        loop {
            let thread = locked(&self.core.threads).pop();
            match thread {
                Some(thread) => drop(thread.join()),
                None => return,
            }
        }
    }
}

impl Drop for ByServer {
    fn drop(&mut self) {
        // In a forked child `free` may be locked, and nobody needs it.
        if self.owner.is_copy() {
            return;
        }
        if *self.held.get_mut() {
            // SAFETY: it is held, by a guard that was forgotten. The lock's next user finds it free.
            unsafe { self.owner.core.raw.release(&self.lock) };
        }
        locked(&self.owner.core.free).push(self.lock.clone());
    }
}

impl ByServer {
    fn raw(&self) -> &Raw<Linux> {
        if self.owner.is_copy() {
            is_copy();
        }
        &self.owner.core.raw
    }
}

#[cold]
fn is_copy() -> ! {
    panic!("the server of a delegated lock is in the process that forked this one");
}

impl<T> Delegated<T, ByServer> {
    /// Data whose sections the server runs. Nobody uses them yet.
    ///
    /// What [`run`](Self::run) says holds, and [the rule](Self#the-rule). A section may also wait for
    /// sections of other locks of this server. It uses the stack of the server's thread.
    pub fn on(server: &RclServer, data: T) -> Self {
        let owner = server.owner.clone();
        // In a forked child `free` may be locked.
        let ended = if owner.is_copy() { None } else { locked(&owner.core.free).pop() };
        let lock = ended.unwrap_or_default();
        Self { raw: ByServer { owner, lock, held: AtomicBool::new(false) }, data: data.into() }
    }
}

// SAFETY: the server runs one section of a lock at a time, and none while it is held.
unsafe impl Way for ByServer {
    #[inline]
    unsafe fn lock_or_run(&self, section: Section, context: *mut ()) -> Outcome {
        // SAFETY: as the caller promises. All that come to this lock name its server, which keeps it until
        // its threads have ended.
        unsafe { self.raw().run(&self.lock, section, context) };
        Outcome::Ran
    }

    unsafe fn lock_or_run_until(&self, section: Section, context: *mut (), deadline: Deadline) -> Outcome {
        // SAFETY: as above.
        match unsafe { self.raw().run_until(&self.lock, section, context, deadline) } {
            true => Outcome::Ran,
            false => Outcome::Late,
        }
    }

    unsafe fn lock(&self) {
        // SAFETY: as above.
        unsafe { self.raw().hold(&self.lock) };
        self.held.store(true, Relaxed);
    }

    unsafe fn unlock(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.unlock_only() };
    }

    unsafe fn unlock_only(&self) {
        // In a forked child nobody else can come to it: a guard's end does nothing, also while unwinding.
        if self.owner.is_copy() {
            return;
        }
        self.held.store(false, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { self.raw().release(&self.lock) };
    }

    fn at_least(deadline: Deadline) -> Deadline {
        // Both are of the monotonic clock.
        Deadline { ns: deadline.ns.max(Linux::now_ns() + COMES_NS), ..deadline }
    }

    type Ask = RclAsk<Linux>;

    fn ask(section: Section, context: *mut ()) -> Self::Ask {
        RclAsk::new(section, context)
    }

    unsafe fn leave(&self, ask: *mut Self::Ask) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.raw().leave_request(&self.lock, ask) };
        true
    }

    unsafe fn fetch(&self, ask: *mut Self::Ask, generation: u32) -> Left {
        // SAFETY: as the caller promises. In a copy it looks whether there is an answer, and no further.
        unsafe { self.owner.core.raw.fetch(&self.lock, ask, generation) }
    }

    fn is_answered(ask: &Self::Ask) -> bool {
        ask.is_answered()
    }

    /// The server does so, sooner than another thread could. In a copy nobody does, and so it is looked at.
    fn lock_at_once(&self) -> bool {
        self.owner.is_copy()
    }
}

impl fmt::Debug for RclServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.owner.core.threads.try_lock().map_or(0, |threads| threads.len());
        f.debug_struct("RclServer").field("threads", &threads).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another thread of the parent may have `free` locked as it forks. In the child nobody unlocks that.
    #[test]
    fn a_child_needs_no_lock_of_its_parent() {
        let server = RclServer::start().unwrap();
        let data = Delegated::on(&server, 1);
        let free = locked(&server.owner.core.free);
        // SAFETY: the child uses what it inherited, then leaves by _exit. If it hangs, the alarm ends it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::alarm(20) };
            drop((data, Delegated::on(&server, 2)));
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        drop(free);
        let mut status = 0;
        // SAFETY: our child, and a valid pointer.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(data.run(|data| *data), 1);
    }
}
