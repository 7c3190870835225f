// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the interposer is.

use std::ffi::{CStr, OsStr, c_char};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use linux::image::is_closed;

use crate::closure::{self, Object, Reach};
use crate::interposer::{self, VIEW_SYMBOL};
use crate::program;

/// File name of the interposer.
pub const NAME: &str = "libwakeful_preload.so";
/// What to do where a part of us is missing, or of another version.
pub const AGAIN: &str = "install the package again, or build it with `cargo build --release`";
/// The environment variable that says where it is.
pub const VARIABLE: &str = linux::environment::PRELOAD.name();

/// The interposer: where [`VARIABLE`] says, else in the first of the [`places`] that has it.
pub fn find() -> Result<PathBuf> {
    let (path, remedy) = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                bail!(
                    "{VARIABLE} names {}, which is not a file;\nset it to the path of {NAME}, or unset it",
                    path.display()
                );
            }
            (std::path::absolute(path)?, format!("set {VARIABLE} to the path of {NAME}, or unset it"))
        }
        None => (beside_us()?, format!("{AGAIN}, or set {VARIABLE} to its path")),
    };
    // The dynamic linker splits LD_PRELOAD at both and knows no escape.
    if path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        bail!(
            "{}\nhas a space or a colon in its path, which LD_PRELOAD cannot express;\n\
             copy it elsewhere and set {VARIABLE} to that place",
            path.display()
        );
    }
    match program::library(&path) {
        Ok(found) if found.has(VIEW_SYMBOL.to_bytes()) => Ok(path),
        Ok(_) => bail!("{}\nis a shared library, but not wakeful's interposer;\n{remedy}", path.display()),
        Err(reason) if forbidden(&reason) => {
            bail!("cannot preload {}:\n{reason:#};\nlet everybody read it: chmod a+r", path.display())
        }
        Err(reason) => bail!("cannot preload {}:\n{reason:#};\n{remedy}", path.display()),
    }
}

/// File name of our OpenMP runtime, which is where the interposer is.
pub const OPENMP_NAME: &str = "libgomp_wakeful.so";
const OPENMP_SYMBOL: &[u8] = b"wakeful_omp_version";

/// Where a program's OpenMP regions run, and those of what it loads or starts.
pub struct OpenMp {
    /// The runtime that the program is linked with, directly or by another library: libgomp or libomp.
    pub linked: Option<&'static str>,
    /// Ours, or why it is not.
    pub path: Result<PathBuf>,
    /// What a far library of the program asks for in vain: the file and the name.
    lacks: Option<String>,
}

impl OpenMp {
    /// The words of `run -v` and `doctor`. Where the program has no regions, and nothing is there for
    /// others, there are none.
    pub fn says(&self) -> Option<String> {
        let words = match (&self.path, self.linked) {
            (Ok(path), Some(_)) => format!("OpenMP regions run on {}", path.display()),
            (Ok(path), None) => {
                format!("OpenMP regions of what it loads or starts run on {}", path.display())
            }
            (Err(reason), Some(native)) => format!("OpenMP regions run on {native}:\n{reason:#}"),
            (Err(_), None) => return None,
        };
        Some(match &self.lacks {
            Some(lacks) => format!(
                "{words};\n\
                 that ends the program if it calls what is not there ({NEVER} prevents this):\n{lacks}"
            ),
            None => words,
        })
    }
}

/// The option that leaves programs on their own runtime.
const NEVER: &str = "--openmp=never";

/// Which OpenMP runtime a library of this name is, if it is one.
pub fn runtime(name: &str) -> Option<&'static str> {
    linux::image::runtime(name.as_bytes())
}

/// What our runtime can do for a program. Near objects decide; of others, if they are in reach, we only tell.
pub fn openmp(interposer: &Path, image: &Path, reach: Reach) -> OpenMp {
    let (natives, others): (Vec<Object>, Vec<Object>) =
        closure::objects(image, reach).into_iter().partition(|object| runtime(&object.name).is_some());
    let linked = natives.first().and_then(|object| runtime(&object.name));
    let path = interposer.with_file_name(OPENMP_NAME);
    let found = program::library(&path);
    let found = match found {
        Ok(found) if found.has(OPENMP_SYMBOL) => found,
        found => {
            let reason = match found.err() {
                Some(reason) => format!(":\n{reason:#};"),
                None => "\nis not wakeful's OpenMP runtime;".into(),
            };
            let reason = anyhow!("{}{reason}\n{AGAIN}", path.display());
            return OpenMp { linked, path: Err(reason), lacks: None };
        }
    };
    let natives: Vec<&Path> = natives.iter().map(|object| object.path.as_path()).collect();
    let lacks = |near: bool| {
        // Who needs no runtime asks nothing of it.
        let needs = |object: &&Object| object.needed.iter().any(|name| runtime(name).is_some());
        let askers = others.iter().filter(|object| object.is_near == near).filter(needs);
        let askers: Vec<&Path> = askers.map(|object| object.path.as_path()).collect();
        if askers.is_empty() { None } else { program::lacks(&askers, &natives, &found) }
    };
    match lacks(true) {
        Some(lacks) => {
            let reason = anyhow!(
                "wakeful's OpenMP runtime has not all that the program asks for:
{lacks}"
            );
            OpenMp { linked, path: Err(reason), lacks: None }
        }
        None => OpenMp { linked, path: Ok(path), lacks: lacks(false) },
    }
}

/// Is there nobody in this program who could use an OpenMP runtime? A library that the user preloads might.
pub fn is_alone(library: &Path, image: &Path) -> bool {
    let ours = [library.to_path_buf(), library.with_file_name(OPENMP_NAME)];
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    interposer::entries(&preloaded)
        .all(|entry| ours.iter().any(|path| path.as_os_str().as_bytes() == interposer::plain(entry)))
        && File::open(image).is_ok_and(|file| is_closed(file.as_raw_fd(), &mut [0; 4096], 0))
}

/// The file is there, but not for us.
fn forbidden(reason: &anyhow::Error) -> bool {
    let kind = reason.root_cause().downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::PermissionDenied)
}

/// The file of this program, also where /proc is not mounted: then as the kernel was asked for it.
pub fn this_program() -> Result<PathBuf> {
    if let Ok(path) = std::env::current_exe() {
        return Ok(path);
    }
    // SAFETY: the kernel's string stays, if there is one.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) as *const c_char };
    if name.is_null() {
        bail!("the kernel does not say where this program is; mount /proc");
    }
    // SAFETY: as above.
    let name = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    name.canonicalize().with_context(|| format!("cannot find {}, which this program is", name.display()))
}

/// Where a part of us may be: beside this program, or where packages put it. Debian has a folder of libraries
/// for each architecture.
const FOLDERS: [&str; 3] = [
    "",
    if cfg!(target_arch = "aarch64") {
        "../lib/aarch64-linux-gnu/wakeful"
    } else {
        "../lib/x86_64-linux-gnu/wakeful"
    },
    "../lib/wakeful",
];

/// Where this part may be, the first place first.
pub fn places(part: &str) -> Result<[PathBuf; 3]> {
    let program = this_program()?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    Ok(FOLDERS.map(|place| folder.join(place).join(part)))
}

fn beside_us() -> Result<PathBuf> {
    let places = places(NAME).with_context(|| {
        format!(
            "cannot find out where this program is, and {NAME} next to it;\n\
             set {VARIABLE} to the path of {NAME}"
        )
    })?;
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(place.canonicalize()?),
        None => bail!(
            "{NAME} is neither in {}\nnor in {} or {};\n{AGAIN},\nor set {VARIABLE} to its path",
            places[0].with_file_name("").display(),
            FOLDERS[1],
            FOLDERS[2]
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_far_library_asks_for_in_vain_is_told_with_its_remedy() {
        let lacks = Some("/usr/lib/libx.so: GOACC_wait".to_string());
        let says = OpenMp { linked: Some("libgomp"), path: Ok("/ours.so".into()), lacks }.says().unwrap();
        assert!(says.starts_with("OpenMP regions run on /ours.so;\n"), "{says}");
        assert!(says.contains("libx.so: GOACC_wait") && says.contains(NEVER), "{says}");
    }
}
