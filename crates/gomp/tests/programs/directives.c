// SPDX-License-Identifier: MIT OR Apache-2.0
// The directives and clauses of OpenMP 4.5 that the other programs do not have: simd, the combinations of teams, distribute and target, all forms of atomic,
// data sharing.
#include "check.h"

enum { N = 1000 };
static int hits[N];

static void once(void)
{
    for (int i = 0; i < N; i++) {
        CHECK(hits[i] == 1);
        hits[i] = 0;
    }
}

#pragma omp declare simd linear(i : 1) uniform(base) notinbranch
static int plus(int base, int i) { return base + i; }

#pragma omp declare target
static int twice(int x) { return 2 * x; }
#pragma omp end declare target

static void vectors(void)
{
    int a[N], sum = 0, last = 0, step = 0;
#pragma omp simd safelen(8) simdlen(4) aligned(a : 4) linear(step : 2) lastprivate(last)
    for (int i = 0; i < N; i++) {
        a[i] = plus(3, i);
        last = i;
        step += 2;
    }
    CHECK(last == N - 1 && step == 2 * N);
#pragma omp simd reduction(+ : sum) collapse(2)
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 100; j++)
            sum += a[i * 100 + j];
    CHECK(sum == N * (N - 1) / 2 + 3 * N);
#pragma omp parallel
    {
#pragma omp for simd schedule(simd : static, 5)
        for (int i = 0; i < N; i++)
            hits[i]++;
    }
    once();
#pragma omp parallel for simd schedule(static)
    for (int i = 0; i < N; i++)
        hits[i]++;
    once();
#pragma omp parallel
#pragma omp single
#pragma omp taskloop simd grainsize(50)
    for (int i = 0; i < N; i++)
        hits[i]++;
    once();
    int next = 0;
#pragma omp parallel for ordered
    for (int i = 0; i < 50; i++) {
#pragma omp ordered threads
        CHECK(next++ == i);
    }
#pragma omp simd
    for (int i = 0; i < N; i++) {
#pragma omp ordered simd
        hits[i]++;
    }
    once();
}

#define LOOP(directive, ...)                                            \
    do {                                                                \
        PRAGMA(omp directive __VA_ARGS__)                               \
        for (int i = 0; i < N; i++) { _Pragma("omp atomic") hits[i]++; } \
        once();                                                         \
    } while (0)
#define VECTOR(directive, ...)          \
    do {                                \
        PRAGMA(omp directive __VA_ARGS__) \
        for (int i = 0; i < N; i++)     \
            hits[i]++;                  \
        once();                         \
    } while (0)
#define PRAGMA(text) _Pragma(#text)

static void leagues(void)
{
    LOOP(target teams distribute, map(tofrom : hits));
    LOOP(target teams distribute, num_teams(3) dist_schedule(static, 7) map(tofrom : hits));
    VECTOR(target teams distribute simd, map(tofrom : hits));
    LOOP(target teams distribute parallel for, num_teams(2) thread_limit(3) map(tofrom : hits));
    LOOP(target teams distribute parallel for, dist_schedule(static, 100) schedule(dynamic, 3) map(tofrom : hits));
    VECTOR(target teams distribute parallel for simd, map(tofrom : hits));
    LOOP(target parallel for, map(tofrom : hits));
    VECTOR(target parallel for simd, map(tofrom : hits));
    VECTOR(target simd, map(tofrom : hits));
    // In a league inside of a target region.
#pragma omp target map(tofrom : hits)
#pragma omp teams num_teams(4)
    {
#pragma omp distribute
        for (int i = 0; i < N; i++)
            hits[i]++;
    }
    once();
#pragma omp target map(tofrom : hits)
    {
#pragma omp teams distribute simd
        for (int i = 0; i < N; i++)
            hits[i]++;
    }
    once();
#pragma omp target teams map(tofrom : hits) num_teams(2)
    {
#pragma omp distribute simd
        for (int i = 0; i < N; i++)
            hits[i]++;
    }
    once();
#pragma omp target teams map(tofrom : hits) num_teams(3)
    {
#pragma omp distribute parallel for
        for (int i = 0; i < N; i++)
            hits[i]++;
    }
    once();
#pragma omp target teams map(tofrom : hits)
    {
#pragma omp distribute parallel for simd
        for (int i = 0; i < N; i++)
            hits[i]++;
    }
    once();
#pragma omp target map(tofrom : hits)
#pragma omp teams distribute
    for (int i = 0; i < N; i++)
        hits[i]++;
    once();
#pragma omp target map(tofrom : hits)
#pragma omp teams distribute parallel for
    for (int i = 0; i < N; i++)
        hits[i]++;
    once();
#pragma omp target map(tofrom : hits)
#pragma omp teams distribute parallel for simd
    for (int i = 0; i < N; i++)
        hits[i]++;
    once();
    int members = 0, last = -1;
#pragma omp target parallel map(tofrom : members)
    {
#pragma omp atomic
        members++;
    }
    CHECK(members == threads());
#pragma omp target teams distribute parallel for lastprivate(last) map(tofrom : last)
    for (int i = 0; i < N; i++)
        last = i;
    CHECK(last == N - 1);
    int x = 4, y = 0;
#pragma omp target map(to : x) map(from : y) depend(out : y) nowait
    y = twice(x);
#pragma omp taskwait
    CHECK(y == 8);
    int *p = &x;
#pragma omp target data map(tofrom : x) use_device_ptr(p)
    {
#pragma omp target is_device_ptr(p) defaultmap(tofrom : scalar)
        y = *p + 1;
    }
    CHECK(y == 5);
}

static void atomics(int n)
{
    int x = 0, seen = 0, total = 0;
    double d = 1;
#pragma omp parallel reduction(+ : total) private(seen)
    {
        for (int i = 0; i < 500; i++) {
#pragma omp atomic update
            x += 2;
#pragma omp atomic read
            seen = x;
            CHECK(seen > 0);
#pragma omp atomic capture
            seen = x++;
#pragma omp atomic capture seq_cst
            {
                x--;
                seen = x;
            }
#pragma omp atomic update
            d = d * 1.0;
        }
        total++;
    }
    CHECK(x == 1000 * n && total == n && d == 1);
#pragma omp parallel
    {
#pragma omp atomic write
        x = 7;
#pragma omp flush
#pragma omp flush(x)
    }
    CHECK(x == 7);
}

typedef struct {
    int least, count;
} pair;

#pragma omp declare reduction(both : pair : omp_out.least = omp_in.least < omp_out.least ? omp_in.least : omp_out.least, \
                              omp_out.count += omp_in.count) initializer(omp_priv = (pair){1 << 30, 0})

static void same(int a, int b) { CHECK(a == b); }

static void sharing(int n)
{
    pair all = {1 << 30, 0};
    int a = 1, b = 2, c = 3, parts[4] = {0, 0, 0, 0};
#pragma omp parallel default(none) shared(a, n) private(b) firstprivate(c) reduction(both : all) reduction(+ : parts)
    {
        b = omp_get_thread_num();
        same(a, 1);
        same(c, 3);
        c += b;
        all.count++;
        all.least = 100 + b;
        for (int i = 0; i < 4; i++)
            parts[i] += i;
    }
    CHECK(all.count == n && all.least == 100 && b == 2 && c == 3);
    for (int i = 0; i < 4; i++)
        CHECK(parts[i] == i * n);
    int all_bits = -1, any = 0, odd = 0, truth = 1, some = 0, product = 1, less = 0;
#pragma omp parallel for reduction(& : all_bits) reduction(| : any) reduction(^ : odd) reduction(&& : truth) \
    reduction(|| : some) reduction(* : product) reduction(- : less)
    for (int i = 0; i < 8; i++) {
        all_bits &= ~(1 << i);
        any |= 1 << i;
        odd ^= i;
        truth = truth && i < 8;
        some = some || i == 5;
        product *= 2;
        less -= i;
    }
    CHECK(all_bits == ~255 && any == 255 && odd == 0 && truth && some && product == 256 && less == -28);
    int start = 5;
#pragma omp parallel for linear(start : 3) schedule(static, 4)
    for (int i = 0; i < 100; i++) {
        CHECK(start == 5 + 3 * i);
        start += 3;
    }
    CHECK(start == 305);
    int members = 0;
#pragma omp parallel if (parallel : n > 100) num_threads(7) proc_bind(close) reduction(+ : members)
    members++;
    CHECK(members == 1);
}

static void tasks(int n)
{
    int done = 0, levels = 0;
#pragma omp parallel
#pragma omp master
    {
#pragma omp task untied mergeable priority(3) if (task : n > 0) final(n > 100)
        {
#pragma omp atomic
            done++;
#pragma omp taskyield
#pragma omp task
            {
#pragma omp atomic
                done++;
            }
#pragma omp taskwait
#pragma omp atomic
            done++;
        }
#pragma omp task if (0)
        levels = omp_in_final();
#pragma omp task final(1)
        {
#pragma omp task
            CHECK(omp_in_final());
        }
#pragma omp taskwait
        CHECK(done == 3 && levels == 0);
#pragma omp taskloop num_tasks(7) nogroup shared(done) firstprivate(n) lastprivate(levels)
        for (int i = 0; i < 100; i++) {
#pragma omp atomic
            done++;
            levels = i;
        }
#pragma omp taskwait
        CHECK(done == 103 && levels == 99);
    }
}

int main(void)
{
    int n = threads();
    vectors();
    leagues();
    for (int round = 0; round < 10; round++) {
        atomics(n);
        sharing(n);
        tasks(n);
    }
    return 0;
}
