// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the programs of the conformance table and runs them, on the compiler's own runtime and on ours.
//! Used for libgomp's interface and for LLVM's.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, fs};

pub const TEAMS: [u32; 5] = [1, 2, 4, 8, 16];
/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A compiler, and what stands for its runtime.
pub struct Toolchain {
    pub c: &'static str,
    pub cxx: &'static str,
    /// The package and the file of ours.
    pub package: &'static str,
    pub library: &'static str,
    path: OnceLock<PathBuf>,
}

impl Toolchain {
    pub const fn new(
        c: &'static str,
        cxx: &'static str,
        package: &'static str,
        library: &'static str,
    ) -> Self {
        Self { c, cxx, package, library, path: OnceLock::new() }
    }

    /// The library of the profile that the tests are built in.
    pub fn library(&self) -> &Path {
        self.path.get_or_init(|| {
            let deps = env::current_exe().unwrap().parent().unwrap().to_owned();
            let near = deps.join(self.library);
            if near.exists() {
                return near;
            }
            let profile = deps.parent().unwrap();
            let name = profile.file_name().unwrap();
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--package", self.package, "--target-dir"]).arg(profile.parent().unwrap());
            build.arg("--profile").arg(if name == "debug" { OsStr::new("dev") } else { name });
            assert!(build.status().unwrap().success(), "cargo build of the library failed");
            profile.join(self.library)
        })
    }

    /// `programs/NAME`, compiled.
    pub fn compile(&self, name: &str, options: &[&OsStr]) -> PathBuf {
        let source = programs().join(name);
        static PROGRAMS: AtomicU32 = AtomicU32::new(0);
        let own = source.file_name().unwrap().to_str().unwrap();
        let own = format!("{own}.{}.{}", std::process::id(), PROGRAMS.fetch_add(1, Relaxed));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
        let compiler = if source.extension() == Some(OsStr::new("cc")) { self.cxx } else { self.c };
        let status = Command::new(compiler)
            .args(["-O2", "-g", "-fopenmp", "-Wall", "-Werror", "-o"])
            .args([&program, &source])
            .args(options)
            .status()
            .unwrap_or_else(|error| panic!("{compiler}: {error}; the tests need it and its OpenMP runtime"));
        assert!(status.success(), "{compiler} {name}");
        program
    }

    /// Runs a program on both runtimes, with settings that all compilers' runtimes know, and `more`: it says
    /// the same.
    #[allow(dead_code)] // not used by each test program
    pub fn agrees(&self, name: &str, more: &[&[(&str, &str)]]) {
        let known: &[&[(&str, &str)]] = &[
            &[],
            &[("OMP_SCHEDULE", "static")],
            &[("OMP_SCHEDULE", "static,3")],
            &[("OMP_SCHEDULE", "dynamic")],
            &[("OMP_SCHEDULE", "dynamic,0")],
            &[("OMP_SCHEDULE", "guided,7")],
            &[("OMP_SCHEDULE", "auto")],
            &[("OMP_SCHEDULE", "monotonic:dynamic,2")],
            &[("OMP_SCHEDULE", "nonmonotonic:dynamic")],
            &[("OMP_PROC_BIND", "close")],
            &[("OMP_PROC_BIND", "spread"), ("OMP_PLACES", "cores")],
            &[("OMP_PROC_BIND", "false"), ("OMP_PLACES", "threads")],
            &[("OMP_PLACES", "{0},{0}")],
            &[("OMP_PLACES", "{0:2}:2")],
            &[("OMP_PLACES", "{1}:2:-1")],
            &[("GOMP_CPU_AFFINITY", "0 0-1:1")],
            &[("OMP_AFFINITY_FORMAT", "")],
            &[("OMP_AFFINITY_FORMAT", " %n ")],
        ];
        let program = self.compile(name, &[]);
        for settings in known.iter().chain(more) {
            let (own, _) = streams(&mut command(&program, 3, settings));
            let (ours, _) = streams(&mut self.on_ours(&program, 3, settings));
            assert_eq!(ours, own, "{settings:?}");
        }
        fs::remove_file(program).unwrap();
    }

    pub fn on_ours(&self, program: &Path, threads: u32, settings: &[(&str, &str)]) -> Command {
        let mut command = command(program, threads, settings);
        command.env("LD_PRELOAD", self.library());
        command
    }

    /// Runs a compiled program of the table with teams of 1 to 16.
    pub fn check(&self, name: &str, program: &Path, settings: &[(&str, &str)]) {
        for threads in TEAMS {
            if let Err(wrong) = run(&mut self.on_ours(program, threads, settings)) {
                panic!("{name}, {}, {threads} threads: {wrong}", self.c);
            }
        }
        fs::remove_file(program).unwrap();
    }

    /// No construct makes more system calls than is told of it.
    pub fn counts_calls(&self) {
        let program = self.compile("calls.c", &[]);
        let settings: [(u32, &[(&str, &str)]); 5] =
            [(1, &[]), (2, &[]), (4, &[]), (16, &[]), (2, &[("OMP_WAIT_POLICY", "passive")])];
        for (threads, settings) in settings {
            let output = self.on_ours(&program, threads, settings).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => {}
                // Said past the harness, which keeps what a test prints.
                Some(77) => {
                    let _ = writeln!(std::io::stderr(), "SKIPPED: {}", said.trim());
                }
                _ => panic!("{threads} threads, {settings:?}, {}: {}\n{said}", self.c, output.status),
            }
        }
        fs::remove_file(program).unwrap();
    }

    /// Each allocation of a program fails once, alone, with the next and with all later ones, and the room
    /// that it may map ends at many places: its answers are the same, or, where it may not map either, it
    /// ends and says for want of what.
    pub fn runs_short(&self, options: &[&OsStr]) {
        let program = &self.compile("short.c", &[options, &["-ldl".as_ref()]].concat());
        let settings = [
            ("OMP_PROC_BIND", "spread,close"),
            ("OMP_PLACES", "cores"),
            ("OMP_SCHEDULE", "guided,2"),
            ("OMP_AFFINITY_FORMAT", "%n"),
            ("OMP_DISPLAY_ENV", "true"),
            ("OMP_WAIT_POLICY", "passive"),
        ];
        // Is there more to be tried?
        let run = |what: &str, n: usize, threads: u32| {
            let mut command = self.on_ours(program, threads, &settings);
            let output = command.args([what, &n.to_string(), &threads.to_string()]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => true,
                Some(77) => false,
                Some(1) if what == "space" && said.contains("wakeful: no memory for ") => true,
                _ => panic!("{what} {n}, {threads} threads, {}: {}\n{said}", self.c, output.status),
            }
        };
        let run = &run;
        std::thread::scope(|scope| {
            for what in ["one", "two", "from"] {
                scope.spawn(move || {
                    for threads in [2, 8] {
                        assert!((1..10_000).any(|n| !run(what, n, threads)), "it never had enough");
                    }
                });
            }
        });
        for threads in [2, 8] {
            assert!((0..7).all(|n| run("threads", n, threads) || n > 0), "it had threads");
            // COST: KB; from nothing to what the stacks need, in steps of a fifth.
            let mut room = 0;
            while room < 200_000 {
                run("space", room, threads);
                room += 16.max(room / 5);
            }
        }
        fs::remove_file(program).unwrap();
    }
}

/// The folder of the programs.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../gomp/tests/programs")
}

/// Runs it to its end, and says what was wrong.
pub fn run(command: &mut Command) -> Result<String, String> {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
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

/// What it says on its two streams, each sorted by lines: threads speak in any order.
#[allow(dead_code)] // not used by each test program
pub fn streams(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let sorted = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).unwrap();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    (sorted(output.stdout), sorted(output.stderr))
}

pub fn command(program: &Path, threads: u32, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.env("OMP_NUM_THREADS", threads.to_string()).env("OMP_CANCELLATION", "true");
    command.envs(settings.iter().copied());
    command
}
