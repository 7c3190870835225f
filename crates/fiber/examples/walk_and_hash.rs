// SPDX-License-Identifier: MIT OR Apache-2.0
//! Walks a directory and hashes each file in it, in plain blocking code: a fiber or a thread for each
//! directory and each file, or one after the other. All three say the same.
//!
//! ```sh
//! cargo run --release -p wakeful-fiber --example walk_and_hash -- fibers /usr/share
//! ```

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fiber::sync::Semaphore;
use fiber::thread;

/// BOUND: files open at a time, well below what a process may have.
static OPEN: Semaphore = Semaphore::new(256);

/// What there is below a path. The sum of the hashes does not depend on their order.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    files: u64,
    bytes: u64,
    hash: u64,
}

impl Found {
    fn and(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
            hash: self.hash.wrapping_add(other.hash),
        }
    }
}

fn hash(path: &Path) -> io::Result<Found> {
    OPEN.acquire();
    let hashed = (|| {
        let (mut file, mut hasher, mut bytes) = (File::open(path)?, DefaultHasher::new(), 0);
        path.hash(&mut hasher);
        let mut buffer = vec![0; 64 << 10];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(Found { files: 1, bytes, hash: hasher.finish() }),
                read => {
                    hasher.write(&buffer[..read]);
                    bytes += read as u64;
                }
            }
        }
    })();
    OPEN.release();
    hashed
}

/// How each part of the work is done.
#[derive(Clone, Copy)]
enum Way {
    Fibers,
    Threads,
    One,
}

impl Way {
    fn all(self, parts: Vec<PathBuf>) -> Found {
        let both = |sum: Found, found| sum.and(found);
        match self {
            Self::One => parts.iter().map(|path| self.walk(path)).fold(Found::default(), both),
            Self::Fibers => {
                let start = |path: PathBuf| thread::spawn(move || self.walk(&path));
                let started: Vec<_> = parts.into_iter().map(start).collect();
                started.into_iter().map(|it| it.join().expect("no panic")).fold(Found::default(), both)
            }
            Self::Threads => {
                let start = |path: PathBuf| std::thread::spawn(move || self.walk(&path));
                let started: Vec<_> = parts.into_iter().map(start).collect();
                started.into_iter().map(|it| it.join().expect("no panic")).fold(Found::default(), both)
            }
        }
    }

    /// What cannot be read counts as nothing.
    fn walk(self, path: &Path) -> Found {
        match fs::symlink_metadata(path) {
            Ok(about) if about.is_dir() => {
                let entries = fs::read_dir(path).into_iter().flatten().flatten();
                self.all(entries.map(|entry| entry.path()).collect())
            }
            Ok(about) if about.is_file() => hash(path).unwrap_or_default(),
            _ => Found::default(),
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let way = match arguments.next().as_deref() {
        Some("threads") => Way::Threads,
        Some("one") => Way::One,
        _ => Way::Fibers,
    };
    let path = PathBuf::from(arguments.next().unwrap_or_else(|| ".".into()));
    let begin = Instant::now();
    let found = way.all(vec![path]);
    println!("{} files, {} bytes, {:016x}", found.files, found.bytes, found.hash);
    eprintln!("{} ms", begin.elapsed().as_millis());
}
