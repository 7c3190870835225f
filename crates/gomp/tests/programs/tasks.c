// SPDX-License-Identifier: MIT OR Apache-2.0
// task, taskwait, taskgroup, taskyield, taskloop, depend, final, mergeable, priority, and reductions over tasks.
#include <string.h>

#include "check.h"

static long fib(int n)
{
    if (n < 2)
        return n;
    long a, b;
#pragma omp task shared(a) final(n < 8)
    a = fib(n - 1);
#pragma omp task shared(b) untied mergeable
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}

static int queens(int n, int row, unsigned columns, unsigned left, unsigned right)
{
    if (row == n)
        return 1;
    int found[16] = {0}, all = 0;
    for (int column = 0; column < n; column++) {
        unsigned bit = 1u << column;
        if (!((columns | left | right) & bit)) {
#pragma omp task shared(found) if (row < 4)
            found[column] = queens(n, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1);
        }
    }
#pragma omp taskwait
    for (int column = 0; column < n; column++)
        all += found[column];
    return all;
}

static void sort(int *a, int n, int *other)
{
    if (n < 64) {
        for (int i = 1; i < n; i++)
            for (int j = i; j > 0 && a[j] < a[j - 1]; j--) {
                int swap = a[j];
                a[j] = a[j - 1], a[j - 1] = swap;
            }
        return;
    }
    int half = n / 2;
#pragma omp taskgroup
    {
#pragma omp task
        sort(a, half, other);
#pragma omp task
        sort(a + half, n - half, other + half);
    }
    for (int i = 0, j = half, k = 0; k < n; k++)
        other[k] = j >= n || (i < half && a[i] <= a[j]) ? a[i++] : a[j++];
    memcpy(a, other, n * sizeof *a);
}

static void groups(void)
{
    int done = 0;
#pragma omp parallel
#pragma omp single
    for (int round = 0; round < 50; round++) {
        done = 0;
#pragma omp taskgroup
        for (int i = 0; i < 10; i++) {
#pragma omp task
            {
#pragma omp task
                {
#pragma omp taskyield
#pragma omp atomic
                    done++;
                }
            }
        }
        CHECK(done == 10);
    }
}

static void dependences(void)
{
    for (int round = 0; round < 20; round++) {
        int x = 0, y = 0, order = 0, sum[8] = {0};
#pragma omp parallel
#pragma omp single
        {
            for (int i = 0; i < 100; i++) {
#pragma omp task depend(inout : x)
                {
                    CHECK(x == i);
                    x = i + 1;
                }
            }
            for (int i = 0; i < 8; i++) {
#pragma omp task depend(in : x) depend(out : sum[i])
                sum[i] = x + i;
            }
#pragma omp task depend(out : x)
            {
                for (int i = 0; i < 8; i++)
                    CHECK(sum[i] == 100 + i);
                x = -1;
            }
#pragma omp task depend(in : x) depend(mutexinoutset : y)
            y += x;
#pragma omp task depend(in : x) depend(mutexinoutset : y)
            y += x;
#pragma omp task depend(in : y) if (0)
            CHECK(y == -2);
#pragma omp taskwait depend(in : sum[3])
            CHECK(sum[3] == 103);
            omp_depend_t object;
#pragma omp depobj(object) depend(inout : order)
            for (int i = 0; i < 20; i++) {
#pragma omp task depend(depobj : object)
                CHECK(order++ == i);
            }
#pragma omp taskwait
#pragma omp depobj(object) destroy
        }
        CHECK(x == -1 && y == -2 && order == 20);
    }
}

static void taskloops(void)
{
    static int hits[3000];
    memset(hits, 0, sizeof hits);
    long all = 0;
#pragma omp parallel
#pragma omp single
    {
#pragma omp taskloop
        for (int i = 0; i < 1000; i++)
            hits[i]++;
        for (int i = 0; i < 1000; i++)
            CHECK(hits[i] == 1);
#pragma omp taskloop grainsize(7)
        for (unsigned long long i = 1999; i >= 1000; i--)
            hits[i]++;
#pragma omp taskloop num_tasks(13) nogroup
        for (long i = 2000; i < 3000; i += 2)
            hits[i] += 2, hits[i + 1]++;
#pragma omp taskwait
#pragma omp taskloop reduction(+ : all) grainsize(10)
        for (int i = 0; i < 500; i++)
            all += i;
        CHECK(all == 500 * 499 / 2);
    }
    for (int i = 0; i < 3000; i++)
        CHECK(hits[i] == 1 + (i >= 2000 && i % 2 == 0));
    all = 0;
#pragma omp parallel master taskloop simd reduction(+ : all)
    for (int i = 0; i < 100; i++)
        all += i;
    CHECK(all == 4950);
}

static void reductions(int n)
{
    for (int round = 0; round < 20; round++) {
        long sum = 0;
        double product = 1;
#pragma omp parallel
#pragma omp single
#pragma omp taskgroup task_reduction(+ : sum) task_reduction(* : product)
        {
            for (int i = 1; i <= 100; i++) {
#pragma omp task in_reduction(+ : sum)
                {
                    sum += i;
#pragma omp task in_reduction(+ : sum)
                    sum += i;
                }
            }
            for (int i = 0; i < 10; i++) {
#pragma omp task in_reduction(* : product)
                product *= 2;
            }
        }
        CHECK(sum == 10100 && product == 1024);
        sum = 0;
#pragma omp parallel reduction(task, + : sum)
        {
            sum += 1000;
#pragma omp task in_reduction(+ : sum)
            sum += 1;
        }
        CHECK(sum == 1001L * n);
        sum = 0;
#pragma omp parallel
        {
#pragma omp for reduction(task, + : sum)
            for (int i = 0; i < 50; i++) {
#pragma omp task in_reduction(+ : sum)
                sum += i;
            }
        }
        CHECK(sum == 1225);
        sum = 0;
#pragma omp parallel
#pragma omp sections reduction(task, + : sum)
        {
#pragma omp section
            {
#pragma omp task in_reduction(+ : sum)
                sum += 5;
            }
#pragma omp section
            {
#pragma omp task in_reduction(+ : sum)
                sum += 6;
            }
        }
        CHECK(sum == 11);
    }
}

static void elsewhere(void)
{
    // From all members at once, nowait, waited for by the barrier alone.
    int count = 0;
    for (int round = 0; round < 50; round++) {
#pragma omp parallel
        {
#pragma omp for nowait
            for (int i = 0; i < 100; i++) {
#pragma omp task
                {
#pragma omp atomic
                    count++;
                }
            }
#pragma omp barrier
            CHECK(count == (round * 2 + 1) * 100);
#pragma omp barrier
#pragma omp single nowait
            for (int i = 0; i < 100; i++) {
#pragma omp task priority(i % 5)
                {
#pragma omp atomic
                    count++;
                }
            }
        }
        CHECK(count == (round + 1) * 200);
    }
    // Of a task that is over before they are.
    count = 0;
#pragma omp parallel
#pragma omp master
    for (int i = 0; i < 100; i++) {
#pragma omp task
        for (int j = 0; j < 10; j++) {
#pragma omp task firstprivate(i, j)
            {
                CHECK(i < 100 && j < 10);
#pragma omp atomic
                count++;
            }
        }
    }
    CHECK(count == 1000);
    // Outside any region.
    int x = 0;
#pragma omp task shared(x)
    x = 1;
#pragma omp taskwait
    CHECK(x == 1);
}

int main(void)
{
    int n = threads();
    long result = 0;
    int solutions = 0;
    enum { N = 20000 };
    static int a[N], other[N];
    for (int i = 0; i < N; i++)
        a[i] = (int)((unsigned)i * 2654435761u >> 4);
#pragma omp parallel
#pragma omp single
    {
        result = fib(20);
        solutions = queens(8, 0, 0, 0, 0);
        sort(a, N, other);
    }
    CHECK(result == 6765 && solutions == 92);
    for (int i = 1; i < N; i++)
        CHECK(a[i - 1] <= a[i]);
    groups();
    dependences();
    taskloops();
    reductions(n);
    elsewhere();
    return 0;
}
