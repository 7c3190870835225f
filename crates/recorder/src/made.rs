// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names for code that a program makes while it runs: `/tmp/perf-PID.map`, as compilers write it for perf.
//!
//! A place knows no process, for it may be gone. So an address has a name if all maps that have it agree.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::maps::open;

/// BOUND: bytes of one map that are read, and maps.
const MOST_BYTES: u64 = 64 << 20;
const MOST_MAPS: usize = 256;

/// By the first address: how long the code is, and its name.
type Map = BTreeMap<u64, (u64, String)>;

/// What the maps of some processes say.
#[derive(Default)]
pub struct Made(Vec<Map>);

impl Made {
    /// The maps that these processes have written.
    pub fn of(processes: impl IntoIterator<Item = u32>) -> Self {
        let maps = processes.into_iter().map(|process| read(Path::new(&format!("/tmp/perf-{process}.map"))));
        Self(maps.flatten().take(MOST_MAPS).collect())
    }

    /// The function at an address, if one is known for sure.
    pub fn name(&self, address: u64) -> Option<&str> {
        let mut names = self.0.iter().filter_map(|map| {
            let (start, (length, name)) = map.range(..=address).next_back()?;
            (address - start < *length).then_some(name.as_str())
        });
        let first = names.next()?;
        names.all(|name| name == first).then_some(first)
    }
}

/// Everybody may write to that folder: so only what our user or root has written there is read.
fn read(path: &Path) -> Option<Map> {
    let (file, about) = open(path)?;
    // SAFETY: asks for a number.
    let own = unsafe { libc::geteuid() };
    let lines = BufReader::new(file.take(MOST_BYTES)).lines().map_while(Result::ok);
    [0, own].contains(&about.uid()).then(|| lines.filter_map(|line| entry(&line)).collect())
}

/// "START LENGTH NAME", both in hexadecimal digits.
fn entry(line: &str) -> Option<(u64, (u64, String))> {
    let mut words = line.splitn(3, ' ');
    let mut hex = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let (start, length) = (hex()?, hex()?);
    let name = words.next().map(str::trim).filter(|name| !name.is_empty())?;
    Some((start, (length, name.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Map {
        text.lines().filter_map(entry).collect()
    }

    #[test]
    fn a_name_is_for_its_own_code() {
        let made = Made(vec![map("7f00 20 py::f:/a b.py\n0x8000 0x10 g\nnonsense\n10 zz x\n20 4\n")]);
        assert_eq!(made.name(0x7f1f), Some("py::f:/a b.py"));
        assert_eq!(made.name(0x8000), Some("g"));
        assert_eq!((made.name(0x7f20), made.name(0x7eff), made.name(0x20)), (None, None, None));
    }

    #[test]
    fn two_processes_have_to_agree() {
        let made = Made(vec![map("100 10 f\n200 10 g"), map("100 10 f\n200 10 h"), map("300 10 k")]);
        assert_eq!((made.name(0x104), made.name(0x204), made.name(0x304)), (Some("f"), None, Some("k")));
    }
}
