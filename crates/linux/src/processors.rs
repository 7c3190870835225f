// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many processors may this program use?
//!
//! The lesser of two: the affinity mask, which also reflects cpusets and hot-unplugging, and the CPU quota of the process's
//! control group and every group above it, rounded up: cgroup v2's `cpu.max`, v1's `cpu.cfs_quota_us` by `cpu.cfs_period_us`.
//! Where the groups are mounted, `/proc/self/mountinfo` says. Everything is read into small stack buffers, because the first
//! caller may be inside `malloc`, on a small stack; a line that does not fit is passed over.
//!
//! Looked at when the program starts ([`crate::prepare`]), and then once a second at most, where a barrier or a slow path asks ([`refresh`]), or as soon as
//! the processor server says that the partition has changed ([`crate::server`]). A mask
//! is a thread's, and programs pin threads: where the asking thread may use fewer than there were, what counts is what all
//! threads together may use. A later look must not be noticed: it opens no file where one of the first three descriptors is closed, because the
//! program may be about to put another in its place; and what it cannot read any more (a sandbox, `chroot`) stays as it was.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::{futex, server};

/// What the number of processors comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors {
    /// Processors in the calling thread's affinity mask.
    pub affinity: u32,
    /// The least CPU quota on the path, in thousandths of a processor.
    pub quota_milli: Option<u64>,
}

impl Processors {
    /// Looks now. About 50 us.
    pub fn look() -> Self {
        let _errno = futex::Errno::save();
        Self { affinity: Mask::of(0).count().max(1), quota_milli: quota().flatten() }
    }

    /// Looks again, some time after this. Two microseconds with the descriptors closed, else as [`Self::look`]; more if threads are pinned.
    fn look_again(self) -> Self {
        let mut mask = Mask::of(0);
        if !standard_descriptors_are_open() {
            return Self { affinity: mask.count().max(self.affinity), ..self };
        }
        let all = mask.count() >= self.affinity || mask.join_threads(self.affinity);
        let affinity = if all { mask.count().max(1) } else { self.affinity };
        Self { affinity, quota_milli: quota().unwrap_or(self.quota_milli) }
    }

    /// The number to reckon with. At least 1.
    pub fn count(&self) -> u32 {
        let quota = self.quota_milli.map_or(u64::MAX, |milli| milli.div_ceil(1000));
        quota.min(self.affinity as u64).max(1) as u32
    }

    /// Is the quota what limits?
    pub fn limited_by_quota(&self) -> bool {
        self.count() < self.affinity
    }
}

/// The last look.
struct Last {
    /// [`Processors::count`]; 0 before the first look.
    count: AtomicU32,
    changes: AtomicU32,
    affinity: AtomicU32,
    /// `u64::MAX`: none.
    quota_milli: AtomicU64,
    /// The next look is due.
    next_ns: AtomicU64,
}

static LAST: Last = Last {
    count: AtomicU32::new(0),
    changes: AtomicU32::new(0),
    affinity: AtomicU32::new(1),
    quota_milli: AtomicU64::new(u64::MAX),
    next_ns: AtomicU64::new(0),
};

/// COST: ns between two looks, which take about 50 us.
const AGAIN_NS: u64 = 1_000_000_000;

/// Processors, as of the last look. At least 1.
#[inline]
pub fn available() -> u32 {
    match LAST.count.load(Relaxed) {
        0 => first_look(),
        count => count,
    }
}

/// Those that some thread may run on, whatever the quota, as of the last look.
pub fn affinity() -> u32 {
    available();
    LAST.affinity.load(Relaxed)
}

/// How often the number has changed since the first look.
pub fn changes() -> u32 {
    // ORDER: Acquire, pairs with `see`: who knows of a change reads the number after it.
    LAST.changes.load(Acquire)
}

#[cold]
fn first_look() -> u32 {
    let seen = Processors::look();
    LAST.next_ns.store(futex::now_ns() + AGAIN_NS, Relaxed);
    LAST.affinity.store(seen.affinity, Relaxed);
    LAST.quota_milli.store(seen.quota_milli.unwrap_or(u64::MAX), Relaxed);
    LAST.count.store(seen.count(), Relaxed);
    seen.count()
}

/// Looks again if it is time to; true if the number has changed.
#[inline]
pub fn refresh(now_ns: Option<u64>) -> bool {
    let now = now_ns.unwrap_or_else(futex::coarse_ns);
    let due = LAST.next_ns.load(Relaxed);
    let changed = server::changed();
    (now >= due || changed.is_some()) && look_again(now, due, changed)
}

#[cold]
#[inline(never)]
fn look_again(now: u64, due: u64, partition: Option<u32>) -> bool {
    let was = available();
    // One of those who find that it is time.
    if LAST.next_ns.compare_exchange(due, now + AGAIN_NS, Relaxed, Relaxed).is_err() {
        return false;
    }
    if let Some(generation) = partition {
        server::seen(generation);
    }
    let generation = server::generation();
    let _errno = futex::Errno::save();
    // HINT: who looks for more than a second may put an old number back, until the next look.
    let quota_milli = Some(LAST.quota_milli.load(Relaxed)).filter(|&milli| milli != u64::MAX);
    let seen = Processors { affinity: LAST.affinity.load(Relaxed), quota_milli }.look_again();
    LAST.affinity.store(seen.affinity, Relaxed);
    LAST.quota_milli.store(seen.quota_milli.unwrap_or(u64::MAX), Relaxed);
    let changed = seen.count() != was;
    if changed {
        LAST.count.store(seen.count(), Relaxed);
        // ORDER: Release, pairs with `changes`; publishes the number.
        LAST.changes.fetch_add(1, Release);
    }
    if server::generation() != generation {
        // A look that began after that change may have been faster than this one.
        LAST.next_ns.store(now, Relaxed);
    }
    changed
}

/// See [`platform::Platform::migrate`]. Some microseconds, and the wait for the other processor. Who sets this thread's affinity from outside at
/// the same moment may find it undone.
pub fn migrate(to: Option<u32>) -> bool {
    migrate_and(to, || ())
}

/// `meanwhile`: before it may run elsewhere again.
fn migrate_and(to: Option<u32>, meanwhile: impl FnOnce()) -> bool {
    let _errno = futex::Errno::save();
    let allowed = Mask::of(0);
    let mut there = match to {
        Some(processor) => Mask::one(processor),
        None => Mask::one(running_on().unwrap_or(0)).not(),
    };
    there.0.iter_mut().zip(allowed.0).for_each(|(there, allowed)| *there &= allowed);
    if there.count() == 0 || !there.set() {
        return false;
    }
    meanwhile();
    // What somebody else has made of it in that time stays.
    let now = Mask::of(0);
    let wanted = if now.0 == there.0 { allowed } else { now };
    // Who has never set a mask follows its cpuset where that grows, and does so with this one.
    if !Mask([0; 128]).not().set() || Mask::of(0).0 != wanted.0 {
        wanted.set();
    }
    true
}

/// See [`platform::Platform::running_on`].
#[inline]
pub fn running_on() -> Option<u32> {
    // SAFETY: no arguments.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Processors that a thread may use. Room for 8192.
struct Mask([u64; 128]);

impl Mask {
    /// Of a thread, or with 0 of the calling one; empty if there is none.
    fn of(tid: i32) -> Self {
        let mut mask = Self([0; 128]);
        // SAFETY: the kernel writes at most the size it is told.
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask.0), mask.0.as_mut_ptr()) };
        mask
    }

    fn one(processor: u32) -> Self {
        let mut mask = Self([0; 128]);
        if let Some(word) = mask.0.get_mut(processor as usize / 64) {
            *word = 1 << (processor % 64);
        }
        mask
    }

    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// Makes it the calling thread's.
    fn set(&self) -> bool {
        // SAFETY: the kernel reads the size it is told.
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&self.0), self.0.as_ptr()) == 0 }
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Adds those of all threads of this process, or of so many that there are `enough` processors. False if not all could be asked.
    fn join_threads(&mut self, enough: u32) -> bool {
        // SAFETY: system calls with a C string and a buffer of the size told; the descriptor is ours.
        unsafe {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
            let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/proc/self/task".as_ptr(), flags);
            if fd < 0 {
                return false;
            }
            let mut buffer = Entries([0; 1024]);
            let all = loop {
                let got = libc::syscall(libc::SYS_getdents64, fd, buffer.0.as_mut_ptr(), buffer.0.len());
                if got <= 0 {
                    break got == 0;
                }
                for tid in buffer.tids(got as usize) {
                    let theirs = Self::of(tid);
                    self.0.iter_mut().zip(theirs.0).for_each(|(ours, theirs)| *ours |= theirs);
                    if self.count() >= enough {
                        break;
                    }
                }
                if self.count() >= enough {
                    break true;
                }
            };
            libc::syscall(libc::SYS_close, fd);
            all
        }
    }
}

/// What getdents64 writes: records of an inode (8 bytes), an offset (8), the record's length (2), a type (1) and a name with its end.
#[repr(align(8))]
struct Entries([u8; 1024]);

impl Entries {
    /// The names that are numbers.
    fn tids(&self, length: usize) -> impl Iterator<Item = i32> {
        let mut rest = &self.0[..length];
        core::iter::from_fn(move || {
            let record = u16::from_ne_bytes([*rest.get(16)?, *rest.get(17)?]) as usize;
            let name = rest.get(19..record)?;
            rest = &rest[record..];
            Some(name.split(|&byte| byte == 0).next().and_then(number))
        })
        .flatten()
        .map(|tid| tid as i32)
    }
}

pub fn standard_descriptors_are_open() -> bool {
    // SAFETY: F_GETFD changes nothing.
    (0..=2).all(|fd| unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) } >= 0)
}

/// A path with its end, for the kernel.
#[derive(Clone)]
struct Path {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl Path {
    const ROOM: usize = 1024;

    fn new(text: &[u8]) -> Option<Self> {
        let mut path = Self { bytes: [0; Self::ROOM], length: 0 };
        path.push(text).then_some(path)
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
        let result = if self.push(name) { CStr::from_bytes_until_nul(&self.bytes).ok().and_then(each) } else { None };
        self.truncate(length);
        result
    }
}

/// Calls `each` with each line of a file, until it returns something.
fn lines<T>(file: &CStr, mut each: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    // System calls and not the C library's functions, which are cancellation points: no thread may end inside a lock operation.
    // SAFETY: a C string.
    let fd =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, file.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    let mut buffer = [0u8; 1024];
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

/// Undoes mountinfo's escapes (`\040` is a space).
fn unescape(text: &[u8]) -> Option<Path> {
    let mut path = Path::new(b"")?;
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail)
            }
            _ => (*first, tail),
        };
        if !path.push(&[byte]) {
            return None;
        }
        rest = tail;
    }
    Some(path)
}

/// The part of `group` below the mount's `root`; nothing if the mount does not show it (then the mount itself is what we can see).
fn below<'a>(group: &'a [u8], root: &[u8]) -> &'a [u8] {
    let root = if root == b"/" { b"" } else { root };
    match group.strip_prefix(root) {
        Some(rest) if rest.starts_with(b"/") && !rest.starts_with(b"/..") && rest != b"/" => rest,
        _ => b"",
    }
}

fn number(text: &[u8]) -> Option<u64> {
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

/// The quota that one group sets.
fn quota_of(directory: &mut Path, version: Version) -> Option<u64> {
    match version {
        Version::Two => directory.with(b"/cpu.max", |file| lines(file, cpu_max)),
        Version::One => {
            let period = directory.with(b"/cpu.cfs_period_us", |file| lines(file, number))?;
            directory
                .with(b"/cpu.cfs_quota_us", |file| lines(file, number))
                .and_then(|quota| (period != 0).then(|| quota.saturating_mul(1000).div_ceil(period)))
        }
    }
}

/// The least quota from our group up to the mount.
fn quota_on_path(version: Version) -> Option<u64> {
    let group = lines(c"/proc/self/cgroup", |line| group(line, version).and_then(Path::new))?;
    let (mut directory, top) = lines(c"/proc/self/mountinfo", |line| {
        let (root, point) = mount(line, version)?;
        let (root, mut directory) = (unescape(root)?, unescape(point)?);
        let top = directory.length;
        directory.push(below(group.text(), root.text())).then_some((directory, top))
    })?;
    let mut least: Option<u64> = None;
    loop {
        if let Some(quota) = quota_of(&mut directory, version) {
            least = Some(least.map_or(quota, |least| least.min(quota)));
        }
        if directory.length <= top {
            return least;
        }
        let slash = directory.text()[top..].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        directory.truncate(top + slash);
    }
}

/// `None` if nothing can be read about groups.
fn quota() -> Option<Option<u64>> {
    lines(c"/proc/self/cgroup", |_| Some(()))?;
    // A system may have both, and the CPU controller is in one of them; the other one says nothing.
    Some([Version::Two, Version::One].into_iter().filter_map(quota_on_path).min())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of its own: affinity is a thread's.
    #[test]
    fn migration() {
        let moves = || {
            let all = Mask::of(0);
            assert!(!migrate(Some(8191)), "there is no such processor");
            let here = running_on().unwrap();
            assert!(migrate(Some(here)));
            assert_eq!(migrate(None), all.count() > 1);
            assert_eq!(Mask::of(0).0, all.0, "it may run where it might before");
            if all.count() > 1 {
                let mut other = all.0;
                other[here as usize / 64] &= !(1 << (here % 64));
                let other = Mask(other);
                assert!(migrate_and(Some(here), || assert!(other.set())));
                assert_eq!(Mask::of(0).0, other.0, "what another sets meanwhile stays");
                assert!(all.set());
            }
            assert!(Mask::one(running_on().unwrap()).set());
            assert!(!migrate(None), "pinned");
            assert_eq!(Mask::of(0).count(), 1, "and still is");
        };
        std::thread::spawn(moves).join().unwrap();
    }

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
        assert_eq!(unescape(br"/a\040b\134").unwrap().text(), br"/a b\");
        assert_eq!(unescape(br"/a\09").unwrap().text(), br"/a\09");
        assert_eq!(below(b"/a/b", b"/"), b"/a/b");
        assert_eq!(below(b"/a/b", b"/a"), b"/b");
        assert_eq!(below(b"/a", b"/a"), b"");
        assert_eq!(below(b"/ab", b"/a"), b"");
        assert_eq!(below(b"/", b"/"), b"");
        assert_eq!(below(b"/../x", b"/"), b"");
        assert!(Path::new(&[b'a'; Path::ROOM]).is_none());
    }

    #[test]
    fn quotas() {
        assert_eq!(cpu_max(b"max 100000\n"), None);
        assert_eq!(cpu_max(b"150000 100000"), Some(1500));
        assert_eq!(cpu_max(b"1 100000"), Some(1));
        assert_eq!(cpu_max(b"150000"), None);
        assert_eq!(cpu_max(b"1 0"), None);
        assert_eq!(milli(b"-1", b"100000"), None);
        for (quota_milli, count) in [(None, 8), (Some(1), 1), (Some(1001), 2), (Some(9000), 8)] {
            let processors = Processors { affinity: 8, quota_milli };
            assert_eq!(processors.count(), count);
            assert_eq!(processors.limited_by_quota(), count < 8);
        }
        assert_eq!(Processors { affinity: 0, quota_milli: None }.count(), 1);
    }

    #[test]
    fn tasks() {
        let mut entries = Entries([0; 1024]);
        let mut end = 0;
        for name in [&b"."[..], b"..", b"123", b"4567890"] {
            let record = (19 + name.len() + 1).next_multiple_of(8);
            entries.0[end + 16..end + 18].copy_from_slice(&(record as u16).to_ne_bytes());
            entries.0[end + 19..end + 19 + name.len()].copy_from_slice(name);
            end += record;
        }
        assert_eq!(entries.tids(end).collect::<Vec<_>>(), [123, 4_567_890]);
        assert_eq!(entries.tids(0).count(), 0);
        let mut mask = Mask([0; 128]);
        assert!(mask.join_threads(u32::MAX));
        assert!(mask.count() >= Mask::of(0).count());
    }

    #[test]
    fn long_lines_are_passed_over() {
        let file = std::env::temp_dir().join(format!("wakeful-lines-{}", std::process::id()));
        let long = "x".repeat(5000);
        std::fs::write(&file, format!("a\n{long}\nb\n{long}\nlast")).unwrap();
        let name = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
        let mut seen = Vec::new();
        let none: Option<()> = lines(&name, |line| {
            seen.push(line.to_vec());
            None
        });
        std::fs::remove_file(&file).unwrap();
        assert!(none.is_none());
        assert_eq!(seen, [&b"a"[..], b"b", b"last"]);
    }
}
