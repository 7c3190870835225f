// SPDX-License-Identifier: MIT OR Apache-2.0
//! ld.so.cache: where the dynamic linker finds libraries of the system.
//!
//! A header, entries of fixed size, strings, which the entries name by their place in the file.

use core::cmp::Ordering;

/// The cache, of which these are the bytes.
pub struct Cache<'a> {
    data: &'a [u8],
    /// Where the header is: an old one may come first.
    start: usize,
}

impl<'a> Cache<'a> {
    const MAGIC: &'static [u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    /// The kind of library: the architecture that the linker would take.
    const KIND: u32 = if cfg!(target_arch = "x86_64") { 0x0303 } else { 0x0a03 };

    /// `None` if it is none.
    pub fn new(data: &'a [u8]) -> Option<Self> {
        let start = data.windows(Self::MAGIC.len()).step_by(8).position(|part| part == Self::MAGIC)? * 8;
        Some(Self { data, start })
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.data.get(self.start + at..)?.first_chunk()?))
    }

    fn string(&self, at: usize) -> Option<&'a [u8]> {
        self.data.get(self.start + self.word(at)? as usize..)?.split(|&byte| byte == 0).next()
    }

    /// The file of this name. The entries are sorted, the greatest name first.
    pub fn find(&self, name: &[u8]) -> Option<&'a [u8]> {
        let entry = |index: usize| Self::HEADER + index * Self::ENTRY;
        let order = |index: usize| Some(compare(self.string(entry(index) + 4)?, name));
        let count = self.word(Self::MAGIC.len())? as usize;
        let (mut from, mut to) = (0, count);
        while from < to {
            let middle = from + (to - from) / 2;
            if order(middle)? == Ordering::Greater { from = middle + 1 } else { to = middle }
        }
        let equal = (from..count).take_while(|&index| order(index) == Some(Ordering::Equal)).map(entry);
        let fits = |&at: &usize| self.word(at) == Some(Self::KIND) && self.string(at + 4) == Some(name);
        self.string(equal.into_iter().find(fits)? + 8)
    }
}

/// As ldconfig(8) sorts: numbers by their value, and after all else.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        match (one, other) {
            ([a, ..], [b, ..]) if a.is_ascii_digit() && b.is_ascii_digit() => {
                let (x, y);
                (x, one) = number(one);
                (y, other) = number(other);
                if x != y {
                    return x.cmp(&y);
                }
            }
            ([a, ..], [b, ..]) if a != b => {
                return a.is_ascii_digit().cmp(&b.is_ascii_digit()).then((*a as i8).cmp(&(*b as i8)));
            }
            ([_, rest @ ..], [_, others @ ..]) => (one, other) = (rest, others),
            _ => return one.len().cmp(&other.len()),
        }
    }
}

/// The number that a name goes on with, and the rest. As the linker's, it has 32 bits.
fn number(name: &[u8]) -> (i32, &[u8]) {
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let digit = |value: i32, &byte: &u8| value.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
    (name[..digits].iter().fold(0, digit), &name[digits..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_as_by_ldconfig() {
        let sorted = ["libA.so", "liba.so", "liba.so.2", "liba.so.10", "liba1.so", "liba01.so.1", "liba2.so"];
        for (index, one) in sorted.iter().enumerate() {
            for other in &sorted[index + 1..] {
                assert_eq!(compare(one.as_bytes(), other.as_bytes()), Ordering::Less, "{one} {other}");
                assert_eq!(compare(other.as_bytes(), one.as_bytes()), Ordering::Greater, "{other} {one}");
            }
            assert_eq!(compare(one.as_bytes(), one.as_bytes()), Ordering::Equal, "{one}");
        }
        assert_eq!(compare(b"lib007.so", b"lib7.so"), Ordering::Equal);
    }
}
