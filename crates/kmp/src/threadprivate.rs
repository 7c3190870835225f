// SPDX-License-Identifier: MIT OR Apache-2.0
//! `threadprivate` without the compiler's thread-local variables (`-fnoopenmp-use-tls`): the main thread has the variable itself, each other thread a copy,
//! made when it first asks for it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use crate::Ident;

type Construct = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Copy = unsafe extern "C" fn(*mut c_void, *mut c_void) -> *mut c_void;
type Destruct = unsafe extern "C" fn(*mut c_void);

/// How copies of a variable are made; without any of these, from the bytes that it had when somebody first asked for it.
#[derive(Clone, Default)]
struct Recipe {
    construct: Option<Construct>,
    copy: Option<Copy>,
    destruct: Option<Destruct>,
    bytes: Option<Vec<u8>>,
}

static RECIPES: Mutex<Option<HashMap<usize, Recipe>>> = Mutex::new(None);

fn recipe<R>(variable: *mut c_void, work: impl FnOnce(&mut Recipe) -> R) -> R {
    let mut recipes = RECIPES.lock().unwrap_or_else(PoisonError::into_inner);
    work(recipes.get_or_insert_default().entry(variable.addr()).or_default())
}

/// A thread's copy of a variable.
struct Own {
    place: *mut c_void,
    destruct: Option<Destruct>,
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: the thread ends; the memory is from `own`.
        unsafe {
            if let Some(destruct) = self.destruct {
                destruct(self.place);
            }
            libc::free(self.place);
        }
    }
}

thread_local! {
    static COPIES: RefCell<HashMap<usize, Own>> = RefCell::default();
}

fn is_main() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::gettid() == libc::getpid() }
}

/// # Safety
/// A variable of the program's, of this size.
unsafe fn own(variable: *mut c_void, size: usize) -> Own {
    let recipe = recipe(variable, |recipe| recipe.clone());
    let mut place = ptr::null_mut();
    // SAFETY: the compiler's functions, with memory as large as the variable.
    unsafe {
        if libc::posix_memalign(&mut place, 64, size.max(1)) != 0 {
            eprintln!("wakeful: no memory for a threadprivate variable of {size} bytes");
            libc::abort();
        }
        match (recipe.construct, recipe.copy, &recipe.bytes) {
            (Some(construct), ..) => _ = construct(place),
            (_, Some(copy), _) => _ = copy(place, variable),
            (_, _, Some(bytes)) => place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), size),
            _ => place.cast::<u8>().copy_from_nonoverlapping(variable.cast(), size),
        }
    }
    Own { place, destruct: recipe.destruct }
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
            // SAFETY: the program's variable.
            recipe.bytes = Some(unsafe { std::slice::from_raw_parts(variable.cast::<u8>(), size) }.to_vec());
        }
    });
    if is_main() {
        return variable;
    }
    let known = COPIES.with_borrow(|copies| copies.get(&variable.addr()).map(|own| own.place));
    known.unwrap_or_else(|| {
        // SAFETY: the compiler's.
        let own = unsafe { own(variable, size) };
        let place = own.place;
        COPIES.with_borrow_mut(|copies| copies.insert(variable.addr(), own));
        place
    })
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
