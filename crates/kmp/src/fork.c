// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls with variable arguments: a region's function has a parameter for each variable that it shares.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 256 };

// See `dialect.c` of the crate `omp`.
__attribute__((visibility("hidden"))) const char wakeful_has_llvm_interface = 1;

void wakeful_kmp_fork(void *function, void *const *variables, int count);
void wakeful_kmp_league(void *function, void *const *variables, int count);

// Room for as many as are passed.
static int room(int count)
{
    if (count > MOST) {
        fprintf(stderr, "wakeful: a parallel region with %d shared variables; %d are possible here: put them into a struct\n", count, MOST);
        abort();
    }
    return count <= 4 ? 4 : count <= 16 ? 16 : count <= 64 ? 64 : MOST;
}

#define FORK(name, run)                                                                       \
    __attribute__((visibility("hidden"))) void name(void *place, int count, void *function, ...) \
    {                                                                                         \
        void *variables[room(count)];                                                         \
        va_list list;                                                                         \
        va_start(list, function);                                                             \
        for (int i = 0; i < count; i++)                                                       \
            variables[i] = va_arg(list, void *);                                              \
        va_end(list);                                                                         \
        (void)place;                                                                          \
        run(function, variables, count);                                                      \
    }

FORK(wakeful_fork_call, wakeful_kmp_fork)
FORK(wakeful_fork_teams, wakeful_kmp_league)

#define V4(i) v[i], v[i + 1], v[i + 2], v[i + 3]
#define V16(i) V4(i), V4(i + 4), V4(i + 8), V4(i + 12)
#define V64(i) V16(i), V16(i + 16), V16(i + 32), V16(i + 48)
#define V256(i) V64(i), V64(i + 64), V64(i + 128), V64(i + 192)
#define P4 void *, void *, void *, void *
#define P16 P4, P4, P4, P4
#define P64 P16, P16, P16, P16
#define P256 P64, P64, P64, P64

// Arguments for which a function has no parameters are of no consequence: in the calling conventions of the processors that we know the caller
// clears them away.
__attribute__((visibility("hidden"))) void wakeful_kmp_invoke(void *function, int *thread, int *bound, void *const *v, int count)
{
    if (count <= 4)
        ((void (*)(int *, int *, P4))function)(thread, bound, V4(0));
    else if (count <= 16)
        ((void (*)(int *, int *, P16))function)(thread, bound, V16(0));
    else if (count <= 64)
        ((void (*)(int *, int *, P64))function)(thread, bound, V64(0));
    else
        ((void (*)(int *, int *, P256))function)(thread, bound, V256(0));
}
