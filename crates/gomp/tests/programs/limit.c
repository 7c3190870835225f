// SPDX-License-Identifier: MIT OR Apache-2.0
// OMP_THREAD_LIMIT=5: never more threads at once, in whatever regions, and all five again when others have ended.
#include "check.h"

int main(void)
{
    int running = 1, most = 1, n = threads();
    CHECK(omp_get_thread_limit() == 5);
    omp_set_max_active_levels(3);
    for (int round = 0; round < 50; round++) {
#pragma omp parallel num_threads(3)
        {
            CHECK(omp_get_num_threads() == 3);
            if (omp_get_thread_num() > 0) {
#pragma omp atomic
                running++;
            }
#pragma omp barrier
#pragma omp parallel num_threads(n)
            {
                int now = 0;
                if (omp_get_thread_num() > 0) {
#pragma omp atomic capture
                    now = ++running;
                    CHECK(now <= 5);
                }
#pragma omp critical
                if (now > most)
                    most = now;
#pragma omp barrier
                if (omp_get_thread_num() > 0) {
#pragma omp atomic
                    running--;
                }
            }
#pragma omp barrier
            if (omp_get_thread_num() > 0) {
#pragma omp atomic
                running--;
            }
        }
        CHECK(running == 1);
#pragma omp parallel num_threads(64)
        CHECK(omp_get_num_threads() == 5);
    }
    CHECK(n < 4 || most == 5);
    return 0;
}
