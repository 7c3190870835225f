// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carriers that wait behind another one are sent to where low fibers run. Their affinity stays what it was.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use fiber::{Priority, Runtime, thread};

type Mask = [u64; 16];

/// Of a thread, or with 0 of the calling one.
fn mask(tid: i32) -> Mask {
    let mut mask = [0; 16];
    // SAFETY: the kernel writes at most the size it is told.
    let size =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr()) };
    assert!(size > 0, "more processors than this test knows");
    mask
}

fn set_mask(tid: i32, mask: &Mask) {
    // SAFETY: the kernel reads the size it is told.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size_of_val(mask), mask.as_ptr()) };
    assert_eq!(result, 0);
}

fn processors(mask: &Mask) -> Vec<u32> {
    (0..1024).filter(|&processor| mask[processor as usize / 64] >> (processor % 64) & 1 == 1).collect()
}

/// The mask of a child that was forked by a fiber, as it sees it; and of a command's.
fn childrens() -> [Mask; 2] {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the child calls the kernel only, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mask = mask(0);
        let bytes: Vec<u8> = mask.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let _ = std::io::Write::write_all(&mut writer, &bytes);
        // SAFETY: nothing to clean up.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut forked = [0; 16];
    for word in &mut forked {
        let mut bytes = [0; 8];
        std::io::Read::read_exact(&mut reader, &mut bytes).unwrap();
        *word = u64::from_ne_bytes(bytes);
    }
    // SAFETY: our own child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    let status = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:")).unwrap().trim().to_owned();
    let mut command = [0; 16];
    for (at, word) in list.split(',').rev().enumerate().take(32) {
        command[at / 2] |= u64::from_str_radix(word, 16).unwrap() << (32 * (at % 2));
    }
    [forked, command]
}

/// Low fibers that never wait, one a processor, until told.
fn start_low(count: usize, stop: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<()>> {
    let spinning = Arc::new(AtomicU32::new(0));
    let spin = |_| {
        let (stop, spinning) = (stop.clone(), spinning.clone());
        let body = move || {
            spinning.fetch_add(1, Relaxed);
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        };
        thread::Builder::new().priority(Priority::Low).spawn(body).unwrap()
    };
    let low = (0..count).map(spin).collect();
    while spinning.load(Relaxed) < count as u32 {
        std::thread::sleep(Duration::from_millis(1));
    }
    low
}

/// Each time it is told: is its affinity the program's, and that of what it starts? Then it computes.
fn usual(told: &AtomicU64, stop: &AtomicBool, all: Mask) {
    let mut rounds = 0;
    while !stop.load(Relaxed) {
        if told.swap(0, AcqRel) == 0 {
            thread::park();
            continue;
        }
        rounds += 1;
        assert_eq!(mask(0), all, "round {rounds}");
        if rounds % 64 == 1 {
            assert_eq!(childrens(), [all; 2]);
        }
        let until = Instant::now() + Duration::from_micros(50);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

/// Fibers that are woken together, again and again, while low ones have all processors: until carriers were
/// steered, or for a second.
fn for_a_second(runtime: &Runtime, processors: usize, all: Mask) {
    let stop = Arc::new(AtomicBool::new(false));
    let low = start_low(processors, &stop);
    let told: Vec<_> = (0..=processors).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let start = |told: &Arc<AtomicU64>| {
        let (told, stop) = (told.clone(), stop.clone());
        thread::spawn(move || usual(&told, &stop, all))
    };
    let fibers: Vec<_> = told.iter().map(start).collect();
    let wake = |rounds: u32| {
        for round in 0..rounds {
            std::thread::sleep(Duration::from_micros(500 + u64::from(round % 7) * 100));
            for (told, fiber) in told.iter().zip(&fibers) {
                told.store(1, Release);
                fiber.thread().unpark();
            }
        }
    };
    let begin = Instant::now();
    while runtime.carriers_steered() < 20 && begin.elapsed() < Duration::from_secs(1) {
        wake(20);
    }
    stop.store(true, Relaxed);
    wake(1);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    low.into_iter().for_each(|fiber| fiber.join().unwrap());
}

/// The carriers' threads.
fn carriers() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let tids = tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap());
    let name = |tid: &i32| std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
    tids.filter(|tid| name(tid).starts_with("carrier")).collect()
}

/// Carriers are steered, and have their affinity again. Then somebody changes it from outside.
#[test]
fn affinity_stays_what_others_made_it() {
    let all = mask(0);
    let numbers = processors(&all);
    if numbers.len() < 2 || linux::slice::processor_word().is_none() {
        return eprintln!("skipped: one processor, or no word of the kernel where a thread is");
    }
    let runtime = Runtime::default().unwrap();
    let begin = Instant::now();
    // Fibers that all began with one carrier stay there, and it waits behind nobody: then others begin.
    // Beside eight busy processes it took 1 to 12 s, 12 times.
    while runtime.carriers_steered() < 20 && begin.elapsed() < Duration::from_secs(60) {
        for_a_second(runtime, numbers.len(), all);
    }
    let steered = runtime.carriers_steered();
    assert!(steered >= 5, "{steered} were steered in a minute");
    let mut one = [0; 16];
    one[numbers[1] as usize / 64] = 1 << (numbers[1] % 64);
    for tid in carriers() {
        // It may be on its way to its bed.
        while mask(tid) != all {
            std::thread::sleep(Duration::from_millis(1));
            assert!(begin.elapsed() < Duration::from_secs(90), "a carrier that sleeps is bound");
        }
        set_mask(tid, &one);
    }
    let seen = thread::spawn(|| mask(0)).join().unwrap();
    assert_eq!(processors(&seen), [numbers[1]], "what somebody outside has set stays");
}
