// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places, and which thread goes where (OpenMP 5.1, sections 2.6.2 and 6.5).

use std::cell::Cell;
use std::fmt::{self, Write};
use std::fs;

use crate::dialect::is_llvm;
use crate::icv::{Bind, settings};
use crate::thread::me;

/// What `omp_display_affinity` prints where nothing else is asked for.
pub fn default_format() -> &'static str {
    match is_llvm() {
        true => "OMP: pid %P tid %i thread %n bound to OS proc set {%A}",
        false => "level %L thread %i affinity %A",
    }
}

/// Processors among which a thread may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(pub Vec<u32>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(u32::to_string).collect();
        write!(f, "{{{}}}", numbers.join(","))
    }
}

/// The mask of the calling thread.
fn mask() -> libc::cpu_set_t {
    // SAFETY: zeros are an empty set, and the kernel writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        set
    }
}

/// The processors that the calling thread may use.
pub fn usable() -> Vec<u32> {
    let set = mask();
    // SAFETY: below the size of the set.
    (0..libc::CPU_SETSIZE as u32).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) }).collect()
}

/// `OMP_PLACES`.
pub fn places(text: &str) -> Option<Vec<Place>> {
    let usable = usable();
    let (name, most) = match text.split_once('(') {
        Some((name, rest)) if !text.starts_with('{') => (name, Some(rest.strip_suffix(')')?.trim().parse().ok()?)),
        _ => (text, None),
    };
    let mut places = match name.trim().to_ascii_lowercase().as_str() {
        "threads" => usable.iter().map(|&cpu| Place(vec![cpu])).collect(),
        "cores" => grouped(&usable, &["core_id", "physical_package_id"]),
        "sockets" | "numa_domains" | "ll_caches" => grouped(&usable, &["physical_package_id"]),
        _ => explicit(text, &usable)?,
    };
    places.truncate(most.unwrap_or(usize::MAX));
    Some(places)
}

/// Processors that agree in what the kernel says of them.
fn grouped(usable: &[u32], by: &[&str]) -> Vec<Place> {
    let mut groups: Vec<(Vec<String>, Place)> = Vec::new();
    for &cpu in usable {
        let read =
            |file| fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{file}")).unwrap_or_default();
        let key: Vec<_> = by.iter().map(read).collect();
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, place)) => place.0.push(cpu),
            None => groups.push((key, Place(vec![cpu]))),
        }
    }
    groups.into_iter().map(|(_, place)| place).collect()
}

/// `{0,1},{2:2},!{3},{4}:2:1`, or numbers without braces. A place that has no usable processor is left out.
fn explicit(text: &str, usable: &[u32]) -> Option<Vec<Place>> {
    let mut places: Vec<Vec<u32>> = Vec::new();
    for part in split(text) {
        let part = part.trim();
        let (part, excluded) = part.strip_prefix('!').map_or((part, false), |part| (part, true));
        let (place, interval) = match part.strip_prefix('{') {
            Some(rest) => {
                let (inner, interval) = rest.split_once('}')?;
                (numbers(inner)?, interval.strip_prefix(':'))
            }
            None => {
                let (number, interval) =
                    part.split_once(':').map_or((part, None), |(number, rest)| (number, Some(rest)));
                (vec![number.trim().parse().ok()?], interval)
            }
        };
        if excluded {
            places.retain(|known| *known != place);
            continue;
        }
        let (count, stride) = match interval {
            None => (1, 0),
            Some(interval) => {
                let (count, stride) = interval.split_once(':').unwrap_or((interval, ""));
                let stride = if stride.is_empty() { 1 } else { stride.trim().parse().ok()? };
                (count.trim().parse::<i64>().ok().filter(|&count| count > 0)?, stride)
            }
        };
        for index in 0..count {
            let moved = place.iter().map(|&cpu| u32::try_from(cpu as i64 + index * stride).ok());
            places.push(moved.collect::<Option<_>>()?);
        }
    }
    let there = places.into_iter().map(|place| place.into_iter().filter(|cpu| usable.contains(cpu)).collect());
    let there: Vec<Place> = there.map(Place).filter(|place| !place.0.is_empty()).collect();
    (!there.is_empty()).then_some(there)
}

/// `GOMP_CPU_AFFINITY`, a place for each: `0 3 5-9:2`, also with commas between. Those that are not usable
/// are left out.
pub fn processors(text: &str) -> Option<Vec<Place>> {
    let usable = usable();
    let mut all = Vec::new();
    for part in text.split(|c: char| c.is_whitespace() || c == ',').filter(|part| !part.is_empty()) {
        let (range, stride) =
            part.split_once(':').map_or((part, Some(1)), |(range, stride)| (range, stride.parse().ok()));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        let stride = stride.filter(|&stride: &usize| stride > 0)?;
        if first > last {
            return None;
        }
        all.extend((first..=last).step_by(stride).filter(|cpu| usable.contains(cpu)).map(|cpu| Place(vec![cpu])));
    }
    (!all.is_empty()).then_some(all)
}

/// At the commas that are not inside braces.
fn split(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(move |c| {
        inside = c == '{' || inside && c != '}';
        c == ',' && !inside
    })
    .collect()
}

/// `0,1`, `0:4`, `0:4:2`, with `!` before what is left out.
fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        if let Some(part) = part.strip_prefix('!') {
            let excluded: u32 = part.trim().parse().ok()?;
            all.retain(|&cpu| cpu != excluded);
            continue;
        }
        let mut fields = part.split(':').map(|field| field.trim().parse::<i64>().ok());
        let first = fields.next()??;
        let count = fields.next().unwrap_or(Some(1))?;
        let stride = fields.next().unwrap_or(Some(1))?;
        for index in 0..count {
            all.push(u32::try_from(first + index * stride).ok()?);
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Places of the list that a thread's teams may use: the first, and how many.
pub type Partition = (u32, u32);

/// Where a thread of a team goes, and the partition that it has then; from the primary thread's place and partition.
pub fn assign(bind: Bind, number: u32, team: u32, primary: u32, (first, count): Partition) -> Option<(u32, Partition)> {
    if count == 0 {
        return None;
    }
    let offset = primary.checked_sub(first).filter(|&offset| offset < count).unwrap_or(0);
    let whole = (first, count);
    match bind {
        Bind::False => None,
        Bind::Primary => Some((first + offset, whole)),
        // True is the implementation's choice.
        Bind::True | Bind::Close => {
            // With fewer places than threads neighbours share one.
            let step = if team <= count { number } else { (number as u64 * count as u64 / team as u64) as u32 };
            Some((first + (offset + step) % count, whole))
        }
        Bind::Spread if team <= count => {
            let begin = |index: u32| (index as u64 * count as u64 / team as u64) as u32;
            // The subpartition in which the primary thread is, is the first one.
            let mine = (0..team).rfind(|&index| begin(index) <= offset).unwrap_or(0);
            let index = (mine + number) % team;
            let part = (first + begin(index), begin(index + 1) - begin(index));
            Some((if number == 0 { first + offset } else { part.0 }, part))
        }
        Bind::Spread => {
            let place = first + (offset + (number as u64 * count as u64 / team as u64) as u32) % count;
            Some((place, (place, 1)))
        }
    }
}

/// Moves the calling thread to a place of the list. What the kernel refuses stays as it was.
pub fn go(place: u32) {
    let Some(Place(processors)) = settings().places.get(place as usize) else { return };
    // SAFETY: zeros are an empty set; the numbers are usable processors and so below the size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        processors.iter().for_each(|&cpu| libc::CPU_SET(cpu as usize, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Where a thread is, as far as we have put it there.
#[derive(Default)]
pub struct Location {
    /// 1 more than the place's number, or 0.
    place: Cell<u32>,
    partition: Cell<Option<Partition>>,
}

impl Location {
    pub fn place(&self) -> Option<u32> {
        self.place.get().checked_sub(1)
    }

    pub fn partition(&self) -> Partition {
        self.partition.get().unwrap_or((0, settings().places.len() as u32))
    }

    pub fn set_partition(&self, partition: Option<Partition>) {
        self.partition.set(partition);
    }

    /// Goes where a member of a team belongs.
    pub fn enter(&self, (place, partition): (u32, Partition)) {
        if self.place() != Some(place) {
            go(place);
            self.place.set(place + 1);
        }
        self.partition.set(Some(partition));
    }
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Says it where the compiler's own runtime does, in order with what the program says there.
pub fn display(format: &str) {
    let line = describe(format) + "\n";
    // SAFETY: the C library's streams, which nobody closes while the program writes.
    unsafe {
        let stream = if is_llvm() { stdout } else { stderr };
        libc::fwrite(line.as_ptr().cast(), 1, line.len(), stream);
    }
}

/// Writes what `omp_capture_affinity` tells, in this format (OpenMP 5.1, table 6.3).
pub fn describe(format: &str) -> String {
    let thread = me();
    let team = thread.team();
    let mut text = String::new();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let zeros = rest.next_if_eq(&'0').is_some();
        let right = rest.next_if_eq(&'.').is_some();
        let mut width = 0usize;
        while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
            width = (width * 10 + digit as usize).min(1024);
            rest.next();
        }
        let name: String = match rest.next() {
            Some('{') => rest.by_ref().take_while(|&c| c != '}').collect(),
            Some(c) => c.to_string(),
            None => break,
        };
        let number: i64 = match name.as_str() {
            "t" | "team_num" => crate::routines::team_number().into(),
            "T" | "num_teams" => crate::routines::teams().into(),
            "L" | "nesting_level" => team.level().into(),
            "n" | "thread_num" => thread.number().into(),
            "i" | "native_thread_id" => native_id(),
            "N" | "num_threads" => team.size().into(),
            "a" | "ancestor_tnum" => crate::routines::ancestor(team.level() as i32 - 1).into(),
            "P" | "process_id" => std::process::id().into(),
            _ => {
                let value = match name.as_str() {
                    "%" => "%".to_string(),
                    "H" | "host" => host(),
                    "A" | "thread_affinity" => ranges(&usable()),
                    _ => "undefined".to_string(),
                };
                let _ = if right { write!(text, "{value:>width$}") } else { write!(text, "{value:<width$}") };
                continue;
            }
        };
        let _ = match (right, zeros) {
            (true, true) => write!(text, "{number:0width$}"),
            (true, false) => write!(text, "{number:>width$}"),
            (false, _) => write!(text, "{number:<width$}"),
        };
    }
    text
}

fn native_id() -> i64 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the C library writes at most the size it is told.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    name.split(|&byte| byte == 0).next().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
}

/// `0-3,6`. Of two neighbours LLVM's runtime makes no range.
fn ranges(numbers: &[u32]) -> String {
    numbers
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [one] => one.to_string(),
            [one, other] if is_llvm() => format!("{one},{other}"),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect::<Vec<_>>()
        .join(",")
}
