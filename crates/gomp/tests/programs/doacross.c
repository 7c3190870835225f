// SPDX-License-Identifier: MIT OR Apache-2.0
// Loops whose iterations wait for each other: ordered(n) with depend(sink) and depend(source).
#include "check.h"

enum { N = 60, M = 70 };

#define WAVE(schedule_, type)                                                                       \
    do {                                                                                            \
        static long a[N][M];                                                                        \
        for (int i = 0; i < N; i++)                                                                 \
            for (int j = 0; j < M; j++) a[i][j] = i == 0 || j == 0;                                 \
        PRAGMA(omp parallel for ordered(2) schedule_)                                               \
        for (type i = 1; i < N; i++)                                                                \
            for (type j = 1; j < M; j++) {                                                          \
                PRAGMA(omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1))                 \
                a[i][j] = (a[i - 1][j] + a[i][j - 1]) % 1000003;                                    \
                PRAGMA(omp ordered depend(source))                                                  \
            }                                                                                       \
        long b[M];                                                                                  \
        for (int j = 0; j < M; j++) b[j] = 1;                                                       \
        for (int i = 1; i < N; i++)                                                                 \
            for (int j = 1; j < M; j++) b[j] = (b[j] + b[j - 1]) % 1000003;                         \
        CHECK(a[N - 1][M - 1] == b[M - 1]);                                                         \
    } while (0)
#define PRAGMA(text) _Pragma(#text)

int main(void)
{
    for (int round = 0; round < 3; round++) {
        WAVE(schedule(static), int);
        WAVE(schedule(static, 1), int);
        WAVE(schedule(dynamic), int);
        WAVE(schedule(dynamic, 3), int);
        WAVE(schedule(guided), int);
        WAVE(schedule(runtime), int);
        WAVE(schedule(static), unsigned long long);
        WAVE(schedule(dynamic, 2), unsigned long long);
        int chain[100] = {0};
#pragma omp parallel for ordered(1) schedule(static, 1)
        for (int i = 1; i < 100; i++) {
#pragma omp ordered depend(sink : i - 1)
            chain[i] = chain[i - 1] + 1;
#pragma omp ordered depend(source)
        }
        CHECK(chain[99] == 99);
    }
    return 0;
}
