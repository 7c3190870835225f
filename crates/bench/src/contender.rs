// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who takes part: a lock in our own process, or pthread under a preloaded library.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use launch::interposer::{preload_list, views};
use linux::environment::{LOCK, VIEW};

/// A contender and the environment that it runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// As the user wrote it.
    pub label: String,
    /// The lock to run in our own process.
    pub lock: String,
    /// The library to preload.
    pub preload: Option<PathBuf>,
    /// Value of [`LOCK`].
    pub interposed_lock: Option<String>,
    /// Value of [`VIEW.name()`].
    pub view: Option<String>,
}

/// What is wrong with a contender.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ContenderError {
    #[error("there is no contender `{name}`")]
    Unknown { name: String, known: Vec<String> },
    #[error("there is no view `{name}`")]
    UnknownView { name: String },
    #[error("the interposer offers no lock `{name}`: it is not one that lives in place")]
    NotInPlace { name: String, known: Vec<String> },
    #[error("`{name}` needs the interposer, and it was not found")]
    NoInterposer { name: String },
}

impl Contender {
    /// Parses `LOCK[@VIEW]`, `interposed[:LOCK][@VIEW]` or `preload=PATH`. `built_in` are the locks that
    /// the workload can run by name, the first of them the C library's; `interposer` is our library.
    pub fn parse(text: &str, built_in: &[&str], interposer: Option<&Path>) -> Result<Self, ContenderError> {
        let label = text.to_string();
        if let Some(path) = text.strip_prefix("preload=") {
            let (lock, preload) = (built_in[0].to_string(), Some(PathBuf::from(path)));
            return Ok(Self { label, lock, preload, interposed_lock: None, view: None });
        }
        let (who, view) = match text.split_once('@') {
            Some((who, view)) => (who, Some(view)),
            None => (text, None),
        };
        if let Some(view) = view
            && !views().any(|name| name == view)
        {
            return Err(ContenderError::UnknownView { name: view.to_string() });
        }
        let view = view.map(String::from);
        let (head, tail) = match who.split_once(':') {
            Some((head, tail)) => (head, Some(tail)),
            None => (who, None),
        };
        if head == "interposed" {
            if let Some(name) = tail
                && !catalog::entry(name).is_some_and(|entry| entry.in_place)
            {
                let known = catalog::MUTEXES
                    .iter()
                    .filter(|entry| entry.in_place)
                    .map(|entry| entry.name.to_string());
                return Err(ContenderError::NotInPlace { name: name.to_string(), known: known.collect() });
            }
            let Some(interposer) = interposer else {
                return Err(ContenderError::NoInterposer { name: label });
            };
            let (lock, preload) = (built_in[0].to_string(), Some(interposer.to_path_buf()));
            return Ok(Self { label, lock, preload, interposed_lock: tail.map(String::from), view });
        }
        if !built_in.contains(&who) {
            let known = built_in.iter().copied().chain(["interposed"]).map(String::from).collect();
            return Err(ContenderError::Unknown { name: who.to_string(), known });
        }
        Ok(Self { label, lock: who.to_string(), preload: None, interposed_lock: None, view })
    }

    /// One of the workload's own, in the environment that there is.
    pub fn plain(name: &str) -> Self {
        Self {
            label: name.to_string(),
            lock: name.to_string(),
            preload: None,
            interposed_lock: None,
            view: None,
        }
    }

    /// A view itself, by its name.
    pub fn view(name: &str) -> Self {
        Self { view: Some(name.to_string()), ..Self::plain(name) }
    }

    /// Gives a command the environment of this contender; what the environment already preloads stays.
    pub fn environment(&self, command: &mut Command) {
        if let Some(library) = &self.preload {
            command.env("LD_PRELOAD", preload_list(library));
        }
        if let Some(lock) = &self.interposed_lock {
            command.env(LOCK.name(), lock);
        }
        if let Some(view) = &self.view {
            command.env(VIEW.name(), view);
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(&self.label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Contender, ContenderError> {
        Contender::parse(text, &["glibc", "std", "wakeful"], Some(Path::new("/lib/ours.so")))
    }

    #[test]
    fn a_lock_may_name_its_view() {
        let plain = parse("wakeful").unwrap();
        assert_eq!((plain.lock.as_str(), &plain.view, &plain.preload), ("wakeful", &None, &None));
        assert_eq!(parse("wakeful@none").unwrap().view.as_deref(), Some("none"));
        assert_eq!(parse("wakeful@none").unwrap().to_string(), "wakeful@none");
    }

    #[test]
    fn the_interposer_runs_the_c_librarys_lock_and_may_name_its_own() {
        let it = parse("interposed:wakeful@perf").unwrap();
        assert_eq!((it.lock.as_str(), it.interposed_lock.as_deref()), ("glibc", Some("wakeful")));
        assert_eq!(
            (it.preload.as_deref(), it.view.as_deref()),
            (Some(Path::new("/lib/ours.so")), Some("perf"))
        );
        assert_eq!(parse("interposed").unwrap().interposed_lock, None);
        assert_eq!(parse("preload=/x:y@z.so").unwrap().preload.as_deref(), Some(Path::new("/x:y@z.so")));
    }

    #[test]
    fn what_is_unknown_is_named() {
        assert!(matches!(parse("wakefull"), Err(ContenderError::Unknown { name, .. }) if name == "wakefull"));
        assert!(matches!(parse("std@pref"), Err(ContenderError::UnknownView { name }) if name == "pref"));
        assert!(matches!(parse("interposed:x"), Err(ContenderError::NotInPlace { name, .. }) if name == "x"));
        let without = Contender::parse("interposed", &["glibc"], None);
        assert!(matches!(without, Err(ContenderError::NoInterposer { .. })));
    }
}
