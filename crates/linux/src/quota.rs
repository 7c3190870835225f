// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU quota of this process's control group and every group above it: cgroup v2's `cpu.max`, v1's `cpu.cfs_quota_us`
//! by `cpu.cfs_period_us`. The least one on the path holds.
//!
//! `/proc/self/cgroup` names our group, `/proc/self/mountinfo` says where the groups are mounted. All is read by system calls into
//! a [`Room`] that the caller provides: nothing is allocated, and little stack is used.
//!
//! The kernel hands a quota out by periods, usually of 100 ms. A group that has used it up does not run until the period ends: the group
//! is *throttled*. `cpu.stat` counts the periods in which that happened.

use core::ffi::CStr;

/// A path with its end, for the kernel.
struct Path {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl Path {
    const ROOM: usize = 1024;

    const fn new() -> Self {
        Self { bytes: [0; Self::ROOM], length: 0 }
    }

    /// Becomes this text; false if there is no room.
    fn set(&mut self, text: &[u8]) -> bool {
        self.length = 0;
        self.push(text)
    }

    /// Appends; false if there is no room.
    fn push(&mut self, text: &[u8]) -> bool {
        let end = self.length + text.len();
        if end >= Self::ROOM {
            return false;
        }
        self.bytes[self.length..end].copy_from_slice(text);
        self.bytes[end] = 0;
        self.length = end;
        true
    }

    fn truncate(&mut self, length: usize) {
        self.length = length;
        self.bytes[length] = 0;
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Calls `each` with the path of `name` in this directory.
    fn with<T>(&mut self, name: &[u8], each: impl FnOnce(&CStr) -> Option<T>) -> Option<T> {
        let length = self.length;
        let result =
            if self.push(name) { CStr::from_bytes_until_nul(&self.bytes).ok().and_then(each) } else { None };
        self.truncate(length);
        result
    }
}

/// Where the lines of a file are read.
type Buffer = [u8; 1024];
const EMPTY: Buffer = [0; 1024];

/// Calls `each` with each line of a file, until it returns something. A line that does not fit into the buffer is passed over.
fn lines<T>(buffer: &mut Buffer, file: &CStr, mut each: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    // System calls and not the C library's functions, which are cancellation points: no thread may end inside a lock operation.
    // SAFETY: a C string.
    let fd = unsafe {
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, file.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)
    };
    if fd < 0 {
        return None;
    }
    let (mut filled, mut passing_over) = (0, false);
    let result = loop {
        let room = &mut buffer[filled..];
        // SAFETY: the kernel writes at most what fits.
        let got = unsafe { libc::syscall(libc::SYS_read, fd, room.as_mut_ptr(), room.len()) };
        if got <= 0 {
            break if filled > 0 && !passing_over { each(&buffer[..filled]) } else { None };
        }
        filled += got as usize;
        let (mut start, mut found) = (0, None);
        while let Some(length) = buffer[start..filled].iter().position(|&byte| byte == b'\n') {
            if !core::mem::take(&mut passing_over) {
                found = each(&buffer[start..start + length]);
            }
            start += length + 1;
            if found.is_some() {
                break;
            }
        }
        if found.is_some() {
            break found;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
        if filled == buffer.len() {
            (filled, passing_over) = (0, true);
        }
    };
    // SAFETY: the descriptor is ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
    result
}

/// The two layouts of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A line of `/proc/self/cgroup`: the path of the group in which the CPU controller of this version puts us.
fn group(line: &[u8], version: Version) -> Option<&[u8]> {
    let mut parts = line.splitn(3, |&byte| byte == b':');
    let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let ours = match version {
        Version::Two => id == b"0" && controllers.is_empty(),
        Version::One => controllers.split(|&byte| byte == b',').any(|name| name == b"cpu"),
    };
    ours.then_some(path)
}

/// A line of `/proc/self/mountinfo`: root and mount point, both escaped, if the CPU controller of this version is mounted there.
fn mount(line: &[u8], version: Version) -> Option<(&[u8], &[u8])> {
    let mut fields = line.split(|&byte| byte == b' ');
    let root = fields.nth(3)?;
    let point = fields.next()?;
    let kind = fields.by_ref().skip_while(|&field| field != b"-").nth(1)?;
    let options = fields.nth(1)?;
    let ours = match version {
        Version::Two => kind == b"cgroup2",
        Version::One => kind == b"cgroup" && options.split(|&byte| byte == b',').any(|name| name == b"cpu"),
    };
    ours.then_some((root, point))
}

/// Undoes mountinfo's escapes (`\040` is a space). False if there is no room.
fn unescape(text: &[u8], path: &mut Path) -> bool {
    path.set(b"");
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail)
            }
            _ => (*first, tail),
        };
        if !path.push(&[byte]) {
            return false;
        }
        rest = tail;
    }
    true
}

/// The part of `group` below the mount's `root`; nothing if the mount does not show it (then the mount itself is what we can see).
fn below<'a>(group: &'a [u8], root: &[u8]) -> &'a [u8] {
    let root = if root == b"/" { b"" } else { root };
    match group.strip_prefix(root) {
        Some(rest) if rest.starts_with(b"/") && !rest.starts_with(b"/..") && rest != b"/" => rest,
        _ => b"",
    }
}

pub fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// Thousandths of a processor, rounded up; `None` without a limit.
fn milli(quota: &[u8], period: &[u8]) -> Option<u64> {
    // "max" and "-1" are no numbers, and no limit.
    let (quota, period) = (number(quota)?, number(period)?);
    (period != 0).then(|| quota.saturating_mul(1000).div_ceil(period))
}

/// The content of `cpu.max`.
fn cpu_max(line: &[u8]) -> Option<u64> {
    let mut words = line.trim_ascii().splitn(2, |&byte| byte == b' ');
    milli(words.next()?, words.next()?)
}

/// Where our group is written down.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    group: &'a CStr,
    mounts: &'a CStr,
}

/// Of this process.
pub const OWN: Sources<'static> = Sources { group: c"/proc/self/cgroup", mounts: c"/proc/self/mountinfo" };

/// What a walk along the groups needs.
pub struct Room {
    buffer: Buffer,
    group: Path,
    root: Path,
    directory: Path,
}

impl Room {
    /// Empty.
    pub const fn new() -> Self {
        Self { buffer: EMPTY, group: Path::new(), root: Path::new(), directory: Path::new() }
    }

    /// The quota that the group at `directory` sets.
    fn quota(&mut self, version: Version) -> Option<u64> {
        let Self { buffer, directory, .. } = self;
        match version {
            Version::Two => directory.with(b"/cpu.max", |file| lines(buffer, file, cpu_max)),
            Version::One => {
                let period = directory.with(b"/cpu.cfs_period_us", |file| lines(buffer, file, number))?;
                directory
                    .with(b"/cpu.cfs_quota_us", |file| lines(buffer, file, number))
                    .and_then(|quota| (period != 0).then(|| quota.saturating_mul(1000).div_ceil(period)))
            }
        }
    }

    /// What `cpu.stat` of the group at `directory` counts. The names are the same in both versions.
    fn throttling(&mut self) -> Throttling {
        let Self { buffer, directory, .. } = self;
        let period =
            directory.with(b"/cpu.cfs_period_us", |file| lines(buffer, file, number)).or_else(|| {
                let second = |line: &[u8]| number(line.trim_ascii().splitn(2, |&byte| byte == b' ').nth(1)?);
                directory.with(b"/cpu.max", |file| lines(buffer, file, second))
            });
        let mut found = Throttling { period_us: period.unwrap_or(0), ..Throttling::default() };
        let _: Option<()> = directory.with(b"/cpu.stat", |file| {
            lines(buffer, file, |line| {
                let mut words = line.splitn(2, |&byte| byte == b' ');
                match (words.next()?, number(words.next()?)?) {
                    (b"nr_periods", count) => found.periods = count,
                    (b"nr_throttled", count) => found.throttled = count,
                    _ => {}
                }
                None
            })
        });
        found
    }

    /// Calls `each` with each group from ours up to the mount, which is at `directory` then, and the quota that it sets.
    fn walk(&mut self, from: &Sources, version: Version, mut each: impl FnMut(&mut Self, u64)) {
        let Self { buffer, group: path, root: hidden, directory } = self;
        let ours = lines(buffer, from.group, |line| group(line, version).map(|found| path.set(found)));
        if ours != Some(true) {
            return;
        }
        let top = lines(buffer, from.mounts, |line| {
            let (root, point) = mount(line, version)?;
            let fits = unescape(root, hidden) && unescape(point, directory);
            let top = directory.length;
            (fits && directory.push(below(path.text(), hidden.text()))).then_some(top)
        });
        let Some(top) = top else { return };
        loop {
            if let Some(quota) = self.quota(version) {
                each(self, quota);
            }
            if self.directory.length <= top {
                return;
            }
            let slash = self.directory.text()[top..].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            self.directory.truncate(top + slash);
        }
    }
}

/// A system may have both, and the CPU controller is in one of them; the other one says nothing.
const VERSIONS: [Version; 2] = [Version::Two, Version::One];

/// The least quota on the path, in thousandths of a processor, if there is one; `None` if nothing can be read about groups.
pub fn least(room: &mut Room, from: &Sources) -> Option<Option<u64>> {
    lines(&mut room.buffer, from.group, |_| Some(()))?;
    let mut least: Option<u64> = None;
    for version in VERSIONS {
        room.walk(from, version, |_, quota| least = Some(least.map_or(quota, |least| least.min(quota))));
    }
    Some(least)
}

/// How often a group has been throttled, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which a thread of the group was ready to run.
    pub periods: u64,
    /// Of these, periods in which the quota did not suffice.
    pub throttled: u64,
    /// How long one is; 0 if nobody knows.
    pub period_us: u64,
}

impl Throttling {
    /// What came after `before`.
    fn since(self, before: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(before.periods),
            throttled: self.throttled.saturating_sub(before.throttled),
            period_us: self.period_us,
        }
    }
}

/// Groups on a path, from the inside, of which more is not looked at. BOUND.
const LEVELS: usize = 8;

/// The groups on the path that set a quota: how often each has been throttled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throttlings {
    /// With the length of the group's path, by which it is known again.
    groups: [Option<(usize, Throttling)>; LEVELS],
}

impl Throttlings {
    /// What came after `before`, of the group that was throttled most often since; of two, the inner one.
    pub fn since(&self, before: &Self) -> Throttling {
        let known = self.groups.iter().flatten().filter_map(|&(length, now)| {
            let (_, then) = before.groups.iter().flatten().find(|(its, _)| *its == length)?;
            Some(now.since(*then))
        });
        known.reduce(|most, one| if one.throttled > most.throttled { one } else { most }).unwrap_or_default()
    }
}

/// Those of the groups on the path; `None` if no group sets a quota.
pub fn throttling(room: &mut Room, from: &Sources) -> Option<Throttlings> {
    let (mut all, mut count) = (Throttlings::default(), 0);
    for version in VERSIONS {
        room.walk(from, version, |room, _| {
            let found = (room.directory.length, room.throttling());
            if let Some(group) = all.groups.get_mut(count) {
                (*group, count) = (Some(found), count + 1);
            }
        });
    }
    (count > 0).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups() {
        assert_eq!(group(b"0::/user.slice/a", Version::Two), Some(&b"/user.slice/a"[..]));
        assert_eq!(group(b"0::/", Version::One), None);
        assert_eq!(group(b"4:cpu,cpuacct:/docker/x:y", Version::One), Some(&b"/docker/x:y"[..]));
        assert_eq!(group(b"4:cpuset:/x", Version::One), None);
        assert_eq!(group(b"1:name=systemd:/x", Version::Two), None);
        assert_eq!(group(b"garbage", Version::Two), None);
    }

    #[test]
    fn mounts() {
        let two = b"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(mount(two, Version::Two), Some((&b"/"[..], &b"/sys/fs/cgroup/unified"[..])));
        assert_eq!(mount(two, Version::One), None);
        let one = b"32 31 0:29 /docker/a /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
        assert_eq!(mount(one, Version::One), Some((&b"/docker/a"[..], &b"/sys/fs/cgroup/cpu,cpuacct"[..])));
        let set = b"34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset";
        assert_eq!(mount(set, Version::One), None);
        assert_eq!(mount(b"1 2 3", Version::Two), None);
        assert_eq!(mount(b"27 1 254:0 / / rw - ext4 /dev/vda rw", Version::Two), None);
    }

    #[test]
    fn paths() {
        let mut path = Path::new();
        for (escaped, text) in [(&br"/a\040b\134"[..], &br"/a b\"[..]), (br"/a\09", br"/a\09")] {
            assert!(unescape(escaped, &mut path));
            assert_eq!(path.text(), text);
        }
        assert_eq!(below(b"/a/b", b"/"), b"/a/b");
        assert_eq!(below(b"/a/b", b"/a"), b"/b");
        assert_eq!(below(b"/a", b"/a"), b"");
        assert_eq!(below(b"/ab", b"/a"), b"");
        assert_eq!(below(b"/", b"/"), b"");
        assert_eq!(below(b"/../x", b"/"), b"");
        assert!(!path.set(&[b'a'; Path::ROOM]));
    }

    #[test]
    fn quotas() {
        assert_eq!(cpu_max(b"max 100000\n"), None);
        assert_eq!(cpu_max(b"150000 100000"), Some(1500));
        assert_eq!(cpu_max(b"1 100000"), Some(1));
        assert_eq!(cpu_max(b"150000"), None);
        assert_eq!(cpu_max(b"1 0"), None);
        assert_eq!(milli(b"-1", b"100000"), None);
    }

    #[test]
    fn long_lines_are_passed_over() {
        let file = std::env::temp_dir().join(format!("wakeful-lines-{}", std::process::id()));
        let long = "x".repeat(5000);
        std::fs::write(&file, format!("a\n{long}\nb\n{long}\nlast")).unwrap();
        let name = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
        let mut seen = Vec::new();
        let mut buffer = EMPTY;
        let none: Option<()> = lines(&mut buffer, &name, |line| {
            seen.push(line.to_vec());
            None
        });
        std::fs::remove_file(&file).unwrap();
        assert!(none.is_none());
        assert_eq!(seen, [&b"a"[..], b"b", b"last"]);
    }

    /// A tree of groups of version 2 in a folder of ours, as the kernel would show it.
    struct Planted {
        folder: std::path::PathBuf,
        group: std::ffi::CString,
        mounts: std::ffi::CString,
    }

    impl Planted {
        fn new(name: &str, group: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("wakeful-{name} {}", std::process::id()));
            std::fs::create_dir_all(folder.join("mount/outer/inner")).unwrap();
            let point = folder.join("mount").to_str().unwrap().replace(' ', r"\040");
            let file = |name: &str, text: &str| {
                let path = folder.join(name);
                std::fs::write(&path, text).unwrap();
                std::ffi::CString::new(path.to_str().unwrap()).unwrap()
            };
            let group = file("cgroup", &format!("1:cpuset:/elsewhere\n0::{group}\n"));
            let mounts =
                file("mountinfo", &format!("41 31 0:38 / {point} rw,relatime - cgroup2 cgroup2 rw\n"));
            Self { folder, group, mounts }
        }

        fn write(&self, file: &str, text: &str) {
            std::fs::write(self.folder.join("mount").join(file), text).unwrap();
        }

        fn least(&self) -> Option<Option<u64>> {
            least(&mut Room::new(), &Sources { group: &self.group, mounts: &self.mounts })
        }

        fn throttling(&self) -> Option<Throttlings> {
            throttling(&mut Room::new(), &Sources { group: &self.group, mounts: &self.mounts })
        }
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.folder).unwrap();
        }
    }

    #[test]
    fn nested_groups_of_version_2() {
        let planted = Planted::new("nested", "/outer/inner");
        assert_eq!(planted.least(), Some(None), "no files, as in the group of the root");
        planted.write("outer/inner/cpu.max", "max 100000\n");
        planted.write("outer/cpu.max", "max 100000\n");
        assert_eq!(planted.least(), Some(None));
        assert!(planted.throttling().is_none());
        planted.write("outer/cpu.max", "150000 100000\n");
        assert_eq!(planted.least(), Some(Some(1500)), "the group above");
        planted.write("outer/inner/cpu.max", "20000 10000\n");
        assert_eq!(planted.least(), Some(Some(1500)), "the lesser of two");
        planted.write("outer/inner/cpu.max", "5000 10000\n");
        assert_eq!(planted.least(), Some(Some(500)));
        let stat = |group: &str, periods: u32, throttled: u32| {
            let text =
                format!("usage_usec 7\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 9\n");
            planted.write(&format!("{group}/cpu.stat"), &text);
        };
        stat("outer", 4567, 3115);
        stat("outer/inner", 4000, 12);
        let before = planted.throttling().unwrap();
        stat("outer", 4577, 3116);
        stat("outer/inner", 4100, 36);
        let since = planted.throttling().unwrap().since(&before);
        assert_eq!(since, Throttling { periods: 100, throttled: 24, period_us: 10_000 }, "the inner one");
        stat("outer", 4587, 3216);
        let since = planted.throttling().unwrap().since(&before);
        assert_eq!(since, Throttling { periods: 20, throttled: 101, period_us: 100_000 }, "the outer one");
    }

    #[test]
    fn a_group_that_the_mount_does_not_show() {
        let planted = Planted::new("hidden", "/../../other");
        planted.write("cpu.max", "30000 100000\n");
        assert_eq!(planted.least(), Some(Some(300)), "the mount is what can be seen");
    }

    #[test]
    fn what_came_after() {
        let before = Throttling { periods: 5, throttled: 2, period_us: 7 };
        let after = Throttling { periods: 9, throttled: 3, period_us: 8 };
        assert_eq!(after.since(before), Throttling { periods: 4, throttled: 1, period_us: 8 });
    }
}
