// SPDX-License-Identifier: MIT OR Apache-2.0
// Nested regions, active and not; ancestors and sizes of each level; variables that are inherited.
#include "check.h"

int main(void)
{
    int n = threads();
    CHECK(omp_get_max_active_levels() == 1);
    int inner = 0;
#pragma omp parallel reduction(+ : inner)
#pragma omp parallel num_threads(3) reduction(+ : inner)
    {
        CHECK(omp_get_level() == 2 && omp_get_num_threads() == (n == 1 ? 3 : 1));
        inner++;
    }
    CHECK(inner == (n == 1 ? 3 : n));
    omp_set_max_active_levels(3);
    for (int round = 0; round < 20; round++) {
        inner = 0;
#pragma omp parallel reduction(+ : inner)
        {
            int outer = omp_get_thread_num();
#pragma omp parallel num_threads(2) reduction(+ : inner)
            {
                int middle = omp_get_thread_num();
                CHECK(omp_get_num_threads() == 2 && omp_get_level() == 2);
                CHECK(omp_get_active_level() == 1 + (n > 1));
                CHECK(omp_get_ancestor_thread_num(0) == 0 && omp_get_ancestor_thread_num(1) == outer);
                CHECK(omp_get_ancestor_thread_num(2) == middle && omp_get_ancestor_thread_num(3) == -1);
                CHECK(omp_get_team_size(0) == 1 && omp_get_team_size(1) == n && omp_get_team_size(2) == 2);
#pragma omp parallel num_threads(2) reduction(+ : inner)
                {
                    int own = 0;
#pragma omp for schedule(dynamic)
                    for (int i = 0; i < 10; i++)
                        own++;
                    inner += own;
#pragma omp barrier
                    CHECK(omp_get_ancestor_thread_num(2) == middle);
                }
                inner += 100;
            }
            CHECK(omp_get_level() == 1 && omp_get_thread_num() == outer);
        }
        CHECK(inner == n * 2 * 10 + n * 2 * 100);
    }
    omp_set_num_threads(5);
#pragma omp parallel
    {
        CHECK(omp_get_num_threads() == 5 && omp_get_max_threads() == 5);
        omp_set_num_threads(2 + omp_get_thread_num());
        CHECK(omp_get_max_threads() == 2 + omp_get_thread_num());
    }
    CHECK(omp_get_max_threads() == 5);
    return 0;
}
