// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose a user number is where limits are counted.
//!
//! A user with subordinate ids (`/etc/subuid`) can be many users at once: each of these numbers counts as
//! its owner. Rights do not follow from it. Root's subordinate ids are users of their own, since root has no
//! limits. Owners and ids that only a name service knows are not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use tracing::debug;

use crate::kernel::Kernel;

const RANGES: &str = "/etc/subuid";
const USERS: &str = "/etc/passwd";

#[derive(Default)]
pub(super) struct Owners {
    /// What the file says.
    text: String,
    /// By the first number: the last one, and the owner.
    ranges: BTreeMap<u32, (u32, u32)>,
    /// These are somebody's own.
    users: BTreeSet<u32>,
}

impl Owners {
    /// Looks whether the file says something else now. Without a file, nobody has subordinate ids.
    pub(super) fn look(&mut self, kernel: &impl Kernel) {
        let read = |file: &str| match kernel.read(Path::new(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            text => text,
        };
        let look = || {
            let text = read(RANGES)?;
            let is_new = text != self.text;
            io::Result::Ok(if is_new { Some(Self::new(text, &read(USERS)?)) } else { None })
        };
        match look() {
            Ok(None) => {}
            Ok(Some(new)) => *self = new,
            Err(error) => debug!("cannot read which users have subordinate ids: {error}"),
        }
    }

    fn new(text: String, users: &str) -> Self {
        let user = |line: &str| {
            let mut fields = line.split(':');
            Some((fields.next()?.to_string(), fields.nth(1)?.parse().ok()?))
        };
        let users: BTreeMap<String, u32> = users.lines().filter_map(user).collect();
        let range = |line: &str| {
            let mut fields = line.trim().split(':');
            let name = fields.next()?;
            let owner = name.parse().ok().or_else(|| users.get(name).copied()).filter(|&owner| owner != 0)?;
            let (first, count): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            (first != 0 && count != 0).then(|| (first, (first.saturating_add(count - 1), owner)))
        };
        let mut ranges = BTreeMap::new();
        // Of two that begin together, the first counts.
        for (first, rest) in text.lines().filter_map(range) {
            ranges.entry(first).or_insert(rest);
        }
        Self { text, ranges, users: users.into_values().collect() }
    }

    /// The user whose limits hold for this one.
    pub(super) fn of(&self, user: u32) -> u32 {
        match self.ranges.range(..=user).next_back() {
            Some((_, &(last, owner))) if user <= last && !self.users.contains(&user) => owner,
            _ => user,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_ids_are_their_owners() {
        let users = "root:x:0:0::/root:/bin/sh\njoe:x:1000:1000::/:/bin/sh\nann:x:100005:1::/:\nbroken\n:\n";
        let text = "joe:100000:10\n# joe:1:1\nroot:200000:10\n1001:300000:2\nwho:400000:9\njoe:0:9\n\
                    joe:500000:0\njoe:4294967290:99\njoe:x:1\n";
        let owners = Owners::new(text.into(), users);
        for (user, owner) in [
            (100_000, 1000),
            (100_009, 1000),
            (100_010, 100_010),
            // A user of the machine's own.
            (100_005, 100_005),
            (200_000, 200_000),
            (300_001, 1001),
            (300_002, 300_002),
            (400_000, 400_000),
            (500_000, 500_000),
            (u32::MAX, 1000),
            (0, 0),
            (1000, 1000),
            (5, 5),
        ] {
            assert_eq!(owners.of(user), owner, "{user}");
        }
    }
}
