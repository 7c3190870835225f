// SPDX-License-Identifier: MIT OR Apache-2.0
//! `exec*` and `posix_spawn*`: a program that cannot load this library runs as it would without us.
//!
//! **Why.** `LD_PRELOAD` reaches every child. musl's dynamic linker loads our library, does not find what that needs, and ends the program.
//! glibc's linker for another word size prints a line. So the file is looked at first, as the kernel would: `#!` leads to an
//! interpreter, and an ELF file names its dynamic linker.
//!
//! | file | `LD_PRELOAD` |
//! |---|---|
//! | ours: glibc, this processor | stays as it is, with the OpenMP runtime |
//! | the same, and closed ([`abi::image`]) | loses the OpenMP runtime, which nobody there could call |
//! | static, or musl's linker | our entries get [`ORIGIN`], which glibc resolves and musl does not find: its own glibc children are reached |
//! | all others | loses our entries; its children are not reached |
//! | one in another root, where our library is not | the same |
//! | cannot be read | stays as it is |
//!
//! **OpenMP.** `WAKEFUL_OPENMP` says where the runtime is that programs are to get. Without it, no entry is added or taken away for
//! its sake. A library of others in `LD_PRELOAD` may need it, so then a closed program keeps it.
//!
//! **Where.** A child of vfork(2) shares the memory and the stack of its parent. So nothing here allocates or writes to a variable of the
//! program. The new environment is a mapping. If exec fails, we unmap it. If it succeeds, the mapping ends with the
//! process; but that of a child of vfork would stay in the parent. Such mappings are used again ([`SLOTS`]): the kernel itself clears the
//! owner's word when the child has left the memory, by set_tid_address(2).
//!
//! **Not reached**: the C library's own calls. `system` and `popen` start a shell, which is preloaded; `posix_spawn` is here.
//! A program that calls the kernel itself (Go) passes `LD_PRELOAD` on as it is.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};

use libc::{AT_EMPTY_PATH, AT_FDCWD, pid_t};
use linux::image::{self, Fate, HEAD, INTERPRETERS, ORIGIN, last_part};

use crate::{real, tid};

/// Words of a program, or its environment: pointers to C strings, and null.
type List = *const *const c_char;

const VARIABLE: &[u8] = b"LD_PRELOAD=";
/// Has the path of our OpenMP runtime.
const OPENMP: &[u8] = linux::environment::OPENMP.c_name().to_bytes();
/// BOUND: bytes of stack. A longer path in PATH is not looked at.
const PATH: usize = 768;
unsafe extern "C" {
    static environ: List;
}

// --- the file ----------------------------------------------------------------

/// System calls that are no cancellation points.
fn open(folder: c_int, path: *const c_char) -> c_int {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    // SAFETY: a C string.
    unsafe { libc::syscall(libc::SYS_openat, folder, path, flags) as c_int }
}

fn close(fd: c_int) {
    // SAFETY: opened here.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// As [`image::look`], for a descriptor; follows interpreters.
#[inline(never)]
fn look_in(fd: c_int) -> Option<Fate> {
    let mut head = [0; HEAD];
    let (mut fate, mut next) = image::look(fd, &mut head)?;
    for _ in 0..INTERPRETERS {
        if next.is_null() {
            break;
        }
        let fd = open(AT_FDCWD, next);
        if fd < 0 {
            return None;
        }
        let found = image::look(fd, &mut head);
        close(fd);
        (fate, next) = found?;
    }
    Some(fate)
}

fn look_at(folder: c_int, path: *const c_char) -> Option<Fate> {
    let fd = open(folder, path);
    if fd < 0 {
        return None;
    }
    let fate = look_in(fd);
    close(fd);
    fate
}

/// The file that `execvp` runs under this name.
#[inline(never)]
fn search(name: *const c_char) -> Option<Fate> {
    // SAFETY: a C string; likewise below. getenv only reads, and the C library's execvp calls it as well.
    let (file, path) = unsafe { (CStr::from_ptr(name).to_bytes_with_nul(), libc::getenv(c"PATH".as_ptr())) };
    if file.contains(&b'/') {
        return look_at(AT_FDCWD, name);
    }
    // SAFETY: as above.
    let path = if path.is_null() { b"/bin:/usr/bin" } else { unsafe { CStr::from_ptr(path) }.to_bytes() };
    let mut place = [0u8; PATH];
    path.split(|&byte| byte == b':').find_map(|folder| {
        let slash = usize::from(!folder.is_empty());
        let (start, rest) = place.split_at_mut_checked(folder.len() + slash)?;
        start.get_mut(..folder.len())?.copy_from_slice(folder);
        if let Some(last) = start.last_mut() {
            *last = b'/';
        }
        rest.get_mut(..file.len())?.copy_from_slice(file);
        let place: *const c_char = place.as_ptr().cast();
        // SAFETY: a C string.
        let may_run = unsafe { libc::syscall(libc::SYS_faccessat, AT_FDCWD, place, libc::X_OK) } == 0;
        may_run.then(|| look_at(AT_FDCWD, place)).flatten()
    })
}

// --- the environment ---------------------------------------------------------

/// A library of this project, by its file's name.
fn is_ours(entry: &[u8]) -> bool {
    let name = last_part(entry);
    name.starts_with(b"lib") && name.ends_with(b".so") && name.windows(7).any(|part| part == b"wakeful")
}

/// The value of one entry of the environment, if that is `LD_PRELOAD`.
///
/// # Safety
/// A C string.
unsafe fn preloads<'a>(entry: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(entry) }.to_bytes().strip_prefix(VARIABLE)
}

fn entries(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| b": ".contains(byte)).filter(|entry| !entry.is_empty())
}

struct Slot {
    owner: AtomicU32,
    at: AtomicPtr<c_void>,
    size: AtomicUsize,
}

/// For children of vfork: as many threads as may have one at a time without leaving a mapping behind.
static SLOTS: [Slot; 8] =
    [const { Slot { owner: AtomicU32::new(0), at: AtomicPtr::new(null_mut()), size: AtomicUsize::new(0) } };
        8];

/// Memory of our own.
struct Mapping {
    at: *mut c_void,
    size: usize,
    slot: Option<&'static Slot>,
}

impl Mapping {
    fn new(size: usize) -> Option<Self> {
        // SAFETY: no arguments.
        let own = unsafe { libc::syscall(libc::SYS_gettid) } as pid_t as u32;
        // The C library goes by the parent's id in a child of vfork.
        let slot = (own != tid::get()).then(|| {
            // ORDER: Acquire, pairs with the Release in `drop`: its mapping is ours now. The kernel's own store is before the parent goes on.
            SLOTS.iter().find(|slot| slot.owner.compare_exchange(0, own, Acquire, Relaxed).is_ok())
        });
        let Some(slot) = slot.flatten() else { return Some(Self { at: map(size)?, size, slot: None }) };
        // SAFETY: a word that stays. A child of vfork has no such word of its own.
        unsafe { libc::syscall(libc::SYS_set_tid_address, slot.owner.as_ptr()) };
        let kept = Self { at: slot.at.load(Relaxed), size: slot.size.load(Relaxed), slot: Some(slot) };
        if kept.size >= size {
            return Some(kept);
        }
        let at = map(size)?; // if not, `kept` gives the slot back
        if kept.size > 0 {
            unmap(kept.at, kept.size);
        }
        slot.at.store(at, Relaxed);
        slot.size.store(size, Relaxed);
        core::mem::forget(kept);
        Some(Self { at, size, slot: Some(slot) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.slot {
            None => unmap(self.at, self.size),
            Some(slot) => {
                // SAFETY: no word any more.
                unsafe { libc::syscall(libc::SYS_set_tid_address, null::<u32>()) };
                // ORDER: Release, pairs with the Acquire in `new`.
                slot.owner.store(0, Release);
            }
        }
    }
}

fn map(size: usize) -> Option<*mut c_void> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory.
    let at = unsafe { linux::memory::map(null_mut(), size, access, flags, -1) };
    (at != libc::MAP_FAILED).then_some(at)
}

fn unmap(at: *mut c_void, size: usize) {
    // SAFETY: mapped here, and nobody uses it any more.
    unsafe { linux::memory::unmap(at, size) };
}

/// What an environment tells of us.
#[derive(Default)]
struct Told<'a> {
    /// A library of ours is preloaded.
    ours: bool,
    /// Where the last one is, if its path is whole.
    place: Option<&'a [u8]>,
    /// One of others is.
    others: bool,
    /// Where our OpenMP runtime is, if programs are to have it.
    openmp: Option<&'a [u8]>,
}

impl Told<'_> {
    /// The runtime, by its file's name.
    fn is_openmp(&self, entry: &[u8]) -> bool {
        self.openmp.is_some_and(|openmp| last_part(openmp) == last_part(entry))
    }

    /// Our library is not there: chroot(2) has changed what its path means.
    #[inline(never)]
    fn is_elsewhere(&self) -> bool {
        let mut path = [0u8; PATH];
        let Some(place) = self.place.filter(|place| place.len() < PATH) else { return false };
        path[..place.len()].copy_from_slice(place);
        // SAFETY: a C string, and this thread's errno.
        unsafe {
            libc::syscall(libc::SYS_faccessat, AT_FDCWD, path.as_ptr(), libc::F_OK) != 0
                && *libc::__errno_location() == libc::ENOENT
        }
    }
}

/// # Safety
/// An environment, or null.
unsafe fn told<'a>(list: List) -> Told<'a> {
    let mut told = Told::default();
    // SAFETY: as promised.
    unsafe {
        let mut next = list;
        while !next.is_null() && !(*next).is_null() {
            // Most entries are neither.
            if b"LW".contains(&(**next as u8)) {
                if let Some(value) = preloads(*next) {
                    entries(value).for_each(|entry| match is_ours(entry) {
                        true => {
                            told.ours = true;
                            told.place = Some(entry).filter(|entry| entry.starts_with(b"/"));
                        }
                        false => told.others = true,
                    });
                } else if let Some(value) = CStr::from_ptr(*next).to_bytes().strip_prefix(OPENMP)
                    && let Some(path) = value.strip_prefix(b"=")
                {
                    told.openmp = Some(path).filter(|path| path.starts_with(b"/") && is_ours(path));
                }
            }
            next = next.add(1);
        }
    }
    told
}

/// The environment for a file, if it must not be the one that was given. errno stays what it was.
///
/// # Safety
/// An environment, or null.
#[inline(always)]
unsafe fn fit(list: List, look: impl FnOnce() -> Option<Fate>) -> Option<Mapping> {
    // SAFETY: as promised.
    unsafe {
        let told = told(list);
        if !told.ours {
            return None;
        }
        let errno = *libc::__errno_location();
        let fate = look().map(|fate| if fate == Fate::Closed && told.others { Fate::Loads } else { fate });
        let fate = match fate {
            Some(Fate::Loads | Fate::Closed) if told.is_elsewhere() => Some(Fate::Refuses),
            fate => fate,
        };
        let mapping = fate.and_then(|fate| fitting(list, &told, fate));
        *libc::__errno_location() = errno;
        mapping
    }
}

/// Is there the OpenMP runtime among what is preloaded?
///
/// # Safety
/// An environment.
unsafe fn has_openmp(list: List, told: &Told) -> bool {
    // SAFETY: as promised.
    unsafe { (0..).map(|index| *list.add(index)).take_while(|entry| !entry.is_null()) }.any(|entry| {
        // SAFETY: as promised.
        unsafe { preloads(entry) }.is_some_and(|value| entries(value).any(|it| told.is_openmp(it)))
    })
}

/// A copy of the environment, with `LD_PRELOAD` as it is to be; `None` if it is so.
///
/// # Safety
/// An environment.
#[inline(never)]
unsafe fn fitting(list: List, told: &Told, fate: Fate) -> Option<Mapping> {
    // SAFETY: as promised; the mapping has room for the pointers, and behind them for each value with all its prefixes.
    unsafe {
        let openmp = told.openmp.filter(|_| matches!(fate, Fate::Loads | Fate::Ignores));
        if matches!(fate, Fate::Loads | Fate::Closed)
            && (told.openmp.is_none() || openmp.is_some() == has_openmp(list, told))
        {
            return None;
        }
        let more = VARIABLE.len() + ORIGIN.len() + openmp.map_or(0, <[u8]>::len) + 2;
        let (mut count, mut bytes) = (1, 0);
        while !(*list.add(count - 1)).is_null() {
            if let Some(value) = preloads(*list.add(count - 1)) {
                bytes += more + value.len() + entries(value).count() * (ORIGIN.len() + 1);
            }
            count += 1;
        }
        let mapping = Mapping::new(count * size_of::<*const c_char>() + bytes)?;
        let pointers: *mut *const c_char = mapping.at.cast();
        let mut text: *mut u8 = pointers.add(count).cast();
        let mut to = 0;
        for from in 0..count - 1 {
            let entry = *list.add(from);
            let Some(value) = preloads(entry) else {
                pointers.add(to).write(entry);
                to += 1;
                continue;
            };
            let start = text;
            let mut add = |bytes: &[u8]| {
                text.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                text = text.add(bytes.len());
            };
            let mut separator = VARIABLE;
            let mut first = openmp;
            for entry in entries(value) {
                if told.is_openmp(entry) {
                    continue;
                }
                // The runtime is before the rest of us.
                for entry in first.take_if(|_| is_ours(entry)).into_iter().chain([entry]) {
                    let parts: [&[u8]; 2] = match fate {
                        Fate::Loads | Fate::Closed => [entry, b""],
                        _ if !is_ours(entry) => [entry, b""],
                        Fate::Ignores if entry.starts_with(b"$ORIGIN/") => [entry, b""],
                        Fate::Ignores if entry.starts_with(b"/") => [ORIGIN, entry],
                        _ => continue,
                    };
                    add(separator);
                    parts.iter().for_each(|part| add(part));
                    separator = b":";
                }
            }
            if separator != VARIABLE {
                add(b"\0");
                pointers.add(to).write(start.cast());
                to += 1;
            }
        }
        pointers.add(to).write(null());
        Some(mapping)
    }
}

fn environment(mapping: &Option<Mapping>, given: List) -> List {
    mapping.as_ref().map_or(given, |mapping| mapping.at.cast_const().cast())
}

/// Calls what replaces the program; if it fails, what it says is what counts.
fn attempt(mapping: Option<Mapping>, exec: impl FnOnce() -> c_int) -> c_int {
    let result = exec();
    // SAFETY: this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        drop(mapping);
        *libc::__errno_location() = errno;
    }
    result
}

// --- the functions -----------------------------------------------------------

/// # Safety
/// As the C library's function of this name; likewise below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, words: List, list: List) -> c_int {
    // SAFETY: as promised; likewise below.
    unsafe {
        let fitting = fit(list, || look_at(AT_FDCWD, path));
        let new = environment(&fitting, list);
        attempt(fitting, || real::execve(path, words, new))
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn execv(path: *const c_char, words: List) -> c_int {
    // SAFETY: as above.
    unsafe {
        match fit(environ, || look_at(AT_FDCWD, path)) {
            None => real::execv(path, words),
            fitting => {
                let new = environment(&fitting, environ);
                attempt(fitting, || real::execve(path, words, new))
            }
        }
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn execvpe(name: *const c_char, words: List, list: List) -> c_int {
    // SAFETY: as above.
    unsafe {
        let fitting = fit(list, || search(name));
        let new = environment(&fitting, list);
        attempt(fitting, || real::execvpe(name, words, new))
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn execvp(name: *const c_char, words: List) -> c_int {
    // SAFETY: as above.
    unsafe {
        match fit(environ, || search(name)) {
            None => real::execvp(name, words),
            fitting => {
                let new = environment(&fitting, environ);
                attempt(fitting, || real::execvpe(name, words, new))
            }
        }
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn fexecve(fd: c_int, words: List, list: List) -> c_int {
    // SAFETY: as above.
    unsafe {
        let fitting = fit(list, || look_in(fd));
        let new = environment(&fitting, list);
        attempt(fitting, || real::fexecve(fd, words, new))
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn execveat(
    folder: c_int,
    path: *const c_char,
    words: List,
    list: List,
    flags: c_int,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let fitting = fit(list, || {
            let itself = flags & AT_EMPTY_PATH != 0 && *path == 0;
            if itself { look_in(folder) } else { look_at(folder, path) }
        });
        let new = environment(&fitting, list);
        attempt(fitting, || real::execveat(folder, path, words, new, flags))
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: List,
    list: List,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let fitting = fit(list, || look_at(AT_FDCWD, path));
        let new = environment(&fitting, list);
        attempt(fitting, || real::posix_spawn(child, path, actions, attributes, words, new))
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn posix_spawnp(
    child: *mut pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: List,
    list: List,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let fitting = fit(list, || search(name));
        let new = environment(&fitting, list);
        attempt(fitting, || real::posix_spawnp(child, name, actions, attributes, words, new))
    }
}

// Those with variable arguments are in C.
unsafe extern "C" {
    fn wakeful_execl(path: *const c_char, word: *const c_char) -> c_int;
    fn wakeful_execle(path: *const c_char, word: *const c_char) -> c_int;
    fn wakeful_execlp(name: *const c_char, word: *const c_char) -> c_int;
}

crate::jump! {
    execl(path: *const c_char, word: *const c_char) => wakeful_execl;
    execle(path: *const c_char, word: *const c_char) => wakeful_execle;
    execlp(name: *const c_char, word: *const c_char) => wakeful_execlp;
}
