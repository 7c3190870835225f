// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with fibers, as they tell it: for `wakeful top`.
//!
//! Each has a page in a memory file (`abi/src/fibers.rs`), which lies among its descriptors. What is read
//! there is a stranger's word: any number may be wrong, and the file may be another one of that name.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use linux::fibers::{MAGIC, NAME, VERSION};

use crate::format::plain;

/// BOUND: descriptors of a process that are looked at, and pages among them. A runtime is started early.
const MOST_DESCRIPTORS: usize = 4096;
const MOST_PAGES: usize = 64;
/// BOUND: a page is written once a second; with many millions of fibers, less often. An older one than this
/// is that of a program that was stopped, or is stuck.
const STALE_NS: u64 = 30_000_000_000;

/// A program's runtimes together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub process: u32,
    pub name: String,
    /// Virtual processors, those in use, and kernel threads that are blocked.
    pub seats: u64,
    pub held: u64,
    pub blocked: u64,
    /// Those that have not ended; those that wait.
    pub fibers: u64,
    pub waiting: u64,
    /// A runtime of it has not written for long: its numbers are old, and not among these.
    pub is_silent: bool,
}

impl Program {
    pub const COLUMNS: [(&str, usize); 8] = [
        ("PROCESS", 8),
        ("PROGRAM", 15),
        ("VIRTUAL", 8),
        ("IN USE", 7),
        ("BLOCKED", 8),
        ("FIBERS", 9),
        ("READY", 9),
        ("WAIT", 9),
    ];

    /// The column heads, as wide as the columns.
    pub fn head() -> [String; 8] {
        Self::COLUMNS.map(|(name, width)| match name {
            "PROGRAM" => format!("{name:<width$}"),
            _ => format!("{name:>width$}"),
        })
    }

    pub fn row(&self) -> [String; 8] {
        let old = || "-".to_string();
        let words = if self.seats == 0 {
            [self.process.to_string(), self.name.clone(), "silent".into(), old(), old(), old(), old(), old()]
        } else {
            self.words()
        };
        let mut words = words.into_iter();
        Self::COLUMNS.map(|(name, width)| {
            let word = words.next().unwrap_or_default();
            if name == "PROGRAM" { format!("{word:<width$}") } else { format!("{word:>width$}") }
        })
    }

    fn words(&self) -> [String; 8] {
        [
            self.process.to_string(),
            self.name.clone(),
            self.seats.to_string(),
            self.held.to_string(),
            self.blocked.to_string(),
            self.fibers.to_string(),
            self.ready().to_string(),
            self.waiting.to_string(),
        ]
    }

    /// Those that wait for nothing, run on nothing, and are not blocked in the kernel.
    fn ready(&self) -> u64 {
        self.fibers.saturating_sub(self.waiting).saturating_sub(self.held.saturating_add(self.blocked))
    }
}

/// All programs whose descriptors this user may see.
pub fn programs() -> Vec<Program> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut found: Vec<Program> = processes.filter_map(number).filter_map(program).collect();
    found.sort_by_key(|program| program.process);
    found
}

fn program(process: u32) -> Option<Program> {
    let folder = Path::new("/proc").join(process.to_string());
    let is_page = |link: &Path| {
        link.to_str().and_then(|link| link.strip_prefix("/memfd:")?.strip_suffix(" (deleted)"))
            == NAME.to_str().ok()
    };
    let descriptors = fs::read_dir(folder.join("fd")).ok()?.flatten().take(MOST_DESCRIPTORS);
    let found = descriptors.map(|entry| entry.path());
    let pages = found.filter(|path| fs::read_link(path).is_ok_and(|link| is_page(&link))).take(MOST_PAGES);
    let mut pages = pages.filter_map(|path| open(&path).and_then(|file| read(&file))).peekable();
    pages.peek()?;
    let mut program = Program { process, name: name(&folder), ..Program::default() };
    let (own, now) = (own_number(&folder).unwrap_or(process), recorder::now_ns());
    pages.for_each(|(numbers, written_ns)| program.add(&numbers, own, now.saturating_sub(written_ns)));
    (program.seats > 0 || program.is_silent).then_some(program)
}

/// For reading, if it is a plain file. A device or a pipe that bears the name is not opened: that alone may
/// keep us waiting, or do something.
fn open(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    let place = options.read(true).custom_flags(libc::O_PATH).open(path).ok()?;
    if !place.metadata().ok()?.is_file() {
        return None;
    }
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
    options.custom_flags(flags).open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
}

/// The page's numbers, 32 bits each, and when they were written.
fn read(file: &File) -> Option<([u32; 12], u64)> {
    let mut bytes = [0; 56];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let written_ns = u64::from(word(48)) | u64::from(word(52)) << 32;
    Some((std::array::from_fn(|index| word(4 * index)), written_ns))
}

impl Program {
    /// One runtime more, if it is this process's. `age_ns`: since it was written.
    fn add(&mut self, numbers: &[u32; 12], process: u32, age_ns: u64) {
        let [magic, version, writer, seats, held, _, blocked, _, fibers @ ..] = *numbers;
        if (magic, version, writer) != (MAGIC, VERSION, process) {
            return;
        }
        if age_ns > STALE_NS {
            self.is_silent |= seats > 0;
            return;
        }
        let long = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.seats, seats.into());
        add(&mut self.held, held.into());
        add(&mut self.blocked, blocked.into());
        add(&mut self.fibers, long(fibers[0], fibers[1]));
        add(&mut self.waiting, long(fibers[2], fibers[3]));
    }
}

/// The process's number where it lives, such as in a container.
fn own_number(folder: &Path) -> Option<u32> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// What the program calls itself, without what a terminal would obey.
fn name(folder: &Path) -> String {
    let name = fs::read(folder.join("comm")).unwrap_or_default();
    plain(String::from_utf8_lossy(&name).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_process_or_version_does_not_count() {
        let good = [MAGIC, VERSION, 7, 2, 1, 5, 1, 0, 10, 0, 6, 0];
        let mut program = Program::default();
        for (at, wrong) in [(0, 0), (1, 9), (2, 8)] {
            let mut bad = good;
            bad[at] = wrong;
            program.add(&bad, 7, 0);
            assert_eq!(program, Program::default(), "{at}");
        }
        program.add(&good, 7, 0);
        assert_eq!((program.seats, program.held, program.fibers, program.ready()), (2, 1, 10, 2));
    }

    #[test]
    fn wild_numbers_are_shown_as_they_are() {
        let wild = [MAGIC, VERSION, 7, !0, !0, !0, !0, !0, !0, !0, 0, 0];
        let mut program = Program::default();
        program.add(&wild, 7, 0);
        program.add(&wild, 7, 0);
        assert_eq!((program.fibers, program.ready()), (u64::MAX, u64::MAX - 4 * u64::from(u32::MAX)));
    }

    /// A memory file with this name and content, as a program has it: found through /proc, or passed over.
    #[test]
    fn a_program_is_found_by_its_file() {
        use std::io::Write;
        use std::os::fd::FromRawFd;
        let own = || programs().into_iter().find(|program| program.process == std::process::id());
        assert_eq!(own(), None);
        // SAFETY: the name is a C string, and the descriptor is new.
        let mut file = unsafe { File::from_raw_fd(libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC)) };
        file.write_all(&[1, 2, 3]).unwrap();
        assert_eq!(own(), None);
        let numbers = [MAGIC, VERSION, std::process::id(), 2, 1, 5, 1, 0, 10, 0, 6, 0];
        file.write_all_at(&numbers.map(u32::to_ne_bytes).concat(), 0).unwrap();
        file.write_all_at(&recorder::now_ns().to_ne_bytes(), 48).unwrap();
        let found = own().unwrap();
        assert_eq!((found.seats, found.waiting), (2, 6));
        // As many as there may be, and more: the first ones are read.
        let more: Vec<File> = (0..MOST_PAGES + 9).map(|_| file.try_clone().unwrap()).collect();
        assert_eq!(own().unwrap().seats, 2 * MOST_PAGES as u64);
        drop(more);
    }

    #[test]
    fn a_page_that_nobody_writes_is_not_shown_as_alive() {
        let numbers = [MAGIC, VERSION, 7, 2, 1, 5, 1, 0, 10, 0, 6, 0];
        let mut program = Program { process: 7, ..Program::default() };
        program.add(&numbers, 7, STALE_NS + 1);
        assert!(program.is_silent);
        assert_eq!(program.row().map(|word| word.trim().to_string())[2..4], ["silent", "-"]);
        program.add(&numbers, 7, STALE_NS);
        assert_eq!((program.seats, program.row()[2].trim()), (2, "2"));
    }

    /// A pipe without a writer would keep a reader waiting, even before it reads.
    #[test]
    fn only_a_plain_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(open(&pipe).is_none() && open(Path::new("/dev/null")).is_none());
        fs::write(folder.path().join("file"), "x").unwrap();
        assert!(open(&folder.path().join("file")).is_some());
    }
}
