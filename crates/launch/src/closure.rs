// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libraries that the dynamic linker loads for a program. We look for them as it does (ld.so(8)); to
//! ask it, as ldd(1) does, would take longer than all else that `wakeful run` does. What we do not find
//! is left out.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use linux::image::{Cache, KNOWN};
use object::elf;

use crate::elf::{Elf, Mapped};
use crate::library::runtime;

/// A library, or the program itself.
pub struct Object {
    /// The name by which it is asked for.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// What it asks for.
    pub needed: Vec<String>,
    /// Is it the program, or does the program ask for it, itself or by libraries that are not the system's?
    pub is_near: bool,
}

/// How far to follow what objects ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Not beyond a library in the system's folders, but where it needs an OpenMP runtime. A program has few
    /// near objects, and may have hundreds behind.
    Near,
    /// To the end.
    All,
}

/// Where the linker looks when nothing else says so.
const FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// A library that the system's packages brought: what it asks for, they brought as well.
fn is_of_system(path: &Path) -> bool {
    FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// What an object asks for, and where it is looked for.
struct Wants {
    needed: Vec<String>,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
}

/// The program, and behind it its libraries but the [`KNOWN`] ones, each once, near ones first.
pub fn objects(image: &Path, reach: Reach) -> Vec<Object> {
    let near: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .map(|list| {
            list.as_bytes()
                .split(|byte| b":;".contains(byte))
                .map(|part| OsStr::from_bytes(part).into())
                .collect()
        })
        .unwrap_or_default();
    let mut cache = None;
    let mut found: Vec<Object> = Vec::new();
    let mut asked: HashSet<String> = HashSet::new();
    let Some(program) = wants(image, true) else { return found };
    let inherited = program.rpath.clone();
    found.push(Object {
        name: String::new(),
        path: image.into(),
        needed: program.needed.clone(),
        is_near: true,
    });
    let (mut queue, mut far, mut is_near) = (VecDeque::from([program]), VecDeque::new(), true);
    loop {
        let next = queue.pop_front().or_else(|| {
            is_near = false;
            far.pop_front().filter(|_| reach == Reach::All)
        });
        let Some(wants) = next else { return found };
        for name in &wants.needed {
            if KNOWN.contains(&name.as_str()) || asked.contains(name) {
                continue;
            }
            asked.insert(name.clone());
            let folders = wants.rpath.iter().chain(&inherited).chain(&near).chain(&wants.runpath);
            let place = match name.contains('/') {
                true => Some(PathBuf::from(name)),
                false => {
                    folders.map(|folder| folder.join(name)).find(|place| place.is_file()).or_else(|| {
                        let cache = cache.get_or_insert_with(cache_file).as_deref().and_then(Cache::new);
                        cache.and_then(|cache| found_in(&cache, name)).or_else(|| {
                            FOLDERS
                                .iter()
                                .map(|folder| Path::new(folder).join(name))
                                .find(|place| place.is_file())
                        })
                    })
                }
            };
            if let Some(path) = place
                && let Some(wants) = self::wants(&path, false)
            {
                let is_followed =
                    !is_of_system(&path) || wants.needed.iter().any(|name| runtime(name).is_some());
                let needed = wants.needed.clone();
                if is_near && is_followed { &mut queue } else { &mut far }.push_back(wants);
                found.push(Object { name: name.clone(), path, needed, is_near });
            }
        }
    }
}

fn cache_file() -> Option<Mapped> {
    Mapped::of(&File::open("/etc/ld.so.cache").ok()?).ok()
}

fn found_in(cache: &Cache, name: &str) -> Option<PathBuf> {
    cache.find(name.as_bytes()).map(|path| OsStr::from_bytes(path).into())
}

fn wants(path: &Path, is_program: bool) -> Option<Wants> {
    let elf = Elf::open(path).ok()??;
    let mut wants = Wants { needed: Vec::new(), rpath: Vec::new(), runpath: Vec::new() };
    for (kind, text) in elf.dynamic()?.strings([elf::DT_NEEDED, elf::DT_RPATH, elf::DT_RUNPATH]) {
        let folders = || {
            let folders = text.split(|&byte| byte == b':').filter(|folder| !folder.is_empty());
            folders.map(|folder| expanded(folder, path, is_program)).collect()
        };
        match kind {
            elf::DT_NEEDED => wants.needed.push(String::from_utf8_lossy(&text).into_owned()),
            elf::DT_RPATH => wants.rpath = folders(),
            _ => wants.runpath = folders(),
        }
    }
    // The linker goes by one of them.
    if !wants.runpath.is_empty() {
        wants.rpath.clear();
    }
    Some(wants)
}

/// `$ORIGIN` is the folder of the object that says it. The linker takes a program's from the kernel,
/// without links.
fn expanded(folder: &[u8], object: &Path, is_program: bool) -> PathBuf {
    let rest = folder.strip_prefix(b"$ORIGIN").or(folder.strip_prefix(b"${ORIGIN}"));
    match rest {
        Some(rest) => {
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            let real = if is_program { object.canonicalize().ok() } else { None };
            let origin = real.as_deref().unwrap_or(object).parent();
            origin.unwrap_or(Path::new("/")).join(OsStr::from_bytes(rest))
        }
        None => OsStr::from_bytes(folder).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The dynamic linker's own answer for a program with many libraries.
    #[test]
    fn as_the_dynamic_linker_finds_them() {
        let image = ["/usr/bin/gdb", "/usr/bin/python3", "/bin/ls"]
            .map(Path::new)
            .into_iter()
            .find(|path| path.is_file());
        let image = image.unwrap();
        let said = Command::new(image)
            .env("LD_TRACE_LOADED_OBJECTS", "1")
            .env_remove("LD_PRELOAD")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let mut theirs: Vec<(String, PathBuf)> = said
            .lines()
            .filter_map(|line| line.trim().split_once(" => "))
            .filter_map(|(name, rest)| Some((name.to_string(), PathBuf::from(rest.rsplit_once(" (")?.0))))
            .filter(|(name, _)| !KNOWN.contains(&name.as_str()))
            .collect();
        let found = objects(image, Reach::All);
        assert_eq!((found[0].name.as_str(), found[0].path.as_path()), ("", image));
        let mut ours: Vec<_> = found.into_iter().skip(1).map(|object| (object.name, object.path)).collect();
        theirs.sort();
        ours.sort();
        assert!(!theirs.is_empty(), "{said}");
        assert_eq!(ours, theirs, "{}", image.display());
    }

    #[test]
    fn what_the_system_s_libraries_ask_for_is_far() {
        let image = Path::new("/bin/ls").canonicalize().unwrap();
        let (near, all) = (objects(&image, Reach::Near), objects(&image, Reach::All));
        let direct = near[0].needed.iter().filter(|name| !KNOWN.contains(&name.as_str())).count();
        assert_eq!(near.len(), 1 + direct);
        assert!(near.len() < all.len() && near.iter().all(|object| object.is_near), "{}", all.len());
        let those = all.iter().filter(|object| object.is_near).map(|object| &object.path);
        assert!(those.eq(near.iter().map(|object| &object.path)));
    }

    #[test]
    fn origin_is_where_the_library_is() {
        let library = Path::new("/opt/x/lib/liby.so");
        for (folder, meant) in [
            ("$ORIGIN/../y.libs", "/opt/x/lib/../y.libs"),
            ("${ORIGIN}", "/opt/x/lib/"),
            ("/usr/lib", "/usr/lib"),
        ] {
            assert_eq!(expanded(folder.as_bytes(), library, false), Path::new(meant), "{folder}");
        }
    }
}
