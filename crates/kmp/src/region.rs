// SPDX-License-Identifier: MIT OR Apache-2.0
//! `parallel`, `teams`, `barrier`, `cancel`, `single`, `masked`, `critical`, and reductions of variables.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{Ordering::*, fence};

use omp::fork::{begin, begin_copying, end};
use omp::icv::Bind;
use omp::lock::raw;
use omp::loops::is_first;
use omp::region::{LOOP, PARALLEL, SECTIONS, TASKGROUP, cancel, cancellation_point, league};
use omp::team::WORDS;
use omp::thread::{Clauses, me};
use sync::mutex::RawMutex;

use crate::Ident;

unsafe extern "C" {
    fn wakeful_kmp_invoke(
        function: *mut c_void,
        thread: *const c_int,
        bound: *const c_int,
        variables: *const *mut c_void,
        count: c_int,
    );
}

gomp::in_c! {
    __kmpc_fork_call => wakeful_fork_call;
    __kmpc_fork_teams => wakeful_fork_teams;
}

/// A region's function, how many variables it shares, and these, or where they are.
const HEAD: usize = 2;
const NEAR: usize = WORDS - HEAD;

unsafe extern "C" fn run(call: *mut c_void) {
    let number = me().number() as c_int;
    // SAFETY: the words of `fork` or `wakeful_kmp_league`; what they point to is there until the region ends.
    unsafe {
        let call = call.cast::<usize>();
        let (function, count) = (call.read() as *mut c_void, call.add(1).read());
        let variables = call.add(HEAD);
        let variables = if count <= NEAR { variables.cast() } else { variables.read() as *const *mut c_void };
        wakeful_kmp_invoke(function, &number, &number, variables, count as c_int);
    }
}

/// What [`run`] is given.
struct Words {
    words: [MaybeUninit<usize>; WORDS],
    count: usize,
}

impl Words {
    /// # Safety
    /// There are so many variables.
    unsafe fn new(function: *mut c_void, variables: *const *mut c_void, count: c_int) -> Self {
        let mut words = [MaybeUninit::uninit(); WORDS];
        let near = if count as usize <= NEAR { count as usize } else { 0 };
        words[0].write(function.addr());
        words[1].write(count as usize);
        words[HEAD].write(variables.addr());
        for index in 0..near {
            // SAFETY: as promised.
            words[HEAD + index].write(unsafe { variables.add(index).read() }.addr());
        }
        Self { words, count: HEAD + near.max(1) }
    }

    fn get(&mut self) -> &mut [usize] {
        // SAFETY: so many have been written.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.count) }
    }
}

/// # Safety
/// The compiler's function and variables.
unsafe fn fork(function: *mut c_void, variables: *const *mut c_void, count: c_int, threads: u32, bind: u32) {
    // SAFETY: as promised.
    unsafe {
        begin_copying(run, Words::new(function, variables, count).get(), threads, bind);
        run(me().team().words().cast());
    }
    end();
}

/// What was said of the next construct, once.
fn clauses() -> Clauses {
    me().clauses.take()
}

fn say(change: impl FnOnce(&mut Clauses)) {
    let said: &Cell<Clauses> = &me().clauses;
    let mut clauses = said.get();
    change(&mut clauses);
    said.set(clauses);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_kmp_fork(function: *mut c_void, variables: *const *mut c_void, count: c_int) {
    let Clauses { threads, bind, .. } = clauses();
    // SAFETY: the compiler's.
    unsafe { fork(function, variables, count, threads, bind) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_fork_call_if(
    _: *const Ident,
    count: c_int,
    function: *mut c_void,
    condition: c_int,
    data: *mut c_void,
) {
    let Clauses { threads, bind, .. } = clauses();
    let variables = [data, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()];
    // SAFETY: the compiler's; one variable at most.
    unsafe { fork(function, variables.as_ptr(), count, if condition != 0 { threads } else { 1 }, bind) };
}

/// The compiled code runs the region itself, between these two.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_serialized_parallel(_: *const Ident, _: c_int) {
    let Clauses { bind, .. } = clauses();
    // SAFETY: a team of one calls nothing.
    unsafe { begin(run, ptr::null_mut(), 1, bind, None) };
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_serialized_parallel(_: *const Ident, _: c_int) {
    end();
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_threads(_: *const Ident, _: c_int, threads: c_int) {
    say(|clauses| clauses.threads = threads.max(0) as u32);
}

/// OpenMP 6.0: with what to do if there are fewer. That there are is no error here.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_threads_strict(
    place: *const Ident,
    number: c_int,
    threads: c_int,
    _severity: c_int,
    _message: *const c_char,
) {
    __kmpc_push_num_threads(place, number, threads);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_proc_bind(_: *const Ident, _: c_int, bind: c_int) {
    /// `primary` of clang 13 and later, where `master` has the number that OpenMP gives to both.
    const PRIMARY: c_int = 5;
    say(|clauses| clauses.bind = if bind == PRIMARY { Bind::Primary as u32 } else { bind as u32 });
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_teams(_: *const Ident, _: c_int, teams: c_int, threads: c_int) {
    let teams = teams.max(0) as u32;
    say(|clauses| clauses.league = (teams, teams, threads.max(0) as u32));
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_teams_51(_: *const Ident, _: c_int, least: c_int, most: c_int, threads: c_int) {
    say(|clauses| clauses.league = (least.max(0) as u32, most.max(0) as u32, threads.max(0) as u32));
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_set_thread_limit(_: *const Ident, _: c_int, limit: c_int) {
    if limit > 0 {
        me().change_icv(|icv| icv.thread_limit = limit as u32);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_kmp_league(function: *mut c_void, variables: *const *mut c_void, count: c_int) {
    let (least, most, limit) = clauses().league;
    // SAFETY: the compiler's; the words stay until the last team is done.
    unsafe {
        let mut words = Words::new(function, variables, count);
        league(run, words.get().as_mut_ptr().cast(), least, most, limit);
    }
}

// --- the thread --------------------------------------------------------------

macro_rules! numbers {
    ($($name:ident $value:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(_: *const Ident) -> c_int {
                $value as c_int
            }
        )*
    };
}

numbers! {
    __kmpc_global_thread_num me().number();
    __kmpc_global_num_threads me().team().size();
    __kmpc_bound_thread_num me().number();
    __kmpc_bound_num_threads me().team().size();
    __kmpc_in_parallel me().team().active_level() > 0;
    __kmpc_ok_to_fork true;
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_begin(_: *const Ident, _: c_int) {}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end(_: *const Ident) {}

// --- barrier, cancel ---------------------------------------------------------

fn meet() {
    let thread = me();
    thread.team().meet(thread);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_barrier(_: *const Ident, _: c_int) {
    meet();
}

/// In regions that have `cancel`; true if the region is cancelled.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_cancel_barrier(_: *const Ident, _: c_int) -> c_int {
    let thread = me();
    thread.team().meet_or_cancelled(thread) as c_int
}

/// Of a construct, as LLVM counts them.
fn construct(kind: c_int) -> c_int {
    [0, PARALLEL, LOOP, SECTIONS, TASKGROUP].get(kind as usize).copied().unwrap_or(0)
}

/// Whoever is told to leave a loop asks it for no more iterations.
fn left(construct: c_int, cancelled: bool) -> c_int {
    if cancelled && construct == LOOP {
        me().member().work.leave();
    }
    cancelled as c_int
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_cancel(_: *const Ident, _: c_int, kind: c_int) -> c_int {
    let construct = construct(kind);
    left(construct, cancel(construct, true))
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_cancellationpoint(_: *const Ident, _: c_int, kind: c_int) -> c_int {
    let construct = construct(kind);
    left(construct, cancellation_point(construct))
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_flush(_: *const Ident) {
    // ORDER: SeqCst, as the directive has it.
    fence(SeqCst);
}

// --- single, masked ----------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn __kmpc_single(_: *const Ident, _: c_int) -> c_int {
    is_first(me()) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_single(_: *const Ident, _: c_int) {}

/// The data are a list of addresses, which `copy` copies from the second list to the first.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_copyprivate(
    _: *const Ident,
    _: c_int,
    _size: usize,
    data: *mut c_void,
    copy: unsafe extern "C" fn(*mut c_void, *mut c_void),
    did_it: c_int,
) {
    let thread = me();
    let team = thread.team();
    if did_it != 0 {
        // The barrier publishes it.
        team.copyprivate.store(data, Relaxed);
    }
    team.meet(thread);
    if did_it == 0 {
        // SAFETY: the compiler's; who did it waits below.
        unsafe { copy(data, team.copyprivate.load(Relaxed)) };
    }
    team.meet(thread);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_masked(_: *const Ident, _: c_int, filter: c_int) -> c_int {
    (me().number() as c_int == filter) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_masked(_: *const Ident, _: c_int) {}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_master(place: *const Ident, number: c_int) -> c_int {
    __kmpc_masked(place, number, 0)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_master(_: *const Ident, _: c_int) {}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_scope(_: *const Ident, _: c_int, _: *mut c_void) {}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_scope(_: *const Ident, _: c_int, _: *mut c_void) {}

// --- critical ----------------------------------------------------------------

/// What the compiler makes for each name, zeros at first; the lock is in it.
type Name = [i32; 8];

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_critical(_: *const Ident, _: c_int, name: *mut Name) {
    // SAFETY: the program's, in which nobody else writes.
    unsafe { raw(name).lock(&()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_critical_with_hint(
    place: *const Ident,
    number: c_int,
    name: *mut Name,
    _hint: u32,
) {
    // SAFETY: as above.
    unsafe { __kmpc_critical(place, number, name) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_end_critical(_: *const Ident, _: c_int, name: *mut Name) {
    // SAFETY: as above, and the caller is inside.
    unsafe { raw(name).unlock(&()) };
}

// --- reductions --------------------------------------------------------------

/// The compiler has made code that adds a member's part by atomic instructions.
const ATOMIC_REDUCE: i32 = 0x10;
/// The least bytes of a variable in the compiler's list, which points to it; an array's length comes beside.
const POINTER: usize = size_of::<*const u8>();

/// How a member adds its part to a reduction's variables: 1, by itself, until the end is said; 2, by atomic
/// instructions. Those cost one for each number of an array: with 1,024 numbers five times what a critical
/// section costs. The list tells of arrays whose lengths the compiler does not know.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_reduce_nowait(
    place: *const Ident,
    number: c_int,
    variables: c_int,
    size: usize,
    _data: *mut c_void,
    _combine: *const c_void,
    name: *mut Name,
) -> c_int {
    let thread = me();
    if thread.team().size() == 1 {
        return 1;
    }
    // SAFETY: the compiler's, or null.
    let is_atomic = unsafe { place.as_ref() }.is_some_and(|place| place.flags & ATOMIC_REDUCE != 0);
    if is_atomic && size <= variables as usize * POINTER {
        return 2;
    }
    // SAFETY: the compiler's.
    unsafe { __kmpc_critical(place, number, name) };
    thread.reduces.set(true);
    1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_end_reduce_nowait(place: *const Ident, number: c_int, name: *mut Name) {
    if me().reduces.replace(false) {
        // SAFETY: as it was at the reduction's beginning.
        unsafe { __kmpc_end_critical(place, number, name) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_reduce(
    place: *const Ident,
    number: c_int,
    variables: c_int,
    size: usize,
    data: *mut c_void,
    combine: *const c_void,
    name: *mut Name,
) -> c_int {
    // SAFETY: the same.
    unsafe { __kmpc_reduce_nowait(place, number, variables, size, data, combine, name) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_end_reduce(place: *const Ident, number: c_int, name: *mut Name) {
    // SAFETY: the same.
    unsafe { __kmpc_end_reduce_nowait(place, number, name) };
    meet();
}

// --- what the compiler says --------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_error(_: *const Ident, severity: c_int, text: *const c_char) {
    const FATAL: c_int = 2;
    // SAFETY: a C string of the compiler's, or null.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    omp::routines::said_by_program(severity == FATAL, text.map(CStr::to_bytes).unwrap_or_default());
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_get_target_offload() -> c_uint {
    omp::icv::settings().target_mandatory as c_uint
}
