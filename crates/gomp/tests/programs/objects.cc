// SPDX-License-Identifier: MIT OR Apache-2.0
// C++: objects that are copied, combined and destroyed; iterators; as many shared variables as one likes; tasks that are cut into parts.
#include <atomic>
#include <vector>

#include "check.h"

static std::atomic<int> alive;

struct Object {
    int value;
    Object(int value = 1) : value(value) { alive++; }
    Object(const Object &other) : value(other.value) { alive++; }
    Object &operator=(const Object &other) = default;
    Object &operator+=(const Object &other)
    {
        value += other.value;
        return *this;
    }
    ~Object()
    {
        CHECK(value != -1);
        value = -1;
        alive--;
    }
};

#pragma omp declare reduction(sum : Object : omp_out += omp_in) initializer(omp_priv = Object(0))

extern Object own;
#pragma omp threadprivate(own)
Object own(3);

static void copies(int n)
{
    Object first(5), last(0), total(0);
    int seen = 0;
#pragma omp parallel firstprivate(first) reduction(sum : total) reduction(+ : seen)
    {
        CHECK(first.value == 5);
        first.value += omp_get_thread_num();
        total.value += first.value;
        seen++;
    }
    CHECK(seen == n && first.value == 5 && total.value == 5 * n + n * (n - 1) / 2);
#pragma omp parallel for lastprivate(last) schedule(dynamic, 3)
    for (int i = 0; i < 100; i++)
        last = Object(i);
    CHECK(last.value == 99);
#pragma omp parallel
    {
        Object given;
#pragma omp single copyprivate(given)
        given.value = 17;
        CHECK(given.value == 17);
    }
#pragma omp parallel
    own.value++;
#pragma omp parallel
    {
        CHECK(own.value == 4);
        own.value--;
    }
}

static void tasks()
{
    Object first(5);
    int done = 0, last = 0;
#pragma omp parallel
#pragma omp single
    {
        for (int i = 0; i < 50; i++) {
#pragma omp task firstprivate(first) shared(done)
            {
                CHECK(first.value == 5);
                first.value++;
#pragma omp atomic
                done++;
            }
#pragma omp task firstprivate(first) if (0)
            CHECK(first.value == 5);
            // Each of these has three parts.
#pragma omp task firstprivate(first) shared(done) untied
            {
                first.value += i;
#pragma omp task firstprivate(first) shared(done)
                {
                    CHECK(first.value == 5 + i);
#pragma omp atomic
                    done++;
                }
#pragma omp taskwait
                CHECK(first.value == 5 + i);
#pragma omp taskyield
                CHECK(first.value == 5 + i);
            }
        }
#pragma omp taskwait
        CHECK(done == 100);
#pragma omp taskloop firstprivate(first) lastprivate(last) grainsize(7) shared(done)
        for (int i = 0; i < 100; i++) {
            CHECK(first.value == 5);
            last = i;
#pragma omp atomic
            done++;
        }
        CHECK(last == 99 && done == 200);
    }
}

static void iterators()
{
    std::vector<int> numbers(1000, 1);
    long sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (auto it = numbers.begin(); it < numbers.end(); ++it)
        sum += *it;
    CHECK(sum == 1000);
#pragma omp parallel for reduction(+ : sum) schedule(guided) collapse(2)
    for (auto it = numbers.rbegin(); it < numbers.rend(); it += 10)
        for (char c = 'a'; c <= 'j'; c++)
            sum += *it;
    CHECK(sum == 2000);
}

#define EACH(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9)
#define TENS(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6)

// 5, 20 and 70 variables.
static void many(int n)
{
    int few = 0;
    double a = 1, b = 2, c = 3, d = 4;
#pragma omp parallel
    {
        CHECK(a + b + c + d == 10);
#pragma omp atomic
        few++;
    }
    CHECK(few == n);
#define DECLARE(i) int x##i = i, y##i = 10 + i;
    EACH(DECLARE)
    int sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
#define ADD(i) sum += x##i + y##i;
        EACH(ADD)
#pragma omp barrier
        if (omp_get_thread_num() == 0) {
#define ONE_MORE(i) x##i++, y##i++;
            EACH(ONE_MORE)
        }
    }
    CHECK(sum == 190 * n && x9 == 10 && y9 == 20);
#define ROW(i) int a##i = i, b##i = i, c##i = i, d##i = i, e##i = i, f##i = i, g##i = i, h##i = i, j##i = i, k##i = i;
    TENS(ROW)
    sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
#define ADD_ROW(i) sum += a##i + b##i + c##i + d##i + e##i + f##i + g##i + h##i + j##i + k##i;
        TENS(ADD_ROW)
#pragma omp barrier
        if (omp_get_thread_num() == 0) {
#define MORE(i) a##i++, b##i++, c##i++, d##i++, e##i++, f##i++, g##i++, h##i++, j##i++, k##i++;
            TENS(MORE)
        }
    }
    CHECK(sum == 210 * n && k6 == 7);
}

int main()
{
    int n = threads();
    {
        CHECK(own.value == 3);
        int before = alive;
        for (int round = 0; round < 20; round++) {
            copies(n);
            tasks();
            iterators();
            many(n);
        }
        // Other threads keep their copies of what is theirs.
        CHECK(alive >= before && alive < before + 64);
    }
    return 0;
}
