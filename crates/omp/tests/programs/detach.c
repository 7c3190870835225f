// SPDX-License-Identifier: MIT OR Apache-2.0
// Tasks that another thread, which is in no team, completes: what depends on them runs, also where all who could run it sleep.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "check.h"

static omp_event_handle_t event;
static volatile int waited_for, ran;

static void *fulfill(void *nothing)
{
    while (!__atomic_load_n(&waited_for, __ATOMIC_ACQUIRE))
        usleep(100);
    usleep(20000);
    omp_fulfill_event(event);
    return nothing;
}

static void once(void)
{
    pthread_t other;
    waited_for = ran = 0;
    CHECK(pthread_create(&other, NULL, fulfill, NULL) == 0);
#pragma omp parallel
#pragma omp single nowait
#pragma omp task
    {
        int x = 0;
        (void)x;
        omp_event_handle_t own;
#pragma omp task detach(own) depend(out : x)
        {
            event = own;
            __atomic_store_n(&waited_for, 1, __ATOMIC_RELEASE);
        }
#pragma omp task depend(in : x)
        ran = 1;
#pragma omp taskwait
        CHECK(ran);
    }
    CHECK(pthread_join(other, NULL) == 0);
}

int main(void)
{
    for (int i = 0; i < 5; i++)
        once();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    for (int i = 0; i < 5; i++)
        once();
    return 0;
}
