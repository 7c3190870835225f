// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conformance table: the programs in `tests/programs`, compiled here, run on the library with teams of 1 to 16. Each checks its own
//! results, and fails with the line that was not so. On the compiler's own runtime they pass as well, which is
//! checked so that nothing is asked for that OpenMP does not promise.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const TEAMS: [u32; 5] = [1, 2, 4, 8, 16];
/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The library of the profile that the tests are built in.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let near = deps.join("libwakeful_gomp.so");
        if near.exists() {
            return near;
        }
        let profile = deps.parent().unwrap();
        let name = profile.file_name().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--package", "wakeful-omp", "--target-dir"]).arg(profile.parent().unwrap());
        build.arg("--profile").arg(if name == "debug" { OsStr::new("dev") } else { name });
        assert!(build.status().unwrap().success(), "cargo build of the library failed");
        profile.join("libwakeful_gomp.so")
    })
}

fn compile(name: &str) -> PathBuf {
    let folder = if name == "programs.c" { "bench" } else { "tests/programs" };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
    static PROGRAMS: AtomicU32 = AtomicU32::new(0);
    let own = format!("{name}.{}.{}", std::process::id(), PROGRAMS.fetch_add(1, Relaxed));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
    let compiler = if source.extension() == Some(OsStr::new("cc")) { "g++" } else { "gcc" };
    let status = Command::new(compiler)
        .args(["-O2", "-g", "-fopenmp", "-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .arg("-lm")
        .status()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; the tests need gcc and g++"));
    assert!(status.success(), "{compiler} {name}");
    program
}

/// Runs it to its end, and says what was wrong.
fn run(command: &mut Command) -> Result<String, String> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let began = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if began.elapsed() > PATIENCE => {
                child.kill().map_err(|error| error.to_string())?;
                child.wait().map_err(|error| error.to_string())?;
                return Err("hangs".into());
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).map_err(|error| error.to_string())?;
    child.stderr.take().unwrap().read_to_string(&mut said).map_err(|error| error.to_string())?;
    if status.success() { Ok(said) } else { Err(format!("{status}\n{said}")) }
}

fn command(program: &Path, threads: u32, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.env("OMP_NUM_THREADS", threads.to_string()).env("OMP_CANCELLATION", "true");
    command.envs(settings.iter().copied());
    command
}

fn on_ours(program: &Path, threads: u32, settings: &[(&str, &str)]) -> Command {
    let mut command = command(program, threads, settings);
    command.env("LD_PRELOAD", library());
    command
}

/// Runs a program of the table.
fn conforms(name: &str, settings: &[(&str, &str)]) {
    let program = compile(name);
    if let Err(wrong) = run(&mut command(&program, 2, settings)) {
        panic!("{name} asks for more than the compiler's own runtime gives: {wrong}");
    }
    for threads in TEAMS {
        if let Err(wrong) = run(&mut on_ours(&program, threads, settings)) {
            panic!("{name}, {threads} threads: {wrong}");
        }
    }
    fs::remove_file(program).unwrap();
}

#[test]
fn parallel() {
    conforms("parallel.c", &[]);
}

#[test]
fn loops() {
    conforms("loops.c", &[]);
}

#[test]
fn worksharing() {
    conforms("worksharing.c", &[]);
}

#[test]
fn nested() {
    conforms("nested.c", &[]);
}

#[test]
fn routines() {
    conforms("routines.c", &[]);
}

#[test]
fn tasks() {
    conforms("tasks.c", &[]);
}

#[test]
fn priorities() {
    conforms("tasks.c", &[("OMP_MAX_TASK_PRIORITY", "10")]);
}

#[test]
fn detach() {
    conforms("detach.c", &[]);
}

#[test]
fn cancel() {
    conforms("cancel.c", &[]);
}

#[test]
fn doacross() {
    conforms("doacross.c", &[]);
}

#[test]
fn device() {
    conforms("device.c", &[]);
}

#[test]
fn places() {
    conforms("places.c", &[("OMP_PLACES", "threads")]);
}

#[test]
fn exceptions() {
    conforms("exceptions.cc", &[]);
}

/// The programs by which runtimes are compared: the same answers, which they check.
#[test]
fn programs() {
    let program = compile("programs.c");
    for name in ["stencil", "cg", "sort", "queens", "lu"] {
        for threads in [1, 2, 4, 8] {
            if let Err(wrong) = run(on_ours(&program, threads, &[]).arg(name)) {
                panic!("{name}, {threads} threads: {wrong}");
            }
        }
    }
    fs::remove_file(program).unwrap();
}

/// What must not hang.
#[test]
fn faults() {
    let program = compile("faults.c");
    for what in ["fork", "exit", "large", "nested", "signal", "threads"] {
        if let Err(wrong) = run(on_ours(&program, 4, &[]).arg(what)) {
            panic!("{what}: {wrong}");
        }
    }
    fs::remove_file(program).unwrap();
}

/// Found under libgomp's name; and what it says of devices is said once, and by it.
#[test]
fn by_name() {
    let program = compile("device.c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("by-name.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(library(), folder.join("libgomp.so.1")).unwrap();
    let said = run(command(&program, 2, &[]).env("LD_LIBRARY_PATH", &folder)).unwrap();
    assert_eq!(said, "wakeful: there is no offloading to devices here; target regions run on the host\n");
    fs::remove_dir_all(folder).unwrap();
    fs::remove_file(program).unwrap();
}

/// What the environment says is heard, and what makes no sense is named.
#[test]
fn environment() {
    let program = compile("parallel.c");
    let shown = run(&mut on_ours(&program, 3, &[("OMP_DISPLAY_ENV", "true"), ("OMP_SCHEDULE", "guided,7")])).unwrap();
    for line in ["OMP_NUM_THREADS = '3'", "OMP_SCHEDULE = 'GUIDED,7'", "OMP_CANCELLATION = 'TRUE'"] {
        assert!(shown.contains(line), "{line} is not in:\n{shown}");
    }
    let wrong = run(&mut on_ours(&program, 2, &[("OMP_SCHEDULE", "sideways")])).unwrap();
    assert_eq!(
        wrong,
        "wakeful: OMP_SCHEDULE=sideways is ignored; give static, dynamic, guided or auto, and perhaps a comma and a chunk\n"
    );
    fs::remove_file(program).unwrap();
}
