// SPDX-License-Identifier: MIT OR Apache-2.0
// Every function of the header that is about fibers, with more fibers than processors, and misused.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <wakeful.h>
#include "check.h"

#define FIBERS 200
#define ROUNDS 200
#define MS 1000000ull

static wakeful_fiber spawn(void *(*body)(void *), void *argument) {
    wakeful_fiber fiber;
    CHECK(wakeful_fiber_spawn(&fiber, NULL, body, argument) == 0);
    return fiber;
}

static void *join(wakeful_fiber fiber) {
    void *result = NULL;
    CHECK(wakeful_fiber_join(fiber, &result) == 0);
    return result;
}

static void all(void *(*body)(void *)) {
    wakeful_fiber fibers[FIBERS];
    for (size_t i = 0; i < FIBERS; i++)
        fibers[i] = spawn(body, (void *)i);
    for (size_t i = 0; i < FIBERS; i++)
        CHECK(join(fibers[i]) == (void *)i);
}

// Locks, all zero where that is a free one.
static wakeful_mutex mutex;
static wakeful_rwlock rwlock;
static wakeful_condvar condvar;
static wakeful_semaphore semaphore;
static wakeful_barrier barrier;
static long counter, written[2];
static atomic_int inside, passed, unlucky;

static void *counts(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        switch (i % 3) {
        case 0:
            wakeful_mutex_lock(&mutex);
            break;
        case 1:
            while (wakeful_mutex_try_lock(&mutex) == EBUSY)
                wakeful_fiber_yield();
            break;
        default:
            while (wakeful_mutex_lock_for(&mutex, 10 * MS) == ETIMEDOUT)
                atomic_fetch_add(&unlucky, 1);
        }
        long before = counter;
        // It holds the lock across a wait.
        if (i % 8 == 0)
            wakeful_fiber_yield();
        counter = before + 1;
        wakeful_mutex_unlock(&mutex);
    }
    return argument;
}

static void *reads_or_writes(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        if (((size_t)argument + i) % 4 == 0) {
            if (i % 2 == 0)
                wakeful_rwlock_write(&rwlock);
            else
                while (wakeful_rwlock_try_write(&rwlock) == EBUSY)
                    wakeful_fiber_yield();
            written[0]++;
            wakeful_fiber_yield();
            written[1]++;
            wakeful_rwlock_unlock_write(&rwlock);
        } else {
            if (i % 2 == 0)
                wakeful_rwlock_read(&rwlock);
            else
                while (wakeful_rwlock_try_read(&rwlock) == EBUSY)
                    wakeful_fiber_yield();
            CHECK(written[0] == written[1]);
            wakeful_rwlock_unlock_read(&rwlock);
        }
    }
    return argument;
}

static void *takes_permits(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 2 == 0)
            wakeful_semaphore_acquire(&semaphore);
        else
            while (wakeful_semaphore_try_acquire(&semaphore) == EBUSY &&
                   wakeful_semaphore_acquire_for(&semaphore, 10 * MS) == ETIMEDOUT)
                atomic_fetch_add(&unlucky, 1);
        CHECK(atomic_fetch_add(&inside, 1) < 3);
        if (i % 8 == 0)
            wakeful_fiber_yield();
        atomic_fetch_sub(&inside, 1);
        CHECK(wakeful_semaphore_release(&semaphore) == 0);
    }
    return argument;
}

static void *passes(void *argument) {
    for (int i = 0; i < 20; i++) {
        CHECK(atomic_load(&passed) >= i);
        if (wakeful_barrier_wait(&barrier) == 1)
            atomic_fetch_add(&passed, 1);
        wakeful_barrier_wait(&barrier);
        CHECK(atomic_load(&passed) == i + 1);
    }
    return argument;
}

// Each waits for its number; one broadcasts, the others signal in turn.
static size_t turn = FIBERS;

static void *waits_for_its_turn(void *argument) {
    wakeful_mutex_lock(&mutex);
    while (turn != (size_t)argument)
        if ((size_t)argument % 2 == 0)
            wakeful_condvar_wait(&condvar, &mutex);
        else
            CHECK((wakeful_condvar_wait_for(&condvar, &mutex, 10 * MS) & ~ETIMEDOUT) == 0);
    turn++;
    wakeful_condvar_broadcast(&condvar);
    wakeful_mutex_unlock(&mutex);
    return argument;
}

static void locks(void) {
    all(counts);
    CHECK(counter == (long)FIBERS * ROUNDS);
    all(reads_or_writes);
    CHECK(written[0] == (long)FIBERS * ROUNDS / 4);
    CHECK(wakeful_semaphore_init(&semaphore, 3) == 0);
    all(takes_permits);
    wakeful_barrier_init(&barrier, FIBERS);
    all(passes);
    turn = 0;
    all(waits_for_its_turn);
    CHECK(turn == FIBERS);
    // The main thread, which is no fiber, waits in them as well, and nobody signals.
    wakeful_mutex_lock(&mutex);
    CHECK(wakeful_mutex_try_lock(&mutex) == EBUSY);
    CHECK(wakeful_mutex_lock_for(&mutex, MS) == ETIMEDOUT);
    CHECK(wakeful_condvar_wait_for(&condvar, &mutex, MS) == ETIMEDOUT);
    wakeful_mutex_unlock(&mutex);
    CHECK(wakeful_semaphore_init(&semaphore, 1u << 30) == EINVAL);
    CHECK(wakeful_semaphore_init(&semaphore, (1u << 30) - 1) == 0);
    CHECK(wakeful_semaphore_release(&semaphore) == EOVERFLOW);
}

// Park and unpark: a number goes to and fro.
static _Atomic size_t ball;
static wakeful_fiber players[2];

static void *plays(void *argument) {
    size_t me = (size_t)argument;
    for (size_t round = 0; round < ROUNDS; round++) {
        while (atomic_load(&ball) != 2 * round + me)
            CHECK((me == 0 ? wakeful_fiber_park() : wakeful_fiber_park_for(1000 * MS)) == 0);
        atomic_store(&ball, 2 * round + me + 1);
        // The last one's opponent may have ended.
        int error = wakeful_fiber_unpark(players[1 - me]);
        CHECK(error == 0 || (error == ESRCH && me == 1 && round == ROUNDS - 1));
    }
    return argument;
}

static void *starts_players(void *argument) {
    players[1] = spawn(plays, (void *)1);
    players[0] = wakeful_fiber_self();
    plays(0);
    CHECK(join(players[1]) == (void *)1);
    return argument;
}

static void *blocks(void *argument) {
    usleep(2000);
    wakeful_fiber_sleep(MS);
    return argument;
}

// Local storage.
static atomic_int destroyed;
static void destroy(void *value);
static const wakeful_local local = {destroy}, again = {destroy}, plain = {NULL};

static void destroy(void *value) {
    // A value that is set now is destroyed as well.
    if (value == &destroyed)
        CHECK(wakeful_local_set(&again, &counter) == 0);
    else
        CHECK(value == &counter);
    atomic_fetch_add(&destroyed, 1);
}

static void *has_values(void *argument) {
    CHECK(wakeful_local_get(&local) == NULL && wakeful_local_get(&plain) == NULL);
    CHECK(wakeful_local_set(&local, &counter) == 0);
    CHECK(wakeful_local_set(&local, &destroyed) == 0);
    CHECK(wakeful_local_set(&plain, argument) == 0);
    wakeful_fiber_yield();
    CHECK(wakeful_local_get(&local) == &destroyed && wakeful_local_get(&plain) == argument);
    return argument;
}

// Destructors see the values that are not destroyed yet, and may set any. But not for ever.
static atomic_int rounds;
static void destroy_first(void *value);
static void destroy_last(void *value);
static void destroy_always(void *value);
static const wakeful_local first = {destroy_first}, last = {destroy_last}, always = {destroy_always};

static void destroy_first(void *value) {
    CHECK(value == &rounds && wakeful_local_get(&first) == NULL);
    CHECK(wakeful_local_get(&last) == &counter && wakeful_local_get(&plain) == &ball);
}

static void destroy_last(void *value) {
    CHECK(value == &counter && wakeful_local_get(&plain) == &ball);
}

static void destroy_always(void *value) {
    atomic_fetch_add(&rounds, 1);
    CHECK(wakeful_local_set(&always, value) == 0);
}

static void *has_values_of_each_other(void *argument) {
    CHECK(wakeful_local_set(&last, &counter) == 0);
    CHECK(wakeful_local_set(&plain, &ball) == 0);
    CHECK(wakeful_local_set(&first, &rounds) == 0);
    return argument;
}

static void *has_a_value_that_stays(void *argument) {
    CHECK(wakeful_local_set(&always, &rounds) == 0);
    return argument;
}

static void values(void) {
    all(has_values);
    CHECK(atomic_load(&destroyed) == 2 * FIBERS);
    all(has_values_of_each_other);
    join(spawn(has_a_value_that_stays, NULL));
    CHECK(atomic_load(&rounds) == 4);
}

static void *policy(void *argument) {
    (void)argument;
    return (void *)(size_t)sched_getscheduler(0);
}

static void *fills(void *argument) {
    volatile char bytes[8 << 20];
    for (size_t i = 0; i < sizeof bytes; i += 4096)
        bytes[i] = 1;
    return (void *)(bytes[0] + (size_t)argument);
}

// Overflows its stack in long frames, each of which touches its ends only.
__attribute__((noinline)) static size_t jumps(size_t depth) {
    volatile char bytes[40 << 10];
    bytes[0] = 1;
    // Not the last thing it does: so it is no loop.
    bytes[0] += (char)(depth == 0 ? 0 : jumps(depth - 1));
    return (size_t)bytes[0];
}

static void *overflows(void *argument) {
    return (void *)jumps((size_t)argument);
}

static void attributes(void) {
    wakeful_fiber fiber;
    wakeful_fiber_attributes attributes = {.name = "a fiber of C"};
    CHECK(wakeful_fiber_spawn(&fiber, &attributes, policy, NULL) == 0 && join(fiber) == (void *)SCHED_OTHER);
    attributes.priority = WAKEFUL_PRIORITY_LOW;
    CHECK(wakeful_fiber_spawn(&fiber, &attributes, policy, NULL) == 0 && join(fiber) == (void *)SCHED_IDLE);
    attributes.priority = WAKEFUL_PRIORITY_LOW + 1;
    CHECK(wakeful_fiber_spawn(&fiber, &attributes, policy, NULL) == EINVAL);
    attributes.priority = WAKEFUL_PRIORITY_USUAL;
    attributes.stack_size = 9 << 20;
    for (size_t i = 0; i < 50; i++) {
        CHECK(wakeful_fiber_spawn(&fiber, &attributes, fills, (void *)i) == 0);
        CHECK(join(fiber) == (void *)(i + 1));
    }
    attributes.stack_size = (size_t)-1;
    CHECK(wakeful_fiber_spawn(&fiber, &attributes, policy, NULL) == ENOMEM);
    // No address space.
    struct rlimit before, none = {0};
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    none.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    attributes.stack_size = 1 << 30;
    int error = wakeful_fiber_spawn(&fiber, &attributes, policy, NULL);
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(error == ENOMEM);
}

// Misuse.
static void *joins_itself(void *argument) {
    wakeful_fiber *me = argument;
    wakeful_fiber self = wakeful_fiber_self();
    CHECK(wakeful_fiber_join(self, NULL) == EDEADLK);
    *me = self;
    return NULL;
}

// Another fiber has the place of one that ended.
static void *knows_who_is_gone(void *argument) {
    wakeful_fiber gone, fiber;
    int tries = 0;
    do {
        // If another kernel thread ran it, its place may stay there.
        if (tries++ % 1000 == 0)
            join(gone = spawn(policy, NULL));
        join(fiber = spawn(policy, NULL));
    } while (fiber.place != gone.place);
    CHECK(wakeful_fiber_unpark(gone) == ESRCH && wakeful_fiber_unpark(fiber) == 0);
    for (int i = 0; i < 1000; i++) {
        fiber = spawn(policy, NULL);
        CHECK(wakeful_fiber_join(gone, NULL) == ESRCH && wakeful_fiber_detach(gone) == ESRCH);
        join(fiber);
    }
    return argument;
}

static _Atomic int joined;

static void *joins(void *fiber) {
    int error = wakeful_fiber_join(*(wakeful_fiber *)fiber, NULL);
    CHECK(error == 0 || error == ESRCH);
    if (error == 0)
        atomic_fetch_add(&joined, 1);
    return NULL;
}

static void misuse(void) {
    const wakeful_fiber none = {0};
    CHECK(wakeful_fiber_spawn(NULL, NULL, NULL, NULL) == EINVAL);
    CHECK(wakeful_fiber_join(none, NULL) == ESRCH);
    CHECK(wakeful_fiber_detach(none) == ESRCH);
    CHECK(wakeful_fiber_unpark(none) == ESRCH);
    CHECK(wakeful_fiber_self().place == NULL);
    CHECK(wakeful_fiber_park() == EPERM && wakeful_fiber_park_for(MS) == EPERM);
    CHECK(wakeful_local_set(&plain, NULL) == EPERM && wakeful_local_get(&plain) == NULL);
    wakeful_fiber_yield();
    wakeful_fiber_sleep(MS);

    wakeful_fiber self, fiber = spawn(joins_itself, &self);
    join(fiber);
    CHECK(memcmp(&self, &fiber, sizeof fiber) == 0);
    CHECK(wakeful_fiber_join(fiber, NULL) == ESRCH && wakeful_fiber_detach(fiber) == ESRCH);
    join(spawn(knows_who_is_gone, NULL));
    fiber = spawn(blocks, NULL);
    CHECK(wakeful_fiber_detach(fiber) == 0);
    CHECK(wakeful_fiber_join(fiber, NULL) == ESRCH);
    // Of several who join one joins.
    for (int i = 0; i < 100; i++) {
        fiber = spawn(i % 2 == 0 ? blocks : policy, NULL);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, joins, &fiber) == 0);
        wakeful_fiber others[] = {spawn(joins, &fiber), spawn(joins, &fiber)};
        join(others[0]);
        join(others[1]);
        pthread_join(thread, NULL);
        CHECK(atomic_load(&joined) == i + 1);
    }
}

static void *ends_when_told(void *argument) {
    int error;
    while ((error = argument ? wakeful_fiber_park_for(1000000 * MS) : wakeful_fiber_park()) == 0)
        ;
    CHECK(error == ECANCELED);
    // It has found out.
    CHECK(wakeful_fiber_cancelled() == 0 && wakeful_fiber_park_for(1) == 0);
    return argument;
}

static void *sleeps(void *argument) {
    wakeful_fiber_sleep(1000000 * MS);
    CHECK(wakeful_fiber_cancelled() == ECANCELED);
    return argument;
}

static void cancels(void) {
    CHECK(wakeful_fiber_cancelled() == 0);
    for (int i = 0; i < ROUNDS; i++) {
        wakeful_fiber fibers[] = {spawn(ends_when_told, NULL), spawn(ends_when_told, &counter),
                                  spawn(sleeps, NULL)};
        if (i % 3 == 0)
            wakeful_fiber_sleep(1000);
        for (int each = 0; each < 3; each++)
            CHECK(wakeful_fiber_cancel(fibers[each]) == 0);
        for (int each = 0; each < 3; each++)
            join(fibers[each]);
    }
    wakeful_fiber none = {0};
    CHECK(wakeful_fiber_cancel(none) == ESRCH);
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) {
        wakeful_fiber fiber;
        wakeful_fiber_attributes attributes = {.name = "deep"};
        // The seventh frame begins below the stack, and ends before that of another one.
        CHECK(wakeful_fiber_spawn(&fiber, &attributes, overflows, (void *)6) == 0);
        join(fiber);
        return 0;
    }
    locks();
    join(spawn(starts_players, NULL));
    all(blocks);
    values();
    attributes();
    misuse();
    cancels();
    return 0;
}
