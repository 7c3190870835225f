// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says of a process in /proc/n/stat.

/// The fields of /proc/n/stat behind the name, which may contain anything.
pub fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// Who started it.
pub fn parent(stat: &str) -> Option<u32> {
    fields(stat).nth(1)?.parse().ok()
}

/// Where the stack of the image begins that a process executes: another one begins elsewhere, by chance.
pub fn image(stat: &str) -> Option<u64> {
    fields(stat).nth(25)?.parse().ok()
}

/// In nanoseconds: `USER_HZ` is 100 on all machines that there are.
const TICK_NS: u64 = 10_000_000;

/// Its processor time and that of its children that are gone, in nanoseconds.
pub fn used_ns(stat: &str) -> Option<u64> {
    let times = fields(stat).skip(11).take(4).map(|time| time.parse::<u64>());
    Some(times.sum::<Result<u64, _>>().ok()?.saturating_mul(TICK_NS))
}

/// When a process started, in clock ticks after boot.
pub fn started(stat: &str) -> Option<u64> {
    fields(stat).nth(19)?.parse().ok()
}
