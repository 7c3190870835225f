// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names for places: function, file and line, as far as a file or its debug file has them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use addr2line::Loader;
use object::{Object, ObjectSymbol, ObjectSymbolTable, ReadCache, SymbolIndex, SymbolKind};

use crate::image::Image;
use crate::made::Made;
use crate::maps::{self, File, Near, Place};

/// The module of code that no file has.
pub const MADE: &str = "[no file]";

/// A function on a stack. What was inlined at a place has one each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its name; none in a file without symbols.
    pub function: Option<String>,
    /// The source file and line.
    pub line: Option<(String, u32)>,
    /// The program or library.
    pub module: String,
    /// Where in it, as its own symbols count.
    pub address: u64,
    /// What the linker calls that file.
    pub build_id: Option<String>,
    /// Is the place by a guess?
    pub is_guess: bool,
}

/// A variable of the program or of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// How far behind its beginning the place is: there may be a member, or an element.
    pub offset: u64,
    /// The program or library.
    pub module: String,
    /// Where in it the place is, as its own symbols count.
    pub address: u64,
    /// What the linker calls that file.
    pub build_id: Option<String>,
}

impl Variable {
    /// The name, and how far behind its beginning.
    pub fn label(&self) -> String {
        match self.offset {
            0 => self.name.clone(),
            offset => format!("{}+{offset:#x}", self.name),
        }
    }
}

/// What is known of the files.
pub struct Symbols {
    began: SystemTime,
    files: HashMap<Arc<File>, Option<Known>>,
    data: HashMap<Arc<File>, Option<(Image, Listed)>>,
    /// To read one name, the file's tables are parsed.
    variables: HashMap<(Arc<File>, u64), Option<Variable>>,
    made: Made,
}

struct Known {
    image: Image,
    names: Names,
}

/// What names a file's functions.
enum Names {
    None,
    /// With lines, and what was inlined.
    Lines(Box<Loader>),
    /// Names alone. Nobody asks for the C library's lines, and to unpack them takes longer than all else of a
    /// report.
    Alone(Listed),
}

/// The C library's files begin so.
const C_LIBRARY: [&str; 4] = ["libc.so.", "libc-2.", "ld-linux", "libpthread"];

impl Symbols {
    /// Files that are newer may be others than those that were mapped.
    pub fn new(began: SystemTime) -> Self {
        let (files, data, variables) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { began, files, data, variables, made: Made::default() }
    }

    /// Names also what these processes have made while they ran, if they tell it (`/tmp/perf-PID.map`).
    pub fn with_made_by(self, processes: impl IntoIterator<Item = u32>) -> Self {
        Self { made: Made::of(processes), ..self }
    }

    /// The functions at a place, innermost first: one at least. `is_exact`: it is no address behind a call.
    pub fn frames(&mut self, place: &Place, is_exact: bool) -> Vec<Frame> {
        let Some(file) = &place.file else {
            return vec![self.made(place, is_exact)];
        };
        // Of memory that no file has, the kernel counts the offset as the address.
        if file.is_memory() {
            return vec![self.made(place, is_exact)];
        }
        let began = self.began;
        let known = self.files.entry(file.clone()).or_insert_with(|| Known::open(file, began));
        let plain = Frame { module: file.name(), address: place.offset, ..Frame::default() };
        let Some(known) = known else { return vec![plain] };
        let address = known.image.address(place.offset).unwrap_or(place.offset);
        let plain = Frame { address, build_id: known.image.build_id.clone(), ..plain };
        let asked = address - u64::from(!is_exact && address > 0);
        let loader = match &known.names {
            Names::None => return vec![plain],
            Names::Alone(names) => {
                return vec![Frame { function: names.name(asked).map(|(name, _)| name), ..plain }];
            }
            Names::Lines(loader) => loader,
        };
        let mut frames = Vec::new();
        if let Ok(mut found) = loader.find_frames(asked) {
            while let Ok(Some(found)) = found.next() {
                let name = found.function.as_ref().and_then(|name| Some(name.demangle().ok()?.into_owned()));
                let line = found.location.and_then(|at| Some((at.file?.to_string(), at.line?)));
                frames.push(Frame { function: name, line, ..plain.clone() });
            }
        }
        // Functions in assembly have lines and no entry. Files without debug information have symbols alone.
        let symbol = loader.find_symbol(asked).map(demangled);
        match frames.last_mut() {
            Some(outermost) if outermost.function.is_none() => outermost.function = symbol,
            Some(_) => {}
            None => frames.push(Frame { function: symbol, ..plain }),
        }
        for frame in &mut frames {
            frame.function = frame.function.take().map(|name| without_hash(&name));
        }
        frames
    }
}

impl Symbols {
    /// The variable that lies there. None in memory that no file has, and in a file without symbols.
    pub fn variable(&mut self, near: &Near) -> Option<Variable> {
        // "[vdso]" and the like are no files.
        let file = near.code.file.as_ref().filter(|file| file.path().is_absolute() && !file.is_memory())?;
        let began = self.began;
        let open = || {
            let image = file.open(began).and_then(Image::without_frames)?;
            let apart = image.build_id.as_deref().and_then(debug_file);
            let apart = apart.and_then(|path| Listed::of(&path, SymbolKind::Data));
            let listed = apart.or_else(|| Listed::of(file.path(), SymbolKind::Data))?;
            Some((image, listed))
        };
        let (image, listed) = self.data.entry(file.clone()).or_insert_with(open).as_ref()?;
        let address = image.address_behind(near.code.offset, near.behind)?;
        let look_up = || {
            let (name, offset) = listed.name(address)?;
            let name = without_hash(&demangled(&name));
            let build_id = image.build_id.clone();
            Some(Variable { name, offset, module: file.name(), address, build_id })
        };
        self.variables.entry((file.clone(), address)).or_insert_with(look_up).clone()
    }

    /// Code that no file has.
    fn made(&self, place: &Place, is_exact: bool) -> Frame {
        let function = self.made.name(place.offset - u64::from(!is_exact && place.offset > 0));
        Frame {
            function: function.map(Into::into),
            module: MADE.into(),
            address: place.offset,
            ..Frame::default()
        }
    }
}

/// A function of C is its own name, though C++ would read `f` as `float`.
fn demangled(name: &str) -> String {
    match name.starts_with("_Z") || name.starts_with("_R") {
        true => addr2line::demangle_auto(name.into(), None).into_owned(),
        false => name.to_owned(),
    }
}

impl Known {
    fn open(file: &File, began: SystemTime) -> Option<Self> {
        let image = file.open(began).and_then(Image::without_frames)?;
        let apart = image.build_id.as_deref().and_then(debug_file);
        let names = match C_LIBRARY.iter().any(|name| file.name().starts_with(name)) {
            true => {
                let alone = apart
                    .and_then(|path| Listed::of(&path, SymbolKind::Text))
                    .or_else(|| Listed::of(file.path(), SymbolKind::Text));
                alone.map_or(Names::None, Names::Alone)
            }
            false => {
                let apart = apart.and_then(|path| Loader::new(path).ok());
                let loader = apart.or_else(|| Loader::new(file.path()).ok());
                loader.map_or(Names::None, |loader| Names::Lines(Box::new(loader)))
            }
        };
        Some(Self { image, names })
    }
}

/// The functions of a file by their addresses, or its variables: first byte, size, and number of the symbol.
/// Only the names that somebody asks for are read.
struct Listed {
    file: fs::File,
    all: Vec<(u64, u64, usize)>,
    /// They are symbols for the dynamic linker: it has no others.
    is_dynamic: bool,
}

impl Listed {
    fn of(path: &Path, kind: SymbolKind) -> Option<Self> {
        let file = fs::File::open(path).ok()?;
        let cache = ReadCache::new(&file);
        let object = object::File::parse(&cache).ok()?;
        let wanted = |symbol: object::Symbol<'_, '_, &ReadCache<&fs::File>>| {
            let is_one = symbol.kind() == kind && symbol.is_definition() && symbol.size() > 0;
            is_one.then(|| (symbol.address(), symbol.size(), symbol.index().0))
        };
        let mut all: Vec<_> = object.symbols().filter_map(wanted).collect();
        let is_dynamic = all.is_empty();
        if is_dynamic {
            all = object.dynamic_symbols().filter_map(wanted).collect();
        }
        all.sort_unstable();
        (!all.is_empty()).then_some(Self { file, all, is_dynamic })
    }

    /// Of several names for one of them, the plainest; and how far behind its beginning that is.
    fn name(&self, asked: u64) -> Option<(String, u64)> {
        let before = &self.all[..self.all.partition_point(|(address, ..)| *address <= asked)];
        let (start, ..) = before.last()?;
        let cache = ReadCache::new(&self.file);
        let object = object::File::parse(&cache).ok()?;
        let table = if self.is_dynamic { object.dynamic_symbol_table() } else { object.symbol_table() }?;
        let name = |(_, _, index): &(u64, u64, usize)| {
            let symbol = table.symbol_by_index(SymbolIndex(*index)).ok()?;
            Some(symbol.name().ok()?.split('@').next()?.to_owned())
        };
        let here = before.iter().rev().take_while(|(address, ..)| address == start);
        let names = here.filter(|(_, size, _)| asked - start < *size).filter_map(name);
        let underscores = |name: &str| name.len() - name.trim_start_matches('_').len();
        let name = names.min_by_key(|name| (underscores(name), name.len(), name.clone()))?;
        Some((name, asked - start))
    }
}

/// Where distributions put debug information that is not in the file itself.
fn debug_file(build_id: &str) -> Option<PathBuf> {
    let (folder, name) = build_id.split_at_checked(2)?;
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{folder}/{name}.debug"));
    maps::open(&path).map(|_| path)
}

/// Rust's older names end with a hash that says nothing to people.
fn without_hash(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            path.into()
        }
        _ => name.into(),
    }
}

impl Frame {
    /// The name, or else the place in the file.
    pub fn name(&self) -> String {
        match &self.function {
            Some(function) => function.clone(),
            None => format!("{}+{:#x}", self.module, self.address),
        }
    }

    /// The last two parts of the source file's path, and the line.
    pub fn short_line(&self) -> Option<String> {
        let (file, line) = self.line.as_ref()?;
        let mut parts: Vec<&str> = file.rsplit('/').take(2).collect();
        parts.reverse();
        Some(format!("{}:{line}", parts.join("/")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_left_away() {
        assert_eq!(without_hash("std::thread::sleep::h0123456789abcdef"), "std::thread::sleep");
        assert_eq!(without_hash("a::help"), "a::help");
    }

    /// Of the names of one function the plainest: as `write`, `__write` and `__libc_write` are one.
    #[test]
    fn the_c_librarys_functions_have_plain_names() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let is_it = |line: &&str| line.contains("/libc.so") || line.contains("/libc-2.");
        // Another C library may be a part of the program.
        let Some(line) = maps.lines().find(is_it) else { return };
        let (base, path) = (line.split('-').next().unwrap(), line.split_whitespace().last().unwrap());
        let functions = Listed::of(Path::new(path), SymbolKind::Text).unwrap();
        let own = libc::write as *const () as u64 - u64::from_str_radix(base, 16).unwrap();
        let (start, size, _) = *functions.all.iter().find(|(start, ..)| *start == own).unwrap();
        let name = |address| functions.name(address).map(|(name, _)| name);
        assert_eq!([name(start), name(start + size - 1)], [Some("write".into()), Some("write".into())]);
        assert_ne!(name(start + size), Some("write".into()));
        assert_eq!(name(0), None);
    }

    #[test]
    fn a_variable_is_named_and_memory_without_one_is_not() {
        static LOCKED: [std::sync::atomic::AtomicU64; 4] =
            [const { std::sync::atomic::AtomicU64::new(1) }; 4];
        let mut maps = maps::Maps::default();
        let code = a_variable_is_named_and_memory_without_one_is_not as fn() as usize as u64;
        assert!(maps.look_up(std::process::id(), code).is_some());
        let mut symbols = Symbols::new(SystemTime::now());
        let mut at = |address: *const std::sync::atomic::AtomicU64| {
            symbols.variable(&maps.of(std::process::id())?.near(address as u64)?)
        };
        let there = at(&LOCKED[2]).unwrap();
        assert!(there.name.ends_with("LOCKED") && there.label().ends_with("LOCKED+0x10"), "{there:?}");
        assert_eq!(std::env::current_exe().unwrap().file_name().unwrap(), &*there.module);
        let heap = Box::new(std::sync::atomic::AtomicU64::new(1));
        let stack = std::sync::atomic::AtomicU64::new(1);
        assert_eq!([at(&*heap), at(&stack)], [None, None]);
    }

    #[test]
    fn a_name_of_c_is_no_type_of_cpp() {
        assert_eq!(["f", "w", "_Z1fi", "_RNvC1a1f"].map(demangled), ["f", "w", "f(int)", "a::f"]);
    }

    #[test]
    fn where_no_file_is_there_is_an_address() {
        let frames = Symbols::new(SystemTime::now()).frames(&Place { file: None, offset: 16 }, true);
        assert_eq!(frames[0].name(), "[no file]+0x10");
    }
}
