// SPDX-License-Identifier: MIT OR Apache-2.0
// Gaussian elimination, LU and a stencil with pthread_barrier: kernels.rs in C, operation by operation.
//   cc -O2 -ffp-contract=off -pthread programs.c -o programs && ./programs lu 8 256
// Prints a checksum of the result on stdout, the time on stderr.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 16, TURNS = 200 };

static size_t n, threads;
static double *a, *b;
static pthread_barrier_t barrier;
static void (*kernel)(size_t me);

#define A(i, j) a[(i) * n + (j)]

static double *square(void) {
    double *cells = malloc(n * n * sizeof *cells);
    uint64_t seed = 12345;
    if (!cells) abort();
    for (size_t place = 0; place < n * n; place++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double number = (double)(seed >> 11) / (double)((uint64_t)1 << 53);
        cells[place] = number + (place % (n + 1) == 0 ? (double)n : 0.0);
    }
    return cells;
}

static void meet(void) {
    pthread_barrier_wait(&barrier);
}

static void gauss(size_t me) {
    for (size_t k = 0; k < n; k++) {
        for (size_t i = k + 1; i < n; i++) {
            if (i % threads != me) continue;
            double factor = A(i, k) / A(k, k);
            A(i, k) = factor;
            for (size_t j = k + 1; j < n; j++) A(i, j) = A(i, j) - factor * A(k, j);
        }
        meet();
    }
}

static void lu(size_t me) {
    size_t blocks = n / BLOCK;
#define MINE(i, j) (((i) * blocks + (j)) % threads == me)
    for (size_t k = 0; k < blocks; k++) {
        size_t at = k * BLOCK;
        if (MINE(k, k))
            for (size_t p = at; p < at + BLOCK; p++)
                for (size_t i = p + 1; i < at + BLOCK; i++) {
                    double factor = A(i, p) / A(p, p);
                    A(i, p) = factor;
                    for (size_t j = p + 1; j < at + BLOCK; j++) A(i, j) = A(i, j) - factor * A(p, j);
                }
        meet();
        for (size_t other = k + 1; other < blocks; other++) {
            size_t from = other * BLOCK;
            if (MINE(k, other))
                for (size_t p = at; p < at + BLOCK; p++)
                    for (size_t i = p + 1; i < at + BLOCK; i++)
                        for (size_t j = from; j < from + BLOCK; j++) A(i, j) = A(i, j) - A(i, p) * A(p, j);
            if (MINE(other, k))
                for (size_t p = at; p < at + BLOCK; p++)
                    for (size_t i = from; i < from + BLOCK; i++) {
                        double factor = A(i, p) / A(p, p);
                        A(i, p) = factor;
                        for (size_t j = p + 1; j < at + BLOCK; j++) A(i, j) = A(i, j) - factor * A(p, j);
                    }
        }
        meet();
        for (size_t row = k + 1; row < blocks; row++)
            for (size_t column = k + 1; column < blocks; column++) {
                if (!MINE(row, column)) continue;
                for (size_t i = row * BLOCK; i < (row + 1) * BLOCK; i++)
                    for (size_t p = at; p < at + BLOCK; p++) {
                        double factor = A(i, p);
                        for (size_t j = column * BLOCK; j < (column + 1) * BLOCK; j++)
                            A(i, j) = A(i, j) - factor * A(p, j);
                    }
            }
        meet();
    }
}

static void stencil(size_t me) {
    for (size_t turn = 0; turn < TURNS; turn++) {
        double *from = turn % 2 == 0 ? a : b, *to = turn % 2 == 0 ? b : a;
        for (size_t i = 1; i < n - 1; i++) {
            if (i * threads / n != me) continue;
            for (size_t j = 1; j < n - 1; j++) {
                double around = from[(i - 1) * n + j] + from[(i + 1) * n + j];
                around = around + from[i * n + j - 1];
                around = around + from[i * n + j + 1];
                to[i * n + j] = 0.2 * (around + from[i * n + j]);
            }
        }
        meet();
    }
}

static void *member(void *me) {
    kernel((size_t)me);
    return NULL;
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "gauss";
    threads = count > 2 ? strtoul(arguments[2], NULL, 10) : 8;
    n = count > 3 ? strtoul(arguments[3], NULL, 10) : 256;
    kernel = !strcmp(name, "gauss") ? gauss : !strcmp(name, "lu") ? lu : !strcmp(name, "stencil") ? stencil : NULL;
    if (!kernel || threads < 1 || threads > 1000 || n < 16 || n > 4096 || n % 16) {
        fprintf(stderr, "usage: programs [gauss|lu|stencil] [THREADS] [SIDE]\n");
        return 2;
    }
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    a = square();
    b = square();
    pthread_barrier_init(&barrier, NULL, threads);
    pthread_t *ids = calloc(threads, sizeof *ids);
    if (!ids) abort();
    for (size_t me = 0; me < threads; me++)
        if (pthread_create(&ids[me], NULL, member, (void *)me)) abort();
    for (size_t me = 0; me < threads; me++) pthread_join(ids[me], NULL);
    pthread_barrier_destroy(&barrier);
    uint64_t sum = 0;
    for (size_t place = 0; place < n * n; place++) {
        uint64_t bits;
        memcpy(&bits, &a[place], sizeof bits);
        sum = (sum << 1 | sum >> 63) ^ bits;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%016llx\n", (unsigned long long)sum);
    fprintf(stderr, "%.3f s\n", (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) * 1e-9);
    free(ids);
    free(a);
    free(b);
    return 0;
}
