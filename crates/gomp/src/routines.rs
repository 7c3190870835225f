// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routines of OpenMP's API that are not elsewhere. Fortran's have an underscore at the end and take
//! addresses.

use std::ffi::{CStr, c_char, c_int};

use linux::Linux;
use omp::display::*;
use omp::icv::{MONOTONIC, MOST_LEVELS, MOST_THREADS, settings};
use omp::routines::*;
use omp::thread::{known, me};
use platform::Platform;

/// Functions that return a number, for C and for Fortran.
macro_rules! getters {
    ($($name:ident $fortran:ident $value:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name() -> c_int {
                $value
            }

            #[unsafe(no_mangle)]
            extern "C" fn $fortran() -> c_int {
                $name()
            }
        )*
    };
}

getters! {
    omp_get_thread_num omp_get_thread_num_ known().map_or(0, |thread| thread.number()) as c_int;
    omp_get_num_threads omp_get_num_threads_ known().map_or(1, |thread| thread.team().size()) as c_int;
    omp_get_max_threads omp_get_max_threads_ {
        let icv = me().icv();
        icv.threads.min(icv.thread_limit) as c_int
    };
    omp_get_num_procs omp_get_num_procs_ {
        Linux::refresh_processors(None);
        Linux::processors() as c_int
    };
    omp_in_parallel omp_in_parallel_ known().is_some_and(|thread| thread.team().active_level() > 0) as c_int;
    omp_get_dynamic omp_get_dynamic_ me().icv().dynamic as c_int;
    omp_get_nested omp_get_nested_ {
        let thread = me();
        (thread.icv().max_active_levels > 1 && thread.icv().max_active_levels > thread.team().active_level()) as c_int
    };
    omp_get_thread_limit omp_get_thread_limit_ me().icv().thread_limit.min(c_int::MAX as u32) as c_int;
    omp_get_max_active_levels omp_get_max_active_levels_ me().icv().max_active_levels as c_int;
    omp_get_supported_active_levels omp_get_supported_active_levels_ MOST_LEVELS as c_int;
    omp_get_level omp_get_level_ me().team().level() as c_int;
    omp_get_active_level omp_get_active_level_ me().team().active_level() as c_int;
    omp_in_final omp_in_final_ me().task().is_final() as c_int;
    omp_in_explicit_task omp_in_explicit_task_ me().task().is_explicit() as c_int;
    omp_get_cancellation omp_get_cancellation_ settings().cancellation as c_int;
    omp_get_proc_bind omp_get_proc_bind_ me().icv().bind as c_int;
    omp_get_num_places omp_get_num_places_ settings().places.len() as c_int;
    omp_get_place_num omp_get_place_num_ me().location.place().map_or(-1, |place| place as c_int);
    omp_get_partition_num_places omp_get_partition_num_places_ me().location.partition().1 as c_int;
    omp_get_max_task_priority omp_get_max_task_priority_ settings().max_task_priority as c_int;
    omp_get_default_device omp_get_default_device_ me().icv().device;
    omp_get_num_teams omp_get_num_teams_ teams() as c_int;
    omp_get_team_num omp_get_team_num_ team_number() as c_int;
    omp_get_max_teams omp_get_max_teams_ MAX_TEAMS.get() as c_int;
    omp_get_teams_thread_limit omp_get_teams_thread_limit_ TEAMS_LIMIT.get() as c_int;
}

/// What Fortran's integers of eight bytes are for C: the nearest of its own.
pub(crate) fn narrow(number: i64) -> c_int {
    number.clamp(c_int::MIN as i64, c_int::MAX as i64) as c_int
}

/// Functions that take a number, for C and for Fortran, there with either of two lengths.
macro_rules! setters {
    ($($name:ident $fortran:ident $fortran_8:ident $value:ident $set:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name($value: c_int) {
                $set
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $fortran(value: *const i32) {
                // SAFETY: the program's variable; likewise below.
                $name(unsafe { *value });
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $fortran_8(value: *const i64) {
                // SAFETY: as above.
                $name(narrow(unsafe { *value }));
            }
        )*
    };
}

setters! {
    omp_set_num_threads omp_set_num_threads_ omp_set_num_threads_8_ threads
        me().change_icv(|icv| icv.threads = threads.clamp(1, MOST_THREADS as c_int) as u32);
    omp_set_dynamic omp_set_dynamic_ omp_set_dynamic_8_ dynamic me().change_icv(|icv| icv.dynamic = dynamic != 0);
    omp_set_nested omp_set_nested_ omp_set_nested_8_ nested
        me().change_icv(|icv| icv.max_active_levels = match nested {
            0 => 1,
            _ => icv.max_active_levels.max(MOST_LEVELS),
        });
    omp_set_max_active_levels omp_set_max_active_levels_ omp_set_max_active_levels_8_ levels
        if levels >= 0 {
            me().change_icv(|icv| icv.max_active_levels = (levels as u32).min(MOST_LEVELS));
        };
    omp_set_default_device omp_set_default_device_ omp_set_default_device_8_ device
        me().change_icv(|icv| icv.device = device.max(0));
    omp_set_num_teams omp_set_num_teams_ omp_set_num_teams_8_ teams MAX_TEAMS.set(teams);
    omp_set_teams_thread_limit omp_set_teams_thread_limit_ omp_set_teams_thread_limit_8_ limit TEAMS_LIMIT.set(limit);
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_ancestor_thread_num(level: c_int) -> c_int {
    ancestor(level)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_ancestor_thread_num_(level: *const i32) -> c_int {
    // SAFETY: the program's variable; likewise below.
    ancestor(unsafe { *level })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_team_size(level: c_int) -> c_int {
    get_team_size(level)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_team_size_(level: *const i32) -> c_int {
    // SAFETY: as above.
    omp_get_team_size(unsafe { *level })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_schedule(kind: u32, chunk: c_int) {
    set_schedule(kind, chunk);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_set_schedule_(kind: *const u32, chunk: *const i32) {
    // SAFETY: as above.
    unsafe { omp_set_schedule(*kind, *chunk) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_get_schedule(kind: *mut u32, chunk: *mut c_int) {
    let schedule = me().icv().schedule;
    // SAFETY: as above.
    unsafe {
        kind.write(schedule.kind as u32 | if schedule.monotonic { MONOTONIC } else { 0 });
        chunk.write(schedule.chunk);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_get_schedule_(kind: *mut u32, chunk: *mut i32) {
    // SAFETY: as above.
    unsafe {
        omp_get_schedule(kind, chunk);
        // Fortran's `omp_lib` of OpenMP 4.5 knows no modifiers.
        *kind &= !MONOTONIC;
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_wtime() -> f64 {
    Linux::now_ns() as f64 * 1e-9
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_wtime_() -> f64 {
    omp_get_wtime()
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_wtick() -> f64 {
    1e-9
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_wtick_() -> f64 {
    omp_get_wtick()
}

// --- places ------------------------------------------------------------------

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_place_num_procs(place: c_int) -> c_int {
    settings().places.get(place as usize).map_or(0, |place| place.0.len() as c_int)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_get_place_proc_ids(place: c_int, ids: *mut c_int) {
    let Some(place) = settings().places.get(place as usize) else { return };
    for (index, &processor) in place.0.iter().enumerate() {
        // SAFETY: room for as many as `omp_get_place_num_procs` says.
        unsafe { ids.add(index).write(processor as c_int) };
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_get_partition_place_nums(places: *mut c_int) {
    let (first, count) = me().location.partition();
    for index in 0..count {
        // SAFETY: room for as many as `omp_get_partition_num_places` says.
        unsafe { places.add(index as usize).write((first + index) as c_int) };
    }
}

/// # Safety
/// A C string, or null.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: as promised.
    if text.is_null() { &[] } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

/// Writes as much as there is room for, and an end; returns how much there would be.
///
/// # Safety
/// The buffer has that room.
unsafe fn hand_over(text: &[u8], buffer: *mut c_char, room: usize) -> usize {
    if room > 0 && !buffer.is_null() {
        let count = text.len().min(room - 1);
        // SAFETY: as promised.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count);
            buffer.add(count).write(0);
        }
    }
    text.len()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_set_affinity_format(text: *const c_char) {
    // SAFETY: the program's string; likewise below.
    set_format(unsafe { bytes(text) });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_get_affinity_format(buffer: *mut c_char, room: usize) -> usize {
    // SAFETY: the program's buffer; likewise below.
    with_format(|format| unsafe { hand_over(format.as_bytes(), buffer, room) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_display_affinity(text: *const c_char) {
    // SAFETY: as above.
    display_in(unsafe { bytes(text) });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_capture_affinity(
    buffer: *mut c_char,
    room: usize,
    text: *const c_char,
) -> usize {
    // SAFETY: as above.
    unsafe { hand_over(capture(bytes(text)).bytes(), buffer, room) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_display_env(verbose: c_int) {
    settings().display(verbose != 0);
}

// --- resources ---------------------------------------------------------------

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_pause_resource(kind: c_int, device: c_int) -> c_int {
    if device == omp::device::HOST { pause(kind) } else { -1 }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_pause_resource_all(kind: c_int) -> c_int {
    pause(kind)
}

// --- what the compiler says --------------------------------------------------

/// # Safety
/// So many bytes, or, with the greatest number, a C string.
unsafe fn message<'a>(text: *const c_char, length: usize) -> &'a [u8] {
    match length {
        _ if text.is_null() => &[],
        // SAFETY: as promised.
        usize::MAX => unsafe { CStr::from_ptr(text) }.to_bytes(),
        // SAFETY: as promised.
        _ => unsafe { std::slice::from_raw_parts(text.cast(), length) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_warning(text: *const c_char, length: usize) {
    // SAFETY: the compiler's; likewise below.
    said_by_program(false, unsafe { message(text, length) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_error(text: *const c_char, length: usize) {
    // SAFETY: as above.
    said_by_program(true, unsafe { message(text, length) });
}
