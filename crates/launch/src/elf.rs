// SPDX-License-Identifier: MIT OR Apache-2.0
//! An ELF file, as the dynamic linker reads it: by its program headers and its dynamic section.
//!
//! **Why.** `wakeful run` looks at each library of a program. Sections are described at a file's end.
//! To map a large file for some bytes at both ends takes page faults, which take longer than three small
//! reads.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::{Endianness, FileKind, elf, pod};

/// Bytes of a file, mapped as long as this lives. If somebody shortens the file meanwhile, SIGBUS ends us,
/// as any program that runs from it.
pub struct Mapped {
    at: *const u8,
    size: usize,
}

impl Mapped {
    /// Maps a file that is not empty.
    pub fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        let size = found.len() as usize;
        if size == 0 || !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is empty, or no file"));
        }
        let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: new memory, of a descriptor that is open.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { at: at.cast(), size })
        }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped.
        unsafe { std::slice::from_raw_parts(self.at, self.size) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and borrowed by nobody any more.
        unsafe { libc::munmap(self.at.cast_mut().cast(), self.size) };
    }
}

/// BOUND: bytes, read at once. In nearly every file the first hold the headers and the dynamic linker's name,
/// and the names that a library asks for are side by side.
const PIECE: usize = 2048;

/// At most so many bytes from here on.
fn read(file: &File, at: u64, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Header of the files that this program's processor runs.
#[cfg(target_pointer_width = "64")]
type OurHeader = elf::FileHeader64<Endianness>;
#[cfg(target_pointer_width = "32")]
type OurHeader = elf::FileHeader32<Endianness>;
type Symbol = <OurHeader as FileHeader>::Sym;
type Entry = <OurHeader as FileHeader>::Dyn;

/// A word of either size.
fn wide(word: impl Into<u64>) -> u64 {
    word.into()
}

/// A part of a file, and where the program sees it.
struct Segment {
    kind: elf::ProgramType,
    offset: u64,
    address: u64,
    size: u64,
}

/// A file, and what its headers say.
pub struct Elf {
    file: File,
    endian: Endianness,
    segments: Vec<Segment>,
    /// Its processor.
    machine: u16,
    is_64: bool,
    /// Loaded where there is room, as libraries are?
    pub is_movable: bool,
    /// Does it begin somewhere, as programs do?
    pub has_entry: bool,
    /// Its dynamic linker.
    pub linker: Option<PathBuf>,
}

/// The first bytes of a file.
pub fn head(file: &File) -> io::Result<Vec<u8>> {
    read(file, 0, PIECE)
}

impl Elf {
    /// `None`: not an ELF file.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let head = head(&file)?;
        Self::new(file, head)
    }

    /// Of a file of which these are the first bytes.
    pub fn new(file: File, head: Vec<u8>) -> io::Result<Option<Self>> {
        match FileKind::parse(&*head) {
            Ok(FileKind::Elf64) => Self::parse::<elf::FileHeader64<Endianness>>(file, head),
            Ok(FileKind::Elf32) => Self::parse::<elf::FileHeader32<Endianness>>(file, head),
            _ => Ok(None),
        }
    }

    fn parse<H: FileHeader<Endian = Endianness>>(file: File, mut head: Vec<u8>) -> io::Result<Option<Self>> {
        let Ok(header) = H::parse(&*head).copied() else { return Ok(None) };
        let Ok(endian) = header.endian() else { return Ok(None) };
        let end = header.e_phoff(endian).into()
            + u64::from(header.e_phnum(endian)) * size_of::<H::ProgramHeader>() as u64;
        if end > head.len() as u64 && end <= 1 << 20 {
            head = read(&file, 0, end as usize)?;
        }
        let Ok(headers) = header.program_headers(endian, &*head) else { return Ok(None) };
        let segments: Vec<Segment> = headers
            .iter()
            .map(|header| Segment {
                kind: header.p_type(endian),
                offset: header.p_offset(endian).into(),
                address: header.p_vaddr(endian).into(),
                size: header.p_filesz(endian).into(),
            })
            .collect();
        let linker = match segments.iter().find(|segment| segment.kind == elf::PT_INTERP) {
            None => None,
            Some(Segment { offset, size, .. }) => {
                let size = (*size).min(libc::PATH_MAX as u64) as usize;
                let there = usize::try_from(*offset).ok().and_then(|at| head.get(at..at.checked_add(size)?));
                let name = there.map_or_else(|| read(&file, *offset, size), |name| Ok(name.to_vec()))?;
                name.split(|&byte| byte == 0).next().map(|name| OsStr::from_bytes(name).into())
            }
        };
        Ok(Some(Self {
            machine: header.e_machine(endian).0,
            is_64: header.is_type_64(),
            is_movable: header.e_type(endian) == elf::ET_DYN,
            has_entry: header.e_entry(endian).into() != 0,
            linker,
            endian,
            segments,
            file,
        }))
    }

    /// Is this the processor and word size of this program?
    pub fn is_ours(&self) -> bool {
        let ours = match std::env::consts::ARCH {
            "x86_64" => elf::EM_X86_64,
            "aarch64" => elf::EM_AARCH64,
            "riscv64" => elf::EM_RISCV,
            _ => elf::EM_ARM,
        };
        (self.machine, self.is_64) == (ours.0, cfg!(target_pointer_width = "64"))
    }

    /// Where in the file the bytes of an address are.
    fn offset(&self, address: u64) -> Option<u64> {
        let loaded = self.segments.iter().filter(|segment| segment.kind == elf::PT_LOAD);
        loaded
            .filter_map(|it| {
                address.checked_sub(it.address).filter(|&at| at < it.size).map(|at| it.offset + at)
            })
            .next()
    }

    /// What the dynamic linker is told. Of a file for another processor we do not want to know.
    pub fn dynamic(&self) -> Option<Dynamic<'_>> {
        let segment =
            self.segments.iter().find(|segment| segment.kind == elf::PT_DYNAMIC && self.is_ours())?;
        let bytes = read(&self.file, segment.offset, segment.size.min(1 << 16) as usize).ok()?;
        let count = bytes.len() / size_of::<Entry>();
        let (entries, _) = pod::slice_from_bytes::<Entry>(&bytes, count).ok()?;
        let entries = entries.iter().map(|it| (it.d_tag(self.endian), wide(it.d_val(self.endian))));
        Some(Dynamic { elf: self, entries: entries.take_while(|&(tag, _)| tag != elf::DT_NULL).collect() })
    }
}

/// The dynamic section.
pub struct Dynamic<'a> {
    elf: &'a Elf,
    entries: Vec<(elf::DynamicTag, u64)>,
}

impl Dynamic<'_> {
    fn value(&self, wanted: elf::DynamicTag) -> Option<u64> {
        self.entries.iter().find(|&&(tag, _)| tag == wanted).map(|&(_, value)| value)
    }

    /// The strings of the entries of these kinds, in their order.
    pub fn strings<const N: usize>(&self, kinds: [elf::DynamicTag; N]) -> Vec<(elf::DynamicTag, Vec<u8>)> {
        let those = || self.entries.iter().filter(|(tag, _)| kinds.contains(tag));
        let Some(table) = self.value(elf::DT_STRTAB).and_then(|address| self.elf.offset(address)) else {
            return Vec::new();
        };
        let (mut start, mut piece) = (those().map(|&(_, place)| place).min().unwrap_or_default(), Vec::new());
        let mut string = |place: u64| {
            for size in [PIECE, 16 * PIECE] {
                let bytes = usize::try_from(place.checked_sub(start)?).ok().and_then(|at| piece.get(at..));
                if let Some(end) = bytes.and_then(|bytes| bytes.iter().position(|&byte| byte == 0)) {
                    return Some(bytes?[..end].to_vec());
                }
                start = if piece.is_empty() { start } else { place };
                piece = read(&self.elf.file, table.checked_add(start)?, size).ok()?;
            }
            None
        };
        those().filter_map(|&(tag, place)| Some((tag, string(place)?))).collect()
    }

    /// The symbols that the dynamic linker sees.
    pub fn symbols(&self) -> Option<Symbols> {
        let place = |tag| usize::try_from(self.value(tag).and_then(|address| self.elf.offset(address))?).ok();
        let index = match (place(elf::DT_GNU_HASH), place(elf::DT_HASH)) {
            (Some(at), _) => Index::Gnu(at),
            (None, at) => Index::Plain(at?),
        };
        let (table, names) = (place(elf::DT_SYMTAB)?, place(elf::DT_STRTAB)?);
        let data = Mapped::of(&self.elf.file).ok()?;
        Some(Symbols {
            data,
            endian: self.elf.endian,
            index,
            table,
            names,
            is_program: self.elf.linker.is_some(),
        })
    }
}

/// Where a file's symbols are indexed by their hash.
enum Index {
    /// By a filter and a hash table of the symbols that it defines, which come last.
    Gnu(usize),
    /// By a hash table of all symbols. Rare today: we only take their number from it.
    Plain(usize),
}

/// The dynamic symbols of a file.
pub struct Symbols {
    data: Mapped,
    endian: Endianness,
    index: Index,
    table: usize,
    names: usize,
    is_program: bool,
}

impl Symbols {
    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.data.get(at..)?.first_chunk()?))
    }

    fn symbol(&self, number: usize) -> Option<&Symbol> {
        let bytes = self.data.get(self.table + number * size_of::<Symbol>()..)?;
        pod::from_bytes(bytes).ok().map(|(symbol, _)| symbol)
    }

    fn name(&self, symbol: &Symbol) -> Option<&[u8]> {
        let rest = self.data.get(self.names + symbol.st_name(self.endian) as usize..)?;
        rest.split(|&byte| byte == 0).next()
    }

    /// The names without which it cannot do, in the order of its table.
    pub fn wanted(&self) -> impl Iterator<Item = &[u8]> {
        let count = match self.index {
            // A program may hash one that it wants, if it compares the function's address.
            Index::Gnu(_) if self.is_program => self.end(),
            Index::Gnu(at) => self.gnu(at).map(|(_, first, _)| first),
            Index::Plain(at) => self.word(at + 4),
        };
        let all = (1..count.unwrap_or_default() as usize).map_while(|number| self.symbol(number));
        let wanted = all.filter(|it| it.is_undefined(self.endian) && !it.is_weak());
        wanted.filter_map(|it| self.name(it)).filter(|name| !name.is_empty())
    }

    /// How many there are: one more than the last of the last chain.
    fn end(&self) -> Option<u32> {
        let Index::Gnu(at) = self.index else { return None };
        let (buckets, first, chains) = self.gnu(at)?;
        let mut last =
            (0..self.word(at)? as usize).filter_map(|bucket| self.word(buckets + 4 * bucket)).max()?;
        if last < first {
            return Some(first);
        }
        while self.word(chains + 4 * (last - first) as usize)? & 1 == 0 {
            last += 1;
        }
        Some(last + 1)
    }

    /// Of the index: its buckets, its first symbol, and its chains.
    fn gnu(&self, at: usize) -> Option<(usize, u32, usize)> {
        let buckets = at + 16 + self.word(at + 8)? as usize * size_of::<usize>();
        Some((buckets, self.word(at + 4)?, buckets + 4 * self.word(at)? as usize))
    }

    fn find(&self, name: &[u8]) -> Option<&Symbol> {
        let is_it = |it: &&Symbol| !it.is_undefined(self.endian) && self.name(it) == Some(name);
        let at = match self.index {
            Index::Plain(at) => {
                return (1..self.word(at + 4)? as usize).filter_map(|number| self.symbol(number)).find(is_it);
            }
            Index::Gnu(at) => at,
        };
        let hash = elf::gnu_hash(name);
        let (bits, size, shift) = (usize::BITS, self.word(at + 8)?, self.word(at + 12)?);
        let filter = at + 16 + ((hash / bits).checked_rem(size)?) as usize * size_of::<usize>();
        let filter = usize::from_ne_bytes(*self.data.get(filter..)?.first_chunk()?);
        if filter >> (hash % bits) & filter >> (hash.checked_shr(shift)? % bits) & 1 == 0 {
            return None;
        }
        let (buckets, first, chains) = self.gnu(at)?;
        let mut number = self.word(buckets + 4 * hash.checked_rem(self.word(at)?)? as usize)?;
        loop {
            let link = self.word(chains + 4 * number.checked_sub(first)? as usize)?;
            if link | 1 == hash | 1
                && let Some(found) = self.symbol(number as usize).filter(is_it)
            {
                return Some(found);
            }
            if link & 1 == 1 {
                return None;
            }
            number += 1;
        }
    }

    /// Does it export this one?
    pub fn has(&self, name: &[u8]) -> bool {
        self.find(name).is_some()
    }

    /// The bytes of a variable, of the file `elf` whose symbols these are.
    pub fn variable(&self, elf: &Elf, name: &[u8]) -> Option<&[u8]> {
        let it = self.find(name)?;
        let at = usize::try_from(elf.offset(wide(it.st_value(self.endian)))?).ok()?;
        self.data.get(at..at.checked_add(usize::try_from(wide(it.st_size(self.endian))).ok()?)?)
    }
}
