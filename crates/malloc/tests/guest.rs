// SPDX-License-Identifier: MIT OR Apache-2.0
//! An unmodified program's memory on a machine with two nodes, in a guest: processors 0 and 1 on node 0, 2
//! and 3 on node 1 (`vm/test`). The program is this one, which knows nothing of the library.

use std::process::Command;
use std::sync::LazyLock;
use std::thread;

use linux::Linux;
use numa::{Moved, look};
use sync::delegate::{RawDelegate, Rcl};

const NUMA: &str = linux::environment::NUMA.name();
const INSIDE: &str = "WAKEFUL_TEST_INSIDE";

/// Runs this test in a process of its own, which has the library; there `body` runs.
fn preloaded(name: &str, asked: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let library = deps.parent().unwrap().join("libwakeful_malloc.so");
    assert!(library.exists(), "{} is not there: vm/test builds it", library.display());
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", name, "--nocapture", "--include-ignored"]).env(INSIDE, "1");
    let output = command.env(NUMA, asked).env("LD_PRELOAD", library).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{error}");
}

fn pin(processor: usize) {
    // SAFETY: a set that lives.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// All pages of it are on a node.
#[track_caller]
fn is_on(node: u32, vector: &[u8]) {
    let found = look(vector.as_ptr(), vector.len(), node);
    assert_eq!(found, Moved { there: found.there, ..Moved::default() }, "node {node}");
}

/// Touched by the thread that calls.
fn vector() -> Vec<u8> {
    vec![1; 2 << 20]
}

#[test]
#[ignore = "needs two nodes: vm/test"]
fn guest_numa_a_program_has_the_node_that_it_is_given() {
    preloaded("guest_numa_a_program_has_the_node_that_it_is_given", "1", || {
        pin(0);
        is_on(1, &vector());
    });
}

#[test]
#[ignore = "needs two nodes: vm/test"]
fn guest_numa_a_program_follows_its_servers() {
    static LOCK: LazyLock<Rcl<Linux>> = LazyLock::new(Rcl::new);
    preloaded("guest_numa_a_program_follows_its_servers", "servers", || {
        pin(0);
        let before = vector();
        is_on(0, &before);
        let server = thread::spawn(|| {
            pin(3);
            assert!(LOCK.serve());
        });
        // SAFETY: a section that does nothing. When it has run, the server has said where it is.
        unsafe { LOCK.run(|_| {}, std::ptr::null_mut()) };
        is_on(1, &before);
        is_on(1, &vector());
        LOCK.close();
        server.join().unwrap();
        is_on(0, &vector());
    });
}
