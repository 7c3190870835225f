// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of samples: what a run has computed, so that the next one goes on from there.
//!
//! The first line says what the samples are of. Each other line is a figure on one sample, complete or not
//! there: a checksum and JSON. Lines are appended, and a line without its end is none.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ::sim::figure::{figure, figures};
use ::sim::{MACHINES, Machine};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::Done;

/// What the samples of a file have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of these lines.
    wakeful_claims: u32,
    seed: u64,
    size: f64,
    described: bool,
    /// Of the figures and machines.
    tables: String,
}

/// A figure on a sample. The numbers are texts, which are read as they were written; a number of JSON is not,
/// to the last bit.
#[derive(Serialize, Deserialize)]
pub struct Record {
    pub sample: u32,
    pub figure: String,
    pub y: Vec<String>,
}

/// FNV-1a: finds damage, not intent.
fn checksum(text: &[u8]) -> u64 {
    text.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What the figures and machines are; not how the simulator and the algorithms work.
fn tables() -> String {
    let mut all = env!("CARGO_PKG_VERSION").to_string();
    for figure in figures() {
        all += &format!("{} {:?} {:?} ", figure.name, figure.series, figure.at);
        all += &format!("{} {} {}\n", figure.machine, figure.rounds, figure.limit_ms);
    }
    for machine in MACHINES.iter().filter_map(|name| Machine::named(name)) {
        all += &format!("{machine:?}\n");
    }
    format!("{:016x}", checksum(all.as_bytes()))
}

impl Header {
    pub fn new(seed: u64, size: f64, described: bool) -> Self {
        Self { wakeful_claims: 1, seed, size, described, tables: tables() }
    }

    /// What to do if this was expected and the file has that.
    fn differs(&self, file: &Self) -> Option<String> {
        if self.tables != file.tables || self.wakeful_claims != file.wakeful_claims {
            return Some("by a wakeful with other figures or machines".into());
        }
        let described = if file.described { " --described" } else { "" };
        (self != file).then(|| format!("with --seed {} --size {}{described}", file.seed, file.size))
    }
}

/// The samples that there are.
#[derive(Default)]
pub struct Kept {
    path: PathBuf,
    file: Option<File>,
    pub done: Done,
}

fn line(text: &str) -> String {
    format!("{:016x} {text}\n", checksum(text.as_bytes()))
}

/// What a line says, if it is whole.
fn read<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<T> {
    let (sum, text) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    (u64::from_str_radix(sum, 16).ok()? == checksum(text.as_bytes())).then_some(())?;
    serde_json::from_str(text).ok()
}

impl Kept {
    /// Opens it, or begins it.
    pub fn open(path: &Path, header: &Header) -> Result<Self> {
        let shown = path.display();
        let cannot = || format!("cannot read and write {shown}");
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(path).with_context(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another run writes {shown}: wait until it ends, or name another --file")
            }
            // Where there are no locks, two runs at once are up to the user.
            Err(TryLockError::Error(_)) => {}
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).with_context(cannot)?;
        if text.is_empty() {
            let begin = line(&serde_json::to_string(header)?);
            file.write_all(begin.as_bytes()).with_context(cannot)?;
            return Ok(Self { path: path.into(), file: Some(file), done: Done::new() });
        }
        // A line without its end is that of a run that was killed.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |place| place + 1);
        let mut lines = text[..whole].split(|&byte| byte == b'\n');
        let Some(found) = lines.next().and_then(read::<Header>) else {
            bail!("{shown} is no file of samples, or its first line is damaged: name another --file");
        };
        if let Some(how) = header.differs(&found) {
            bail!("{shown} was begun {how}: say so, too, or name another --file");
        }
        let mut kept = Self { path: path.into(), file: None, done: Done::new() };
        for (number, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
            kept.take(line, number + 2)?;
        }
        if whole < text.len() {
            file.set_len(whole as u64).with_context(cannot)?;
        }
        kept.file = Some(file);
        Ok(kept)
    }

    fn take(&mut self, line: &[u8], number: usize) -> Result<()> {
        let shown = self.path.display();
        let damaged = || format!("line {number} of {shown} is damaged: delete it, and it is computed again");
        let record: Record = read(line).with_context(damaged)?;
        let points = figure(&record.figure).with_context(damaged)?.points();
        let y: Vec<f64> =
            record.y.iter().map(|it| it.parse()).collect::<Result<_, _>>().with_context(damaged)?;
        if y.len() != points {
            bail!(damaged());
        }
        if self.done.insert((record.sample, record.figure), y).is_some() {
            bail!("line {number} of {shown} is of a figure and a sample that it has already: delete it");
        }
        Ok(())
    }

    /// Adds one.
    pub fn keep(&mut self, record: Record) -> Result<()> {
        if let Some(file) = &mut self.file {
            let text = line(&serde_json::to_string(&record)?);
            file.write_all(text.as_bytes()).with_context(|| {
                format!("cannot write {}: make room, and begin again: it goes on", self.path.display())
            })?;
        }
        let y = record.y.iter().map(|it| it.parse()).collect::<Result<_, _>>()?;
        self.done.insert((record.sample, record.figure), y);
        Ok(())
    }
}
