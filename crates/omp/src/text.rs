// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words of the environment, and what is written for people.

use std::ffi::CStr;
use std::fmt::{self, Display};

/// The value of an environment variable.
pub fn environment(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: as every runtime, we trust the program not to change its environment meanwhile.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// Bytes that are most likely UTF-8.
pub struct Shown<'a>(pub &'a [u8]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            f.write_str(chunk.valid())?;
            f.write_str(if chunk.invalid().is_empty() { "" } else { "\u{fffd}" })
        })
    }
}

/// The value of the word that the text is, in upper or lower case.
pub fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Option<T> {
    words.iter().find(|(word, _)| text.eq_ignore_ascii_case(word)).map(|&(_, value)| value)
}

/// Writes values with commas between.
pub fn joined(f: &mut dyn fmt::Write, values: impl Iterator<Item = impl Display>) -> fmt::Result {
    values.enumerate().try_for_each(|(index, value)| {
        f.write_str(if index == 0 { "" } else { "," })?;
        write!(f, "{value}")
    })
}
