// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries of `depend` clauses.

use std::ffi::c_void;

/// One entry of a `depend` clause.
#[derive(Clone, Copy)]
pub struct Dependence {
    pub address: usize,
    pub writes: bool,
}

impl Dependence {
    /// `omp_all_memory`. It is the address of nothing else, and in a list it stands for the others.
    pub const ALL: Self = Self { address: usize::MAX, writes: true };

    pub fn is_all(&self) -> bool {
        self.address == Self::ALL.address
    }

    /// From gcc's programs: all memory has the address 0.
    fn new(address: usize, writes: bool) -> Self {
        if writes && address == 0 { Self::ALL } else { Self { address, writes } }
    }

    /// Null is a list of none.
    ///
    /// # Safety
    /// `list` is one that the compiler has made, and stays as it is.
    #[inline]
    pub unsafe fn all(list: *const *const c_void) -> impl Dependences {
        // SAFETY: as promised; the counts come first.
        let at = move |index: usize| unsafe { *list.add(index) };
        let number = |index| at(index).addr();
        // Of 4.0: a count, how many of these are written, the addresses. Of 5.0: 0, the count, how many are
        // written, are written in any order, and are read; the rest are objects of two words, address and
        // kind. A list of 4.0 whose iterators have no values has nothing after its two zeros.
        let (count, written, read, first) = match list.is_null() {
            true => (0, 0, 0, 0),
            false => match (number(0), number(1)) {
                (0, 0) => (0, 0, 0, 0),
                (0, count) => (count, number(2) + number(3), number(4), 5),
                (count, written) => (count, written, count - written, 2),
            },
        };
        let plain =
            (0..written + read).map(move |index| Self::new(at(first + index).addr(), index < written));
        let objects = (written + read..count).map(move |index| {
            // SAFETY: as promised.
            unsafe { Self::object(at(first + index).cast()) }
        });
        plain.chain(objects)
    }

    /// # Safety
    /// An `omp_depend_t`, of two words.
    pub unsafe fn object(object: *const usize) -> Self {
        // SAFETY: as promised.
        unsafe { Self::new(*object, *object.add(1) != 1) }
    }
}

/// What a task depends on. It is looked at more than once.
pub trait Dependences: Iterator<Item = Dependence> + Clone {}

impl<T: Iterator<Item = Dependence> + Clone> Dependences for T {}

/// Of a task that depends on nothing.
#[inline]
pub fn no_dependences() -> impl Dependences {
    std::iter::empty()
}

#[inline]
pub fn is_empty(dependences: &impl Dependences) -> bool {
    dependences.clone().next().is_none()
}
