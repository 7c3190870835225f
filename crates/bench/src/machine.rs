// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a result was measured on.

use std::time::SystemTime;

use launch::probe::{glibc_version, kernel_release};
use serde::Serialize;

/// A machine, as far as results depend on it.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub model: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Operating system and release.
    pub kernel: String,
    /// Version of the C library.
    pub glibc: String,
    /// Runs in a virtual machine.
    pub virtual_machine: bool,
    /// Runnable tasks, averaged over the minute before; our own load shows here too.
    pub load: Option<f64>,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let value = |key: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim())
        };
        Self {
            model: value("model name").unwrap_or(std::env::consts::ARCH).to_string(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("Linux {}", kernel_release()),
            glibc: glibc_version(),
            virtual_machine: value("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load: std::fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }
}

/// Now, in UTC, RFC 3339.
pub fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
