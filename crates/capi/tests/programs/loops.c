// SPDX-License-Identifier: MIT OR Apache-2.0
// Every function of the header, with results that are checked.
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <wakeful.h>
#include "check.h"

#define LENGTH 10007

static atomic_int hits[LENGTH];
static const int schedules[] = {WAKEFUL_STATIC, WAKEFUL_DYNAMIC, WAKEFUL_GUIDED};

static void hit(size_t i, void *argument) {
    CHECK(argument == hits);
    atomic_fetch_add(&hits[i], 1);
}

static void hit_block(size_t begin, size_t end, void *argument) {
    CHECK(begin < end && end <= LENGTH);
    for (size_t i = begin; i < end; i++)
        hit(i, argument);
}

static void all_are(int count, size_t from) {
    for (size_t i = 0; i < LENGTH; i++)
        CHECK(atomic_load(&hits[i]) == (i < from ? 0 : count));
    memset(hits, 0, sizeof hits);
}

static void nested(size_t i, void *team) {
    CHECK(wakeful_parallel_for(team, i * 10, i * 10 + 10, WAKEFUL_DYNAMIC, 0, hit, hits) == 0);
}

struct extremes {
    long least, most;
    size_t count;
    char pad[300]; // more than a line of the cache
};

static void take(void *value, size_t i, void *numbers) {
    struct extremes *it = value;
    long number = ((long *)numbers)[i];
    it->least = number < it->least ? number : it->least;
    it->most = number > it->most ? number : it->most;
    it->count++;
    CHECK(it->pad[299] == 7);
}

static void join(void *value, const void *other, void *numbers) {
    (void)numbers;
    struct extremes *it = value;
    const struct extremes *that = other;
    it->least = that->least < it->least ? that->least : it->least;
    it->most = that->most > it->most ? that->most : it->most;
    it->count += that->count;
}

// Not commutative: the value is the last index seen, and each must follow the one before.
static void follow(void *value, size_t i, void *argument) {
    (void)argument;
    size_t *it = value;
    CHECK(*it == 0 || *it == i);
    *it = i + 1;
}

static void follow_block(void *value, const void *other, void *argument) {
    (void)argument;
    size_t *it = value, that = *(const size_t *)other;
    CHECK(that == 0 || that > *it);
    *it = that;
}

static void loops(wakeful_team *team) {
    CHECK(wakeful_team_members(team) >= 1);
    for (size_t s = 0; s < 3; s++)
        for (size_t chunk = 0; chunk < 20; chunk += 19) {
            CHECK(wakeful_parallel_for(team, 3, LENGTH, schedules[s], chunk, hit, hits) == 0);
            all_are(1, 3);
            CHECK(wakeful_parallel_blocks(team, 3, LENGTH, schedules[s], chunk, hit_block, hits) == 0);
            all_are(1, 3);
        }
    CHECK(wakeful_parallel_for(team, 0, LENGTH / 10, WAKEFUL_GUIDED, 1, nested, team) == 0);
    for (size_t i = LENGTH / 10 * 10; i < LENGTH; i++)
        hit(i, hits);
    all_are(1, 0);
    CHECK(wakeful_parallel_for(team, 7, 7, WAKEFUL_STATIC, 0, hit, hits) == 0);
    CHECK(wakeful_parallel_for(team, 7, 3, WAKEFUL_STATIC, 0, hit, hits) == 0);
    all_are(0, 0);

    static long numbers[LENGTH];
    for (size_t i = 0; i < LENGTH; i++)
        numbers[i] = (long)(i * 7919 % LENGTH) - 5000;
    struct extremes result = {.least = 1000000, .most = -1000000, .count = 0};
    memset(result.pad, 7, sizeof result.pad);
    CHECK(wakeful_reduce(team, 0, LENGTH, &result, sizeof result, take, join, numbers) == 0);
    CHECK(result.least == -5000 && result.most == LENGTH - 1 - 5000 && result.count == LENGTH);
    size_t last = 0;
    CHECK(wakeful_reduce(team, 1, 1000, &last, sizeof last, follow, follow_block, NULL) == 0 && last == 1000);
    last = 17;
    CHECK(wakeful_reduce(team, 5, 5, &last, sizeof last, follow, follow_block, NULL) == 0 && last == 17);
}

int main(void) {
    loops(NULL);
    wakeful_team *team = wakeful_team_create_free(4), *bound = wakeful_team_create_bound(), *one = wakeful_team_create_free(0);
    CHECK(wakeful_team_members(one) == 1 && wakeful_team_members(bound) == wakeful_processors());
    loops(team);
    loops(bound);
    loops(one);

    CHECK(wakeful_parallel_for(team, 0, 1, 3, 0, hit, hits) == EINVAL);
    CHECK(wakeful_parallel_for(team, 0, 1, -1, 0, hit, hits) == EINVAL);
    CHECK(wakeful_parallel_for(team, 0, 1, WAKEFUL_STATIC, 0, NULL, hits) == EINVAL);
    CHECK(wakeful_parallel_blocks(team, 0, 1, WAKEFUL_STATIC, 0, NULL, hits) == EINVAL);
    size_t value = 0;
    CHECK(wakeful_reduce(team, 0, 1, NULL, 8, follow, follow_block, NULL) == EINVAL);
    CHECK(wakeful_reduce(team, 0, 1, &value, 8, NULL, follow_block, NULL) == EINVAL);
    CHECK(wakeful_reduce(team, 0, 1, &value, (size_t)1 << 62, follow, follow_block, NULL) == ENOMEM);
    all_are(0, 0);

    // No server here.
    setenv("WAKEFUL_SERVER", "/nonexistent/wakefuld", 1);
    CHECK(wakeful_request(0, 1, 1) == -ECONNREFUSED && wakeful_leave() == -ECONNREFUSED);
    CHECK(wakeful_use_at_most(1) == 0 && wakeful_use_at_most(2) == 1 && wakeful_use_at_most(0) == 2);

    pid_t child = fork();
    if (child == 0) {
        loops(team);
        wakeful_team_destroy(team);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    loops(team);
    wakeful_team_destroy(team);
    wakeful_team_destroy(bound);
    wakeful_team_destroy(one);
    wakeful_team_destroy(NULL);
    return 0;
}
