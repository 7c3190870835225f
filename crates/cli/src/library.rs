// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the interposer is.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ::bench::contender::VIEW_SYMBOL;
use anyhow::{Context, Result, bail};

use crate::closure::{self, Object};
use crate::program::{self, Library};

/// File name of the interposer.
pub const NAME: &str = "libwakeful_preload.so";
/// The environment variable that says where it is.
pub const VARIABLE: &str = "WAKEFUL_PRELOAD";

/// The interposer: where [`VARIABLE`] says, else beside this program or in `../lib/wakeful/`.
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
        None => (beside_us()?, format!("build it again with `cargo build --release`, or set {VARIABLE} to its path")),
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
}

impl OpenMp {
    /// The words of `run -v` and `doctor`. Where the program has no regions, and nothing is there for others, there are none.
    pub fn says(&self) -> Option<String> {
        match (&self.path, self.linked) {
            (Ok(path), Some(_)) => Some(format!("OpenMP regions run on {}", path.display())),
            (Ok(path), None) => Some(format!("OpenMP regions of what it loads or starts run on {}", path.display())),
            (Err(reason), Some(native)) => Some(format!("OpenMP regions run on {native}: {reason:#}")),
            (Err(_), None) => None,
        }
    }
}

/// Which OpenMP runtime a library of this name is, if it is one. Wheels put a hash behind the name: libgomp-a34b3233.so.1.0.0.
fn runtime(name: &str) -> Option<&'static str> {
    let names = [("libgomp", "libgomp"), ("libomp", "libomp"), ("libomp5", "libomp"), ("libiomp5", "libomp")];
    let (_, kind) = names.into_iter().find(|(prefix, _)| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(".so") || rest.starts_with('-'))
    })?;
    Some(kind)
}

/// What our runtime can do for a program.
pub fn openmp(interposer: &Path, image: &Path) -> OpenMp {
    let (natives, others): (Vec<Object>, Vec<Object>) =
        closure::objects(image).into_iter().partition(|object| runtime(&object.name).is_some());
    let path = interposer.with_file_name(OPENMP_NAME);
    let fits = |found: Library| {
        if !found.has(OPENMP_SYMBOL) {
            bail!("{}\nis not wakeful's OpenMP runtime; build it again with `cargo build --release`", path.display());
        }
        // Who needs no runtime asks nothing of it.
        let askers = others.iter().filter(|object| object.needed.iter().any(|name| runtime(name).is_some()));
        let natives: Vec<&Path> = natives.iter().map(|object| object.path.as_path()).collect();
        match program::lacks(askers.map(|object| object.path.as_path()), &natives, &found) {
            Some(lacks) => bail!("wakeful's OpenMP runtime has not all that the program asks for:\n{lacks}"),
            None => Ok(path.clone()),
        }
    };
    let found = program::library(&path);
    let found = found.with_context(|| format!("{}; build it with `cargo build --release`", path.display()));
    OpenMp { linked: natives.first().and_then(|object| runtime(&object.name)), path: found.and_then(fits) }
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

fn beside_us() -> Result<PathBuf> {
    let program = this_program().with_context(|| {
        format!(
            "cannot find out where this program is, and {NAME} beside it;\n\
             set {VARIABLE} to the path of {NAME}"
        )
    })?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(NAME), folder.join("../lib/wakeful").join(NAME)];
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(place.canonicalize()?),
        None => bail!(
            "{NAME} is neither in {}\nnor in ../lib/wakeful; build it with `cargo build --release`,\n\
             or set {VARIABLE} to its path",
            folder.display()
        ),
    }
}
