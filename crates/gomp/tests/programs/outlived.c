// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread waits for a task that another thread completes, and ends. Its team goes with it, and nobody
// touches that any more. One that ends without waiting leaves its team to the task.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { ROUNDS = 6, LARGE = 2048, MOST = 4096 };

static unsigned char *kept[MOST];
static size_t sizes[MOST];
static int count;

void __libc_free(void *);

// What is large enough for a team stays, so that it is seen who writes to it. A pointer there is none.
void free(void *block)
{
    size_t size = block ? malloc_usable_size(block) : 0;
    int at = size >= LARGE ? __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED) : MOST;
    if (at >= MOST) {
        __libc_free(block);
        return;
    }
    memset(block, 0xff, size);
    sizes[at] = size;
    kept[at] = block;
}

static omp_event_handle_t event;
static int is_made;
static int has_ended;

static void *outside_of_regions(void *nothing)
{
    omp_event_handle_t own;
#pragma omp task detach(own)
    {
        event = own;
        __atomic_store_n(&is_made, 1, __ATOMIC_RELEASE);
    }
#pragma omp taskwait
    return nothing;
}

static void *in_a_region(void *nothing)
{
#pragma omp parallel num_threads(1)
    outside_of_regions(NULL);
    return nothing;
}

static void *without_a_wait(void *nothing)
{
    omp_event_handle_t own;
#pragma omp task detach(own)
    event = own;
#pragma omp taskyield
    __atomic_store_n(&is_made, 1, __ATOMIC_RELEASE);
    return nothing;
}

// As soon as it has woken the other thread, that one goes on.
static void *complete(void *nothing)
{
    while (!__atomic_load_n(nothing ? &has_ended : &is_made, __ATOMIC_ACQUIRE))
        usleep(50);
    usleep(200);
    struct sched_param none = {0};
    CHECK(sched_setscheduler(0, SCHED_IDLE, &none) == 0);
    omp_fulfill_event(event);
    return nothing;
}

// With an argument also what the compiler's own runtime hangs at.
int main(int argc, char **argv)
{
    (void)argv;
    int of = argc > 1 ? 3 : 2;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t waits, completes;
        void *(*const kinds[])(void *) = {in_a_region, outside_of_regions, without_a_wait};
        is_made = has_ended = 0;
        CHECK(pthread_create(&completes, NULL, complete, round % of == 2 ? &has_ended : NULL) == 0);
        CHECK(pthread_create(&waits, NULL, kinds[round % of], NULL) == 0);
        CHECK(pthread_join(waits, NULL) == 0);
        __atomic_store_n(&has_ended, 1, __ATOMIC_RELEASE);
        CHECK(pthread_join(completes, NULL) == 0);
    }
    for (int i = 0; i < MOST && kept[i]; i++)
        for (size_t byte = 0; byte < sizes[i]; byte++)
            CHECK(kept[i][byte] == 0xff);
    return 0;
}
