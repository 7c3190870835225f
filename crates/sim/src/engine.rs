// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: coroutines in the order of virtual time.
//!
//! Each processor has a clock of its own. A thread goes on without a switch of coroutines for as long as
//! its processor's clock is before the next event of anybody else (`limit`): until then nobody can see or
//! do anything that concerns it. At a shared access past the limit it steps back, and whoever is earliest
//! goes on. So accesses happen in the order of virtual time, ties in the order of processor numbers, and
//! nothing depends on the host.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ptr;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use hdrhistogram::Histogram;
use platform::{Crowd, Priority, RunState, STAMP_SHIFT, ThreadId, Wait, Wish};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::explore::Explorer;
use crate::machine::{Machine, Queue, Woken};
use crate::memory::{Kind, LineId, Memory, Time, from_ns};
use crate::partition::Server;
use crate::spin::Spinner;
use crate::tree::{NEVER, Tree};
use crate::workload::{Hints, Setting};

/// Bytes of a thread's stack; pages that it does not touch do not exist.
const STACK: usize = 256 << 10;

/// No thread.
pub(crate) const NOBODY: usize = usize::MAX;
/// The application of foreign processes.
pub(crate) const FOREIGN: usize = usize::MAX;

/// Why a coroutine gives control back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its clock has passed the limit.
    Late,
    /// It sleeps.
    Asleep,
    /// It has given its processor up.
    Yields,
    /// It spins, and may be passed over.
    Spins,
}

type Body = Coroutine<(), Reason, (), Coloured>;

/// A stack whose base is somewhere in its first page: if those of all threads were at the same place of a
/// page, a cache of the host would have room for the stacks of a few threads only.
pub(crate) struct Coloured {
    stack: DefaultStack,
    by: usize,
}

impl Coloured {
    fn new(number: usize) -> Self {
        let stack = DefaultStack::new(STACK).expect("memory for a stack");
        Self { stack, by: number * 9 % 64 * 64 }
    }
}

// SAFETY: a smaller part of a stack, as well aligned.
unsafe impl Stack for Coloured {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.stack.base().get() - self.by).expect("not null")
    }

    fn limit(&self) -> StackPointer {
        self.stack.limit()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Running,
    Asleep,
    Done,
}

pub(crate) struct Thread {
    pub app: usize,
    /// Number within its application.
    pub index: usize,
    pub state: State,
    pub body: Option<Body>,
    pub yielder: *const Yielder<(), Reason>,
    /// Where its stack begins.
    pub stack_base: usize,
    /// What is left of what it was doing when its processor was taken.
    pub owed: Time,
    /// Where it belongs, if it is bound.
    pub home: usize,
    pub last_processor: usize,
    /// For its next quantum.
    pub debit: Time,
    /// Processor time used, and more if it slept: what wake-ups compare.
    pub virtual_time: Time,
    pub registered: bool,
    pub stamp: u32,
    pub priority: Priority,
    pub wish: Wish,
    pub warning: bool,
    /// What the kernel tells, what it told before, and since when.
    pub hint: RunState,
    pub hint_before: RunState,
    pub hint_since: Time,
    /// The class that it is counted under among the preempted.
    pub counted: Option<Priority>,
    /// What it sleeps on, which sleep it is, and how it ended.
    pub sleeps_on: usize,
    pub sleep: u64,
    pub woken: Wait,
    pub random: Pcg64Mcg,
    pub on_since: Time,
    pub cpu: Time,
    pub finished: Time,
    pub work: Time,
    pub sections: u64,
    pub waited: Time,
    pub longest_wait: Time,
    pub preemptions: u64,
    pub sleeps: u64,
    pub yields: u64,
    pub migrations: u64,
    pub spinner: Spinner,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The thread's sleep of this number is over.
    Wake(usize, u64),
    /// The partition changes.
    Repartition,
}

/// What an application's arena says.
#[derive(Clone, Debug, Default)]
pub(crate) struct App {
    pub threads: usize,
    pub runnable: u32,
    /// Preempted threads by priority.
    pub preempted: [u32; 5],
    /// The line with these counts.
    pub line: LineId,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub switches: u64,
    pub preemptions: u64,
    pub migrations: u64,
    pub put_off: u64,
    pub overrun: u64,
    pub repartitions: u64,
    pub resumes: u64,
    pub skipped: u64,
    pub foreign: Time,
}

/// The thread's part of the arena that is real memory, because algorithms have references into it:
/// `abi::Thread`'s second line.
#[repr(C, align(64))]
pub(crate) struct Block {
    head: [u32; 3],
    pub holds: crate::platform::Word<u32>,
    pub words: [crate::platform::Word<u32>; 8],
    pub reading: crate::platform::Word<*mut ()>,
}

pub(crate) struct Costs {
    pub pause: Time,
    pub clock: Time,
    pub quantum: Time,
    pub jitter: f64,
    pub switch: Time,
    pub migration: Time,
    pub syscall: Time,
    pub wake: Time,
    pub grace: Time,
    pub margin: Time,
    pub credit: Time,
}

pub(crate) struct Engine {
    pub now: Time,
    /// Up to here the running thread may go on by itself.
    pub limit: Time,
    pub processor: usize,
    pub current: usize,
    pub memory: Memory,
    pub tree: Tree,
    pub processors: Vec<Processor>,
    pub threads: Vec<Thread>,
    pub apps: Vec<App>,
    pub blocks: Vec<*mut Block>,
    /// The lines of the thread blocks: the kernel's and the program's.
    pub kernel_lines: Vec<LineId>,
    pub block_lines: Vec<LineId>,
    pub away: *mut [crate::platform::Word<u32>],
    pub timers: BinaryHeap<Reverse<(Time, u64, Timer)>>,
    pub sequence: u64,
    pub sleepers: HashMap<usize, VecDeque<usize>>,
    pub queues: Vec<VecDeque<usize>>,
    pub idle: usize,
    /// Processors of the application's partition, in order; at least one.
    pub partition: Vec<usize>,
    /// Decides about it, if somebody does.
    pub server: Option<Server>,
    pub generation: u32,
    /// What a thread last saw of the crowd, and in which millisecond.
    pub crowd: (u64, Option<Crowd>),
    pub costs: Costs,
    /// What the algorithms are told of it.
    pub told: platform::Costs,
    pub queue: Queue,
    pub woken: Woken,
    pub honours: bool,
    pub second_level: bool,
    pub setting: Setting,
    pub random: Pcg64Mcg,
    pub seed: u64,
    pub live: usize,
    pub asleep: usize,
    pub counts: Counts,
    pub waits: Histogram<u64>,
    pub failure: Option<String>,
    pub end: Time,
    pub cap: Time,
    pub capped: bool,
    pub parked: Vec<usize>,
    /// Decides who goes on, instead of time.
    pub explorer: Option<Explorer>,
}

thread_local! {
    /// The machine that this thread of the host simulates.
    static ENGINE: Cell<*mut Engine> = const { Cell::new(ptr::null_mut()) };
    /// Stacks for the next machine.
    static STACKS: Cell<Vec<Coloured>> = const { Cell::new(Vec::new()) };
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
        let kernel = &machine.kernel;
        let mut memory = Memory::new(machine);
        let us = |us: f64| from_ns(us * 1e3);
        // Who is bound waits where it belongs.
        let queue =
            if setting.bound { Queue::Processor } else { setting.queue.unwrap_or(kernel.queue.value) };
        let away = memory.place_all((0..1).map(|_| platform::Atomic::new(0)));
        Box::new(Self {
            now: 0,
            limit: NEVER,
            processor: 0,
            current: NOBODY,
            tree: Tree::new(count),
            processors: (0..count)
                .map(|_| Processor {
                    thread: NOBODY,
                    last: NOBODY,
                    resume: NEVER,
                    quantum_end: NEVER,
                    virtual_time: 0,
                    put_off: None,
                    taken: false,
                })
                .collect(),
            threads: Vec::new(),
            apps: Vec::new(),
            blocks: Vec::new(),
            kernel_lines: Vec::new(),
            block_lines: Vec::new(),
            away,
            timers: BinaryHeap::new(),
            sequence: 0,
            sleepers: HashMap::new(),
            queues: vec![VecDeque::new(); if queue == Queue::Global { 1 } else { count }],
            idle: count,
            partition: (0..count).collect(),
            server: setting.repartition.as_ref().filter(|it| it.served).map(|it| Server::new(machine, it)),
            generation: 0,
            crowd: (u64::MAX, None),
            costs: Costs {
                pause: from_ns(machine.processors.pause_ns.value).max(1),
                clock: from_ns(machine.processors.clock_ns.value).max(1),
                quantum: us(kernel.quantum_ms.value * 1e3).max(1),
                jitter: kernel.quantum_jitter.value,
                switch: us(kernel.switch_us.value),
                migration: us(kernel.migration_us.value),
                syscall: us(kernel.syscall_us.value).max(1),
                wake: us(kernel.wake_us.value),
                grace: us(kernel.grace_us.value),
                margin: us(kernel.woken_margin_ms.value * 1e3),
                credit: us(kernel.woken_credit_ms.value * 1e3),
            },
            told: machine.costs(),
            queue,
            woken: kernel.woken.value,
            honours: setting.honours_wishes.unwrap_or(kernel.honours_wishes.value),
            second_level: setting.second_level.unwrap_or(kernel.second_level.value),
            setting: setting.clone(),
            random: Pcg64Mcg::seed_from_u64(seed),
            seed,
            live: 0,
            asleep: 0,
            counts: Counts::default(),
            // BOUND: two digits, so that a percentile is within 1 %; up to 1,000 s in ns.
            waits: Histogram::new_with_bounds(1, 1_000_000_000_000, 2).expect("constant bounds"),
            failure: None,
            end: 0,
            cap: from_ns(setting.limit_ms * 1e6),
            capped: false,
            parked: Vec::new(),
            explorer: None,
            memory,
        })
    }

    /// A new application: a program with an arena of its own.
    pub fn add_app(&mut self) -> usize {
        let line = self.memory.place([0u32; 4]).addr();
        let line = self.memory.line(line);
        self.apps.push(App { line, ..App::default() });
        self.apps.len() - 1
    }

    fn add(&mut self, app: usize, index: usize, home: usize, body: Option<Body>, stack_base: usize) -> usize {
        let number = self.threads.len();
        self.threads.push(Thread {
            app,
            index,
            state: State::Ready,
            body,
            yielder: ptr::null(),
            stack_base,
            owed: 0,
            home,
            last_processor: NOBODY,
            debit: 0,
            virtual_time: 0,
            registered: false,
            stamp: 0,
            priority: Priority::Running,
            wish: Wish::Preemptable,
            warning: false,
            hint: RunState::Unknown,
            hint_before: RunState::Unknown,
            hint_since: 0,
            counted: None,
            sleeps_on: 0,
            sleep: 0,
            woken: Wait::Woken,
            random: Pcg64Mcg::seed_from_u64(
                self.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ),
            on_since: 0,
            cpu: 0,
            finished: 0,
            work: 0,
            sections: 0,
            waited: 0,
            longest_wait: 0,
            preemptions: 0,
            sleeps: 0,
            yields: 0,
            migrations: 0,
            spinner: Spinner::default(),
        });
        number
    }

    /// A new thread of an application, ready to start. Bodies see the machine through [`engine`].
    pub fn spawn(&mut self, app: usize, body: impl FnOnce() + 'static) -> usize {
        let index = self.threads.iter().filter(|thread| thread.app == app).count();
        let number = self.threads.len();
        assert!(number + 1 < ThreadId::LIMIT as usize, "at most {} simulated threads", ThreadId::LIMIT - 2);
        let mut stacks = STACKS.take();
        let stack = stacks.pop().unwrap_or_else(|| Coloured::new(number));
        STACKS.set(stacks);
        let stack_base = stack.base().get();
        let body = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Reason>, ()| {
            // SAFETY: a body runs only while its machine is the current one; it does not move.
            unsafe { (&mut (*engine()).threads)[number].yielder = yielder };
            body();
            // Its end is an event like others.
            // SAFETY: as above, and this thread runs.
            unsafe { sync(engine()) };
        });
        let home = index % self.processors.len();
        self.add(app, index, home, Some(body), stack_base);
        let block = self.memory.place(Block {
            head: [0; 3],
            holds: platform::Atomic::new(0),
            words: std::array::from_fn(|_| platform::Atomic::new(0)),
            reading: platform::Atomic::new(ptr::null_mut()),
        });
        self.blocks.push(block);
        let line = self.memory.line(block.addr());
        self.block_lines.push(line);
        let kernel = self.memory.place([0u32; 8]).addr();
        let line = self.memory.line(kernel);
        self.kernel_lines.push(line);
        self.apps[app].threads += 1;
        self.live += 1;
        number
    }

    /// A process of somebody else, which wants a processor all the time.
    pub fn spawn_foreign(&mut self, home: usize) {
        self.add(FOREIGN, 0, home, None, 0);
        // Its place in the tables of blocks; never used.
        self.blocks.push(ptr::null_mut());
        self.block_lines.push(0);
        self.kernel_lines.push(0);
    }

    /// A number below `bound`.
    pub fn below(random: &mut Pcg64Mcg, bound: u64) -> u64 {
        ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 to 1.
    pub fn fraction(random: &mut Pcg64Mcg) -> f64 {
        (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    /// The next event of anybody but the running thread.
    pub fn set_limit(&mut self) {
        if self.explorer.is_some() {
            self.limit = 0;
            return;
        }
        let processor = &self.processors[self.processor];
        let timer = self.timers.peek().map_or(NEVER, |&Reverse((time, ..))| time);
        self.limit = self.tree.first_but(self.processor).min(timer).min(processor.quantum_end).min(self.cap);
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

/// The time of a shared access by the running thread. Not inlined, so that nothing of it stays on the stack
/// of who calls: see [`crate::spin`].
///
/// # Safety
/// `this` is the current machine.
#[inline(never)]
pub(crate) unsafe fn access(this: *mut Engine, address: usize, kind: Kind) {
    // SAFETY: as the caller promises.
    unsafe {
        let it = &mut *this;
        if it.current == NOBODY {
            return;
        }
        let line = it.memory.line(address);
        touch(this, line, kind);
    }
}

/// A shared access to a line of the arena.
///
/// # Safety
/// As for [`suspend`].
#[inline(always)]
pub(crate) unsafe fn touch(this: *mut Engine, line: LineId, kind: Kind) {
    // SAFETY: as the caller promises.
    unsafe {
        sync(this);
        while (*this).memory.is_watched(line) && (&mut *this).unpark_watchers(line, kind) {
            // They go first, up to this moment.
            suspend(this, Reason::Late);
        }
        let it = &mut *this;
        let hit = it.memory.hits(it.processor, line, kind);
        it.now = it.memory.access(it.processor, line, kind, it.now);
        it.threads[it.current].spinner.saw(line, kind, hit);
    }
}

/// What the access was about and what came of it; part of what a spinner does in a turn.
///
/// # Safety
/// `this` is the current machine.
#[inline(always)]
pub(crate) unsafe fn note(this: *mut Engine, address: usize, value: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        let it = &mut *this;
        if it.current != NOBODY {
            it.threads[it.current].spinner.note(address, value);
        }
    }
}

/// Runs the machine until its threads are done, or cannot go on, or the time is over.
///
/// # Safety
/// `this` is the current machine, and nobody else uses it.
pub(crate) unsafe fn run(this: *mut Engine) {
    // SAFETY: each reference ends before a coroutine is resumed, which uses the machine through the same
    // pointer.
    unsafe {
        (*this).boot();
        loop {
            let it = &mut *this;
            if it.live == 0 || it.failure.is_some() {
                break;
            }
            let (time, processor) = it.tree.first();
            let timer = it.timers.peek().map_or(NEVER, |&Reverse((time, ..))| time);
            if time.min(timer) >= it.cap {
                it.capped = true;
                it.end = it.cap;
                break;
            }
            if timer <= time {
                let Reverse((time, _, timer)) = it.timers.pop().expect("just seen");
                it.fire(timer, time);
                continue;
            }
            if it.processors[processor].quantum_end <= it.processors[processor].resume {
                it.quantum_over(processor, time);
                continue;
            }
            resume(this, processor, time);
        }
        (*this).close();
    }
}

/// # Safety
/// As for [`run`].
pub(crate) unsafe fn resume(this: *mut Engine, processor: usize, now: Time) {
    // SAFETY: as for `run`.
    unsafe {
        let it = &mut *this;
        let thread = it.processors[processor].thread;
        it.now = now;
        it.processor = processor;
        it.current = thread;
        it.set_limit();
        it.counts.resumes += 1;
        let body: *mut Body = it.threads[thread].body.as_mut().expect("a running thread has a body");
        // No thread is added while one runs, so that its body stays where it is.
        let result = (*body).resume(());
        let it = &mut *this;
        let now = it.now;
        it.end = it.end.max(now);
        it.current = NOBODY;
        match result {
            CoroutineResult::Yield(reason) => match reason {
                Reason::Late => {
                    it.processors[processor].resume = now;
                    it.schedule(processor);
                }
                Reason::Asleep => it.put_to_sleep(processor, now),
                Reason::Yields => it.yield_processor(processor, now),
                Reason::Spins => it.park(processor, now),
            },
            CoroutineResult::Return(()) => {
                let mut stacks = STACKS.take();
                stacks.extend(it.threads[thread].body.take().map(Coroutine::into_stack));
                STACKS.set(stacks);
                it.finish(processor, now);
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let mut stacks = STACKS.take();
        for thread in &mut self.threads {
            if let Some(mut body) = thread.body.take() {
                // SAFETY: what is on the stack refers to the machine, which ends, and to nothing that needs
                // a destructor to run: the closures that come with the crate own copies and references into
                // the machine's memory.
                unsafe { body.force_reset() };
                stacks.push(body.into_stack());
            }
        }
        STACKS.set(stacks);
    }
}

/// What an untruthful kernel tells instead.
pub(crate) fn told(thread: &Thread, hints: Hints, now: Time) -> RunState {
    match hints {
        Hints::None => RunState::Unknown,
        Hints::Inverted => match thread.hint {
            RunState::Running => RunState::Preempted,
            RunState::Preempted => RunState::Running,
            other => other,
        },
        Hints::Delayed { us } if now < thread.hint_since + from_ns(us * 1e3) => thread.hint_before,
        _ => thread.hint,
    }
}
