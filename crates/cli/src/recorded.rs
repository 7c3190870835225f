// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `watch` and `profile` have in common: they run a program, pass signals and its status on, and report.

use std::collections::BTreeMap;
use std::ffi::{OsStr, c_void};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use anyhow::{Result, anyhow};
use launch::program;
use launch::streams;
use recorder::account::Account;
use recorder::{Halt, OpenError, StartError, fast};
use serde::Serialize;

use crate::format::{Format, Record, grouped, ns, percent, plain};

/// Where the report goes, and how it looks.
#[derive(clap::Args)]
pub struct Output {
    /// Write the report to this file instead; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format
    #[arg(long, value_parser = format, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("text or json".into()),
    }
}

impl Output {
    /// Opens it, before the program runs: afterwards it would be too late.
    pub fn open(&self) -> Result<Sink> {
        match &self.output {
            Some(path) => Sink::file(path),
            None if streams::was_closed(libc::STDERR_FILENO) => {
                // Nobody would read the report. Whoever has no standard error may read this.
                let error = closed("standard error", "name a file by -o");
                let _ = writeln!(io::stdout(), "wakeful: {error}");
                Err(error)
            }
            None => Ok(Sink::stream(Box::new(io::stderr()), "standard error")),
        }
    }

    pub fn is_json(&self) -> bool {
        self.json || self.format == Format::Json
    }
}

/// Something that is written when the program has ended.
pub struct Sink {
    to: Box<dyn Write>,
    /// As messages call it.
    name: String,
    /// The file, until it has been written to: what was in it stays if the program never starts.
    untouched: Option<File>,
    path: Option<PathBuf>,
    /// It was not there before.
    is_new: bool,
    has_failed: bool,
}

impl Sink {
    fn stream(to: Box<dyn Write>, name: &str) -> Self {
        Self { to, name: name.into(), untouched: None, path: None, is_new: false, has_failed: false }
    }

    /// A file, or standard output for "-".
    pub fn file(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            if streams::was_closed(libc::STDOUT_FILENO) {
                return Err(closed("standard output", "name a file instead of -"));
            }
            return Ok(Self::stream(Box::new(io::stdout()), "standard output"));
        }
        let is_new = !path.exists();
        let open = || -> io::Result<(File, File)> {
            let file = File::options().write(true).create(true).truncate(false).open(path)?;
            Ok((file.try_clone()?, file))
        };
        let (untouched, file) = open().map_err(|error| {
            let name = plain(&path.to_string_lossy());
            match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOSPC | libc::EDQUOT) => {
                    anyhow::Error::from(error).context(format!("cannot write to {name}"))
                }
                _ => anyhow!("cannot write to {name}: {error};\nname a file in a folder where you may write"),
            }
        })?;
        Ok(Self {
            to: Box::new(BufWriter::new(file)),
            name: path.display().to_string(),
            untouched: Some(untouched),
            path: Some(path.into()),
            is_new,
            has_failed: false,
        })
    }

    /// Do both go to one regular file, or both to standard output? One would overwrite the other.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.untouched, &other.untouched) {
            (Some(one), Some(two)) => match (one.metadata(), two.metadata()) {
                (Ok(one), Ok(two)) => one.is_file() && (one.dev(), one.ino()) == (two.dev(), two.ino()),
                _ => false,
            },
            (None, None) => self.name == other.name,
            _ => false,
        }
    }

    /// Writes. The program's status is passed on, whether or not somebody reads the report: so this only says
    /// what is wrong. A closed pipe is no error. Half of a file would be read as all of it: it goes.
    pub fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.has_failed {
            return;
        }
        if let Some(file) = self.untouched.take() {
            // A pipe or a terminal has no length.
            let _ = file.set_len(0);
        }
        // Without a reader, or beyond `ulimit -f`, there is an error instead of a signal.
        // SAFETY: nothing is handled: the signals are ignored, and then as they were.
        let written = unsafe {
            let ignored = [libc::SIGPIPE, libc::SIGXFSZ];
            let before = ignored.map(|number| libc::signal(number, libc::SIG_IGN));
            let written = match self.path {
                Some(_) => write(&mut self.to),
                // Standard error has no buffer, and would be asked for each word. One that is left behind by
                // an error would be written again at the end.
                None => {
                    let mut all = Vec::new();
                    write(&mut all).and_then(|()| self.to.write_all(&all))
                }
            };
            let written = written.and_then(|()| self.to.flush());
            ignored.iter().zip(before).for_each(|(number, before)| _ = libc::signal(*number, before));
            written
        };
        let Err(error) = written else { return };
        self.has_failed = true;
        if error.kind() == io::ErrorKind::BrokenPipe {
            return;
        }
        let is_file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
        let gone = match &self.path {
            Some(path) if is_file(path) && fs::remove_file(path).is_ok() => ", and it is removed",
            _ => "",
        };
        let name = plain(&self.name);
        let elsewhere = match (&self.path, self.name.as_str()) {
            (Some(_), _) => "name a file elsewhere",
            (None, "standard output") => "name a file instead of -",
            (None, _) => "name a file by -o",
        };
        let advice = again(&error, elsewhere);
        let _ = writeln!(io::stderr(), "wakeful: cannot write to {name}: {error}{gone};\n{advice}");
    }
}

/// We were started without it, and Rust's runtime has put /dev/null there.
fn closed(stream: &str, otherwise: &str) -> anyhow::Error {
    anyhow!("{stream} is closed, where the report would go;\nopen it, or {otherwise}")
}

/// What to do if a report could not be written.
fn again(error: &io::Error, elsewhere: &str) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("make room there, or {elsewhere}, and run it again")
        }
        io::ErrorKind::FileTooLarge => "raise the limit of `ulimit -f`, and run it again".into(),
        _ => format!("{elsewhere}, and run it again"),
    }
}

impl Drop for Sink {
    /// The program never started: a file that was made for it goes again.
    fn drop(&mut self) {
        if let (Some(_), true, Some(path)) = (&self.untouched, self.is_new, &self.path) {
            let _ = fs::remove_file(path);
        }
    }
}

/// One line of JSON.
pub fn line(to: &mut dyn Write, record: &str, fields: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, &Record { schema: bench::SCHEMA, record, fields })?;
    writeln!(to)
}

/// The text without control characters, or its beginning and "..".
pub fn cut(text: &str, width: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(2)).chain("..".chars()).collect()
}

/// Why the program was not started, as other verbs say it. `path` is what was to be run.
pub fn cannot_start(error: anyhow::Error, name: &OsStr, path: &Path) -> anyhow::Error {
    match error.downcast::<StartError>() {
        Ok(StartError::Exec(error)) => {
            // The file may be a script: then its interpreter is what does not run.
            let image = program::inspect(path).map_or_else(|_| path.to_path_buf(), |program| program.image);
            launch::cannot_run(name, Some(&image), &error).into()
        }
        Ok(other) => other.into(),
        Err(other) => other,
    }
}

/// Ends as the program did: by its exit status, or by its signal, as under `wakeful run`.
pub fn end_as(status: i32) -> ExitCode {
    let status = ExitStatus::from_raw(status);
    if let Some(number) = status.signal() {
        let _ = io::stdout().flush();
        // SAFETY: of this process alone, which ends here. The program has dumped its core, and we have none
        // to dump. The structure lives across the calls.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::signal(number, libc::SIG_DFL);
            let mut one: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut one, number);
            libc::sigprocmask(libc::SIG_UNBLOCK, &one, std::ptr::null_mut());
            libc::raise(number);
        }
    }
    exit_code(status.into_raw())
}

/// The program's own exit status; after a signal as a shell has it.
pub fn exit_code(status: i32) -> ExitCode {
    let status = ExitStatus::from_raw(status);
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(crate::FAILED).into()
}

/// The signal that ended a program, of a status of wait(2): "11 (SIGSEGV)".
pub fn signal(status: i32) -> Option<String> {
    let words = ExitStatus::from_raw(status).to_string();
    let signal = words.strip_prefix("signal: ")?;
    Some(signal.trim_end_matches(" (core dumped)").into())
}

/// A process that was stopped while others went on.
#[derive(Clone, Debug, Serialize)]
pub struct Halted {
    pub process: u32,
    pub name: String,
    pub length_ns: u64,
}

/// With their names.
pub fn halted(halts: &[Halt], programs: &fast::HashMap<u32, String>) -> Vec<Halted> {
    let name = |process| programs.get(&process).cloned().unwrap_or_default();
    let one = |Halt { process, length_ns }: &Halt| {
        let (process, length_ns) = (*process, *length_ns);
        Halted { process, name: name(process), length_ns }
    };
    halts.iter().map(one).collect()
}

/// That the program was stopped, or some of its processes, if that was so.
pub fn stopped(stops: u64, stopped_ns: u64, halted: &[Halted]) -> Option<String> {
    let times = match stops {
        0 | 1 => String::new(),
        many => format!(", at least {} times", grouped(many)),
    };
    let whole = (stops > 0).then(|| {
        let long = ns(stopped_ns);
        format!(
            "It was stopped from outside for {long}{times} (SIGSTOP, Ctrl-Z, a debugger, a frozen control \
             group); not counted."
        )
    });
    let part = halted.first().map(|one| {
        let others = match halted.len() - 1 {
            0 => String::new(),
            1 => ", and another one for less".into(),
            many => format!(", and {} others for less", grouped(many as u64)),
        };
        let (process, long) = (one.process, ns(one.length_ns));
        let whom = match one.name.as_str() {
            "" => process.to_string(),
            name => format!("`{name}` ({process})"),
        };
        format!(
            "Its process {whom} was stopped for {long} while others went on{others}; that counts as blocked."
        )
    });
    let all: Vec<String> = whole.into_iter().chain(part).collect();
    (!all.is_empty()).then(|| plain(&all.join(" ")))
}

/// What goes on when the program has ended, so that this is not in the report.
pub fn left(processes: u32, elapsed_ns: u64, what: &str) -> String {
    let after = ns(elapsed_ns);
    match processes {
        0 => String::new(),
        1 => format!(
            " A process that it started still runs: its {what} after {after} are not in this report. Start \
             it in the foreground to have them."
        ),
        many => format!(
            " {many} processes that it started still run: their {what} after {after} are not in this report. \
             Start them in the foreground to have them."
        ),
    }
}

/// BOUND: from this part of the processor time on, a program that another one starts is named.
const LONGEST: f64 = 0.5;
/// Bytes of a name that the kernel keeps.
const NAME: usize = 15;

/// What ran.
pub struct Called {
    /// What the program is called.
    pub program: String,
    /// The command that became it, if that has another name, as env(1).
    pub started_by: Option<String>,
    /// The program that ran longest, if that is a third one, with its part of the processor time.
    pub ran_longest: Option<(String, f64)>,
}

/// By the command, the program's process, what each process became, and what each of them ran.
pub fn called(
    command: String,
    process: u32,
    programs: &fast::HashMap<u32, String>,
    account: &Account,
) -> Called {
    // It may end within a character, which the records have as one that is unknown.
    let kept = |name: &str| {
        let bytes: Vec<u8> = name.bytes().take(NAME).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let file = command.rsplit('/').next().unwrap_or_default();
    // A script has its interpreter's image, and its own name.
    let became = programs.get(&process).filter(|name| kept(file) != **name);
    let own = became.map_or(file, String::as_str);
    let mut ran: BTreeMap<&str, u64> = BTreeMap::new();
    for (process, ran_ns) in &account.ran_ns {
        if let Some(name) = programs.get(process) {
            *ran.entry(name).or_default() += ran_ns;
        }
    }
    let all_ns = account.run_ns().max(1);
    let longest = ran.into_iter().max_by_key(|(_, ran_ns)| *ran_ns);
    let longest = longest.filter(|(name, _)| kept(own) != **name);
    let longest = longest.map(|(name, ran_ns)| (name.to_owned(), ran_ns as f64 / all_ns as f64));
    let ran_longest = longest.filter(|(_, part)| *part >= LONGEST);
    match became.cloned() {
        Some(program) => Called { program, started_by: Some(command), ran_longest },
        None => Called { program: command, started_by: None, ran_longest },
    }
}

impl Called {
    /// Behind its name, and behind what it took.
    pub fn words(started_by: Option<&String>, ran_longest: Option<&(String, f64)>) -> (String, String) {
        let by = started_by.map_or(String::new(), |name| format!(", started by `{name}`,"));
        let longest = ran_longest.map_or(String::new(), |(name, part)| {
            format!(". `{name}` had {} of its processor time", percent(*part))
        });
        (by, longest)
    }
}

/// What is said of a program that takes other rights, and what to do with this verb.
pub fn takes_rights(verb: &str) -> String {
    format!(
        "Run `wakeful {verb}` as the user to whom the program changes, by su or sudo. Or {verb} a copy of \
         its file: cp(1) drops the set-user-ID bit."
    )
}

/// What the user can do about it: one thing.
pub fn advice(error: &OpenError) -> String {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let level = paranoid.and_then(|text| text.trim().parse::<i32>().ok());
    let advice = match (error, level) {
        (OpenError::Denied, Some(level)) if level > 2 => {
            format!("kernel.perf_event_paranoid is {level}; as root: `sysctl kernel.perf_event_paranoid=2`")
        }
        (OpenError::Denied, _) => {
            "a sandbox forbids perf_event_open(2), such as a container's seccomp filter;\nallow it there"
                .into()
        }
        (OpenError::NoMemory, _) => {
            "other programs of yours have it; as root: `sysctl kernel.perf_event_mlock_kb=4096`".into()
        }
        (OpenError::Other(reason), _) => reason.to_string(),
    };
    format!("{error}:\n{advice}")
}

/// The signals that the program is to have, a bit each.
static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn keep(number: i32) {
    SIGNALS.fetch_or(1 << number, Relaxed);
}

/// Of those that a terminal sends: somebody sent it by kill(2).
extern "C" fn keep_if_sent(number: i32, about: *const libc::siginfo_t, _: *const c_void) {
    // SAFETY: the kernel's, for a handler with SA_SIGINFO.
    if unsafe { (*about).si_code } == libc::SI_USER {
        keep(number);
    }
}

/// Those that came since the last time.
pub fn take_signals() -> impl Iterator<Item = i32> {
    let signals = SIGNALS.swap(0, Relaxed);
    (1..32).filter(move |number| signals & 1 << number != 0)
}

/// What the terminal sends, the program gets itself. What others send us, we pass on. We go on until the
/// program has ended.
pub fn pass_signals_on() {
    let keep: extern "C" fn(i32) = keep;
    let keep_if_sent: extern "C" fn(i32, *const libc::siginfo_t, *const c_void) = keep_if_sent;
    for (number, before) in PASSED.into_iter().zip(&BEFORE) {
        let is_terminals = [libc::SIGINT, libc::SIGQUIT].contains(&number);
        // SAFETY: the handlers set a bit; a structure of zeros is valid.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
            action.sa_sigaction =
                if is_terminals { keep_if_sent as *const () as usize } else { keep as *const () as usize };
            let mut was: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(number, &action, &mut was) == 0 {
                before.store(was.sa_sigaction, Relaxed);
            }
        }
    }
}

/// Those that the program is to have.
const PASSED: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// What was done with the signals of [`pass_signals_on`] before.
static BEFORE: [AtomicUsize; 6] = [const { AtomicUsize::new(libc::SIG_DFL) }; 6];

/// The program has ended, and signals do what they did.
pub fn signals_as_before() {
    for (number, before) in PASSED.into_iter().zip(&BEFORE) {
        // SAFETY: what the system has said of the same signal.
        unsafe { libc::signal(number, before.load(Relaxed)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_its_name() {
        let core = 0x80;
        assert_eq!(signal(libc::SIGSEGV | core), Some("11 (SIGSEGV)".into()));
        assert_eq!([signal(libc::SIGINT), signal(3 << 8)], [Some("2 (SIGINT)".into()), None]);
    }

    #[test]
    fn no_signal_takes_the_place_of_another() {
        [libc::SIGTERM, libc::SIGUSR1, libc::SIGHUP, libc::SIGUSR1]
            .into_iter()
            .for_each(|number| keep(number));
        assert_eq!(take_signals().collect::<Vec<_>>(), [libc::SIGHUP, libc::SIGUSR1, libc::SIGTERM]);
        assert_eq!(take_signals().count(), 0);
    }

    #[test]
    fn what_is_written_in_part_does_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        Sink::file(&path).unwrap().write(|to| to.write_all(b"all"));
        assert_eq!(fs::read(&path).unwrap(), b"all");
        let mut sink = Sink::file(&path).unwrap();
        sink.write(|to| {
            to.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(!path.exists());
        sink.write(|_| panic!("there is nothing to write to"));
    }

    #[test]
    fn a_file_stays_as_it_was_until_something_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "a longer report").unwrap();
        drop([Sink::file(&old).unwrap(), Sink::file(&new).unwrap()]);
        assert_eq!(fs::read(&old).unwrap(), b"a longer report");
        assert!(!new.exists());
        Sink::file(&old).unwrap().write(|to| to.write_all(b"short"));
        assert_eq!(fs::read(&old).unwrap(), b"short");
    }

    #[test]
    fn two_outputs_in_one_file_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| Sink::file(&folder.path().join(name)).unwrap();
        assert!(file("one").is_same(&file("one")));
        let (one, two) = (file("one"), file("two"));
        assert!(!one.is_same(&two));
        let null = || Sink::file(Path::new("/dev/null")).unwrap();
        assert!(!null().is_same(&null()));
        let dash = || Sink::file(Path::new("-")).unwrap();
        assert!(dash().is_same(&dash()) && !dash().is_same(&one));
    }
}
