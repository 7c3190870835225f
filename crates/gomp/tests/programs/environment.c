// SPDX-License-Identifier: MIT OR Apache-2.0
// The environment variables of OpenMP 4.5: the program starts itself with all of them set, and asks what has become of them.
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "check.h"

static const char *const variables[][2] = {
    {"OMP_NUM_THREADS", "4,3"},     {"OMP_DYNAMIC", "false"},          {"OMP_PROC_BIND", "spread,close"}, {"OMP_PLACES", "threads"},
    {"OMP_NESTED", "true"},         {"OMP_STACKSIZE", "3M"},           {"OMP_WAIT_POLICY", "passive"},    {"OMP_MAX_ACTIVE_LEVELS", "2"},
    {"OMP_THREAD_LIMIT", "20"},     {"OMP_CANCELLATION", "true"},      {"OMP_DISPLAY_ENV", "false"},      {"OMP_DEFAULT_DEVICE", "0"},
    {"OMP_MAX_TASK_PRIORITY", "7"}, {"OMP_SCHEDULE", "guided,3"},
};

static size_t stack(void)
{
    pthread_attr_t attributes;
    size_t size;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstacksize(&attributes, &size) == 0);
    pthread_attr_destroy(&attributes);
    return size;
}

int main(int count, char **arguments)
{
    if (count == 1) {
        for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
            CHECK(setenv(variables[i][0], variables[i][1], 1) == 0);
        execl("/proc/self/exe", arguments[0], "again", (char *)NULL);
        CHECK(!"exec");
    }
    omp_sched_t kind;
    int chunk, members = 0;
    omp_get_schedule(&kind, &chunk);
    CHECK((kind & ~omp_sched_monotonic) == omp_sched_guided && chunk == 3);
    CHECK(omp_get_max_threads() == 4 && !omp_get_dynamic() && omp_get_cancellation());
    CHECK(omp_get_thread_limit() == 20 && omp_get_max_active_levels() == 2 && omp_get_max_task_priority() == 7);
    CHECK(omp_get_proc_bind() == omp_proc_bind_spread && omp_get_num_places() >= 1 && omp_get_default_device() == 0);
#pragma omp parallel reduction(+ : members)
    {
        CHECK(omp_get_num_threads() == 4 && omp_get_place_num() >= 0);
        CHECK(omp_get_thread_num() == 0 || (stack() >= 3 << 20 && stack() < 8 << 20));
#pragma omp parallel reduction(+ : members)
        {
            CHECK(omp_get_proc_bind() >= omp_proc_bind_true);
#pragma omp parallel reduction(+ : members)
            {
                CHECK(omp_get_num_threads() == 1);
                members++;
            }
        }
    }
    CHECK(members == 12);
    return 0;
}
