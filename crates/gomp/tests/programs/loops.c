// SPDX-License-Identifier: MIT OR Apache-2.0
// for: all schedules, combined and not, signed and unsigned, up and down, in all strides; each iteration once.
#include <limits.h>
#include <string.h>

#include "check.h"

enum { MOST = 5000 };
static int hits[MOST];

static void once(int count)
{
    for (int i = 0; i < count; i++)
        CHECK(hits[i] == 1);
    memset(hits, 0, sizeof hits);
}

#define HIT(index)      \
    do {                \
        _Pragma("omp atomic") hits[index]++; \
    } while (0)

#define LOOP(schedule_, nowait_)                                                            \
    do {                                                                                    \
        _Pragma("omp parallel")                                                             \
        {                                                                                   \
            PRAGMA(omp for schedule_ nowait_)                                               \
            for (int i = 0; i < 1000; i++) HIT(i);                                          \
            PRAGMA(omp for schedule_ nowait_)                                               \
            for (int i = 999; i >= 0; i -= 3) HIT(1000 + i / 3);                            \
            PRAGMA(omp for schedule_ nowait_)                                               \
            for (unsigned long long i = 5; i < 705; i += 7) HIT(1334 + (i - 5) / 7);        \
            PRAGMA(omp for schedule_ nowait_)                                               \
            for (unsigned long long i = ULLONG_MAX - 1; i > ULLONG_MAX - 101; i--)          \
                HIT(1434 + (int)(ULLONG_MAX - 1 - i));                                      \
            PRAGMA(omp for schedule_ nowait_)                                               \
            for (long i = LONG_MAX - 100; i < LONG_MAX; i++) HIT(1534 + (int)(i - (LONG_MAX - 100))); \
            PRAGMA(omp for schedule_ nowait_ collapse(2))                                   \
            for (int i = 0; i < 30; i++)                                                    \
                for (int j = 0; j < 40; j++) HIT(1634 + i * 40 + j);                        \
            PRAGMA(omp for schedule_ nowait_)                                               \
            for (int i = 0; i < 0; i++) HIT(4999);                                          \
        }                                                                                   \
        once(2834);                                                                         \
        CHECK(hits[4999] == 0);                                                             \
        PRAGMA(omp parallel for schedule_)                                                  \
        for (int i = 0; i < 1000; i++) HIT(i);                                              \
        once(1000);                                                                         \
        int last = -1, all = 0;                                                             \
        PRAGMA(omp parallel for schedule_ lastprivate(last) reduction(+ : all))             \
        for (int i = 0; i < 777; i += 2) { last = i; all += i; }                            \
        CHECK(last == 776 && all == 388 * 389);                                             \
    } while (0)

#define PRAGMA(text) _Pragma(#text)

int main(void)
{
    for (int round = 0; round < 5; round++) {
        LOOP(schedule(static), );
        LOOP(schedule(static, 3), nowait);
        LOOP(schedule(dynamic), nowait);
        LOOP(schedule(dynamic, 7), );
        LOOP(schedule(monotonic : dynamic, 7), );
        LOOP(schedule(guided), nowait);
        LOOP(schedule(guided, 5), );
        LOOP(schedule(monotonic : guided, 5), );
        LOOP(schedule(nonmonotonic : dynamic, 5), );
        LOOP(schedule(auto), );
        for (int kind = omp_sched_static; kind <= omp_sched_auto; kind++) {
            omp_set_schedule((omp_sched_t)kind, kind == omp_sched_auto ? 0 : 4);
            omp_sched_t now;
            int chunk;
            omp_get_schedule(&now, &chunk);
            CHECK((now & ~omp_sched_monotonic) == kind);
            LOOP(schedule(runtime), );
            LOOP(schedule(runtime), nowait);
            LOOP(schedule(monotonic : runtime), );
            LOOP(schedule(nonmonotonic : runtime), );
        }
    }
    // A static schedule without chunk is the same each time, and in the order of the members.
    int owner[1000];
#pragma omp parallel
    {
#pragma omp for schedule(static) nowait
        for (int i = 0; i < 1000; i++)
            owner[i] = omp_get_thread_num();
#pragma omp for schedule(static) nowait
        for (int i = 0; i < 1000; i++)
            CHECK(owner[i] == omp_get_thread_num());
    }
    for (int i = 1; i < 1000; i++)
        CHECK(owner[i] >= owner[i - 1]);
    // Many constructs without a barrier between.
    int sum = 0;
#pragma omp parallel reduction(+ : sum)
    for (int round = 0; round < 300; round++) {
#pragma omp for schedule(dynamic, 2) nowait
        for (int i = 0; i < 20; i++)
            sum += i;
    }
    CHECK(sum == 300 * 190);
    // Outside a region, in a team of one.
    sum = 0;
#pragma omp for schedule(dynamic)
    for (int i = 0; i < 20; i++)
        sum += i;
    CHECK(sum == 190);
    return 0;
}
