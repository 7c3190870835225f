// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places, as the environment names them (OpenMP 5.1, section 6.5).

use std::fmt::{self, Write};
use std::io::Write as _;

use crate::dialect::is_llvm;
use crate::memory::List;
use crate::text::{joined, word};

/// What `omp_display_affinity` prints where nothing else is asked for.
pub fn default_format() -> &'static str {
    match is_llvm() {
        true => "OMP: pid %P tid %i thread %n bound to OS proc set {%A}",
        false => "level %L thread %i affinity %A",
    }
}

/// Processors among which a thread may move.
pub struct Place(pub List<u32>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_char('{')?;
        joined(f, self.0.iter())?;
        f.write_char('}')
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

/// Processors that the calling thread may use.
#[derive(Clone, Copy)]
pub(crate) struct Usable(libc::cpu_set_t);

impl Usable {
    pub(crate) fn now() -> Self {
        Self(mask())
    }

    fn has(&self, cpu: u32) -> bool {
        // SAFETY: below the size of the set.
        cpu < libc::CPU_SETSIZE as u32 && unsafe { libc::CPU_ISSET(cpu as usize, &self.0) }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        (0..libc::CPU_SETSIZE as u32).filter(|&cpu| self.has(cpu))
    }
}

/// A list, or nothing where it has no memory or no entry.
type Places = Option<List<Place>>;

fn lone(cpu: u32) -> Option<Place> {
    List::wished(1, |_| cpu).map(Place)
}

#[must_use]
fn add(places: &mut List<Place>, place: Option<Place>) -> Option<()> {
    places.push(place?).then_some(())
}

/// `OMP_PLACES`.
pub fn places(text: &str) -> Places {
    let usable = &Usable::now();
    let (name, most) = match text.split_once('(') {
        Some((name, rest)) if !text.starts_with('{') => {
            (name, Some(rest.strip_suffix(')')?.trim().parse().ok()?))
        }
        _ => (text, None),
    };
    const CORE: &str = "core_id";
    const SOCKET: &str = "physical_package_id";
    const SOCKETS: &[&str] = &[SOCKET];
    const KINDS: [(&str, &[&str]); 5] = [
        ("threads", &[]),
        ("cores", &[CORE, SOCKET]),
        ("sockets", SOCKETS),
        ("numa_domains", SOCKETS),
        ("ll_caches", SOCKETS),
    ];
    let mut places = match word(name.trim(), &KINDS) {
        Some(files) => grouped(usable, files)?,
        None => explicit(text, usable)?,
    };
    places.truncate(most.unwrap_or(usize::MAX));
    Some(places)
}

/// Processors that agree in what these files of the kernel say of them; without files, each alone.
fn grouped(usable: &Usable, files: &[&str]) -> Places {
    let mut places = List::<Place>::new();
    for cpu in usable.iter() {
        let like = |other: u32| {
            !files.is_empty() && files.iter().all(|file| topology(cpu, file) == topology(other, file))
        };
        match places.iter_mut().find(|place| like(place.0[0])) {
            Some(place) => place.0.push(cpu).then_some(())?,
            None => add(&mut places, lone(cpu))?,
        }
    }
    Some(places)
}

/// What a file says of a processor: a number, or an end.
fn topology(cpu: u32, file: &str) -> [u8; 32] {
    let (mut path, mut said) = ([0u8; 96], [0; 32]);
    let _ = write!(&mut path[..95], "/sys/devices/system/cpu/cpu{cpu}/topology/{file}");
    // SAFETY: a C string; the buffer has its size.
    unsafe {
        let fd = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::read(fd, said.as_mut_ptr().cast(), said.len());
            libc::close(fd);
        }
    }
    said
}

/// `{0,1},{2:2},!{3},{4}:2:1`, or numbers without braces. A place that has no usable processor is left out.
fn explicit(text: &str, usable: &Usable) -> Places {
    let mut places = List::<Place>::new();
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
                (lone(number.trim().parse().ok()?)?.0, interval)
            }
        };
        if excluded {
            places.retain(|known| known.0[..] != place[..]);
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
            let mut moved = List::new();
            for &cpu in &place[..] {
                moved.push(u32::try_from(cpu as i64 + index * stride).ok()?).then_some(())?;
            }
            add(&mut places, Some(Place(moved)))?;
        }
    }
    places.iter_mut().for_each(|place| place.0.retain(|&cpu| usable.has(cpu)));
    places.retain(|place| !place.0.is_empty());
    (!places.is_empty()).then_some(places)
}

/// `GOMP_CPU_AFFINITY`, a place for each: `0 3 5-9:2`, also with commas between. Those that are not usable
/// are left out.
pub fn processors(text: &str) -> Places {
    let usable = Usable::now();
    let mut all = List::new();
    for part in text.split(|c: char| c.is_whitespace() || c == ',').filter(|part| !part.is_empty()) {
        let (range, stride) =
            part.split_once(':').map_or((part, Some(1)), |(range, stride)| (range, stride.parse().ok()));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        let stride = stride.filter(|&stride: &usize| stride > 0)?;
        if first > last {
            return None;
        }
        for cpu in (first..=last).step_by(stride).filter(|&cpu| usable.has(cpu)) {
            add(&mut all, lone(cpu))?;
        }
    }
    (!all.is_empty()).then_some(all)
}

/// At the commas that are not inside braces.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |c| {
        inside = c == '{' || inside && c != '}';
        c == ',' && !inside
    })
}

/// `0,1`, `0:4`, `0:4:2`, with `!` before what is left out.
fn numbers(text: &str) -> Option<List<u32>> {
    let mut all = List::new();
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
            all.push(u32::try_from(first + index * stride).ok()?).then_some(())?;
        }
    }
    (!all.is_empty()).then_some(all)
}

/// `0-3,6`. Of two neighbours LLVM's runtime makes no range.
pub(crate) fn ranges(f: &mut fmt::Formatter, usable: &Usable) -> fmt::Result {
    let begins = usable.iter().filter(|&cpu| cpu == 0 || !usable.has(cpu - 1));
    let run = |first: u32| {
        let last = (first..).take_while(|&cpu| usable.has(cpu)).last().unwrap_or(first);
        fmt::from_fn(move |f| match last - first {
            0 => write!(f, "{first}"),
            1 if is_llvm() => write!(f, "{first},{last}"),
            _ => write!(f, "{first}-{last}"),
        })
    };
    joined(f, begins.map(run))
}
