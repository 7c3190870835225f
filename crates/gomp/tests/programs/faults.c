// SPDX-License-Identifier: MIT OR Apache-2.0
// What must not hang: the argument says what.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int region(int size)
{
    int all = 0;
#pragma omp parallel num_threads(size) reduction(+ : all)
    {
#pragma omp barrier
        all++;
    }
    return all;
}

static void awaited(pid_t child, int expected)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == expected);
}

// In a region: each child ends, at once or after regions of its own, or goes on in this one.
static void forks(void)
{
    region(4);
    pid_t children[3];
#pragma omp parallel num_threads(4)
    {
#pragma omp barrier
#pragma omp master
        if ((children[0] = fork()) == 0)
            _exit(3);
#pragma omp master
        if ((children[1] = fork()) == 0) {
            omp_set_max_active_levels(4);
            _exit(region(3) == 3 && region(5) == 5 ? 4 : 1);
        }
    }
    awaited(children[0], 3);
    awaited(children[1], 4);
    children[2] = 0;
#pragma omp parallel num_threads(4)
    {
#pragma omp barrier
        if (omp_get_thread_num() == 0)
            children[2] = fork();
#pragma omp barrier
    }
    if (children[2] == 0)
        _exit(region(4) == 4 ? 5 : 1);
    awaited(children[2], 5);
    // And between regions.
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(region(4) == 4 ? 6 : 1);
        CHECK(region(4) == 4);
        awaited(child, 6);
    }
}

static volatile sig_atomic_t signals;

static void count(int signal)
{
    (void)signal;
    signals++;
}

static void *pester(void *main_thread)
{
    for (int i = 0; i < 2000; i++) {
        pthread_kill(*(pthread_t *)main_thread, SIGUSR1);
        kill(getpid(), SIGUSR2);
        if (i % 50 == 0)
            usleep(100);
    }
    return NULL;
}

static void interrupted(void)
{
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    pthread_t self = pthread_self(), other;
    CHECK(pthread_create(&other, NULL, pester, &self) == 0);
    for (int i = 0; i < 2000; i++)
        CHECK(region(4) == 4);
    pthread_join(other, NULL);
    CHECK(signals > 0);
}

static void *own_regions(void *result)
{
    for (int i = 0; i < 50; i++)
        CHECK(region(3) == 3);
    return result;
}

// Threads of the program's that have teams, and end.
static void comers(void)
{
    for (int round = 0; round < 20; round++) {
        pthread_t others[4];
        for (int i = 0; i < 4; i++)
            CHECK(pthread_create(&others[i], NULL, own_regions, NULL) == 0);
        CHECK(region(2) == 2);
        for (int i = 0; i < 4; i++)
            pthread_join(others[i], NULL);
    }
}

static int deeper(int depth)
{
    int below = 0;
    if (depth == 0)
        return 1;
#pragma omp parallel num_threads(2) reduction(+ : below)
    {
#pragma omp master
        below += deeper(depth - 1);
    }
    return below;
}

int main(int count_, char **arguments)
{
    const char *what = count_ > 1 ? arguments[1] : "";
    if (!strcmp(what, "fork")) {
        forks();
    } else if (!strcmp(what, "exit")) {
        region(8);
#pragma omp parallel num_threads(8)
        {
#pragma omp barrier
            if (omp_get_thread_num() == 5)
                exit(0);
#pragma omp barrier
        }
        return 1;
    } else if (!strcmp(what, "large")) {
        for (int i = 0; i < 20; i++)
            CHECK(region(256) == 256);
        CHECK(region(3) == 3);
    } else if (!strcmp(what, "nested")) {
        omp_set_max_active_levels(2);
        int all = 0;
        for (int i = 0; i < 5000; i++) {
#pragma omp parallel num_threads(2) reduction(+ : all)
            all += region(2);
        }
        CHECK(all == 20000);
        // So many within each other, of which two levels are active.
        CHECK(deeper(1000) == 1);
    } else if (!strcmp(what, "signal")) {
        interrupted();
    } else if (!strcmp(what, "threads")) {
        comers();
    } else {
        return 2;
    }
    return 0;
}
