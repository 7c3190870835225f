// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that runs out of memory. Usage: short WHAT N THREADS. WHAT: `one`, the Nth allocation fails, `two`,
// that one and the next, `from`, that one and all later ones, `space`, the process may map N KB more, or `threads`,
// N threads can be had. The answers are the same, by fewer threads. Exit status 0, or 77 if nothing failed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static atomic_long left, threads_left = -1;
static long failing;
static atomic_int failed;

static int fails(void)
{
    long now = failing ? left-- : 2;

    if (now > 1 || now <= 1 - failing)
        return 0;
    failed = 1;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return fails() ? 0 : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails() ? 0 : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails() ? 0 : __libc_realloc(old, size); }
void *memalign(size_t alignment, size_t size) { return fails() ? 0 : __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **place, size_t alignment, size_t size)
{
    return (*place = memalign(alignment, size)) ? 0 : ENOMEM;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                   void *argument)
{
    static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    if (!create)
        *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    if (threads_left == 0) {
        failed = 1;
        return EAGAIN;
    }
    if (threads_left > 0)
        threads_left--;
    return create(thread, attributes, function, argument);
}

static void be_short(const char *what, long n)
{
    if (!strcmp(what, "threads")) {
        threads_left = n;
    } else if (!strcmp(what, "space")) {
        struct rlimit limit;
        char text[64] = "";
        FILE *file = fopen("/proc/self/statm", "r");

        CHECK(file && fgets(text, sizeof text, file));
        fclose(file);
        limit.rlim_cur = limit.rlim_max = atol(text) * 4096 + n * 1024;
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        failed = 1;
    } else {
        left = n;
        failing = !strcmp(what, "one") ? 1 : !strcmp(what, "two") ? 2 : 1L << 60;
    }
}

static int wanted;
static int own = 3;
#pragma omp threadprivate(own)

static void copies(void)
{
    int wrong = 0, here = 1, there = 5;

#pragma omp parallel num_threads(wanted) copyin(own) reduction(+ : wrong)
    {
        own += omp_get_thread_num();
#pragma omp barrier
        wrong += own != 3 + omp_get_thread_num();
    }
    own = 3;
    CHECK(wrong == 0);
#pragma omp target map(tofrom : here) firstprivate(there)
    here += there;
#pragma omp target nowait depend(inout : here) map(tofrom : here) firstprivate(there)
    here += there++;
#pragma omp taskwait
    CHECK(here == 11 && there == 5);
}

static void formats(void)
{
    char text[64];

    omp_set_affinity_format("%N of %n");
    CHECK(omp_get_affinity_format(text, sizeof text) <= 8);
    CHECK(omp_capture_affinity(text, sizeof text, "%{thread_num} %H %A") < 1000);
}

static void loops(void)
{
    int sum = 0, in_order = 0, parts = 0, mapped = 0, products[4] = {0};

#pragma omp parallel num_threads(wanted) reduction(+ : sum, products)
    {
        int copied = 0;

#pragma omp for schedule(dynamic, 3)
        for (int i = 0; i < 100; i++)
            sum += i, products[i % 4]++;
#pragma omp for schedule(guided) ordered
        for (int i = 0; i < 40; i++) {
#pragma omp ordered
            CHECK(in_order++ == i);
        }
#pragma omp sections
        {
#pragma omp section
#pragma omp atomic
            parts += 1;
#pragma omp section
#pragma omp atomic
            parts += 2;
        }
#pragma omp single copyprivate(copied)
        copied = 7;
        CHECK(copied == 7);
#pragma omp critical(named)
        mapped++;
#pragma omp barrier
        CHECK(mapped == omp_get_num_threads());
    }
    CHECK(sum == 4950 && in_order == 40 && parts == 3 && products[1] == 25);
}

static void crosses(void)
{
    int done[24] = {0};

#pragma omp parallel for ordered(1) schedule(static, 1) num_threads(wanted)
    for (int i = 0; i < 24; i++) {
#pragma omp ordered depend(sink : i - 1)
        done[i] = i ? done[i - 1] + 1 : 1;
#pragma omp ordered depend(source)
    }
    CHECK(done[23] == 24);
}

static long tree(int depth)
{
    long a, b;

    if (depth < 2)
        return 1;
#pragma omp task shared(a) firstprivate(depth)
    a = tree(depth - 1);
#pragma omp task shared(b) firstprivate(depth)
    b = tree(depth - 2);
#pragma omp taskwait
    return a + b;
}

static void tasks(void)
{
    long result = 0, grouped = 0, looped = 0, reduced = 0;
    int chain = 0, readers = 0, first[3] = {0};

#pragma omp parallel num_threads(wanted)
#pragma omp single
    {
        result = tree(9);
        for (int i = 0; i < 12; i++) {
#pragma omp task depend(inout : chain) firstprivate(i) shared(chain)
            CHECK(chain++ == i);
        }
        for (int i = 0; i < 6; i++) {
#pragma omp task depend(in : chain) shared(chain, readers)
            {
                CHECK(chain == 12);
#pragma omp atomic
                readers++;
            }
        }
#pragma omp task depend(out : chain) depend(inout : first[0], first[1]) shared(chain, readers, first)
        {
            CHECK(readers == 6);
            chain = first[0] = 100;
        }
#pragma omp task depend(in : first[0]) depend(out : first[2]) shared(first)
        first[2] = first[0] + 1;
#pragma omp taskwait depend(in : first[2])
        CHECK(first[2] == 101);
#pragma omp taskgroup
        {
            for (int i = 0; i < 10; i++) {
#pragma omp task shared(grouped) priority(i)
#pragma omp atomic
                grouped++;
            }
        }
        CHECK(grouped == 10);
#pragma omp taskloop shared(looped) grainsize(4)
        for (int i = 0; i < 40; i++) {
#pragma omp atomic
            looped += i;
        }
#pragma omp taskgroup task_reduction(+ : reduced)
        for (int i = 0; i < 10; i++) {
#pragma omp task in_reduction(+ : reduced)
            reduced += i;
        }
    }
    CHECK(result == 55 && chain == 100 && looped == 780 && reduced == 45);
}

// Nobody but the region's end waits for the innermost.
static void orphans(void)
{
    int done = 0;

#pragma omp parallel num_threads(wanted)
#pragma omp single
    for (int i = 0; i < 4; i++) {
#pragma omp task shared(done)
        {
#pragma omp task shared(done)
            {
#pragma omp task shared(done)
                {
#pragma omp atomic
                    done++;
                }
            }
        }
    }
    CHECK(done == 4);
}

static void inside(void)
{
    int outer = 0, inner = 0;

    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2) reduction(+ : outer, inner)
    {
        int all = 0;

        outer++;
#pragma omp parallel num_threads(3) reduction(+ : all)
        all++;
        CHECK(all >= 1 && all <= 3);
        inner += all;
    }
    CHECK(outer >= 1 && outer <= 2 && inner >= outer && inner <= 6);
}

static void locks(void)
{
    omp_nest_lock_t nest;
    omp_lock_t lock;
    int count = 0, members = 0;

    omp_init_lock(&lock);
    omp_init_nest_lock(&nest);
#pragma omp parallel num_threads(wanted) reduction(+ : members)
    {
        members++;
        omp_set_nest_lock(&nest);
        omp_set_nest_lock(&nest);
        omp_set_lock(&lock);
        count++;
        omp_unset_lock(&lock);
        omp_unset_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
    }
    omp_destroy_nest_lock(&nest);
    omp_destroy_lock(&lock);
    CHECK(count == members);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    wanted = atoi(argv[3]);
    alarm(60);
    be_short(argv[1], atol(argv[2]));
    for (int round = 0; round < 2; round++) {
        orphans();
        loops();
        crosses();
        tasks();
        inside();
        locks();
        copies();
        formats();
    }
    failing = 0;
    return failed ? 0 : 77;
}
