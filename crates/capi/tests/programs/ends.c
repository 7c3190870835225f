// SPDX-License-Identifier: MIT OR Apache-2.0
// The end of a program that has fibers in each state: parked, asleep, blocked in the kernel, and running.
// One word says how: `return` from main, `exit` in a fiber, `pthread_exit` in one, or `pthread_cancel` of the
// thread that runs one.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <wakeful.h>
#include "check.h"

#define FIBERS 8
#define STATUS 7
static atomic_int begun;
static int ends[2];
static pthread_t thread;
static atomic_int waits;

static void *parks(void *argument) {
    begun++;
    for (;;)
        wakeful_fiber_park();
    return argument;
}

static void *sleeps(void *argument) {
    begun++;
    wakeful_fiber_sleep(3600000000000ull);
    return argument;
}

static void *blocks(void *argument) {
    begun++;
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    return argument;
}

static void *computes(void *argument) {
    begun++;
    for (volatile long turn = 0;; turn++)
        if (turn % 100000 == 0)
            wakeful_fiber_yield();
    return argument;
}

static void *leaves(void *word) {
    while (begun < 4 * FIBERS)
        wakeful_fiber_yield();
    if (!strcmp(word, "exit"))
        exit(STATUS);
    thread = pthread_self();
    waits = 1;
    while (!strcmp(word, "pthread_cancel"))
        pause();
    pthread_exit(NULL);
}

// Runs in the thread or fiber that ends the program, which may still wait.
static void last(void) {
    wakeful_fiber_yield();
    wakeful_fiber_sleep(1000000);
    CHECK(write(1, "ended\n", 6) == 6);
}

int main(int count, char **words) {
    CHECK(count == 2 && pipe(ends) == 0);
    CHECK(atexit(last) == 0);
    void *(*bodies[])(void *) = { parks, sleeps, blocks, computes };
    for (int i = 0; i < 4 * FIBERS; i++)
        CHECK(wakeful_fiber_spawn(NULL, NULL, bodies[i % 4], NULL) == 0);
    while (begun < 4 * FIBERS)
        usleep(100);
    if (!strcmp(words[1], "return"))
        return STATUS;
    wakeful_fiber fiber;
    wakeful_fiber_attributes attributes = { .name = "leaver" };
    CHECK(wakeful_fiber_spawn(&fiber, &attributes, leaves, words[1]) == 0);
    while (!strcmp(words[1], "pthread_cancel") && !waits)
        usleep(100);
    if (waits && !strcmp(words[1], "pthread_cancel"))
        CHECK(pthread_cancel(thread) == 0);
    CHECK(wakeful_fiber_join(fiber, NULL) == 0);
    return 3;
}
