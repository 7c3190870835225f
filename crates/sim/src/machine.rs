// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine costs: the description, and those that come with the crate.
//!
//! A description is a TOML file in which every number names its source: a paper and its section, or the
//! word "assumption". The simulator has no numbers of its own.

use serde::{Deserialize, Serialize};

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value, in the unit that the field's name ends in.
    pub value: T,
    /// A paper and its section, or "assumption" and a reason.
    pub source: String,
}

/// A multiprocessor and its kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it is called on the command line.
    pub name: String,
    /// One line for a person who chooses.
    pub summary: String,
    /// The processors.
    pub processors: Processors,
    /// Caches and memory.
    pub memory: Memory,
    /// Groups of processors, the nearest first; the last one holds all.
    pub level: Vec<Level>,
    /// The operating system.
    pub kernel: Kernel,
    /// The lock that the machine's own hardware makes. Without it, as with a kind of `test-and-set`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_lock: Option<HardwareLock>,
    /// What making and calling costs, for programs of many threads. Without it, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
}

/// What table I of *Scheduler Activations* is made of, beside the kernel's costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operations {
    /// A procedure call, with its return.
    pub call_us: Sourced<f64>,
    /// Making and ending a kernel thread, beside its wake-ups.
    pub thread_us: Sourced<f64>,
    /// The same of a process.
    pub process_us: Sourced<f64>,
    /// From one process to another, beside the switch of threads.
    pub process_switch_us: Sourced<f64>,
}

/// The processors of a [`Machine`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processors {
    /// How many.
    pub count: Sourced<u32>,
    /// One turn of a spin loop.
    pub pause_ns: Sourced<f64>,
    /// Reading the clock.
    pub clock_ns: Sourced<f64>,
}

/// Caches and memory of a [`Machine`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Unit of coherence; a power of two, at least 16.
    pub line_bytes: Sourced<u32>,
    /// A load or store of a line that the processor's cache holds in the right state.
    pub hit_ns: Sourced<f64>,
    /// More, if no cache has the line.
    pub memory_ns: Sourced<f64>,
    /// More, for an atomic read-modify-write.
    pub atomic_ns: Sourced<f64>,
    /// More for a write, for each other cache that holds the line.
    pub per_sharer_ns: Sourced<f64>,
    /// Each processor's own cache. Without it, caches are as large as need be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_cache: Option<Cache>,
    /// A cache behind those, which some processors share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_cache: Option<SharedCache>,
    /// Pages that have a home node. Without it, memory is as far as the processor that first touched a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<Pages>,
}

/// The size of a cache: sets times ways times [`Memory::line_bytes`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// A line can be in one of them; a power of two.
    pub sets: Sourced<u32>,
    /// Lines of a set.
    pub ways: Sourced<u32>,
}

/// A cache of several processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedCache {
    /// How many share one.
    pub processors: Sourced<u32>,
    /// A line can be in one of them; a power of two.
    pub sets: Sourced<u32>,
    /// Lines of a set.
    pub ways: Sourced<u32>,
    /// Until a line from there is here.
    pub hit_ns: Sourced<f64>,
}

/// Memory that belongs to nodes, page by page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    /// A power of two, at least a line.
    pub bytes: Sourced<u32>,
    /// Processors of a node: as many as one of the levels has.
    pub node_processors: Sourced<u32>,
    /// Until a line from the own node's memory is here.
    pub local_ns: Sourced<f64>,
    /// Until a line from another node's memory is here.
    pub remote_ns: Sourced<f64>,
}

/// Processors that are equally far from one another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// What connects them.
    pub name: String,
    /// How many they are.
    pub processors: Sourced<u32>,
    /// Until a line from there is here.
    pub transfer_ns: Sourced<f64>,
    /// Until the copies there are no more.
    pub invalidate_ns: Sourced<f64>,
    /// For how long a transaction keeps others from this connection.
    pub occupancy_ns: Sourced<f64>,
}

/// How the kernel keeps those who can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// One queue for all processors.
    Global,
    /// A queue a processor; an idle processor takes from the longest.
    Processor,
}

/// Where a thread that wakes up comes in the queue for a processor, if it has used less of it than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Woken {
    /// Behind all others.
    Last,
    /// Before those who have used more; who runs keeps the processor to the end of its quantum.
    Next,
    /// The same, and it takes the processor at once from who has used more.
    Preempts,
}

/// How a thread sleeps until another wakes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blocking {
    /// A system call to sleep, and one to wake any number.
    #[default]
    Futex,
    /// As LinuxThreads did before there were futexes: `sigsuspend`, and a `kill` for each that is woken. That
    /// one runs a handler and returns from it by another system call. Who sleeps stands in a list of the
    /// program, so that nobody is called for nothing.
    Signals,
}

fn futex() -> Sourced<Blocking> {
    Sourced {
        value: Blocking::Futex,
        source: "assumption: a kernel with futexes, or with what is as cheap".into(),
    }
}

/// The operating system of a [`Machine`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// How long a thread keeps its processor if others want it.
    pub quantum_ms: Sourced<f64>,
    /// By which fraction a quantum may be longer or shorter.
    pub quantum_jitter: Sourced<f64>,
    /// From one thread to another.
    pub switch_us: Sourced<f64>,
    /// More, if the thread ran on another processor before.
    pub migration_us: Sourced<f64>,
    /// Into the kernel and back.
    pub syscall_us: Sourced<f64>,
    /// More, for each thread woken.
    pub wake_us: Sourced<f64>,
    /// How threads sleep.
    #[serde(default = "futex")]
    pub blocking: Sourced<Blocking>,
    /// KE-2: by how much a preemption is put off at most.
    pub grace_us: Sourced<f64>,
    /// The run queues.
    pub queue: Sourced<Queue>,
    /// What waking up is good for.
    pub woken: Sourced<Woken>,
    /// By how much more processor time the running thread must have used to lose the processor to one that
    /// wakes up.
    pub woken_margin_ms: Sourced<f64>,
    /// However long it slept, it passes for having used only so much less than those who were awake.
    pub woken_credit_ms: Sourced<f64>,
    /// KE-1 and KE-2: a wish not to be preempted is honoured once.
    pub honours_wishes: Sourced<bool>,
    /// Among the threads of a program, the one of highest user-level priority runs (ICPP 2001, section 3).
    pub second_level: Sourced<bool>,
}

/// What a programmer of the machine takes for a lock (TR 1994, section 5.2, "Native").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardwareLock {
    /// How it is made.
    pub kind: Sourced<LockKind>,
    /// Locked lines, if it is made of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<LineLock>,
}

/// How a hardware lock is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// Test-and-test_and_set without backoff, of the machine's atomic operations.
    TestAndSet,
    /// A processor locks a line, and those that ask for it stall.
    Line,
}

/// Lines that a processor locks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineLock {
    /// Which of those that stall has it next.
    pub order: Sourced<LockOrder>,
    /// To lock a line, beyond its way here.
    pub get_ns: Sourced<f64>,
    /// To free it.
    pub free_ns: Sourced<f64>,
}

/// Which of those that stall has a line next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockOrder {
    /// The first one that a freed line comes by: of the smallest group that has one, the next in number.
    Nearest,
    /// The one that has asked first.
    Arrival,
}

/// Why a description is of no use.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// It is no TOML, or a field is missing, misspelt or of the wrong type.
    #[error(transparent)]
    Toml(#[from] Box<toml::de::Error>),
    /// A number makes no sense.
    #[error("{field}: {problem}")]
    Field {
        /// Where.
        field: String,
        /// What to change.
        problem: String,
    },
}

macro_rules! machines {
    ($($name:literal),* $(,)?) => {
        /// Names of the machines that come with the crate.
        pub const MACHINES: &[&str] = &[$($name),*];

        /// The description of this name.
        fn text(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../machines/", $name, ".toml"))),)*
                _ => None,
            }
        }
    };
}

machines![
    "sgi-challenge-11",
    "ksr1-63",
    "ppro-4",
    "xeon-e5420-2x4",
    "numa-2x32",
    "numa-8x8",
    "epyc-64",
    "cxl-1024",
    "firefly-6",
    "mach-4"
];

/// More than any machine here has, and what the tables hold.
pub const MOST_PROCESSORS: u32 = 4096;

impl Machine {
    /// The machine of this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        text(name)
            .map(|text| Self::parse(text).expect("the descriptions that come with the crate are tested"))
    }

    /// Reads a description.
    pub fn parse(text: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text).map_err(Box::new)?;
        machine.check()?;
        Ok(machine)
    }

    /// As this machine, with another number of processors; groups that are larger shrink, the last one
    /// holds all.
    pub fn with_processors(mut self, count: u32) -> Self {
        self.processors.count = Sourced { value: count, source: "the caller".into() };
        let last = self.level.len() - 1;
        self.level[last].processors = self.processors.count.clone();
        for level in &mut self.level {
            level.processors.value = level.processors.value.min(count);
        }
        if let Some(shared) = &mut self.memory.shared_cache {
            shared.processors.value = shared.processors.value.min(count);
        }
        if let Some(pages) = &mut self.memory.pages {
            pages.node_processors.value = pages.node_processors.value.min(count);
        }
        self
    }

    /// What its moves cost, as [`platform::Platform::costs`]. The line comes from the widest level. An idle
    /// processor never sleeps here: what a wake-up there costs more is the thread's move.
    pub fn costs(&self) -> platform::Costs {
        let widest = &self.level[self.level.len() - 1];
        let us = |value: f64| (value * 1e3) as u64;
        let kernel = &self.kernel;
        let switch = us(kernel.switch_us.value).max(1);
        // To sleep and to wake are system calls, and each side changes its processor's thread once.
        let calls = if kernel.blocking.value == Blocking::Futex { 2 } else { 3 };
        let sleep = calls * us(kernel.syscall_us.value) + us(kernel.wake_us.value) + 2 * switch;
        platform::Costs {
            line: ((widest.transfer_ns.value + widest.invalidate_ns.value) as u64).max(1),
            switch,
            sleep,
            // An idle processor is often another one.
            idle: sleep + us(kernel.migration_us.value),
            slice: us(kernel.quantum_ms.value * 1e3).max(1),
        }
    }

    /// Every value of the description, with its source.
    pub fn figures(&self) -> Vec<Figure> {
        let mut all = Vec::new();
        walk("", &toml::Value::try_from(self).expect("a description is a TOML table"), &mut all);
        all
    }

    fn check_caches(&self) -> Result<(), MachineError> {
        let Memory { line_bytes, own_cache, shared_cache, pages, .. } = &self.memory;
        let sizes = own_cache.iter().map(|it| ("memory.own_cache", &it.sets, &it.ways));
        let shared = shared_cache.iter().map(|it| ("memory.shared_cache", &it.sets, &it.ways));
        for (field, sets, ways) in sizes.chain(shared) {
            // BOUND: places of a cache, which the simulator has a table of.
            if !sets.value.is_power_of_two()
                || !(1..=1 << 24).contains(&(u64::from(sets.value) * u64::from(ways.value)))
            {
                return fault(field, "give a power of two of sets, at least one way, and at most 2^24 lines");
            }
        }
        if let Some(shared) = shared_cache {
            let (count, size) = (self.processors.count.value, shared.processors.value);
            if own_cache.is_none() {
                return fault("memory.shared_cache", "give an own_cache, too");
            }
            if size == 0 || count.div_ceil(size) > 64 {
                return fault(
                    "memory.shared_cache.processors",
                    "give as many as make at most 64 shared caches",
                );
            }
        }
        if let Some(pages) = pages {
            if !pages.bytes.value.is_power_of_two() || pages.bytes.value < line_bytes.value {
                return fault("memory.pages.bytes", "give a power of two that is not less than a line");
            }
            if !self.level.iter().any(|level| level.processors.value == pages.node_processors.value) {
                return fault("memory.pages.node_processors", "give as many as one of the levels has");
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), MachineError> {
        for figure in self.figures() {
            if figure.value.parse::<f64>().is_ok_and(|value| !(0.0..1e12).contains(&value)) {
                return fault(&figure.field, "give a number from 0 to 1e12");
            }
            if figure.source.is_empty() {
                return fault(&figure.field, "say where the number comes from, or \"assumption\"");
            }
        }
        let count = self.processors.count.value;
        if !(1..=MOST_PROCESSORS).contains(&count) {
            return fault("processors.count", "give a number from 1 to 4096");
        }
        let line = self.memory.line_bytes.value;
        if !line.is_power_of_two() || !(16..=4096).contains(&line) {
            return fault("memory.line_bytes", "give a power of two from 16 to 4096");
        }
        if self.level.last().is_none_or(|level| level.processors.value != count) {
            return fault("level", "the last level must hold all processors");
        }
        if self.level.windows(2).any(|pair| pair[0].processors.value > pair[1].processors.value)
            || self.level.iter().any(|level| level.processors.value == 0)
        {
            return fault("level", "give the levels from the smallest to the largest");
        }
        self.check_caches()?;
        if let Some(HardwareLock { kind, line: lock }) = &self.hardware_lock {
            if (kind.value == LockKind::Line) != lock.is_some() {
                return fault("hardware_lock", "give `line` with the kind `line`, and only then");
            }
            // BOUND: what the locks of the catalogue are aligned to.
            if lock.is_some() && line > 128 {
                return fault("hardware_lock.line", "needs a line_bytes of at most 128");
            }
        }
        if self.processors.pause_ns.value <= 0.0 || self.memory.hit_ns.value <= 0.0 {
            return fault(
                "processors.pause_ns, memory.hit_ns",
                "must be more than 0, or a spin loop never ends",
            );
        }
        if self.kernel.quantum_ms.value <= 0.0 || self.kernel.quantum_jitter.value >= 1.0 {
            return fault("kernel.quantum_ms", "a quantum must last, and its jitter be below 1");
        }
        Ok(())
    }
}

fn fault(field: &str, problem: &str) -> Result<(), MachineError> {
    Err(MachineError::Field { field: field.to_string(), problem: problem.to_string() })
}

/// One value of a description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// Where it stands, such as `memory.hit_ns`.
    pub field: String,
    /// The value as text.
    pub value: String,
    /// Where it comes from.
    pub source: String,
}

fn walk(at: &str, value: &toml::Value, all: &mut Vec<Figure>) {
    match value {
        toml::Value::Table(table) => {
            if let (Some(value), Some(toml::Value::String(source))) =
                (table.get("value"), table.get("source"))
            {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                all.push(Figure { field: at.to_string(), value, source: source.clone() });
                return;
            }
            for (key, value) in table {
                walk(&if at.is_empty() { key.clone() } else { format!("{at}.{key}") }, value, all);
            }
        }
        toml::Value::Array(levels) => {
            for level in levels {
                let name = level.get("name").and_then(toml::Value::as_str).unwrap_or("?");
                walk(&format!("{at}.{name}"), level, all);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_is_sound_and_names_its_sources() {
        for name in MACHINES {
            let machine =
                Machine::parse(text(name).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(machine.name, *name);
            for figure in machine.figures() {
                let known = [
                    "TR 1994",
                    "ICPP 2001",
                    "Scheduler Activations",
                    "assumption",
                    "derived",
                    "Paznikov",
                    "lmbench",
                    "Uemura and Kan",
                    "Mach 3.0",
                ];
                assert!(
                    known.iter().any(|word| figure.source.contains(word)),
                    "{name}: {}: {}",
                    figure.field,
                    figure.source
                );
            }
            assert!(machine.figures().len() >= 18 + 4 * machine.level.len());
        }
    }

    #[test]
    fn a_description_of_no_use_is_refused() {
        let good = text("sgi-challenge-11").unwrap();
        for (old, new, word) in [
            ("value = 11,", "value = 0,", "processors.count"),
            ("value = 128,", "value = 100,", "line_bytes"),
            ("hit_ns", "hit_nanoseconds", "hit_nanoseconds"),
            ("value = 20,", "value = -1,", "from 0"),
        ] {
            let bad = good.replacen(old, new, 1);
            assert_ne!(bad, good, "{old}");
            let error = Machine::parse(&bad).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
