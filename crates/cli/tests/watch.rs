// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful watch` on C programs that block where we know.
//!
//! A program says who is about to block. We wait until the kernel says that it is blocked, and until the
//! watcher has slept and woken often enough since. Then we let the program go on. So no time decides.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Modes by the first word: `read` and `fault` block a thread named pool-7; `crash` does that and aborts;
/// `fork` does it in a program that a child becomes; `many` has many threads.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
static int ends[2], faults = -1;
static char *page;
static const char *mode;
static pthread_barrier_t barrier;
__attribute__((noinline)) int read_slowly(void) {
    char byte;
    volatile int n = read(ends[0], &byte, 1);
    return n;
}
__attribute__((noinline)) int touch_page(void) { volatile int n = *(volatile char *)page; return n; }
__attribute__((noinline)) int task(int i) {
    volatile int n = faults < 0 ? read_slowly() : touch_page();
    return n + i;
}
static void *work(void *unused) {
    pthread_setname_np(pthread_self(), "pool-7");
    printf("%d %ld\n", getpid(), syscall(SYS_gettid));
    fflush(stdout);
    return (void *)(long)task(1);
}
static void *meet(void *unused) {
    pthread_setname_np(pthread_self(), "many-1");
    pthread_barrier_wait(&barrier);
    return unused;
}
static int fault(void) {
    faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = { .api = UFFD_API };
    page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register all = { { (long)page, 4096 }, UFFDIO_REGISTER_MODE_MISSING };
    return faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &all);
}
static int many(void) {
    enum { COUNT = 2000 };
    static pthread_t threads[COUNT];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    pthread_barrier_init(&barrier, 0, COUNT + 1);
    for (int i = 0; i < COUNT; i++) if (pthread_create(threads + i, &small, meet, 0)) return 9;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < COUNT; i++) pthread_join(threads[i], 0);
    return 0;
}
int main(int argc, char **words) {
    mode = words[1];
    if (!strcmp(mode, "many")) return many();
    if (!strcmp(mode, "fork")) {
        if (fork() == 0) { execl(words[0], words[0], "read", (char *)0); _exit(9); }
        int status;
        wait(&status);
        return WEXITSTATUS(status);
    }
    if (pipe(ends) || (!strcmp(mode, "fault") && fault())) return 8;
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    char line[8];
    while (read(0, line, sizeof line) > 0);
    if (!strcmp(mode, "crash")) abort();
    if (faults < 0) write(ends[1], "x", 1);
    else {
        struct uffdio_zeropage zero = { { (long)page, 4096 } };
        if (ioctl(faults, UFFDIO_ZEROPAGE, &zero)) return 7;
    }
    pthread_join(thread, 0);
    return 3;
}
"#;

fn compile(folder: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&file, source).unwrap();
    let compiled =
        Command::new("cc").args(options).arg("-o").arg(&program).arg(&file).arg("-pthread").status();
    assert!(compiled.expect("a C compiler, as linking Rust needs one").success(), "{name}");
    program
}

fn watch(report: &Path, program: &Path, mode: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeful"));
    command.args(["watch", "--json", "-o"]).arg(report).arg("--").arg(program).arg(mode);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// How often the threads of a process have slept.
fn sleeps(process: u32) -> u64 {
    let one = |task: std::io::Result<fs::DirEntry>| -> u64 {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    fs::read_dir(format!("/proc/{process}/task")).unwrap().map(one).sum()
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(60), "60 s, and not yet: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// May we record anything? If not, it says why not. A kernel or a sandbox may have no events for us.
fn may_watch() -> bool {
    static MAY: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let mut probe = Command::new(env!("CARGO_BIN_EXE_wakeful"));
        let output = probe.args(["watch", "true"]).output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr);
        let is_denied = talk.contains("does not let you have perf events");
        assert!(is_denied || output.status.success(), "{talk}");
        !is_denied
    });
    *MAY || skip("the kernel lets us have no perf events")
}

/// Says so beyond the test's captured output.
fn skip(why: &str) -> bool {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
    false
}

/// Waits until the thread that the program names is blocked, and the watcher has looked around a few times.
fn until_seen(watcher: &mut Child, call: &str) {
    let mut line = String::new();
    BufReader::new(watcher.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let (process, thread) = line.trim().split_once(' ').expect("who is about to block");
    let path = format!("/proc/{process}/task/{thread}/syscall");
    until(&format!("{path} has {call:?}"), || fs::read_to_string(&path).unwrap().starts_with(call));
    let (id, before) = (watcher.id(), sleeps(watcher.id()));
    until("the watcher has slept 20 times", || sleeps(id) > before + 20);
}

/// The records, and the exit status.
fn watched(folder: &Path, program: &Path, mode: &str, call: &str) -> (Vec<Value>, Option<i32>) {
    let (records, status) = ended(folder, program, mode, call);
    (records, status.code())
}

fn ended(folder: &Path, program: &Path, mode: &str, call: &str) -> (Vec<Value>, ExitStatus) {
    let report = folder.join(format!("{mode}.json"));
    let mut watcher = watch(&report, program, mode).spawn().unwrap();
    until_seen(&mut watcher, call);
    drop(watcher.stdin.take());
    let status = watcher.wait().unwrap();
    (records(&report), status)
}

fn records(report: &Path) -> Vec<Value> {
    let text = fs::read_to_string(report).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn site<'a>(records: &'a [Value], call: &str) -> &'a Value {
    let wanted = |one: &&Value| one["record"] == "site" && one["pool"] == "pool" && one["call"] == call;
    records.iter().find(wanted).unwrap_or_else(|| panic!("no {call}: {records:#?}"))
}

fn names(site: &Value) -> Vec<&str> {
    site["stack"].as_array().unwrap().iter().map(|frame| frame["name"].as_str().unwrap()).collect()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_read_is_found_with_its_stack_however_the_program_is_compiled() {
    if !may_watch() {
        return;
    }
    let folder = folder();
    for (name, options) in [
        ("frames", &["-O0", "-g"][..]),
        ("optimized", &["-O2", "-g", "-fomit-frame-pointer"]),
        ("static", &["-O2", "-g", "-static"]),
    ] {
        let program = compile(folder.path(), name, PROGRAM, options);
        let (records, status) = watched(folder.path(), &program, "read", "0 ");
        assert_eq!(status, Some(3), "{name}");
        let site = site(&records, "read");
        let stack = names(site);
        for function in ["read_slowly", "task", "work"] {
            assert!(stack.contains(&function), "{name}: {site:#}");
        }
        assert_eq!(stack[site["own"].as_u64().unwrap() as usize], "read_slowly", "{name}");
        assert_eq!(
            (site["whole"].as_bool(), site["why"].as_str()),
            (Some(true), Some("file")),
            "{name}: {site:#}"
        );
        assert_eq!(site["count"], 1, "{name}");
        assert!(site["descriptors"][0].as_str().unwrap().starts_with("pipe:"), "{name}");
        let frame = site["stack"].as_array().unwrap().iter().find(|frame| frame["name"] == "task").unwrap();
        assert!(frame["line"].as_str().unwrap().contains(&format!("{name}.c:")), "{name}: {frame}");
        let verdict = records.iter().find(|one| one["record"] == "verdict").unwrap();
        assert!(verdict["words"].as_str().unwrap().contains("read_slowly"), "{name}: {verdict}");
    }
}

#[test]
fn a_stripped_program_has_addresses_for_names() {
    if !may_watch() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), "stripped", PROGRAM, &["-O2", "-s"]);
    let (records, _) = watched(folder.path(), &program, "read", "0 ");
    let site = site(&records, "read");
    let own = &site["stack"][site["own"].as_u64().unwrap() as usize];
    assert!(own["name"].as_str().unwrap().starts_with("stripped+0x"), "{site:#}");
    assert!(own["build_id"].is_string() && site["whole"] == true, "{site:#}");
}

#[test]
fn a_page_fault_is_found() {
    if !may_watch() {
        return;
    }
    let folder = folder();
    // SAFETY: it has no memory of ours; the descriptor is new.
    match unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) } {
        // SAFETY: as above.
        number if number >= 0 => drop(unsafe { OwnedFd::from_raw_fd(number as i32) }),
        _ => {
            skip("no userfaultfd here");
            return;
        }
    }
    let program = compile(folder.path(), "fault", PROGRAM, &["-O2", "-g"]);
    let (records, status) = watched(folder.path(), &program, "fault", "-1 ");
    assert_eq!(status, Some(3));
    let site = site(&records, "page fault");
    assert_eq!((site["why"].as_str(), names(site)[0]), (Some("fault"), "touch_page"), "{site:#}");
}

/// A thread of libuv's pool reads: what JavaScript asked for is on no stack, and libuv's function is named.
const NODE: &str = "const fs = require('fs'); const fd = fs.openSync(process.argv[2], 'r');
console.log(process.pid); fs.read(fd, Buffer.alloc(1), 0, 1, null, () => process.exit(3));";

/// In a call of its own, and not by Go's poller.
const GO: &str = "package main
import (\"fmt\"; \"os\"; \"syscall\")
func badTask(fd int) { var b [1]byte; syscall.Read(fd, b[:]) }
func main() {
    fd, _ := syscall.Open(os.Args[1], syscall.O_RDONLY, 0)
    fmt.Println(os.Getpid())
    badTask(fd)
    os.Exit(3)
}";

/// The program names its process, and one of its threads reads from a FIFO until the watcher has seen it.
fn read_of_a_fifo(folder: &Path, program: &Path, words: &[&Path]) -> Vec<Value> {
    let (fifo, report) = (folder.join("fifo"), folder.join("fifo.json"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // To read and to write: neither end waits for the other.
    let mut open = fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let mut words = words.iter().copied().chain(std::iter::once(fifo.as_path()));
    let mut command = watch(&report, program, words.next().unwrap().to_str().unwrap());
    let mut watcher = command.args(words).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watcher.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let process = PathBuf::from(format!("/proc/{}", line.trim()));
    let reads = |task: std::io::Result<fs::DirEntry>| {
        let call = fs::read_to_string(task.unwrap().path().join("syscall")).unwrap_or_default();
        let from = call.strip_prefix("0 0x").and_then(|rest| rest.split(' ').next());
        let number = from.and_then(|from| u32::from_str_radix(from, 16).ok());
        number.is_some_and(|number| {
            fs::read_link(process.join(format!("fd/{number}"))).ok() == Some(fifo.clone())
        })
    };
    until("a thread reads", || fs::read_dir(process.join("task")).unwrap().any(reads));
    let (id, before) = (watcher.id(), sleeps(watcher.id()));
    until("the watcher has slept 20 times", || sleeps(id) > before + 20);
    open.write_all(b"x").unwrap();
    assert_eq!(watcher.wait().unwrap().code(), Some(3));
    records(&report)
}

/// Whose the read of the FIFO is: the function, and the pool.
fn reader(records: &[Value]) -> (&str, &str) {
    let is_fifo = |path: &Value| path.as_str().is_some_and(|path| path.ends_with("/fifo"));
    let reads = |one: &&Value| {
        one["record"] == "site"
            && one["call"] == "read"
            && one["descriptors"].as_array().is_some_and(|paths| paths.iter().any(is_fifo))
    };
    let site = records.iter().find(reads).unwrap_or_else(|| panic!("no read: {records:#?}"));
    assert_eq!((&site["count"], site["why"].as_str()), (&Value::from(1), Some("file")), "{site:#}");
    (names(site)[site["own"].as_u64().unwrap() as usize], site["pool"].as_str().unwrap())
}

#[test]
fn a_thread_of_libuv_is_blamed_with_what_it_does() {
    if !may_watch() {
        return;
    }
    if !Command::new("node").arg("--version").stdout(Stdio::null()).status().is_ok_and(|done| done.success())
    {
        skip("no node");
        return;
    }
    let folder = folder();
    let script = folder.path().join("reads.js");
    fs::write(&script, NODE).unwrap();
    let records = read_of_a_fifo(folder.path(), Path::new("node"), &[&script]);
    let (function, pool) = reader(&records);
    let is_uv = ["uv_", "libuv", "node+0x"].iter().any(|name| function.starts_with(name));
    assert!(is_uv && !pool.ends_with("(main)"), "{function} of {pool}");
}

/// Go runs goroutines on the first thread as on the others.
#[test]
fn the_threads_of_go_are_one_pool() {
    if !may_watch() {
        return;
    }
    let folder = folder();
    let (source, program) = (folder.path().join("reads.go"), folder.path().join("reads"));
    fs::write(&source, GO).unwrap();
    if std::env::var_os("WAKEFUL_LONG").is_none() {
        skip("Go compiles its library first: with WAKEFUL_LONG only");
        return;
    }
    let mut compile = Command::new("go");
    compile.args(["build", "-o"]).arg(&program).arg(&source).env("GO111MODULE", "off");
    match compile.status() {
        Ok(status) => assert!(status.success()),
        Err(_) => {
            skip("no Go");
            return;
        }
    }
    let records = read_of_a_fifo(folder.path(), &program, &[]);
    assert_eq!(reader(&records), ("main.badTask", "reads"));
    assert!(records.iter().all(|one| one["pool"] != "reads (main)"), "{records:#?}");
}

/// What its thread was blocked in when it ended so is told as well.
#[test]
fn a_program_that_crashes_is_reported_with_its_signal() {
    if !may_watch() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), "crash", PROGRAM, &["-O0"]);
    let (records, status) = ended(folder.path(), &program, "crash", "0 ");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    assert_eq!(records[0]["signal"], "6 (SIGABRT)", "{}", records[0]);
    assert!(names(site(&records, "read")).contains(&"read_slowly"));
}

/// One thread that computes cannot have more than one processor.
#[test]
fn the_time_is_the_programs() {
    if !may_watch() {
        return;
    }
    let folder = folder();
    let source = "#include <time.h>\nint main(void) { while (clock() < CLOCKS_PER_SEC / 50); return 0; }";
    let program = compile(folder.path(), "busy", source, &["-O2"]);
    let report = folder.path().join("busy.json");
    assert_eq!(watch(&report, &program, "").status().unwrap().code(), Some(0));
    let records = records(&report);
    let time = |record: &str, field: &str| {
        records
            .iter()
            .filter(|one| one["record"] == record)
            .map(|one| one[field].as_u64().unwrap())
            .sum::<u64>()
    };
    let (ran, took) = (time("pool", "run_ns"), time("watch", "elapsed_ns"));
    assert!(ran <= took && ran >= 15_000_000, "{ran} of {took}");
}

#[test]
fn a_program_that_a_child_becomes_is_seen() {
    if !may_watch() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), "child", PROGRAM, &["-O2"]);
    let (records, status) = watched(folder.path(), &program, "fork", "0 ");
    assert_eq!(status, Some(3));
    assert!(names(site(&records, "read")).contains(&"read_slowly"));
    let is_main = |one: &&Value| one["record"] == "pool" && one["pool"] == "child (main)";
    assert_eq!(records.iter().find(is_main).unwrap()["threads"], 2);
}

#[test]
fn thousands_of_threads_are_counted() {
    if !may_watch() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), "many", PROGRAM, &["-O2"]);
    let report = folder.path().join("many.json");
    assert_eq!(watch(&report, &program, "many").status().unwrap().code(), Some(0));
    let records = records(&report);
    let pool = records.iter().find(|one| one["record"] == "pool" && one["pool"] == "many").unwrap();
    assert_eq!(pool["threads"], 2000, "{pool}");
    assert!(pool["run_ns"].as_u64().unwrap() > 0, "{pool}");
}

/// Without events there is nothing to record: the program does not run, and one thing to do is said.
#[test]
fn without_permission_it_says_what_to_do() {
    let folder = folder();
    let source = "#include <errno.h>\n#include <linux/filter.h>\n#include <linux/seccomp.h>\n\
        #include <stddef.h>\n#include <sys/prctl.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
        int main(int n, char **words) {\n\
        struct sock_filter filter[] = {\n\
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };\n\
        struct sock_fprog program = { 4, filter };\n\
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) return 77;\n\
        execvp(words[1], words + 1); return 78; }";
    let denied = compile(folder.path(), "denied", source, &[]);
    let mut command = Command::new(denied);
    command.arg(env!("CARGO_BIN_EXE_wakeful")).args(["watch", "--", "echo", "it runs"]);
    let output = command.output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]), "{talk}");
    assert!(talk.contains("does not let you have perf events"), "{talk}");
    assert!(talk.contains("sysctl kernel.perf_event_paranoid=2") || talk.contains("seccomp"), "{talk}");
    assert!(talk.lines().all(|line| line.len() < 80), "{talk}");
}

/// Text goes to standard error, and what the program writes stays its own.
#[test]
fn the_report_does_not_mix_with_the_programs_output() {
    if !may_watch() {
        return;
    }
    let output =
        Command::new(env!("CARGO_BIN_EXE_wakeful")).args(["watch", "echo", "mine"]).output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"mine\n"[..]));
    assert!(talk.starts_with("wakeful: `echo` took ") && talk.contains("\nVerdict: "), "{talk}");
    assert!(talk.lines().all(|line| line.chars().count() < 80), "{talk}");
}

/// What ran is named, and not the shell; and what goes on is told.
#[test]
fn what_a_shell_becomes_and_leaves_is_told() {
    if !may_watch() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let script = "sleep 2 >/dev/null 2>&1 & exec env sleep 0.1";
    assert!(watch(&report, Path::new("sh"), "-c").arg(script).status().unwrap().success());
    let records = records(&report);
    let all = records.iter().find(|one| one["record"] == "watch").unwrap();
    assert_eq!([&all["program"], &all["started_by"]], ["sleep", "sh"], "{records:#?}");
    let verdict = records.iter().find(|one| one["record"] == "verdict").unwrap();
    let words = verdict["words"].as_str().unwrap();
    assert!(all["processes_left"] == 1 && words.contains("still runs: its blocks after"), "{words}");
}

/// A report that nobody would get is refused before the program runs.
#[test]
fn a_closed_stream_gets_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let wakeful = env!("CARGO_BIN_EXE_wakeful");
    for (verb, says) in [("watch -o -", "output"), ("profile -o -", "output"), ("watch", "error")] {
        let close = if says == "output" { ">&-" } else { "2>&-" };
        let script = format!("{wakeful} {verb} touch {}/ran {close}", folder.path().display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let words = format!("standard {says} is closed");
        assert!(String::from_utf8(said).unwrap().contains(&words), "{script}");
        assert_eq!((output.status.code(), folder.path().join("ran").exists()), (Some(125), false));
    }
}

/// Whoever starts us may ignore the signal of a child's end.
#[test]
fn the_end_is_seen_with_its_signal_ignored() {
    if !may_watch() {
        return;
    }
    let script = format!("trap '' CHLD; exec {} watch sh -c 'exit 7'", env!("CARGO_BIN_EXE_wakeful"));
    let status = Command::new("timeout").args(["60", "bash", "-c", &script]).stderr(Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(7));
}

/// By SIGSTOP, and by a frozen control group, where somebody may freeze one.
#[test]
fn a_stop_is_no_block() {
    if !may_watch() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let stop = "(sleep 0.3; kill -CONT $$) & kill -STOP $$; wait; echo in; sleep 0.2";
    let mut groups = Vec::new();
    for (state, words) in [
        ("freezer/wakeful-test/freezer.state", ["FROZEN", "THAWED"]),
        ("unified/wakeful-test/cgroup.freeze", ["1", "0"]),
        ("wakeful-test/cgroup.freeze", ["1", "0"]),
    ] {
        let state = Path::new("/sys/fs/cgroup").join(state);
        let group = state.parent().unwrap().with_extension(std::process::id().to_string());
        let state = group.join(state.file_name().unwrap());
        if fs::create_dir(&group).is_ok() && state.exists() {
            groups.push((group, state, words));
        } else {
            let _ = fs::remove_dir(&group);
        }
    }
    let stops = std::iter::once(None).chain(groups.iter().map(Some));
    for by in stops {
        let script = match by {
            None => stop.into(),
            Some((group, ..)) => format!("echo $$ >{}/cgroup.procs; echo in; sleep 0.2", group.display()),
        };
        let mut command = watch(&report, Path::new("sh"), "-c");
        let mut watcher = command.arg(&script).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(watcher.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if let Some((_, state, [freeze, thaw])) = by {
            fs::write(state, freeze).unwrap();
            // Longer than a watcher that is itself kept from its processor may fail to look.
            std::thread::sleep(Duration::from_millis(1_500));
            fs::write(state, thaw).unwrap();
        }
        assert!(watcher.wait().unwrap().success());
        let records = records(&report);
        let all = records.iter().find(|one| one["record"] == "watch").unwrap();
        let ns = |what: &str| all[what].as_u64().unwrap();
        let least = if by.is_some() { 250_000_000 } else { 1 };
        assert!(ns("stopped_ns") >= least && ns("stops") >= 1, "{script}: {records:#?}");
    }
    for (group, ..) in groups {
        until("the group is empty", || fs::remove_dir(&group).is_ok());
    }
}
