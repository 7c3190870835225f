// SPDX-License-Identifier: MIT OR Apache-2.0
// omp_all_memory: a task that follows all before it, and that all after it follow.
#include "check.h"

static int x, y, z, order;

static void step(void *argument)
{
    int *from_to = argument;
    CHECK(order == from_to[0]);
    order = from_to[1];
}

#if defined(__clang__) || __GNUC__ > 12
#define ALL(from, to)                                                             \
    {                                                                             \
        _Pragma("omp task depend(inout : x, omp_all_memory) depend(in : y)") STEP(from, to); \
    }
#else
// As later compilers have it: among those that are written, the address 0.
extern void GOMP_task(void (*)(void *), void *, void (*)(void *, void *), long, long, _Bool, unsigned, void **, int, void *);
#define ALL(from, to)                                                                \
    {                                                                                \
        void *list[] = {(void *)3, (void *)2, &x, 0, &y};                            \
        GOMP_task(step, (int[]){from, to}, 0, 2 * sizeof(int), sizeof(int), 1, 8, list, 0, 0); \
    }
#endif
#define STEP(from, to) step((int[]){from, to})

int main(void)
{
    for (int round = 0; round < 50; round++) {
        int before = 0, after = 0;
        order = 0;
#pragma omp parallel
#pragma omp single
        {
            for (int i = 0; i < 10; i++) {
#pragma omp task depend(in : z) shared(before)
                {
#pragma omp atomic
                    before++;
                }
            }
#pragma omp task depend(out : y) shared(before)
            {
                STEP(0, 1);
#pragma omp atomic
                before++;
            }
            ALL(1, 2)
            ALL(2, 3)
#pragma omp task depend(inout : z) shared(before, after)
            {
                CHECK(before == 11);
                STEP(3, 4);
#pragma omp atomic
                after++;
            }
#pragma omp task depend(in : x) shared(after)
            {
                CHECK(order >= 3);
#pragma omp atomic
                after++;
            }
#pragma omp taskwait
            CHECK(after == 2 && order == 4);
        }
    }
    return 0;
}
