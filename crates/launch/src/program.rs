// SPDX-License-Identifier: MIT OR Apache-2.0
//! Can a program be helped? The dynamic linker decides, by what the program's file is.

use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, FileKind, elf};

use crate::elf::{Elf, Mapped, Symbols, head};

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
                "it has {what}, and the dynamic linker preloads\n\
                 nothing into such programs; run it as a user that needs none of that"
            ),
            Self::Architecture => {
                f.write_str("it is built for another processor or word size than this wakeful")
            }
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
            // Not there, or in a folder that is not the user's to read: nobody knows whether it is there.
            Err(_) => {}
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
    if unsafe { libc::access(name.as_ptr(), libc::X_OK) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// BOUND: the kernel follows at most so many interpreters of interpreters (BINPRM_BUF_SIZE bytes of the
/// line each).
const INTERPRETERS: usize = 5;
const LINE: usize = 256;

/// Looks at a program's file.
pub fn inspect(path: &Path) -> io::Result<Program> {
    let mut image = path.to_path_buf();
    for _ in 0..INTERPRETERS {
        let file = File::open(&image)?;
        let head = head(&file)?;
        match interpreter(&head[..head.len().min(LINE)]) {
            // exec will fail; whoever reports that wants to know what is missing.
            Some(next) if !next.exists() => return Ok(Program { image: next, obstacle: None }),
            Some(next) => image = next,
            None => return judge(image, Elf::new(file, head)?),
        }
    }
    let elf = Elf::open(&image)?;
    judge(image, elf)
}

fn judge(image: PathBuf, elf: Option<Elf>) -> io::Result<Program> {
    let obstacle = match elf {
        None => Some(Obstacle::Format),
        Some(elf) => match obstacle(&elf, &image)? {
            None => privileges(&image)?.map(Obstacle::Privileged),
            found => found,
        },
    };
    Ok(Program { image, obstacle })
}

/// What runs a file that is not ELF, by its first bytes: after `#!`, or the shell that execvp(3) falls
/// back to.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    if head.starts_with(b"\x7fELF") {
        return None;
    }
    let Some(line) = head.strip_prefix(b"#!") else {
        // Bytes that no text has: not for the shell either.
        return (!head.contains(&0)).then(|| PathBuf::from("/bin/sh"));
    };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let name: Vec<u8> = line
        .iter()
        .copied()
        .skip_while(|byte| b" \t".contains(byte))
        .take_while(|byte| !b" \t".contains(byte))
        .collect();
    (!name.is_empty()).then(|| OsString::from_vec(name).into())
}

/// Rights that running this file gives us and that we have not (`secureexec` in the kernel).
fn privileges(path: &Path) -> io::Result<Option<&'static str>> {
    let file = fs::metadata(path)?;
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a C string, and a null buffer of size 0 asks for existence only. Zeros are a valid statvfs.
    // The ids have no arguments.
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

/// What one of these files asks of `natives` and `instead` cannot do: the file and the name.
pub fn lacks(askers: &[&Path], natives: &[&Path], instead: &Library) -> Option<String> {
    let symbols = |path: &Path| Elf::open(path).ok()??.dynamic()?.symbols();
    let natives: Vec<Symbols> = natives.iter().filter_map(|path| symbols(path)).collect();
    let absent: HashSet<&[u8]> = instead.absent().collect();
    let lacking = |name: &&[u8]| match instead.has(name) {
        true => absent.contains(name),
        false => natives.iter().any(|native| native.has(name)),
    };
    askers.iter().filter_map(|path| Some((path, symbols(path)?))).find_map(|(path, found)| {
        // No runtime has names of C++, of which a program asks for a thousand.
        let name = found.wanted().filter(|name| !name.starts_with(b"_Z")).find(lacking)?;
        Some(format!("{}: {}", path.display(), String::from_utf8_lossy(name)))
    })
}

fn obstacle(elf: &Elf, path: &Path) -> io::Result<Option<Obstacle>> {
    Ok(match &elf.linker {
        _ if !elf.is_ours() => Some(Obstacle::Architecture),
        None if is_glibc_linker(&fs::canonicalize(path)?) => None,
        None if !elf.has_entry => Some(Obstacle::Library),
        None => Some(Obstacle::Static),
        Some(linker) if is_glibc_linker(linker) => None,
        Some(linker) => Some(Obstacle::CLibrary(linker.clone())),
    })
}

/// glibc's dynamic linkers are named so on every architecture; musl's and Android's are not.
fn is_glibc_linker(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    [b"ld-linux".as_slice(), b"ld64.so", b"ld.so"].iter().any(|prefix| name.starts_with(prefix))
}

/// Is this program written in Go, which waits without pthread? Its sections say so.
pub fn is_go(path: &Path) -> bool {
    let data = File::open(path).and_then(|file| Mapped::of(&file));
    data.is_ok_and(|data| match FileKind::parse(&*data) {
        Ok(FileKind::Elf64) => has_section::<elf::FileHeader64<Endianness>>(&data, b".go.buildinfo"),
        Ok(FileKind::Elf32) => has_section::<elf::FileHeader32<Endianness>>(&data, b".go.buildinfo"),
        _ => false,
    })
}

/// Is this program written in Rust, whose std waits without pthread? Its messages name the files of that
/// library, also in a program without symbols.
pub fn is_rust(path: &Path) -> bool {
    let data = File::open(path).and_then(|file| Mapped::of(&file));
    // As "/rustc/HASH/library/std/src/thread/mod.rs".
    data.is_ok_and(|data| data.split(|byte| *byte == b'/').any(|part| part.starts_with(b"rustc")))
}

fn has_section<H: FileHeader<Endian = Endianness>>(data: &[u8], wanted: &[u8]) -> bool {
    let Ok(header) = H::parse(data) else { return false };
    let Ok(endian) = header.endian() else { return false };
    header.sections(endian, data).is_ok_and(|sections| {
        let name = |section: &H::SectionHeader| sections.section_name(endian, section).unwrap_or_default();
        sections.iter().any(|section| section.sh_type(endian) != elf::SHT_NULL && name(section) == wanted)
    })
}

/// A shared library that can be preloaded here.
pub struct Library {
    elf: Elf,
    symbols: Symbols,
}

/// # Errors
/// Why it cannot be preloaded.
pub fn library(path: &Path) -> anyhow::Result<Library> {
    let found = Elf::open(path).context("it cannot be read")?;
    let Some(elf) = found else { bail!("it is not a shared library") };
    if !elf.is_ours() {
        bail!("{}", Obstacle::Architecture);
    }
    match elf.dynamic().and_then(|dynamic| dynamic.symbols()) {
        Some(symbols) if elf.is_movable => Ok(Library { elf, symbols }),
        _ => bail!("it is not a shared library"),
    }
}

impl Library {
    /// Does it export this one?
    pub fn has(&self, name: &[u8]) -> bool {
        self.symbols.has(name)
    }

    /// The functions of it that only say that it has them not: what [`ABSENT_SYMBOL`] says.
    fn absent(&self) -> impl Iterator<Item = &[u8]> {
        let words = self.symbols.variable(&self.elf, ABSENT_SYMBOL).unwrap_or_default();
        words.split(|&byte| byte == b' ').filter(|name| !name.is_empty())
    }
}

/// By this symbol our OpenMP runtime says what it lacks.
const ABSENT_SYMBOL: &[u8] = b"WAKEFUL_OMP_ABSENT";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_program_that_can_be_helped() {
        let here = std::env::current_exe().unwrap();
        assert!(is_rust(&here) && !is_rust(Path::new("/bin/sh")));
        assert_eq!(inspect(&here).unwrap(), Program { image: here, obstacle: None });
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
        let libc = maps
            .lines()
            .find_map(|line| line.split_whitespace().nth(5).filter(|path| path.contains("/libc.so")));
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
