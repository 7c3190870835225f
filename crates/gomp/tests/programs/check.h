// SPDX-License-Identifier: MIT OR Apache-2.0
// What the programs have in common: a failed check ends the program, and says where.
#ifndef CHECK_H
#define CHECK_H

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __clang__
// A loop that is to be vectorised and cannot be is none of our business.
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

#define CHECK(condition)                                                           \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _Exit(1);                                                              \
        }                                                                          \
    } while (0)

#ifdef __cplusplus
extern "C"
#endif
const char *wakeful_omp_version(void) __attribute__((weak));

// A library that is not found is passed over, and what runs is the compiler's.
__attribute__((constructor)) static void runs_on_what_is_preloaded(void)
{
    CHECK(!getenv("LD_PRELOAD") || wakeful_omp_version);
}

// The team's size, of which the environment tells the runtime.
static inline int threads(void) { return atoi(getenv("OMP_NUM_THREADS")); }

#endif
