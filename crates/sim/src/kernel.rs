// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel: run queues, quanta, sleep and wake-up, and the arena that it keeps true (or not, if so
//! asked).
//!
//! Its decisions take no time of their own beyond the costs in the machine's description. It writes a
//! thread's state into the arena when it takes or gives a processor, by the processor concerned, so that a
//! reader elsewhere misses once.

use std::cmp::Reverse;

use platform::{Priority, RunState, Wait, Wish};

use crate::chance::{below, unit};
use crate::domains::Domains;
use crate::engine::Engine;
use crate::event::Event;
use crate::lost::log::Mark;
use crate::machine::{Queue, Woken};
use crate::memory::{NS, Time, from_ns};
use crate::setting::Hints;
use crate::thread::{FOREIGN, NOBODY, State, Thread};
use crate::timers::Timer;
use crate::tree::NEVER;

impl Engine {
    /// All threads are there: deals them to the processors, beginning anywhere in each queue.
    pub(crate) fn boot(&mut self) {
        if let Some(repartition) = self.rules.setting.repartition.clone() {
            let every = from_ns(repartition.every_ms * 1e6).max(1);
            self.timers.set(every, Timer::Repartition);
            let most = repartition.most.clamp(1, self.processors.len() as u32) as usize;
            self.partition.ours = (0..most).collect();
            self.choose_partition();
        }
        if let Some(look) = self.domains.as_ref().and_then(Domains::look) {
            self.timers.set(look, Timer::Repartition);
        }
        for thread in 0..self.threads.len() {
            if self.threads[thread].app != FOREIGN {
                let app = self.threads[thread].app;
                self.apps[app].runnable += 1;
            }
            let queue = self.queue_of(thread);
            self.waiting.queues[queue].push_back(thread);
        }
        for queue in 0..self.waiting.queues.len() {
            let by = below(&mut self.random, self.waiting.queues[queue].len().max(1) as u64) as usize;
            self.waiting.queues[queue].rotate_left(by);
        }
        for processor in 0..self.processors.len() {
            self.dispatch(processor, 0);
            // The quanta of processors do not begin together.
            let phase = (unit(&mut self.random) * self.rules.costs.quantum as f64) as Time;
            let it = &mut self.processors[processor];
            if it.thread != NOBODY {
                it.quantum_end = it.quantum_end.saturating_sub(phase).max(1);
                self.schedule(processor);
            }
        }
    }

    pub(crate) fn queue_of(&self, thread: usize) -> usize {
        match (&self.domains, self.rules.queue) {
            (Some(domains), _) => domains.home(self.threads[thread].app),
            (None, Queue::Global) => 0,
            (None, Queue::Processor) => self.home(thread),
        }
    }

    /// The queue that a processor takes from.
    fn queue_at(&self, processor: usize) -> usize {
        match (&self.domains, self.rules.queue) {
            (Some(domains), _) => domains.of(processor),
            (None, Queue::Global) => 0,
            (None, Queue::Processor) => processor,
        }
    }

    /// The processor that a bound thread belongs to, in the present partition.
    fn home(&self, thread: usize) -> usize {
        let it = &self.threads[thread];
        if it.app == FOREIGN {
            it.home
        } else if self.rules.setting.bound || it.last_processor == NOBODY {
            self.partition.ours[it.place % self.partition.ours.len()]
        } else if !self.processors[it.last_processor].taken {
            it.last_processor
        } else {
            self.partition.ours[it.last_processor % self.partition.ours.len()]
        }
    }

    /// Tells the program what has become of a thread.
    pub(crate) fn tell(&mut self, thread: usize, processor: usize, state: RunState, now: Time) {
        let app = self.threads[thread].app;
        if app == FOREIGN {
            return;
        }
        if let Hints::Dropped { fraction } = self.rules.setting.hints
            && unit(&mut self.random) < fraction
        {
            return;
        }
        let it = &mut self.threads[thread];
        (it.hint_before, it.hint_since, it.hint) = (it.hint, now, state);
        if let Some(class) = it.counted.take() {
            self.apps[app].preempted[class as usize] -= 1;
        }
        if state == RunState::Preempted {
            it.counted = Some(it.priority);
            self.apps[app].preempted[it.priority as usize] += 1;
        }
        let (line, counts) = (self.arena.line(thread, true), self.apps[app].line);
        self.memory.kernel_write(processor, line);
        self.memory.kernel_write(processor, counts);
    }

    /// Gives the processor to whoever comes next.
    pub(crate) fn dispatch(&mut self, processor: usize, now: Time) {
        self.account(now);
        let was_idle = self.processors[processor].thread == NOBODY;
        match self.next_for(processor) {
            Some(thread) => {
                self.waiting.idle -= was_idle as usize;
                self.start(processor, thread, now);
            }
            None => {
                self.waiting.idle += !was_idle as usize;
                let it = &mut self.processors[processor];
                (it.thread, it.resume, it.quantum_end) = (NOBODY, NEVER, NEVER);
                self.schedule(processor);
            }
        }
    }

    /// Takes the next thread for this processor out of its queue.
    fn next_for(&mut self, processor: usize) -> Option<usize> {
        if self.processors[processor].taken || self.explorer.is_some() {
            return None;
        }
        let mut queue = self.queue_at(processor);
        if self.waiting.queues[queue].is_empty()
            && self.rules.queue == Queue::Processor
            && !self.rules.setting.bound
        {
            // The longest, of those the first.
            queue =
                (0..self.waiting.queues.len()).rev().max_by_key(|&other| self.waiting.queues[other].len())?;
        }
        let thread = *self.waiting.queues[queue].front()?;
        let place = if self.rules.second_level { self.preferred(queue, thread) } else { 0 };
        self.waiting.queues[queue].swap(0, place);
        self.waiting.queues[queue].pop_front()
    }

    /// ICPP 2001, section 3: of the threads of the application that the kernel has chosen, the one of
    /// highest priority, which is the first of its like in the queue.
    fn preferred(&self, queue: usize, thread: usize) -> usize {
        let app = self.threads[thread].app;
        if app == FOREIGN { 0 } else { self.highest(queue, app).unwrap_or(0) }
    }

    /// The place in the queue of the application's thread of highest priority.
    fn highest(&self, queue: usize, app: usize) -> Option<usize> {
        let ours = self.waiting.queues[queue]
            .iter()
            .enumerate()
            .filter(|&(_, &other)| self.threads[other].app == app);
        ours.max_by_key(|&(place, &other)| (self.threads[other].priority, Reverse(place)))
            .map(|(place, _)| place)
    }

    /// Where the thread waits, in its queue, to which this processor's thread would hand it off: one of its
    /// own program that stands higher.
    fn heir(&self, processor: usize) -> Option<(usize, usize)> {
        let queue = self.queue_at(processor);
        let mine = &self.threads[self.processors[processor].thread];
        let place = self.highest(queue, mine.app)?;
        let other = self.waiting.queues[queue][place];
        (self.threads[other].priority > mine.priority).then_some((queue, place))
    }

    /// Would the running thread's processor go to another thread if it handed it off?
    pub(crate) fn has_heir(&self) -> bool {
        self.heir(self.processor).is_some()
    }

    /// ICPP 2001, section 3: a second-level scheduling of one application, as a thread of it asks for whose
    /// priority has become less than another's. What is left of the quantum goes with the processor, so that
    /// no other application notices.
    pub(crate) fn hand_over(&mut self, processor: usize, now: Time) {
        let Some((queue, place)) = self.heir(processor) else { return self.yield_processor(processor, now) };
        self.account(now);
        let end = self.processors[processor].quantum_end;
        let heir = self.waiting.queues[queue].remove(place).expect("it is there");
        let thread = self.stop(processor, now);
        self.threads[thread].yields += 1;
        self.threads[thread].state = State::Ready;
        self.tally.handed += 1;
        self.mark(thread, now, Mark::Yields);
        self.tell(thread, processor, RunState::Preempted, now);
        let back = self.queue_of(thread);
        self.waiting.queues[back].push_back(thread);
        self.start(processor, heir, now);
        let switch = self.rules.costs.switch;
        let it = &mut self.processors[processor];
        it.quantum_end = end.max(it.resume.saturating_add(switch)).min(it.quantum_end);
        self.schedule(processor);
        self.help(back, now);
    }

    pub(crate) fn start(&mut self, processor: usize, thread: usize, now: Time) {
        let again = self.processors[processor].last == thread;
        let it = &mut self.threads[thread];
        let mut cost = if again { 0 } else { self.rules.costs.switch };
        if it.last_processor != processor {
            if it.last_processor != NOBODY {
                cost += self.rules.costs.migration;
                it.migrations += 1;
                let ahead = it.virtual_time.saturating_sub(self.processors[it.last_processor].virtual_time);
                it.virtual_time = self.processors[processor].virtual_time + ahead;
                self.tally.migrations += 1;
            }
            it.last_processor = processor;
        }
        // From another, or from none at all.
        self.tally.switches += (!again || self.processors[processor].thread == NOBODY) as u64;
        let begin = now + cost;
        let refill = cost.saturating_sub(self.rules.costs.switch * u64::from(!again));
        it.state = State::Running;
        it.spinner.disturb();
        it.on_since = begin;
        let owed = std::mem::take(&mut it.owed);
        let debit = std::mem::take(&mut it.debit);
        let foreign = it.app == FOREIGN;
        let jitter = self.rules.costs.jitter * (2.0 * unit(&mut self.random) - 1.0);
        let quantum = (self.rules.costs.quantum as f64 * (1.0 + jitter)) as Time;
        // At least a tenth: a debit is paid off, not a sentence.
        let quantum = quantum.saturating_sub(debit).max(self.rules.costs.quantum / 10).max(1);
        let virtual_time = it.virtual_time;
        let it = &mut self.processors[processor];
        // Never back: what a thread is ahead of it by is then a quantum at most.
        it.virtual_time = it.virtual_time.max(virtual_time);
        it.thread = thread;
        it.last = thread;
        it.put_off = None;
        it.resume = if foreign { NEVER } else { begin + owed };
        it.quantum_end = begin + quantum;
        self.mark(thread, now, Mark::Starts { switch: cost - refill, refill });
        self.tell(thread, processor, RunState::Running, now);
        self.schedule(processor);
    }

    /// Takes the processor from its thread, which gets its debit.
    pub(crate) fn stop(&mut self, processor: usize, now: Time) -> usize {
        let it = &mut self.processors[processor];
        let (thread, put_off) = (it.thread, it.put_off.take());
        let left = it.resume.saturating_sub(now);
        let owed = if self.asks_no_more(processor, thread) { 0 } else { left };
        let it = &mut self.threads[thread];
        let used = now.saturating_sub(it.on_since);
        it.virtual_time += used;
        if it.app == FOREIGN {
            self.tally.foreign += used;
            return thread;
        }
        it.cpu += used;
        it.owed = owed;
        it.warning = false;
        if let Some(since) = put_off {
            it.debit = now.saturating_sub(since);
        }
        thread
    }

    /// Does somebody wait for this processor?
    fn is_wanted(&self, processor: usize) -> bool {
        let thread = self.processors[processor].thread;
        !self.waiting.queues[self.queue_at(processor)].is_empty()
            || self.processors[processor].taken
            || self.is_elsewhere(processor)
            || self.rules.setting.bound
                && self.threads[thread].app != FOREIGN
                && self.home(thread) != processor
    }

    pub(crate) fn quantum_over(&mut self, processor: usize, now: Time) {
        if !self.is_wanted(processor) {
            self.processors[processor].quantum_end = now + self.rules.costs.quantum;
            self.schedule(processor);
            return;
        }
        if self.unpark(self.processors[processor].thread, now) {
            // It goes first, up to this moment.
            return;
        }
        let thread = self.processors[processor].thread;
        let it = &mut self.threads[thread];
        if it.app != FOREIGN
            && self.rules.honours
            && it.wish != Wish::Preemptable
            && !self.processors[processor].taken
        {
            // KE-2: once. If the flag is set, the kernel proceeds with the preemption.
            if !it.warning {
                it.warning = true;
                self.tally.put_off += 1;
                self.processors[processor].put_off = Some(now);
                self.processors[processor].quantum_end = now + self.rules.costs.grace.max(1);
                let line = self.arena.line(thread, true);
                self.memory.kernel_write(processor, line);
                self.schedule(processor);
                return;
            }
            self.tally.overrun += 1;
        }
        self.preempt(processor, now);
    }

    /// Its thread is ready, and in no queue yet.
    pub(crate) fn take_off(&mut self, processor: usize, now: Time) -> usize {
        let thread = self.stop(processor, now);
        self.threads[thread].state = State::Ready;
        if self.threads[thread].app != FOREIGN {
            self.threads[thread].preemptions += 1;
            self.tally.preemptions += 1;
        }
        self.mark(thread, now, Mark::Loses);
        self.tell(thread, processor, RunState::Preempted, now);
        thread
    }

    fn preempt(&mut self, processor: usize, now: Time) {
        let thread = self.take_off(processor, now);
        let queue = self.queue_of(thread);
        self.waiting.queues[queue].push_back(thread);
        self.upcall(thread, Event::Preempted, now);
        self.dispatch(processor, now);
        self.help(queue, now);
    }

    /// Something is in this queue that an idle processor could take.
    fn help(&mut self, queue: usize, now: Time) {
        if self.waiting.idle == 0 || self.waiting.queues[queue].is_empty() {
            return;
        }
        let free = |it: &Self, processor: usize| {
            it.processors[processor].thread == NOBODY
                && !it.processors[processor].taken
                && (it.rules.queue == Queue::Processor || it.queue_at(processor) == queue)
        };
        if self.rules.queue == Queue::Processor && self.rules.setting.bound {
            if free(self, queue) {
                self.dispatch(queue, now);
            }
            return;
        }
        let thread = *self.waiting.queues[queue].front().expect("not empty");
        let last = self.threads[thread].last_processor;
        let chosen = if last != NOBODY && free(self, last) {
            Some(last)
        } else {
            (0..self.processors.len()).find(|&processor| free(self, processor))
        };
        if let Some(processor) = chosen {
            self.dispatch(processor, now);
        }
    }

    pub(crate) fn make_ready(&mut self, thread: usize, now: Time) {
        let it = &mut self.threads[thread];
        it.state = State::Ready;
        let app = it.app;
        self.waiting.asleep -= 1;
        self.apps[app].runnable += 1;
        let processor = if it.last_processor == NOBODY { it.home } else { it.last_processor };
        self.mark(thread, now, Mark::Loses);
        self.tell(thread, processor, RunState::Preempted, now);
        let queue = self.queue_of(thread);
        if self.rules.woken == Woken::Last {
            self.waiting.queues[queue].push_back(thread);
            self.help(queue, now);
            return;
        }
        let processor = match self.rules.queue {
            Queue::Processor => queue,
            Queue::Global if self.queue_at(processor) == queue => processor,
            Queue::Global => self.first_of(queue),
        };
        let running = self.virtual_time(processor, now);
        let those = self.waiting.queues[queue].iter().map(|&other| self.threads[other].virtual_time);
        let least = those.chain(running).min().unwrap_or(0);
        let it = &mut self.threads[thread];
        it.virtual_time = it.virtual_time.max(least.saturating_sub(self.rules.costs.credit));
        let virtual_time = it.virtual_time;
        let place = self.waiting.queues[queue]
            .iter()
            .position(|&other| self.threads[other].virtual_time > virtual_time);
        let place = place.unwrap_or(self.waiting.queues[queue].len());
        self.waiting.queues[queue].insert(place, thread);
        self.help(queue, now);
        if self.rules.woken == Woken::Preempts
            && self.threads[thread].state == State::Ready
            && running.is_some_and(|running| running > virtual_time + self.rules.costs.margin)
        {
            // Its quantum ends here.
            let it = &mut self.processors[processor];
            it.quantum_end = it.quantum_end.min(now);
            self.schedule(processor);
        }
    }

    /// That of the thread that runs there.
    fn virtual_time(&self, processor: usize, now: Time) -> Option<Time> {
        let it = self.threads.get(self.processors[processor].thread)?;
        Some(it.virtual_time + now.saturating_sub(it.on_since))
    }

    pub(crate) fn put_to_sleep(&mut self, processor: usize, now: Time) {
        let thread = self.stop(processor, now);
        let it = &mut self.threads[thread];
        it.state = State::Asleep;
        it.sleeps += 1;
        let app = it.app;
        self.waiting.asleep += 1;
        self.apps[app].runnable -= 1;
        self.mark(thread, now, Mark::Sleeps);
        self.tell(thread, processor, RunState::Blocked, now);
        // Before the processor is given away: who hears of it can have it.
        let event = if self.threads[thread].faults { Event::Faulted } else { Event::Blocked };
        self.upcall(thread, event, now);
        self.dispatch(processor, now);
        self.check_stuck();
    }

    pub(crate) fn yield_processor(&mut self, processor: usize, now: Time) {
        let thread = self.stop(processor, now);
        self.threads[thread].yields += 1;
        self.threads[thread].state = State::Ready;
        self.mark(thread, now, Mark::Yields);
        self.tell(thread, processor, RunState::Preempted, now);
        let queue = self.queue_of(thread);
        self.waiting.queues[queue].push_back(thread);
        self.dispatch(processor, now);
        self.help(queue, now);
    }

    /// Would somebody else run if the running thread gave its processor up?
    pub(crate) fn others_wait(&self) -> bool {
        self.is_wanted(self.processor)
    }

    /// The running thread gives its processor up and gets it back at once: nobody wants it. A preemption
    /// that was put off is repaid later.
    pub(crate) fn settle_debit(&mut self) {
        let it = &mut self.processors[self.processor];
        if let Some(since) = it.put_off.take() {
            it.quantum_end =
                self.now + self.rules.costs.quantum.saturating_sub(self.now.saturating_sub(since)).max(1);
        }
        let current = self.current;
        self.threads[current].warning = false;
        self.threads[current].yields += 1;
        self.set_limit();
    }

    pub(crate) fn finish(&mut self, processor: usize, now: Time) {
        let thread = self.stop(processor, now);
        let it = &mut self.threads[thread];
        it.state = State::Done;
        it.finished = now;
        it.owed = 0;
        let app = it.app;
        self.apps[app].runnable -= 1;
        self.waiting.live -= 1;
        self.mark(thread, now, Mark::Ends);
        self.tell(thread, processor, RunState::Blocked, now);
        self.dispatch(processor, now);
        self.check_stuck();
    }

    /// Begins a sleep of the running thread, which then suspends.
    pub(crate) fn fall_asleep(&mut self, key: usize, until: Option<Time>) {
        let current = self.current;
        let it = &mut self.threads[current];
        it.sleep += 1;
        it.sleeps_on = key;
        it.woken = Wait::Woken;
        let sleep = it.sleep;
        if key != 0 {
            self.waiting.sleepers.entry(key).or_default().push_back(current);
        }
        if let Some(until) = until {
            self.timers.set(until, Timer::Wake(current, sleep));
        }
    }

    /// Wakes at most `count` of those asleep on `key`.
    pub(crate) fn wake(&mut self, key: usize, count: u32, now: Time) -> u32 {
        let mut woken = 0;
        while woken < count {
            let Some(thread) = self.waiting.sleepers.get_mut(&key).and_then(|line| line.pop_front()) else {
                break;
            };
            woken += 1;
            self.threads[thread].sleep += 1;
            self.make_ready(thread, now + Time::from(woken) * self.rules.wakes());
        }
        woken
    }

    pub(crate) fn fire(&mut self, timer: Timer, now: Time) {
        match timer {
            Timer::Wake(thread, sleep) => {
                if self.threads[thread].sleep != sleep || self.threads[thread].state != State::Asleep {
                    return;
                }
                let key = self.threads[thread].sleeps_on;
                if let Some(line) = self.waiting.sleepers.get_mut(&key) {
                    line.retain(|&other| other != thread);
                }
                self.threads[thread].sleep += 1;
                self.threads[thread].woken = Wait::TimedOut;
                self.make_ready(thread, now);
                self.upcall(thread, Event::Unblocked, now);
            }
            Timer::Upcall(thread, event) => self.deliver(thread, event, now),
            Timer::Repartition => {
                let mut earlier = false;
                while let Some(&thread) = self.parked.last() {
                    earlier |= self.unpark(thread, now);
                }
                if earlier {
                    // They go first, up to this moment.
                    self.timers.set(now, Timer::Repartition);
                    return;
                }
                if self.domains.is_some() {
                    self.look_at_use(now);
                    return;
                }
                self.choose_partition();
                self.apply_partition(now);
                let every = self.rules.setting.repartition.as_ref().map_or(1.0, |it| it.every_ms);
                self.timers.set(now + from_ns(every * 1e6).max(1), Timer::Repartition);
            }
        }
    }

    /// The next partition.
    fn choose_partition(&mut self) {
        let Some(repartition) = &self.rules.setting.repartition else { return };
        let changes = self.partition.choose(repartition, self.processors.len(), &mut self.random);
        self.tally.repartitions += u64::from(changes);
        for (number, processor) in self.processors.iter_mut().enumerate() {
            processor.taken = !self.partition.has(number);
        }
    }

    /// Threads leave processors that are not ours any more, and come to those that are.
    fn apply_partition(&mut self, now: Time) {
        let mut ready: Vec<usize> = Vec::new();
        for processor in 0..self.processors.len() {
            let thread = self.processors[processor].thread;
            if self.processors[processor].taken && thread != NOBODY {
                ready.push(self.take_off(processor, now));
                self.dispatch(processor, now);
            }
        }
        for queue in &mut self.waiting.queues {
            ready.extend(queue.drain(..));
        }
        for thread in ready {
            let queue = self.queue_of(thread);
            self.waiting.queues[queue].push_back(thread);
        }
        for processor in 0..self.processors.len() {
            if self.processors[processor].thread == NOBODY {
                self.dispatch(processor, now);
            } else if self.is_wanted(processor) && self.rules.setting.bound {
                let thread = self.processors[processor].thread;
                if self.threads[thread].app != FOREIGN && self.home(thread) != processor {
                    // Belongs elsewhere now.
                    self.preempt(processor, now);
                }
            }
        }
    }

    // What the program asks.

    /// What the kernel tells of a thread.
    pub(crate) fn run_state(&self, thread: usize) -> RunState {
        told(&self.threads[thread], self.rules.setting.hints, self.now)
    }

    pub(crate) fn higher_preempted(&self, app: usize, than: Priority) -> bool {
        match self.rules.setting.hints {
            Hints::None => false,
            Hints::True | Hints::Dropped { .. } => {
                self.apps[app].preempted[than as usize + 1..].iter().any(|&count| count > 0)
            }
            hints => self.threads.iter().any(|thread| {
                thread.app == app
                    && thread.priority > than
                    && told(thread, hints, self.now) == RunState::Preempted
            }),
        }
    }

    pub(crate) fn set_priority(&mut self, thread: usize, priority: Priority) {
        let it = &mut self.threads[thread];
        it.priority = priority;
        if let Some(class) = it.counted {
            it.counted = Some(priority);
            let app = &mut self.apps[it.app];
            app.preempted[class as usize] -= 1;
            app.preempted[priority as usize] += 1;
        }
    }

    /// What a thread sets without looking at the run state: its own wish, then. A grant to one that has no
    /// processor is what KE-1's word is there against ([`platform::ke1`], I2), and ends the simulation.
    pub(crate) fn set_wish(&mut self, thread: usize, wish: Wish) {
        if wish == Wish::UnpreemptableOther && self.threads[thread].state == State::Ready {
            self.fail(format!("thread {thread} was granted a lock, and has lost its processor"));
        }
        self.threads[thread].wish = wish;
    }

    /// Processor time of the application until now, in ns.
    pub(crate) fn cpu_ns(&self, app: usize) -> u64 {
        let of = |thread: &Thread| {
            let running =
                if thread.state == State::Running { self.now.saturating_sub(thread.on_since) } else { 0 };
            thread.cpu + running
        };
        self.threads.iter().filter(|thread| thread.app == app).map(of).sum::<Time>() / NS
    }

    /// Threads that run or could, of the whole machine; unless an application may use some of the processors
    /// only.
    pub(crate) fn runnable(&self) -> Option<u32> {
        let runnable = self
            .threads
            .iter()
            .filter(|thread| matches!(thread.state, State::Running | State::Ready))
            .count();
        let all_are_ours = self.partition.ours.len() == self.processors.len() && self.domains.is_none();
        all_are_ours.then_some(runnable as u32)
    }

    /// The end of a run: threads that still run get their time.
    pub(crate) fn close(&mut self) {
        if let Some(over) = self.tally.over {
            self.tally.end = over;
            // Work counts when it begins. What is left of it was not done.
            for processor in self.processors.iter().filter(|it| it.thread != NOBODY && it.resume != NEVER) {
                let it = &mut self.threads[processor.thread];
                it.work = it.work.saturating_sub(processor.resume.saturating_sub(self.tally.end));
            }
            for it in self.threads.iter_mut().filter(|it| it.state == State::Ready) {
                it.work = it.work.saturating_sub(it.owed);
            }
        }
        for processor in 0..self.processors.len() {
            let thread = self.processors[processor].thread;
            if thread != NOBODY {
                let used = self.tally.end.saturating_sub(self.threads[thread].on_since);
                if self.threads[thread].app == FOREIGN {
                    self.tally.foreign += used;
                } else {
                    self.threads[thread].cpu += used;
                }
            }
        }
    }

    /// Fails if all threads sleep and nothing will wake one.
    fn check_stuck(&mut self) {
        if self.waiting.asleep < self.waiting.live || self.waiting.live == 0 {
            return;
        }
        let timed = self.timers.iter().any(|timer| match timer {
            Timer::Wake(thread, sleep) => self.threads[thread].sleep == sleep,
            Timer::Repartition => false,
            Timer::Upcall(..) => true,
        });
        if !timed {
            self.fail(format!(
                "all {} threads that are left sleep, and nobody will wake one",
                self.waiting.live
            ));
        }
    }
}

/// What an untruthful kernel tells instead.
fn told(thread: &Thread, hints: Hints, now: Time) -> RunState {
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
