// SPDX-License-Identifier: MIT OR Apache-2.0
// Objects that tasks have copies of: each is destroyed, also those of tasks that are cancelled, and of what a loop's tasks are made after.
// Runs with OMP_CANCELLATION=true.
#include "check.h"

static int objects;

struct Object {
    int value;
    Object() : value(7) { __atomic_fetch_add(&objects, 1, __ATOMIC_RELAXED); }
    Object(const Object &other) : value(other.value) { __atomic_fetch_add(&objects, 1, __ATOMIC_RELAXED); }
    ~Object() { __atomic_fetch_sub(&objects, 1, __ATOMIC_RELAXED); }
};

int main()
{
    Object object;
#pragma omp parallel
#pragma omp single
    {
#pragma omp taskloop firstprivate(object)
        for (int i = 0; i < 100; i++)
            CHECK(object.value == 7);
        CHECK(objects == 1);
#pragma omp taskgroup
        for (int i = 0; i < 100; i++) {
#pragma omp task firstprivate(object)
            {
                CHECK(object.value == 7);
#pragma omp cancel taskgroup
            }
        }
    }
    CHECK(objects == 1);
    return 0;
}
