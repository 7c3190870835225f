// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory by node: the contract of malloc, and where blocks are on the one node that each machine has.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <wakeful.h>
#include "check.h"

#define SIZE 300000

static wakeful_heap *heap;

static void *in_heap(size_t alignment, size_t size) {
    return wakeful_heap_alloc(heap, alignment, size);
}
static void *calloc_in_heap(size_t count, size_t size) {
    return wakeful_heap_calloc(heap, count, size);
}
static void *realloc_in_heap(void *block, size_t size) {
    return wakeful_heap_realloc(heap, block, size);
}
static void free_in_heap(void *block) {
    wakeful_heap_free(heap, block);
}

static void (*give_back)(void *);

static void *other(void *block) {
    give_back(block);
    return NULL;
}

static void contract(void *aligned(size_t, size_t), void *zeroed(size_t, size_t),
                     void *resize(void *, size_t), void release(void *)) {
    void *none = aligned(1, 0), *neither = aligned(1, 0);
    CHECK(none && neither && none != neither);
    release(none);
    release(neither);
    for (size_t alignment = 1; alignment <= 1 << 16; alignment *= 2) {
        void *block = aligned(alignment, 100);
        CHECK(block && (size_t)block % alignment == 0 && (size_t)block % 16 == 0);
        release(block);
    }
    errno = 0;
    CHECK(!aligned(3, 8) && errno == EINVAL);
    errno = 0;
    CHECK(!zeroed((size_t)-1 / 2, 4) && errno == ENOMEM);
    errno = 0;
    CHECK(!aligned(1, (size_t)-1) && errno == ENOMEM);
    char *block = aligned(1, SIZE);
    memset(block, 1, SIZE);
    release(block);
    block = zeroed(SIZE / 4, 4);
    for (size_t i = 0; i < SIZE; i++)
        CHECK(block[i] == 0);
    memset(block, 7, SIZE);
    errno = 0;
    CHECK(!resize(block, (size_t)-1 / 4) && errno == ENOMEM);
    block = resize(block, 2 * SIZE);
    for (size_t i = 0; i < SIZE; i++)
        CHECK(block[i] == 7);
    errno = 77;
    release(NULL);
    release(resize(NULL, 10));
    CHECK(!resize(aligned(1, 10), 0));
    CHECK(errno == 77);
    pthread_t thread;
    give_back = release;
    CHECK(!pthread_create(&thread, NULL, other, block));
    pthread_join(thread, NULL);
}

static void all_there(void *block, int may) {
    wakeful_pages pages;
    wakeful_memory_look(block, SIZE, 0, &pages);
    CHECK(pages.unknown || (pages.elsewhere == 0 && pages.absent == 0) || !may);
}

int main(void) {
    CHECK(wakeful_follow_servers() == 0 && wakeful_follow_servers() == 0);
    heap = wakeful_heap_create(0);
    CHECK(heap);
    contract(in_heap, calloc_in_heap, realloc_in_heap, free_in_heap);
    int bound = wakeful_heap_bound(heap);
    CHECK(bound == 0 || bound == EPERM || bound == ENOSYS);
    void *block = wakeful_heap_calloc(heap, 1, SIZE);
    all_there(block, bound == 0);
    wakeful_heap_destroy(heap);

    wakeful_report report;
    contract(wakeful_aligned_alloc, wakeful_calloc, wakeful_realloc, wakeful_free);
    char *before = wakeful_malloc(SIZE);
    memset(before, 3, SIZE);
    wakeful_memory_report(&report);
    CHECK(report.node == -1 && report.servers == 0);
    int one, two;
    wakeful_server_is_on(&one, 0);
    wakeful_memory_report(&report);
    CHECK(report.servers == 1 && report.unlisted == 0);
    CHECK(report.refused ? report.node == -1 : report.node == 0);
    CHECK(report.refused || report.moved.refused || report.moved.there >= SIZE / 65536);
    all_there(before, report.refused == 0);
    contract(wakeful_aligned_alloc, wakeful_calloc, wakeful_realloc, wakeful_free);
    wakeful_server_is_on(&two, -1);
    wakeful_memory_report(&report);
    CHECK(report.node == -1 && report.servers == 2);
    before = wakeful_realloc(before, SIZE + 1);
    CHECK(before[SIZE - 1] == 3);
    wakeful_free(before);
    wakeful_server_ends(&two);
    wakeful_server_ends(&one);
    CHECK(wakeful_heap_create(100000) != NULL);
    return 0;
}
