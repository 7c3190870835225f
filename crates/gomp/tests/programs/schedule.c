// SPDX-License-Identifier: MIT OR Apache-2.0
// What `schedule(runtime)` means, and what omp_get_schedule says of it.
#include "check.h"

int main(void)
{
    omp_sched_t kind;
    int chunk;
    omp_get_schedule(&kind, &chunk);
    // Where nobody has said anything, as in the compiler's own runtime.
#ifdef __clang__
    CHECK(kind == omp_sched_static && chunk == 0);
#else
    CHECK(kind == omp_sched_dynamic && chunk == 1);
#endif
    for (unsigned modifier = 0; modifier < 2; modifier++)
        for (int base = omp_sched_static; base <= omp_sched_guided; base++)
            for (int given = -1; given < 4; given++) {
                omp_sched_t set = (omp_sched_t)((unsigned)base | modifier << 31);
                omp_set_schedule(set, given);
                omp_get_schedule(&kind, &chunk);
                int least = base == omp_sched_static ? 0 : 1;
                CHECK(kind == set && chunk == (given < least ? least : given));
                int all = 0;
#pragma omp parallel for schedule(runtime) reduction(+ : all)
                for (int i = 0; i < 100; i++)
                    all += i;
                CHECK(all == 4950);
            }
    omp_set_schedule(omp_sched_auto, 5);
    omp_get_schedule(&kind, &chunk);
    CHECK(kind == omp_sched_auto);
    // Members have what their primary thread had.
#pragma omp parallel
    {
        omp_sched_t inside;
        int of_inside;
        omp_get_schedule(&inside, &of_inside);
        CHECK(inside == kind && of_inside == chunk);
    }
    return 0;
}
