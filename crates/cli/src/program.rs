// SPDX-License-Identifier: MIT OR Apache-2.0
//! Can a program be helped? The dynamic linker decides, by what the program's file is.

use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, SymbolTable};
use object::{Endianness, ReadRef, elf};

use crate::mapped::Mapped;

/// Why preloading does nothing for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Linked statically: there is no dynamic linker that could load anything.
    Static,
    /// Runs with other rights than ours; the dynamic linker then ignores LD_PRELOAD.
    Privileged(&'static str),
    /// For another processor or word size.
    Architecture,
    /// Linked against another C library.
    CLibrary(PathBuf),
    /// To be loaded by programs.
    Library,
    /// Not an ELF file; the kernel may still know how to run it.
    Format,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Static => {
                f.write_str("it is statically linked, so its locks cannot be replaced;\nlink it dynamically")
            }
            Self::Privileged(what) => write!(
                f,
                "it has {what}, and the dynamic linker preloads\nnothing into such programs; run it as a user who needs none of that"
            ),
            Self::Architecture => f.write_str("it is built for another processor or word size than this wakeful"),
            Self::CLibrary(linker) => {
                write!(f, "it uses the dynamic linker {},\nnot that of the GNU C library", linker.display())
            }
            Self::Library => f.write_str("it is a shared library and no program"),
            Self::Format => f.write_str("it is not an ELF program"),
        }
    }
}

/// A program's file, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// What runs: the program or, for a script, its interpreter.
    pub image: PathBuf,
    /// Why it cannot be helped.
    pub obstacle: Option<Obstacle>,
    /// Written in Go, which waits without pthread.
    pub go: bool,
}

/// Where execvp(3) would find a program.
pub fn find(name: &OsStr) -> io::Result<PathBuf> {
    if name.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut denied = false;
    for folder in std::env::split_paths(&path) {
        let place = folder.join(name);
        let place = if place.is_absolute() { place } else { Path::new(".").join(place) };
        match fs::metadata(&place) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => return Ok(place),
            Ok(_) => denied = true,
            Err(error) => denied |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
    Err(if denied { io::ErrorKind::PermissionDenied.into() } else { io::ErrorKind::NotFound.into() })
}

/// May this file be executed, so far as its kind and mode tell?
pub fn executable(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a C string.
    if unsafe { libc::access(name.as_ptr(), libc::X_OK) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// COST: the kernel follows at most so many interpreters of interpreters (BINPRM_BUF_SIZE bytes of the line each).
const INTERPRETERS: usize = 5;
const LINE: u64 = 256;

/// Looks at a program's file.
pub fn inspect(path: &Path) -> io::Result<Program> {
    let mut image = path.to_path_buf();
    for _ in 0..INTERPRETERS {
        match interpreter(&image)? {
            // exec will fail; whoever reports that wants to know what is missing.
            Some(next) if !next.exists() => return Ok(Program { image: next, obstacle: None, go: false }),
            Some(next) => image = next,
            None => break,
        }
    }
    let (obstacle, go) = match read_elf(&image)? {
        None => (Some(Obstacle::Format), false),
        Some(found) => (found.obstacle().or(privileges(&image)?.map(Obstacle::Privileged)), found.go),
    };
    Ok(Program { image, obstacle, go })
}

/// What runs a file that is not ELF: after `#!`, or the shell that execvp(3) falls back to.
fn interpreter(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut head = Vec::new();
    File::open(path)?.take(LINE).read_to_end(&mut head)?;
    if head.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    let Some(line) = head.strip_prefix(b"#!") else {
        // Bytes that no text has: not for the shell either.
        return Ok((!head.contains(&0)).then(|| PathBuf::from("/bin/sh")));
    };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let name: Vec<u8> = line
        .iter()
        .copied()
        .skip_while(|byte| b" \t".contains(byte))
        .take_while(|byte| !b" \t".contains(byte))
        .collect();
    Ok((!name.is_empty()).then(|| OsString::from_vec(name).into()))
}

/// Rights that running this file gives us and that we have not (`secureexec` in the kernel).
fn privileges(path: &Path) -> io::Result<Option<&'static str>> {
    let file = fs::metadata(path)?;
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a C string, and a null buffer of size 0 asks for existence only. Zeros are a valid statvfs. The ids have no arguments.
    let (uid, gid, capabilities, nosuid) = unsafe {
        let mut mount: libc::statvfs = std::mem::zeroed();
        let nosuid = libc::statvfs(name.as_ptr(), &mut mount) == 0 && mount.f_flag & libc::ST_NOSUID != 0;
        let attribute = c"security.capability".as_ptr();
        let capabilities = libc::getxattr(name.as_ptr(), attribute, std::ptr::null_mut(), 0) > 0;
        (libc::getuid(), libc::getgid(), capabilities, nosuid)
    };
    let mode = file.mode();
    Ok(if nosuid {
        None
    } else if mode & 0o4000 != 0 && file.uid() != uid {
        Some("the set-user-ID bit")
    } else if mode & 0o2010 == 0o2010 && file.gid() != gid {
        Some("the set-group-ID bit")
    } else if capabilities && uid != 0 {
        Some("file capabilities")
    } else {
        None
    })
}

/// What a program, or one of its libraries, asks of `natives` and `instead` cannot do: the file and the name.
pub fn lacks(image: &Path, libraries: &[PathBuf], natives: &[PathBuf], instead: &Symbols) -> Option<String> {
    let natives: Vec<_> = natives.iter().filter_map(|path| symbols(path).ok()?).collect();
    let ours = instead.names(false);
    let there = natives.iter().flat_map(|native| native.names(false));
    let lacking: HashSet<_> = there.filter(|name| !ours.contains(name)).chain(instead.absent()).collect();
    libraries.iter().map(PathBuf::as_path).chain([image]).find_map(|path| {
        let found = symbols(path).ok()??;
        let name = found.names(true).into_iter().find(|name| lacking.contains(name))?;
        Some(format!("{}: {}", path.display(), String::from_utf8_lossy(name)))
    })
}

struct Elf {
    machine: u16,
    is_64: bool,
    linker: Option<PathBuf>,
    is_linker: bool,
    /// Where it begins, if it does.
    has_entry: bool,
    go: bool,
}

impl Elf {
    fn obstacle(&self) -> Option<Obstacle> {
        if !is_ours(self.machine, self.is_64) {
            return Some(Obstacle::Architecture);
        }
        match &self.linker {
            None if self.is_linker => None,
            None if !self.has_entry => Some(Obstacle::Library),
            None => Some(Obstacle::Static),
            Some(linker) if is_glibc_linker(linker) => None,
            Some(linker) => Some(Obstacle::CLibrary(linker.clone())),
        }
    }
}

/// Is this the processor and word size of this program?
fn is_ours(machine: u16, is_64: bool) -> bool {
    let ours = match std::env::consts::ARCH {
        "x86_64" => elf::EM_X86_64,
        "aarch64" => elf::EM_AARCH64,
        "riscv64" => elf::EM_RISCV,
        _ => elf::EM_ARM,
    };
    (machine, is_64) == (ours.0, cfg!(target_pointer_width = "64"))
}

/// glibc's dynamic linkers are named so on every architecture; musl's and Android's are not.
fn is_glibc_linker(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    [b"ld-linux".as_slice(), b"ld64.so", b"ld.so"].iter().any(|prefix| name.starts_with(prefix))
}

fn read_elf(path: &Path) -> io::Result<Option<Elf>> {
    let data = Mapped::open(path)?;
    let data = &*data;
    let mut elf = match object::FileKind::parse(data) {
        Ok(object::FileKind::Elf64) => parse::<elf::FileHeader64<Endianness>, _>(data),
        Ok(object::FileKind::Elf32) => parse::<elf::FileHeader32<Endianness>, _>(data),
        _ => return Ok(None),
    };
    if let Some(elf) = &mut elf {
        elf.is_linker = is_glibc_linker(&fs::canonicalize(path)?);
    }
    Ok(elf)
}

fn parse<'data, H: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(data: R) -> Option<Elf> {
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let linker = header.program_headers(endian, data).ok()?.iter().find_map(|segment| {
        let path = segment.interpreter(endian, data).ok()??;
        Some(PathBuf::from(OsStr::from_bytes(path)))
    });
    let go = header.sections(endian, data).is_ok_and(|sections| {
        let name = |section: &H::SectionHeader| sections.section_name(endian, section).unwrap_or_default();
        sections.iter().any(|section| section.sh_type(endian) != elf::SHT_NULL && name(section) == b".go.buildinfo")
    });
    let (machine, is_64, has_entry) =
        (header.e_machine(endian).0, header.is_type_64(), header.e_entry(endian).into() != 0);
    Some(Elf { machine, is_64, linker, is_linker: false, has_entry, go })
}

/// The dynamic symbols of a shared library that can be preloaded here.
///
/// # Errors
/// Why it cannot be preloaded.
pub fn library(path: &Path) -> anyhow::Result<Symbols> {
    let found = symbols(path).context("it cannot be read")?;
    let Some(found) = found else { bail!("it is not a shared library") };
    if !is_ours(found.machine, found.is_64) {
        bail!("{}", Obstacle::Architecture);
    }
    if !found.is_shared() {
        bail!("it is not a shared library");
    }
    Ok(found)
}

/// The dynamic symbols of a file, looked for when they are asked for: of a library with a thousand, `run` wants one.
pub struct Symbols {
    data: Mapped,
    machine: u16,
    is_64: bool,
}

/// Header of the files that this program's processor runs. Symbols of others nobody wants.
#[cfg(target_pointer_width = "64")]
type OurHeader = elf::FileHeader64<Endianness>;
#[cfg(target_pointer_width = "32")]
type OurHeader = elf::FileHeader32<Endianness>;
type Table<'a> = SymbolTable<'a, OurHeader>;
type Symbol = <OurHeader as FileHeader>::Sym;

impl Symbols {
    fn table(&self) -> Option<(&OurHeader, Endianness, Table<'_>)> {
        let data = &*self.data;
        let header = OurHeader::parse(data).ok()?;
        let endian = header.endian().ok()?;
        Some((header, endian, header.sections(endian, data).ok()?.symbols(endian, data, elf::SHT_DYNSYM).ok()?))
    }

    fn is_shared(&self) -> bool {
        self.table().is_some_and(|(header, endian, table)| header.e_type(endian) == elf::ET_DYN && !table.is_empty())
    }

    /// The names that it defines, or those without which it cannot do.
    fn names(&self, undefined: bool) -> HashSet<&[u8]> {
        let Some((_, endian, table)) = self.table() else { return HashSet::new() };
        let those = table.iter().filter(|it| it.is_undefined(endian) == undefined && !(undefined && it.is_weak()));
        those.filter_map(|it| table.symbol_name(endian, it).ok()).collect()
    }

    fn find(&self, name: &[u8]) -> Option<(&OurHeader, Endianness, &Symbol)> {
        let (header, endian, table) = self.table()?;
        let is_it = |it: &&Symbol| !it.is_undefined(endian) && table.symbol_name(endian, it) == Ok(name);
        table.iter().find(is_it).map(|it| (header, endian, it))
    }

    /// Does it export this one?
    pub fn has(&self, name: &[u8]) -> bool {
        self.find(name).is_some()
    }

    /// The functions of it that only say that it has them not: what [`ABSENT_SYMBOL`] says.
    fn absent(&self) -> impl Iterator<Item = &[u8]> {
        let words = self.find(ABSENT_SYMBOL).and_then(|(header, endian, it)| {
            let data = &*self.data;
            let segments = header.program_headers(endian, data).ok()?;
            let (at, size) = (it.st_value(endian).into(), it.st_size(endian).into());
            segments.iter().find_map(|segment| segment.data_range(endian, data, at, size).ok()?)
        });
        words.unwrap_or_default().split(|&byte| byte == b' ').filter(|name| !name.is_empty())
    }
}

/// By this symbol our OpenMP runtime says what it lacks.
const ABSENT_SYMBOL: &[u8] = b"WAKEFUL_OMP_ABSENT";

/// `None`: not an ELF file.
fn symbols(path: &Path) -> io::Result<Option<Symbols>> {
    let data = Mapped::open(path)?;
    Ok(match object::FileKind::parse(&*data) {
        Ok(object::FileKind::Elf64) => machine::<elf::FileHeader64<Endianness>>(&data),
        Ok(object::FileKind::Elf32) => machine::<elf::FileHeader32<Endianness>>(&data),
        _ => None,
    }
    .map(|(machine, is_64)| Symbols { data, machine, is_64 }))
}

fn machine<H: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<(u16, bool)> {
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    header.sections(endian, data).ok()?;
    Some((header.e_machine(endian).0, header.is_type_64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_program_that_can_be_helped() {
        let here = std::env::current_exe().unwrap();
        assert_eq!(inspect(&here).unwrap(), Program { image: here, obstacle: None, go: false });
    }

    #[test]
    fn dynamic_linkers_are_told_apart_by_name() {
        for (path, glibc) in [
            ("/lib64/ld-linux-x86-64.so.2", true),
            ("/nix/store/x/lib/ld-linux-aarch64.so.1", true),
            ("/lib64/ld64.so.2", true),
            ("/lib/ld-musl-x86_64.so.1", false),
            ("/system/bin/linker64", false),
        ] {
            assert_eq!(is_glibc_linker(Path::new(path)), glibc, "{path}");
        }
    }

    #[test]
    fn a_library_is_known_by_what_it_exports() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc =
            maps.lines().find_map(|line| line.split_whitespace().nth(5).filter(|path| path.contains("/libc.so")));
        let libc = Path::new(libc.unwrap());
        let found = library(libc).unwrap();
        assert!(found.has(b"pthread_mutex_lock") && !found.has(b"wakeful_preload_view"));
        for (what, reason) in [("/etc/passwd", "not a shared library"), ("/no/such/file", "cannot be read")] {
            let error = library(Path::new(what)).err().unwrap().to_string();
            assert!(error.contains(reason), "{what}: {error}");
        }
    }

    #[test]
    fn a_program_without_a_slash_is_looked_for() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("no such program")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find(OsStr::new("")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find(OsStr::new("./x")).unwrap(), Path::new("./x"));
    }
}
