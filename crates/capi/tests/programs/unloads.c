// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that is not linked with the library opens it, closes it while a fiber waits in it, and opens it
// again. The library stays (-z nodelete), and so do its kernel threads.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

#include <wakeful.h>
#include "check.h"

static atomic_int begun;
static int ends[2];

static void *blocks(void *argument) {
    begun++;
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    return argument;
}

int main(void) {
    CHECK(pipe(ends) == 0);
    for (int round = 0; round < 3; round++) {
        void *library = dlopen("libwakeful.so", RTLD_NOW | RTLD_LOCAL);
        CHECK(library);
        int (*start)(wakeful_fiber *, const wakeful_fiber_attributes *, void *(*)(void *), void *);
        int (*join)(wakeful_fiber, void **);
        *(void **)&start = dlsym(library, "wakeful_fiber_spawn");
        *(void **)&join = dlsym(library, "wakeful_fiber_join");
        CHECK(start && join);
        wakeful_fiber fiber;
        void *result;
        CHECK(start(&fiber, NULL, blocks, &begun) == 0);
        while (begun <= round)
            usleep(100);
        CHECK(dlclose(library) == 0);
        CHECK(write(ends[1], "x", 1) == 1);
        CHECK(join(fiber, &result) == 0 && result == &begun);
    }
    return 0;
}
