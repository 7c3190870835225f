// SPDX-License-Identifier: MIT OR Apache-2.0
//! `run --cpus`, `status` and `set` with a server in this process, which sets masks; `wakefuld` and control groups are the business of its own crate.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use daemon::config::{By, Config};
use daemon::{Server, kernel};

struct Place(tempfile::TempDir);

impl Place {
    /// A server until the test program ends.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let (folder, listener) =
            (place.0.path().join("partitions"), kernel::listen(&place.socket()).unwrap());
        std::fs::create_dir(&folder).unwrap();
        let mut config = Config::default();
        config.enforcement.by = By::Affinity;
        config.access.processors = 1.0;
        let serve =
            move || Server::start(kernel::Linux::new().unwrap(), config, listener, &folder).unwrap().run();
        std::thread::spawn(serve);
        place
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("socket")
    }

    fn wakeful(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wakeful"));
        command.args(arguments).env("WAKEFUL_SERVER", self.socket()).stdin(Stdio::null());
        command
    }

    fn text(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.wakeful(arguments).output().unwrap();
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As /proc says it.
fn allowed(process: u32) -> String {
    let status =
        std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    line.trim().to_string()
}

#[test]
fn programs_with_processors_of_their_own() {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        println!("skipped: one processor cannot be divided");
        return;
    }
    let place = Place::new();
    eventually("the server answers", || place.wakeful(&["status"]).output().unwrap().status.success());
    assert!(place.text(&["status"]).contains("no program has asked"));
    // nproc counts what sched_getaffinity(2) says.
    assert_eq!(place.text(&["run", "--cpus", "1", "--priority", "5", "--", "nproc"]), "1\n");
    // Those that ask the C library, which counts the machine's otherwise.
    assert_eq!(place.text(&["run", "--cpus", "1", "--", "getconf", "_NPROCESSORS_ONLN"]), "1\n");

    let program = place.wakeful(&["run", "--cpus", "1", "--", "sleep", "1000"]).spawn().unwrap();
    let (id, program) = (program.id(), Ended(program));
    let number = id.to_string();
    // When it is there, it has it: `run` becomes the program only then.
    let name = || std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap();
    eventually("it runs", || name() == "sleep\n");
    let own = allowed(id);
    assert!(own.parse::<u32>().is_ok(), "{own}");
    let status = place.text(&["status"]);
    let line = status.lines().find(|line| line.contains(&number)).unwrap_or_else(|| panic!("{status}"));
    assert!(line.contains("sleep") && line.ends_with(&format!("1  {own}")), "{status}");
    assert!(status.contains("kept by affinity"), "{status}");
    let json = place.text(&["status", "--format", "json"]);
    assert!(json.contains(&format!("\"process\":{number}")) && json.contains("\"holds\":1"), "{json}");
    assert!(place.text(&["status", "--format", "openmetrics"]).contains("\nwakeful_granted_processors 1\n"));

    assert!(place.text(&["set", &number, "--spare", "0"]).contains("has 1 processor"));
    assert!(place.text(&["set", &number, "--spare", "1"]).contains("none to spare"));
    assert!(place.text(&["set", &number, "--leave"]).contains("default partition"));
    assert_ne!(allowed(id), own);
    let asked = place.text(&["set", &number, "--cpus", "1"]);
    assert!(asked.contains(&format!("{number} has 1 processor ({})", allowed(id))), "{asked}");
    drop(program);
    eventually("the server knows", || place.text(&["status"]).contains("no program has asked"));
    let Output { status, stderr, .. } = place.wakeful(&["set", &number, "--leave"]).output().unwrap();
    assert_eq!(status.code(), Some(125), "{}", String::from_utf8_lossy(&stderr));
}
