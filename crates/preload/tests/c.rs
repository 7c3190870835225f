// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C programs in `tests/c`: compiled here, run with and without the library, compared. What they print is deterministic, so
//! the two runs must agree to the letter, and in their exit status.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// The library of the profile that the tests are built in. Cargo builds it for `cargo test`, but promises no place for it.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let near = deps.join("libwakeful_preload.so");
        if near.exists() {
            return near;
        }
        let target = deps.parent().unwrap().parent().unwrap();
        let profile = deps.parent().and_then(Path::file_name).and_then(OsStr::to_str).unwrap();
        let profile = if profile == "debug" { "dev" } else { profile };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--package", "wakeful-preload", "--profile", profile]);
        build.arg("--target-dir").arg(target);
        assert!(build.status().unwrap().success(), "cargo build of the library failed");
        deps.parent().unwrap().join("libwakeful_preload.so")
    })
}

fn compile(name: &str) -> PathBuf {
    compile_with(name, &[])
}

fn compile_with(name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{name}.{}{}",
        std::process::id(),
        flags.concat()
    ));
    let compiler = if source.extension() == Some(OsStr::new("cc")) { "c++" } else { "cc" };
    let status = Command::new(compiler)
        // Bound at start, so that the dynamic linker's own need of stack hides nobody's.
        .args(["-O2", "-g", "-pthread", "-Wall", "-Werror", "-Wl,-z,now"])
        .args(flags)
        .arg("-o")
        .args([&program, &source])
        .status()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; the tests need a C and a C++ compiler"));
    assert!(status.success(), "{compiler} {name}");
    program
}

fn preloaded(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library());
    command
}

fn show(output: &Output) -> String {
    let Output { status, stdout, stderr } = output;
    format!("{}{}{status}", String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr))
}

fn views() -> &'static [&'static str] {
    if cfg!(feature = "bpf") { &["perf", "none", "bpf"] } else { &["perf", "none"] }
}

fn same(name: &str) {
    same_with(name, &[]);
}

fn same_with(name: &str, flags: &[&str]) {
    let program = compile_with(name, flags);
    let plain = show(&Command::new(&program).output().unwrap());
    for view in views() {
        let ours = show(&preloaded(&program).env("WAKEFUL_VIEW", view).output().unwrap());
        assert_eq!(plain, ours, "{name}, view {view}");
    }
    fs::remove_file(program).unwrap();
}

/// COST: bytes. What a program gives its threads is often the least that there may be, PTHREAD_STACK_MIN.
const STACK_MORE: usize = 2048;

/// No entry point needs more stack than the C library's and [`STACK_MORE`], not even when it looks at the processors; and on the smallest stack
/// that there may be, all goes well.
#[test]
fn stack() {
    let program = compile("stack.c");
    let names = Command::new(&program).output().unwrap().stdout;
    let names = String::from_utf8(names).unwrap();
    let run = |mut command: Command, name: &str, size: usize| {
        let output = command.args([name, &size.to_string()]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().parse::<usize>().map_err(|_| show(&output))
    };
    let measure = |name: &str, size: usize| {
        let plain =
            run(Command::new(&program), name, size).unwrap_or_else(|error| panic!("{name}, plain: {error}"));
        for view in views().iter().chain(&["auto"]) {
            let mut command = preloaded(&program);
            command.env("WAKEFUL_VIEW", view);
            let ours = run(command, name, size);
            let ours = ours.unwrap_or_else(|error| panic!("{name}, view {view}, stack of {size}: {error}"));
            assert!(ours <= plain + STACK_MORE, "{name}, view {view}: {ours} bytes of stack, plain {plain}");
        }
    };
    let measure = &measure;
    // They sleep most of the time.
    std::thread::scope(|scope| {
        for name in names.lines() {
            scope.spawn(move || measure(name, 1 << 18));
            scope.spawn(move || measure(name, 1 << 14));
        }
    });
    fs::remove_file(program).unwrap();
}

/// COST: more than there are thread ids. `WAKEFUL_LONG=1` has 20,000.
const MANY: usize = 6_000;

/// Thousands of threads that wait for one thing sleep, those without an id too, and go on in about the time that they take with the C library. The bounds
/// tell sleeping from polling, and an end from a hang.
#[test]
fn many_threads() {
    let program = compile("many.c");
    let kinds = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let count = if std::env::var("WAKEFUL_LONG").is_ok_and(|long| long == "1") { 20_000 } else { MANY };
    let one = |kind: &str| {
        let run = |mut command: Command| {
            let output = command.args([kind, &count.to_string()]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            match (output.status.code(), &numbers[..]) {
                (Some(0), &[busy_ms, end_ms]) => Some((busy_ms, end_ms)),
                // This machine does not have so many threads.
                (Some(77), _) => None,
                _ => panic!("{kind}: {}", show(&output)),
            }
        };
        let Some((_, plain_ms)) = run(Command::new(&program)) else {
            skipped("no room for so many threads");
            return;
        };
        for view in views() {
            let mut command = preloaded(&program);
            command.env("WAKEFUL_VIEW", view);
            let (busy_ms, end_ms) = run(command).unwrap();
            assert!(busy_ms < 100.0, "{kind}, view {view}: busy for {busy_ms} of 500 ms in which all wait");
            let most_ms = 10.0 * plain_ms + 3_000.0;
            assert!(end_ms < most_ms, "{kind}, view {view}: {end_ms} ms to the end, plain {plain_ms}");
        }
    };
    // Two at a time: they mostly sleep.
    let (one, kinds) = (&one, &kinds);
    std::thread::scope(|scope| {
        for lane in 0..2 {
            scope.spawn(move || kinds.lines().skip(lane).step_by(2).for_each(one));
        }
    });
    fs::remove_file(program).unwrap();
}

/// A program in a root without our library says nothing of that.
#[test]
fn root_another_root_has_no_library() {
    let libraries = ["lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6"];
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 || !libraries.iter().all(|path| Path::new("/").join(path).exists()) {
        return skipped("needs root, and a C library where Debian has it");
    }
    let program = compile_with("nothing.c", &["-DROOT"]);
    let root = program.with_extension("root");
    for path in libraries {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::copy(Path::new("/").join(path), root.join(path)).unwrap();
    }
    fs::rename(program, root.join("one")).unwrap();
    let output = preloaded(Path::new("chroot")).arg(&root).arg("/one").output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(0), "".into()));
    fs::remove_dir_all(root).unwrap();
}

/// Says so on the terminal even though the harness keeps what a test prints.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Each allocation of a program fails once, alone and with all later ones, and the room that it may map ends at many places: each call succeeds
/// or says that there is no memory. Nothing aborts, crashes or hangs.
#[test]
fn memory() {
    let program = compile("memory.c");
    let run = |when: &str, what: &str, n: usize, view: &str| {
        let mut command = preloaded(&program);
        let output = command.args([when, what, &n.to_string()]).env("WAKEFUL_VIEW", view).output().unwrap();
        match output.status.code() {
            Some(0) => true,
            Some(77) => false,
            _ => panic!("{when} {what} {n}, view {view}: {}", show(&output)),
        }
    };
    let run = &run;
    std::thread::scope(|scope| {
        for view in views().iter().chain(&["auto"]) {
            for when in ["create", "contend"] {
                for what in ["one", "from"] {
                    scope.spawn(move || {
                        assert!((1..10_000).any(|n| !run(when, what, n, view)), "it never had enough")
                    });
                }
                scope.spawn(move || {
                    // COST: KB; from nothing to what all of it needs, in steps of a tenth.
                    let mut room = 0;
                    while run(when, "space", room, view) {
                        room += 16.max(room / 10);
                    }
                });
            }
        }
    });
    fs::remove_file(program).unwrap();
}

#[test]
fn misuse() {
    same("misuse.c");
}

#[test]
fn versions() {
    same("versions.c");
}

/// A waiter that a broadcast under the mutex wakes finds the mutex free. It sleeps once a round, and not again
/// for the mutex. Other load on the machine can only add to that, so the least of some runs counts.
#[test]
fn a_broadcast_under_the_mutex_wakes_no_crowd() {
    let program = compile("crowd.c");
    for view in ["perf", "none"] {
        let one = || {
            let output = preloaded(&program).env("WAKEFUL_VIEW", view).output().unwrap();
            assert!(output.status.success(), "{}", show(&output));
            String::from_utf8(output.stdout).unwrap().trim().parse::<u32>().unwrap()
        };
        let least = (0..5).map(|_| one()).min().unwrap();
        assert!(least < 150, "{least} sleeps in 100 waits, view {view}");
    }
    fs::remove_file(program).unwrap();
}

#[test]
fn owed() {
    same("owed.c");
}

#[test]
fn stress() {
    same("stress.c");
}

#[test]
fn cancel() {
    same("cancel.c");
}

#[test]
fn fork() {
    same("fork.c");
}

#[test]
fn cxx() {
    same("cxx.cc");
}

#[test]
fn sem() {
    same("sem.c");
}

/// Here the C library is no model.
#[test]
fn sem_cancel() {
    let program = compile("sem_cancel.c");
    for view in ["perf", "none"] {
        let output = show(&preloaded(&program).env("WAKEFUL_VIEW", view).output().unwrap());
        assert_eq!(output, "lost 0, value 0, both happened 1\nexit status: 0", "view {view}");
    }
    fs::remove_file(program).unwrap();
}

#[test]
fn once() {
    same("once.c");
}

#[test]
fn once_without_unwind_tables() {
    same("once_bare.c");
    same_with("once_bare.c", &["-fno-asynchronous-unwind-tables", "-fno-exceptions"]);
}

#[test]
fn hooks() {
    same("hooks.c");
}

#[test]
fn cxx17() {
    same("cxx17.cc");
}

#[test]
fn rwlock() {
    same("rwlock.c");
}

#[test]
fn rw_prefer() {
    same("rw_prefer.c");
}

#[test]
fn a_yield_where_the_mutex_has_gone() {
    same("yield_gone.c");
}

/// The argument: how many yields are put off. Where no view tells who runs, each is made at the release.
#[test]
fn yields_under_a_mutex() {
    let program = compile("yield.c");
    let plain = show(&Command::new(&program).arg("0").output().unwrap());
    assert_eq!(plain, "exit status: 0");
    let run =
        |argument, view| show(&preloaded(&program).arg(argument).env("WAKEFUL_VIEW", view).output().unwrap());
    assert_eq!(run("1", "none"), plain);
    for view in views().iter().filter(|view| **view != "none") {
        assert_eq!(run("2", view), plain, "view {view}");
    }
    fs::remove_file(program).unwrap();
}

/// The argument 0: each is made.
#[test]
fn yields_that_another_program_takes() {
    let program = compile("yield_given.c");
    let plain = show(&Command::new(&program).arg("0").output().unwrap());
    assert_eq!(plain, "exit status: 0");
    for view in views() {
        assert_eq!(
            show(&preloaded(&program).env("WAKEFUL_VIEW", view).output().unwrap()),
            plain,
            "view {view}"
        );
    }
    fs::remove_file(program).unwrap();
}

#[test]
fn a_limit_of_address_space_is_the_programs() {
    same("limited.c");
}

#[test]
fn keys() {
    same("keys.c");
}

#[test]
fn inherit() {
    same("inherit.c");
}

/// What a program pays that never waits for anybody: few page faults more than for a library that does
/// nothing, and no memory. The C library's functions are looked up when a thread is created.
///
/// COST: 9 or 10 more here, and 4 in the release, which has fewer checks. How many pages the kernel maps at
/// once depends on where the library lies and on how its file came into memory: another machine has had more
/// than this one. What the start calls outside its section costs about one each.
#[test]
fn a_start_is_cheap() {
    let program = compile("start.c");
    let empty = compile_with("empty.c", &["-shared", "-fPIC"]);
    let cost = |library: &Path| -> (u32, u32) {
        let one = || {
            let output = Command::new(&program).env("LD_PRELOAD", library).output().unwrap();
            let words = String::from_utf8(output.stdout).unwrap();
            let (faults, arena) = words.trim().split_once(' ').unwrap();
            (faults.parse().unwrap(), arena.parse().unwrap())
        };
        (0..20).map(|_| one()).min().unwrap()
    };
    let (empty, ours) = (cost(&empty), cost(library()));
    assert!(ours.0 <= empty.0 + 16, "{} page faults, with an empty library {}", ours.0, empty.0);
    assert_eq!(ours.1, empty.1, "memory is allocated at the start");
}

#[test]
fn nothing() {
    same("nothing.c");
}

/// Where nobody has to wait for long, no lock makes a system call.
#[test]
fn system_calls() {
    let program = compile("calls.c");
    for view in views() {
        let output = preloaded(&program).env("WAKEFUL_VIEW", view).output().unwrap();
        match output.status.code() {
            Some(0) => {}
            Some(77) => skipped(String::from_utf8_lossy(&output.stderr).trim()),
            _ => panic!("view {view}: {}", show(&output)),
        }
    }
    fs::remove_file(program).unwrap();
}

#[test]
fn barrier() {
    same("barrier.c");
}

/// Compiles `child.c` by a command that a package brings.
fn child(folder: &Path, name: &str, package: &str, command: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/child.c");
    let compiled = Command::new(command[0]).args(&command[1..]).arg("-o").args([&program, &source]).status();
    assert!(
        compiled.is_ok_and(|status| status.success()),
        "{command:?} compiles nothing: apt-get install {package}"
    );
    program
}

fn script(folder: &Path, name: &str, interpreter: &Path) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#! {}\n", interpreter.display())).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

/// Programs that cannot load the library run as without it, however they are started; and programs that can, behind them, are reached.
#[test]
fn exec() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("exec.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let says = "-DSAYS_WHO_IS_HERE";
    let plain = child(&folder, "glibc", "gcc", &["cc"]);
    let seen = child(&folder, "seen", "gcc", &["cc", says]);
    let fixed = child(&folder, "static", "libc6-dev", &["cc", "-static"]);
    let musl = child(&folder, "musl", "musl-tools", &["musl-gcc"]);
    let narrow = child(&folder, "narrow", "gcc-multilib", &["gcc", "-m32"]);
    let locked = folder.join("locked");
    fs::copy(&musl, &locked).unwrap();
    fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();

    let program = compile("exec.c");
    for target in [&plain, &fixed, &musl, &narrow, &script(&folder, "script", &musl)] {
        let run = |mut command: Command| show(&command.args([target, &locked]).output().unwrap());
        let without = run(Command::new(&program));
        assert!(without.ends_with("mappings left: 0\nexit status: 0"), "{without}");
        assert_eq!(without, run(preloaded(&program)), "{}", target.display());
    }
    // Each becomes the next; who cannot pass the library on ends the chain.
    for (chain, reached) in [
        (vec![&plain, &seen], "reached"),
        (vec![&plain, &fixed, &seen], "reached"),
        (vec![&plain, &fixed, &musl, &seen], "reached"),
        (vec![&plain, &musl, &fixed, &musl, &plain, &seen], "reached"),
        (vec![&plain, &narrow, &seen], "not reached"),
    ] {
        let mut command = preloaded(chain[0]);
        for next in &chain[1..] {
            command.arg("--").arg(next);
        }
        let said = show(&command.output().unwrap());
        assert_eq!(said, format!("{reached}\n\nexit status: 7"), "{chain:?}");
    }
    // The libraries of others stay. musl finds none of these.
    let mut command = Command::new(&plain);
    command.env("LD_PRELOAD", format!("/no/first.so {}:/no/last.so", library().display()));
    let said = command.arg("--").arg(&musl).args(["--", "/usr/bin/env"]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    let list = said.lines().find(|line| line.starts_with("LD_PRELOAD=")).unwrap();
    assert!(
        list.starts_with("LD_PRELOAD=/no/first.so:$ORIGIN/") && list.ends_with(".so:/no/last.so"),
        "{list}"
    );
    fs::remove_dir_all(folder).unwrap();
    fs::remove_file(program).unwrap();
}

/// A program that loads a library made of the same source, as without us.
fn same_with_plugin(name: &str) {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
    let status = Command::new("cc")
        .args(["-O2", "-g", "-pthread", "-Wall", "-Werror", "-DPLUGIN", "-fPIC", "-shared", "-o"])
        .args([&library, &source])
        .status()
        .unwrap();
    assert!(status.success(), "cc -shared {name}");
    let program = compile(name);
    let run = |command: &mut Command| show(&command.arg(&library).output().unwrap());
    let plain = run(&mut Command::new(&program));
    assert_eq!(plain, run(&mut preloaded(&program)));
    assert!(plain.ends_with("exit status: 0"), "{plain}");
    fs::remove_file(program).unwrap();
    fs::remove_file(library).unwrap();
}

/// A library that is loaded at run time, and whose constructor comes before anything of the program.
#[test]
fn timer() {
    same_with_plugin("timer.c");
}

#[test]
fn plugin() {
    same_with_plugin("plugin.c");
}

#[test]
fn threads_are_cancelled_while_a_library_is_loaded() {
    same_with_plugin("unwind.c");
}

/// A start pays for each library. The unwinder is loaded when somebody unwinds, as without us.
#[test]
fn we_need_the_c_library_only() {
    let output = preloaded(Path::new("cat")).arg("/proc/self/maps").output().unwrap();
    let maps = String::from_utf8(output.stdout).unwrap();
    let found = |part: &str| maps.lines().any(|line| line.contains(part));
    assert!(found("libwakeful_preload.so") && !found("libgcc_s"), "{maps}");
}

/// Who can call the OpenMP runtime gets it, also from a program that cannot, and does not have it.
#[test]
fn openmp_is_for_programs_that_can_load_it() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("openmp.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let runtime = folder.join("libgomp_wakeful.so");
    let mut build = Command::new("cc");
    build.args(["-shared", "-fPIC", "-xc", "/dev/null", "-o"]).arg(&runtime);
    assert!(build.status().unwrap().success());
    let says = "-DSAYS_WHAT_IS_PRELOADED";
    let closed = child(&folder, "closed", "gcc", &["cc", says]);
    let open = child(&folder, "open", "gcc", &["cc", says, "-DSAYS_WHO_IS_HERE"]);
    let fixed = child(&folder, "static", "libc6-dev", &["cc", "-static"]);
    let musl = child(&folder, "musl", "musl-tools", &["musl-gcc"]);
    let (ours, theirs) = (library().display().to_string(), runtime.display().to_string());
    let both = format!("{theirs}:{ours}");
    let said = |first: &str, wanted: bool, chain: &[&PathBuf]| {
        let mut command = Command::new(chain[0]);
        command.env("LD_PRELOAD", first).env_remove("WAKEFUL_OPENMP");
        if wanted {
            command.env("WAKEFUL_OPENMP", &theirs);
        }
        for next in &chain[1..] {
            command.arg("--").arg(next);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .find_map(|line| line.strip_prefix("preloaded: ").map(String::from))
            .unwrap_or_else(|| show(&output))
    };
    for first in [&ours, &both] {
        assert_eq!(said(first, true, &[&closed, &open]), both);
        assert_eq!(said(first, true, &[&open, &closed]), ours);
        assert_eq!(said(first, true, &[&open, &closed, &open]), both);
        assert_eq!(said(first, true, &[&open, &script(&folder, "script", &closed)]), ours);
        assert_eq!(said(first, true, &[&closed, &script(&folder, "script", &open)]), both);
        // Nobody wants another one: what is there stays.
        assert_eq!(&said(first, false, &[&closed, &open]), first);
        assert_eq!(&said(first, false, &[&open, &closed]), first);
        // Through programs that cannot load it.
        for between in [&fixed, &musl] {
            let last = said(first, true, &[&closed, between, &open]);
            let [one, other] = last.split(':').collect::<Vec<_>>()[..] else { panic!("{last}") };
            assert!(one.starts_with("$ORIGIN/") && one.ends_with(&theirs), "{last}");
            assert!(other.starts_with("$ORIGIN/") && other.ends_with(&ours), "{last}");
        }
    }
    // A library of others may call it.
    let others = format!("/no/such.so:{both}");
    assert_eq!(said(&others, true, &[&open, &closed]), others);
    assert_eq!(said(&format!("/no/such.so:{ours}"), true, &[&open, &closed]), others);
    fs::remove_dir_all(folder).unwrap();
}

/// Every reader-writer lock of the catalogue that can be chosen; those that cannot, and names that are none, mean the default. None
/// breaks a program that relies on what the C library's default prefers.
#[test]
fn every_rwlock() {
    for source in ["cxx17.cc", "rw_prefer.c"] {
        let program = compile(source);
        let plain = show(&Command::new(&program).arg("1").output().unwrap());
        for name in catalog::RWLOCKS.iter().map(|entry| entry.name).chain(["", "nonsense"]) {
            let ours = show(&preloaded(&program).arg("1").env("WAKEFUL_RWLOCK", name).output().unwrap());
            assert_eq!(plain, ours, "{source}, {name}");
        }
        fs::remove_file(program).unwrap();
    }
}

/// Every barrier of the catalogue, and names that are none, which mean the default. Few rounds: those that
/// spin, whoever runs, cost a slice for each thread that has no processor.
#[test]
fn every_barrier() {
    let program = compile_with("barrier.c", &["-DNAMED"]);
    let plain = show(&Command::new(&program).arg("1").output().unwrap());
    for name in catalog::BARRIERS.iter().map(|entry| entry.name).chain(["", "nonsense"]) {
        let ours = show(&preloaded(&program).arg("1").env("WAKEFUL_BARRIER", name).output().unwrap());
        assert_eq!(plain, ours, "{name}");
    }
    fs::remove_file(program).unwrap();
}

/// They share mappings, of which a program may have 65,530. One that is initialised again has its own place.
#[test]
fn many_named_barriers() {
    let program = compile("barriers.c");
    let plain = show(&Command::new(&program).output().unwrap());
    assert!(plain.starts_with("wrong 0, turns 50 and 50, mappings few 1"), "{plain}");
    for name in catalog::BARRIERS.iter().map(|entry| entry.name) {
        let ours = show(&preloaded(&program).env("WAKEFUL_BARRIER", name).output().unwrap());
        assert_eq!(plain, ours, "{name}");
    }
    fs::remove_file(program).unwrap();
}

/// An algorithm that is unknown, or does not fit, means the default, in silence.
#[test]
fn unknown_lock() {
    let program = compile("cxx.cc");
    let plain = show(&Command::new(&program).output().unwrap());
    for name in ["", "nonsense", "wakeful"] {
        assert_eq!(plain, show(&preloaded(&program).env("WAKEFUL_LOCK", name).output().unwrap()), "{name}");
    }
    fs::remove_file(program).unwrap();
}

/// The privileged view is loaded by the first thread that is created, however that is done, and not before. Where it is not to be had
/// nothing is loaded. An empty choice of view is none.
#[test]
fn view_is_loaded_with_the_first_thread() {
    let program = compile("lazy.c");
    let output = |view: &str, how: &str| {
        show(&preloaded(&program).env("WAKEFUL_VIEW", view).arg(how).output().unwrap())
    };
    let nothing = |view: &str| format!("before 0\nerrno 77\nafter 0\nview {view}\nexit status: 0");
    let best = output("", "");
    if best == nothing("perf") || best == nothing("none") {
        assert!(!cfg!(feature = "bpf") || !root(), "root has the bpf view: {best}");
    } else {
        assert_eq!(best, "before 0\nerrno 77\nafter 3\nview bpf\nexit status: 0");
    }
    for how in ["c11", "fork"] {
        assert_eq!(best, output("auto", how), "{how}");
    }
    assert_eq!(output("none", ""), nothing("none"));
    assert!([nothing("perf"), nothing("none")].contains(&output("perf", "")));
    fs::remove_file(program).unwrap();
}

fn root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Every lock of the catalogue that can be chosen carries the C++ program; those that cannot fall back to the default. In few
/// rounds, because twelve threads cost a lock that hands itself to threads that do not run (ticket-spin) a time slice for each turn.
#[test]
fn every_lock() {
    let program = compile("cxx.cc");
    let rounds = "20";
    let plain = show(&Command::new(&program).arg(rounds).output().unwrap());
    for entry in catalog::MUTEXES {
        let ours = show(&preloaded(&program).arg(rounds).env("WAKEFUL_LOCK", entry.name).output().unwrap());
        assert_eq!(plain, ours, "{}", entry.name);
    }
    fs::remove_file(program).unwrap();
}

fn shared_memory() -> Vec<String> {
    let mut names = Vec::new();
    for folder in ["/dev/shm", "/tmp"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.contains("wakeful") {
                names.push(name);
            }
        }
    }
    names.sort();
    names
}

/// kill -9 at 200 moments leaves neither a process nor a file of ours.
#[test]
fn killed() {
    let program = compile("killed.c");
    let before = shared_memory();
    for round in 0..200u64 {
        let mut child = preloaded(&program).stdout(Stdio::null()).spawn().unwrap();
        // Moments spread over start-up and the first milliseconds of contention.
        std::thread::sleep(Duration::from_micros(round * 7919 % 15_000));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "round {round}: {status}"
        );
    }
    assert_eq!(before, shared_memory());
    fs::remove_file(program).unwrap();
}
