// SPDX-License-Identifier: MIT OR Apache-2.0
// Exceptions that are caught in the region, the construct or the task in which they are thrown.
#include <stdexcept>
#include <vector>

#include "check.h"

struct Counted {
    int value = 0;
    Counted() { change(1); }
    Counted(const Counted &other) : value(other.value) { change(1); }
    ~Counted() { change(-1); }
    static void change(int by)
    {
#pragma omp atomic
        alive += by;
    }
    static int alive;
};
int Counted::alive = 0;

int main()
{
    int n = threads(), caught = 0;
    for (int round = 0; round < 20; round++) {
        caught = 0;
#pragma omp parallel reduction(+ : caught)
        {
            try {
                Counted counted;
                throw std::runtime_error("here");
            } catch (const std::runtime_error &) {
                caught++;
            }
#pragma omp for schedule(dynamic)
            for (int i = 0; i < 50; i++) {
                try {
                    if (i % 2)
                        throw i;
                } catch (int j) {
                    caught += j == i;
                }
            }
#pragma omp critical
            try {
                throw 1;
            } catch (...) {
                caught++;
            }
        }
        CHECK(caught == 2 * n + 25);
        caught = 0;
        Counted given;
        given.value = 7;
#pragma omp parallel
#pragma omp single
        for (int i = 0; i < 50; i++) {
#pragma omp task firstprivate(given)
            try {
                throw given.value;
            } catch (int value) {
#pragma omp atomic
                caught += value;
            }
        }
        CHECK(caught == 350);
    }
    CHECK(Counted::alive == 0);
    return 0;
}
