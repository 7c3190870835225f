// SPDX-License-Identifier: MIT OR Apache-2.0
// What a target region has of its own: copies, a team, a limit; and tasks that it waits for, or that wait for
// it.
#include "check.h"

struct Record {
    int numbers[3];
    double value;
};

static void by_reference(int &number, Record &record, int (&list)[4])
{
#pragma omp target firstprivate(number, record, list)
    {
        CHECK(number == 1 && record.numbers[1] == 2 && list[3] == 4);
        number = record.numbers[1] = list[3] = 99;
    }
}

static void copies()
{
    int list[4] = {1, 2, 3, 4}, number = 1;
    Record record = {{1, 2, 3}, 4};
    alignas(64) char aligned[64] = "aligned";
#pragma omp target firstprivate(list, record, number, aligned)
    {
        CHECK(list[2] == 3 && record.value == 4 && number == 1 && (size_t)aligned % 64 == 0 && aligned[6] == 'd');
        list[2] = number = 77;
        record.value = 88;
        aligned[6] = 'x';
    }
    CHECK(list[2] == 3 && record.value == 4 && number == 1 && aligned[6] == 'd');
    by_reference(number, record, list);
    CHECK(number == 1 && record.numbers[1] == 2 && list[3] == 4);
}

// Tasks and target constructs follow each other, also where nobody waits for them here.
static void dependences()
{
    int x = 0, seen = 0, go = 0;
#pragma omp parallel num_threads(4)
#pragma omp single
    for (int round = 0; round < 20; round++) {
        omp_event_handle_t event = (omp_event_handle_t)0;
        x = seen = go = 0;
#pragma omp task depend(out : x) shared(x, go)
        {
            for (int on = 0; !on;) {
#pragma omp atomic read
                on = go;
            }
            x = 1;
        }
#pragma omp target nowait map(tofrom : x, seen) depend(inout : x)
        {
            seen = x;
            x = 2;
        }
#pragma omp target enter data map(to : x) depend(inout : x) nowait
#pragma omp target update to(x) depend(inout : x) nowait
#pragma omp task depend(inout : x) shared(x) if (1)
        x *= 10;
#pragma omp atomic write
        go = 1;
#pragma omp target map(tofrom : x) depend(inout : x)
        x++;
        CHECK(seen == 1 && x == 21);
        // Complete only when the event has come, for which who has met the construct does not wait.
        int after = 0;
#pragma omp task detach(event) depend(out : after)
        {
        }
        int copy[8] = {round};
#pragma omp target nowait map(from : after) firstprivate(copy) depend(inout : after)
        after = 1 + copy[0];
        copy[0] = -1;
        omp_fulfill_event(event);
#pragma omp taskwait
        CHECK(after == 1 + round);
    }
}

static void limits(int n)
{
    int limit = 0, size = 0, outside = omp_get_thread_limit();
#pragma omp target thread_limit(2) map(from : limit, size)
    {
        limit = omp_get_thread_limit();
#pragma omp parallel num_threads(4)
#pragma omp single
        size = omp_get_num_threads();
    }
    CHECK(limit == 2 && size >= 1 && size <= 2 && omp_get_thread_limit() == outside);
#ifndef __clang__
    // gcc's is the region of a new initial task; clang's code for the host is part of the one around it.
    int wrong = 0;
#pragma omp parallel num_threads(n) reduction(+ : wrong)
    {
#pragma omp target map(tofrom : wrong)
        {
            wrong += omp_get_num_threads() != 1 || omp_get_thread_num() != 0 || omp_in_parallel() || omp_get_level() != 0;
            int inside = 0;
#pragma omp parallel num_threads(2) reduction(+ : inside)
            inside += omp_get_level();
            wrong += inside != 2;
        }
        wrong += omp_get_num_threads() != n;
    }
    CHECK(wrong == 0);
#endif
}

int main()
{
    copies();
    dependences();
    limits(threads());
    return 0;
}
