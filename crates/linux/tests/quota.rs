// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of processors under a real affinity mask and a real quota. One process a case, because the number is a process's.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use linux::{Linux, Processors};
use platform::Platform;

const CHILD: &str = "WAKEFUL_TEST_QUOTA_CHILD";

/// A file of a control group, and what the child is to write there after its first look.
const CHANGE: &str = "WAKEFUL_TEST_QUOTA_CHANGE";

/// Not a test of its own: tells what a child of the others sees.
#[test]
fn child_tells() {
    if std::env::var_os(CHILD).is_some() {
        let seen = Processors::look();
        println!("seen: {} {} {:?}", seen.count(), seen.affinity, seen.quota_milli);
        let before = Linux::processors();
        if let Ok(change) = std::env::var(CHANGE) {
            let (file, value) = change.split_once('=').unwrap();
            fs::write(file, value).unwrap();
            Linux::refresh_processors(Some(Linux::now_ns() + 3_000_000_000));
            println!("changed: {before} {} {}", Linux::processors(), Linux::partition_generation());
        }
    }
}

/// What a child sees in which `before` ran ahead of everything.
fn child(before: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static) -> String {
    let text = output(before, "");
    let seen = text.split("seen: ").nth(1).and_then(|rest| rest.lines().next());
    seen.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// What it prints; `change` as for [`CHANGE`].
fn output(before: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static, change: &str) -> String {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "child_tells", "--nocapture"]).env(CHILD, "1").env_remove(CHANGE);
    if !change.is_empty() {
        command.env(CHANGE, change);
    }
    // SAFETY: the closures make system calls and allocate little, in a child forked by a test.
    let output = unsafe { command.pre_exec(before) }.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn affinity_counts() {
    let seen = child(|| {
        // SAFETY: an all-zero cpu_set_t is valid.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut set);
            if libc::sched_setaffinity(0, size_of_val(&set), &set) != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    });
    assert!(seen.starts_with("1 1 "), "{seen}");
}

/// A control group that goes away with its last child.
struct Group(PathBuf);

impl Group {
    fn new(parent: &Path, name: &str) -> Self {
        let path = parent.join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap();
    }

    fn child(&self) -> String {
        let procs = self.0.join("cgroup.procs");
        child(move || fs::write(&procs, "0"))
    }

    /// What a child sees whose quota changes while it runs.
    fn changed(&self, file: &str, value: &str) -> String {
        let procs = self.0.join("cgroup.procs");
        let change = format!("{}={value}", self.0.join(file).display());
        let text = output(move || fs::write(&procs, "0"), &change);
        text.split("changed: ")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .unwrap_or_else(|| panic!("{text}"))
            .to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The children are gone, but the kernel may need a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn root_quota_of_any_group_on_the_path_counts() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        skipped("needs root");
        return;
    }
    let all = Processors::look().affinity;
    if all < 2 {
        skipped("needs two processors");
        return;
    }
    let name = format!("wakeful-test-{}", std::process::id());
    let v1 = Path::new("/sys/fs/cgroup/cpu");
    let v2 = Path::new("/sys/fs/cgroup");
    let (outer, limits): (_, [(&str, &str); 4]) = if v1.join("cpu.cfs_quota_us").exists()
        || v1.join("cgroup.procs").exists()
    {
        let file = "cpu.cfs_quota_us";
        (Group::new(v1, &name), [(file, "-1"), (file, "40000"), (file, "100001"), (file, "150000")])
    } else if fs::read_to_string(v2.join("cgroup.subtree_control")).is_ok_and(|text| text.contains("cpu")) {
        let file = "cpu.max";
        let outer = Group::new(v2, &name);
        outer.set("cgroup.subtree_control", "+cpu");
        (outer, [(file, "max"), (file, "40000"), (file, "100001"), (file, "150000")])
    } else {
        skipped("no CPU controller is mounted");
        return;
    };
    let inner = Group::new(&outer.0, "in ner");
    let mut unlimited = inner.child();
    let [none, one, two, more] = limits;
    assert!(unlimited.starts_with(&format!("{all} {all} ")), "{unlimited}");
    inner.set(one.0, one.1);
    assert_eq!(inner.child(), format!("1 {all} Some(400)"));
    inner.set(two.0, two.1);
    assert_eq!(inner.child(), format!("2 {all} Some(1001)"), "rounded up");
    inner.set(none.0, none.1);
    unlimited = inner.child();
    assert!(unlimited.starts_with(&format!("{all} ")), "{unlimited}");
    outer.set(one.0, one.1);
    assert_eq!(inner.child(), format!("1 {all} Some(400)"), "the group above");
    outer.set(more.0, more.1);
    assert_eq!(inner.child(), format!("2 {all} Some(1500)"));
    assert_eq!(inner.changed(one.0, one.1), "2 1 1", "less while it runs");
    outer.set(none.0, none.1);
    assert_eq!(inner.changed(none.0, none.1), format!("1 {all} 1"), "more while it runs");
}

/// Says so on the terminal even though the harness keeps what a test prints.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
