// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user may choose by name for the interposer, and what is said of any other name.

use anyhow::{Result, bail};
use linux::environment;

use crate::interposer::views;
use crate::suggest;

/// The locks that the interposer offers.
pub fn in_place() -> Vec<&'static str> {
    catalog::MUTEXES.iter().filter(|entry| entry.in_place).map(|entry| entry.name).collect()
}

/// The reader-writer locks that the interposer offers: in place, with the timed acquires that pthread
/// has, and (so says the type that the catalogue wants of these) with an acquire for readers that waits
/// for nobody but a writer inside.
pub fn rwlocks() -> Vec<&'static str> {
    catalog::RWLOCKS.iter().filter(|entry| entry.in_place && entry.timed).map(|entry| entry.name).collect()
}

/// The barriers that the interposer and the OpenMP runtime offer: all.
pub fn barriers() -> Vec<&'static str> {
    catalog::BARRIERS.iter().map(|entry| entry.name).collect()
}

/// The names of the views.
pub fn view_names() -> Vec<&'static str> {
    views().collect()
}

/// What to add to "there is no such lock" where the catalogue has the name among those of another kind.
fn kind(name: &str) -> &'static str {
    if in_place().contains(&name) {
        ":\nit is a mutex, for --lock or WAKEFUL_LOCK"
    } else if catalog::entry(name).is_some() {
        ":\nit is a mutex, there for `wakeful bench mutex`"
    } else if rwlocks().contains(&name) {
        ":\nit is a reader-writer lock, for --rwlock or WAKEFUL_RWLOCK"
    } else if catalog::RWLOCKS.iter().any(|entry| entry.name == name) {
        ":\nit is a reader-writer lock, there for `wakeful bench rwlock`"
    } else if catalog::barrier(name).is_some() {
        ":\nit is a barrier, for --barrier or WAKEFUL_BARRIER"
    } else if catalog::delegate(name).is_some() {
        ":\nit is a delegating lock, there for `wakeful bench delegate`"
    } else {
        ""
    }
}

/// What else to add: a name may be that of a family, whose members differ in how they wait. Of those who are
/// offered here.
fn family(name: &str, offered: impl IntoIterator<Item = &'static str>) -> String {
    let members = offered
        .into_iter()
        .filter(|member| member.strip_prefix(name).is_some_and(|rest| rest.starts_with('-')));
    let known = catalog::MUTEXES.iter().chain(catalog::RWLOCKS);
    let known = || known.map(|entry| entry.name).any(|known| known.starts_with(&format!("{name}-")));
    match members.map(|member| format!("`{member}`")).collect::<Vec<_>>().join(", ") {
        _ if name.is_empty() || !kind(name).is_empty() => String::new(),
        members if members.is_empty() => match known() {
            true => "\nThose of this family are there for `wakeful bench` alone.".to_string(),
            false => String::new(),
        },
        members => format!(
            "\n{}",
            suggest::wrap(&format!("There are {members}; `wakeful locks` says what fits."), suggest::WIDTH)
        ),
    }
}

/// Does this lock or barrier let its waiters spin, though whom they wait for has no processor?
pub fn spins(name: &str) -> bool {
    // Some that spin for a time only say so in another way.
    name.ends_with("-spin") || matches!(name, "tas-b" | "tas-b-np" | "tree" | "scal-sc" | "scal-sc-yield")
}

/// Variables that only look like ours, a line each.
pub fn misspelt() -> Vec<String> {
    std::env::vars_os()
        .filter_map(|(name, value)| misspelt_as(name.to_str()?, &value.to_string_lossy()))
        .collect()
}

/// Variables that have our prefix, or nearly, and do nothing: a line each.
pub fn ignored() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.to_str()?, value.to_string_lossy());
        misspelt_as(name, &value).or_else(|| ignored_as(name))
    });
    names.map(|line| suggest::plain(&line)).collect()
}

fn ignored_as(name: &str) -> Option<String> {
    let known = || environment::ALL.iter().map(|variable| variable.name());
    if known().any(|known| known == name) {
        return None;
    }
    let (ours, rest) = name.split_once('_')?;
    if ours == "WAKEFUL" {
        return Some(format!("{name} is no variable of wakeful's, and is ignored."));
    }
    suggest::near(ours, ["WAKEFUL"].into_iter())?;
    let near = suggest::near(rest, known().filter_map(|known| known.strip_prefix("WAKEFUL_")))?;
    Some(format!("{name} is ignored. Did you mean WAKEFUL_{near}?"))
}

fn misspelt_as(name: &str, value: &str) -> Option<String> {
    const OURS: &str = "WAKEFUL_";
    let rest = name.strip_prefix(OURS)?;
    let known = || environment::ALL.iter().map(|variable| variable.name());
    if known().any(|known| known == name) {
        return None;
    }
    let near = suggest::near(rest, known().filter_map(|known| known.strip_prefix(OURS)))?;
    Some(format!("{name}={value} is ignored, and the default is used. Did you mean {OURS}{near}?"))
}

/// Checks the name of a lock for the interposer.
pub fn check_lock(name: &str) -> Result<()> {
    match catalog::entry(name) {
        Some(entry) if entry.in_place => Ok(()),
        Some(_) => bail!(
            "the lock `{name}` queues its waiters in nodes,\n\
             for which a pthread mutex has no room; it is there for `wakeful bench`.{}",
            suggest::hint(name, in_place())
        ),
        None => bail!(
            "there is no lock `{name}`{}.{}{}",
            kind(name),
            family(name, in_place()),
            suggest::hint(name, in_place())
        ),
    }
}

/// Checks the name of a reader-writer lock for the interposer.
pub fn check_rwlock(name: &str) -> Result<()> {
    if rwlocks().contains(&name) {
        return Ok(());
    }
    if catalog::RWLOCKS.iter().any(|entry| entry.name == name) {
        bail!(
            "the reader-writer lock `{name}` has no room in pthread's, or no timed acquire.\n\
             It may keep a reader waiting for which another reader waits.\n\
             It is there for `wakeful bench`.{}",
            suggest::hint(name, rwlocks())
        );
    }
    bail!(
        "there is no reader-writer lock `{name}`{}.{}{}",
        kind(name),
        family(name, rwlocks()),
        suggest::hint(name, rwlocks())
    );
}

/// Checks the name of a barrier.
pub fn check_barrier(name: &str) -> Result<()> {
    if catalog::barrier(name).is_some() {
        return Ok(());
    }
    bail!(
        "there is no barrier `{name}`{}.{}{}",
        kind(name),
        family(name, barriers()),
        suggest::hint(name, barriers())
    );
}

/// Checks the name of a view.
pub fn check_view(name: &str) -> Result<()> {
    if views().any(|known| known == name) {
        return Ok(());
    }
    bail!("there is no view `{name}`.{}", suggest::hint(name, views()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_nearly_ours_is_told() {
        let told = misspelt_as("WAKEFUL_LOK", "ticket-spin").unwrap();
        assert!(told.starts_with("WAKEFUL_LOK=ticket-spin is ignored"), "{told}");
        assert!(told.ends_with("Did you mean WAKEFUL_LOCK?"), "{told}");
        for name in ["WAKEFUL_LOCK", "WAKEFUL_BLESS", "LOCK", "WAKEFULL_LOCK", "WAKEFUL_"] {
            assert_eq!(misspelt_as(name, ""), None);
        }
        assert_eq!(
            ignored_as("WAKEFULL_LOCK").unwrap(),
            "WAKEFULL_LOCK is ignored. Did you mean WAKEFUL_LOCK?"
        );
        assert!(ignored_as("WAKEFUL_BLESS").unwrap().contains("no variable of wakeful's"));
        let others = ["WAKEFUL_LOCK", "LOCK", "WAKE_ON_LAN", "WAKEFULL_X"];
        assert_eq!(others.map(ignored_as), [const { None }; 4]);
    }

    #[test]
    fn who_spins_whoever_runs_is_known() {
        for (name, summary) in catalog::MUTEXES
            .iter()
            .map(|entry| (entry.name, entry.summary))
            .chain(catalog::BARRIERS.iter().map(|entry| (entry.name, entry.summary)))
        {
            assert!(!summary.contains("spins, whoever runs") || spins(name), "{name}");
        }
        assert!(!spins("wakeful") && !spins("b-wakeful") && !spins("c-sp-blk"));
    }
}
