// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program, a lock, a view, and the interposer between them: what `run` and `compare` have in common.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use linux::environment;

use crate::closure::{self, Reach};
use crate::elf::Elf;
use crate::interposer::{Interposer, preload_list, prepend, views};
use crate::library::{self, OpenMp};
use crate::names::{check_barrier, check_lock, check_rwlock, check_view, spins};
use crate::program::{self, Obstacle, Program};
use crate::{probe, sigpipe, streams, suggest};

/// What to run and with what.
pub struct Target {
    /// The lock that replaces the C library's.
    pub lock: Option<String>,
    /// The reader-writer lock that replaces the C library's.
    pub rwlock: Option<String>,
    /// The barrier that replaces the C library's, and OpenMP's.
    pub barrier: Option<String>,
    /// Where knowledge of running threads comes from.
    pub view: Option<String>,
    /// When our OpenMP runtime is preloaded.
    pub openmp: When,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// When our OpenMP runtime is preloaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Unless the program is linked with a runtime of which it asks more than ours has.
    Auto,
    /// In no program.
    Never,
    /// In this program, or it does not run.
    Always,
}

/// The environment's choice where there is no option; empty is unset.
fn or_environment(option: Option<String>, variable: &str) -> Result<Option<String>> {
    match (option, std::env::var_os(variable)) {
        (None, Some(value)) if !value.is_empty() => match value.into_string() {
            Ok(value) => Ok(Some(value)),
            Err(value) => bail!("{variable} is {}, which is no name", value.display()),
        },
        (option, _) => Ok(option),
    }
}

/// Checks a name, and says where it was if that is the environment.
fn check(
    name: &Option<String>,
    is_environments: bool,
    variable: environment::Variable,
    check: fn(&str) -> Result<()>,
) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    check(name).map_err(|error| match is_environments {
        true => anyhow::anyhow!("{variable}={name}: {error}"),
        false => error,
    })
}

/// A program that can be started.
pub struct Launch {
    /// What is known of the program's file.
    pub program: Program,
    /// Where it is, or the script.
    pub path: PathBuf,
    command: Vec<OsString>,
    lock: Option<String>,
    rwlock: Option<String>,
    barrier: Option<String>,
    view: Option<String>,
    library: PathBuf,
    openmp: Option<OpenMp>,
    /// Would our OpenMP runtime be of no use in the program itself? It may be in what that starts.
    is_closed: bool,
}

/// The hidden verb that prints what the interposer says of its view.
pub const VIEW_VERB: &str = "taken-view";

/// The view that a program gets.
pub struct Taken {
    /// Its name.
    pub taken: String,
    /// Why it is not the one that was asked for, in words.
    pub instead: Option<String>,
}

/// The view that the interposer takes under what `help` adds to its environment. Asks it, in a process of
/// its own.
pub fn taken_view(library: &Path, help: impl FnOnce(Command) -> Command) -> Result<String> {
    let mut command = Command::new(library::this_program()?);
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    let nowhere =
        nowhere.context("cannot open /dev/null, which the interposer is asked for its view with")?;
    command.arg(VIEW_VERB).stdin(nowhere.try_clone()?).stderr(nowhere);
    let answer = help(command).output().context("cannot ask the interposer for its view")?;
    let taken = String::from_utf8_lossy(&answer.stdout).into_owned();
    if answer.status.signal() == Some(libc::SIGSYS) {
        bail!(
            "a seccomp filter ends a program that looks for the best view ({});\n\
             WAKEFUL_VIEW=none looks for none",
            answer.status
        );
    }
    if !answer.status.success() || !views().any(|name| name == taken) {
        bail!(
            "{}\ndoes not say which view it takes ({});\n{}",
            library.display(),
            answer.status,
            library::AGAIN
        );
    }
    Ok(taken)
}

/// Refuses to compare where the interposer is preloaded already: what is to run without it would run with it.
pub fn check_not_preloaded() -> Result<()> {
    if Interposer::here().is_some() {
        bail!(
            "the interposer is preloaded here already, so that nothing would run without it;\n\
             take {} out of LD_PRELOAD, or leave away the `wakeful run` around this",
            library::NAME
        );
    }
    Ok(())
}

/// A program that cannot be started, with the exit status that says so.
#[derive(Debug)]
pub struct CannotRun {
    /// 126 or 127.
    pub status: u8,
    message: String,
}

impl std::fmt::Display for CannotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CannotRun {}

impl Launch {
    /// Checks everything that can be checked before the program runs. `reach` is for what
    /// [`OpenMp::says`] tells.
    pub fn prepare(args: Target, reach: Reach) -> Result<Self> {
        let from = [&args.lock, &args.rwlock, &args.barrier, &args.view].map(|option| option.is_none());
        let lock = or_environment(args.lock, environment::LOCK.name())?;
        let rwlock = or_environment(args.rwlock, environment::RWLOCK.name())?;
        let barrier = or_environment(args.barrier, environment::BARRIER.name())?;
        let view = or_environment(args.view, environment::VIEW.name())?;
        check(&lock, from[0], environment::LOCK, check_lock)?;
        check(&rwlock, from[1], environment::RWLOCK, check_rwlock)?;
        check(&barrier, from[2], environment::BARRIER, check_barrier)?;
        check(&view, from[3], environment::VIEW, check_view)?;
        let path =
            program::find(&args.command[0]).map_err(|error| cannot_run(&args.command[0], None, &error))?;
        // A file that we may execute but not read: exec will say what is wrong with it, if anything.
        let mut program =
            program::inspect(&path).unwrap_or_else(|_| Program { image: path.clone(), obstacle: None });
        // Our own command has no C library, but becomes one that has.
        if program.image.ends_with("wakeful") {
            program.obstacle.take_if(|obstacle| *obstacle == Obstacle::Static);
        }
        let library = library::find()?;
        let helped = program.obstacle.is_none();
        let openmp =
            (helped && args.openmp != When::Never).then(|| library::openmp(&library, &program.image, reach));
        match openmp {
            Some(OpenMp { path: Err(reason), .. }) if args.openmp == When::Always => Err(reason),
            openmp => {
                let is_closed = args.openmp != When::Always && library::is_alone(&library, &program.image);
                let command = args.command;
                Ok(Self { program, path, command, lock, rwlock, barrier, view, library, openmp, is_closed })
            }
        }
    }

    /// The program, without us.
    pub fn plain(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command
    }

    /// The program, with the interposer.
    pub fn helped(&self) -> Command {
        self.help(self.plain())
    }

    fn help(&self, mut command: Command) -> Command {
        let mut list = preload_list(&self.library);
        match self.openmp() {
            Some(path) => {
                command.env(environment::OPENMP.name(), path);
                if !self.is_closed {
                    list = prepend(path, &list);
                }
            }
            None => _ = command.env_remove(environment::OPENMP.name()),
        }
        command.env("LD_PRELOAD", list);
        if let Some(lock) = &self.lock {
            command.env(environment::LOCK.name(), lock);
        }
        if let Some(rwlock) = &self.rwlock {
            command.env(environment::RWLOCK.name(), rwlock);
        }
        if let Some(barrier) = &self.barrier {
            command.env(environment::BARRIER.name(), barrier);
        }
        if let Some(view) = &self.view {
            command.env(environment::VIEW.name(), view);
        }
        if self.wishing().is_some()
            && let Some(tunables) = probe::tunables()
        {
            command.env(linux::slice::TUNABLES, tunables);
        }
        command
    }

    /// The chosen lock that asks the kernel not to preempt who is inside, if one does.
    pub fn wishing(&self) -> Option<&'static str> {
        let all = catalog::MUTEXES.iter().chain(catalog::RWLOCKS);
        all.filter(|entry| entry.wishes)
            .map(|entry| entry.name)
            .find(|name| [self.lock(), self.rwlock()].contains(name))
    }

    /// The chosen locks and barriers whose waiters spin, whoever runs.
    pub fn spinning(&self) -> Vec<&str> {
        [self.lock(), self.rwlock(), self.barrier()].into_iter().filter(|name| spins(name)).collect()
    }

    /// May the program wait at a barrier: by what it, or a library that it is linked with, asks for?
    pub fn has_barriers(&self) -> bool {
        let asks = |path: &Path| {
            let elf = Elf::open(path).ok()??;
            let symbols = elf.dynamic()?.symbols()?;
            Some(symbols.wanted().any(|name| name == b"pthread_barrier_wait"))
        };
        let objects = || closure::objects(&self.program.image, Reach::All);
        self.openmp_instead_of().is_some() || objects().iter().any(|one| asks(&one.path) == Some(true))
    }

    /// As the user wrote it.
    pub fn name(&self) -> String {
        self.command[0].to_string_lossy().into_owned()
    }

    /// The whole command line, for a shell.
    pub fn words(&self) -> String {
        shell_words(self.command.iter().map(|word| word.to_string_lossy().into_owned()))
    }

    /// The lock that the interposer will use.
    pub fn lock(&self) -> &str {
        self.lock.as_deref().unwrap_or("wakeful")
    }

    /// The reader-writer lock that the interposer will use.
    pub fn rwlock(&self) -> &str {
        self.rwlock.as_deref().unwrap_or("rw-wakeful")
    }

    /// The barrier that the interposer and the OpenMP runtime will use.
    pub fn barrier(&self) -> &str {
        self.barrier.as_deref().unwrap_or("b-wakeful")
    }

    /// The view that was asked for.
    pub fn view(&self) -> &str {
        self.view.as_deref().unwrap_or("auto")
    }

    /// The view that the program will really have.
    pub fn taken_view(&self) -> Result<Taken> {
        let taken = taken_view(&self.library, |command| self.help(command))?;
        let asked = self.view();
        let instead = (asked != "auto" && asked != taken).then(|| {
            let found = probe::views().into_iter().find(|view| view.name == asked && !view.available);
            let absent = || "the interposer is built without it".to_string();
            let why = found.map_or_else(absent, |view| view.finding);
            let why = why.strip_prefix("no: ").unwrap_or(&why);
            let why = suggest::wrap(&format!("{why};"), suggest::WIDTH);
            format!(
                "the view {asked} does not work here:\n{why}\n\
                 {taken} runs instead; `wakeful doctor` says more"
            )
        });
        Ok(Taken { taken, instead })
    }

    /// As [`Launch::taken_view`], if one was asked for that might not be had.
    pub fn asked_view(&self) -> Result<Taken> {
        match self.view() {
            view @ ("auto" | "none") => Ok(Taken { taken: view.to_string(), instead: None }),
            _ => self.taken_view(),
        }
    }

    /// The interposer.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The runtime of ours that is preloaded.
    pub fn openmp(&self) -> Option<&Path> {
        self.openmp.as_ref()?.path.as_deref().ok()
    }

    /// Instead of which runtime: one that the program is linked with.
    pub fn openmp_instead_of(&self) -> Option<&'static str> {
        self.openmp.as_ref()?.linked
    }

    /// Where OpenMP regions run, and why there; `None` where there is nothing to say.
    pub fn openmp_says(&self) -> Option<String> {
        self.openmp.as_ref().and_then(OpenMp::says)
    }

    /// What to say when starting it failed.
    pub fn cannot_run(&self, error: &io::Error) -> CannotRun {
        cannot_run(&self.command[0], Some(&self.program.image), error)
    }
}

/// execvp(3). std's own would also empty the signal mask, and the program is to find what we found.
/// `path` is where it is: if that fails, it may be in another folder of PATH as well.
pub fn become_program(command: &Command, path: &Path) -> io::Error {
    for (name, value) in command.get_envs() {
        // SAFETY: no other thread runs; at most one waits for us (stack.rs).
        unsafe {
            match value {
                Some(value) => std::env::set_var(name, value),
                None => std::env::remove_var(name),
            }
        }
    }
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Result<Vec<CString>, _> = words.map(OsStr::as_bytes).map(CString::new).collect();
    let Ok(words) = words else { return io::ErrorKind::InvalidInput.into() };
    let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    sigpipe::restore();
    streams::close_on_exec();
    // SAFETY: C strings and a null at the end, all alive.
    unsafe {
        libc::execvp(path.as_ptr(), pointers.as_ptr());
        libc::execvp(pointers[0], pointers.as_ptr());
    }
    let error = io::Error::last_os_error();
    sigpipe::default();
    error
}

/// What to say of a program that cannot be started; `image` is its file, where there is one.
pub fn cannot_run(name: &OsStr, image: Option<&Path>, error: &io::Error) -> CannotRun {
    let shown = suggest::plain(&name.to_string_lossy());
    let not_found = error.kind() == io::ErrorKind::NotFound;
    let message = match image {
        _ if name.is_empty() => "the program's name is empty".to_string(),
        None if not_found => format!("`{shown}` is in no folder of PATH{}", several(name)),
        None => format!(
            "`{shown}` is in PATH but is not an executable file; `chmod +x` makes a program of a file"
        ),
        Some(_) if not_found && !Path::new(name).exists() && shown.contains('/') => {
            format!("there is no file `{shown}`{}", several(name))
        }
        Some(image) if not_found && !image.exists() => {
            format!("`{shown}` needs the interpreter {}, which does not exist", image.display())
        }
        Some(_) if not_found => {
            format!("`{shown}` needs an interpreter or dynamic linker that does not exist")
        }
        Some(_) if Path::new(name).is_dir() => format!("`{shown}` is a folder"),
        Some(_) if Path::new(name).exists() && !Path::new(name).is_file() => {
            format!("`{shown}` is a device, a pipe or a socket, and no program")
        }
        Some(_) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!("`{shown}` may not be executed; `chmod +x` makes a program of a file")
        }
        Some(_) => match (error.raw_os_error(), no_folder(Path::new(name))) {
            (Some(libc::ENOTDIR), Some(file)) => {
                let file = suggest::plain(&file.to_string_lossy());
                format!("there is no file `{shown}`: `{file}` is no folder")
            }
            _ => format!("cannot run `{shown}`: {error}"),
        },
    };
    CannotRun { status: if not_found { 127 } else { 126 }, message }
}

/// The part of a path that is there, and no folder.
fn no_folder(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|above| above.exists()).filter(|above| !above.is_dir())
}

/// What to do if a name is a whole command line, which a shell would have taken apart.
fn several(name: &OsStr) -> &'static str {
    let words = name.to_str().and_then(|name| name.split_once(char::is_whitespace));
    let is_program = |word: &str| program::find(word.as_ref()).is_ok_and(|path| path.is_file());
    match words.is_some_and(|(first, _)| is_program(first)) {
        true => ";\ngive the program and its arguments as words of their own, without quotes around all",
        false => "",
    }
}

/// Words as a shell takes them. Control characters are spelt as bash, zsh and newer shells read them.
pub fn shell_words(words: impl IntoIterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@%+".contains(c);
    let spelt = |c: char| match c {
        '\n' => r"\n".into(),
        '\t' => r"\t".into(),
        '\\' | '\'' => format!(r"\{c}"),
        c if c.is_ascii_control() => format!(r"\x{:02x}", c as u32),
        c if c.is_control() => format!(r"\u{:04x}", c as u32),
        c => c.to_string(),
    };
    let quote = |word: String| match word {
        word if !word.is_empty() && word.chars().all(plain) => word,
        word if word.chars().any(char::is_control) => {
            format!("$'{}'", word.chars().map(spelt).collect::<String>())
        }
        word => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let words = ["a", "b c", "it's", ""].map(String::from);
        assert_eq!(shell_words(words), r"a 'b c' 'it'\''s' ''");
        let words = ["-c", "a\nit's \\\t\u{1b}[0m", "\u{9b}é"].map(String::from);
        assert_eq!(shell_words(words), r"-c $'a\nit\'s \\\t\x1b[0m' $'\u009bé'");
    }

    #[test]
    fn a_name_that_is_no_file_is_told_why() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let (inside, at) = (file.join("inside/x"), folder.path().display());
        let told = |name: &str, error| {
            let name = OsStr::new(name);
            cannot_run(name, Some(Path::new(name)), &io::Error::from_raw_os_error(error)).to_string()
        };
        let text = told(inside.to_str().unwrap(), libc::ENOTDIR);
        assert!(text.ends_with(&format!(": `{at}/file` is no folder")), "{text}");
        assert!(told(&format!("{at}/file x"), libc::ENOENT).contains("words of their own"));
        assert!(!told(&format!("{at}/no file"), libc::ENOENT).contains("words of their own"));
        let text = cannot_run(OsStr::new("sh\n\u{1b}c"), None, &io::ErrorKind::NotFound.into()).to_string();
        assert!(text.starts_with("`sh??c` is in no folder") && text.contains("words of their own"), "{text}");
    }
}
