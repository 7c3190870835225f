// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libraries that the dynamic linker loads for a program. We look for them as it does (ld.so(8)); to ask it, as ldd(1) does, would
//! take longer than all else that `wakeful run` does. What we do not find is left out.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, FileHeader, SectionHeader};
use object::{Endianness, elf};

use crate::mapped::Mapped;

/// A library: the name by which it is asked for, and its file.
pub type Library = (String, PathBuf);

/// The C library and the compiler's, which need nothing but each other. Nearly every program is linked with some.
const KNOWN: [&str; 9] = [
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

/// Where the linker looks when nothing else says so.
const FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// What an object asks for.
#[derive(Default)]
struct Wants {
    needed: Vec<String>,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
}

/// All libraries of a program but the [`KNOWN`] ones, each once.
pub fn libraries(image: &Path) -> Vec<Library> {
    let near: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .map(|list| {
            list.as_bytes().split(|byte| b":;".contains(byte)).map(|part| OsStr::from_bytes(part).into()).collect()
        })
        .unwrap_or_default();
    let mut cache = None;
    let mut found: Vec<Library> = Vec::new();
    let mut asked: HashSet<String> = HashSet::new();
    let Some(program) = wants(image) else { return found };
    let inherited = program.rpath.clone();
    let mut queue = VecDeque::from([program]);
    while let Some(wants) = queue.pop_front() {
        for name in &wants.needed {
            if KNOWN.contains(&name.as_str()) || !asked.insert(name.clone()) {
                continue;
            }
            let folders = wants.rpath.iter().chain(&inherited).chain(&near).chain(&wants.runpath);
            let place = match name.contains('/') {
                true => Some(PathBuf::from(name)),
                false => folders.map(|folder| folder.join(name)).find(|place| place.is_file()).or_else(|| {
                    let cache = cache.get_or_insert_with(|| Mapped::open(Path::new("/etc/ld.so.cache")).ok());
                    cache.as_ref().and_then(|cache| cached(cache, name)).or_else(|| {
                        FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|place| place.is_file())
                    })
                }),
            };
            if let Some(place) = place {
                queue.extend(self::wants(&place));
                found.push((name.clone(), place));
            }
        }
    }
    found
}

fn wants(path: &Path) -> Option<Wants> {
    let data = Mapped::open(path).ok()?;
    let origin = path.canonicalize().ok()?.parent()?.to_path_buf();
    match object::FileKind::parse(&*data).ok()? {
        object::FileKind::Elf64 => parse::<elf::FileHeader64<Endianness>>(&data, &origin),
        object::FileKind::Elf32 => parse::<elf::FileHeader32<Endianness>>(&data, &origin),
        _ => None,
    }
}

fn parse<H: FileHeader<Endian = Endianness>>(data: &[u8], origin: &Path) -> Option<Wants> {
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let (entries, link) = sections.iter().find_map(|section| section.dynamic(endian, data).ok()?)?;
    let strings = sections.strings(endian, data, link).ok()?;
    let mut wants = Wants::default();
    for entry in entries {
        let text = || {
            let at: u64 = entry.d_val(endian).into();
            strings.get(u32::try_from(at).ok()?).ok()
        };
        let folders = || -> Vec<PathBuf> {
            let folders = text().unwrap_or_default().split(|&byte| byte == b':').filter(|folder| !folder.is_empty());
            folders.map(|folder| expanded(folder, origin)).collect()
        };
        match entry.d_tag(endian) {
            elf::DT_NEEDED => wants.needed.extend(text().map(|name| String::from_utf8_lossy(name).into_owned())),
            elf::DT_RPATH => wants.rpath = folders(),
            elf::DT_RUNPATH => wants.runpath = folders(),
            _ => {}
        }
    }
    // The linker goes by one of them.
    if !wants.runpath.is_empty() {
        wants.rpath.clear();
    }
    Some(wants)
}

/// `$ORIGIN` is the folder of who says it.
fn expanded(folder: &[u8], origin: &Path) -> PathBuf {
    let rest = folder.strip_prefix(b"$ORIGIN").or(folder.strip_prefix(b"${ORIGIN}"));
    match rest {
        Some(rest) => {
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            origin.join(OsStr::from_bytes(rest))
        }
        None => OsStr::from_bytes(folder).into(),
    }
}

/// Looks a name up in ld.so.cache: a header, entries of fixed size, strings, which the entries name by their place in the file.
fn cached(cache: &[u8], name: &str) -> Option<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    // The kind of library: the architecture that the linker would take.
    const KIND: u32 = if cfg!(target_arch = "x86_64") { 0x0303 } else { 0x0a03 };
    let start = cache.windows(MAGIC.len()).step_by(8).position(|part| part == MAGIC)? * 8;
    let file = cache.get(start..)?;
    let word = |at: usize| Some(u32::from_ne_bytes(*file.get(at..)?.first_chunk()?));
    let string = |at: u32| file.get(at as usize..)?.split(|&byte| byte == 0).next();
    (0..word(MAGIC.len())? as usize).find_map(|index| {
        let at = HEADER + index * ENTRY;
        let fits = word(at)? == KIND && string(word(at + 4)?)? == name.as_bytes();
        fits.then(|| Some(PathBuf::from(OsStr::from_bytes(string(word(at + 8)?)?))))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The dynamic linker's own answer for a program with many libraries.
    #[test]
    fn as_the_dynamic_linker_finds_them() {
        let image =
            ["/usr/bin/gdb", "/usr/bin/python3", "/bin/ls"].map(Path::new).into_iter().find(|path| path.is_file());
        let image = image.unwrap();
        let said = Command::new(image).env("LD_TRACE_LOADED_OBJECTS", "1").env_remove("LD_PRELOAD").output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let mut theirs: Vec<Library> = said
            .lines()
            .filter_map(|line| line.trim().split_once(" => "))
            .filter_map(|(name, rest)| Some((name.to_string(), PathBuf::from(rest.rsplit_once(" (")?.0))))
            .filter(|(name, _)| !KNOWN.contains(&name.as_str()))
            .collect();
        let mut ours = libraries(image);
        theirs.sort();
        ours.sort();
        assert!(!theirs.is_empty(), "{said}");
        assert_eq!(ours, theirs, "{}", image.display());
    }

    #[test]
    fn origin_is_where_the_library_is() {
        let origin = Path::new("/opt/x/lib");
        for (folder, meant) in
            [("$ORIGIN/../y.libs", "/opt/x/lib/../y.libs"), ("${ORIGIN}", "/opt/x/lib/"), ("/usr/lib", "/usr/lib")]
        {
            assert_eq!(expanded(folder.as_bytes(), origin), Path::new(meant), "{folder}");
        }
    }
}
