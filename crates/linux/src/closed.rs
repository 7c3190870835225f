// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that load no library but those of the C library and the compiler: *closed* ones.
//!
//! **Why.** A library that is preloaded for what a program may load later costs each start some tens of
//! microseconds. A shell script starts many small programs, and most of them can never load anything.
//!
//! A program is closed if it needs no library but the [`KNOWN`] ones and has no word of dlopen(3) among its
//! names. What cannot be told is not closed. Nothing here allocates; a child of vfork(2) may call it.

use core::ffi::{c_int, c_long};

/// The C library's libraries and the compiler's, which need nothing but each other.
pub const KNOWN: [&str; 9] = [
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

/// BOUND: bytes. Small programs have at most some 2,000 bytes of names (coreutils, dash, gcc).
const NAMES: u64 = 4096;

/// Reads from a place in a file as much as there is. A file that cannot be read is empty. It is a system
/// call and no cancellation point.
pub fn read(file: c_int, buffer: &mut [u8], offset: u64) -> usize {
    let Ok(offset) = c_long::try_from(offset) else { return 0 };
    // SAFETY: the buffer is live.
    let got = unsafe { libc::syscall(libc::SYS_pread64, file, buffer.as_mut_ptr(), buffer.len(), offset) };
    usize::try_from(got).unwrap_or(0)
}

/// A part of a file, which moves to where somebody looks.
struct Window<'a> {
    file: c_int,
    bytes: &'a mut [u8],
    start: u64,
    size: usize,
}

impl Window<'_> {
    /// `N` bytes from here on.
    fn get<const N: usize>(&mut self, offset: u64) -> Option<[u8; N]> {
        let there = |window: &Self| {
            let from = usize::try_from(offset.checked_sub(window.start)?).ok()?;
            window.bytes.get(..window.size)?.get(from..)?.first_chunk().copied()
        };
        there(self).or_else(|| {
            (self.start, self.size) = (offset, read(self.file, self.bytes, offset));
            there(self)
        })
    }

    fn word(&mut self, offset: u64) -> Option<u64> {
        self.get(offset).map(u64::from_ne_bytes)
    }

    fn half(&mut self, offset: u64) -> Option<u16> {
        self.get(offset).map(u16::from_ne_bytes)
    }

    /// A string that is one of the [`KNOWN`] names.
    fn is_known(&mut self, offset: u64) -> bool {
        KNOWN.iter().any(|name| {
            (offset..).zip(name.bytes().chain([0])).all(|(at, byte)| self.get(at) == Some([byte]))
        })
    }
}

/// Is the program in this file closed? The buffer, of 64 bytes at least, is for what is read. It has so many
/// first bytes of the file already.
pub fn is_closed(file: c_int, buffer: &mut [u8], size: usize) -> bool {
    look(Window { file, bytes: buffer, start: 0, size }).unwrap_or(false)
}

/// A 64-bit ELF file, as elf(5) describes it. Each part is looked at once, so that one read is enough for it.
fn look(mut file: Window) -> Option<bool> {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const HEADER: u64 = 56;
    if file.get(0)? != *b"\x7fELF\x02" || u64::from(file.half(54)?) != HEADER {
        return None;
    }
    let (start, count) = (file.word(32)?, u64::from(file.half(56)?));
    // Place in the file, address, bytes.
    let (mut dynamic, mut loaded, mut segments) = (None, [(0, 0, 0); SEGMENTS], 0);
    for index in 0..count {
        let at = start.checked_add(index * HEADER)?;
        let kind = file.get(at).map(u32::from_ne_bytes)?;
        let part = (file.word(at + 8)?, file.word(at + 16)?, file.word(at + 32)?);
        if kind == DYNAMIC {
            dynamic = Some(part);
        } else if kind == LOAD {
            *loaded.get_mut(segments)? = part;
            segments += 1;
        }
    }
    let (dynamic, _, size) = dynamic?;
    let (needed, at, size) = entries(&mut file, dynamic, size)?;
    let holds =
        |&&(_, address, bytes): &&(u64, u64, u64)| at.checked_sub(address).is_some_and(|from| from < bytes);
    let (offset, address, _) = loaded.iter().find(holds)?;
    let names = offset.checked_add(at - address)?;
    file.get::<1>(names)?;
    let all =
        needed.iter().flatten().all(|&name| names.checked_add(name).is_some_and(|at| file.is_known(at)));
    Some(all && size <= NAMES && !tells_of_loading(&mut file, names, size)?)
}

/// BOUND: segments. Linkers make two to six that are loaded.
const SEGMENTS: usize = 8;

/// What a dynamic section says: the names of needed libraries, and of all names the address and the size.
fn entries(file: &mut Window, start: u64, size: u64) -> Option<([Option<u64>; KNOWN.len()], u64, u64)> {
    const END: u64 = 0;
    const NEEDED: u64 = 1;
    const NAMES_AT: u64 = 5;
    const NAMES_SIZE: u64 = 10;
    /// What has other libraries loaded: DT_CONFIG, DT_DEPAUDIT, DT_AUDIT; DT_AUXILIARY and DT_FILTER.
    const MORE: [u64; 5] = [0x6fff_fefa, 0x6fff_fefb, 0x6fff_fefc, 0x7fff_fffd, 0x7fff_ffff];
    let (mut needed, mut count, mut at, mut names) = ([None; KNOWN.len()], 0, None, None);
    for entry in (start..start.checked_add(size)?).step_by(16) {
        let kind = file.word(entry)?;
        let value = file.word(entry + 8)?;
        match kind {
            END => break,
            NEEDED => {
                *needed.get_mut(count)? = Some(value);
                count += 1;
            }
            NAMES_AT => at = Some(value),
            NAMES_SIZE => names = Some(value),
            _ if MORE.contains(&kind) => return None,
            _ => {}
        }
    }
    Some((needed, at?, names?))
}

/// Is dlopen or dlmopen among these bytes?
fn tells_of_loading(file: &mut Window, start: u64, size: u64) -> Option<bool> {
    for at in start..start.checked_add(size)? {
        let it_may_be = file.get(at)? == *b"d";
        if it_may_be && (file.get(at) == Some(*b"dlopen") || file.get(at) == Some(*b"dlmopen")) {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    fn closed(path: &Path, buffer: usize) -> bool {
        is_closed(std::fs::File::open(path).unwrap().as_raw_fd(), &mut vec![0; buffer], 0)
    }

    fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let program = std::env::temp_dir().join(format!("wakeful-closed-{}-{name}", std::process::id()));
        let text = program.with_extension("c");
        std::fs::write(&text, source).unwrap();
        let status = Command::new("cc").arg("-o").arg(&program).arg(&text).args(flags).status();
        assert!(status.is_ok_and(|status| status.success()), "cc {name}; the tests need a C compiler");
        std::fs::remove_file(text).unwrap();
        program
    }

    #[test]
    fn closed_programs_are_told_from_others() {
        let plain = "int main(void) { return 0; }";
        let maths = "#include <math.h>\nint main(int n, char **v) { return (int)cbrt(n); }";
        let opens = "#include <dlfcn.h>\nint main(int n, char **v) { return !dlopen(v[0], RTLD_LAZY); }";
        let spaces = "#define _GNU_SOURCE\n#include <dlfcn.h>\n\
                      int main(int n, char **v) { return !dlmopen(LM_ID_NEWLM, v[0], RTLD_LAZY); }";
        let library = compile("lib.so", "int other(void) { return 0; }", &["-shared", "-fPIC"]);
        let path = library.to_str().unwrap();
        let many = "int here_is_a_name_that_takes_some_bytes_#(void) { return 0; }\n";
        let many = (0..200).map(|number| many.replace('#', &number.to_string())).collect::<String>() + plain;
        let cases: [(&str, &str, &[&str], bool); 9] = [
            ("plain", plain, &[], true),
            ("fixed", plain, &["-no-pie"], true),
            ("maths", maths, &["-lm"], true),
            ("names", &many, &[], true),
            ("opens", opens, &["-ldl"], false),
            ("spaces", spaces, &["-ldl"], false),
            ("needs", plain, &["-Wl,--no-as-needed", path], false),
            ("static", plain, &["-static"], false),
            ("exports", &many, &["-rdynamic"], false),
        ];
        for (name, source, flags, expected) in cases {
            let program = compile(name, source, flags);
            for buffer in [64, 512, 1 << 16] {
                assert_eq!(closed(&program, buffer), expected, "{name}, {buffer} bytes at once");
            }
            std::fs::remove_file(program).unwrap();
        }
        std::fs::remove_file(library).unwrap();
        assert!(!closed(Path::new("/etc/passwd"), 512) && !closed(Path::new("/"), 512));
    }

    #[test]
    fn a_broken_file_is_not_closed() {
        let program = compile("broken", "int main(void) { return 0; }", &[]);
        let whole = std::fs::read(&program).unwrap();
        assert!(closed(&program, 512));
        // Cut short before its names; and each byte of its headers and dynamic section wrong, one at a time:
        // none may end us.
        for size in (0..1024).step_by(7) {
            std::fs::write(&program, &whole[..size]).unwrap();
            assert!(!closed(&program, 512), "{size} bytes");
        }
        for at in 0..1024 {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            std::fs::write(&program, bytes).unwrap();
            closed(&program, 512);
        }
        std::fs::remove_file(program).unwrap();
    }
}
