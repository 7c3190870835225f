// SPDX-License-Identifier: MIT OR Apache-2.0
//! Is a process in a control group that somebody has frozen? Its state does not say so.

use std::fs;

/// Where control groups are mounted: those of version two alone, or next to those of version one.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// Is it, now? A container that hides its groups says no.
pub(crate) fn is_frozen(process: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let has = |(file, word): (String, &str)| {
        fs::read_to_string(file).is_ok_and(|text| text.lines().any(|line| line == word))
    };
    groups.lines().flat_map(files).any(has)
}

/// The files that may say so, of a line of `/proc/PID/cgroup`, and the line that does.
fn files(group: &str) -> Vec<(String, &'static str)> {
    let mut parts = group.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let path = path.trim_end_matches('/');
    if controllers.is_empty() {
        return UNIFIED.map(|mount| (format!("{mount}{path}/cgroup.events"), "frozen 1")).into();
    }
    if controllers.split(',').any(|name| name == "freezer") {
        return vec![(format!("{FREEZER}{path}/freezer.state"), "FROZEN")];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_asked() {
        let state = |path: &str, word| (path.to_string(), word);
        let events = ["/sys/fs/cgroup/a/b/cgroup.events", "/sys/fs/cgroup/unified/a/b/cgroup.events"];
        assert_eq!(files("0::/a/b"), events.map(|path| state(path, "frozen 1")));
        assert_eq!(files("8:freezer:/"), [state("/sys/fs/cgroup/freezer/freezer.state", "FROZEN")]);
        assert!(["", "0", "7:cpu,cpuacct:/a"].into_iter().all(|line| files(line).is_empty()));
        assert!(!is_frozen(std::process::id()));
    }
}
