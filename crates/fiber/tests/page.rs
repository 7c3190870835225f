// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a runtime says of itself is in a file of the process, and becomes true within a look or two.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fiber::{Config, Runtime, thread};
use linux::fibers::{MAGIC, Page};

/// The pages of this process, as another process finds them.
fn pages() -> Vec<Page> {
    let page = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let name = fs::read_link(&path).ok()?;
        if !name.to_str()?.starts_with("/memfd:wakeful-fibers") {
            return None;
        }
        let mut bytes = [0; size_of::<Page>()];
        fs::File::open(path).ok()?.read_exact_at(&mut bytes, 0).ok()?;
        // SAFETY: any bytes are a valid page.
        Some(unsafe { core::mem::transmute::<[u8; size_of::<Page>()], Page>(bytes) })
    };
    fs::read_dir("/proc/self/fd").unwrap().filter_map(page).collect()
}

#[test]
fn the_page_counts_fibers() {
    let one = Runtime::start(Config { processors: Some(1), ..Config::default() }).unwrap();
    let spawn = |_| thread::Builder::new().runtime(one).spawn(thread::park).unwrap();
    let fibers: Vec<_> = (0..7).map(spawn).collect();
    let until = |what: &str, is_true: fn(&Page) -> bool| {
        let began = Instant::now();
        while !pages().iter().any(is_true) {
            assert!(began.elapsed() < Duration::from_secs(60), "60 s, and not yet: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("7 fibers wait", |page| page.fibers.load(Relaxed) == 7 && page.waiting.load(Relaxed) == 7);
    let page = pages().pop().unwrap();
    assert_eq!((page.magic.load(Relaxed), page.process.load(Relaxed)), (MAGIC, std::process::id()));
    assert_eq!(page.seats.load(Relaxed), 1);
    for fiber in &fibers {
        fiber.thread().unpark();
    }
    for fiber in fibers {
        fiber.join().unwrap();
    }
    until("all fibers have ended", |page| page.fibers.load(Relaxed) == 0);
}
