// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/etc/wakeful/wakefuld.toml`: who may ask for what. `wakefuld.toml` beside this crate's sources documents each key with its default.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;

/// The documented default, which `wakefuld --print-config` prints.
pub const DOCUMENTED: &str = include_str!("../wakefuld.toml");

/// Everything that the administrator chooses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub access: Access,
    pub policy: Policy,
    pub enforcement: Enforcement,
    pub observer: Observer,
}

/// Who may ask, and for how much. Root is not bound by it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    pub users: Vec<User>,
    pub processors: f64,
    pub priority: u32,
    pub applications: u32,
    pub connections: u32,
    pub messages_per_second: u32,
    pub user_messages_per_second: u32,
    pub all_processors: f64,
    pub all_connections: u32,
    pub status: Status,
}

/// What `wakeful status` tells a user.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Own,
    All,
}

/// A user: by number, or everybody.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum User {
    Number(u32),
    Name(String),
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    pub floor: u32,
    pub floor_share: f64,
    pub lease_seconds: f64,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Enforcement {
    pub by: By,
    pub expedite: bool,
    pub realtime: bool,
    pub group: String,
    pub leave: Vec<String>,
    pub limits: Vec<String>,
    pub v1: PathBuf,
    pub v2: PathBuf,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Observer {
    pub enabled: Enabled,
    pub arenas: u32,
    pub all_arenas: u32,
}

/// Is the observer lent?
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Enabled {
    Always(bool),
    Where(Where),
}

/// Where users may use eBPF (`kernel.unprivileged_bpf_disabled`).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Where {
    Permitted,
}

/// What keeps programs on their processors.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    Best,
    CgroupV2,
    CgroupV1,
    Affinity,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            users: vec![User::Name("*".into())],
            processors: 0.5,
            priority: 10,
            applications: 32,
            connections: 64,
            messages_per_second: 1000,
            user_messages_per_second: 4000,
            all_processors: 0.75,
            all_connections: 1024,
            status: Status::Own,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { floor: 1, floor_share: 0.1, lease_seconds: 0.0 }
    }
}

impl Default for Observer {
    fn default() -> Self {
        Self { enabled: Enabled::Where(Where::Permitted), arenas: 64, all_arenas: 256 }
    }
}

const LIMITS: [&str; 6] =
    ["memory.max", "memory.high", "memory.swap.max", "cpu.max", "io.max", "cpuset.cpus"];

impl Default for Enforcement {
    fn default() -> Self {
        Self {
            by: By::Best,
            expedite: true,
            realtime: false,
            group: "/".into(),
            leave: vec!["/user.slice".into()],
            limits: LIMITS.map(Into::into).into(),
            v1: "/sys/fs/cgroup/cpuset".into(),
            v2: "/sys/fs/cgroup".into(),
        }
    }
}

impl Config {
    /// From a file; the default if there is none.
    ///
    /// # Errors
    /// Says what is wrong in which line.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).with_context(|| format!("{}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text)?;
        let Access { processors, messages_per_second, user_messages_per_second, ref users, .. } =
            config.access;
        if !(0.0..=1.0).contains(&processors) {
            bail!("access.processors = {processors}: a share, from 0 to 1");
        }
        for (name, share) in [
            ("access.all_processors", config.access.all_processors),
            ("policy.floor_share", config.policy.floor_share),
        ] {
            if !(0.0..=1.0).contains(&share) {
                bail!("{name} = {share}: a share, from 0 to 1");
            }
        }
        if let Some(group) =
            config.enforcement.leave.iter().find(|group| !group.starts_with('/') || group.contains(".."))
        {
            bail!("enforcement.leave: {group:?}: groups below the mount, such as \"/user.slice\"");
        }
        if messages_per_second == 0 {
            bail!("access.messages_per_second = 0: at least 1, or nobody could ask for anything");
        }
        if user_messages_per_second == 0 {
            bail!("access.user_messages_per_second = 0: at least 1, or nobody could ask for anything");
        }
        if let Some(User::Name(name)) =
            users.iter().find(|user| matches!(user, User::Name(name) if name != "*"))
        {
            bail!("access.users: \"{name}\": user numbers (`id -u {name}`), or \"*\" for everybody");
        }
        if config.policy.floor == 0 {
            bail!("policy.floor = 0: the default partition keeps at least 1");
        }
        if !(0.0..1e9).contains(&config.policy.lease_seconds) {
            bail!("policy.lease_seconds = {}: 0 for none, or a time", config.policy.lease_seconds);
        }
        if !config.enforcement.group.starts_with('/') || config.enforcement.group.contains("..") {
            bail!(
                "enforcement.group = {:?}: a path below the mount, such as \"/\"",
                config.enforcement.group
            );
        }
        if let Some(name) = config.enforcement.limits.iter().find(|name| name.contains('/')) {
            bail!("enforcement.limits: \"{name}\": files of a control group, such as \"memory.max\"");
        }
        Ok(config)
    }

    /// May this user ask at all? Root may.
    pub fn allows(&self, user: u32) -> bool {
        let this = |allowed: &User| matches!(allowed, User::Name(_)) || *allowed == User::Number(user);
        self.access.users.iter().any(this)
    }

    pub fn lease(&self) -> Option<Duration> {
        (self.policy.lease_seconds > 0.0).then(|| Duration::from_secs_f64(self.policy.lease_seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_file_is_the_default() {
        assert_eq!(Config::parse(DOCUMENTED).unwrap(), Config::default());
        // Each key is in the file, so that this could fail.
        for key in [
            "users",
            "processors",
            "priority",
            "applications",
            "connections",
            "messages_per_second",
            "user_messages_per_second",
            "all_processors",
            "all_connections",
            "status",
            "floor",
            "floor_share",
            "leave",
            "all_arenas",
            "lease_seconds",
            "by",
            "expedite",
            "realtime",
            "group",
            "limits",
            "v1",
            "v2",
            "enabled",
            "arenas",
        ] {
            assert!(DOCUMENTED.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (text, says) in [
            ("[access]\nprocessors = 2", "share"),
            ("[access]\nusers = [\"joe\"]", "id -u joe"),
            ("[access]\nmessages_per_second = 0", "at least 1"),
            ("[access]\nuser_messages_per_second = 0", "at least 1"),
            ("[policy]\nfloor = 0", "at least 1"),
            ("[policy]\nlease_seconds = -1", "0 for none"),
            ("[enforcement]\ngroup = \"x\"", "below the mount"),
            ("[enforcement]\nlimits = [\"../x\"]", "memory.max"),
            ("[enforcement]\nby = \"magic\"", "cgroup-v1"),
            ("[acess]", "unknown field"),
        ] {
            let error = format!("{:#}", Config::parse(text).unwrap_err());
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn who_may_ask() {
        let config = Config::parse("[access]\nusers = [1000]").unwrap();
        assert!(!config.allows(0) && config.allows(1000) && !config.allows(1001));
        assert!(Config::default().allows(1001));
    }
}
