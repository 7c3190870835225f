// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful run`, as far as it needs nobody's help.

use core::ffi::{CStr, c_char};
use core::ptr::null;

use abi::cache::Cache;
use abi::environment::{ALL, BARRIER, LOCK, OPENMP, PRELOAD, RWLOCK, VIEW, Variable};
use abi::image::{self, Fate, KNOWN, Note};

use crate::kernel::{self, Error, File};

/// BOUND: bytes of stack. A longer path is left to the others.
const PATH: usize = 512;
/// BOUND: entries, on the stack. A larger environment is left to the others.
const ENTRIES: usize = 256;
pub const FAILED: u8 = 125;

const RUNNER: &[u8] = b"wakeful-run";
const VERBS: &[u8] = b"wakeful-verbs";
const INTERPOSER: &[u8] = b"libwakeful_preload.so";
const RUNTIME: &[u8] = b"libgomp_wakeful.so";
const LD_PRELOAD: &[u8] = b"LD_PRELOAD";

/// Where packages put parts of us, from the folder above this program's (`launch::library`).
const FOLDERS: [&[u8]; 2] = [
    if cfg!(target_arch = "aarch64") {
        b"/lib/aarch64-linux-gnu/wakeful/"
    } else {
        b"/lib/x86_64-linux-gnu/wakeful/"
    },
    b"/lib/wakeful/",
];

/// Where this part may be, if this program is in the folder `here`: beside it at first.
fn places(here: &[u8], name: &[u8]) -> [Option<Text>; 3] {
    let [one, other] = FOLDERS.map(|place| Text::of(&[folder(here), place, name]));
    [Text::of(&[here, b"/", name]), one, other]
}

/// Text, with a zero behind it.
struct Text {
    bytes: [u8; PATH],
    size: usize,
}

impl Text {
    /// These parts, one after the other, if there is room.
    fn of(parts: &[&[u8]]) -> Option<Self> {
        let mut text = Self { bytes: [0; PATH], size: 0 };
        for part in parts {
            let end = text.size + part.len();
            text.bytes.get_mut(text.size..end).filter(|_| end < PATH)?.copy_from_slice(part);
            text.size = end;
        }
        Some(text)
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.size).unwrap_or_default()
    }

    fn c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// A path's folder. The root, which is "", is in itself.
fn folder(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(end) => path.get(..end).unwrap_or_default(),
        None if path.is_empty() => path,
        None => b".",
    }
}

/// The value in an entry of the environment, if it is this variable's.
///
/// # Safety
/// A C string.
unsafe fn value<'a>(entry: *const c_char, name: &[u8]) -> Option<&'a CStr> {
    // SAFETY: as promised; the first byte that differs, the end at the latest, ends the comparison.
    unsafe {
        let is_it = name.iter().enumerate().all(|(at, &byte)| *entry.add(at) as u8 == byte);
        (is_it && *entry.add(name.len()) as u8 == b'=').then(|| CStr::from_ptr(entry.add(name.len() + 1)))
    }
}

/// What the kernel has put on the stack: lists of C strings, each with a null at its end.
struct Start {
    count: usize,
    words: *const *const c_char,
    list: *const *const c_char,
    /// Pairs of numbers, with a zero at the end.
    more: *const [usize; 2],
}

impl Start {
    fn word(&self, index: usize) -> Option<&CStr> {
        // SAFETY: so many are there.
        (index < self.count).then(|| unsafe { CStr::from_ptr(*self.words.add(index)) })
    }

    fn entries(&self) -> impl Iterator<Item = *const c_char> {
        // SAFETY: null ends it.
        (0..).map(|index| unsafe { *self.list.add(index) }).take_while(|entry| !entry.is_null())
    }

    fn variable(&self, name: &[u8]) -> Option<&CStr> {
        // SAFETY: a C string.
        self.entries().find_map(|entry| unsafe { value(entry, name) })
    }

    fn is_set(&self, variable: Variable) -> bool {
        self.variable(variable.name().as_bytes()).is_some()
    }

    /// Is there a variable that only looks like ours? It may be misspelt, which the others tell.
    fn has_unknown(&self) -> bool {
        const OURS: &[u8] = b"WAKEFUL_";
        // SAFETY: a C string; the first byte that differs, the end at the latest, ends the comparison.
        let is_ours = |&entry: &*const c_char| unsafe {
            OURS.iter().enumerate().all(|(at, &byte)| *entry.add(at) as u8 == byte)
        };
        // SAFETY: as above.
        let is_known = |entry, known: &Variable| unsafe { value(entry, known.name().as_bytes()) }.is_some();
        self.entries().filter(is_ours).any(|entry| !ALL.iter().any(|known| is_known(entry, known)))
    }

    /// Where this program is. Without /proc, as the kernel was asked for it, and where that leads.
    fn program(&self) -> Option<Text> {
        const NAME: usize = 31;
        const LINKS: usize = 40;
        let mut link = [0; PATH];
        if let Some(path) = kernel::read_link(c"/proc/self/exe", &mut link) {
            return Text::of(&[path]);
        }
        // SAFETY: a zero ends it.
        let mut pairs = (0..).map(|index| unsafe { *self.more.add(index) }).take_while(|pair| pair[0] != 0);
        let name = core::ptr::with_exposed_provenance(pairs.find(|pair| pair[0] == NAME)?[1]);
        // SAFETY: the kernel's own C string, of this kind.
        let mut path = Text::of(&[unsafe { CStr::from_ptr(name) }.to_bytes()])?;
        for _ in 0..LINKS {
            let Some(next) = kernel::read_link(path.c(), &mut link) else { break };
            path = match next.starts_with(b"/") {
                true => Text::of(&[next])?,
                false => Text::of(&[folder(path.bytes()), b"/", next])?,
            };
        }
        Some(path)
    }

    /// The program after `run` without options: which word it is.
    fn command(&self) -> Option<usize> {
        let is_run = self.word(1)? == c"run"
            && ![LOCK, RWLOCK, BARRIER, VIEW].into_iter().any(|variable| self.is_set(variable))
            && !self.has_unknown();
        let first = self.word(2).filter(|_| is_run)?.to_bytes();
        match first {
            b"--" => self.word(3).map(|_| 3),
            _ => (!first.starts_with(b"-")).then_some(2),
        }
    }

    /// Becomes the program with this word, if that can be done here. Returns if not.
    fn run(&self, command: usize, here: &[u8]) -> Option<()> {
        // A library that is preloaded already may need more of us.
        if self.variable(LD_PRELOAD).is_some() {
            return None;
        }
        let (program, fate) = self.find(self.word(command)?)?;
        let named = self.variable(PRELOAD.name().as_bytes()).map(CStr::to_bytes);
        let interposer = match named.filter(|path| !path.is_empty()) {
            Some(path) => part(path, &Note::INTERPOSER).ok()?,
            None => {
                let mut places = places(here, INTERPOSER).into_iter().flatten();
                places.find_map(|place| part(place.bytes(), &Note::INTERPOSER).ok())?
            }
        };
        let path = Text::of(&[folder(interposer.bytes()), b"/", RUNTIME])?;
        let has_runtime = match part(path.bytes(), &Note::OPENMP) {
            Err(kernel::NOT_FOUND) => false,
            found => found.map(|_| true).ok()?,
        };
        let first: [&[u8]; 2] = match fate {
            Fate::Loads if has_runtime => [path.bytes(), b":"],
            _ => [b"", b""],
        };
        let preload = Text::of(&[LD_PRELOAD, b"=", first[0], first[1], interposer.bytes()])?;
        let openmp = OPENMP.name().as_bytes();
        let runtime = Text::of(&[openmp, b"=", path.bytes()])?;
        let mut list = [null(); ENTRIES];
        // SAFETY: a C string.
        let others = self.entries().filter(|&entry| unsafe { value(entry, openmp) }.is_none());
        let runtime = if has_runtime { runtime.c().as_ptr() } else { null() };
        let ours = [preload.c().as_ptr(), runtime, null()];
        let (mut places, mut rest) = (list.iter_mut(), others.chain(ours));
        rest.try_for_each(|entry| places.next().map(|place| *place = entry))?;
        // SAFETY: C strings that live, and a null behind each list.
        unsafe { kernel::exec(program.c(), self.words.add(command), list.as_ptr()) };
        None
    }

    /// The file of a program of this name, and what it does with what is preloaded.
    fn find(&self, name: &CStr) -> Option<(Text, Fate)> {
        if name.to_bytes().contains(&b'/') {
            let path = Text::of(&[name.to_bytes()])?;
            return self.judge(File::open(path.c(), false).ok()?).map(|fate| (path, fate));
        }
        let folders = self.variable(b"PATH")?.to_bytes();
        for folder in folders.split(|&byte| byte == b':') {
            let path = Text::of(&[folder, b"/", name.to_bytes()]).filter(|_| folder.starts_with(b"/"))?;
            match File::open(path.c(), false) {
                Ok(file) if file.status()?.mode & 0o170111 > 0o100000 => {
                    return self.judge(file).map(|fate| (path, fate));
                }
                Ok(_) => return None,
                Err(kernel::NOT_FOUND | kernel::NO_FOLDER) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// What the program in this file does with what is preloaded, if it gives nobody rights and needs no
    /// OpenMP runtime. That of a script is its interpreter.
    fn judge(&self, mut file: File) -> Option<Fate> {
        let mut head = [0; image::HEAD];
        for _ in 0..=image::INTERPRETERS {
            let (fate, next) = image::look(file.image(), &mut head)?;
            if !next.is_null() {
                // SAFETY: a C string in the buffer.
                file = File::open(unsafe { CStr::from_ptr(next) }, false).ok()?;
                continue;
            }
            if file.status()?.mode & 0o176000 != 0o100000 || file.has_capabilities() {
                return None;
            }
            let is_plain = || {
                let cache = File::open(c"/etc/ld.so.cache", false).ok()?;
                let cache = Cache::new(cache.map()?)?;
                image::needs(file.image(), &mut [0; image::HEAD], |name| is_plain(&cache, name))
            };
            return match fate {
                Fate::Closed => Some(fate),
                Fate::Loads if self.variable(b"LD_LIBRARY_PATH").is_none() => {
                    is_plain().filter(|has_folders| !has_folders).map(|_| fate)
                }
                _ => None,
            };
        }
        None
    }

    /// Becomes the program of ours that does the rest: the first of these that there is.
    fn become_other(&self, names: &[&[u8]], here: &[u8]) -> ! {
        let mut reason = kernel::NOT_FOUND;
        for path in names.iter().flat_map(|name| places(here, name)) {
            // SAFETY: what the kernel gave us.
            let error = path.map(|path| unsafe { kernel::exec(path.c(), self.words, self.list) });
            reason = error.filter(|&error| error != kernel::NOT_FOUND).unwrap_or(reason);
        }
        for words in [b"wakeful: cannot run ", VERBS, b": ", Reason(reason).words(), b";\n"] {
            kernel::say(words);
        }
        for words in [b"it is part of this command, and belongs next to it: ", here, b"/", VERBS, b"\n"] {
            kernel::say(words);
        }
        kernel::exit(FAILED);
    }
}

struct Reason(Error);

impl Reason {
    fn words(self) -> &'static [u8] {
        match self.0 {
            kernel::NOT_FOUND => b"No such file or directory",
            kernel::DENIED => b"Permission denied",
            _ => b"the kernel refuses",
        }
    }
}

/// The file is there, and cannot be ours.
const UNFIT: Error = 22;

/// A part of us in this file, by its note. The dynamic linker's list has no word for a space or a colon.
fn part(path: &[u8], note: &Note) -> Result<Text, Error> {
    let path = Text::of(&[path]).ok_or(UNFIT)?;
    let plain = path.bytes().starts_with(b"/") && !path.bytes().iter().any(|byte| b" :".contains(byte));
    let file = File::open(path.c(), true)?;
    let mut head = [0; image::HEAD];
    if plain && note.is_in(file.head(&mut head)) { Ok(path) } else { Err(UNFIT) }
}

/// A library that a program needs brings no OpenMP runtime, as far as the system's packages brought it.
fn is_plain(cache: &Cache, name: &[u8]) -> bool {
    const FOLDERS: [&[u8]; 4] = [b"/lib/", b"/lib64/", b"/usr/lib/", b"/usr/lib64/"];
    let look = || {
        let path = cache.find(name).filter(|path| FOLDERS.iter().any(|folder| path.starts_with(folder)))?;
        let file = File::open(Text::of(&[path])?.c(), false).ok()?;
        image::needs(file.image(), &mut [0; image::HEAD], |name| image::runtime(name).is_none())
    };
    KNOWN.iter().any(|known| known.as_bytes() == name)
        || (image::runtime(name).is_none() && !name.contains(&b'/') && look().is_some())
}

/// # Safety
/// The stack as the kernel leaves it: the number of words, the words, the environment, and pairs of numbers.
pub unsafe extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: as promised.
    let start = unsafe {
        let (count, words) = (*stack, stack.add(1).cast::<*const c_char>());
        let list = words.add(count + 1);
        let more = (0..).map(|index| list.add(index)).find(|&at| (*at).is_null()).unwrap_or(list);
        Start { count, words, list, more: more.add(1).cast() }
    };
    let Some(path) = start.program() else {
        kernel::say(b"wakeful: its own path is too long: install it elsewhere\n");
        kernel::exit(FAILED);
    };
    let here = folder(path.bytes());
    match start.command() {
        Some(command) => {
            start.run(command, here);
            start.become_other(&[RUNNER, VERBS], here)
        }
        None => start.become_other(&[VERBS], here),
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    kernel::say(b"wakeful: this should not have happened\n");
    kernel::exit(FAILED)
}
