// SPDX-License-Identifier: MIT OR Apache-2.0
//! Is a process in a control group that somebody has frozen? Its state does not say so.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Where control groups are mounted: those of version two alone, or next to those of version one.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// BOUND: from one look for a process's groups to the next. Their files stay open meanwhile.
const FIND_NS: u64 = 50_000_000;

/// Lines of which one says so. A group is *freezing* for as long as one of its threads sleeps where it cannot
/// be frozen. So does a parent that begins to wait just then for a child of vfork(2), until that goes on.
type Words = &'static [&'static str];

/// The groups of a process.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// What says so, and the lines that do.
    files: Vec<(File, Words)>,
    found_ns: Option<u64>,
}

impl Groups {
    /// Is one of them frozen, now? A container that hides its groups says no.
    pub fn are_frozen(&mut self, process: u32, now_ns: u64) -> bool {
        if self.found_ns.is_none_or(|found_ns| found_ns + FIND_NS <= now_ns) {
            let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
            let open = |(path, words): (String, _)| Some((File::open(path).ok()?, words));
            self.files = groups.lines().flat_map(files).filter_map(open).collect();
            self.found_ns = Some(now_ns);
        }
        self.files.iter().any(|(file, words)| says(file, words))
    }
}

fn says(file: &File, words: &[&str]) -> bool {
    let mut text = [0; 256];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    text[..length].split(|byte| *byte == b'\n').any(|line| words.iter().any(|word| line == word.as_bytes()))
}

/// The files that may say so, of a line of `/proc/PID/cgroup`, and the lines that do.
fn files(group: &str) -> Vec<(String, Words)> {
    let mut parts = group.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let path = path.trim_end_matches('/');
    if controllers.is_empty() {
        return UNIFIED.map(|mount| (format!("{mount}{path}/cgroup.events"), &["frozen 1"] as Words)).into();
    }
    if controllers.split(',').any(|name| name == "freezer") {
        return vec![(format!("{FREEZER}{path}/freezer.state"), &["FROZEN", "FREEZING"])];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_asked() {
        let state = |path: &str, words: Words| (path.to_string(), words);
        let events = ["/sys/fs/cgroup/a/b/cgroup.events", "/sys/fs/cgroup/unified/a/b/cgroup.events"];
        assert_eq!(files("0::/a/b"), events.map(|path| state(path, &["frozen 1"])));
        assert_eq!(
            files("8:freezer:/"),
            [state("/sys/fs/cgroup/freezer/freezer.state", &["FROZEN", "FREEZING"])]
        );
        assert!(["", "0", "7:cpu,cpuacct:/a"].into_iter().all(|line| files(line).is_empty()));
        let path = "/proc/self/comm";
        let (text, file) = (fs::read_to_string(path).unwrap(), File::open(path).unwrap());
        // The file stays open, and is read again.
        assert!(
            says(&file, &[text.trim_end()]) && says(&file, &[text.trim_end()]) && !says(&file, &["FROZEN"])
        );
        assert!(!Groups::default().are_frozen(std::process::id(), 0));
    }
}
