// SPDX-License-Identifier: MIT OR Apache-2.0
// What is left of a cancelled construct: nothing, for the regions that follow. Runs with OMP_CANCELLATION=true.
#include "check.h"

int main(void)
{
    int n = threads();
    CHECK(omp_get_cancellation());
    // A loop of a later region is not cancelled, though it stands where one was that is.
    for (int round = 0; round < 20; round++) {
        int iterations = 0;
#pragma omp parallel
#pragma omp for schedule(static)
        for (int i = 0; i < 64; i++) {
#pragma omp cancellation point for
#pragma omp atomic
            iterations++;
            if (round % 2 == 0) {
#pragma omp cancel for
            }
        }
        CHECK(round % 2 ? iterations == 64 : iterations >= 1 && iterations < 64);
    }
    // A region that is cancelled while members are in a loop; the next one's loops are others.
    for (int round = 0; round < 20; round++) {
        int all = 0;
#pragma omp parallel
        {
            if (omp_get_thread_num() == n - 1) {
#pragma omp cancel parallel
            }
#pragma omp for schedule(dynamic)
            for (int i = 0; i < 1000; i++) {
#pragma omp cancellation point for
            }
        }
#pragma omp parallel
        {
#pragma omp for schedule(static)
            for (int i = 0; i < 1000; i++) {
#pragma omp cancel for
            }
#pragma omp for schedule(dynamic)
            for (int i = 0; i < 1000; i++) {
#pragma omp atomic
                all++;
            }
        }
        CHECK(all == 1000);
    }
    return 0;
}
