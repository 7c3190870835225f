// SPDX-License-Identifier: MIT OR Apache-2.0
// Regions for OMP_DISPLAY_AFFINITY: who is in one says so, but not again where nothing has changed.
#include "check.h"

int main(void)
{
    puts("before");
    for (int i = 0; i < 3; i++) {
#pragma omp parallel num_threads(3)
        CHECK(omp_get_num_threads() == 3);
    }
    for (int i = 0; i < 3; i++) {
#pragma omp parallel num_threads(2)
        CHECK(omp_get_num_threads() == 2);
    }
    // Inside of another.
    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(1)
    for (int i = 0; i < 2; i++) {
#pragma omp parallel num_threads(3)
        CHECK(omp_get_num_threads() == 3);
    }
    // In another format, of which the runtime is told.
    omp_set_affinity_format("of %N at %n");
#pragma omp parallel num_threads(4)
    CHECK(omp_get_num_threads() == 4);
    puts("after");
    return 0;
}
