// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to run and with what, as arguments: what `run` and `compare` have in common.

#[cfg(feature = "bpf")]
use std::env;
use std::ffi::{OsStr, OsString};

use clap::Arg;
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use launch::When;
use launch::names::{barriers, in_place, rwlocks, view_names};
#[cfg(feature = "bpf")]
use linux::environment::RWLOCK;

/// What to run and with what.
#[derive(clap::Args)]
pub struct Target {
    /// The lock that replaces the C library's; see `wakeful locks` [env: WAKEFUL_LOCK]
    #[arg(long, value_name = "NAME", value_parser = Offered(in_place), hide_possible_values = true)]
    lock: Option<String>,
    /// The reader-writer lock that replaces the C library's [env: WAKEFUL_RWLOCK]
    #[arg(long, value_name = "NAME", value_parser = Offered(rwlocks), hide_possible_values = true)]
    rwlock: Option<String>,
    /// The barrier that replaces the C library's, and OpenMP's [env: WAKEFUL_BARRIER]
    #[arg(long, value_name = "NAME", value_parser = Offered(barriers), hide_possible_values = true)]
    barrier: Option<String>,
    /// Where knowledge of running threads comes from: auto, bpf, perf or none [env: WAKEFUL_VIEW]
    #[arg(long, value_name = "VIEW", value_parser = Offered(view_names), hide_possible_values = true)]
    view: Option<String>,
    /// Run OpenMP regions on wakeful's runtime: of the program, of what it loads, and of what it starts.
    /// never leaves them where they are; always, or the option alone, makes it an error if that cannot be
    /// done
    #[arg(
        long, value_parser = when(), value_name = "WHEN", num_args = 0..=1, require_equals = true,
        default_value = "auto", default_missing_value = "always", hide_possible_values = true
    )]
    openmp: When,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Target {
    /// With the reader-writer lock whose readers, too, wish not to be preempted, unless another one is asked
    /// for. The mutex tells by itself. A reader that is preempted keeps writers out.
    #[cfg(feature = "bpf")]
    pub fn for_the_scheduler(mut self) -> Self {
        let chosen = self.rwlock.is_some() || env::var_os(RWLOCK.name()).is_some_and(|name| !name.is_empty());
        if !chosen {
            self.rwlock = Some("rw-wakeful-np".into());
        }
        self
    }
}

impl From<Target> for launch::Target {
    fn from(args: Target) -> Self {
        let Target { lock, rwlock, barrier, view, openmp, command } = args;
        Self { lock, rwlock, barrier, view, openmp, command }
    }
}

const WHENS: [(&str, When, &str); 3] = [
    ("auto", When::Auto, "Unless the program is linked with a runtime of which it asks more than ours has"),
    ("never", When::Never, "In no program"),
    ("always", When::Always, "In this program, or it does not run"),
];

fn when() -> impl TypedValueParser<Value = When> {
    let known = WHENS.map(|(name, _, help)| PossibleValue::new(name).help(help));
    let when = |name: String| WHENS.iter().find(|(known, ..)| *known == name).map(|(_, when, _)| *when);
    PossibleValuesParser::new(known).try_map(move |name| when(name).ok_or("no such time"))
}

/// Takes any word, and offers these to whoever completes: we say more about a wrong name than clap does.
#[derive(Clone)]
pub struct Offered(pub fn() -> Vec<&'static str>);

impl TypedValueParser for Offered {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

#[cfg(all(test, feature = "bpf"))]
mod tests {
    use super::*;

    #[test]
    fn readers_tell_the_scheduler_unless_another_lock_is_chosen() {
        let target = |rwlock: Option<&str>| Target {
            lock: None,
            rwlock: rwlock.map(Into::into),
            barrier: None,
            view: None,
            openmp: When::Auto,
            command: vec!["true".into()],
        };
        let for_the_scheduler = |rwlock| target(rwlock).for_the_scheduler().rwlock;
        if env::var_os(RWLOCK.name()).is_none() {
            assert_eq!(for_the_scheduler(None).as_deref(), Some("rw-wakeful-np"));
        }
        assert_eq!(for_the_scheduler(Some("rw-wakeful")).as_deref(), Some("rw-wakeful"));
    }
}
