// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs as they come, under the scheduler, in a guest's kernel (`vm/test --long`): with it, without it, and killed while they run.
//! They must end well, and have run where the test says; never how fast.
#![cfg(feature = "bpf")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A program, and what it prints when all went well.
const PROGRAMS: [(&[&str], &str); 2] = [
    (&["kccachetest", "wicked", "-th", "16", "20000"], "\nok\n"),
    (
        &[
            "db_bench",
            "--benchmarks=fillrandom,readrandom",
            "--threads=16",
            "--num=4000",
            "--db=/tmp/wakeful-db",
        ],
        "\nreadrandom ",
    ),
];

fn wakeful(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeful"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(scheduled: bool, program: &[&str]) -> Child {
    let options: &[&str] = if scheduled { &["run", "--scheduled", "--"] } else { &["run", "--"] };
    wakeful(options).args(program).spawn().unwrap()
}

fn ended_well(program: Child, prints: &str) {
    let Output { status, stdout, stderr } = program.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && out.contains(prints), "{status}\n{out}\n{err}");
    assert!(!err.contains("wakeful"), "{err}");
}

fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The scheduler as a child, so that it can be killed.
fn start() -> Child {
    let server = wakeful(&["scheduler", "serve"]).spawn().unwrap();
    eventually("in charge", || wakeful(&["scheduler", "status"]).status().unwrap().success().then_some(()));
    server
}

/// Seconds of processor time that the scheduler has given the process; `None` if it has none such.
fn cpu_seconds(process: u32) -> Option<f64> {
    told(process, "cpu_seconds")
}

fn programs() -> Vec<serde_json::Value> {
    let output = wakeful(&["scheduler", "status", "--json"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    status["programs"].as_array().unwrap().clone()
}

/// What the scheduler tells of the process.
fn told(process: u32, field: &str) -> Option<f64> {
    programs().iter().find(|program| program["process"] == process)?[field].as_f64()
}

/// The sum of what the scheduler tells of each process.
fn told_of_all(field: &str) -> f64 {
    programs().iter().filter_map(|program| program[field].as_f64()).sum()
}

fn warnings() -> Vec<String> {
    let log = Command::new("dmesg").output().unwrap();
    let bad = ["WARNING:", "BUG:", "Oops", "Call Trace", "hung task", "soft lockup"];
    let text = String::from_utf8_lossy(&log.stdout).into_owned();
    text.lines().filter(|line| bad.iter().any(|word| line.contains(word))).map(String::from).collect()
}

#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_programs_end_well_with_without_and_when_it_is_killed() {
    for (program, prints) in PROGRAMS {
        let name = program[0];
        ended_well(run(false, program), prints);
        println!("{name}: ended well without the scheduler");

        let mut server = start();
        let child = run(true, program);
        let had = eventually("taken in", || cpu_seconds(child.id()).filter(|&had| had > 0.1));
        ended_well(child, prints);
        println!("{name}: ended well with it; had {had} s of it in the beginning");

        let mut child = run(true, program);
        eventually("half done", || cpu_seconds(child.id()).filter(|&now| now > 0.1));
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it had ended before; make it longer");
        eventually("the kernel takes over", || {
            (fs::read_to_string("/sys/kernel/sched_ext/state").unwrap().trim() == "disabled").then_some(())
        });
        ended_well(child, prints);
        println!("{name}: ended well when the scheduler was killed");
    }
    assert_eq!(warnings(), [""; 0]);
}

/// Threads that share a mutex, and know of nothing: four for each of two processors. Before they begin, a
/// reader-writer lock is taken, which `--scheduled` makes one that registers its thread at once.
const SECTIONS: &str = "#include <pthread.h>\n#include <stdio.h>\n#include <time.h>\n\
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;\nstatic pthread_rwlock_t r;\n\
static volatile unsigned long inside, end;\n\
static void work(void) { for (volatile int i = 0; i < 2000; i++); }\n\
static void *run(void *p) { while (time(0) < end) for (int i = 0; i < 50; i++) {\n\
pthread_mutex_lock(&m); inside++; work(); pthread_mutex_unlock(&m); work(); } return p; }\n\
int main(void) { pthread_t t[8]; end = time(0) + 20;\n\
pthread_rwlock_wrlock(&r); pthread_rwlock_unlock(&r);\n\
for (int i = 0; i < 8; i++) pthread_create(&t[i], 0, run, 0);\n\
for (int i = 0; i < 8; i++) pthread_join(t[i], 0);\n\
puts(\"\\nall well\"); }";

/// The default mutex of a program as it comes tells the scheduler of its holders: preemptions in a section
/// are put off.
#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_sched_hears_of_an_unmodified_program() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("sections.c"), folder.path().join("sections"));
    fs::write(&source, SECTIONS).unwrap();
    let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).status();
    assert!(built.expect("a C compiler, as linking Rust needs one").success());
    let mut server = start();
    let program = program.to_str().unwrap();
    // As it is, as what a shell becomes, and as what one starts.
    let (becomes, starts) = (format!("exec {program}"), format!("{program}; true"));
    for command in [&[program][..], &["sh", "-c", &becomes], &["sh", "-c", &starts]] {
        let child = run(true, command);
        let put_off = eventually("a preemption of a holder is put off", || {
            Some(told_of_all("extended")).filter(|&count| count >= 10.0)
        });
        println!(
            "{command:?}: {put_off} preemptions put off so far, {} hand-offs",
            told_of_all("handed_off")
        );
        ended_well(child, "\nall well\n");
        eventually("forgotten", || (told_of_all("extended") == 0.0).then_some(()));
    }
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(warnings(), [""; 0]);
}

/// A process that asks to be taken in, and hangs up before the answer, takes no place. It may ask again, any
/// number of times.
#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_sched_forgets_who_does_not_wait() {
    let mut server = start();
    for _ in 0..30 {
        let mut stream = UnixStream::connect(abi::server::SCHEDULER).unwrap();
        stream.write_all(b"join").unwrap();
    }
    assert_eq!(programs(), [serde_json::Value::Null; 0]);
    let mut stream = UnixStream::connect(abi::server::SCHEDULER).unwrap();
    stream.write_all(b"join").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!((answer.as_str(), told_of_all("cpu_seconds")), (" ", 0.0));
    assert!(told(std::process::id(), "extended").is_some());
    server.kill().unwrap();
    server.wait().unwrap();
}

/// The paper's experiment on as many processors as the paper's: three of four are the program's.
#[test]
#[ignore = "takes the whole machine: vm/test --long"]
fn guest_cpus_three_bound_microthreads() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, blocks) = (folder.path().join("socket"), folder.path().join("partitions"));
    fs::create_dir(&blocks).unwrap();
    let listener = daemon::kernel::listen(&socket).unwrap();
    let mut config = daemon::Config::default();
    config.enforcement.by = daemon::config::By::CgroupV2;
    let kernel = daemon::kernel::Linux::new().unwrap();
    let mut server = daemon::Server::start(kernel, config, listener, &blocks).unwrap();
    std::thread::spawn(move || server.run());
    let text = |arguments: &[&str]| {
        let Output { status, stdout, stderr } =
            wakeful(arguments).env("WAKEFUL_SERVER", &socket).output().unwrap();
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    };
    assert_eq!(text(&["run", "--cpus", "3", "--", "nproc"]), "3\n");
    let words = "bench partition --threads 3 --most 2 --rounds 1 --seconds 0.1 --app fft:8x64 --format json";
    let points = text(&words.split(' ').collect::<Vec<&str>>());
    assert_eq!(points.matches("\"threads\":3,\"bound\":true").count(), 3, "{points}");
}
