// SPDX-License-Identifier: MIT OR Apache-2.0
// How many system calls the constructs make, once the team is there: none, with a processor for each.
// With more members they make none but to wait and to look at the load. A passive team of two makes as many
// as the table tells.
#include "counted.h"
#include "check.h"

static int n_threads, sum;
static omp_lock_t lock;
static omp_nest_lock_t nest;

// Each runs its construct so often.
static void parallel(int n)
{
    for (int i = 0; i < n; i++) {
#pragma omp parallel
#pragma omp atomic
        sum++;
    }
}

static void parallel_for(int n)
{
    for (int i = 0; i < n; i++) {
#pragma omp parallel for
        for (int j = 0; j < 2 * n_threads; j++)
#pragma omp atomic
            sum++;
    }
}

static void reduction(int n)
{
    int all = 0;
    for (int i = 0; i < n; i++) {
#pragma omp parallel for reduction(+ : all)
        for (int j = 0; j < 2 * n_threads; j++)
            all++;
    }
    sum += all;
}

#define IN_REGION(name, ...)                \
    static void name(int n)                 \
    {                                       \
        _Pragma("omp parallel")             \
        for (int i = 0; i < n; i++) {       \
            __VA_ARGS__                     \
        }                                   \
    }
#define LOOP(...)                           \
    _Pragma(__VA_ARGS__)                    \
    for (int j = 0; j < 2 * n_threads; j++) \
        add();

static void add(void)
{
#pragma omp atomic
    sum++;
}

IN_REGION(barrier, _Pragma("omp barrier"))
IN_REGION(for_static, LOOP("omp for schedule(static)"))
IN_REGION(for_dynamic, LOOP("omp for schedule(dynamic)"))
IN_REGION(for_guided, LOOP("omp for schedule(guided)"))
IN_REGION(for_ordered, _Pragma("omp for ordered") for (int j = 0; j < 2 * n_threads; j++) {
    _Pragma("omp ordered") add();
})
IN_REGION(sections, _Pragma("omp sections") {
    _Pragma("omp section") add();
    _Pragma("omp section") add();
})
IN_REGION(single, _Pragma("omp single") add();)
IN_REGION(copied, int own = i; _Pragma("omp single copyprivate(own)") own++; sum += own == i;)
IN_REGION(master, _Pragma("omp master") add();)
IN_REGION(critical, _Pragma("omp critical") sum++;)
IN_REGION(named, _Pragma("omp critical(other)") sum++;)
IN_REGION(locks, omp_set_lock(&lock); sum++; omp_unset_lock(&lock);)
IN_REGION(nest_locks, omp_set_nest_lock(&nest); sum++; omp_unset_nest_lock(&nest);)
IN_REGION(task, _Pragma("omp task") add();)
IN_REGION(taskwait, _Pragma("omp task") add(); _Pragma("omp taskwait"))
IN_REGION(taskgroup, _Pragma("omp taskgroup") { _Pragma("omp task") add(); })
IN_REGION(taskloop, LOOP("omp taskloop"))
IN_REGION(depend, _Pragma("omp task depend(out : i)") add(); _Pragma("omp task depend(in : i)") add();
          _Pragma("omp taskwait"))

static const struct {
    const char *name;
    void (*run)(int);
    // Of two passive members, calls at most in the best batch: one sleeps, once more if it is called as it
    // lies down, and the other one wakes it.
    int passive;
} constructs[] = {
    {"parallel", parallel, 3},
    {"parallel for", parallel_for, 3},
    {"reduction", reduction, 3},
    {"barrier", barrier, 3},
    {"for schedule(static)", for_static, 3},
    {"for schedule(dynamic)", for_dynamic, 3},
    {"for schedule(guided)", for_guided, 3},
    {"for ordered", for_ordered, 4},
    {"sections", sections, 3},
    {"single", single, 3},
    {"single copyprivate", copied, 5},
    {"master", master, 1},
    {"critical", critical, 1},
    {"critical(other)", named, 1},
    {"omp_set_lock", locks, 1},
    {"omp_set_nest_lock", nest_locks, 1},
    {"task", task, 3},
    {"taskwait", taskwait, 3},
    {"taskgroup", taskgroup, 3},
    {"taskloop", taskloop, 3},
    {"depend", depend, 3},
};

int main(void)
{
    const char *policy = getenv("OMP_WAIT_POLICY");
    int passive = policy && !strcmp(policy, "passive");
    n_threads = omp_get_max_threads();
    counted_alone = n_threads == 1;
    omp_init_lock(&lock);
    omp_init_nest_lock(&nest);
    counted_begin();
    for (unsigned i = 0; i < sizeof constructs / sizeof *constructs; i++) {
        int told = passive ? constructs[i].passive : 0;
        // More threads than processors take turns there.
        if (n_threads > (passive ? 2 : omp_get_num_procs()))
            told = -1;
        CHECK(counted_check(constructs[i].name, constructs[i].run, told) == 0);
    }
    return sum < 0;
}
