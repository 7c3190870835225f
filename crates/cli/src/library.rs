// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the interposer is.

use std::path::{Path, PathBuf};

use ::bench::contender::VIEW_SYMBOL;
use anyhow::{Context, Result, bail};

use crate::program;

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
    match program::exports(&path, VIEW_SYMBOL.to_bytes()) {
        Ok(true) => Ok(path),
        Ok(false) => bail!("{}\nis a shared library, but not wakeful's interposer;\n{remedy}", path.display()),
        Err(reason) if forbidden(&reason) => {
            bail!("cannot preload {}:\n{reason:#};\nlet everybody read it: chmod a+r", path.display())
        }
        Err(reason) => bail!("cannot preload {}:\n{reason:#};\n{remedy}", path.display()),
    }
}

/// File name of the OpenMP runtime, which is where the interposer is.
pub const OPENMP_NAME: &str = "libwakeful_gomp.so";
/// The library of gcc's for which it stands.
pub const GOMP: &str = "libgomp.so.1";
const OPENMP_SYMBOL: &[u8] = b"wakeful_omp_version";

/// The OpenMP runtime beside this interposer, for a program that finds all in it that it asks of libgomp.
pub fn openmp(interposer: &Path, image: &Path) -> Result<PathBuf> {
    let path = interposer.with_file_name(OPENMP_NAME);
    match program::exports(&path, OPENMP_SYMBOL) {
        Ok(true) => match program::lacks(image, &path) {
            None => Ok(path),
            Some(lacks) => bail!("wakeful's OpenMP runtime has not all that the program asks for:\n{lacks}"),
        },
        Ok(false) => {
            bail!("{}\nis not wakeful's OpenMP runtime; build it again with `cargo build --release`", path.display())
        }
        Err(reason) => bail!("{}:\n{reason:#};\nbuild it with `cargo build --release`", path.display()),
    }
}

/// The file is there, but not for us.
fn forbidden(reason: &anyhow::Error) -> bool {
    let kind = reason.root_cause().downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::PermissionDenied)
}

fn beside_us() -> Result<PathBuf> {
    let program = std::env::current_exe().with_context(|| {
        format!(
            "cannot find out where this program is, and {NAME} beside it;\n\
             mount /proc, or set {VARIABLE} to the path of {NAME}"
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
