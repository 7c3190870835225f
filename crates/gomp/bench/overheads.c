// SPDX-License-Identifier: MIT OR Apache-2.0
// What OpenMP's constructs cost, in the manner of the EPCC microbenchmarks (Bull, "Measuring synchronisation and scheduling overheads in
// OpenMP", EWOMP 1999): a construct around a delay, less the delay alone, in microseconds.
//
//     overheads [MS] [CONSTRUCT...]
//
// Prints a line for each: its name, the median over samples of about MS milliseconds (20), and the mean. Beside other programs the mean is what
// counts: where a runtime has a bad mode, most of the samples may be good ones.
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DELAY = 50, SAMPLES = 9, MOST_SAMPLES = 1 << 12, MOST = 1 << 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void __attribute__((noinline)) delay(int length)
{
    for (int i = 0; i < length; i++)
        __asm__ volatile("" : : "r"(i) : "memory");
}

static void reference(int n)
{
    for (int i = 0; i < n; i++)
        delay(DELAY);
}

static void parallel(int n)
{
    for (int i = 0; i < n; i++) {
#pragma omp parallel
        delay(DELAY);
    }
}

static void for_(int n)
{
#pragma omp parallel
    for (int i = 0; i < n; i++) {
#pragma omp for
        for (int j = 0; j < omp_get_num_threads(); j++)
            delay(DELAY);
    }
}

static void parallel_for(int n)
{
    for (int i = 0; i < n; i++) {
        int threads = omp_get_max_threads();
#pragma omp parallel for
        for (int j = 0; j < threads; j++)
            delay(DELAY);
    }
}

static void dynamic(int n)
{
#pragma omp parallel
    for (int i = 0; i < n; i++) {
#pragma omp for schedule(dynamic)
        for (int j = 0; j < omp_get_num_threads(); j++)
            delay(DELAY);
    }
}

static void barrier(int n)
{
#pragma omp parallel
    for (int i = 0; i < n; i++) {
        delay(DELAY);
#pragma omp barrier
    }
}

static void single(int n)
{
#pragma omp parallel
    for (int i = 0; i < n; i++) {
#pragma omp single
        delay(DELAY);
    }
}

static void critical(int n)
{
#pragma omp parallel
    for (int i = 0; i < n / omp_get_num_threads(); i++) {
#pragma omp critical
        delay(DELAY);
    }
}

static void lock(int n)
{
    static omp_lock_t lock;
    omp_init_lock(&lock);
#pragma omp parallel
    for (int i = 0; i < n / omp_get_num_threads(); i++) {
        omp_set_lock(&lock);
        delay(DELAY);
        omp_unset_lock(&lock);
    }
}

static void reduction(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
#pragma omp parallel reduction(+ : sum)
        {
            delay(DELAY);
            sum++;
        }
    }
    if (sum < 0)
        abort();
}

static void tasks(int n)
{
#pragma omp parallel
    for (int i = 0; i < n; i++) {
#pragma omp task
        delay(DELAY);
    }
}

static void tasks_by_one(int n)
{
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < n; i++) {
#pragma omp task
        delay(DELAY);
    }
}

static void taskwait(int n)
{
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < n; i++) {
#pragma omp task
        delay(DELAY);
#pragma omp taskwait
    }
}

static const struct {
    const char *name;
    void (*run)(int);
} constructs[] = {
    {"parallel", parallel},   {"for", for_},         {"parallel-for", parallel_for}, {"dynamic", dynamic},
    {"barrier", barrier},     {"single", single},    {"critical", critical},         {"lock", lock},
    {"reduction", reduction}, {"tasks", tasks},      {"tasks-by-one", tasks_by_one}, {"taskwait", taskwait},
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct each {
    double median, mean;
};

// Microseconds each.
static struct each measure(void (*run)(int), double us)
{
    static double samples[MOST_SAMPLES];
    int n = 8, count = 0;
    double took, all = 0;
    run(1);
    for (;; n *= 2) {
        double began = now();
        run(n);
        took = now() - began;
        if (took * 2 > us || n >= MOST)
            break;
    }
    // Where it was the machine that made us stop early, there are more samples.
    while (count < SAMPLES || (all < us / 2 * SAMPLES && count < MOST_SAMPLES)) {
        double began = now();
        run(n);
        took = now() - began;
        all += took;
        samples[count++] = took / n;
    }
    qsort(samples, count, sizeof *samples, ascending);
    return (struct each){samples[count / 2], all / n / count};
}

int main(int count, char **arguments)
{
    double ms = count > 1 ? atof(arguments[1]) : 20;
    struct each alone = measure(reference, ms * 1000);
    for (size_t i = 0; i < sizeof constructs / sizeof *constructs; i++) {
        int wanted = count <= 2;
        for (int j = 2; j < count; j++)
            wanted |= !strcmp(arguments[j], constructs[i].name);
        if (wanted) {
            struct each it = measure(constructs[i].run, ms * 1000);
            printf("%s %.4f %.4f\n", constructs[i].name, it.median - alone.median, it.mean - alone.median);
            fflush(stdout);
        }
    }
    return 0;
}
