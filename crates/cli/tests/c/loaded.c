// SPDX-License-Identifier: MIT OR Apache-2.0
// loaded LIBRARY...: opens libraries in a program whose 20 threads run already, lets each thread use them,
// and closes them. The threads end after that, and what runs at their end must still be there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 20, MOST = 8, ROUNDS = 2, TIMES = 200 };

struct library {
    void *handle;
    int (*lock)(pthread_mutex_t *), (*unlock)(pthread_mutex_t *);
    void *(*allocate)(size_t);
    void (*release)(void *);
    void (*region)(void (*)(void *), void *, unsigned, unsigned);
    int (*loop)(void *, size_t, size_t, int, size_t, void (*)(size_t, void *), void *);
};

static struct library libraries[MOST];
static int count;
static pthread_barrier_t step;
static pthread_mutex_t mutexes[MOST];
static long locked[MOST], parts;

static void in_region(void *data) { __atomic_fetch_add((long *)data, 1, __ATOMIC_RELAXED); }
static void in_loop(size_t i, void *data) { __atomic_fetch_add((long *)data, (long)i, __ATOMIC_RELAXED); }

static void use(int i) {
    struct library *library = &libraries[i];
    for (int n = 0; library->lock && n < TIMES; n++) {
        library->lock(&mutexes[i]);
        locked[i]++;
        library->unlock(&mutexes[i]);
    }
    for (int n = 0; library->allocate && n < TIMES; n++) {
        char *memory = library->allocate(100 + n);
        memset(memory, n, 100 + n);
        library->release(memory);
    }
    long sum = 0;
    if (library->region) {
        library->region(in_region, &sum, 2, 0);
        __atomic_fetch_add(&parts, sum, __ATOMIC_RELAXED);
    }
    sum = 0;
    if (library->loop && (library->loop(NULL, 0, 10, 0, 0, in_loop, &sum) || sum != 45)) {
        fprintf(stderr, "a loop of ten gave %ld\n", sum);
        exit(1);
    }
}

static void *thread(void *nothing) {
    pthread_barrier_wait(&step); // it runs
    pthread_barrier_wait(&step); // all are open
    for (int i = 0; i < count; i++) use(i);
    pthread_barrier_wait(&step); // all are used
    pthread_barrier_wait(&step); // all are closed
    free(malloc(1000));
    return nothing;
}

static void open_one(struct library *library, const char *name) {
    library->handle = dlopen(name, RTLD_NOW);
    if (!library->handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    // Of the library itself: what it does not define, the C library does.
    struct {
        const char *name;
        void **to;
    } all[] = {
        {"pthread_mutex_lock", (void **)&library->lock}, {"pthread_mutex_unlock", (void **)&library->unlock},
        {"malloc", (void **)&library->allocate},         {"free", (void **)&library->release},
        {"GOMP_parallel", (void **)&library->region},    {"wakeful_parallel_for", (void **)&library->loop},
    };
    int found = 0;
    for (unsigned n = 0; n < sizeof all / sizeof *all; n++) {
        Dl_info ours, theirs;
        void *symbol = dlsym(library->handle, all[n].name), *libc = dlsym(RTLD_DEFAULT, all[n].name);
        int is_own = symbol && dladdr(symbol, &theirs)
                     && (!libc || (dladdr(libc, &ours) && ours.dli_fbase != theirs.dli_fbase));
        *all[n].to = is_own ? symbol : NULL;
        found += is_own;
    }
    if (!found) {
        fprintf(stderr, "%s has nothing that this program knows\n", name);
        exit(1);
    }
}

int main(int argc, char **argv) {
    count = argc - 1;
    if (count > MOST) return 2;
    pthread_barrier_init(&step, NULL, THREADS + 1);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, thread, NULL);
        pthread_barrier_wait(&step);
        // The second round opens them in the other order.
        for (int i = 0; i < count; i++) open_one(&libraries[i], argv[round ? count - i : i + 1]);
        pthread_barrier_wait(&step);
        pthread_barrier_wait(&step);
        for (int i = 0; i < count; i++) {
            if (libraries[i].lock && locked[i] != THREADS * TIMES) {
                fprintf(stderr, "%ld times locked\n", locked[i]);
                return 1;
            }
            locked[i] = 0;
            memset(&mutexes[i], 0, sizeof mutexes[i]);
            if (dlclose(libraries[i].handle)) {
                fprintf(stderr, "%s\n", dlerror());
                return 1;
            }
        }
        memset(libraries, 0, sizeof libraries);
        pthread_barrier_wait(&step);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    }
    printf("%ld\n", parts);
    return 0;
}
