// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of [`Program::Delegated`]: sections that another thread may run, and what they touch.
//!
//! A *client* is a thread that comes to the lock. The *server* is the thread of a lock that needs one. A
//! *call* is a client's section on its way to whoever runs it: it lies on a line of the client's, as the
//! arguments of a section do that lie on its stack, and whoever runs the section reads it.

use std::cell::Cell;
use std::rc::Rc;

use catalog::{DelegateEntry, DelegateVisitor, Entry, MutexVisitor};
use platform::{Atomic, Ordering::*};
use serde::{Deserialize, Serialize};
use sync::delegate::RawDelegate;
use sync::mutex::RawMutex;

use crate::platform::{Sim, clock_ns, entered, fail, left, passed, random, vary, work_ns};
use crate::word::Word;
use crate::workload::{Program, Workload};
use crate::world::{Placed, World};

/// What a section touches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Touches {
    /// The same lines each time: it reads and writes a word of each.
    Lines(u32),
    /// One element of an array, to which it adds 1.
    Element {
        /// Words of the array.
        elements: u32,
        /// Which one comes next.
        order: Order,
        /// The node of its pages, where the machine has nodes; else nothing.
        node: u32,
    },
}

/// In which order a client goes through an array. Each begins at its own part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Any element, each as probable.
    Random,
    /// So many elements further, and behind the end from the beginning.
    Stride(u32),
}

/// What all sections of a lock share.
enum Data {
    /// A word of each line.
    Lines(Vec<Placed<Word<u32>>>),
    Elements(Placed<[Word<u32>]>),
}

/// A lock's sections, on whose behalf ever they run. The cells are for us, and cost nothing.
struct Sections {
    data: Data,
    /// One runs.
    busy: Cell<bool>,
}

/// A client's section.
struct Call {
    element: Word<u32>,
    sections: Rc<Sections>,
    /// How often it has been run.
    runs: Cell<u64>,
}

impl Sections {
    fn run(&self, call: &Call) {
        if self.busy.replace(true) {
            fail("two sections run at once".into());
        }
        entered();
        let element = call.element.load(Relaxed);
        let add = |word: &Word<u32>| word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
        match &self.data {
            Data::Lines(lines) => lines.iter().for_each(|word| add(word)),
            Data::Elements(elements) => add(&elements.get()[element as usize]),
        }
        left();
        call.runs.set(call.runs.get() + 1);
        self.busy.set(false);
    }
}

/// # Safety
/// `context` is a [`Call`].
unsafe fn section(context: *mut ()) {
    // SAFETY: as promised.
    let call = unsafe { &*context.cast::<Call>() };
    call.sections.run(call);
}

/// Where a client goes next.
struct Walk {
    touches: Touches,
    at: u64,
}

impl Walk {
    fn new(touches: Touches, client: u32, clients: u32) -> Self {
        let at = match touches {
            Touches::Lines(_) => 0,
            Touches::Element { elements, .. } => u64::from(elements) * u64::from(client) / u64::from(clients),
        };
        Self { touches, at }
    }

    fn next(&mut self) -> u32 {
        if let Touches::Element { elements, order, .. } = self.touches {
            self.at = match order {
                Order::Random => random(elements.into()),
                Order::Stride(by) => (self.at + u64::from(by)) % u64::from(elements),
            };
        }
        self.at as u32
    }
}

/// Loads the program of a workload.
pub(crate) struct Delegated<'a> {
    world: &'a mut World,
    workload: &'a Workload,
    touches: Touches,
    outside_ns: f64,
    server: u32,
}

/// An instance of it.
struct Instance {
    app: usize,
    sections: Rc<Sections>,
}

impl<'a> Delegated<'a> {
    /// The lock's name, and what loads the program.
    pub fn of(world: &'a mut World, workload: &'a Workload) -> Option<(&'a str, Self)> {
        let Program::Delegated { ref lock, touches, outside_ns, server } = workload.program else {
            return None;
        };
        Some((lock, Self { world, workload, touches, outside_ns, server }))
    }

    /// Calls the visitor with the lock of this name, which may be a mutex; `None` if there is none.
    pub fn load(self, lock: &str) -> Option<()> {
        if catalog::delegate(lock).is_some() {
            return catalog::visit_delegate::<Sim, _>(lock, self);
        }
        catalog::visit_mutex::<Sim, _>(lock, self)
    }

    fn instance(&mut self) -> Instance {
        let data = match self.touches {
            Touches::Lines(count) => {
                Data::Lines((0..count).map(|_| self.world.place(Word::new(0))).collect())
            }
            Touches::Element { elements, node, .. } => {
                let placed = self.world.place_all((0..elements).map(|_| Word::new(0)));
                self.world.bind(placed, node);
                Data::Elements(placed)
            }
        };
        let app = self.world.add_app();
        Instance { app, sections: Rc::new(Sections { data, busy: Cell::new(false) }) }
    }

    /// Adds the clients. `prepare` makes for each what runs a call; `end` is for the last one that is done.
    fn clients<R: Fn(&Placed<Call>) + 'static>(
        &mut self,
        instance: &Instance,
        mut prepare: impl FnMut(&mut World) -> R,
        end: impl Fn() + Clone + 'static,
    ) {
        let (touches, outside_ns, clients) = (self.touches, self.outside_ns, self.workload.threads);
        let (rounds, by) = (self.workload.rounds, self.workload.vary);
        let open = Rc::new(Cell::new(clients));
        for client in 0..clients {
            let (sections, open, end) = (instance.sections.clone(), open.clone(), end.clone());
            let call = self.world.place(Call { element: Word::new(0), sections, runs: Cell::new(0) });
            let run = prepare(self.world);
            // The server has its processor alone, if there are enough.
            let processor = if client < self.server { client } else { client + 1 };
            self.world.spawn_on(instance.app, processor, move || {
                let mut walk = Walk::new(touches, client, clients);
                for round in 1..=rounds {
                    call.element.store(walk.next(), Relaxed);
                    let begin = clock_ns();
                    run(&call);
                    passed(clock_ns() - begin);
                    if call.runs.get() != round {
                        fail("a section was not run once before its client went on".into());
                    }
                    work_ns(outside_ns * vary(by));
                }
                open.set(open.get() - 1);
                if open.get() == 0 {
                    end();
                }
            });
        }
    }
}

fn context(call: &Placed<Call>) -> *mut () {
    std::ptr::from_ref(call.get()).cast_mut().cast()
}

impl DelegateVisitor<Sim> for Delegated<'_> {
    type Output = ();

    fn visit<L: RawDelegate<Sim> + 'static>(mut self, _: &'static DelegateEntry) {
        for _ in 0..self.workload.instances {
            let instance = self.instance();
            let lock = self.world.place(L::new());
            if L::SERVED {
                self.world.spawn_on(instance.app, self.server, move || {
                    if !lock.serve() {
                        fail("the server cannot serve".into());
                    }
                });
            }
            // SAFETY: the section ends, does not unwind, and comes to no lock; the machine keeps the lock.
            let run = move |call: &Placed<Call>| unsafe { lock.run(section, context(call)) };
            self.clients(&instance, |_| run, move || lock.close());
        }
    }
}

impl MutexVisitor<Sim> for Delegated<'_> {
    type Output = ();

    fn visit<L: RawMutex<Sim> + 'static>(mut self, _: &'static Entry) {
        for _ in 0..self.workload.instances {
            let instance = self.instance();
            let lock = self.world.place(L::new());
            let prepare = |world: &mut World| {
                let node = world.place(L::Node::default());
                move |call: &Placed<Call>| {
                    // SAFETY: the node is this client's, in use once at a time, and stays where it is.
                    unsafe { lock.lock(node.get()) };
                    call.sections.run(call);
                    // SAFETY: locked above with this node.
                    unsafe { lock.unlock(node.get()) };
                }
            };
            self.clients(&instance, prepare, || ());
        }
    }
}
