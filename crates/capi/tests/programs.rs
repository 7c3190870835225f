// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header is the source's, and C and C++ programs that use it run.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn header_is_what_the_source_says() {
    let config = cbindgen::Config::from_file(Path::new(HERE).join("cbindgen.toml")).unwrap();
    let mut header = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(Path::new(HERE).join("src/lib.rs"))
        .generate()
        .unwrap()
        .write(&mut header);
    let header = String::from_utf8(header).unwrap().replace("# Safety\n", "What the caller promises:\n");
    let file = Path::new(HERE).join("include/wakeful.h");
    if std::env::var_os("WAKEFUL_BLESS").is_some() {
        std::fs::write(&file, &header).unwrap();
    }
    assert_eq!(
        header,
        std::fs::read_to_string(&file).unwrap(),
        "WAKEFUL_BLESS=1 writes {} again",
        file.display()
    );
}

/// The folder with the libraries, of the profile that the tests are built in. Cargo does not build them for
/// tests.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
        let name = folder.file_name().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--package", "wakeful-capi", "--package", "wakeful-preload", "--target-dir"]);
        build.arg(folder.parent().unwrap());
        build.arg("--profile").arg(if name == "debug" { OsStr::new("dev") } else { name });
        assert!(build.status().unwrap().success(), "cargo build of the library failed");
        // A program asks for it by the name that packages give it.
        let name = folder.join("libwakeful.so.1");
        match std::os::unix::fs::symlink("libwakeful.so", &name) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("{}: {error}", name.display()),
            _ => folder,
        }
    })
}

fn compile(compiler: &str, name: &str, link: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{compiler}{}", link.concat()));
    let folder = folder();
    let status = Command::new(compiler)
        // C++ takes several seconds with -O2, for tests that the optimizer says nothing to.
        .arg(if name.ends_with(".c") { "-O2" } else { "-O0" })
        .args(["-Wall", "-Wextra", "-Wredundant-decls", "-Werror", "-pthread", "-I"])
        .arg(Path::new(HERE).join("include"))
        .arg("-o")
        .args([&program, &Path::new(HERE).join("tests/programs").join(name)])
        .arg(format!("-L{}", folder.display()))
        .args(link)
        .status()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; the tests need gcc, g++ and clang 19"));
    assert!(status.success(), "{compiler} {name}");
    program
}

fn run(program: &Path) {
    let output = Command::new(program).env("LD_LIBRARY_PATH", folder()).output().unwrap();
    assert!(
        output.status.success(),
        "{program:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn c_programs_run_with_the_shared_library() {
    ["loops.c", "fibers.c", "delegated.c", "numa.c", "importance.c"]
        .iter()
        .for_each(|name| run(&compile("gcc", name, &["-lwakeful"])));
}

#[test]
fn c_programs_run_with_the_static_library() {
    let library = ["-Wl,-Bstatic", "-lwakeful", "-Wl,-Bdynamic", "-lm"];
    ["loops.c", "fibers.c", "delegated.c", "numa.c", "importance.c"]
        .iter()
        .for_each(|name| run(&compile("gcc", name, &library)));
}

/// The compiler's own probes are off: each frame is longer than a page, and shorter than the guard.
#[test]
fn an_overflow_in_long_frames_ends_the_program() {
    let program = compile("gcc", "fibers.c", &["-fno-stack-clash-protection", "-lwakeful"]);
    let output = Command::new(program).arg("overflow").env("LD_LIBRARY_PATH", folder()).output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", output.status);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("fiber 'deep' has overflowed its stack"), "{error}");
}

/// `exit` and a return from main wait for no fiber, in whatever state those are. A fiber that ends its kernel
/// thread would take with it what is pinned there: that ends the program, and the fiber is named.
#[test]
fn a_program_ends_with_fibers_in_each_state() {
    let program = compile("gcc", "ends.c", &["-lwakeful"]);
    let ended = |how: &str| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&program).arg(how).env("LD_LIBRARY_PATH", folder());
        let output = command.output().unwrap();
        let talk = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status, talk)
    };
    for how in ["return", "exit"] {
        let (status, talk) = ended(how);
        assert_eq!((status.code(), &*talk[0], &*talk[1]), (Some(7), "ended\n", ""), "{how}");
    }
    for how in ["pthread_exit", "pthread_cancel"] {
        let (status, talk) = ended(how);
        // What `timeout` says of a child that a signal ended.
        let by = status.code().map_or(status.signal(), |code| Some(code - 128));
        assert_eq!(by, Some(libc::SIGABRT), "{how}: {talk:?}");
        assert!(talk[1].contains("fiber 'leaver' has ended its kernel thread"), "{how}: {talk:?}");
    }
}

#[test]
fn a_library_that_is_closed_stays_with_its_fibers() {
    run(&compile("gcc", "unloads.c", &[]));
}

#[test]
fn cpp_takes_the_header() {
    run(&compile("g++", "header.cc", &["-lwakeful"]));
}

#[test]
fn cpp_says_how_much_a_thread_matters() {
    run(&compile("g++", "importance.cc", &["-std=c++17", "-pedantic", "-lwakeful"]));
}

fn threads(compiler: &str) {
    run(&compile(compiler, "threads.cc", &["-std=c++17", "-pedantic", "-lwakeful"]));
}

#[test]
fn cpp_has_threads() {
    threads("g++");
}

/// clang is there where the gate runs: the crate `kmp` needs it.
#[test]
fn cpp_has_threads_by_clang() {
    threads("clang++-19");
}

/// The standard's names and helpers, and what C++20 adds.
fn standard(compiler: &str) {
    for version in ["-std=c++17", "-std=c++20"] {
        run(&compile(compiler, "standard.cc", &[version, "-Wpedantic", "-lwakeful"]));
    }
}

#[test]
fn cpp_has_the_standards_locks() {
    standard("g++");
}

#[test]
fn cpp_has_the_standards_locks_by_clang() {
    standard("clang++-19");
}

/// Under the interposer fibers are parked at the C library's locks. A wait that stops a carrier is a hang.
#[test]
fn fibers_wait_at_the_c_librarys_locks() {
    let programs = [("gcc", "parked.c"), ("g++", "parked.cc")]
        .map(|(compiler, name)| compile(compiler, name, &["-lwakeful"]));
    for program in programs {
        for view in ["perf", "none"] {
            let mut command = Command::new("timeout");
            command.arg("100").arg(&program).env("LD_LIBRARY_PATH", folder()).env("WAKEFUL_VIEW", view);
            let output = command.env("LD_PRELOAD", folder().join("libwakeful_preload.so")).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program:?}, view {view}: {}\n{error}", output.status);
        }
    }
}

/// Also while it unwinds it is the one who has locked it.
#[test]
fn a_cancelled_fiber_releases_a_recursive_mutex() {
    interposed("a_cancelled_fiber_releases_a_recursive_mutex", recursive::releases);
}

/// Runs this in a process of the test's own, under the interposer.
fn interposed(test: &str, body: impl FnOnce()) {
    const CHILD: &str = "WAKEFUL_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let mut command = Command::new("timeout");
    command.arg("100").arg(std::env::current_exe().unwrap()).env(CHILD, "1");
    command.args(["--exact", "--nocapture", test]);
    let output = command.env("LD_PRELOAD", folder().join("libwakeful_preload.so")).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{error}", output.status);
}

/// The crate's own informing locks see what the interposer's scheduler sees. A fiber has none.
#[test]
fn importance_is_also_the_crates_own_under_the_interposer() {
    use linux::Linux;
    use platform::{Platform, Priority};
    use rust::importance::{self, Importance};

    interposed("importance_is_also_the_crates_own_under_the_interposer", || {
        let own = || Linux::priority(Linux::current());
        assert_eq!(importance::set(Importance::Urgent), Importance::Normal);
        assert_eq!(own(), Priority::LockImmediateWaiter);
        let fiber = rust::thread::spawn(|| {
            importance::set(Importance::Urgent);
            importance::set(Importance::Normal)
        });
        assert_eq!(fiber.join().unwrap(), Importance::Normal);
        assert_eq!(importance::set(Importance::Normal), Importance::Urgent);
        assert_eq!(own(), Priority::Running);
    });
}

mod recursive {
    use std::cell::UnsafeCell;
    use std::mem::MaybeUninit;
    use std::sync::Arc;
    use std::time::Duration;

    use rust::thread::{self, Cancelled, Config, Runtime};

    struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

    // SAFETY: a mutex.
    unsafe impl Sync for Mutex {}
    // SAFETY: as above; it is in an `Arc`, and does not move.
    unsafe impl Send for Mutex {}

    impl Mutex {
        fn new(kind: i32) -> Arc<Self> {
            let new = Arc::new(Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
            let mut attributes = MaybeUninit::uninit();
            // SAFETY: places that live.
            unsafe {
                libc::pthread_mutexattr_init(attributes.as_mut_ptr());
                libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind);
                assert_eq!(libc::pthread_mutex_init(new.0.get(), attributes.as_ptr()), 0);
            }
            new
        }

        fn lock(&self) -> Guard<'_> {
            // SAFETY: a mutex.
            assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
            Guard(self)
        }
    }

    struct Guard<'a>(&'a Mutex);

    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            // SAFETY: the caller has locked it.
            let result = unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
            if result != 0 {
                eprintln!("unlock: {result}");
                std::process::abort();
            }
        }
    }

    /// Locks it while it unwinds.
    struct Locks<'a>(&'a Mutex);

    impl Drop for Locks<'_> {
        fn drop(&mut self) {
            drop(self.0.lock());
        }
    }

    pub fn releases() {
        let config = Config { processors: Some(1), ..Config::default() };
        Runtime::start(config).unwrap().run(|| {
            for kind in [libc::PTHREAD_MUTEX_RECURSIVE, libc::PTHREAD_MUTEX_ERRORCHECK] {
                let (mutex, other) = (Mutex::new(kind), Mutex::new(kind));
                let (its, too) = (mutex.clone(), other.clone());
                let fiber = thread::spawn(move || {
                    let _locks = Locks(&too);
                    let _held = its.lock();
                    let _again = (kind == libc::PTHREAD_MUTEX_RECURSIVE).then(|| its.lock());
                    loop {
                        thread::sleep(Duration::from_secs(1000));
                    }
                });
                thread::yield_now();
                fiber.cancel();
                assert!(fiber.join().is_err_and(|payload| payload.is::<Cancelled>()));
                drop((mutex.lock(), other.lock()));
            }
        });
    }
}

fn delegates(compiler: &str) {
    let program = compile(compiler, "delegated.cc", &["-std=c++17", "-pedantic", "-lwakeful"]);
    run(&program);
    ends_with_a_section(&program);
}

/// A section must not end its thread, a client's or a server's: the program ends, and does not hang.
fn ends_with_a_section(program: &Path) {
    for arguments in [&["exit"][..], &["exit", "there"]] {
        let output = Command::new(program).args(arguments).env("LD_LIBRARY_PATH", folder()).output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{arguments:?}: {}", output.status);
    }
}

#[test]
fn a_section_in_c_that_ends_its_thread_ends_the_program() {
    ["gcc", "clang-19"]
        .iter()
        .for_each(|compiler| ends_with_a_section(&compile(compiler, "delegated.c", &["-lwakeful"])));
}

#[test]
fn cpp_delegates() {
    delegates("g++");
}

#[test]
fn cpp_delegates_by_clang() {
    delegates("clang++-19");
}

/// C and C++ code of the pages. Where there is no `main`, what stands after the last
/// empty line of a block is in it.
#[test]
fn what_the_pages_show_compiles() {
    let docs = Path::new(HERE).join("../../docs");
    let mut seen = 0;
    for page in ["use.md", "threads.md"] {
        let text = std::fs::read_to_string(docs.join(page)).unwrap();
        for (index, block) in text.split("```").skip(1).step_by(2).enumerate() {
            let (kind, code) = block.split_once('\n').unwrap();
            let (compiler, standard, header) = match kind {
                "c" => ("gcc", "-std=c17", "wakeful.h"),
                "cpp" => ("g++", "-std=c++17", "wakeful.hpp"),
                _ => continue,
            };
            let (file, body) = code.rsplit_once("\n\n").unwrap_or(("", code));
            // The pages' array.
            let head = format!("#include <stdexcept>\n#include <{header}>\ndouble numbers[1000];\n");
            let head = if kind == "c" { head.replace("#include <stdexcept>\n", "") } else { head };
            let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{page}.{index}.{kind}"));
            let code_in_main = match code.contains("int main(") {
                true => format!("{head}{code}"),
                false => format!("{head}{file}\nint main() {{\n{body}\n}}\n"),
            };
            std::fs::write(&program, code_in_main).unwrap();
            let mut command = Command::new(compiler);
            command.args([standard, "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-fsyntax-only"]);
            let output =
                command.arg("-I").arg(Path::new(HERE).join("include")).arg(program).output().unwrap();
            assert!(output.status.success(), "{page}: {code}{}", String::from_utf8_lossy(&output.stderr));
            seen += 1;
        }
    }
    assert!(seen > 2, "{seen} blocks of C and C++: are they marked in another way?");
}
