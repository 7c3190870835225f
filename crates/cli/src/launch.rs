// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `run` and `compare` have in common: a program, a lock, a view, and the interposer between them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use ::bench::contender::{LOCK_VARIABLE, VIEW_VARIABLE, preload_list, views};
use anyhow::{Result, bail};

use crate::program::{self, Program};
use crate::{library, suggest};

/// What to run and with what.
#[derive(clap::Args)]
pub struct Target {
    /// The lock that replaces the C library's; see `wakeful locks`
    #[arg(long, value_name = "NAME", env = LOCK_VARIABLE, hide_env_values = true)]
    pub lock: Option<String>,
    /// Where knowledge of running threads comes from: auto, bpf, perf or none
    #[arg(long, value_name = "VIEW", env = VIEW_VARIABLE, hide_env_values = true)]
    pub view: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// A program that can be started.
pub struct Launch {
    /// What is known of the program's file.
    pub program: Program,
    command: Vec<OsString>,
    lock: Option<String>,
    view: Option<String>,
    library: PathBuf,
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

/// Checks the name of a lock for the interposer.
fn check_lock(name: &str) -> Result<()> {
    let in_place = || catalog::MUTEXES.iter().filter(|entry| entry.in_place).map(|entry| entry.name);
    match catalog::entry(name) {
        Some(entry) if entry.in_place => Ok(()),
        Some(_) => bail!(
            "the lock `{name}` queues its waiters in nodes, for which a pthread mutex\n\
             has no room; it is there for `wakeful bench`. {}",
            suggest::hint(name, in_place())
        ),
        None => bail!("there is no lock `{name}`. {}", suggest::hint(name, in_place())),
    }
}

impl Launch {
    /// Checks everything that can be checked before the program runs.
    pub fn prepare(args: Target) -> Result<Self> {
        if let Some(lock) = &args.lock {
            check_lock(lock)?;
        }
        if let Some(view) = &args.view
            && !views().any(|name| name == view)
        {
            bail!("there is no view `{view}`. {}", suggest::hint(view, views()));
        }
        let path = program::find(&args.command[0]).map_err(|error| cannot_run(&args.command[0], None, &error))?;
        // A file that we may execute but not read: exec will say what is wrong with it, if anything.
        let program = program::inspect(&path).unwrap_or(Program { image: path, obstacle: None, go: false });
        Ok(Self { program, command: args.command, lock: args.lock, view: args.view, library: library::find()? })
    }

    /// The program, without us.
    pub fn plain(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command
    }

    /// The program, with the interposer.
    pub fn helped(&self) -> Command {
        let mut command = self.plain();
        command.env("LD_PRELOAD", preload_list(&self.library));
        if let Some(lock) = &self.lock {
            command.env(LOCK_VARIABLE, lock);
        }
        if let Some(view) = &self.view {
            command.env(VIEW_VARIABLE, view);
        }
        command
    }

    /// As the user wrote it.
    pub fn name(&self) -> String {
        self.command[0].to_string_lossy().into_owned()
    }

    /// The whole command line, for a shell.
    pub fn words(&self) -> String {
        crate::format::shell_words(self.command.iter().map(|word| word.to_string_lossy().into_owned()))
    }

    /// The lock that the interposer will use.
    pub fn lock(&self) -> &str {
        self.lock.as_deref().unwrap_or("wakeful")
    }

    /// The view that was asked for.
    pub fn view(&self) -> &str {
        self.view.as_deref().unwrap_or("auto")
    }

    /// The interposer.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// What to say when starting it failed.
    pub fn cannot_run(&self, error: &io::Error) -> CannotRun {
        cannot_run(&self.command[0], Some(&self.program.image), error)
    }
}

fn cannot_run(name: &std::ffi::OsStr, image: Option<&Path>, error: &io::Error) -> CannotRun {
    let shown = name.to_string_lossy();
    let not_found = error.kind() == io::ErrorKind::NotFound;
    let message = match image {
        _ if name.is_empty() => "the program's name is empty".to_string(),
        None if not_found => format!("`{shown}` is in no folder of PATH"),
        None => format!("`{shown}` is in PATH but is not an executable file; `chmod +x` makes a program of a file"),
        Some(_) if not_found && !Path::new(name).exists() && shown.contains('/') => {
            format!("there is no file `{shown}`")
        }
        Some(image) if not_found && !image.exists() => {
            format!("`{shown}` needs the interpreter {}, which does not exist", image.display())
        }
        Some(_) if not_found => format!("`{shown}` needs an interpreter or dynamic linker that does not exist"),
        Some(_) if Path::new(name).is_dir() => format!("`{shown}` is a folder"),
        Some(_) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!("`{shown}` may not be executed; `chmod +x` makes a program of a file")
        }
        Some(_) => format!("cannot run `{shown}`: {error}"),
    };
    CannotRun { status: if not_found { 127 } else { 126 }, message }
}
