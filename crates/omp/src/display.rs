// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a thread's place (OpenMP 5.1, sections 3.3 and 6.14).

use std::ffi::CStr;
use std::fmt::{self, Write};
use std::sync::{PoisonError, RwLock};

use crate::dialect::is_llvm;
use crate::icv::settings;
use crate::memory::Text;
use crate::places::{Usable, ranges};
use crate::text::Shown;
use crate::thread::me;

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Says it where the compiler's own runtime does, in order with what the program says there.
pub fn display(format: &str) {
    let mut line = describe(format);
    let _ = line.write_char('\n');
    let line = line.bytes();
    // SAFETY: the C library's streams, which nobody closes while the program writes.
    unsafe {
        let stream = if is_llvm() { stdout } else { stderr };
        libc::fwrite(line.as_ptr().cast(), 1, line.len(), stream);
    }
}

/// Writes what `omp_capture_affinity` tells, in this format (OpenMP 5.1, table 6.3).
pub fn describe(format: &str) -> Text {
    let mut text = Text::default();
    // What there is no memory for is left out.
    let _ = describe_into(&mut text, format);
    text
}

fn describe_into(text: &mut Text, format: &str) -> fmt::Result {
    let thread = me();
    let team = thread.team();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.write_char(c)?;
            continue;
        }
        let mut next_if = |wanted: char| {
            let after = rest.as_str().strip_prefix(wanted)?;
            rest = after.chars();
            Some(())
        };
        let zeros = next_if('0').is_some();
        let right = next_if('.').is_some();
        let mut width = 0usize;
        while let Some(digit) = rest.as_str().chars().next().and_then(|c| c.to_digit(10)) {
            width = (width * 10 + digit as usize).min(1024);
            rest.next();
        }
        let after = rest.as_str();
        let name = match rest.next() {
            Some('{') => {
                let (name, others) = after[1..].split_once('}').unwrap_or((&after[1..], ""));
                rest = others.chars();
                name
            }
            Some(c) => &after[..c.len_utf8()],
            None => break,
        };
        let number: i64 = match name {
            "t" | "team_num" => crate::routines::team_number().into(),
            "T" | "num_teams" => crate::routines::teams().into(),
            "L" | "nesting_level" => team.level().into(),
            "n" | "thread_num" => thread.number().into(),
            "i" | "native_thread_id" => native_id(),
            "N" | "num_threads" => team.size().into(),
            "a" | "ancestor_tnum" => crate::routines::ancestor(team.level() as i32 - 1).into(),
            "P" | "process_id" => std::process::id().into(),
            _ => {
                let value = match name {
                    "%" => Text::of("%"),
                    "H" | "host" => host(),
                    "A" | "thread_affinity" => Text::of(fmt::from_fn(|f| ranges(f, &Usable::now()))),
                    _ => Text::of("undefined"),
                };
                let value = value.as_str();
                if right {
                    write!(text, "{value:>width$}")?
                } else {
                    write!(text, "{value:<width$}")?
                };
                continue;
            }
        };
        match (right, zeros) {
            (true, true) => write!(text, "{number:0width$}")?,
            (true, false) => write!(text, "{number:>width$}")?,
            (false, _) => write!(text, "{number:<width$}")?,
        }
    }
    Ok(())
}

fn native_id() -> i64 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

fn host() -> Text {
    let mut name = [0u8; 256];
    // SAFETY: the C library writes at most the size it is told.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    Text::of(Shown(CStr::from_bytes_until_nul(&name).unwrap_or_default().to_bytes()))
}

/// What `omp_set_affinity_format` has set.
static FORMAT: RwLock<Option<Text>> = RwLock::new(None);

/// With the format that goes for who asks for none.
pub fn with_format<R>(work: impl FnOnce(&str) -> R) -> R {
    let format = FORMAT.read().unwrap_or_else(PoisonError::into_inner);
    work(format.as_ref().unwrap_or(&settings().affinity_format).as_str())
}

/// With this format, or the default one if it is empty.
fn with_given<R>(format: &[u8], work: impl FnOnce(&str) -> R) -> R {
    match format {
        [] => with_format(work),
        _ => work(Text::of(Shown(format)).as_str()),
    }
}

pub fn set_format(text: &[u8]) {
    *FORMAT.write().unwrap_or_else(PoisonError::into_inner) = Some(Text::of(Shown(text)));
}

pub fn display_in(format: &[u8]) {
    with_given(format, display);
}

pub fn capture(format: &[u8]) -> Text {
    with_given(format, describe)
}
