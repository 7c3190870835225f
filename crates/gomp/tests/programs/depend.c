// SPDX-License-Identifier: MIT OR Apache-2.0
// A producer whose tasks depend on addresses that it never uses again: what is known of those goes when the tasks are done.
#include <sys/resource.h>

#include "check.h"

static char memory[200000];

static long kib(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss;
}

static void produce(int from, int to)
{
    int done = 0;
    for (int i = from; i < to; i++) {
#pragma omp task depend(out : memory[i]) shared(done)
        {
            memory[i] = 1;
#pragma omp atomic
            done++;
        }
#pragma omp task depend(in : memory[i]) shared(done)
        {
            CHECK(memory[i] == 1);
#pragma omp atomic
            done++;
        }
        if (i % 32 == 31) {
#pragma omp taskwait
        }
    }
#pragma omp taskwait
    CHECK(done == 2 * (to - from));
}

int main(void)
{
    int some = sizeof memory / 10;
#pragma omp parallel
#pragma omp single
    {
        produce(0, some);
        long before = kib();
        produce(some, sizeof memory);
        CHECK(kib() - before < 16 * 1024);
    }
    return 0;
}
