// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interposer, seen from outside: by what it is chosen and asked, and how it gets into a program.

use std::ffi::{CStr, OsStr, OsString, c_char, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use linux::image::ORIGIN;

/// The names of the views, as [`VIEW`](linux::environment::VIEW) takes them.
pub fn views() -> impl Iterator<Item = &'static str> {
    linux::view::NAMES.iter().map(|(name, _)| *name)
}

/// File name of the library that tells `wakeful profile` of waits; it is where the interposer is.
pub const PROFILE_NAME: &str = "libwakeful_profile.so";

/// What the interposer exports and no other library does: the name of the view that it took.
pub const VIEW_SYMBOL: &CStr = c"wakeful_preload_view";

/// The interposer that is preloaded into this process.
pub struct Interposer(extern "C" fn() -> *const c_char);

impl Interposer {
    /// `None` if it is not preloaded here.
    pub fn here() -> Option<Self> {
        // SAFETY: a C string.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, VIEW_SYMBOL.as_ptr()) };
        (!symbol.is_null()).then(|| {
            // SAFETY: the symbol, if it is there, is a function of this type.
            Self(unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> *const c_char>(symbol) })
        })
    }

    /// The view that it takes, which it sets up if it has not yet.
    pub fn view(&self) -> &'static str {
        // SAFETY: it returns a C string that stays.
        unsafe { CStr::from_ptr((self.0)()) }.to_str().unwrap_or_default()
    }
}

/// `LD_PRELOAD` with this library first and, after it, what else is there already.
pub fn preload_list(library: &Path) -> OsString {
    prepend(library, &std::env::var_os("LD_PRELOAD").unwrap_or_default())
}

/// As [`preload_list`], before this list. The library that tells `wakeful profile` of waits stays before all:
/// it sees those that come through it alone.
pub fn prepend(library: &Path, list: &OsStr) -> OsString {
    let library = library.as_os_str().as_bytes();
    let others = || entries(list).filter(|other| plain(other) != library);
    let tells = |entry: &&[u8]| entry.ends_with(PROFILE_NAME.as_bytes());
    let first = others().filter(tells).chain([library]);
    let all: Vec<&[u8]> = first.chain(others().filter(|entry| !tells(entry))).collect();
    OsString::from_vec(all.join(&b':'))
}

/// What is in such a list. The dynamic linker separates at both.
pub(crate) fn entries(list: &OsStr) -> impl Iterator<Item = &[u8]> {
    list.as_bytes().split(|byte| b": ".contains(byte)).filter(|entry| !entry.is_empty())
}

/// An entry as `run` wrote it: the interposer has put [`ORIGIN`] before that, if the program that began this
/// one is static.
pub(crate) fn plain(entry: &[u8]) -> &[u8] {
    entry.strip_prefix(ORIGIN).unwrap_or(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays_once() {
        for (list, result) in [
            ("", "/us.so"),
            ("/a.so /b.so", "/us.so:/a.so:/b.so"),
            ("/a.so:/us.so", "/us.so:/a.so"),
            (":", "/us.so"),
            ("/a.so:/libwakeful_profile.so", "/libwakeful_profile.so:/us.so:/a.so"),
            (&format!("{}/us.so:/a.so", std::str::from_utf8(ORIGIN).unwrap()), "/us.so:/a.so"),
        ] {
            assert_eq!(prepend(Path::new("/us.so"), OsStr::new(list)), result, "{list}");
        }
    }
}
