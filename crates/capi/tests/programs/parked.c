// SPDX-License-Identifier: MIT OR Apache-2.0
// Fibers at the C library's locks, all on one processor, beside two kernel threads. Who holds waits
// meanwhile, so a wait that stops the carrier stops it for good. Under the interposer none does.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <wakeful.h>
#include "check.h"

#define FIBERS 20
#define THREADS 2
#define ALL (FIBERS + THREADS)
#define ROUNDS 50

static long counter, written[2];
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static sem_t slots;
static atomic_int inside, passed, once_runs;

// Other fibers run, sooner or later.
static void others_run(long round) {
    if (round % 7 == 0)
        wakeful_fiber_sleep(50000);
    else
        wakeful_fiber_yield();
}

static struct timespec soon(long ms) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += ms * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void count(long round) {
    long before = counter;
    others_run(round);
    counter = before + 1;
}

static void *counts(void *argument) {
    for (long i = 0; i < ROUNDS; i++) {
        long round = i + (long)argument;
        CHECK(pthread_mutex_lock(&plain) == 0);
        count(round);
        CHECK(pthread_mutex_unlock(&plain) == 0);
    }
    return NULL;
}

static void *counts_again(void *argument) {
    for (long i = 0; i < ROUNDS; i++) {
        long round = i + (long)argument;
        CHECK(pthread_mutex_lock(&recursive) == 0);
        CHECK(pthread_mutex_lock(&recursive) == 0);
        count(round);
        CHECK(pthread_mutex_unlock(&recursive) == 0);
        count(round);
        CHECK(pthread_mutex_unlock(&recursive) == 0);
    }
    return NULL;
}

static void *counts_checked(void *argument) {
    for (long i = 0; i < ROUNDS; i++) {
        long round = i + (long)argument;
        if (pthread_mutex_unlock(&checking) != EPERM)
            exit(2);
        CHECK(pthread_mutex_lock(&checking) == 0);
        CHECK(pthread_mutex_lock(&checking) == EDEADLK);
        count(round);
        CHECK(pthread_mutex_unlock(&checking) == 0);
    }
    return NULL;
}

static void *tries(void *argument) {
    for (long i = 0; i < ROUNDS; i++) {
        long round = i + (long)argument;
        struct timespec until = soon(60000);
        CHECK(pthread_mutex_timedlock(&plain, &until) == 0);
        count(round);
        CHECK(pthread_mutex_unlock(&plain) == 0);
    }
    return NULL;
}

static void *reads_and_writes(void *argument) {
    for (long i = 0; i < ROUNDS; i++) {
        long round = i + (long)argument;
        if (round % 3 == 0) {
            CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
            written[0]++;
            others_run(round);
            written[1]++;
        } else {
            CHECK(pthread_rwlock_rdlock(&rwlock) == 0);
            long before = written[0];
            others_run(round);
            CHECK(before == written[0] && before == written[1]);
        }
        CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    }
    return NULL;
}

static void *takes_turns(void *argument) {
    for (long i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&plain) == 0);
        while (counter % ALL != (long)argument)
            CHECK(pthread_cond_wait(&cond, &plain) == 0);
        count(i);
        CHECK(pthread_cond_broadcast(&cond) == 0);
        CHECK(pthread_mutex_unlock(&plain) == 0);
    }
    return NULL;
}

static void *gives_up(void *argument) {
    (void)argument;
    struct timespec until = soon(3);
    CHECK(pthread_mutex_lock(&plain) == 0);
    CHECK(pthread_cond_timedwait(&cond, &plain, &until) == ETIMEDOUT);
    CHECK(pthread_mutex_unlock(&plain) == 0);
    return NULL;
}

static void *takes_a_slot(void *argument) {
    for (long i = 0; i < ROUNDS; i++) {
        if (i % 2 == 0) {
            CHECK(sem_wait(&slots) == 0);
        } else {
            struct timespec until = soon(60000);
            CHECK(sem_timedwait(&slots, &until) == 0);
        }
        CHECK(inside++ < 2);
        others_run(i + (long)argument);
        inside--;
        CHECK(sem_post(&slots) == 0);
    }
    return NULL;
}

static void *meets(void *argument) {
    (void)argument;
    for (int i = 0; i < 10; i++) {
        CHECK(passed >= i * ALL);
        passed++;
        int result = pthread_barrier_wait(&barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
    }
    return NULL;
}

static void runs_once(void) {
    wakeful_fiber_sleep(3000000);
    once_runs++;
}

static void *comes_once(void *argument) {
    (void)argument;
    CHECK(pthread_once(&once, runs_once) == 0);
    CHECK(once_runs == 1);
    return NULL;
}

static void *spins(void *argument) {
    for (long i = 0; i < ROUNDS; i++) {
        CHECK(pthread_spin_lock(&spin) == 0);
        count(i + (long)argument);
        CHECK(pthread_spin_unlock(&spin) == 0);
    }
    return NULL;
}

static void together(void *(*body)(void *)) {
    wakeful_fiber fibers[FIBERS];
    pthread_t threads[THREADS];
    for (long i = 0; i < FIBERS; i++)
        CHECK(wakeful_fiber_spawn(&fibers[i], NULL, body, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, body, (void *)(FIBERS + i)) == 0);
    for (long i = 0; i < FIBERS; i++)
        CHECK(wakeful_fiber_join(fibers[i], NULL) == 0);
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void counted(void *(*body)(void *), long each) {
    counter = 0;
    together(body);
    CHECK(counter == ALL * each);
}

int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(pthread_spin_init(&spin, 0) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, ALL) == 0);
    CHECK(sem_init(&slots, 0, 2) == 0);

    counted(counts, ROUNDS);
    counted(counts_again, 2 * ROUNDS);
    counted(counts_checked, ROUNDS);
    counted(tries, ROUNDS);
    together(reads_and_writes);
    CHECK(written[0] != 0 && written[0] == written[1]);
    counted(takes_turns, ROUNDS);
    together(gives_up);
    together(takes_a_slot);
    together(meets);
    together(comes_once);
    counted(spins, ROUNDS);
    return 0;
}
