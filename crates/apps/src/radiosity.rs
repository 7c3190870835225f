// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hierarchical radiosity of a room: queues of tasks, one a thread, with stealing, and a lock a patch.
//!
//! The method is that of Hanrahan, Salzman and Aupperle (1991), its tasks those of SPLASH-2's program; the
//! room and the code are ours. A patch is a tree of elements, four below each. In each iteration there is a
//! task for each pair of patches that see each other: it goes down both trees until an interaction carries
//! little light, and adds that light to the receiving element, under its patch's lock. When these tasks are
//! done, there is one for each patch, which passes light down the tree and averages up it. What the last
//! iteration left is the input of the next, so that the order of tasks does not matter. Light is counted in
//! integers, whose sum does not depend on the order either.
//!
//! Simpler than SPLASH-2's: trees have their full depth from the beginning, interactions are found anew in
//! each iteration, their number is fixed, and nothing stands in the room. The rays that would find what
//! stands between two elements are counted as operations.

use platform::{Atomic, Ordering::*, Platform};
use sync::mutex::RawMutex;

use crate::{Digest, Host, Locked, Word, digest, digest_of, words};

/// Elements of a patch: itself, its four quarters, and theirs.
const ELEMENTS: usize = 1 + 4 + 16;
const ITERATIONS: u32 = 8;
/// One, as light is counted.
const ONE: f64 = (1 << 20) as f64;
/// What the lamp emits.
const LAMP: u32 = 8 << 20;
/// An interaction that carries more is divided.
const MUCH: u32 = 1 << 14;
/// The form factor of two elements: some 60 operations, a root and divisions among them.
const FORM: u32 = 100;
/// Ten rays, each along a hundred surfaces.
const RAYS: u32 = 10_000;

type Vector = [f64; 3];

fn dot(a: Vector, b: Vector) -> f64 {
    (0..3).map(|axis| a[axis] * b[axis]).sum()
}

/// A room of the size 1.
#[derive(Clone, Copy)]
struct Room {
    side: usize,
}

impl Room {
    fn patches(self) -> usize {
        6 * self.side * self.side
    }

    fn wall(self, patch: usize) -> usize {
        patch / (self.side * self.side)
    }

    /// The middle of the ceiling.
    fn emits(self, patch: usize) -> u32 {
        let middle = self.side / 2;
        if patch == (5 * self.side + middle) * self.side + middle { LAMP } else { 0 }
    }

    /// Of the light that comes, half is reflected.
    fn reflects(light: u32) -> u32 {
        light / 2
    }

    /// An element's centre, and its size along a side.
    fn element(self, patch: usize, element: usize) -> (Vector, f64) {
        let (mut size, mut at) = (1.0 / self.side as f64, [patch % self.side, patch / self.side % self.side]);
        let mut quarter = |index: usize| {
            size /= 2.0;
            at = [2 * at[0] + index % 2, 2 * at[1] + index / 2];
        };
        match element {
            0 => {}
            1..=4 => quarter(element - 1),
            _ => {
                quarter((element - 5) / 4);
                quarter((element - 5) % 4);
            }
        }
        let (axis, far) = (self.wall(patch) / 2, self.wall(patch) % 2);
        let mut centre = [far as f64; 3];
        centre[(axis + 1) % 3] = (at[0] as f64 + 0.5) * size;
        centre[(axis + 2) % 3] = (at[1] as f64 + 0.5) * size;
        (centre, size)
    }

    /// Into the room.
    fn normal(self, patch: usize) -> Vector {
        let mut normal = [0.0; 3];
        normal[self.wall(patch) / 2] = if self.wall(patch).is_multiple_of(2) { 1.0 } else { -1.0 };
        normal
    }

    /// Which part of the light that could come from everywhere comes from the second element: that of a disc.
    fn form(self, to: (usize, usize), from: (usize, usize)) -> u32 {
        let ((here, _), (there, size)) = (self.element(to.0, to.1), self.element(from.0, from.1));
        let way: Vector = std::array::from_fn(|axis| there[axis] - here[axis]);
        let square = dot(way, way);
        let facing = dot(way, self.normal(to.0)) * -dot(way, self.normal(from.0)) / square;
        let area = size * size;
        (ONE * facing.max(0.0) * area / (std::f64::consts::PI * square + area)) as u32
    }

    /// The interactions of an element and those below it with another and those below it: for each its
    /// receiver and the light.
    fn refine(
        self,
        to: (usize, usize),
        from: (usize, usize),
        light: &impl Fn(usize, usize) -> u32,
        computed: &impl Fn(u32),
        found: &mut impl FnMut(usize, u32),
    ) {
        computed(FORM);
        let form = self.form(to, from);
        let carries = ((u64::from(form) * u64::from(light(from.0, from.1))) >> 20) as u32;
        let below = |element: usize| (element < 5).then(|| (1..=4).map(move |it| 4 * element + it));
        match (below(to.1), below(from.1)) {
            _ if carries <= MUCH => {}
            // Both trees in turn: the larger one, and of equals that which gives.
            (_, Some(below)) if from.1 == 0 || to.1 > 0 => {
                below.for_each(|it| self.refine(to, (from.0, it), light, computed, found));
                return;
            }
            (Some(below), _) => {
                below.for_each(|it| self.refine((to.0, it), from, light, computed, found));
                return;
            }
            _ => {}
        }
        computed(RAYS);
        if carries > 0 {
            found(to.1, carries);
        }
    }

    /// What an iteration makes of the light that came to a patch's elements: passed down, averaged up.
    fn average(self, patch: usize, came: &[u32; ELEMENTS]) -> [u32; ELEMENTS] {
        let emits = self.emits(patch);
        let mut is = [0; ELEMENTS];
        for upper in 0..4 {
            for lower in 0..4 {
                let light = came[0] + came[1 + upper] + came[5 + 4 * upper + lower];
                is[5 + 4 * upper + lower] = emits + Self::reflects(light);
            }
            is[1 + upper] = is[5 + 4 * upper..][..4].iter().sum::<u32>() / 4;
        }
        is[0] = is[1..5].iter().sum::<u32>() / 4;
        is
    }

    /// Those of an iteration's first part.
    fn pairs(self) -> impl Iterator<Item = (usize, usize)> + Clone {
        let all = 0..self.patches();
        let see = move |to, from| self.wall(to) != self.wall(from);
        all.clone().flat_map(move |to| all.clone().filter(move |&from| see(to, from)).map(move |it| (to, it)))
    }

    fn start(self) -> Vec<u32> {
        (0..self.patches()).flat_map(|patch| [self.emits(patch); ELEMENTS]).collect()
    }
}

pub(crate) fn tasks(side: u32) -> u64 {
    let room = Room { side: side as usize };
    u64::from(ITERATIONS) * (room.pairs().count() + room.patches()) as u64
}

fn alone(room: Room, iterations: u32) -> Vec<u32> {
    let mut light = room.start();
    for _ in 0..iterations {
        let mut came = vec![[0; ELEMENTS]; room.patches()];
        for (to, from) in room.pairs() {
            let of = |patch: usize, element: usize| light[patch * ELEMENTS + element];
            room.refine((to, 0), (from, 0), &of, &|_| {}, &mut |at, light| came[to][at] += light);
        }
        light = came.iter().enumerate().flat_map(|(patch, came)| room.average(patch, came)).collect();
    }
    light
}

pub(crate) fn expected(side: u32) -> u32 {
    digest(alone(Room { side: side as usize }, ITERATIONS).into_iter())
}

/// Where a queue's next task is, and where its last one ends; behind them the tasks.
const BEGIN: usize = 0;
const END: usize = 1;
const TASKS: usize = 2;
/// Of the state: tasks of this part that are not done; parts to come.
const LEFT: usize = 0;
const PARTS: usize = 1;

struct Radiosity<H: Host> {
    room: Room,
    /// Of each element.
    light: H::Shared<Word<H>>,
    /// In this iteration; under the patch's lock.
    came: H::Shared<Word<H>>,
    /// Each under its lock.
    queues: Vec<H::Shared<Word<H>>>,
    /// Under the last lock.
    state: H::Shared<Word<H>>,
}

impl<H: Host> Clone for Radiosity<H> {
    fn clone(&self) -> Self {
        let Self { room, light, came, queues, state } = self;
        let (light, came, state) = (light.clone(), came.clone(), state.clone());
        Self { room: *room, light, came, queues: queues.clone(), state }
    }
}

/// The queues' locks come first, then the patches', then the state's.
pub(crate) fn load<H: Host, L: RawMutex<H::Platform> + 'static>(
    host: &mut H,
    threads: u32,
    side: u32,
) -> Digest {
    let room = Room { side: side as usize };
    let patches = room.patches();
    let room_for = TASKS + patches.div_ceil(threads as usize) * patches;
    let shared = Radiosity::<H> {
        room,
        light: host.share(words::<H>(room.start().into_iter())),
        came: host.share(words::<H>(std::iter::repeat_n(0, patches * ELEMENTS))),
        queues: (0..threads).map(|_| host.share(words::<H>(std::iter::repeat_n(0, room_for)))).collect(),
        // One task, which is nobody's: the first thread's start.
        state: host.share(words::<H>([1, 2 * ITERATIONS].into_iter())),
    };
    let locks = threads as usize + patches + 1;
    for (index, locked) in Locked::<H, L>::share(host, locks, threads).into_iter().enumerate() {
        let shared = shared.clone();
        host.spawn(move || shared.work(&locked, index));
    }
    digest_of::<H>(shared.light)
}

impl<H: Host> Radiosity<H> {
    fn work<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>, index: usize) {
        if index == 0 {
            self.ended(locked);
        }
        loop {
            if self.state[LEFT].load(Relaxed) == 0 && self.state[PARTS].load(Relaxed) == 0 {
                return;
            }
            let Some(task) = self.take(locked, index) else {
                H::Platform::pause();
                continue;
            };
            let patches = self.room.patches();
            match (task as usize / patches, task as usize % patches) {
                (to, from) if to < patches => self.gather(locked, to, from),
                (_, patch) => self.average(patch),
            }
            H::done(1);
            self.ended(locked);
        }
    }

    /// A task of the own queue, or one that is stolen from the end of another.
    fn take<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>, index: usize) -> Option<u32> {
        let threads = self.queues.len();
        (0..threads).find_map(|next| {
            let at = (index + next) % threads;
            let queue = &self.queues[at];
            // A look without the lock.
            if queue[BEGIN].load(Relaxed) == queue[END].load(Relaxed) {
                return None;
            }
            locked.with(at, || {
                let (begin, end) = (queue[BEGIN].load(Relaxed), queue[END].load(Relaxed));
                if begin == end {
                    return None;
                }
                let taken = if next == 0 {
                    queue[BEGIN].store(begin + 1, Relaxed);
                    begin
                } else {
                    queue[END].store(end - 1, Relaxed);
                    end - 1
                };
                Some(queue[TASKS + taken as usize].load(Relaxed))
            })
        })
    }

    fn gather<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>, to: usize, from: usize) {
        let light = |patch: usize, element: usize| self.light[patch * ELEMENTS + element].load(Relaxed);
        self.room.refine((to, 0), (from, 0), &light, &|it| H::computed(it), &mut |element, light| {
            let came = &self.came[to * ELEMENTS + element];
            locked.with(self.queues.len() + to, || came.store(came.load(Relaxed) + light, Relaxed));
        });
    }

    fn average(&self, patch: usize) {
        let elements = patch * ELEMENTS..(patch + 1) * ELEMENTS;
        let (light, came) = (&self.light[elements.clone()], &self.came[elements]);
        let is = self.room.average(patch, &std::array::from_fn(|element| came[element].load(Relaxed)));
        for (element, value) in is.into_iter().enumerate() {
            light[element].store(value, Relaxed);
            came[element].store(0, Relaxed);
        }
        H::computed(4 * ELEMENTS as u32);
    }

    /// A task is done; who does the last one puts the next part's into the queues. What they did is seen by
    /// whoever takes those, through the state's lock and then the queue's.
    fn ended<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>) {
        let (patches, threads) = (self.room.patches(), self.queues.len());
        let next = locked.with(threads + patches, || {
            let left = self.state[LEFT].load(Relaxed) - 1;
            let parts = self.state[PARTS].load(Relaxed);
            if left > 0 || parts == 0 {
                self.state[LEFT].store(left, Relaxed);
                return None;
            }
            let pairs = parts.is_multiple_of(2);
            let tasks = if pairs { self.room.pairs().count() } else { patches };
            self.state[LEFT].store(tasks as u32, Relaxed);
            self.state[PARTS].store(parts - 1, Relaxed);
            Some(pairs)
        });
        match next {
            None => {}
            Some(true) => self.fill(locked, self.room.pairs().map(|(to, from)| (to, to * patches + from))),
            Some(false) => self.fill(locked, (0..patches).map(|it| (it, patches * patches + it))),
        }
    }

    /// Tasks, each with its patch: to the queues by turns.
    fn fill<L: RawMutex<H::Platform>>(
        &self,
        locked: &Locked<H, L>,
        tasks: impl Iterator<Item = (usize, usize)> + Clone,
    ) {
        for (at, queue) in self.queues.iter().enumerate() {
            let own = tasks.clone().filter(|(patch, _)| patch % self.queues.len() == at);
            locked.with(at, || {
                let mut end = 0;
                for (_, task) in own {
                    queue[TASKS + end as usize].store(task as u32, Relaxed);
                    end += 1;
                }
                queue[BEGIN].store(0, Relaxed);
                queue[END].store(end, Relaxed);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(light: &[u32]) -> f64 {
        light.iter().map(|&it| f64::from(it)).sum()
    }

    #[test]
    fn the_light_converges() {
        for side in [1, 3] {
            let room = Room { side };
            let all: Vec<f64> = (0..=2 * ITERATIONS).map(|it| sum(&alone(room, it))).collect();
            let (done, later) = (all[ITERATIONS as usize], all[2 * ITERATIONS as usize]);
            assert!(done > all[0] && (done / later - 1.0).abs() < 0.01, "{side}: {all:?}");
        }
    }

    /// What comes from everywhere to a patch in the middle of a wall is all that can come.
    #[test]
    fn form_factors_add_up() {
        let room = Room { side: 5 };
        let to = 12;
        let from = |patch| (0..16).map(move |it| (patch, 5 + it));
        let seen = (0..room.patches()).filter(|&patch| room.wall(patch) != 0).flat_map(from);
        let sum: f64 = seen.map(|from| f64::from(room.form((to, 0), from)) / ONE).sum();
        assert!((sum - 1.0).abs() < 0.05, "{sum}");
    }

    /// The room is the same from the left and from the right of the lamp.
    #[test]
    fn the_light_is_as_symmetrical_as_the_room() {
        let room = Room { side: 3 };
        let light = alone(room, ITERATIONS);
        let of = |wall: usize| sum(&light[wall * 9 * ELEMENTS..][..9 * ELEMENTS]);
        let walls = [0, 1, 2, 3].map(of);
        assert!(walls.iter().all(|it| (it / walls[0] - 1.0).abs() < 0.02), "{walls:?}");
    }
}
