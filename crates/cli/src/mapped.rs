// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file's bytes without reading it: of a library some pages are wanted, here and there.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A file, mapped as long as this lives. Whoever shortens it meanwhile ends us by SIGBUS, as any program that runs from it.
pub struct Mapped {
    at: *const u8,
    size: usize,
}

impl Mapped {
    /// Maps a file that is not empty.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        let size = found.len() as usize;
        if size == 0 || !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is empty, or no file"));
        }
        let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: new memory, of a descriptor that is open.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { at: at.cast(), size }) }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped.
        unsafe { std::slice::from_raw_parts(self.at, self.size) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and borrowed by nobody any more.
        unsafe { libc::munmap(self.at.cast_mut().cast(), self.size) };
    }
}
