// SPDX-License-Identifier: MIT OR Apache-2.0
// References to every version of every symbol, as programs linked against old and new C libraries have them, and look-ups at
// run time: all must lead to the same functions. Prints what the functions did.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHOW(call) printf("%-60s %d\n", #call, call)

#if defined __x86_64__
#define OLD "GLIBC_2.2.5"
#define VERSION(name, function, version) __asm__(".symver " #name "," #function "@" version)

extern int old_lock(pthread_mutex_t *), old_trylock(pthread_mutex_t *), old_unlock(pthread_mutex_t *);
extern int old_timedlock(pthread_mutex_t *, const struct timespec *);
extern int clocklock_230(pthread_mutex_t *, clockid_t, const struct timespec *);
extern int new_trylock(pthread_mutex_t *);
extern int under_lock(pthread_mutex_t *), under_unlock(pthread_mutex_t *), under_trylock(pthread_mutex_t *);
VERSION(old_lock, pthread_mutex_lock, OLD);
VERSION(old_trylock, pthread_mutex_trylock, OLD);
VERSION(old_unlock, pthread_mutex_unlock, OLD);
VERSION(old_timedlock, pthread_mutex_timedlock, OLD);
VERSION(clocklock_230, pthread_mutex_clocklock, "GLIBC_2.30");
VERSION(new_trylock, pthread_mutex_trylock, "GLIBC_2.34");
VERSION(under_lock, __pthread_mutex_lock, OLD);
VERSION(under_unlock, __pthread_mutex_unlock, OLD);
VERSION(under_trylock, __pthread_mutex_trylock, OLD);
extern int old_spin_lock(pthread_spinlock_t *), old_spin_unlock(pthread_spinlock_t *), new_spin_trylock(pthread_spinlock_t *);
VERSION(old_spin_lock, pthread_spin_lock, OLD);
VERSION(old_spin_unlock, pthread_spin_unlock, OLD);
VERSION(new_spin_trylock, pthread_spin_trylock, "GLIBC_2.34");
// The old generation of condition variables: 48 bytes, all zeros, initialised by its own functions.
extern int old_cond_init(pthread_cond_t *, const void *), old_cond_destroy(pthread_cond_t *);
extern int old_cond_wait(pthread_cond_t *, pthread_mutex_t *), old_cond_signal(pthread_cond_t *), old_cond_broadcast(pthread_cond_t *);
extern int old_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
extern int cond_clockwait_230(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
VERSION(old_cond_init, pthread_cond_init, OLD);
VERSION(old_cond_destroy, pthread_cond_destroy, OLD);
VERSION(old_cond_wait, pthread_cond_wait, OLD);
VERSION(old_cond_timedwait, pthread_cond_timedwait, OLD);
VERSION(old_cond_signal, pthread_cond_signal, OLD);
VERSION(old_cond_broadcast, pthread_cond_broadcast, OLD);
VERSION(cond_clockwait_230, pthread_cond_clockwait, "GLIBC_2.30");

extern int old_rdlock(pthread_rwlock_t *), old_wrlock(pthread_rwlock_t *), old_tryrdlock(pthread_rwlock_t *), old_trywrlock(pthread_rwlock_t *);
extern int old_rwunlock(pthread_rwlock_t *), under_wrlock(pthread_rwlock_t *), under_tryrdlock(pthread_rwlock_t *), under_rwunlock(pthread_rwlock_t *);
extern int old_timedrdlock(pthread_rwlock_t *, const struct timespec *);
extern int clockwrlock_230(pthread_rwlock_t *, clockid_t, const struct timespec *);
VERSION(old_rdlock, pthread_rwlock_rdlock, OLD);
VERSION(old_wrlock, pthread_rwlock_wrlock, OLD);
VERSION(old_tryrdlock, pthread_rwlock_tryrdlock, OLD);
VERSION(old_trywrlock, pthread_rwlock_trywrlock, OLD);
VERSION(old_rwunlock, pthread_rwlock_unlock, OLD);
VERSION(under_wrlock, __pthread_rwlock_wrlock, OLD);
VERSION(under_tryrdlock, __pthread_rwlock_tryrdlock, OLD);
VERSION(under_rwunlock, __pthread_rwlock_unlock, OLD);
VERSION(old_timedrdlock, pthread_rwlock_timedrdlock, OLD);
VERSION(clockwrlock_230, pthread_rwlock_clockwrlock, "GLIBC_2.30");
extern int old_barrier_init(pthread_barrier_t *, const void *, unsigned), old_barrier_wait(pthread_barrier_t *);
extern int old_barrier_destroy(pthread_barrier_t *);
VERSION(old_barrier_init, pthread_barrier_init, OLD);
VERSION(old_barrier_wait, pthread_barrier_wait, OLD);
VERSION(old_barrier_destroy, pthread_barrier_destroy, OLD);
extern int old_sem_init(sem_t *, int, unsigned), old_sem_wait(sem_t *), old_sem_trywait(sem_t *), old_sem_post(sem_t *);
extern int old_sem_timedwait(sem_t *, const struct timespec *), sem_clockwait_230(sem_t *, clockid_t, const struct timespec *);
extern int old_sem_getvalue(sem_t *, int *), old_sem_destroy(sem_t *);
VERSION(old_sem_init, sem_init, OLD);
VERSION(old_sem_wait, sem_wait, OLD);
VERSION(old_sem_trywait, sem_trywait, OLD);
VERSION(old_sem_post, sem_post, OLD);
VERSION(old_sem_timedwait, sem_timedwait, OLD);
VERSION(sem_clockwait_230, sem_clockwait, "GLIBC_2.30");
VERSION(old_sem_getvalue, sem_getvalue, OLD);
VERSION(old_sem_destroy, sem_destroy, OLD);
extern int old_once(pthread_once_t *, void (*)(void)), under_once(pthread_once_t *, void (*)(void));
VERSION(old_once, pthread_once, OLD);
VERSION(under_once, __pthread_once, OLD);

static int runs;
static void init(void)
{
	runs++;
}

// Old and new names, by turns, on the same objects.
static void others(void)
{
	struct timespec past = { 1, 0 };
	pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
	pthread_barrier_t barrier;
	pthread_once_t once = PTHREAD_ONCE_INIT;
	sem_t sem;
	int value;

	SHOW(old_rdlock(&rw));
	SHOW(under_tryrdlock(&rw));
	SHOW(old_trywrlock(&rw));
	SHOW(old_timedrdlock(&rw, &past));
	SHOW(clockwrlock_230(&rw, CLOCK_MONOTONIC, &past));
	SHOW(pthread_rwlock_unlock(&rw));
	SHOW(under_rwunlock(&rw));
	SHOW(old_rwunlock(&rw));
	SHOW(under_wrlock(&rw));
	SHOW(old_wrlock(&rw));
	SHOW(pthread_rwlock_wrlock(&rw));
	SHOW(old_tryrdlock(&rw));
	SHOW(pthread_rwlock_unlock(&rw));
	SHOW(pthread_rwlock_trywrlock(&rw));

	SHOW(old_barrier_init(&barrier, NULL, 1));
	SHOW(pthread_barrier_wait(&barrier));
	SHOW(old_barrier_wait(&barrier));
	SHOW(old_barrier_destroy(&barrier));
	SHOW(pthread_barrier_init(&barrier, NULL, 1));
	SHOW(old_barrier_wait(&barrier));

	SHOW(old_sem_init(&sem, 0, 1));
	SHOW(sem_wait(&sem));
	SHOW(old_sem_trywait(&sem));
	SHOW(old_sem_post(&sem));
	SHOW(old_sem_getvalue(&sem, &value));
	SHOW(value);
	SHOW(old_sem_wait(&sem));
	SHOW(old_sem_timedwait(&sem, &past));
	SHOW(sem_clockwait_230(&sem, CLOCK_MONOTONIC, &past));
	SHOW(sem_post(&sem));
	SHOW(old_sem_timedwait(&sem, &past));
	SHOW(old_sem_destroy(&sem));

	SHOW(old_once(&once, init));
	SHOW(pthread_once(&once, init));
	SHOW(under_once(&once, init));
	SHOW(runs);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t old_cond;
static int ready;

static void *old_waiter(void *arg)
{
	old_lock(&mutex);
	ready = 1;
	while (ready != 2)
		old_cond_wait(&old_cond, &mutex);
	ready = 3;
	old_cond_broadcast(&old_cond);
	old_unlock(&mutex);
	return arg;
}

int main(void)
{
	struct timespec past = { 1, 0 };
	pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
	pthread_spinlock_t spin;
	pthread_t t;

	alarm(20);

	// One call a line: the order matters.
	SHOW(pthread_mutex_lock(&mutex));
	SHOW(old_trylock(&mutex));
	SHOW(new_trylock(&mutex));
	SHOW(under_trylock(&mutex));
	SHOW(old_timedlock(&mutex, &past));
	SHOW(clocklock_230(&mutex, CLOCK_MONOTONIC, &past));
	SHOW(cond_clockwait_230(&cond, &mutex, CLOCK_MONOTONIC, &past));
	SHOW(under_unlock(&mutex));
	SHOW(old_lock(&mutex));
	SHOW(old_unlock(&mutex));
	SHOW(under_lock(&mutex));
	int (*by_name)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(RTLD_DEFAULT, "pthread_mutex_trylock");
	int (*next)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	SHOW(by_name(&mutex));
	SHOW(next(&mutex));
	SHOW(pthread_mutex_destroy(&mutex));
	SHOW(pthread_mutex_init(&mutex, NULL));

	SHOW(pthread_spin_init(&spin, 0));
	SHOW(old_spin_lock(&spin));
	SHOW(new_spin_trylock(&spin));
	SHOW(old_spin_unlock(&spin));
	SHOW(new_spin_trylock(&spin));

	memset(&old_cond, 0, sizeof old_cond);
	pthread_create(&t, NULL, old_waiter, NULL);
	pthread_mutex_lock(&mutex);
	SHOW(old_cond_timedwait(&old_cond, &mutex, &past));
	while (!ready) {
		pthread_mutex_unlock(&mutex);
		pthread_mutex_lock(&mutex);
	}
	ready = 2;
	old_cond_signal(&old_cond);
	while (ready != 3)
		old_cond_wait(&old_cond, &mutex);
	pthread_mutex_unlock(&mutex);
	pthread_join(t, NULL);
	SHOW(old_cond_destroy(&old_cond));
	SHOW(old_cond_init(&old_cond, NULL));
	others();
	return 0;
}
#else
int main(void)
{
	return 0;
}
#endif
