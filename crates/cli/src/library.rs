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

/// An OpenMP runtime of ours, which is where the interposer is.
pub struct Runtime {
    /// Its file's name.
    pub name: &'static str,
    /// The runtime for which it stands, and the names of libraries that are that.
    pub instead_of: &'static str,
    files: &'static [&'static str],
}

/// The first has the interface of the second as well, as libomp has libgomp's.
pub static RUNTIMES: [Runtime; 2] = [
    Runtime {
        name: "libwakeful_omp.so",
        instead_of: "libomp",
        files: &["libomp.so.5", "libomp.so", "libomp5.so", "libiomp5.so"],
    },
    Runtime { name: "libwakeful_gomp.so", instead_of: "libgomp", files: &["libgomp.so.1"] },
];
const OPENMP_SYMBOL: &[u8] = b"wakeful_omp_version";

/// Where a program's OpenMP regions run.
pub struct OpenMp {
    pub runtime: &'static Runtime,
    /// Ours, or why it is not.
    pub path: Result<PathBuf>,
}

/// The OpenMP runtime for a program that is linked with one, directly or by another library; or, where `later`, loads libgomp later.
pub fn openmp(interposer: &Path, image: &Path, later: bool) -> Option<OpenMp> {
    let libraries = program::libraries(image);
    let native = |runtime: &Runtime, name: &str| runtime.files.contains(&name);
    let linked = RUNTIMES.iter().find(|runtime| libraries.iter().any(|(name, _)| native(runtime, name)));
    let runtime = linked.or(later.then_some(&RUNTIMES[1]))?;
    let path = interposer.with_file_name(runtime.name);
    let path = match program::exports(&path, OPENMP_SYMBOL) {
        Ok(true) => {
            let (natives, others): (Vec<_>, Vec<_>) =
                libraries.into_iter().partition(|(name, _)| RUNTIMES.iter().any(|runtime| native(runtime, name)));
            let paths = |list: Vec<(String, PathBuf)>| list.into_iter().map(|(_, path)| path).collect::<Vec<_>>();
            match program::lacks(image, &paths(others), &paths(natives), &path) {
                None => Ok(path),
                Some(lacks) => {
                    Err(anyhow::anyhow!("wakeful's OpenMP runtime has not all that the program asks for:\n{lacks}"))
                }
            }
        }
        Ok(false) => Err(anyhow::anyhow!(
            "{}\nis not wakeful's OpenMP runtime; build it again with `cargo build --release`",
            path.display()
        )),
        Err(reason) => Err(anyhow::anyhow!("{}:\n{reason:#};\nbuild it with `cargo build --release`", path.display())),
    };
    Some(OpenMp { runtime, path })
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
