// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions in which tasks take part: each thread that runs such a task gets a copy of the variable when
//! it first asks for one. The copies are combined when the group of the tasks ends; of groups that all
//! members of a team have for the same reduction, when the last ends.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;

use omp::memory::{self, List, Own};
use omp::tasks;
use omp::team::{Shares, Slot};
use omp::thread::{Thread, me};

use crate::Ident;

type One = unsafe extern "C" fn(*mut c_void);
type Two = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// `kmp_taskred_input_t`.
#[repr(C)]
struct Input {
    shared: *mut c_void,
    original: *mut c_void,
    size: usize,
    init: *mut c_void,
    fini: Option<One>,
    combine: Two,
    flags: u32,
}

/// The same of compilers before clang 11, whose `init` has one parameter.
#[repr(C)]
struct OldInput {
    shared: *mut c_void,
    size: usize,
    init: *mut c_void,
    fini: Option<One>,
    combine: Two,
    flags: u32,
}

/// A variable, and the threads' copies of it.
struct Variable {
    /// Null where `init` has one parameter.
    original: *mut c_void,
    size: usize,
    init: *mut c_void,
    fini: Option<One>,
    combine: Two,
    copies: List<Slot>,
}

/// What the members share.
struct Shared {
    variables: List<Variable>,
    /// Groups that have not ended.
    groups: Shares,
}

/// What a group has.
struct Reducing {
    shared: *mut Shared,
    /// Where the variables are for who has begun the group.
    places: List<*mut c_void>,
    /// Of groups that all members have: where the others find it.
    slot: *const Slot,
}

/// # Safety
/// The compiler's list, with so many entries and more.
unsafe fn input(list: *mut c_void, index: usize, is_old: bool) -> Input {
    // SAFETY: as promised.
    unsafe {
        if !is_old {
            let input = list.cast::<Input>().add(index).read();
            let original = if input.original.is_null() { input.shared } else { input.original };
            return Input { original, ..input };
        }
        let OldInput { shared, size, init, fini, combine, flags } = list.cast::<OldInput>().add(index).read();
        Input { shared, original: ptr::null_mut(), size, init, fini, combine, flags }
    }
}

const WHAT: &str = "a reduction";

impl Shared {
    fn new(count: usize, input: impl Fn(usize) -> Input, threads: u32, groups: u32) -> *mut Self {
        let what = format_args!("{WHAT}");
        let variables = List::needed(count, what, |index| {
            let input = input(index);
            Variable {
                original: input.original,
                size: input.size,
                init: input.init,
                fini: input.fini,
                combine: input.combine,
                copies: List::needed(threads as usize, what, |_| Slot::default()),
            }
        });
        Own::needed(WHAT, || Self { variables, groups: Shares::new(groups) }).into_raw()
    }
}

/// BOUND: bytes; copies of different threads are on lines of their own, and on those fetched with them.
const ALIGN: usize = 128;

impl Variable {
    /// The calling thread's copy.
    fn own(&self, number: usize) -> *mut c_void {
        let make = || {
            let copy = memory::zeros(self.size, ALIGN, format_args!("a reduction of {} bytes", self.size));
            // SAFETY: the compiler's functions, of which the first, if there is one, makes the copy from
            // what is there.
            unsafe {
                if !self.init.is_null() && self.original.is_null() {
                    mem::transmute::<*mut c_void, One>(self.init)(copy);
                } else if !self.init.is_null() {
                    mem::transmute::<*mut c_void, Two>(self.init)(copy, self.original);
                }
            }
            copy
        };
        // Only this thread makes its own; others compare it.
        self.copies[number].get_or(make, |_| ())
    }

    /// Adds all copies to what is at `place`.
    ///
    /// # Safety
    /// Nobody uses them any more.
    unsafe fn combine(&self, place: *mut c_void) {
        for copy in self.copies.iter() {
            let copy = copy.get();
            if !copy.is_null() {
                // SAFETY: the compiler's functions; the memory is from `own`.
                unsafe {
                    (self.combine)(place, copy);
                    if let Some(fini) = self.fini {
                        fini(copy);
                    }
                    memory::put_zeros(copy, ALIGN);
                }
            }
        }
    }
}

/// The innermost group of the current task reduces this. LLVM's functions return the group.
///
/// # Safety
/// The compiler's list.
unsafe fn begin(thread: &Thread, count: c_int, list: *mut c_void, is_old: bool) -> *mut c_void {
    // SAFETY: as promised.
    let input = |index| unsafe { input(list, index, is_old) };
    let shared = Shared::new(count as usize, input, thread.team().size(), 1);
    set(thread, shared, count as usize, input, ptr::null())
}

fn set(
    thread: &Thread,
    shared: *mut Shared,
    count: usize,
    input: impl Fn(usize) -> Input,
    slot: *const Slot,
) -> *mut c_void {
    let places = List::needed(count, format_args!("{WHAT}"), |index| input(index).shared);
    if let Some(group) = thread.task().group() {
        group.reducing.set(Own::needed(WHAT, || Reducing { shared, places, slot }).into_raw().cast());
    }
    thread.task().group.get().cast_mut().cast()
}

/// A group around what a member of the region, or of its worksharing construct, does; all members have one,
/// for the same reduction.
///
/// # Safety
/// As above.
unsafe fn begin_for_all(is_loop: c_int, count: c_int, list: *mut c_void, is_old: bool) -> *mut c_void {
    let thread = me();
    match is_loop {
        0 => omp::groups::begin_group(thread),
        _ => omp::groups::begin_workshare_group(thread),
    }
    // SAFETY: as promised.
    let input = |index| unsafe { input(list, index, is_old) };
    let count = count as usize;
    let (team, size) = (thread.team(), thread.team().size());
    let slot = &team.task_reductions[(is_loop != 0) as usize];
    // SAFETY: nobody has it.
    let discard = |shared: *mut c_void| drop(unsafe { Own::from_raw(shared.cast::<Shared>()) });
    let shared = slot.get_or(|| Shared::new(count, input, size, size).cast(), discard).cast::<Shared>();
    set(thread, shared, count, input, slot)
}

/// A group has ended, which had this.
///
/// # Safety
/// From its [`tasks::Group`], whose tasks are done.
pub unsafe fn end(reducing: *mut c_void) {
    if reducing.is_null() {
        return;
    }
    // SAFETY: as promised; the last to end frees what is shared.
    unsafe {
        let reducing = Own::from_raw(reducing.cast::<Reducing>());
        if !(*reducing.shared).groups.let_go() {
            return;
        }
        if let Some(slot) = reducing.slot.as_ref() {
            // The barrier that follows publishes it.
            slot.empty();
        }
        let shared = Own::from_raw(reducing.shared);
        for (variable, &place) in shared.variables.iter().zip(reducing.places.iter()) {
            variable.combine(place);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_taskred_init(_: c_int, count: c_int, list: *mut c_void) -> *mut c_void {
    // SAFETY: the compiler's list; likewise below.
    unsafe { begin(me(), count, list, false) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_task_reduction_init(_: c_int, count: c_int, list: *mut c_void) -> *mut c_void {
    // SAFETY: as above.
    unsafe { begin(me(), count, list, true) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_taskred_modifier_init(
    _: *const Ident,
    _: c_int,
    is_loop: c_int,
    count: c_int,
    list: *mut c_void,
) -> *mut c_void {
    // SAFETY: as above.
    unsafe { begin_for_all(is_loop, count, list, false) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_task_reduction_modifier_init(
    _: *const Ident,
    _: c_int,
    is_loop: c_int,
    count: c_int,
    list: *mut c_void,
) -> *mut c_void {
    // SAFETY: as above.
    unsafe { begin_for_all(is_loop, count, list, true) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_task_reduction_modifier_fini(_: *const Ident, _: c_int, _: c_int) {
    let thread = me();
    let reducing = omp::groups::end_group(thread);
    // SAFETY: of the group, which had it from there.
    unsafe { end(reducing) };
}

/// The calling thread's copy of a variable, which is given by its address or that of another thread's copy.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_task_reduction_get_th_data(
    _: c_int,
    group: *const tasks::Group,
    place: *mut c_void,
) -> *mut c_void {
    let thread = me();
    let mut group = if group.is_null() { thread.task().group.get() } else { group };
    // SAFETY: groups, and what they reduce, stay while there are tasks in them.
    unsafe {
        while let Some(this) = group.as_ref() {
            if let Some(reducing) = this.reducing.get().cast::<Reducing>().as_ref() {
                let variables = (*reducing.shared).variables.iter().zip(reducing.places.iter());
                for (variable, &own) in variables {
                    let is_copy = || variable.copies.iter().any(|copy| copy.get() == place);
                    if own == place || variable.original == place || is_copy() {
                        return variable.own(thread.number() as usize);
                    }
                }
            }
            group = this.outer();
        }
    }
    place
}
