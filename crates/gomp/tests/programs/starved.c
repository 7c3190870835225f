// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads cannot be made, at first: a team goes on with those that it has.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include "check.h"

static int left;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (left-- <= 0)
        return EAGAIN;
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return create(thread, attributes, function, argument);
}

static int members(int wanted)
{
    int all = 0, sum = 0;
#pragma omp parallel num_threads(wanted) reduction(+ : all)
    {
        all++;
#pragma omp for schedule(dynamic) reduction(+ : sum)
        for (int i = 0; i < 100; i++)
            sum += i;
#pragma omp barrier
        CHECK(omp_get_num_threads() >= 1 && omp_get_num_threads() <= wanted);
    }
    CHECK(sum == 4950);
    return all;
}

int main(void)
{
    CHECK(members(8) == 1);
    left = 2;
    CHECK(members(8) == 3 && members(8) == 3 && members(2) == 2);
    left = 100;
    CHECK(members(8) == 8);
    return 0;
}
