// SPDX-License-Identifier: MIT OR Apache-2.0
// Routines by the names and with the arguments that gfortran gives them.
#include <stdint.h>
#include <string.h>

#include "check.h"

extern void omp_init_lock_(int32_t *), omp_set_lock_(int32_t *), omp_unset_lock_(int32_t *), omp_destroy_lock_(int32_t *);
extern int32_t omp_test_lock_(int32_t *);
extern void omp_init_nest_lock_(int64_t *), omp_set_nest_lock_(int64_t *), omp_unset_nest_lock_(int64_t *),
    omp_destroy_nest_lock_(int64_t *);
extern int32_t omp_test_nest_lock_(int64_t *);
extern void omp_set_schedule_8_(const int32_t *, const int64_t *), omp_get_schedule_8_(int32_t *, int64_t *);
extern int32_t omp_get_ancestor_thread_num_8_(const int64_t *), omp_get_team_size_8_(const int64_t *);
extern int32_t omp_is_initial_device_(void), omp_get_num_devices_(void), omp_get_initial_device_(void);
extern void omp_set_num_threads_8_(const int64_t *), omp_set_dynamic_8_(const int64_t *);
extern void omp_get_schedule_(int32_t *, int32_t *);
extern void omp_set_affinity_format_(const char *, size_t);
extern int32_t omp_get_affinity_format_(char *, size_t);
extern int32_t omp_capture_affinity_(char *, const char *, size_t, size_t);
extern int32_t omp_get_place_num_procs_(const int32_t *), omp_get_place_num_procs_8_(const int64_t *);
extern void omp_get_place_proc_ids_8_(const int64_t *, int64_t *), omp_get_partition_place_nums_8_(int64_t *);
extern intptr_t omp_init_allocator_(const intptr_t *, const int32_t *, const omp_alloctrait_t *);
extern void omp_destroy_allocator_(const intptr_t *), omp_set_default_allocator_(const intptr_t *);
extern intptr_t omp_get_default_allocator_(void);

int main(void)
{
    int n = threads(), count = 0, deep = 0;
    int32_t lock;
    // What is beside it stays as it is.
    int64_t nest[2] = {0, 0x5555};
    omp_init_lock_(&lock);
    omp_init_nest_lock_(nest);
#pragma omp parallel
    for (int i = 0; i < 100; i++) {
        omp_set_lock_(&lock);
        count++;
        omp_unset_lock_(&lock);
        omp_set_nest_lock_(nest);
        CHECK(omp_test_nest_lock_(nest) == 2);
        deep++;
        omp_unset_nest_lock_(nest);
        omp_unset_nest_lock_(nest);
    }
    CHECK(count == 100 * n && deep == 100 * n && nest[1] == 0x5555);
    CHECK(omp_test_lock_(&lock) == 1 && omp_test_lock_(&lock) == 0);
    omp_unset_lock_(&lock);
    omp_destroy_lock_(&lock);
    omp_destroy_nest_lock_(nest);

    int32_t kind = omp_sched_guided, one = 1;
    int64_t chunk = 7, zero = 0;
    omp_set_schedule_8_(&kind, &chunk);
    kind = 0, chunk = 0;
    omp_get_schedule_8_(&kind, &chunk);
    CHECK(kind == omp_sched_guided && chunk == 7);
    CHECK(omp_get_ancestor_thread_num_8_(&zero) == 0 && omp_get_team_size_8_(&zero) == 1);
    CHECK(omp_is_initial_device_() && omp_get_initial_device_() == omp_get_initial_device());
    CHECK(omp_get_num_devices_() == omp_get_num_devices());

    // No modifiers of a schedule, and of large numbers the nearest.
    int32_t small = 0;
    kind = (int32_t)(omp_sched_static | omp_sched_monotonic);
    omp_set_schedule_8_(&kind, &chunk);
    omp_get_schedule_(&kind, &small);
    CHECK(kind == omp_sched_static && small == 7);
    int64_t large = 1LL << 32, negative = -large;
    CHECK(omp_get_ancestor_thread_num_8_(&large) == -1 && omp_get_team_size_8_(&large) == -1);
    CHECK(omp_get_ancestor_thread_num_8_(&negative) == -1 && omp_get_place_num_procs_8_(&large) == 0);
    omp_set_dynamic_8_(&large);
    CHECK(omp_get_dynamic() == 1);
    omp_set_dynamic_8_(&zero);
    CHECK(omp_get_dynamic() == 0);
    omp_set_num_threads_8_(&large);
    CHECK(omp_get_max_threads() > 1000);
    large = n;
    omp_set_num_threads_8_(&large);
    CHECK(omp_get_max_threads() == n);

    char text[8] = "........", whole[40];
    omp_set_affinity_format_("level %L, and more", 8);
    CHECK(omp_get_affinity_format_(text, 8) == 8 && !memcmp(text, "level %L", 8));
    CHECK(omp_get_affinity_format_(text, 3) == 8 && !memcmp(text, "level %L", 8));
    CHECK(omp_get_affinity_format_(whole, 10) == 8 && !memcmp(whole, "level %L  ", 10));
    CHECK(omp_capture_affinity_(whole, "x%L, and more", 5, 3) == 2 && !memcmp(whole, "x0   ", 5));

    int32_t first = 0;
    int64_t places[1024], ids[1024];
    CHECK(omp_get_place_num_procs_(&first) == omp_get_place_num_procs_8_(&zero));
    CHECK(omp_get_place_num_procs_(&first) > 0);
    omp_get_place_proc_ids_8_(&zero, ids);
    CHECK(ids[0] >= 0 && ids[0] < 8192);
    omp_get_partition_place_nums_8_(places);
    CHECK(places[0] == 0);

    omp_alloctrait_t trait = {omp_atk_alignment, 128};
    intptr_t space = omp_default_mem_space, own = omp_init_allocator_(&space, &one, &trait);
    CHECK(own);
    omp_set_default_allocator_(&own);
    CHECK(omp_get_default_allocator_() == own);
    own = omp_default_mem_alloc;
    omp_set_default_allocator_(&own);
    return 0;
}
