// SPDX-License-Identifier: MIT OR Apache-2.0
// Tasks that follow others: lists of no entries, predecessors that an event completes, groups that are
// cancelled with a loop inside.
#include "check.h"

// A predecessor is complete when this thread says so, which comes to that after the construct.
static void events(void)
{
    for (int round = 0; round < 20; round++) {
        omp_event_handle_t event = (omp_event_handle_t)0;
        int x = 0, order = 0;
        (void)x;
#pragma omp task detach(event) depend(out : x)
        {
        }
#pragma omp task depend(inout : x) shared(order)
        order = order * 10 + 1;
#pragma omp task depend(in : x) shared(order)
        order = order * 10 + 2;
        CHECK(order == 0);
        omp_fulfill_event(event);
#pragma omp taskwait
        CHECK(order == 12);
    }
}

static void nothing(int none)
{
    static int a[4];
    (void)a;
    int done = 0;
    for (int round = 0; round < 50; round++) {
#pragma omp task depend(iterator(i = 0 : none), out : a[i]) shared(done)
        {
#pragma omp atomic
            done++;
        }
#pragma omp taskwait depend(iterator(i = 0 : none), in : a[i])
    }
#pragma omp taskwait
    CHECK(done == 50);
    long sum = 3;
    double product = 2;
#pragma omp taskloop reduction(+ : sum) reduction(* : product)
    for (int i = 0; i < none; i++)
        sum += i, product *= i;
#pragma omp taskloop reduction(+ : sum)
    for (unsigned long i = (unsigned long)none; i > 5; i--)
        sum += 1;
    CHECK(sum == 3 && product == 2);
}

// A group's end is the end of the tasks of a loop in it.
static void cancelled(int n)
{
    for (int round = 0; round < 20; round++) {
        int before = 0, after = 0, sum = 0;
#pragma omp parallel num_threads(n)
#pragma omp taskgroup
        {
#pragma omp task if (0)
            {
#pragma omp cancel taskgroup
            }
#pragma omp for reduction(task, + : sum)
            for (int i = 0; i < 2 * n; i++)
                for (int j = 0; j < 10; j++) {
#pragma omp task in_reduction(+ : sum)
                    {
                        sum++;
#pragma omp atomic
                        before++;
                    }
                }
        }
        CHECK(before == 0 && sum == 0);
#pragma omp parallel num_threads(n)
#pragma omp taskgroup
        {
#pragma omp for reduction(task, + : sum)
            for (int i = 0; i < n; i++) {
#pragma omp task in_reduction(+ : sum) if (0)
                {
                    sum++;
#pragma omp cancel taskgroup
                }
            }
#pragma omp task
            {
#pragma omp atomic
                after++;
            }
        }
        CHECK(sum == n && after == 0);
    }
}

int main(void)
{
    int n = threads();
    volatile int none = 0;
#pragma omp parallel
#pragma omp single
    {
        events();
        nothing(none);
    }
    // Outside of any region libgomp waits for the event at once.
    if (wakeful_omp_version)
        events();
    nothing(none);
    cancelled(n);
    return 0;
}
