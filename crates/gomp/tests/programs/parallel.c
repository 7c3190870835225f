// SPDX-License-Identifier: MIT OR Apache-2.0
// parallel: as many members as asked for, each number once; clauses num_threads, if, private, firstprivate, copyin, reduction.
#include "check.h"

static int counter;
#pragma omp threadprivate(counter)

int main(void)
{
    int n = threads(), seen[64] = {0};
    for (int round = 0; round < 200; round++) {
#pragma omp parallel
        {
            CHECK(omp_get_num_threads() == n);
            CHECK(omp_in_parallel() == (n > 1));
            CHECK(omp_get_level() == 1);
            seen[omp_get_thread_num()]++;
        }
    }
    CHECK(!omp_in_parallel() && omp_get_num_threads() == 1 && omp_get_thread_num() == 0);
    for (int i = 0; i < n; i++)
        CHECK(seen[i] == 200);
    // Teams of other sizes between, so that helpers come and go.
    for (int round = 0; round < 200; round++) {
        int size = 1 + round * 7 % 16, all = 0;
#pragma omp parallel num_threads(size) reduction(+ : all)
        {
            CHECK(omp_get_num_threads() == size);
            all += 1 + omp_get_thread_num();
        }
        CHECK(all == size * (size + 1) / 2);
    }
    int own = 7, shared = 0;
#pragma omp parallel if (n > 1000) reduction(+ : shared)
    shared += omp_get_num_threads();
    CHECK(shared == 1);
    shared = 0;
#pragma omp parallel firstprivate(own) reduction(+ : shared)
    {
        own += omp_get_thread_num();
        shared += own;
    }
    CHECK(own == 7 && shared == 7 * n + n * (n - 1) / 2);
    // What is a thread's own stays from region to region.
    counter = 5;
#pragma omp parallel copyin(counter)
    counter += omp_get_thread_num();
#pragma omp parallel
    CHECK(counter == 5 + omp_get_thread_num());
    double product = 1;
    unsigned bits = 0;
    int least = 1000, most = -1;
#pragma omp parallel reduction(* : product) reduction(| : bits) reduction(min : least) reduction(max : most)
    {
        int me = omp_get_thread_num();
        product *= 2;
        bits |= 1u << me;
        least = me + 10;
        most = me;
    }
    CHECK(product == (double)(1 << n) && bits == (1u << n) - 1 && least == 10 && most == n - 1);
    return 0;
}
