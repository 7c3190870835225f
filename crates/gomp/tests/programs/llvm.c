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

// Loops for vectors: all chunks but the last are multiples of their width, by which the program may count on
// without a look at the end.
enum { BALANCED = 45, GUIDED_SIMD = 46, RUNTIME_SIMD = 47, WIDTH = 4 };

static void vectors(int kind, int total, int multiple)
{
    int all = 0;
#pragma omp parallel reduction(+ : all)
    {
        int is_last, me = __kmpc_global_thread_num(0), low, high, stride;
        __kmpc_dispatch_init_4(0, me, kind, 0, total - 1, 1, WIDTH);
        while (__kmpc_dispatch_next_4(0, me, &is_last, &low, &high, &stride)) {
            CHECK(low % multiple == 0 && (high == total - 1 || (high + 1) % multiple == 0));
            for (int i = low; i <= high; i += WIDTH)
                all += i + WIDTH <= total ? WIDTH : total - i;
        }
    }
    CHECK(all == total);
}

static void all_vectors(void)
{
    for (int total = 1; total < 200; total += 13) {
        vectors(GUIDED_SIMD, total, WIDTH);
        vectors(BALANCED, total, WIDTH);
        omp_set_schedule(omp_sched_static, 0);
        vectors(RUNTIME_SIMD, total, WIDTH);
        omp_set_schedule(omp_sched_static, 3);
        vectors(RUNTIME_SIMD, total, 3 * WIDTH);
        omp_set_schedule(omp_sched_dynamic, 2);
        vectors(RUNTIME_SIMD, total, 2 * WIDTH);
        omp_set_schedule(omp_sched_guided, 2);
        vectors(RUNTIME_SIMD, total, 2 * WIDTH);
        omp_set_schedule(omp_sched_auto, 0);
        vectors(RUNTIME_SIMD, total, WIDTH);
    }
}

// Dependences as other compilers make them: the greatest address is all memory.
typedef struct {
    void *shared;
    int (*routine)(int, void *);
} task_t;
typedef struct {
    long address;
    long length;
    unsigned char flags;
} depend_t;
task_t *__kmpc_omp_task_alloc(ident_t *, int, int, size_t, size_t, int (*)(int, void *));
int __kmpc_omp_task_with_deps(ident_t *, int, task_t *, int, depend_t *, int, depend_t *);
void __kmpc_omp_taskwait_deps_51(ident_t *, int, int, depend_t *, int, depend_t *, int);
enum { IN = 1, INOUT = 3 };
static int step;

static int next(int number, void *task)
{
    (void)number;
    int expected = *(int *)((char *)task + sizeof(task_t) + 32);
    CHECK(step == expected);
    step++;
    return 0;
}

static void launch(int expected, int count, depend_t *list)
{
    int me = __kmpc_global_thread_num(0);
    task_t *task = __kmpc_omp_task_alloc(0, me, 1, sizeof(task_t) + 40, 0, next);
    *(int *)((char *)task + sizeof(task_t) + 32) = expected;
    __kmpc_omp_task_with_deps(0, me, task, count, list, 0, NULL);
}

static void all_memory(void)
{
    static int x, y;
    depend_t of_x = {(long)&x, sizeof x, INOUT}, of_y = {(long)&y, sizeof y, INOUT}, all = {-1, 0, INOUT}, in_y = {(long)&y, sizeof y, IN};
    for (int round = 0; round < 20; round++) {
        step = 0;
#pragma omp parallel
#pragma omp single
        {
            int me = __kmpc_global_thread_num(0);
            omp_event_handle_t event = (omp_event_handle_t)0;
            launch(0, 1, &of_x);
            launch(1, 2, (depend_t[]){all, of_y});
            launch(2, 2, (depend_t[]){of_x, all});
            launch(3, 1, &of_y);
#pragma omp taskwait
            CHECK(step == 4);
            // Others follow what nobody waits for here.
            step = 0;
#pragma omp task detach(event) depend(out : y)
            {
            }
            __kmpc_omp_taskwait_deps_51(0, me, 2, (depend_t[]){in_y, of_x}, 0, NULL, 1);
            launch(0, 1, &of_x);
            CHECK(step == 0);
            omp_fulfill_event(event);
#pragma omp taskwait
            CHECK(step == 1);
        }
    }
}

int main(void)
{
    char text[100];
    omp_capture_affinity(text, sizeof text, "%04n|%{nothing}|%.3q");
    CHECK(strcmp(text, "0   |undefined|undefined") == 0);
    all_memory();
    all_vectors();
    omp_set_schedule(omp_sched_dynamic, 1);
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
