// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks. The compiler has one made, fills it in, and has it run; or runs it itself, and says when. An
//! untied task is one function with several parts, of which it asks for the next by handing itself in once
//! more: here they follow each other at once, as if the task were tied.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;

use omp::tasks::{self, Dependence, Dependences, Task, no_dependences};
use omp::thread::{Thread, me};

use crate::Ident;
use crate::reductions;

type Routine = unsafe extern "C" fn(c_int, *mut Arguments) -> c_int;

/// `kmp_task_t`. What follows are copies of variables, of which the compiler knows, and then what it shares.
#[repr(C)]
pub struct Arguments {
    shared: *mut c_void,
    routine: Option<Routine>,
    part: c_int,
    /// With [`DESTRUCTORS`].
    destructors: *mut c_void,
    /// With [`PRIORITY`].
    priority: c_int,
}

/// What is before it.
#[repr(C, align(64))]
struct Head {
    task: Cell<*const Task>,
    flags: c_int,
    /// Bytes from [`Arguments`] on.
    size: usize,
    /// Its function has not come to its end, and is to be called again.
    again: Cell<bool>,
    /// It is complete when an event has come besides.
    has_event: Cell<bool>,
}

const FINAL: c_int = 1 << 1;
const DESTRUCTORS: c_int = 1 << 3;
/// It is complete when somebody says so, besides.
const PROXY: c_int = 1 << 4;
const PRIORITY: c_int = 1 << 5;

/// # Safety
/// From [`make`].
unsafe fn head<'a>(arguments: *mut Arguments) -> &'a Head {
    // SAFETY: as promised.
    unsafe { &*arguments.byte_sub(size_of::<Head>()).cast::<Head>() }
}

fn task(head: &Head) -> &'static Task {
    // SAFETY: `make` has written it.
    unsafe { &*head.task.get() }
}

/// # Safety
/// The arguments are a [`Head`] and what follows it.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: as promised.
    unsafe {
        let arguments = data.byte_add(size_of::<Head>()).cast::<Arguments>();
        if let Some(routine) = (*arguments).routine {
            routine(me().number() as c_int, arguments);
        }
        finish(arguments);
    }
}

/// The parts after the first, and the destructors.
///
/// # Safety
/// The compiler's task, of which the first part is over.
unsafe fn finish(arguments: *mut Arguments) {
    // SAFETY: as promised.
    unsafe {
        let (head, number) = (head(arguments), me().number() as c_int);
        if let Some(routine) = (*arguments).routine {
            while head.again.replace(false) {
                routine(number, arguments);
            }
        }
        if head.flags & DESTRUCTORS != 0 {
            destroy(arguments.byte_sub(size_of::<Head>()).cast());
        }
    }
}

/// Destroys the copies of variables.
///
/// # Safety
/// As [`run`], with [`DESTRUCTORS`].
unsafe extern "C" fn destroy(data: *mut c_void) {
    // SAFETY: as promised.
    unsafe {
        let arguments = data.byte_add(size_of::<Head>()).cast::<Arguments>();
        if let Some(destructors) = mem::transmute::<*mut c_void, Option<Routine>>((*arguments).destructors) {
            destructors(me().number() as c_int, arguments);
        }
    }
}

unsafe extern "C" fn nothing(_: *mut c_void, _: *mut c_void) {}

/// A task whose arguments take so many bytes.
fn make(thread: &Thread, flags: c_int, size: usize) -> *mut Arguments {
    let layout = (size_of::<Head>() + size, align_of::<Head>());
    let no_event = ptr::null_mut();
    // SAFETY: nothing is copied; there is room for a head.
    unsafe {
        let task =
            Task::needed(thread, run, ptr::null_mut(), Some(nothing), layout, flags & FINAL != 0, no_event);
        if flags & DESTRUCTORS != 0 {
            task.set_instead(destroy);
        }
        let head = task.data().cast::<Head>();
        head.write(Head {
            task: Cell::new(task),
            flags,
            size,
            again: Cell::new(false),
            has_event: Cell::new(false),
        });
        head.add(1).cast()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_alloc(
    _: *const Ident,
    _: c_int,
    flags: c_int,
    size: usize,
    shared: usize,
    routine: Option<Routine>,
) -> *mut Arguments {
    let size = size.next_multiple_of(align_of::<usize>());
    let arguments = make(me(), flags, size + shared);
    if flags & PROXY != 0 {
        // SAFETY: new.
        expect_event(unsafe { head(arguments) });
    }
    // SAFETY: new, and as large as that.
    unsafe {
        let shared = if shared > 0 { arguments.byte_add(size).cast() } else { ptr::null_mut() };
        arguments.write(Arguments { shared, routine, part: 0, destructors: ptr::null_mut(), priority: 0 });
    }
    arguments
}

/// A target region's task. There are no devices.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_target_task_alloc(
    place: *const Ident,
    number: c_int,
    flags: c_int,
    size: usize,
    shared: usize,
    routine: Option<Routine>,
    _device: i64,
) -> *mut Arguments {
    // SAFETY: the compiler's arguments.
    unsafe { __kmpc_omp_task_alloc(place, number, flags, size, shared, routine) }
}

/// Has a task run. As LLVM's functions, 0: the current task goes on.
///
/// # Safety
/// From [`make`], filled in.
unsafe fn start(arguments: *mut Arguments, deferred: bool, dependences: impl Dependences) -> c_int {
    let thread = me();
    // SAFETY: as promised.
    let head = unsafe { head(arguments) };
    let task = task(head);
    if ptr::eq(task, thread.task()) {
        head.again.set(true);
        return 0;
    }
    if omp::groups::are_cancelled(thread) {
        task.discard();
        return 0;
    }
    if head.flags & PRIORITY != 0 {
        // SAFETY: as promised.
        task.set_priority(unsafe { (*arguments).priority });
    }
    let now = !deferred || tasks::are_run_at_once(thread, task.has_event(), dependences.clone());
    if now {
        tasks::await_predecessors(thread, dependences.clone());
    }
    tasks::launch(thread, task, now, dependences);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task(_: *const Ident, _: c_int, arguments: *mut Arguments) -> c_int {
    // SAFETY: the compiler's task; likewise below.
    unsafe { start(arguments, true, no_dependences()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_parts(_: *const Ident, _: c_int, arguments: *mut Arguments) -> c_int {
    // SAFETY: as above.
    unsafe { start(arguments, true, no_dependences()) }
}

/// The compiler runs the task itself, between these two.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_begin_if0(_: *const Ident, _: c_int, arguments: *mut Arguments) {
    // SAFETY: as above.
    tasks::enter(me(), task(unsafe { head(arguments) }));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_complete_if0(_: *const Ident, _: c_int, arguments: *mut Arguments) {
    // SAFETY: as above.
    unsafe {
        finish(arguments);
        let head = head(arguments);
        tasks::leave(me(), task(head), head.has_event.get());
    }
}

/// The task is complete when `omp_fulfill_event` is called with what this returns, besides.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_task_allow_completion_event(
    _: *const Ident,
    _: c_int,
    arguments: *mut Arguments,
) -> *const Task {
    // SAFETY: as above.
    expect_event(unsafe { head(arguments) })
}

fn expect_event(head: &Head) -> *const Task {
    head.has_event.set(true);
    task(head).expect_event();
    task(head)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_proxy_task_completed(_: c_int, arguments: *mut Arguments) {
    // SAFETY: as above; a task that was made with `PROXY`.
    unsafe { tasks::fulfill_event(task(head(arguments))) };
}

/// The same, called by a thread that is not the runtime's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_proxy_task_completed_ooo(arguments: *mut Arguments) {
    // SAFETY: the same.
    unsafe { __kmpc_proxy_task_completed(0, arguments) };
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_reg_task_with_affinity(
    _: *const Ident,
    _: c_int,
    _: *mut Arguments,
    _: c_int,
    _: *const c_void,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_taskwait(_: *const Ident, _: c_int) -> c_int {
    tasks::wait_for_children();
    0
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_taskyield(_: *const Ident, _: c_int, _: c_int) -> c_int {
    tasks::yield_now();
    0
}

// --- dependences -------------------------------------------------------------

/// `kmp_depend_info`.
#[repr(C)]
pub struct Depend {
    address: usize,
    length: usize,
    flags: u8,
}

impl Depend {
    /// Of the flags: read only; of all memory.
    const IN: u8 = 1;
    const ALL: u8 = 0x80;

    /// By its flag, or as some compilers have it by the greatest address.
    fn is_all(&self) -> bool {
        self.flags & Self::ALL != 0 || self.address == Dependence::ALL.address
    }

    /// # Safety
    /// The compiler's lists, which stay as they are.
    unsafe fn all(count: c_int, list: *const Self, more: c_int, more_list: *const Self) -> impl Dependences {
        let entries = move |count: c_int, list: *const Self| match count > 0 && !list.is_null() {
            // SAFETY: as promised.
            true => unsafe { std::slice::from_raw_parts(list, count as usize) },
            false => &[],
        };
        let all = entries(count, list).iter().chain(entries(more, more_list));
        all.filter(|entry| entry.address != 0 || entry.is_all()).map(|entry| match entry.is_all() {
            true => Dependence::ALL,
            false => Dependence { address: entry.address, writes: entry.flags != Self::IN },
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_with_deps(
    _: *const Ident,
    _: c_int,
    arguments: *mut Arguments,
    count: c_int,
    list: *const Depend,
    more: c_int,
    more_list: *const Depend,
) -> c_int {
    // SAFETY: the compiler's; likewise below.
    unsafe { start(arguments, true, Depend::all(count, list, more, more_list)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_wait_deps(
    _: *const Ident,
    _: c_int,
    count: c_int,
    list: *const Depend,
    more: c_int,
    more_list: *const Depend,
) {
    // SAFETY: as above.
    tasks::await_predecessors(me(), unsafe { Depend::all(count, list, more, more_list) });
}

/// With `nowait` it is a task that does nothing, for later ones to follow.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_taskwait_deps_51(
    place: *const Ident,
    number: c_int,
    count: c_int,
    list: *const Depend,
    more: c_int,
    more_list: *const Depend,
    nowait: c_int,
) {
    // SAFETY: as above.
    unsafe {
        if nowait == 0 {
            return __kmpc_omp_wait_deps(place, number, count, list, more, more_list);
        }
        let nothing = __kmpc_omp_task_alloc(place, number, 0, size_of::<Arguments>(), 0, None);
        __kmpc_omp_task_with_deps(place, number, nothing, count, list, more, more_list);
    }
}

// --- taskgroup, taskloop -----------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn __kmpc_taskgroup(_: *const Ident, _: c_int) {
    omp::groups::begin_group(me());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_end_taskgroup(_: *const Ident, _: c_int) {
    let thread = me();
    let reducing = omp::groups::end_group(thread);
    // SAFETY: of the group, which had it from there.
    unsafe { reductions::end(reducing) };
}

/// Makes what a copy of a task has of its own: from the second the first; is it the last?
type Duplicate = unsafe extern "C" fn(*mut Arguments, *mut Arguments, c_int);

/// A copy of a task that has not begun.
///
/// # Safety
/// The compiler's task and function.
unsafe fn copy(
    thread: &Thread,
    original: *mut Arguments,
    is_last: bool,
    duplicate: Option<Duplicate>,
) -> *mut Arguments {
    // SAFETY: as promised; both are of the same size.
    unsafe {
        let head = head(original);
        let copy = make(thread, head.flags, head.size);
        copy.cast::<u8>().copy_from_nonoverlapping(original.cast(), head.size);
        let shared = (*original).shared;
        if !shared.is_null() {
            (*copy).shared = copy.byte_offset(shared.byte_offset_from(original)).cast();
        }
        if let Some(duplicate) = duplicate {
            duplicate(copy, original, is_last as c_int);
        }
        copy
    }
}

/// A loop cut into tasks, of which `pattern` is one; its bounds are where `lower` and `upper` point to,
/// within it, inclusive.
///
/// # Safety
/// The compiler's.
unsafe fn taskloop(
    pattern: *mut Arguments,
    deferred: bool,
    lower: *mut u64,
    upper: *mut u64,
    step: i64,
    nogroup: bool,
    (schedule, count, strict): (c_int, u64, bool),
    duplicate: Option<Duplicate>,
) {
    const GRAIN: c_int = 1;
    const TASKS: c_int = 2;
    let thread = me();
    // SAFETY: as promised.
    unsafe {
        let (begin, last) = (lower.read(), upper.read());
        let iterations = match step > 0 {
            true => last.wrapping_sub(begin) / step as u64,
            false => begin.wrapping_sub(last) / step.unsigned_abs().max(1),
        };
        let iterations = iterations.saturating_add(1);
        if !nogroup {
            omp::groups::begin_group(thread);
        }
        let count = if matches!(schedule, GRAIN | TASKS) { count } else { 0 };
        let (pieces, each, longer) =
            tasks::cut(iterations, count, schedule == GRAIN, strict, thread.team().size());
        let at = |iteration: u64| begin.wrapping_add(iteration.wrapping_mul(step as u64));
        let mut done = 0;
        for index in 0..pieces {
            let next = (done + each + (index < longer) as u64).min(iterations);
            let task = copy(thread, pattern, next == iterations, duplicate);
            let own = |bound: *mut u64| task.byte_offset(bound.byte_offset_from(pattern)).cast::<u64>();
            own(lower).write(at(done));
            own(upper).write(at(next - 1));
            start(task, deferred, no_dependences());
            done = next;
        }
        task(head(pattern)).discard();
        if !nogroup {
            omp::groups::end_group(thread);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_taskloop(
    _: *const Ident,
    _: c_int,
    pattern: *mut Arguments,
    deferred: c_int,
    lower: *mut u64,
    upper: *mut u64,
    step: i64,
    nogroup: c_int,
    schedule: c_int,
    count: u64,
    duplicate: Option<Duplicate>,
) {
    let how = (schedule, count, false);
    // SAFETY: the compiler's; likewise below.
    unsafe { taskloop(pattern, deferred != 0, lower, upper, step, nogroup != 0, how, duplicate) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_taskloop_5(
    _: *const Ident,
    _: c_int,
    pattern: *mut Arguments,
    deferred: c_int,
    lower: *mut u64,
    upper: *mut u64,
    step: i64,
    nogroup: c_int,
    schedule: c_int,
    count: u64,
    strict: c_int,
    duplicate: Option<Duplicate>,
) {
    let how = (schedule, count, strict != 0);
    // SAFETY: as above.
    unsafe { taskloop(pattern, deferred != 0, lower, upper, step, nogroup != 0, how, duplicate) };
}
