// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calling thread: what it executes, for which team, and the helpers that it has.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::sync::OnceLock;
use std::{mem, ptr};

use crate::affinity::Location;
use crate::blocks::Blocks;
use crate::current as own;
use crate::icv::{Icv, settings};
use crate::memory::{List, Own};
use crate::pool::{Hold, Pool};
use crate::task::{Spare, Task};
use crate::team::{Context, Displayed, Member, Team};

/// What LLVM's interface says of a construct before it begins; 0: nothing.
#[derive(Clone, Copy, Default)]
pub struct Clauses {
    pub threads: u32,
    pub bind: u32,
    /// Teams at least, at most, and threads of each.
    pub league: (u32, u32, u32),
}

/// A function, and what it is called with.
pub type AtEnd = (unsafe fn(*mut c_void), *mut c_void);

/// A thread that has come to this library, or was made by it.
#[repr(C)]
pub struct Thread {
    /// First: see [`own`].
    pub blocks: Blocks,
    context: Cell<Context>,
    /// The teams of which it is the primary thread, by how many of them it is in.
    pools: UnsafeCell<List<Hold>>,
    depth: Cell<usize>,
    pub location: Location,
    pub spare: Spare,
    /// Tasks that it has put into queues.
    puts: Cell<u32>,
    /// Number and count in a league of teams.
    pub league: Cell<(u32, u32)>,
    pub clauses: Cell<Clauses>,
    /// It is in the critical section of a reduction.
    pub reduces: Cell<bool>,
    /// Of the last region whose members have said where they are.
    pub displayed: Cell<Option<Displayed>>,
    /// What is called when the thread ends.
    pub at_end: Cell<Option<AtEnd>>,
    /// The team that an initial thread is in, alone; not there for helpers.
    root: Option<Hold>,
}

/// The calling thread.
#[inline(always)]
pub fn me() -> &'static Thread {
    let thread = own::get().cast::<Thread>();
    if thread.is_null() {
        first_use()
    } else {
        // SAFETY: set below, to what lives until the thread ends.
        unsafe { &*thread }
    }
}

/// The calling thread, unless it is new here.
pub fn known() -> Option<&'static Thread> {
    // SAFETY: as in `me`.
    unsafe { own::get().cast::<Thread>().as_ref() }
}

#[cold]
#[inline(never)]
fn first_use() -> &'static Thread {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the key is written by the call; a failure leaves 0, and then a thread's end goes unnoticed
        // at worst.
        unsafe { libc::pthread_key_create(&mut key, Some(ended)) };
        key
    });
    let root = Pool::root(settings().initial);
    let context = root.team.context(0);
    let thread = Own::needed("a thread", || Thread::new(context, Some(root))).into_raw();
    own::set(thread.cast());
    // SAFETY: a key of ours; the thread is ours until `ended`.
    unsafe {
        libc::pthread_setspecific(*key, thread.cast());
        &*thread
    }
}

/// A thread of the program's ends: its helpers do.
extern "C" fn ended(thread: *mut c_void) {
    // SAFETY: from `first_use`, and nobody else's.
    let mut thread = unsafe { Own::from_raw(thread.cast::<Thread>()) };
    // The C library forgets it before it calls us, and what is called here may use OpenMP.
    own::set((&raw const *thread).cast());
    thread.finish();
    own::set(ptr::null());
    thread.release_helpers();
    // Tasks that it did not wait for need their team, and whoever fulfils their events comes to it. It stays.
    mem::forget(thread.root.take_if(|root| root.team.tasks.are_open()));
}

impl Thread {
    fn new(context: Context, root: Option<Hold>) -> Self {
        Self {
            context: Cell::new(context),
            pools: UnsafeCell::new(List::new()),
            depth: Cell::new(0),
            location: Location::default(),
            blocks: Blocks::default(),
            spare: Spare::default(),
            puts: Cell::new(0),
            league: Cell::new((0, 1)),
            clauses: Cell::default(),
            reduces: Cell::new(false),
            displayed: Cell::new(None),
            at_end: Cell::new(None),
            root,
        }
    }

    /// Makes the calling thread a helper, for as long as `work` takes.
    pub fn helper(context: Context, work: impl FnOnce(&Self)) {
        let thread = Self::new(context, None);
        own::set((&raw const thread).cast());
        work(&thread);
        thread.finish();
        own::set(ptr::null());
        thread.release_helpers();
    }

    fn finish(&self) {
        if let Some((function, argument)) = self.at_end.take() {
            // SAFETY: as whoever set it has promised.
            unsafe { function(argument) };
        }
    }

    #[inline(always)]
    pub fn context(&self) -> Context {
        self.context.get()
    }

    #[inline(always)]
    pub fn set_context(&self, context: Context) {
        self.context.set(context);
    }

    #[inline(always)]
    pub fn team(&self) -> &Team {
        // SAFETY: a context's team is there as long as anybody is in it.
        unsafe { &*self.context.get().team }
    }

    #[inline(always)]
    pub fn member(&self) -> &Member {
        // SAFETY: as above.
        unsafe { &*self.context.get().member }
    }

    #[inline(always)]
    pub fn task(&self) -> &Task {
        // SAFETY: the task runs.
        unsafe { &*self.context.get().task }
    }

    /// The thread's number in its team.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.member().number()
    }

    /// How many tasks it has put into queues before this one.
    #[inline]
    pub fn task_puts(&self) -> u32 {
        self.puts.replace(self.puts.get().wrapping_add(1))
    }

    /// The variables of the current task.
    #[inline]
    pub fn icv(&self) -> Icv {
        self.task().icv.get()
    }

    pub fn change_icv(&self, change: impl FnOnce(&mut Icv)) {
        let mut icv = self.icv();
        change(&mut icv);
        self.task().icv.set(icv);
    }

    /// The team for one more region, and the thread is in it.
    #[inline]
    pub fn enter_pool(&self) -> &Pool {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        // SAFETY: only this thread has them, and nobody has a reference to the vector.
        let pools = unsafe { &mut *self.pools.get() };
        match pools.get(depth) {
            Some(pool) if pool.is_here() => {}
            // What a parent had: its threads, which have it too, are not here.
            Some(_) => std::mem::forget(std::mem::replace(&mut pools[depth], Pool::make())),
            None => pools.push_needed(Pool::make(), "a team"),
        }
        &pools[depth]
    }

    /// The pool of the innermost region of which this is the primary thread.
    #[inline]
    pub fn pool(&self) -> &Pool {
        // SAFETY: as above.
        unsafe { &(&*self.pools.get())[self.depth.get() - 1] }
    }

    #[inline]
    pub fn leave_pool(&self) {
        self.depth.set(self.depth.get() - 1);
    }

    /// Ends the helpers that are not in a region of this thread's.
    pub fn release_helpers(&self) {
        // SAFETY: as above.
        let pools = unsafe { &mut *self.pools.get() };
        while pools.len() > self.depth.get()
            && let Some(pool) = pools.pop()
        {
            match pool.is_here() {
                true => pool.dismiss(),
                false => std::mem::forget(pool),
            }
        }
    }
}
