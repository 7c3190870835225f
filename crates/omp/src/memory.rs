// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that can be refused. `Box`, `Vec` and their like end the program if there is none, so nothing here
//! or in the crate `kmp` uses them.
//!
//! Memory comes from the program's allocator. What OpenMP cannot do without is mapped if the allocator has
//! none. If the kernel has none either, the program ends as on libgomp: one line on stderr, exit status 1
//! ([`end`]).

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::HashMap; // ALLOC: grows by `try_reserve` only
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

/// Where OpenMP offers no way to go on.
#[cold]
#[inline(never)]
pub fn end(what: fmt::Arguments) -> ! {
    eprintln!("wakeful: no memory for {what}");
    std::process::exit(1);
}

/// Whether memory may be mapped if the allocator has none.
#[derive(Clone, Copy, PartialEq)]
pub enum Need {
    /// The caller has another way.
    Wish,
    /// The program ends without it.
    Must,
}

/// The bytes behind each block: was it mapped?
type Mark = usize;
/// Mappings are aligned so.
const PAGE: usize = 4096;

/// A block with its mark, and where that is.
#[inline]
fn marked(layout: Layout) -> Option<(Layout, usize)> {
    layout.extend(Layout::new::<Mark>()).ok()
}

/// A block, or null.
#[inline]
pub fn get(layout: Layout, need: Need) -> *mut u8 {
    get_by(alloc, layout, need)
}

fn get_by(allocate: unsafe fn(Layout) -> *mut u8, layout: Layout, need: Need) -> *mut u8 {
    let Some((whole, at)) = marked(layout) else { return ptr::null_mut() };
    // SAFETY: the layout is not empty, for it has the mark.
    let mut memory = unsafe { allocate(whole) };
    let is_mapped = memory.is_null();
    if is_mapped && need == Need::Must && whole.align() <= PAGE {
        memory = map(whole.size());
    }
    if !memory.is_null() {
        // SAFETY: in bounds, and aligned as `extend` has it.
        unsafe { memory.add(at).cast::<Mark>().write(is_mapped as Mark) };
    }
    memory
}

#[cold]
fn map(size: usize) -> *mut u8 {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory.
    let memory = unsafe { linux::memory::map(ptr::null_mut(), size, access, flags, -1) };
    if memory == libc::MAP_FAILED { ptr::null_mut() } else { memory.cast() }
}

/// # Safety
/// From [`get`], with this layout; not used any more.
#[inline]
pub unsafe fn put(memory: *mut u8, layout: Layout) {
    let Some((whole, at)) = marked(layout) else { return };
    // SAFETY: as promised.
    unsafe {
        match memory.add(at).cast::<Mark>().read() {
            0 => dealloc(memory, whole),
            _ => linux::memory::unmap(memory.cast(), whole.size()),
        }
    }
}

/// Zeros with their layout before them, for whoever does not keep it.
const fn before(align: usize) -> usize {
    if align > size_of::<Layout>() { align } else { size_of::<Layout>() }
}

/// So many zeros. The alignment is a power of two.
pub fn zeros(size: usize, align: usize, what: fmt::Arguments) -> *mut c_void {
    let layout = size.checked_add(before(align)).map(|whole| Layout::from_size_align(whole, before(align)));
    let Some(Ok(layout)) = layout else { end(what) };
    let memory = get_by(alloc_zeroed, layout, Need::Must);
    if memory.is_null() {
        end(what);
    }
    // SAFETY: in bounds.
    unsafe {
        memory.cast::<Layout>().write(layout);
        memory.add(before(align)).cast()
    }
}

/// # Safety
/// From [`zeros`], with this alignment; not used any more.
pub unsafe fn put_zeros(zeros: *mut c_void, align: usize) {
    // SAFETY: as promised.
    unsafe {
        let memory = zeros.cast::<u8>().sub(before(align));
        put(memory, memory.cast::<Layout>().read());
    }
}

/// A value on the heap.
pub struct Own<T>(NonNull<T>);

// SAFETY: it is the value's owner.
unsafe impl<T: Send> Send for Own<T> {}
// SAFETY: likewise.
unsafe impl<T: Sync> Sync for Own<T> {}

impl<T> Own<T> {
    #[inline(always)]
    fn at(memory: *mut u8, make: impl FnOnce() -> T) -> Option<Self> {
        let place = NonNull::new(memory.cast::<T>())?;
        // SAFETY: room for it.
        unsafe { place.write(make()) };
        Some(Self(place))
    }

    /// What can be done without.
    #[inline(always)]
    pub fn new(make: impl FnOnce() -> T) -> Option<Self> {
        Self::at(get(Layout::new::<T>(), Need::Wish), make)
    }

    /// What cannot.
    #[inline(always)]
    pub fn needed(what: &str, make: impl FnOnce() -> T) -> Self {
        Self::at(get(Layout::new::<T>(), Need::Must), make).unwrap_or_else(|| end(format_args!("{what}")))
    }

    pub fn into_raw(self) -> *mut T {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// # Safety
    /// From [`Own::into_raw`], and nobody else's.
    pub unsafe fn from_raw(place: *mut T) -> Self {
        // SAFETY: as promised, not null.
        Self(unsafe { NonNull::new_unchecked(place) })
    }

    pub fn into_inner(self) -> T {
        let place = self.into_raw();
        // SAFETY: the value is moved out, and its memory not used any more.
        unsafe {
            let value = place.read();
            put(place.cast(), Layout::new::<T>());
            value
        }
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: owned.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Own<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: owned.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        // SAFETY: owned, and not used any more.
        unsafe {
            self.0.drop_in_place();
            put(self.0.as_ptr().cast(), Layout::new::<T>());
        }
    }
}

/// Values in a row.
pub struct List<T> {
    start: NonNull<T>,
    count: usize,
    room: usize,
}

// SAFETY: it is the values' owner.
unsafe impl<T: Send> Send for List<T> {}
// SAFETY: likewise.
unsafe impl<T: Sync> Sync for List<T> {}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> List<T> {
    pub const fn new() -> Self {
        Self { start: NonNull::dangling(), count: 0, room: 0 }
    }

    fn layout(room: usize) -> Option<Layout> {
        Layout::array::<T>(room).ok()
    }

    /// Room for one more; false if there is none.
    fn grow(&mut self, room: usize, need: Need) -> bool {
        let Some(layout) = Self::layout(room) else { return false };
        let Some(start) = NonNull::new(get(layout, need).cast::<T>()) else { return false };
        // SAFETY: room for all that there are, which move.
        unsafe { start.copy_from_nonoverlapping(self.start, self.count) };
        self.give_back();
        (self.start, self.room) = (start, room);
        true
    }

    fn give_back(&mut self) {
        if let Some(layout) = Self::layout(self.room)
            && self.room > 0
        {
            // SAFETY: from `grow`; the values have moved or been dropped.
            unsafe { put(self.start.as_ptr().cast(), layout) };
        }
    }

    fn add(&mut self, value: T, need: Need) -> Result<(), T> {
        if self.count == self.room && !self.grow((2 * self.room).max(4), need) {
            return Err(value);
        }
        // SAFETY: room for it.
        unsafe { self.start.add(self.count).write(value) };
        self.count += 1;
        Ok(())
    }

    /// False, and the value is dropped, if there is no memory.
    #[must_use]
    pub fn push(&mut self, value: T) -> bool {
        self.add(value, Need::Wish).is_ok()
    }

    pub fn push_needed(&mut self, value: T, what: &str) {
        if self.add(value, Need::Must).is_err() {
            end(format_args!("{what}"));
        }
    }

    /// So many values; `None` without memory.
    fn of(count: usize, need: Need, mut value: impl FnMut(usize) -> T) -> Option<Self> {
        let mut list = Self::new();
        if count > 0 && !list.grow(count, need) {
            return None;
        }
        while list.count < count {
            // SAFETY: room for all.
            unsafe { list.start.add(list.count).write(value(list.count)) };
            list.count += 1;
        }
        Some(list)
    }

    pub fn wished(count: usize, value: impl FnMut(usize) -> T) -> Option<Self> {
        Self::of(count, Need::Wish, value)
    }

    pub fn needed(count: usize, what: fmt::Arguments, value: impl FnMut(usize) -> T) -> Self {
        Self::of(count, Need::Must, value).unwrap_or_else(|| end(what))
    }

    /// Of an iterator's values; `None` without memory.
    pub fn try_from_iter(values: impl Iterator<Item = T>) -> Option<Self> {
        let mut list = Self::new();
        for value in values {
            list.push(value).then_some(())?;
        }
        Some(list)
    }

    pub fn pop(&mut self) -> Option<T> {
        self.count = self.count.checked_sub(1)?;
        // SAFETY: it was there, and is not any more.
        Some(unsafe { self.start.add(self.count).read() })
    }

    pub fn truncate(&mut self, most: usize) {
        while self.count > most {
            self.pop();
        }
    }

    pub fn clear(&mut self) {
        self.truncate(0);
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut kept = 0;
        for index in 0..self.count {
            if keep(&self[index]) {
                self.swap(kept, index);
                kept += 1;
            }
        }
        self.truncate(kept);
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many are there.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> DerefMut for List<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: likewise.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        self.clear();
        self.give_back();
    }
}

/// Text. What there is no memory for is left out.
#[derive(Default)]
pub struct Text(List<u8>);

impl Text {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// It was made of texts, of which the last may be cut short.
    pub fn as_str(&self) -> &str {
        self.0.utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().all(|byte| self.0.push(byte)).then_some(()).ok_or(fmt::Error)
    }
}

impl Text {
    pub fn of(value: impl fmt::Display) -> Self {
        let mut this = Self::default();
        let _ = fmt::Write::write_fmt(&mut this, format_args!("{value}"));
        this
    }
}

/// Values by keys.
pub struct Map<V>(HashMap<usize, V>); // ALLOC: grows by `try_reserve` only

impl<V> Default for Map<V> {
    fn default() -> Self {
        Self(HashMap::new()) // ALLOC: empty
    }
}

impl<V> Map<V> {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, key: usize) -> Option<&V> {
        self.0.get(&key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.0.retain(|_, value| keep(value));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// `None`: there is no memory for a new one.
    pub fn entry(&mut self, key: usize) -> Option<&mut V>
    where
        V: Default,
    {
        self.0.try_reserve(1).ok()?;
        Some(self.0.entry(key).or_default())
    }
}

/// Values by keys, in their order. What is put here is needed.
pub struct Sorted<V>(List<(usize, V)>);

impl<V> Sorted<V> {
    pub const fn empty() -> Self {
        Self(List::new())
    }

    pub fn get(&self, key: usize) -> Option<&V> {
        let place = self.0.binary_search_by_key(&key, |entry| entry.0).ok()?;
        Some(&self.0[place].1)
    }

    pub fn entry(&mut self, key: usize, what: &str) -> &mut V
    where
        V: Default,
    {
        let place = self.0.binary_search_by_key(&key, |entry| entry.0).unwrap_or_else(|place| {
            self.0.push_needed((key, V::default()), what);
            self.0[place..].rotate_right(1);
            place
        });
        &mut self.0[place].1
    }
}
