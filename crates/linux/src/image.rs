// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`abi::image`] for files that are open here.

use core::ffi::{c_int, c_long};

pub use abi::cache::Cache;
pub use abi::image::{Fate, HEAD, INTERPRETERS, KNOWN, Note, ORIGIN, last_part, runtime};
use abi::image::{File, look as look_at};

/// Reads from a place in a file as much as there is. A file that cannot be read is empty. It is a system
/// call and no cancellation point.
fn read(file: c_int, buffer: &mut [u8], offset: u64) -> usize {
    let Ok(offset) = c_long::try_from(offset) else { return 0 };
    // SAFETY: the buffer is live.
    let got = unsafe { libc::syscall(libc::SYS_pread64, file, buffer.as_mut_ptr(), buffer.len(), offset) };
    usize::try_from(got).unwrap_or(0)
}

fn file(number: c_int) -> File {
    File { number, read }
}

/// As [`abi::image::is_closed`].
pub fn is_closed(number: c_int, buffer: &mut [u8], size: usize) -> bool {
    abi::image::is_closed(file(number), buffer, size)
}

/// As [`abi::image::look`].
pub fn look(number: c_int, head: &mut [u8; HEAD]) -> Option<(Fate, *const core::ffi::c_char)> {
    look_at(file(number), head)
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
