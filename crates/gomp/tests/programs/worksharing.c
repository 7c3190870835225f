// SPDX-License-Identifier: MIT OR Apache-2.0
// sections, single, copyprivate, master, critical, atomic, barrier, ordered, flush.
#include "check.h"

static int shared_value;

static void sections(void)
{
    int hits[5] = {0}, last = 0;
    for (int round = 0; round < 50; round++) {
#pragma omp parallel
        {
#pragma omp sections lastprivate(last)
            {
#pragma omp section
                hits[0]++;
#pragma omp section
                hits[1]++;
#pragma omp section
                {
                    hits[2]++;
                    last = 42;
                }
            }
            CHECK(hits[0] == round + 1 && hits[2] == round + 1);
        }
#pragma omp parallel sections
        {
#pragma omp section
            hits[3]++;
#pragma omp section
            hits[4]++;
        }
    }
    for (int i = 0; i < 5; i++)
        CHECK(hits[i] == 50);
    CHECK(last == 42);
}

static void singles(int n)
{
    int count = 0, copied = 0, masters = 0;
#pragma omp parallel reduction(+ : copied)
    for (int round = 0; round < 100; round++) {
        int own = -1;
#pragma omp single
        {
#pragma omp atomic
            count++;
            shared_value = round;
        }
        CHECK(shared_value == round);
#pragma omp barrier
#pragma omp single copyprivate(own)
        own = round * 3;
        CHECK(own == round * 3);
        copied++;
#pragma omp single nowait
        {
#pragma omp atomic
            count++;
        }
#pragma omp master
        masters++;
    }
    CHECK(count == 200 && copied == 100 * n && masters == 100);
}

static void exclusion(int n)
{
    int a = 0, b = 0, c = 0;
    double d = 0;
#pragma omp parallel
    for (int i = 0; i < 2000; i++) {
#pragma omp critical
        a++;
#pragma omp critical(other)
        b++;
#pragma omp atomic
        c++;
#pragma omp atomic
        d += 0.5;
    }
    CHECK(a == 2000 * n && b == 2000 * n && c == 2000 * n && d == 1000.0 * n);
    // Too large for an instruction.
    long double e = 0;
#pragma omp parallel
    for (int i = 0; i < 1000; i++) {
#pragma omp atomic
        e += 1;
    }
    CHECK(e == 1000.0L * n);
}

static void barriers(int n)
{
    int at[64] = {0};
#pragma omp parallel
    for (int round = 1; round <= 300; round++) {
        at[omp_get_thread_num()] = round;
#pragma omp barrier
        for (int i = 0; i < n; i++)
            CHECK(at[i] == round);
#pragma omp barrier
    }
}

#define ORDERED(schedule_)                                       \
    do {                                                         \
        int next = 0;                                            \
        _Pragma("omp parallel") PRAGMA(omp for ordered schedule_) \
        for (int i = 0; i < 200; i++) {                          \
            if (i % 3 != 1) {                                    \
                _Pragma("omp ordered")                           \
                {                                                \
                    CHECK(next <= i);                            \
                    next = i + 1;                                \
                }                                                \
            }                                                    \
        }                                                        \
        CHECK(next == 199);                                      \
        unsigned long long down = 200;                           \
        PRAGMA(omp parallel for ordered schedule_)               \
        for (unsigned long long i = 199; i > 0; i--) {           \
            _Pragma("omp ordered")                               \
            {                                                    \
                CHECK(down == i + 1);                            \
                down = i;                                        \
            }                                                    \
        }                                                        \
    } while (0)
#define PRAGMA(text) _Pragma(#text)

int main(void)
{
    int n = threads();
    sections();
    singles(n);
    exclusion(n);
    barriers(n);
    for (int round = 0; round < 5; round++) {
        ORDERED(schedule(static));
        ORDERED(schedule(static, 2));
        ORDERED(schedule(dynamic));
        ORDERED(schedule(dynamic, 3));
        ORDERED(schedule(guided));
        ORDERED(schedule(runtime));
    }
    return 0;
}
