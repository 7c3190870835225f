// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts system calls, without privileges: a filter asks a thread of the program's own about each call, which
// counts it and lets it go on (seccomp_unotify(2), since Linux 5.5).
#ifndef COUNTED_H
#define COUNTED_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SECCOMP_USER_NOTIF_FLAG_CONTINUE
#define SECCOMP_USER_NOTIF_FLAG_CONTINUE 1
#endif

enum { NUMBERS = 512 };

static int counted_listener = -1;
static unsigned counted_calls[NUMBERS];

struct counted {
    unsigned of[NUMBERS];
};

// What a thread calls that waits, as often as it takes.
static inline int counted_waits(int number)
{
    return number == SYS_futex || number == SYS_sched_yield || number == SYS_clock_nanosleep;
}

// What a look at the load makes, a millisecond at most: for who waits that long it comes in every batch.
static inline int counted_looks(int number)
{
    return number == SYS_openat || number == SYS_read || number == SYS_fcntl || number == SYS_close;
}

static void *counted_clerk(void *unused)
{
    int listener;
    while ((listener = __atomic_load_n(&counted_listener, __ATOMIC_ACQUIRE)) < 0)
        sched_yield();
    for (;;) {
        // The kernel's may be larger than the compiler's.
        union {
            struct seccomp_notif asked;
            struct seccomp_notif_resp answer;
            char room[512];
        } asks = {.room = {0}}, answers = {.room = {0}};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asks))
            continue;
        __atomic_fetch_add(&counted_calls[(unsigned)asks.asked.data.nr % NUMBERS], 1, __ATOMIC_RELAXED);
        answers.answer.id = asks.asked.id;
        answers.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answers);
    }
    return unused;
}

// From now on the calls of the caller, and of threads that it makes, are counted. Ends the program with 77
// where the kernel has no such filters, or another one has the place.
static inline void counted_begin(void)
{
    struct sock_filter filter[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)};
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    pthread_t clerk;
    if (pthread_create(&clerk, NULL, counted_clerk, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        perror("counted_begin");
        exit(1);
    }
    int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0) {
        fprintf(stderr, "no system calls are counted here: %s\n", strerror(errno));
        exit(77);
    }
    __atomic_store_n(&counted_listener, listener, __ATOMIC_RELEASE);
}

static inline struct counted counted_now(void)
{
    struct counted now;
    for (int i = 0; i < NUMBERS; i++)
        now.of[i] = __atomic_load_n(&counted_calls[i], __ATOMIC_RELAXED);
    return now;
}

static inline double counted_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

// Threads of the program that want a processor between two batches.
static int counted_own = 1;
// Nobody waits for anybody: other load is no reason to make calls.
static int counted_alone;

// May others want the processors? Only some looks.
static inline int counted_is_busy(void)
{
    for (int i = 0; i < 20; i++) {
        int running = 0;
        FILE *file = fopen("/proc/loadavg", "r");
        if (file) {
            int read = fscanf(file, "%*f %*f %*f %d", &running);
            fclose(file);
            if (read != 1 || running > counted_own)
                return 1;
        }
        usleep(5000);
    }
    return 0;
}

enum { COUNTED_BATCH = 8, PATIENCE = 4 };

// Runs batches of `run` until one of them makes at most `told` calls to wait each, and one none but those.
// What comes by the clock, or because others have the processors, is not in each batch. What a construct
// makes is. 0, or 1 and the failure is told. Where `told` is negative, neither calls to wait are judged nor
// looks at the load. Where others are busy, calls to wait are not judged that should be none.
static inline int counted_check(const char *name, void (*run)(int), int told)
{
    static int busy;
    unsigned least_waits = ~0u, least_others = ~0u;
    struct counted last;
    memset(&last, 0, sizeof last);
    for (int i = 0; i < 8; i++)
        run(COUNTED_BATCH);
    double began = counted_seconds();
    for (;;) {
        struct counted before = counted_now();
        run(COUNTED_BATCH);
        struct counted after = counted_now();
        unsigned waits = 0, others = 0;
        for (int i = 0; i < NUMBERS; i++) {
            last.of[i] = after.of[i] - before.of[i];
            if (told >= 0 || !counted_looks(i))
                *(counted_waits(i) ? &waits : &others) += last.of[i];
        }
        least_waits = waits < least_waits ? waits : least_waits;
        least_others = others < least_others ? others : least_others;
        int unjudged = told < 0 || (told == 0 && !counted_alone && busy);
        if ((unjudged || least_waits <= (unsigned)told * COUNTED_BATCH) && least_others == 0)
            return 0;
        double waited = counted_seconds() - began;
        busy |= !counted_alone && told == 0 && least_others == 0 && waited > 0.3 && counted_is_busy();
        if (waited > PATIENCE)
            break;
    }
    fprintf(stderr, "%s: %d make at least %u calls to wait (told: %d each) and %u others; the last made",
            name, COUNTED_BATCH, least_waits, told, least_others);
    for (int i = 0; i < NUMBERS; i++)
        if (last.of[i])
            fprintf(stderr, " %u of number %d", last.of[i], i);
    fprintf(stderr, "\n");
    return 1;
}
#endif
