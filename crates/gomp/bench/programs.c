// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs with answers that can be checked, for comparing OpenMP runtimes.
//
//     programs NAME
//
// Prints the name, seconds, and the answer, which is the same for all runtimes and team sizes; a wrong one ends it with status 1.
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        exit(2);
    return memory;
}

// Heat in a square plate: a loop and a barrier each step.
static double stencil(void)
{
    enum { SIDE = 130, STEPS = 10000 };
    double *now = allocate(SIDE * SIDE, sizeof *now), *next = allocate(SIDE * SIDE, sizeof *next);
    for (int i = 0; i < SIDE; i++)
        now[i] = next[i] = 1000;
#pragma omp parallel
    {
        double *from = now, *to = next;
        for (int step = 0; step < STEPS; step++) {
#pragma omp for schedule(static)
            for (int y = 1; y < SIDE - 1; y++)
                for (int x = 1; x < SIDE - 1; x++) {
                    const double *p = from + y * SIDE + x;
                    to[y * SIDE + x] = 0.25 * (p[-1] + p[1] + p[-SIDE] + p[SIDE]);
                }
            double *other = from;
            from = to;
            to = other;
        }
    }
    double sum = 0;
    for (int i = 0; i < SIDE * SIDE; i++)
        sum += now[i];
    free(now);
    free(next);
    return sum;
}

// Conjugate gradients on the Laplacian of a square, a sparse matrix by rows: five regions a step, sums in blocks of one size, so that
// their order is the same for all teams.
enum { CG_SIDE = 100, CG = CG_SIDE * CG_SIDE, BLOCK = 250, BLOCKS = CG / BLOCK };

static double dot(const double *a, const double *b)
{
    static double sums[BLOCKS];
#pragma omp parallel for schedule(static)
    for (int block = 0; block < BLOCKS; block++) {
        double sum = 0;
        for (int i = block * BLOCK; i < (block + 1) * BLOCK; i++)
            sum += a[i] * b[i];
        sums[block] = sum;
    }
    double sum = 0;
    for (int block = 0; block < BLOCKS; block++)
        sum += sums[block];
    return sum;
}

static double cg(void)
{
    int *row = allocate(CG + 1, sizeof *row), *column = allocate(CG * 5, sizeof *column), entries = 0;
    double *value = allocate(CG * 5, sizeof *value);
    for (int i = 0; i < CG; i++) {
        int x = i % CG_SIDE, y = i / CG_SIDE;
        row[i] = entries;
        const int there[5] = {y > 0, x > 0, 1, x < CG_SIDE - 1, y < CG_SIDE - 1};
        const int to[5] = {i - CG_SIDE, i - 1, i, i + 1, i + CG_SIDE};
        for (int k = 0; k < 5; k++)
            if (there[k]) {
                column[entries] = to[k];
                value[entries++] = k == 2 ? 4 : -1;
            }
    }
    row[CG] = entries;
    double *x = allocate(CG, sizeof *x), *r = allocate(CG, sizeof *r), *p = allocate(CG, sizeof *p),
           *q = allocate(CG, sizeof *q);
    double total = 0;
    for (int again = 0; again < 15; again++) {
        for (int i = 0; i < CG; i++)
            x[i] = 0, r[i] = p[i] = 1 + i % 7;
        double rr = dot(r, r);
        for (int step = 0; step < 200 && rr > 1e-16; step++) {
#pragma omp parallel for schedule(static)
            for (int i = 0; i < CG; i++) {
                double sum = 0;
                for (int k = row[i]; k < row[i + 1]; k++)
                    sum += value[k] * p[column[k]];
                q[i] = sum;
            }
            double alpha = rr / dot(p, q);
#pragma omp parallel for schedule(static)
            for (int i = 0; i < CG; i++) {
                x[i] += alpha * p[i];
                r[i] -= alpha * q[i];
            }
            double before = rr;
            rr = dot(r, r);
            double beta = rr / before;
#pragma omp parallel for schedule(static)
            for (int i = 0; i < CG; i++)
                p[i] = r[i] + beta * p[i];
        }
        total += sqrt(dot(x, x));
    }
    free(row), free(column), free(value), free(x), free(r), free(p), free(q);
    return total;
}

// Sorts by merging; a task for each half.
static void sort_into(uint32_t *a, uint32_t *buffer, int count)
{
    if (count < 128) {
        for (int i = 1; i < count; i++) {
            uint32_t it = a[i];
            int j = i;
            for (; j > 0 && a[j - 1] > it; j--)
                a[j] = a[j - 1];
            a[j] = it;
        }
        return;
    }
    int half = count / 2;
#pragma omp task
    sort_into(a, buffer, half);
#pragma omp task
    sort_into(a + half, buffer + half, count - half);
#pragma omp taskwait
    memcpy(buffer, a, count * sizeof *a);
    for (int i = 0, left = 0, right = half; i < count; i++)
        a[i] = right >= count || (left < half && buffer[left] <= buffer[right]) ? buffer[left++] : buffer[right++];
}

static double sort(void)
{
    enum { COUNT = 1 << 19, TIMES = 3 };
    uint32_t *a = allocate(COUNT, sizeof *a), *buffer = allocate(COUNT, sizeof *buffer), random = 1;
    double answer = 0;
    for (int time = 0; time < TIMES; time++) {
        for (int i = 0; i < COUNT; i++)
            a[i] = random = random * 1664525 + 1013904223;
#pragma omp parallel
#pragma omp single
        sort_into(a, buffer, COUNT);
        for (int i = 1; i < COUNT; i++)
            if (a[i - 1] > a[i])
                exit(1);
        answer += a[COUNT / 2];
    }
    free(a);
    free(buffer);
    return answer;
}

// Queens that do not attack each other; a task for each place in the first rows.
static long place(int side, int row, unsigned columns, unsigned left, unsigned right)
{
    if (row == side)
        return 1;
    long sum = 0;
    unsigned free_ = ~(columns | left | right) & ((1u << side) - 1);
    if (row >= 4) {
        for (; free_; free_ &= free_ - 1) {
            unsigned bit = free_ & -free_;
            sum += place(side, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1);
        }
        return sum;
    }
    long sums[32] = {0};
    int count = 0;
    for (; free_; free_ &= free_ - 1) {
        unsigned bit = free_ & -free_;
        long *result = &sums[count++];
#pragma omp task firstprivate(bit, result)
        *result = place(side, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
#pragma omp taskwait
    for (int i = 0; i < count; i++)
        sum += sums[i];
    return sum;
}

static double queens(void)
{
    long count = 0;
#pragma omp parallel
#pragma omp single
    count = place(14, 0, 0, 0, 0);
    return count;
}

// Gauss's elimination without pivoting, of a matrix that needs none: a region a column.
static double lu(void)
{
    enum { SIDE = 320, TIMES = 9 };
    double(*a)[SIDE] = allocate(SIDE, sizeof *a), answer = 0;
    for (int time = 0; time < TIMES; time++) {
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++)
                a[i][j] = i == j ? SIDE : (i * 31 + j * 17 + time) % 23 / 23.0;
        for (int k = 0; k < SIDE - 1; k++) {
#pragma omp parallel for schedule(static)
            for (int i = k + 1; i < SIDE; i++) {
                double factor = a[i][k] /= a[k][k];
                for (int j = k + 1; j < SIDE; j++)
                    a[i][j] -= factor * a[k][j];
            }
        }
        double log_determinant = 0;
        for (int i = 0; i < SIDE; i++)
            log_determinant += log(a[i][i]);
        answer += log_determinant;
    }
    free(a);
    return answer;
}

static const struct {
    const char *name;
    double (*run)(void);
    // Compilers may fuse multiplications and additions: nine digits.
    const char *answer;
} programs[] = {
    {"stencil", stencil, "4085197.73"}, {"cg", cg, "2550497.93"},  {"sort", sort, "6.44557703e+09"},
    {"queens", queens, "365596"},       {"lu", lu, "16611.9803"},
};

int main(int count, char **arguments)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        if (count != 2 || strcmp(arguments[1], programs[i].name))
            continue;
        double began = omp_get_wtime();
        double answer = programs[i].run();
        double took = omp_get_wtime() - began;
        char text[32];
        snprintf(text, sizeof text, "%.9g", answer);
        printf("%s %.4f %s\n", programs[i].name, took, text);
        if (strcmp(text, programs[i].answer)) {
            fprintf(stderr, "%s: %s is not %s\n", programs[i].name, text, programs[i].answer);
            return 1;
        }
        return 0;
    }
    fprintf(stderr, "usage: programs stencil|cg|sort|queens|lu\n");
    return 2;
}
