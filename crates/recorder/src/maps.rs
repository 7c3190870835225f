// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which file lies at which address of which process, by the kernel's records alone: so also of processes
//! that are gone.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::Write;
use std::os::fd::FromRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::fast::HashMap;
use crate::record::Mapping;

/// A file, once for all processes that have it.
#[derive(Debug, Hash, PartialEq, Eq)]
pub struct File {
    /// Its path, or what the kernel calls it: "[vdso]", "//anon".
    pub path: PathBuf,
    /// Its number in its file system; another file may have the path meanwhile.
    pub inode: u64,
}

/// Code somewhere: the file, and where in it. Not the address, which is another one in each process.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct Place {
    /// The file; none if nothing was mapped there.
    pub file: Option<Arc<File>>,
    /// The offset in the file, or the address.
    pub offset: u64,
}

/// Data somewhere, of which the records say nothing: how far it is from the nearest code before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// Where that code's mapping begins.
    pub code: Place,
    /// Bytes from there on.
    pub behind: u64,
}

#[derive(Clone)]
struct Span {
    end: u64,
    offset: u64,
    file: Arc<File>,
}

/// What may be executed in one process, by its first address.
#[derive(Clone, Default)]
pub struct Space(BTreeMap<u64, Span>);

impl Space {
    fn add(&mut self, mapping: &Mapping, file: Arc<File>) {
        let (start, end) = (mapping.start, mapping.start.saturating_add(mapping.length));
        let over: Vec<u64> =
            self.0.range(..end).rev().take_while(|(_, span)| span.end > start).map(|(&at, _)| at).collect();
        for at in over {
            let Some(old) = self.0.remove(&at) else { continue };
            if old.end > end {
                let offset = old.offset.wrapping_add(end - at);
                self.0.insert(end, Span { offset, ..old.clone() });
            }
            if at < start {
                self.0.insert(at, Span { end: start, ..old });
            }
        }
        self.0.insert(start, Span { end, offset: mapping.offset, file });
    }

    /// What lies at an address.
    pub fn at(&self, address: u64) -> Option<Place> {
        let (start, span) = self.0.range(..=address).next_back()?;
        let offset = || (address - start).wrapping_add(span.offset);
        let place = || Place { file: Some(span.file.clone()), offset: offset() };
        (address < span.end).then(place)
    }

    /// The nearest code at or before an address: a file's data lies behind its code.
    pub fn near(&self, address: u64) -> Option<Near> {
        let (start, span) = self.0.range(..=address).next_back()?;
        let code = Place { file: Some(span.file.clone()), offset: span.offset };
        Some(Near { code, behind: address - start })
    }
}

/// All processes.
#[derive(Default)]
pub struct Maps {
    spaces: HashMap<u32, Space>,
    files: HashMap<(PathBuf, u64), Arc<File>>,
}

impl Maps {
    /// Something was mapped.
    pub fn mapped(&mut self, process: u32, mapping: &Mapping) {
        let key = (mapping.file.clone(), mapping.inode);
        let new = || Arc::new(File { path: mapping.file.clone(), inode: mapping.inode });
        let file = self.files.entry(key).or_insert_with(new).clone();
        self.spaces.entry(process).or_default().add(mapping, file);
    }

    /// A process has what its parent had.
    pub fn forked(&mut self, process: u32, parent: u32) {
        if process != parent
            && let Some(space) = self.spaces.get(&parent).cloned()
        {
            self.spaces.insert(process, space);
        }
    }

    /// A process begins with nothing, or has ended.
    pub fn cleared(&mut self, process: u32) {
        self.spaces.remove(&process);
    }

    /// As [`Space::at`], where the records have nothing: /proc is asked for a process that is still there.
    pub fn look_up(&mut self, process: u32, address: u64) -> Option<Place> {
        let text = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
        for mapping in text.lines().filter_map(executable) {
            self.mapped(process, &mapping);
        }
        self.of(process)?.at(address)
    }

    /// One process.
    pub fn of(&self, process: u32) -> Option<&Space> {
        self.spaces.get(&process)
    }
}

/// A line of /proc/PID/maps, if it is about a file that may be executed.
fn executable(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let access = words.next()?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end, offset) = (number(start)?, number(end)?, number(words.next()?)?);
    let inode = words.nth(1)?.parse().ok()?;
    let file = PathBuf::from(words.next()?.trim_start());
    let length = end.checked_sub(start)?;
    (access.contains('x') && file.is_absolute()).then_some(Mapping { start, length, offset, inode, file })
}

impl File {
    /// The file, if it is there and the one that was mapped. An overlay may give it two numbers, so that an
    /// old file is believed as well.
    pub fn open(&self, began: SystemTime) -> Option<fs::File> {
        if self.path.as_os_str() == VDSO {
            return vdso();
        }
        if !self.path.is_absolute() {
            return None;
        }
        let (file, found) = open(&self.path)?;
        let is_old = found.modified().is_ok_and(|time| time < began);
        (is_old || found.ino() == self.inode).then_some(file)
    }

    /// Is it no file, but memory that the program has filled?
    pub fn is_memory(&self) -> bool {
        self.path.as_os_str() == "//anon"
    }

    /// Its last part.
    pub fn name(&self) -> String {
        self.path
            .file_name()
            .map_or_else(|| self.path.display().to_string(), |name| name.to_string_lossy().into())
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The kernel's own code in each process, such as its clocks.
const VDSO: &str = "[vdso]";

/// Ours is that of all programs of 64 bits.
fn vdso() -> Option<fs::File> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let (range, _) = maps.lines().find(|line| line.ends_with(VDSO))?.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let mut bytes = vec![0; (end - start) as usize];
    fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    // SAFETY: a name; the descriptor is new.
    let mut file = unsafe {
        match libc::memfd_create(c"vdso".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return None,
            number => fs::File::from_raw_fd(number),
        }
    };
    file.write_all(&bytes).ok()?;
    Some(file)
}

/// A plain file, to be read. Something else may have the name meanwhile, such as a pipe that nobody writes.
pub(crate) fn open(path: &Path) -> Option<(fs::File, Metadata)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    found.is_file().then_some((file, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_file_of_that_time_is_opened() {
        let path = std::env::current_exe().unwrap();
        let file = |path: &Path, inode| File { path: path.into(), inode };
        let number = fs::metadata(&path).unwrap().ino();
        let (before, after) = (SystemTime::UNIX_EPOCH, SystemTime::now());
        assert!(file(&path, number).open(before).is_some() && file(&path, 0).open(after).is_some());
        assert!(file(&path, 0).open(before).is_none());
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        for other in ["/", "/dev/null", &pipe] {
            assert!(file(Path::new(other), 0).open(after).is_none(), "{other}");
        }
    }

    fn mapping(start: u64, length: u64, file: &str) -> Mapping {
        Mapping { start, length, offset: 0x1000, inode: 1, file: file.into() }
    }

    fn at(maps: &Maps, process: u32, address: u64) -> Option<(String, u64)> {
        let place = maps.of(process)?.at(address)?;
        Some((place.file?.name(), place.offset))
    }

    #[test]
    fn a_later_mapping_hides_what_it_covers() {
        let mut maps = Maps::default();
        maps.mapped(1, &mapping(0x10000, 0x4000, "/a"));
        maps.mapped(1, &mapping(0x11000, 0x1000, "/b"));
        assert_eq!(at(&maps, 1, 0xffff), None);
        assert_eq!(at(&maps, 1, 0x10fff), Some(("a".into(), 0x1fff)));
        assert_eq!(at(&maps, 1, 0x11000), Some(("b".into(), 0x1000)));
        assert_eq!(at(&maps, 1, 0x12000), Some(("a".into(), 0x3000)));
        assert_eq!(at(&maps, 1, 0x14000), None);
        maps.mapped(1, &mapping(0xf000, 0x6000, "/c"));
        assert_eq!(at(&maps, 1, 0x10000), Some(("c".into(), 0x2000)));
        let near = maps.of(1).unwrap().near(0x20000).unwrap();
        assert_eq!(
            (near.code.file.unwrap().name(), near.code.offset, near.behind),
            ("c".into(), 0x1000, 0x11000)
        );
        assert_eq!(maps.of(1).unwrap().near(0xefff), None);
    }

    #[test]
    fn where_records_are_missing_proc_has_the_files() {
        let mut maps = Maps::default();
        let here = where_records_are_missing_proc_has_the_files as fn() as usize as u64;
        let place = maps.look_up(std::process::id(), here).unwrap();
        assert_eq!(place.file.unwrap().path, std::env::current_exe().unwrap());
        assert_eq!(maps.look_up(std::process::id(), 16), None);
        let line = "7f00-8f00 r-xp 00001000 08:01 77        /a b";
        let file = "/a b".into();
        assert_eq!(
            executable(line),
            Some(Mapping { start: 0x7f00, length: 0x1000, offset: 0x1000, inode: 77, file })
        );
        assert_eq!(executable(&line.replace("r-xp", "r--p")), None);
    }

    #[test]
    fn a_child_has_what_its_parent_had_until_it_calls_exec() {
        let mut maps = Maps::default();
        maps.mapped(1, &mapping(0x10000, 0x1000, "/a"));
        maps.forked(2, 1);
        maps.forked(1, 1);
        assert!(at(&maps, 2, 0x10000).is_some() && at(&maps, 1, 0x10000).is_some());
        maps.cleared(2);
        assert_eq!(at(&maps, 2, 0x10000), None);
    }
}
