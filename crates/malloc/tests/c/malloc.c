// SPDX-License-Identifier: MIT OR Apache-2.0
// The contract of malloc, by whichever library; before main, in threads and in children. The argument is the
// node from which memory is to come; -1, the default; "servers", that of a server that comes and goes;
// "limited", the same where there are few addresses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

static char *early;
// The compiler knows what comes of such calls.
static volatile size_t huge = SIZE_MAX, half = SIZE_MAX / 2, zero = 0;

__attribute__((constructor)) static void before_main(void) {
    early = malloc(100);
    memset(early, 5, 100);
}

static void contract(void) {
    void *block, *other;
    CHECK((block = malloc(zero)) && (other = malloc(zero)) && block != other);
    free(block);
    free(other);
    for (size_t align = sizeof(void *); align <= 1 << 17; align *= 2) {
        CHECK(posix_memalign(&block, align, 33) == 0 && (uintptr_t)block % align == 0);
        CHECK((other = memalign(align, 5)) && (uintptr_t)other % align == 0);
        free(other);
        CHECK((other = aligned_alloc(align, align)) && (uintptr_t)other % align == 0);
        free(other);
        memset(block, 1, malloc_usable_size(block));
        CHECK(malloc_usable_size(block) >= 33);
        free(block);
    }
    for (size_t align = 0; align < 100; align++) {
        CHECK((block = memalign(align, 40)));
        CHECK(!align || (uintptr_t)block % ((size_t)1 << (63 - __builtin_clzl(2 * align - 1))) == 0);
        free(block);
    }
    CHECK((block = valloc(10)) && (uintptr_t)block % 4096 == 0);
    free(block);
    CHECK((block = pvalloc(10)) && malloc_usable_size(block) >= 4096);
    free(block);
    errno = 0;
    CHECK(posix_memalign(&block, 3, 8) == EINVAL && posix_memalign(&block, 64, huge) == ENOMEM);
    CHECK(!malloc(huge) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(half, 3) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(half / 4, 4) && errno == ENOMEM);
    char *text = malloc(7);
    strcpy(text, "seven!");
    errno = 0;
    CHECK(!realloc(text, huge) && errno == ENOMEM && !strcmp(text, "seven!"));
    errno = 0;
    CHECK(!reallocarray(text, half, 3) && errno == ENOMEM);
    CHECK((text = realloc(text, 3000000)) && !strcmp(text, "seven!"));
    CHECK((text = reallocarray(text, 2, 10)) && !strcmp(text, "seven!"));
    errno = 33;
    free(text);
    free(NULL);
    CHECK(!realloc(malloc(5), zero) && malloc_usable_size(NULL) == 0 && errno == 33);
    CHECK((text = realloc(NULL, 9)));
    free(text);
    for (size_t size = 1; size < 5000000; size = size * 3 + 1) {
        CHECK((text = malloc(size)));
        memset(text, 9, size);
        free(text);
        CHECK((text = calloc(1, size)));
        for (size_t i = 0; i < size; i++)
            CHECK(text[i] == 0);
        free(text);
    }
}

#define MANY 2000
static void *passed[4][MANY];
static pthread_barrier_t barrier;

// Each thread frees what another one has allocated.
static void *thread(void *number) {
    size_t me = (size_t)number;
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < MANY; i++) {
            size_t size = (i * 37 + me) % 3000 + 1;
            CHECK((passed[me][i] = malloc(size)));
            memset(passed[me][i], (int)me, size);
        }
        pthread_barrier_wait(&barrier);
        for (size_t i = 0; i < MANY; i++) {
            size_t from = (me + 1) % 4;
            CHECK(*(char *)passed[from][i] == (char)from);
            free(passed[from][i]);
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static volatile int stop;

static void *busy(void *unused) {
    (void)unused;
    while (!stop)
        free(malloc(700));
    return NULL;
}

static void children(void) {
    pthread_t threads[3];
    // In the bound heap one of each part: two have no room in one. Elsewhere there may be none.
    void *of_parts[8];
    for (int i = 0; i < 8; i++)
        of_parts[i] = malloc((size_t)3 << 35);
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&threads[i], NULL, busy, NULL));
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            // Takes the lock of the block's part, whoever held it.
            for (int n = 0; n < 8; n++)
                free(of_parts[n]);
            void *blocks[64];
            for (int n = 0; n < 64; n++)
                if (!(blocks[n] = malloc(700)))
                    _exit(1);
            for (int n = 0; n < 64; n++)
                free(blocks[n]);
            _exit(0);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 8; i++)
        free(of_parts[i]);
}

// Who says where memory comes from, if anybody does.
static int (*report)(uint64_t *elsewhere);

static int place(void) {
    uint64_t elsewhere = 0;
    int node = report ? report(&elsewhere) : -1;
    CHECK(elsewhere == 0);
    return node;
}

// All pages of a new block are on the node; -1: of an old one, or nobody says.
static void all_on(char *block, size_t size, int node) {
    for (size_t i = 0; i < size && node >= 0; i += 4096) {
        void *page = (void *)((uintptr_t)(block + i) & ~(uintptr_t)4095);
        int found = -1;
        if (syscall(SYS_move_pages, 0, 1L, &page, NULL, &found, 0) == 0)
            CHECK(found == node);
    }
}

static char *filled(size_t size) {
    char *block = malloc(size);
    CHECK(block);
    memset(block, 4, size);
    return block;
}

int main(int count, char **words) {
    char *wanted = count > 1 ? words[1] : "-1";
    report = (int (*)(uint64_t *))dlsym(RTLD_DEFAULT, "wakeful_malloc_report");
    void (*serves)(const void *, int) =
        (void (*)(const void *, int))dlsym(RTLD_DEFAULT, "wakeful_malloc_serves");
    if (strcmp(wanted, "limited") == 0) {
        // The heap leaves most of what the program may have to the program.
        struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
        CHECK(serves && setrlimit(RLIMIT_AS, &limit) == 0);
        serves(&barrier, 1);
        void *half = mmap(NULL, (size_t)1 << 29, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(half != MAP_FAILED && munmap(half, (size_t)1 << 29) == 0);
        // And it is there, if the kernel binds memory.
        printf("with a server: %d\n", place());
        free(filled(1 << 20));
        serves(&barrier, 0);
    } else if (strcmp(wanted, "servers") == 0) {
        CHECK(report && serves && place() == -1);
        char *before = filled(1 << 20);
        serves(&barrier, 1);
        int node = place();
        // Where the kernel does not let memory be bound, or this thread may run on several nodes, it is -1.
        printf("with a server: %d\n", node);
        all_on(before, 1 << 20, node);
        char *after = filled(1 << 20);
        all_on(after, 1 << 20, node);
        contract();
        children();
        serves(&barrier, 0);
        CHECK(place() == -1);
        free(before);
        free(realloc(after, 2 << 20));
    } else {
        CHECK(place() == atoi(wanted));
        char *block = filled(1 << 20);
        all_on(block, 1 << 20, place());
        free(block);
    }
    contract();
    CHECK(early[99] == 5);
    free(early);
    pthread_t threads[4];
    CHECK(!pthread_barrier_init(&barrier, NULL, 4));
    for (size_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, thread, (void *)i));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    children();
    puts("all well");
    return 0;
}
