// SPDX-License-Identifier: MIT OR Apache-2.0
// cancel and cancellation point, for each construct. Runs with OMP_CANCELLATION=true.
#include "check.h"

int main(void)
{
    int n = threads();
    CHECK(omp_get_cancellation());
    for (int round = 0; round < 50; round++) {
        int after = 0, iterations = 0, started = 0, sections = 0;
#pragma omp parallel
        {
            if (omp_get_thread_num() == n - 1) {
#pragma omp cancel parallel
            }
#pragma omp barrier
#pragma omp atomic
            after++;
        }
        CHECK(after == 0);
#pragma omp parallel
        {
#pragma omp for schedule(dynamic)
            for (int i = 0; i < 100000; i++) {
#pragma omp atomic
                iterations++;
#pragma omp cancel for
            }
#pragma omp for schedule(static)
            for (int i = 0; i < 100000; i++) {
#pragma omp cancellation point for
                if (i == 0) {
#pragma omp cancel for
                }
            }
            int own = 0;
#pragma omp for
            for (int i = 0; i < 64; i++)
                own++;
#pragma omp atomic
            after += own;
#pragma omp sections
            {
#pragma omp section
                {
#pragma omp atomic
                    sections++;
#pragma omp cancel sections
                }
#pragma omp section
                {
#pragma omp cancellation point sections
#pragma omp atomic
                    sections++;
                }
            }
        }
        CHECK(iterations >= 1 && iterations <= n && after == 64 && sections >= 1);
#pragma omp parallel
#pragma omp single
#pragma omp taskgroup
        for (int i = 0; i < 1000; i++) {
#pragma omp task
            {
#pragma omp atomic
                started++;
#pragma omp cancel taskgroup
            }
        }
        CHECK(started >= 1 && started < 1000);
    }
    // And all is well again.
    int all = 0;
#pragma omp parallel reduction(+ : all)
    {
#pragma omp barrier
#pragma omp for schedule(dynamic)
        for (int i = 0; i < 100; i++)
            all++;
    }
    CHECK(all == 100);
    return 0;
}
