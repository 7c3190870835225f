// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application of the paper's evaluation: N bodies by the method of Barnes and Hut (Nature 324, 1986).
//! The bodies lie in a file, read through a cache of the program's own that holds a part of them. A miss
//! blocks in the kernel. Each block of 64 bodies has a fiber, which is stolen, blocked and run as others are.
//!
//! `bar` starts copies of this program: one copy alone, two at once, and one beside two busy processes with
//! as much work. The ratio is the time of all one after the other by the time of all at once.
//!
//! ```sh
//! cargo run --release -p wakeful-fiber --example nbody -- run 8192 20 50     # bodies, steps, % in memory
//! cargo run --release -p wakeful-fiber --example nbody -- bar 9 8192 20 50   # rounds before these
//! ```

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::array::from_fn;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Instant;

use fiber::sync::Mutex;
use fiber::thread;

/// Bodies of a block: a page.
const EACH: usize = 64;
const PAGE: usize = EACH * size_of::<Body>();
const OPENING: f64 = 0.5;
const STEP: f64 = 1e-3;
const SOFTENING: f64 = 1e-4;
/// Cells are not cut in two for ever where bodies meet.
const DEEPEST: u32 = 40;

type Point = [f64; 3];

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Body {
    at: Point,
    speed: Point,
    mass: f64,
    pad: f64,
}

/// A page of bodies, as the file holds it. Reads past the kernel's own cache must be aligned.
struct Block(*mut Body);

// SAFETY: it owns its memory.
unsafe impl Send for Block {}
// SAFETY: what is shared is read only.
unsafe impl Sync for Block {}

impl Block {
    const LAYOUT: Layout = match Layout::from_size_align(PAGE, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("a page"),
    };

    fn new() -> Self {
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc_zeroed(Self::LAYOUT) };
        assert!(!memory.is_null());
        Self(memory.cast())
    }

    fn bodies(&self) -> &[Body] {
        // SAFETY: as many, of zeros at least.
        unsafe { std::slice::from_raw_parts(self.0, EACH) }
    }

    fn bodies_mut(&mut self) -> &mut [Body] {
        // SAFETY: as above, and nobody else's.
        unsafe { std::slice::from_raw_parts_mut(self.0, EACH) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: as above; bodies have no gaps.
        unsafe { std::slice::from_raw_parts(self.0.cast(), PAGE) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; any bytes are bodies.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), PAGE) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made with this layout.
        unsafe { dealloc(self.0.cast(), Self::LAYOUT) };
    }
}

/// Blocks in memory, their numbers, and the state of a generator.
#[derive(Default)]
struct Held {
    blocks: HashMap<usize, Arc<Block>>,
    numbers: Vec<usize>,
    random: u64,
}

/// The buffer cache. Who misses reads without the lock; what is written goes to the file at once.
struct Cache {
    file: File,
    held: Mutex<Held>,
    most: usize,
    misses: AtomicU64,
}

impl Cache {
    fn get(&self, number: usize) -> Arc<Block> {
        if let Some(block) = self.held.lock().blocks.get(&number) {
            return block.clone();
        }
        self.misses.fetch_add(1, Relaxed);
        let mut block = Block::new();
        self.file.read_exact_at(block.bytes_mut(), (number * PAGE) as u64).expect("it was written");
        let block = Arc::new(block);
        self.keep(number, block.clone());
        block
    }

    fn put(&self, number: usize, block: Block) {
        self.file.write_all_at(block.bytes(), (number * PAGE) as u64).expect("room on the disk");
        self.keep(number, Arc::new(block));
    }

    /// In the place of a random one, if there are as many as there may be.
    fn keep(&self, number: usize, block: Arc<Block>) {
        let held = &mut *self.held.lock();
        if held.blocks.insert(number, block).is_some() {
            return;
        }
        held.numbers.push(number);
        if held.numbers.len() > self.most {
            held.random = held.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let victim = (held.random >> 33) as usize % held.numbers.len();
            let victim = held.numbers.swap_remove(victim);
            held.blocks.remove(&victim);
        }
    }
}

/// A cube of space.
struct Cell {
    middle: Point,
    half: f64,
    mass: f64,
    /// Where its mass is; while it is filled, the sum of places by mass.
    centre: Point,
    children: [u32; 8],
    /// Is it one body?
    leaf: bool,
}

struct Tree(Vec<Cell>);

impl Tree {
    fn cell(middle: Point, half: f64) -> Cell {
        Cell { middle, half, mass: 0.0, centre: [0.0; 3], children: [0; 8], leaf: true }
    }

    fn build(bodies: &[(Point, f64)]) -> Self {
        let most = bodies.iter().flat_map(|(at, _)| at).fold(0.0f64, |most, x| most.max(x.abs()));
        let mut tree = Self(vec![Self::cell([0.0; 3], most * 1.001)]);
        bodies.iter().for_each(|&(at, mass)| tree.insert(at, mass));
        for cell in &mut tree.0 {
            cell.centre = cell.centre.map(|x| x / cell.mass);
        }
        tree
    }

    /// The child of `cell` that holds this place, made if there is none.
    fn child(&mut self, cell: usize, at: Point) -> usize {
        let Cell { middle, half, .. } = self.0[cell];
        let which = (0..3).map(|axis| usize::from(at[axis] > middle[axis]) << axis).sum::<usize>();
        if self.0[cell].children[which] == 0 {
            let half = half / 2.0;
            let side = |axis: usize| if which >> axis & 1 == 1 { half } else { -half };
            self.0[cell].children[which] = self.0.len() as u32;
            self.0.push(Self::cell(from_fn(|axis| middle[axis] + side(axis)), half));
        }
        self.0[cell].children[which] as usize
    }

    fn insert(&mut self, at: Point, mass: f64) {
        let (mut cell, mut depth) = (0, 0);
        loop {
            let it = &mut self.0[cell];
            let (is_new, was_leaf) = (it.mass == 0.0, it.leaf && it.mass > 0.0);
            let (old, old_mass) = (it.centre.map(|x| x / it.mass), it.mass);
            it.mass += mass;
            it.centre = from_fn(|axis| it.centre[axis] + at[axis] * mass);
            if is_new || depth == DEEPEST {
                return;
            }
            it.leaf = false;
            if was_leaf {
                // The body that was alone here moves down.
                let child = self.child(cell, old);
                self.0[child].mass = old_mass;
                self.0[child].centre = old.map(|x| x * old_mass);
            }
            cell = self.child(cell, at);
            depth += 1;
        }
    }

    fn pull(&self, at: Point) -> Point {
        let (mut sum, mut stack) = ([0.0; 3], [0u32; 8 * DEEPEST as usize]);
        let mut height = 1;
        while height > 0 {
            height -= 1;
            let cell = &self.0[stack[height] as usize];
            let way: Point = from_fn(|axis| cell.centre[axis] - at[axis]);
            let square = way.iter().map(|x| x * x).sum::<f64>() + SOFTENING;
            if cell.leaf || (2.0 * cell.half).powi(2) < OPENING * OPENING * square {
                let force = cell.mass / (square * square.sqrt());
                sum = from_fn(|axis| sum[axis] + way[axis] * force);
            } else {
                for &child in cell.children.iter().filter(|&&child| child != 0) {
                    stack[height] = child;
                    height += 1;
                }
            }
        }
        sum
    }
}

/// A Plummer-like ball, by a generator of our own.
fn write_bodies(cache: &Cache, blocks: usize) {
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 11) as f64 / (1u64 << 53) as f64
    };
    for number in 0..blocks {
        let mut block = Block::new();
        for body in block.bodies_mut() {
            let radius = (next().max(1e-3).powf(-2.0 / 3.0) - 0.99).powf(-0.5).min(8.0);
            let (height, turn) = (2.0 * next() - 1.0, std::f64::consts::TAU * next());
            let flat = (1.0 - height * height).sqrt();
            body.at = [radius * flat * turn.cos(), radius * flat * turn.sin(), radius * height];
            body.mass = 1.0 / (blocks * EACH) as f64;
        }
        cache.put(number, block);
    }
}

/// A fiber for each block; what they return, in the order of the blocks.
fn each<T: Send + 'static>(blocks: usize, body: impl Fn(usize) -> T + Clone + Send + 'static) -> Vec<T> {
    let start = |number| {
        let body = body.clone();
        thread::spawn(move || body(number))
    };
    let all: Vec<_> = (0..blocks).map(start).collect();
    all.into_iter().map(|fiber| fiber.join().expect("it does not panic")).collect()
}

/// Prints the seconds, a digest of where the bodies are, and the misses.
fn run(bodies: usize, steps: usize, percent: usize) {
    let blocks = bodies.div_ceil(EACH);
    let path = std::env::temp_dir().join(format!("wakeful-nbody-{}", std::process::id()));
    let open = |flags| OpenOptions::new().read(true).write(true).create(true).custom_flags(flags).open(&path);
    // A file system of memory has none of that.
    let file = open(libc::O_DIRECT).or_else(|_| open(0)).expect("a file");
    std::fs::remove_file(&path).expect("just made");
    let most = (blocks * percent / 100).max(1);
    let cache = Arc::new(Cache { file, held: Mutex::default(), most, misses: AtomicU64::new(0) });
    write_bodies(&cache, blocks);
    // SAFETY: no pointers.
    unsafe { libc::fsync(cache.file.as_raw_fd()) };
    let begin = Instant::now();
    let mut digest = 0u64;
    for _ in 0..steps {
        let ours = cache.clone();
        let places = each(blocks, move |number| {
            ours.get(number).bodies().iter().map(|body| (body.at, body.mass)).collect::<Vec<_>>()
        });
        let tree = Arc::new(Tree::build(&places.concat()));
        let ours = cache.clone();
        let digests = each(blocks, move |number| {
            let before = ours.get(number);
            let mut block = Block::new();
            for (body, old) in block.bodies_mut().iter_mut().zip(before.bodies()) {
                let pull = tree.pull(old.at);
                *body = *old;
                body.speed = from_fn(|axis| old.speed[axis] + pull[axis] * STEP);
                body.at = from_fn(|axis| old.at[axis] + body.speed[axis] * STEP);
            }
            let sum = block
                .bodies()
                .iter()
                .flat_map(|body| body.at)
                .fold(0, |sum: u64, x| sum.rotate_left(5).wrapping_add(x.to_bits()));
            ours.put(number, block);
            sum
        });
        digest = digests.into_iter().fold(digest, |digest, sum| digest.rotate_left(7) ^ sum);
    }
    println!("{} {digest:016x} {}", begin.elapsed().as_secs_f64(), cache.misses.load(Relaxed));
}

fn burn(turns: u64) {
    (0..turns).for_each(|turn| _ = black_box(turn));
    println!("0 0 0");
}

fn start(arguments: &[String]) -> Child {
    let this = std::env::current_exe().expect("a path");
    let mut command = Command::new(this);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
}

/// Seconds until all of these have ended that were started at once, and what the first one says.
fn together(all: &[&[String]]) -> (f64, String) {
    let begin = Instant::now();
    let children: Vec<_> = all.iter().map(|arguments| start(arguments)).collect();
    let said = children.into_iter().map(|child| child.wait_with_output().expect("it ends"));
    let said: Vec<_> = said.map(|output| String::from_utf8(output.stdout).expect("numbers")).collect();
    let digest = |said: &String| said.split_whitespace().nth(1).map(str::to_string).expect("three words");
    (begin.elapsed().as_secs_f64(), digest(&said[0]))
}

fn median(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let (middle, last) = (values[values.len() / 2], values[values.len() - 1]);
    format!("{middle:.3} ({:.3} to {last:.3})", values[0])
}

fn bar(rounds: usize, what: &[String]) {
    let copy = [&["run".to_string()], what].concat();
    let (alone, digest) = together(&[&copy]);
    // As long on one processor as the copy on all.
    let begin = Instant::now();
    (0..50_000_000u64).for_each(|turn| _ = black_box(turn));
    let turns = (alone / begin.elapsed().as_secs_f64() * 5e7) as u64;
    let busy = ["burn".to_string(), turns.to_string()];
    let (mut copies, mut beside, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let (one, first) = together(&[&copy]);
        let (two, second) = together(&[&copy, &copy]);
        let (load, _) = together(&[&busy, &busy]);
        let (all, third) = together(&[&copy, &busy, &busy]);
        assert!([first, second, third].iter().all(|it| *it == digest), "the same bodies");
        seconds.push(one);
        copies.push(2.0 * one / two);
        beside.push((one + load) / all);
        print!("\r{} of {rounds}", round + 1);
        std::io::stdout().flush().expect("it is read");
    }
    println!("\ralone, s                          {}", median(&mut seconds));
    println!("two copies, by one after the other {}", median(&mut copies));
    println!("beside two busy processes, by both {}", median(&mut beside));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    match arguments.first().map(String::as_str) {
        Some("run") => run(number(1, 8192), number(2, 20), number(3, 50).min(100)),
        Some("bar") => bar(number(1, 9), arguments.get(2..).unwrap_or_default()),
        Some("burn") => burn(number(1, 0) as u64),
        _ => eprintln!("usage: nbody run [bodies] [steps] [% in memory] | bar [rounds] [the same]"),
    }
}
