// SPDX-License-Identifier: MIT OR Apache-2.0
// The routines of OpenMP 4.5 that the other programs do not call.
#include <string.h>

#include "check.h"

int main(void)
{
    omp_set_nested(1);
    CHECK(omp_get_nested() == 1);
    omp_set_nested(0);
    CHECK(omp_get_nested() == 0);
    omp_set_default_device(2);
    CHECK(omp_get_default_device() == 2);
    omp_set_default_device(omp_get_initial_device());
    CHECK(omp_get_max_task_priority() >= 0);
    int places = omp_get_partition_num_places(), numbers[256];
    CHECK(places >= 0 && places <= 256);
    omp_get_partition_place_nums(numbers);
    for (int i = 0; i < places; i++)
        CHECK(numbers[i] >= 0 && numbers[i] < omp_get_num_places());

    omp_lock_t lock;
    omp_nest_lock_t nest;
    omp_init_lock_with_hint(&lock, omp_lock_hint_contended);
    omp_init_nest_lock_with_hint(&nest, omp_lock_hint_speculative);
    int count = 0;
#pragma omp parallel
    for (int i = 0; i < 500; i++) {
        omp_set_nest_lock(&nest);
        omp_set_lock(&lock);
        count++;
        omp_unset_lock(&lock);
        omp_unset_nest_lock(&nest);
    }
    CHECK(count == 500 * threads());
    omp_destroy_lock(&lock);
    omp_destroy_nest_lock(&nest);

    int host = omp_get_initial_device(), from[4][4], to[4][4];
    memset(to, 0, sizeof to);
    for (int i = 0; i < 16; i++)
        from[i / 4][i % 4] = i;
    CHECK(omp_target_is_present(from, host));
    size_t volume[2] = {2, 3}, at[2] = {1, 0}, whole[2] = {4, 4};
    CHECK(omp_target_memcpy_rect(to, from, sizeof(int), 2, volume, at, at, whole, whole, host, host) == 0);
    CHECK(to[1][0] == 4 && to[2][2] == 10 && to[1][3] == 0 && to[3][0] == 0);
    // There is nothing that could be associated with the host's memory.
    CHECK(omp_target_associate_ptr(from, to, sizeof from, 0, host) != 0);
    CHECK(omp_target_disassociate_ptr(from, host) != 0);
    return 0;
}
