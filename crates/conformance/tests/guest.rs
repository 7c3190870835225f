// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the locks gain from a kernel that honours their wishes. Counts, never times; by `vm/test`, in a
//! guest whose kernel has what the test's name says.

use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use abi::{Arena, Thread};
use bpf::Observer;
use linux::Linux;
use linux::slice::{self, Support};
use sync::mutex::{Native, RawMutex};
use sync::wait::{Preemptable, Preemption, Unpreemptable};

/// Runs this test in a process of its own that starts with these tunables; there `body` runs.
fn with_tunables(name: &str, tunables: &str, body: impl FnOnce()) {
    const INSIDE: &str = "WAKEFUL_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", name, "--nocapture", "--include-ignored"]);
    let output = command.env(INSIDE, "1").env(slice::TUNABLES, tunables).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    println!("{out}");
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

const OURS: &str = "glibc.pthread.rseq=0";

/// A field of debugfs `rseq/stats`.
fn stat(name: &str) -> u64 {
    let text = std::fs::read_to_string("/sys/kernel/debug/rseq/stats").expect("debugfs with rseq/stats");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse().unwrap()
}

fn block(arena: &'static Arena, index: usize) -> &'static Thread {
    // SAFETY: the blocks follow the header, and the arena is never unmapped.
    unsafe { &*std::ptr::from_ref(arena).add(1).cast::<Thread>().add(index) }
}

fn processors() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// Loops for about this long on an emulated processor.
fn work(turns: u32) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// What happened to the sections of one run.
#[derive(Debug)]
struct Run {
    /// Sections in which the holder was preempted, per million.
    preempted: f64,
    /// Extensions granted and, of these, given back in time.
    granted: u64,
    yielded: u64,
}

/// Sections under a lock, 4 threads a processor. The observer, which sees each switch, says whether the
/// holder was preempted in one.
fn sections<N: Preemption>(each: u64) -> Run {
    let observer = Observer::load().unwrap();
    let (arena, enrolment) = (observer.arena().unwrap(), observer.enrolment());
    let lock: Native<Linux, N> = RawMutex::new();
    let (inside, preempted) = (AtomicBool::new(false), AtomicU64::new(0));
    let threads = 4 * processors();
    let (granted, yielded) = (stat("sgrant"), stat("syield"));
    std::thread::scope(|scope| {
        for index in 1..=threads {
            let (lock, inside, preempted) = (&lock, &inside, &preempted);
            scope.spawn(move || {
                let block = block(arena, index);
                block.lease.store(1, Relaxed);
                assert!(enrolment.attach(index as u32, 1));
                for _ in 0..each {
                    // SAFETY: released below, by this thread.
                    unsafe { lock.lock(&()) };
                    let before = block.preemptions.load(Relaxed);
                    assert!(!inside.swap(true, Relaxed), "two are inside");
                    work(500);
                    inside.store(false, Relaxed);
                    preempted.fetch_add(u64::from(block.preemptions.load(Relaxed) != before), Relaxed);
                    // SAFETY: taken above.
                    unsafe { lock.unlock(&()) };
                    work(500);
                }
            });
        }
    });
    let total = each * threads as u64;
    let run = Run {
        preempted: preempted.load(Relaxed) as f64 * 1e6 / total as f64,
        granted: stat("sgrant") - granted,
        yielded: stat("syield") - yielded,
    };
    println!("{}: {total} sections, {run:?}", if N::WISHES { "native-np" } else { "native" });
    run
}

#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_slice_holders_are_preempted_less() {
    with_tunables("guest_slice_holders_are_preempted_less", OURS, || {
        // The longest that there is: emulated processors are slow.
        std::fs::write("/sys/kernel/debug/rseq/slice_ext_nsec", "50000").unwrap();
        assert_eq!(slice::support(), Support::Ready);
        let each = 100_000;
        let (without, with) = (sections::<Preemptable>(each), sections::<Unpreemptable>(each));
        assert_eq!(without.granted, 0, "who does not wish is granted nothing");
        assert!(with.granted > 0 && with.yielded > 0, "{with:?}");
        assert!(without.preempted >= 10.0 * with.preempted, "{without:?} {with:?}");
    });
}

#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_slice_is_honest_about_the_c_library() {
    const NAME: &str = "guest_slice_is_honest_about_the_c_library";
    // SAFETY: glibc's version is a C string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().unwrap();
    let (_, minor) = version.split_once('.').unwrap();
    let short = (35..41).contains(&minor.parse::<u32>().unwrap());
    with_tunables(NAME, "", || {
        assert_eq!(slice::support(), if short { Support::TooShort } else { Support::Ready });
        // Wishing changes nothing then, and does no harm.
        slice::request();
        assert!(!slice::owes());
        slice::withdraw();
    });
}

#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_slice_leaves_the_registration_of_another_library_alone() {
    with_tunables("guest_slice_leaves_the_registration_of_another_library_alone", OURS, || {
        #[repr(align(64))]
        struct Area([u32; 16]);
        let mut area = Area([0; 16]);
        let register = |area: &mut Area, flags: u32| {
            // SAFETY: the area outlives the registration, which ends below.
            unsafe { libc::syscall(libc::SYS_rseq, area.0.as_mut_ptr(), 64, flags, 0x1234_5678) }
        };
        assert_eq!(register(&mut area, 0), 0);
        assert_eq!(slice::support(), Support::Taken);
        slice::request();
        slice::withdraw();
        assert_eq!(area.0[7], 0, "its control word is its own");
        assert_eq!(register(&mut area, 1), 0, "the registration is still there, and ends");
    });
}
