// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the dynamic linker will make of a program, as its file says: whether it loads a library that is
//! preloaded, and whether it can ever load more. `wakeful run` asks, and the interposer before each exec.
//!
//! A program is *closed* if it needs no library but the [`KNOWN`] ones and has no word of dlopen(3) among its
//! names. What cannot be told is not closed.
//!
//! **Why.** A library that is preloaded for what a program may load later costs each start some tens of
//! microseconds. A shell script starts many small programs, and most of them can never load anything.
//!
//! Nothing here allocates or calls anybody: the caller reads the file. A child of vfork(2) may call it, and a
//! program without a C library.

use core::ffi::c_char;
use core::ptr::null;

/// What the program in a file does with `LD_PRELOAD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Loads our library.
    Loads,
    /// Loads what is preloaded and what it is linked with, and never more.
    Closed,
    /// Does not see it under a name with [`PREFIX`], and passes it on.
    Ignores,
    /// Cannot load it, and says so.
    Refuses,
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(target_arch = "riscv64")]
const MACHINE: u16 = 243;
#[cfg(target_arch = "arm")]
const MACHINE: u16 = 40;

/// BOUND: bytes of stack. ELF header and most program headers; the kernel takes at most 256 of a `#!` line.
pub const HEAD: usize = 896;
/// BOUND: bytes of stack. The end of a dynamic linker's path has its name.
const NAME: usize = 64;
/// Before our path in `LD_PRELOAD` of a program whose dynamic linker may be musl's, which does not find it
/// then. From the folder of any program to the root: `..` of the root is the root.
pub const ORIGIN: &[u8] = b"$ORIGIN/../../../../../../../../../../../../../../../../../../../../../../../..\
    /../../../../../../../..";
/// The kernel follows so many interpreters of interpreters.
pub const INTERPRETERS: usize = 5;

/// A file that is open, and how it is read: from a place as much as there is. A file that cannot be read is
/// empty.
#[derive(Clone, Copy)]
pub struct File {
    /// Its descriptor.
    pub number: i32,
    /// What reads.
    pub read: fn(i32, &mut [u8], u64) -> usize,
}

impl File {
    fn read(self, buffer: &mut [u8], offset: u64) -> usize {
        (self.read)(self.number, buffer, offset)
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// A path's last name.
pub fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// The first word after `#!`, with a zero behind it; `None` if the line is longer than the kernel takes.
fn interpreter(head: &mut [u8]) -> Option<*const c_char> {
    let start = head.iter().skip(2).position(|byte| !b" \t".contains(byte))? + 2;
    let end = head.iter().skip(start).position(|byte| b" \t\n\0".contains(byte))? + start;
    *head.get_mut(end)? = 0;
    Some(head.get(start..)?.as_ptr().cast())
}

/// What the dynamic linker that a 64-bit ELF file names makes of us.
fn by_linker(file: File, head: &mut [u8; HEAD], size: usize) -> Option<Fate> {
    const INTERP: u32 = 3;
    const ENTRY: usize = 56;
    let start = u64::from_ne_bytes(number(head, 32)?);
    let (entry, count) = (u16::from_ne_bytes(number(head, 54)?), u16::from_ne_bytes(number(head, 56)?));
    if usize::from(entry) != ENTRY {
        return None;
    }
    for index in 0..u64::from(count) {
        let at = start.checked_add(index * ENTRY as u64)?;
        let mut one = [0; ENTRY];
        match usize::try_from(at).ok().and_then(|at| head.get(..size)?.get(at..)?.first_chunk()) {
            Some(there) => one = *there,
            None if file.read(&mut one, at) == ENTRY => {}
            None => return None,
        }
        if u32::from_ne_bytes(number(&one, 0)?) == INTERP {
            let (offset, length) =
                (u64::from_ne_bytes(number(&one, 8)?), u64::from_ne_bytes(number(&one, 32)?));
            let rest = length.saturating_sub(NAME as u64);
            let (mut end, from) = ([0; NAME], offset.checked_add(rest)?);
            let end = end.get_mut(..usize::try_from(length - rest).ok()?)?;
            let there =
                usize::try_from(from).ok().and_then(|from| head.get(..size)?.get(from..)?.get(..end.len()));
            match there {
                Some(there) => end.copy_from_slice(there),
                None if file.read(end, from) == end.len() => {}
                None => return None,
            }
            let name = last_part(end.split(|&byte| byte == 0).next()?);
            let glibc =
                [b"ld-linux".as_slice(), b"ld64.so", b"ld.so"].iter().any(|prefix| name.starts_with(prefix));
            return Some(match name {
                _ if glibc && is_closed(file, head, size) => Fate::Closed,
                _ if glibc => Fate::Loads,
                _ if name.starts_with(b"ld-musl-") => Fate::Ignores,
                _ => Fate::Refuses,
            });
        }
    }
    Some(Fate::Ignores)
}

/// 1: 32 bits, 2: 64.
const CLASS: u8 = if cfg!(target_pointer_width = "64") { 2 } else { 1 };

/// Is this the head of an ELF file for this processor and word size?
fn is_ours(head: &[u8]) -> bool {
    let machine = number(head, 18).map(u16::from_ne_bytes);
    head.starts_with(b"\x7fELF") && head.get(4) == Some(&CLASS) && machine == Some(MACHINE)
}

/// What becomes of our library in this file; `None` if it cannot be told. If another program runs it, that
/// one counts: its path is in the buffer, or null for the shell's.
pub fn look(file: File, head: &mut [u8; HEAD]) -> Option<(Fate, *const c_char)> {
    let size = file.read(head, 0);
    if head.get(..size)?.starts_with(b"#!") {
        return Some((Fate::Loads, interpreter(head.get_mut(..size.min(256))?)?));
    }
    if !head.get(..size)?.starts_with(b"\x7fELF") {
        // The shell, if anything.
        return (size > 0).then_some((Fate::Loads, null()));
    }
    let fate = match CLASS {
        _ if !is_ours(head) => Fate::Refuses,
        2 => by_linker(file, head, size)?,
        _ => Fate::Loads,
    };
    Some((fate, null()))
}

// --- parts of ours -------------------------------------------------------------

/// A note in an ELF file (elf(5)) by which `wakeful` knows its parts, without looking at their symbols.
#[repr(C, align(4))]
pub struct Note {
    name_size: u32,
    size: u32,
    kind: u32,
    name: [u8; 8],
    text: [u8; Note::SIZE],
}

impl Note {
    const SIZE: usize = 32;
    /// The interposer's.
    pub const INTERPOSER: Self = Self::new(concat!("interposer ", env!("CARGO_PKG_VERSION")));
    /// The OpenMP runtime's.
    pub const OPENMP: Self = Self::new(concat!("OpenMP ", env!("CARGO_PKG_VERSION")));

    const fn new(words: &str) -> Self {
        let mut text = [0; Self::SIZE];
        let mut at = 0;
        while at < words.len() {
            text[at] = words.as_bytes()[at];
            at += 1;
        }
        Self { name_size: 8, size: Self::SIZE as u32, kind: 1, name: *b"wakeful\0", text }
    }

    /// Is it among a file's first bytes, and the file for this processor? Linkers put notes there.
    pub fn is_in(&self, head: &[u8]) -> bool {
        is_ours(head) && head.windows(Self::SIZE).any(|part| part == self.text)
    }
}

// --- closed programs ----------------------------------------------------------

/// The C library's libraries and the compiler's, which need nothing but each other.
pub const KNOWN: [&str; 9] = [
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// BOUND: bytes. Small programs have at most some 2,000 bytes of names (coreutils, dash, gcc).
const NAMES: u64 = 4096;

/// A part of a file, which moves to where somebody looks.
struct Window<'a> {
    file: File,
    bytes: &'a mut [u8],
    start: u64,
    size: usize,
}

impl Window<'_> {
    /// `N` bytes from here on.
    fn get<const N: usize>(&mut self, offset: u64) -> Option<[u8; N]> {
        let there = |window: &Self| {
            let from = usize::try_from(offset.checked_sub(window.start)?).ok()?;
            window.bytes.get(..window.size)?.get(from..)?.first_chunk().copied()
        };
        there(self).or_else(|| {
            (self.start, self.size) = (offset, self.file.read(self.bytes, offset));
            there(self)
        })
    }

    fn word(&mut self, offset: u64) -> Option<u64> {
        self.get(offset).map(u64::from_ne_bytes)
    }

    fn half(&mut self, offset: u64) -> Option<u16> {
        self.get(offset).map(u16::from_ne_bytes)
    }

    /// A string that is one of the [`KNOWN`] names.
    fn is_known(&mut self, offset: u64) -> bool {
        KNOWN.iter().any(|name| {
            (offset..).zip(name.bytes().chain([0])).all(|(at, byte)| self.get(at) == Some([byte]))
        })
    }
}

/// Is the program in this file closed? The buffer, of 64 bytes at least, is for what is read. It has so many
/// first bytes of the file already.
pub fn is_closed(file: File, buffer: &mut [u8], size: usize) -> bool {
    judge(Window { file, bytes: buffer, start: 0, size }).unwrap_or(false)
}

fn judge(mut file: Window) -> Option<bool> {
    let said = look_into(&mut file)?;
    let mut is_known = |name: &u64| said.names.checked_add(*name).is_some_and(|at| file.is_known(at));
    let all = said.needed.get(..said.count)?.iter().all(&mut is_known);
    Some(all && said.size <= NAMES && !tells_of_loading(&mut file, said.names, said.size)?)
}

/// A 64-bit ELF file, as elf(5) describes it. Each part is looked at once, so that one read is enough for it.
fn look_into(file: &mut Window) -> Option<Said> {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const HEADER: u64 = 56;
    if file.get(0)? != *b"\x7fELF\x02" || u64::from(file.half(54)?) != HEADER {
        return None;
    }
    let (start, count) = (file.word(32)?, u64::from(file.half(56)?));
    // Place in the file, address, bytes.
    let (mut dynamic, mut loaded, mut segments) = (None, [(0, 0, 0); SEGMENTS], 0);
    for index in 0..count {
        let at = start.checked_add(index * HEADER)?;
        let kind = file.get(at).map(u32::from_ne_bytes)?;
        let part = (file.word(at + 8)?, file.word(at + 16)?, file.word(at + 32)?);
        if kind == DYNAMIC {
            dynamic = Some(part);
        } else if kind == LOAD {
            *loaded.get_mut(segments)? = part;
            segments += 1;
        }
    }
    let (dynamic, _, size) = dynamic?;
    let mut said = entries(file, dynamic, size)?;
    let at = said.names;
    let holds =
        |&&(_, address, bytes): &&(u64, u64, u64)| at.checked_sub(address).is_some_and(|from| from < bytes);
    let (offset, address, _) = loaded.iter().find(holds)?;
    said.names = offset.checked_add(at - address)?;
    file.get::<1>(said.names)?;
    Some(said)
}

/// Asks about the name of each library that a file needs, until that is refused. Says whether the file names
/// folders where it looks for them.
pub fn needs(file: File, buffer: &mut [u8], mut is_fine: impl FnMut(&[u8]) -> bool) -> Option<bool> {
    let mut file = Window { file, bytes: buffer, start: 0, size: 0 };
    let said = look_into(&mut file)?;
    let all = said.needed.get(..said.count)?.iter().all(|name| {
        let (mut bytes, mut size) = ([0; NAME], 0);
        for (place, at) in bytes.iter_mut().zip(said.names.saturating_add(*name)..) {
            match file.get(at) {
                Some([0]) => return bytes.get(..size).is_some_and(&mut is_fine),
                Some([byte]) => *place = byte,
                None => return false,
            }
            size += 1;
        }
        false
    });
    all.then_some(said.has_folders)
}

/// Which OpenMP runtime a library of this name is, if it is one. Wheels put a hash behind the name:
/// libgomp-a34b3233.so.1.0.0.
pub fn runtime(name: &[u8]) -> Option<&'static str> {
    let names = [("libgomp", "libgomp"), ("libomp", "libomp"), ("libomp5", "libomp"), ("libiomp5", "libomp")];
    let (_, kind) = names.into_iter().find(|(prefix, _)| {
        name.strip_prefix(prefix.as_bytes())
            .is_some_and(|rest| rest.starts_with(b".so") || rest.starts_with(b"-"))
    })?;
    Some(kind)
}

/// BOUND: segments. Linkers make two to six that are loaded.
const SEGMENTS: usize = 8;

/// BOUND: bytes of stack. Of a file that needs more libraries nothing is told.
const MOST: usize = 24;

/// What a dynamic section says.
struct Said {
    /// The names of needed libraries, among all names.
    needed: [u64; MOST],
    count: usize,
    /// Where all names are, and their size.
    names: u64,
    size: u64,
    /// Folders are named where libraries are to be looked for.
    has_folders: bool,
}

fn entries(file: &mut Window, start: u64, size: u64) -> Option<Said> {
    const END: u64 = 0;
    const NEEDED: u64 = 1;
    const NAMES_AT: u64 = 5;
    const NAMES_SIZE: u64 = 10;
    /// What has other libraries loaded: DT_CONFIG, DT_DEPAUDIT, DT_AUDIT; DT_AUXILIARY and DT_FILTER.
    const MORE: [u64; 5] = [0x6fff_fefa, 0x6fff_fefb, 0x6fff_fefc, 0x7fff_fffd, 0x7fff_ffff];
    const FOLDERS: [u64; 2] = [15, 29];
    let (mut needed, mut count, mut at, mut names, mut has_folders) = ([0; MOST], 0, None, None, false);
    for entry in (start..start.checked_add(size)?).step_by(16) {
        let kind = file.word(entry)?;
        let value = file.word(entry + 8)?;
        match kind {
            END => break,
            NEEDED => {
                *needed.get_mut(count)? = value;
                count += 1;
            }
            NAMES_AT => at = Some(value),
            NAMES_SIZE => names = Some(value),
            _ if FOLDERS.contains(&kind) => has_folders = true,
            _ if MORE.contains(&kind) => return None,
            _ => {}
        }
    }
    Some(Said { needed, count, names: at?, size: names?, has_folders })
}

/// Is dlopen or dlmopen among these bytes?
fn tells_of_loading(file: &mut Window, start: u64, size: u64) -> Option<bool> {
    for at in start..start.checked_add(size)? {
        let it_may_be = file.get(at)? == *b"d";
        if it_may_be && (file.get(at) == Some(*b"dlopen") || file.get(at) == Some(*b"dlmopen")) {
            return Some(true);
        }
    }
    Some(false)
}
