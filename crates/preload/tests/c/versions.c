// SPDX-License-Identifier: MIT OR Apache-2.0
// References to every version of every symbol, as programs linked against old and new C libraries have them, and look-ups at
// run time: all must lead to the same functions. Prints what the functions did.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
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
	return 0;
}
#else
int main(void)
{
	return 0;
}
#endif
