/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Delegated sections in C: each once, one at a time, with pointer and numbers; in time or not at all. Each
   without a server, and with one. With an argument, a section ends its thread. */
#include <wakeful.h>
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 20000 };

#define MINUTE UINT64_C(60000000000)

/* At no place in particular. */
static struct {
    char before;
    wakeful_delegated lock;
    uint64_t sum, count;
} shared;

static uint64_t add(void *pointer, uint64_t first, uint64_t second) {
    uint64_t *sum = pointer;
    *sum += first * second;
    return ++shared.count;
}

static wakeful_rcl_server *server;

static void *client(void *argument) {
    uint64_t own = (uint64_t)(size_t)argument, last = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        if (round % 4 == 3) {
            wakeful_delegated_lock(&shared.lock);
            add(&shared.sum, own, round);
            wakeful_delegated_unlock(&shared.lock);
            continue;
        }
        uint64_t now = 0;
        if (round % 4 == 2 && !server)
            CHECK(wakeful_delegated_run_for(&shared.lock, MINUTE, add, &shared.sum, own, round, &now) == 0);
        else
            now = wakeful_delegated_run(&shared.lock, add, &shared.sum, own, round);
        CHECK(now > last && now <= (uint64_t)THREADS * ROUNDS);
        last = now;
    }
    return NULL;
}

static void *late(void *argument) {
    (void)argument;
    CHECK(wakeful_delegated_run_for(&shared.lock, 1000000, add, &shared.sum, 1, 1, NULL) == ETIMEDOUT);
    CHECK(wakeful_delegated_run_for(&shared.lock, 0, NULL, NULL, 0, 0, NULL) == EINVAL);
    return NULL;
}

/* A client that is cancelled while it waits: its section runs, it goes afterwards. */
static int begun;

/* write is a cancellation point: who runs this may have been cancelled. */
static uint64_t add_and_write(void *pointer, uint64_t first, uint64_t second) {
    CHECK(write(STDERR_FILENO, "", 0) == 0);
    return add(pointer, first, second);
}

static void *cancelled(void *argument) {
    __atomic_store_n(&begun, 1, __ATOMIC_RELEASE);
    wakeful_delegated_run(&shared.lock, add_and_write, argument, 1, 1);
    for (;;)
        pause();
    return NULL;
}

static wakeful_delegated_change changed;

static bool is_turn(void *pointer, uint64_t first, uint64_t second) {
    uint64_t *turn = pointer;
    (void)second;
    return *turn == first;
}

static uint64_t next(void *pointer, uint64_t first, uint64_t second) {
    uint64_t *turn = pointer;
    (void)second;
    wakeful_delegated_changed(&changed, 1);
    return *turn = first + 1;
}

/* Each waits for the other's turn. */
static void *turns(void *argument) {
    static uint64_t turn;
    uint64_t own = (uint64_t)(size_t)argument, now = 0;
    for (uint64_t it = own; it < 1000; it += 2)
        if (it % 4 < 2)
            CHECK(wakeful_delegated_run_when(&shared.lock, &changed, is_turn, next, &turn, it, 0) == it + 1);
        else
            CHECK(wakeful_delegated_run_when_for(&shared.lock, &changed, MINUTE, is_turn, next, &turn, it, 0,
                                                 &now) == 0 && now == it + 1);
    if (own != 0) {
        CHECK(wakeful_delegated_run_when_for(&shared.lock, &changed, 1000000, is_turn, next, &turn, 5000, 0,
                                             &now) == ETIMEDOUT);
        CHECK(wakeful_delegated_run_when_for(&shared.lock, &changed, 0, NULL, next, &turn, 0, 0, NULL) ==
              EINVAL);
        turn = 0;
    }
    return NULL;
}

static uint64_t leave(void *pointer, uint64_t first, uint64_t second) {
    (void)pointer, (void)first, (void)second;
    pthread_exit(NULL);
}

static void each(void) {
    pthread_t threads[THREADS];
    wakeful_delegated_init(&shared.lock, server);
    shared.sum = shared.count = 0;
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, client, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    uint64_t rounds = (uint64_t)ROUNDS * (ROUNDS - 1) / 2, owns = THREADS * (THREADS - 1) / 2;
    CHECK(shared.count == THREADS * ROUNDS && shared.sum == rounds * owns);

    wakeful_delegated_lock(&shared.lock);
    CHECK(pthread_create(&threads[0], NULL, late, NULL) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    uint64_t ran = 0;
    void *end;
    CHECK(pthread_create(&threads[0], NULL, cancelled, &ran) == 0);
    while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
        usleep(100);
    CHECK(pthread_cancel(threads[0]) == 0);
    wakeful_delegated_unlock(&shared.lock);
    CHECK(pthread_join(threads[0], &end) == 0 && end == PTHREAD_CANCELED);
    CHECK(ran == 1 && shared.count == THREADS * ROUNDS + 1);

    for (size_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, turns, (void *)i) == 0);
    for (size_t i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    wakeful_delegated_destroy(&shared.lock);
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) {
        if (count > 2)
            CHECK(wakeful_rcl_server_start(&server, -1) == 0);
        wakeful_delegated_init(&shared.lock, server);
        wakeful_delegated_run(&shared.lock, leave, NULL, 0, 0);
        return 0;
    }
    each();
    CHECK(wakeful_rcl_server_start(&server, 1 << 20) == EINVAL);
    CHECK(wakeful_rcl_server_start(&server, -2) == EINVAL);
    CHECK(wakeful_rcl_server_start(&server, -1) == 0);
    each();
    /* One that ends while it is locked: the next one is free. */
    wakeful_delegated_init(&shared.lock, server);
    wakeful_delegated_lock(&shared.lock);
    wakeful_delegated_destroy(&shared.lock);
    wakeful_delegated_init(&shared.lock, server);
    shared.count = 0;
    CHECK(wakeful_delegated_run(&shared.lock, add, &shared.sum, 1, 1) == 1);
    wakeful_delegated_destroy(&shared.lock);
    wakeful_rcl_server_stop(server);
    return 0;
}
