// SPDX-License-Identifier: MIT OR Apache-2.0
// How many system calls the locks make where nobody has to wait for long: none.
#include "../../../gomp/tests/programs/counted.h"
#include <semaphore.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, recursive, checks;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t own, both;
static pthread_spinlock_t spin;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t semaphore;
static const struct timespec past = {1, 0};

#define LOOP(name, ...)               \
    static void name(int n)           \
    {                                 \
        for (int i = 0; i < n; i++) { \
            __VA_ARGS__               \
        }                             \
    }
#define LOCKS(name, mutex)                                                                          \
    LOOP(name, pthread_mutex_lock(mutex); pthread_mutex_unlock(mutex); pthread_mutex_trylock(mutex); \
         pthread_mutex_unlock(mutex); pthread_mutex_timedlock(mutex, &past); pthread_mutex_unlock(mutex);)

static void nothing(void) {}

LOCKS(locks, &mutex)
LOCKS(locks_recursive, &recursive)
LOCKS(locks_checked, &checks)
LOOP(taken, pthread_mutex_lock(&mutex); pthread_mutex_trylock(&mutex); pthread_mutex_unlock(&mutex);)
LOOP(reads, pthread_rwlock_rdlock(&rwlock); pthread_rwlock_tryrdlock(&rwlock); pthread_rwlock_unlock(&rwlock);
     pthread_rwlock_unlock(&rwlock);)
LOOP(writes, pthread_rwlock_wrlock(&rwlock); pthread_rwlock_unlock(&rwlock);)
LOOP(signals, pthread_cond_signal(&condition); pthread_cond_broadcast(&condition);)
LOOP(too_late, pthread_mutex_lock(&mutex); pthread_cond_timedwait(&condition, &mutex, &past);
     pthread_mutex_unlock(&mutex);)
LOOP(alone, pthread_barrier_wait(&own);)
LOOP(semaphores, sem_post(&semaphore); sem_wait(&semaphore); sem_trywait(&semaphore);)
LOOP(spins, pthread_spin_lock(&spin); pthread_spin_unlock(&spin);)
LOOP(onces, pthread_once(&once, nothing);)

// Two threads, in turns with each other: the other one does what the first one does, until it is told to end.
static void (*volatile second)(int);
static unsigned asked, answered;

static void *helps(void *unused)
{
    for (unsigned next = 1;; next++) {
        while (__atomic_load_n(&asked, __ATOMIC_ACQUIRE) != next)
            ;
        second(COUNTED_BATCH);
        __atomic_store_n(&answered, next, __ATOMIC_RELEASE);
    }
    return unused;
}

static void together(int n, void (*run)(int))
{
    second = run;
    unsigned next = asked + 1;
    __atomic_store_n(&asked, next, __ATOMIC_RELEASE);
    run(n);
    while (__atomic_load_n(&answered, __ATOMIC_ACQUIRE) != next)
        ;
}

LOOP(meets, pthread_barrier_wait(&both);)

static void locks_of_two(int n) { together(n, locks); }
static void reads_of_two(int n) { together(n, reads); }
static void writes_of_two(int n) { together(n, writes); }
static void barrier_of_two(int n) { together(n, meets); }

static const struct {
    const char *name;
    void (*run)(int);
    int threads;
} all[] = {
    {"pthread_mutex_lock", locks, 1},
    {"a recursive mutex", locks_recursive, 1},
    {"a mutex that checks", locks_checked, 1},
    {"pthread_mutex_trylock, taken", taken, 1},
    {"pthread_rwlock_rdlock", reads, 1},
    {"pthread_rwlock_wrlock", writes, 1},
    {"pthread_cond_signal", signals, 1},
    {"pthread_cond_timedwait, late", too_late, 1},
    {"pthread_barrier_wait, alone", alone, 1},
    {"sem_post, sem_wait", semaphores, 1},
    {"pthread_spin_lock", spins, 1},
    {"pthread_once", onces, 1},
    {"pthread_mutex_lock, two threads", locks_of_two, 2},
    {"pthread_rwlock_rdlock, two threads", reads_of_two, 2},
    {"pthread_rwlock_wrlock, two threads", writes_of_two, 2},
    {"pthread_barrier_wait, two threads", barrier_of_two, 2},
};

static void of_type(pthread_mutex_t *mutex, int type)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, type);
    pthread_mutex_init(mutex, &kind);
}

int main(void)
{
    of_type(&recursive, PTHREAD_MUTEX_RECURSIVE);
    of_type(&checks, PTHREAD_MUTEX_ERRORCHECK);
    pthread_barrier_init(&own, NULL, 1);
    pthread_barrier_init(&both, NULL, 2);
    pthread_spin_init(&spin, 0);
    sem_init(&semaphore, 0, 0);
    counted_begin();
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        pthread_t helper;
        if (counted_own < all[i].threads && pthread_create(&helper, NULL, helps, NULL))
            return 1;
        counted_own = all[i].threads;
        counted_alone = counted_own == 1;
        if (counted_check(all[i].name, all[i].run, 0))
            return 1;
    }
    return 0;
}
