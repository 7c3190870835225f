// SPDX-License-Identifier: MIT OR Apache-2.0
// Routines and locks.
#include <string.h>
#include <unistd.h>

#include "check.h"

static void locks(int n)
{
    omp_lock_t lock;
    omp_nest_lock_t nest;
    omp_init_lock(&lock);
    omp_init_nest_lock(&nest);
    int count = 0, deep = 0;
#pragma omp parallel
    for (int i = 0; i < 1000; i++) {
        if (i % 2)
            omp_set_lock(&lock);
        else
            while (!omp_test_lock(&lock))
                ;
        count++;
        omp_unset_lock(&lock);
        omp_set_nest_lock(&nest);
        CHECK(omp_test_nest_lock(&nest) == 2);
        omp_set_nest_lock(&nest);
        deep++;
        omp_unset_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
    }
    CHECK(count == 1000 * n && deep == 1000 * n);
    omp_set_lock(&lock);
    CHECK(omp_test_lock(&lock) == 0);
    omp_unset_lock(&lock);
    omp_destroy_lock(&lock);
    omp_destroy_nest_lock(&nest);
}

static void memory(void)
{
    omp_alloctrait_t traits[] = {{omp_atk_alignment, 256}, {omp_atk_pool_size, 8192}, {omp_atk_fallback, omp_atv_null_fb}};
    omp_allocator_handle_t own = omp_init_allocator(omp_default_mem_space, 3, traits);
    CHECK(own != omp_null_allocator);
    char *block = omp_alloc(1000, own);
    CHECK(block && (size_t)block % 256 == 0);
    memset(block, 1, 1000);
    CHECK(omp_alloc(8000, own) == NULL);
    omp_free(block, own);
    block = omp_alloc(6000, own);
    CHECK(block);
    omp_free(block, own);
    omp_destroy_allocator(own);
    block = omp_alloc(10, omp_default_mem_alloc);
    CHECK(block);
    omp_free(block, omp_null_allocator);
}

int main(void)
{
    int n = threads();
    CHECK(omp_get_max_threads() == n && omp_get_num_procs() >= 1);
    CHECK(omp_get_thread_limit() > 0 && omp_get_dynamic() == 0);
    double begin = omp_get_wtime();
    usleep(2000);
    CHECK(omp_get_wtime() - begin >= 0.002 && omp_get_wtick() > 0);
    omp_set_dynamic(1);
    CHECK(omp_get_dynamic());
    int all = 0;
#pragma omp parallel num_threads(16) reduction(+ : all)
    all++;
    // Not more than there are processors.
    CHECK(all >= 1 && all <= omp_get_num_procs());
    omp_set_dynamic(0);
    CHECK(omp_get_num_places() == 0 && omp_get_place_num() == -1);
    char text[100];
    size_t length = omp_capture_affinity(text, sizeof text, "thread %n of %0.3N");
    CHECK(length == strlen(text) && strcmp(text, "thread 0 of 001") == 0);
    CHECK(omp_capture_affinity(text, sizeof text, "%0.7{ancestor_tnum} %.4a %4{ancestor_tnum}.") == 18);
    CHECK(strcmp(text, "-000001   -1 -1  .") == 0);
    length = omp_capture_affinity(text, sizeof text, "%0.100H");
    CHECK(length == 100 && text[0] == ' ');
    CHECK(!omp_in_final() && omp_is_initial_device() && omp_get_num_devices() == 0);
    locks(n);
    memory();
    CHECK(omp_pause_resource_all(omp_pause_soft) == 0);
    all = 0;
#pragma omp parallel reduction(+ : all)
    all++;
    CHECK(all == n);
    return 0;
}
