// SPDX-License-Identifier: MIT OR Apache-2.0
// LLVM's interface, called as clang does, with more arguments than clang thinks of: whatever the schedule, each iteration is one member's.
#include <limits.h>
#include <string.h>

#include "check.h"

typedef struct ident ident_t;
#define TYPES(do) do(4, int, int) do(4u, unsigned, int) do(8, long, long) do(8u, unsigned long, long)
#define DECLARE(suffix, type, step_type)                                                                                              \
    void __kmpc_for_static_init_##suffix(ident_t *, int, int, int *, type *, type *, step_type *, step_type, step_type);              \
    void __kmpc_dist_for_static_init_##suffix(ident_t *, int, int, int *, type *, type *, type *, step_type *, step_type, step_type); \
    void __kmpc_dispatch_init_##suffix(ident_t *, int, int, type, type, step_type, step_type);                                        \
    int __kmpc_dispatch_next_##suffix(ident_t *, int, int *, type *, type *, step_type *);
TYPES(DECLARE)
void __kmpc_for_static_fini(ident_t *, int);
int __kmpc_global_thread_num(ident_t *);
int __kmpc_masked(ident_t *, int, int);

enum { STATIC_CHUNKED = 33, STATIC = 34, DYNAMIC = 35, GUIDED = 36, RUNTIME = 37, AUTO = 38, TRAPEZOIDAL = 39, STEAL = 44 };
enum { MOST = 300 };
static int hits[MOST], lasts;

// The iterations of a part, which must lie within the loop.
#define COUNT(type, signed_, first_, low, high, last_, step, is_last, total)                                     \
    do {                                                                                                \
        for (type i_ = low; step > 0 ? i_ <= high : i_ >= high; i_ += step) {                           \
            int place_ = (int)((signed_)(i_ - first_) / step);                                            \
            CHECK(place_ >= 0 && place_ < total);                                                       \
            _Pragma("omp atomic") hits[place_]++;                                                       \
            if (place_ == total - 1) {                                                                  \
                CHECK(is_last);                                                                         \
                _Pragma("omp atomic") lasts++;                                                          \
            }                                                                                           \
            if (i_ == last_)                                                                            \
                break;                                                                                  \
        }                                                                                               \
    } while (0)

static void once(int total)
{
    for (int i = 0; i < total; i++)
        CHECK(hits[i] == 1);
    CHECK(lasts == 1);
    memset(hits, 0, sizeof hits);
    lasts = 0;
}

#define LOOPS(suffix, type, step_type)                                                                       \
    static void loops_##suffix(type first, step_type step, int total)                                        \
    {                                                                                                        \
        type last = first + (type)(step * (total - 1));                                                      \
        for (int chunk = 0; chunk < 8; chunk += 1 + chunk) {                                                 \
            _Pragma("omp parallel")                                                                          \
            {                                                                                                \
                int is_last = 0, me = __kmpc_global_thread_num(0);                                           \
                type low = first, high = last;                                                               \
                step_type stride = 1;                                                                        \
                __kmpc_for_static_init_##suffix(0, me, STATIC, &is_last, &low, &high, &stride, step, chunk); \
                COUNT(type, step_type, first, low, high, last, step, is_last, total);                                   \
                __kmpc_for_static_fini(0, me);                                                               \
            }                                                                                                \
            once(total);                                                                                     \
            _Pragma("omp parallel")                                                                          \
            {                                                                                                \
                int is_last = 0, me = __kmpc_global_thread_num(0);                                           \
                type low = first, high = last, team = last;                                                  \
                step_type stride = 1;                                                                        \
                __kmpc_dist_for_static_init_##suffix(0, me, STATIC, &is_last, &low, &high, &team, &stride, step, chunk); \
                CHECK(team == last);                                                                         \
                COUNT(type, step_type, first, low, high, last, step, is_last, total);                                   \
                __kmpc_for_static_fini(0, me);                                                               \
            }                                                                                                \
            once(total);                                                                                     \
            static const int kinds[] = {STATIC_CHUNKED, STATIC, DYNAMIC, GUIDED, RUNTIME, AUTO, TRAPEZOIDAL, STEAL}; \
            for (int kind = 0; kind < 16; kind++) {                                                          \
                int flags = kind >= 8 ? 1 << 29 : 0;                                                         \
                _Pragma("omp parallel")                                                                      \
                {                                                                                            \
                    int is_last, me = __kmpc_global_thread_num(0);                                           \
                    type low, high;                                                                          \
                    step_type stride;                                                                        \
                    __kmpc_dispatch_init_##suffix(0, me, kinds[kind % 8] | flags, first, last, step, chunk); \
                    while (__kmpc_dispatch_next_##suffix(0, me, &is_last, &low, &high, &stride))             \
                        COUNT(type, step_type, first, low, high, last, step, is_last, total);                           \
                }                                                                                            \
                once(total);                                                                                 \
            }                                                                                                \
        }                                                                                                    \
    }
TYPES(LOOPS)

int main(void)
{
    for (int total = 1; total <= MOST; total += 1 + total) {
        loops_4(-7, 3, total);
        loops_4(INT_MAX - 2 * total, 1, total);
        loops_4(INT_MIN + total, -1, total);
        loops_4u(5, 7, total);
        loops_4u(UINT_MAX - 1, -2, total);
        loops_8(LONG_MAX - 4 * total, 3, total);
        loops_8(-100, -100, total);
        loops_8u(ULONG_MAX - 2 * (unsigned long)total, 1, total);
        loops_8u(ULONG_MAX / 2, -5, total);
    }
    int masked = 0;
#pragma omp parallel num_threads(4)
    if (__kmpc_masked(0, __kmpc_global_thread_num(0), 3))
        masked++;
    CHECK(masked == 1);
    return 0;
}
