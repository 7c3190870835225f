// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine at work: who runs, what waits, and the hand-over between its threads and who drives it.
//!
//! What the kernel decides is `kernel.rs`, how spinners are passed over `spin.rs`, and `run.rs` drives.

use std::any::Any;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ptr;

use corosensei::stack::Stack;
use corosensei::{Coroutine, Yielder};
use platform::{STAMP_SHIFT, ThreadId};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::arena::{App, Arena};
use crate::domains::Domains;
use crate::explorer::Explorer;
use crate::lines::Lines;
use crate::lost::log::Log;
use crate::machine::{Machine, Queue};
use crate::memory::{Memory, Time};
use crate::partition::Partition;
use crate::rules::Rules;
use crate::setting::Setting;
use crate::tally::Tally;
use crate::thread::{Coloured, FOREIGN, NOBODY, Reason, Thread};
use crate::timers::Timers;
use crate::tree::{NEVER, Tree};

pub(crate) struct Processor {
    pub thread: usize,
    /// Whose state its registers and caches hold.
    pub last: usize,
    /// When the thread goes on.
    pub resume: Time,
    pub quantum_end: Time,
    /// The greatest virtual time with which a thread came; between processors only the distance to this
    /// counts.
    pub virtual_time: Time,
    /// KE-2: a preemption was put off then.
    pub put_off: Option<Time>,
    /// Belongs to somebody else now.
    pub taken: bool,
}

impl Processor {
    /// One with nobody on it.
    fn idle() -> Self {
        Self {
            thread: NOBODY,
            last: NOBODY,
            resume: NEVER,
            quantum_end: NEVER,
            virtual_time: 0,
            put_off: None,
            taken: false,
        }
    }
}

/// Threads without a processor.
pub(crate) struct Waiting {
    /// Ready, in the order in which they get one: one queue, or one a processor, or one a partition.
    pub queues: Vec<VecDeque<usize>>,
    /// Asleep, by what they sleep on.
    pub sleepers: HashMap<usize, VecDeque<usize>>,
    /// So many sleep, of so many that are not done.
    pub asleep: usize,
    pub live: usize,
    /// So many processors have nobody.
    pub idle: usize,
}

pub(crate) struct Engine {
    pub now: Time,
    /// Up to here the running thread may go on by itself.
    pub limit: Time,
    pub processor: usize,
    pub current: usize,
    pub rules: Rules,
    pub memory: Memory,
    /// Lines that processors lock, where the machine has that.
    pub lines: Option<Lines>,
    pub tree: Tree,
    pub processors: Vec<Processor>,
    pub threads: Vec<Thread>,
    pub apps: Vec<App>,
    pub arena: Arena,
    pub timers: Timers,
    pub waiting: Waiting,
    pub partition: Partition,
    /// Whose the processors are, where a server divides them.
    pub domains: Option<Domains>,
    /// How many threads could run when one last looked, and in which millisecond that was.
    pub runnable: (u64, Option<u32>),
    pub random: Pcg64Mcg,
    seed: u64,
    pub tally: Tally,
    /// Spinners that are passed over.
    pub parked: Vec<usize>,
    /// Decides who goes on, instead of time.
    pub explorer: Option<Explorer>,
    /// What its threads refer to, beside its memory.
    pub kept: Vec<Box<dyn Any>>,
}

thread_local! {
    /// The machine that this thread of the host simulates.
    static ENGINE: Cell<*mut Engine> = const { Cell::new(ptr::null_mut()) };
}

#[inline(always)]
pub(crate) fn engine() -> *mut Engine {
    ENGINE.get()
}

/// Puts the machine that was there before back.
struct Restore(*mut Engine);

impl Drop for Restore {
    fn drop(&mut self) {
        ENGINE.set(self.0);
    }
}

/// With this machine as the current one.
pub(crate) fn with<R>(engine: *mut Engine, body: impl FnOnce() -> R) -> R {
    let _restore = Restore(ENGINE.replace(engine));
    body()
}

impl Engine {
    pub fn new(machine: &Machine, setting: &Setting, seed: u64) -> Box<Self> {
        let count = machine.processors.count.value as usize;
        let rules = Rules::new(machine, setting);
        let mut memory = Memory::new(machine);
        let arena = Arena::new(&mut memory);
        let domains = setting.server.as_ref().map(|server| Domains::new(machine, server));
        let queues = match (&domains, rules.queue) {
            (Some(domains), _) => domains.most(),
            (None, Queue::Global) => 1,
            (None, Queue::Processor) => count,
        };
        let queues = vec![VecDeque::new(); queues];
        Box::new(Self {
            now: 0,
            limit: NEVER,
            processor: 0,
            current: NOBODY,
            rules,
            memory,
            lines: Lines::new(machine),
            tree: Tree::new(count),
            processors: (0..count).map(|_| Processor::idle()).collect(),
            threads: Vec::new(),
            apps: Vec::new(),
            arena,
            timers: Timers::default(),
            waiting: Waiting { queues, sleepers: HashMap::new(), asleep: 0, live: 0, idle: count },
            partition: Partition::new(machine, setting.repartition.as_ref()),
            domains,
            runnable: (u64::MAX, None),
            random: Pcg64Mcg::seed_from_u64(seed),
            seed,
            tally: Tally { log: setting.lost.then(Log::default), ..Tally::default() },
            parked: Vec::new(),
            explorer: None,
            kept: Vec::new(),
        })
    }

    /// A new application: a program with an arena of its own.
    pub fn add_app(&mut self) -> usize {
        self.apps.push(App::new(&mut self.memory));
        self.apps.len() - 1
    }

    /// As [`Engine::spawn_on`], on the processor of its number in the application.
    pub fn spawn(&mut self, app: usize, body: impl FnOnce() + 'static) -> usize {
        self.spawn_on(app, self.members(app), body)
    }

    /// So many threads has an application.
    fn members(&self, app: usize) -> usize {
        self.threads.iter().filter(|thread| thread.app == app).count()
    }

    /// A new thread of an application, ready to start; it belongs to this processor, modulo their number.
    /// Bodies see the machine through [`engine`].
    pub fn spawn_on(&mut self, app: usize, processor: usize, body: impl FnOnce() + 'static) -> usize {
        self.add_thread(app, processor, Box::new(body))
    }

    /// Compiled once and not for each body.
    fn add_thread(&mut self, app: usize, processor: usize, body: Box<dyn FnOnce()>) -> usize {
        let index = self.members(app);
        let number = self.threads.len();
        assert!(number + 1 < ThreadId::LIMIT as usize, "at most {} simulated threads", ThreadId::LIMIT - 2);
        let stack = Coloured::take(number);
        let stack_base = stack.base().get();
        let body = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Reason>, ()| {
            // SAFETY: a body runs only while its machine is the current one; it does not move.
            unsafe { (&mut (*engine()).threads)[number].yielder = yielder };
            body();
            // Its end is an event like others.
            // SAFETY: as above, and this thread runs.
            unsafe { sync(engine()) };
        });
        let home = processor % self.processors.len();
        let thread = Thread::new(app, index, home, self.seed, number);
        self.threads.push(Thread { body: Some(body), stack_base, place: processor, ..thread });
        self.arena.add(&mut self.memory);
        self.apps[app].threads += 1;
        self.waiting.live += 1;
        number
    }

    /// A process of somebody else, which wants a processor all the time.
    pub fn spawn_foreign(&mut self, home: usize) {
        self.threads.push(Thread::new(FOREIGN, 0, home, self.seed, self.threads.len()));
        self.arena.add_foreign();
    }

    pub fn fail(&mut self, what: String) {
        self.tally.failure.get_or_insert(what);
    }

    /// The next event of anybody but the running thread.
    pub fn set_limit(&mut self) {
        if self.explorer.is_some() {
            self.limit = 0;
            return;
        }
        let processor = &self.processors[self.processor];
        let timer = self.timers.next().unwrap_or(NEVER);
        self.limit =
            self.tree.first_but(self.processor).min(timer).min(processor.quantum_end).min(self.rules.cap);
    }

    /// A processor's next event.
    pub fn schedule(&mut self, processor: usize) {
        let it = &self.processors[processor];
        self.tree.set(processor, it.resume.min(it.quantum_end));
    }

    /// The calling thread's id.
    pub fn stamp(&self) -> u32 {
        let thread = &self.threads[self.current];
        thread.stamp | if thread.registered { (self.current as u32 + 1) << STAMP_SHIFT } else { 0 }
    }
}

/// Gives control back to the engine.
///
/// # Safety
/// `this` is the current machine, and a thread of its runs.
pub(crate) unsafe fn suspend(this: *mut Engine, reason: Reason) {
    // SAFETY: the yielder lives on the thread's own stack for as long as its body runs.
    unsafe {
        let yielder = (&(*this).threads)[(*this).current].yielder;
        (*yielder).suspend(reason);
    }
}

/// From here on the running thread is the earliest of all, until its clock passes the limit.
///
/// # Safety
/// As for [`suspend`].
#[inline(always)]
pub(crate) unsafe fn sync(this: *mut Engine) {
    // SAFETY: as the caller promises.
    unsafe {
        if (*this).now >= (*this).limit {
            suspend(this, Reason::Late);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            if let Some(mut body) = thread.body.take() {
                // SAFETY: what is on the stack refers to the machine, which ends, and to nothing that needs
                // a destructor to run: the closures that come with the crate own copies and references into
                // the machine's memory.
                unsafe { body.force_reset() };
                body.into_stack().give_back();
            }
        }
    }
}
