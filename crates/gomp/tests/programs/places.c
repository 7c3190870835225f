// SPDX-License-Identifier: MIT OR Apache-2.0
// proc_bind and places. Runs with OMP_PLACES=threads, where there are processors enough for it to show.
#define _GNU_SOURCE
#include <sched.h>

#include "check.h"

int main(void)
{
    int n = threads(), places = omp_get_num_places(), all = 0;
    CHECK(places >= 1 && omp_get_place_num_procs(0) == 1 && omp_get_proc_bind() != omp_proc_bind_false);
    for (int round = 0; round < 3; round++) {
#pragma omp parallel proc_bind(close) reduction(+ : all)
        {
            int place = omp_get_place_num(), id;
            CHECK(place >= 0 && place < places);
            omp_get_place_proc_ids(place, &id);
            cpu_set_t set;
            CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
            CHECK(CPU_COUNT(&set) == 1 && CPU_ISSET(id, &set));
            if (n <= places)
                CHECK(place == omp_get_thread_num());
            all++;
        }
#pragma omp parallel proc_bind(spread)
        CHECK(omp_get_partition_num_places() >= 1 && omp_get_partition_num_places() <= places);
#pragma omp parallel proc_bind(master)
        CHECK(omp_get_place_num() == 0);
    }
    CHECK(all == 3 * n);
    return 0;
}
