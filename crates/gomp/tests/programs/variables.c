// SPDX-License-Identifier: MIT OR Apache-2.0
// Says what has become of the environment, for a comparison with the compiler's own runtime.
#include "check.h"

int main(void)
{
    omp_sched_t kind;
    int chunk, team = 0, ids[64];
    char format[100];
    omp_get_schedule(&kind, &chunk);
    omp_get_affinity_format(format, sizeof format);
#pragma omp parallel
#pragma omp single
    team = omp_get_num_threads();
    printf("%d threads, schedule %x %d, cancellation %d, levels %d, [%s], ", omp_get_dynamic() ? 0 : team, (unsigned)kind, chunk,
           omp_get_cancellation(), omp_get_max_active_levels() > 1, format);
    // Where nothing is bound, LLVM's runtime has places all the same.
    if (omp_get_proc_bind() == omp_proc_bind_false)
        puts("not bound");
    else
        for (int place = 0; place < omp_get_num_places() && place < 64; place++) {
            int count = omp_get_place_num_procs(place);
            CHECK(count <= 64);
            omp_get_place_proc_ids(place, ids);
            for (int i = 0; i < count; i++)
                printf("%d ", ids[i]);
            puts(";");
        }
    return 0;
}
