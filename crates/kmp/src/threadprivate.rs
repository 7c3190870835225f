// SPDX-License-Identifier: MIT OR Apache-2.0
//! `threadprivate` without the compiler's thread-local variables (`-fnoopenmp-use-tls`): the main thread has
//! the variable itself, each other thread a copy, made when it first asks for it.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use omp::memory::{self, Sorted};
use omp::thread::{AtEnd, me};

use crate::Ident;

type Construct = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Copy = unsafe extern "C" fn(*mut c_void, *mut c_void) -> *mut c_void;
type Destruct = unsafe extern "C" fn(*mut c_void);

/// How copies of a variable are made; without any of these, from the bytes that it had when somebody first
/// asked for it.
#[derive(Clone, Copy, Default)]
struct Recipe {
    construct: Option<Construct>,
    copy: Option<Copy>,
    destruct: Option<Destruct>,
    bytes: Option<&'static [u8]>,
}

static RECIPES: Mutex<Sorted<Recipe>> = Mutex::new(Sorted::empty());

const WHAT: &str = "a threadprivate variable";

fn recipe<R>(variable: *mut c_void, work: impl FnOnce(&mut Recipe) -> R) -> R {
    let mut recipes = RECIPES.lock().unwrap_or_else(PoisonError::into_inner);
    work(recipes.entry(variable.addr(), WHAT))
}

/// BOUND: bytes; a line of the cache.
const ALIGN: usize = 64;

/// A thread's copy of a variable.
#[derive(Default)]
struct Own {
    place: Option<NonNull<c_void>>,
    destruct: Option<Destruct>,
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        // SAFETY: the thread ends; the memory is from `own`.
        unsafe {
            if let Some(destruct) = self.destruct {
                destruct(place.as_ptr());
            }
            memory::put_zeros(place.as_ptr(), ALIGN);
        }
    }
}

/// The calling thread's copies, by the variables' addresses.
type Copies = Sorted<Own>;

/// Theirs, made when the thread first asks for one. `work` must not come here again.
fn with_copies<R>(work: impl FnOnce(&mut Copies) -> R) -> R {
    unsafe fn free(copies: *mut c_void) {
        // SAFETY: from below; the thread ends.
        drop(unsafe { memory::Own::from_raw(copies.cast::<Copies>()) });
    }
    let thread = me();
    let (_, copies) = thread.at_end.get().unwrap_or_else(|| {
        let copies = memory::Own::needed(WHAT, Copies::empty).into_raw();
        let made: AtEnd = (free, copies.cast());
        thread.at_end.set(Some(made));
        made
    });
    // SAFETY: from above, and this thread's.
    work(unsafe { &mut *copies.cast() })
}

fn is_main() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::gettid() == libc::getpid() }
}

/// # Safety
/// A variable of the program's, of this size.
unsafe fn own(variable: *mut c_void, size: usize) -> Own {
    let recipe = recipe(variable, |recipe| *recipe);
    let place = memory::zeros(size, ALIGN, format_args!("a threadprivate variable of {size} bytes"));
    // SAFETY: the compiler's functions, with memory as large as the variable.
    unsafe {
        match (recipe.construct, recipe.copy, recipe.bytes) {
            (Some(construct), ..) => _ = construct(place),
            (_, Some(copy), _) => _ = copy(place, variable),
            (_, _, Some(bytes)) => place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), size),
            _ => place.cast::<u8>().copy_from_nonoverlapping(variable.cast(), size),
        }
    }
    Own { place: NonNull::new(place), destruct: recipe.destruct }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_threadprivate(
    _: *const Ident,
    _: c_int,
    variable: *mut c_void,
    size: usize,
) -> *mut c_void {
    recipe(variable, |recipe| {
        if recipe.construct.is_none() && recipe.copy.is_none() && recipe.bytes.is_none() {
            let bytes = memory::zeros(size, ALIGN, format_args!("a threadprivate variable of {size} bytes"));
            // SAFETY: the program's variable, and as much new memory, which is never freed.
            recipe.bytes = Some(unsafe {
                bytes.copy_from_nonoverlapping(variable, size);
                std::slice::from_raw_parts(bytes.cast(), size)
            });
        }
    });
    if is_main() {
        return variable;
    }
    let known = with_copies(|copies| copies.get(variable.addr()).and_then(|own| own.place));
    known.map_or_else(
        || {
            // SAFETY: the compiler's.
            let own = unsafe { own(variable, size) };
            let place = own.place.map_or(ptr::null_mut(), NonNull::as_ptr);
            with_copies(|copies| *copies.entry(variable.addr(), WHAT) = own);
            place
        },
        NonNull::as_ptr,
    )
}

/// The compiler's cache, one place a thread, is left empty.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_threadprivate_cached(
    place: *const Ident,
    number: c_int,
    variable: *mut c_void,
    size: usize,
    _cache: *mut *mut *mut c_void,
) -> *mut c_void {
    // SAFETY: the compiler's.
    unsafe { __kmpc_threadprivate(place, number, variable, size) }
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_threadprivate_register(
    _: *const Ident,
    variable: *mut c_void,
    construct: Option<Construct>,
    copy: Option<Copy>,
    destruct: Option<Destruct>,
) {
    recipe(variable, |recipe| *recipe = Recipe { construct, copy, destruct, bytes: None });
}
