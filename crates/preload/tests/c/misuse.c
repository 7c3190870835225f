// SPDX-License-Identifier: MIT OR Apache-2.0
// Every return value that the C library defines, misuse included; the output must be the same with and without the library.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHOW(call) printf("%-62s %s\n", #call, name(call))

static const char *name(int error)
{
	static char other[32];
	switch (error) {
	case 0: return "0";
	case EPERM: return "EPERM";
	case EDEADLK: return "EDEADLK";
	case EAGAIN: return "EAGAIN";
	case EINVAL: return "EINVAL";
	case EBUSY: return "EBUSY";
	case ETIMEDOUT: return "ETIMEDOUT";
	case EOWNERDEAD: return "EOWNERDEAD";
	case ENOTRECOVERABLE: return "ENOTRECOVERABLE";
	}
	snprintf(other, sizeof other, "%d", error);
	return other;
}

static struct timespec in(clockid_t clock, long ms)
{
	struct timespec t;
	clock_gettime(clock, &t);
	long ns = t.tv_nsec + ms % 1000 * 1000000;
	t.tv_sec += ms / 1000 + ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	return t;
}

static pthread_mutex_t *shared;
static int (*action)(pthread_mutex_t *);
static void *other(void *arg)
{
	*(int *)arg = action(shared);
	return NULL;
}

static int by_other(int (*what)(pthread_mutex_t *), pthread_mutex_t *m)
{
	pthread_t t;
	int error = -1;
	shared = m;
	action = what;
	pthread_create(&t, NULL, other, &error);
	pthread_join(t, NULL);
	return error;
}

static int timed(pthread_mutex_t *m)
{
	struct timespec t = in(CLOCK_REALTIME, 20);
	return pthread_mutex_timedlock(m, &t);
}

static int clocked(pthread_mutex_t *m)
{
	struct timespec t = in(CLOCK_MONOTONIC, 20);
	return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t);
}

static int expired(pthread_mutex_t *m)
{
	struct timespec t = { 1, 0 };
	return pthread_mutex_timedlock(m, &t);
}

static int negative(pthread_mutex_t *m)
{
	struct timespec t = { -1, 0 };
	return pthread_mutex_timedlock(m, &t);
}

static int bad_ns(pthread_mutex_t *m)
{
	struct timespec t = { 1, 1000000000 };
	return pthread_mutex_timedlock(m, &t);
}

static int negative_ns(pthread_mutex_t *m)
{
	struct timespec t = { 1, -1 };
	return pthread_mutex_timedlock(m, &t);
}

static int far(pthread_mutex_t *m)
{
	struct timespec t = { LONG_MAX, 0 };
	return pthread_mutex_timedlock(m, &t);
}

static int bad_clock(pthread_mutex_t *m)
{
	struct timespec t = in(CLOCK_MONOTONIC, 20);
	return pthread_mutex_clocklock(m, CLOCK_PROCESS_CPUTIME_ID, &t);
}

static void battery(const char *what, pthread_mutex_t *m, int type)
{
	printf("== %s\n", what);
	SHOW(pthread_mutex_lock(m));
	SHOW(by_other(pthread_mutex_trylock, m));
	SHOW(by_other(timed, m));
	SHOW(by_other(clocked, m));
	SHOW(by_other(expired, m));
	SHOW(by_other(negative, m));
	SHOW(by_other(bad_ns, m));
	SHOW(by_other(negative_ns, m));
	SHOW(by_other(bad_clock, m));
	SHOW(pthread_mutex_trylock(m));
	if (type == PTHREAD_MUTEX_RECURSIVE) {
		SHOW(pthread_mutex_unlock(m));
		m->__data.__count = UINT_MAX;
		SHOW(pthread_mutex_lock(m));
		SHOW(pthread_mutex_trylock(m));
		SHOW(timed(m));
		m->__data.__count = 1;
		SHOW(timed(m));
		SHOW(bad_ns(m));
		SHOW(pthread_mutex_unlock(m));
		SHOW(pthread_mutex_unlock(m));
	}
	if (type == PTHREAD_MUTEX_ERRORCHECK) {
		SHOW(pthread_mutex_lock(m));
		SHOW(timed(m));
		SHOW(clocked(m));
		SHOW(bad_ns(m));
	}
	if (type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK) {
		SHOW(by_other(pthread_mutex_unlock, m));
		printf("owner is me: %d\n", m->__data.__owner == gettid());
		// A child owns nothing that its parent locked.
		fflush(stdout);
		pid_t child = fork();
		if (!child)
			_exit(pthread_mutex_unlock(m) * 10 + pthread_mutex_trylock(m));
		int status;
		waitpid(child, &status, 0);
		printf("in a child: %d\n", WEXITSTATUS(status));
	} else {
		SHOW(timed(m));
	}
	// What a debugger shows.
	printf("count %u\n", m->__data.__count);
	SHOW(pthread_mutex_destroy(m));
	SHOW(pthread_mutex_unlock(m));
	printf("count %u\n", m->__data.__count);
	if (type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK)
		SHOW(pthread_mutex_unlock(m));
	SHOW(by_other(pthread_mutex_trylock, m));
	SHOW(by_other(bad_ns, m));
	if (type != PTHREAD_MUTEX_RECURSIVE && type != PTHREAD_MUTEX_ERRORCHECK) {
		SHOW(pthread_mutex_unlock(m));
		SHOW(bad_ns(m));
		SHOW(pthread_mutex_unlock(m));
		SHOW(far(m));
		SHOW(pthread_mutex_unlock(m));
		SHOW(pthread_mutex_destroy(m));
		SHOW(pthread_mutex_destroy(m));
		SHOW(pthread_mutex_lock(m));
		SHOW(pthread_mutex_trylock(m));
		SHOW(pthread_mutex_unlock(m));
	}
	SHOW(pthread_mutex_init(m, NULL));
	SHOW(pthread_mutex_lock(m));
	SHOW(pthread_mutex_unlock(m));
}

static void *die_with(void *m)
{
	pthread_mutex_lock(m);
	return NULL;
}

static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *waiter(void *arg)
{
	pthread_mutex_lock(&mutex);
	*(int *)arg = 1;
	while (*(int *)arg != 2)
		pthread_cond_wait(&cond, &mutex);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

// Clocks on which nobody can wait, some of which are none at all.
static void no_clock(pthread_cond_t *c, pthread_mutex_t *m)
{
	static const clockid_t clocks[] = { -1, -2, -3, CLOCK_BOOTTIME, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
					    CLOCK_MONOTONIC_COARSE, 77, -77 };
	struct timespec passed = { 1, 0 }, far = { 1LL << 40, 0 };
	for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
		printf("clock %d: ", clocks[i]);
		printf("%s, ", name(pthread_cond_clockwait(c, m, clocks[i], &passed)));
		printf("%s\n", name(pthread_cond_clockwait(c, m, clocks[i], &far)));
	}
}

static void conds(void)
{
	struct timespec t = { 1, 0 };
	pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	pthread_condattr_t attr;
	pthread_cond_t mono;

	printf("== condition variables\n");
	SHOW(pthread_cond_signal(&cond));
	SHOW(pthread_cond_broadcast(&cond));
	pthread_mutex_lock(&mutex);
	SHOW(pthread_cond_timedwait(&cond, &mutex, &t));
	t.tv_sec = -1;
	SHOW(pthread_cond_timedwait(&cond, &mutex, &t));
	t.tv_nsec = 1000000000;
	SHOW(pthread_cond_timedwait(&cond, &mutex, &t));
	t.tv_nsec = -1;
	SHOW(pthread_cond_timedwait(&cond, &mutex, &t));
	SHOW(pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &t));
	t = in(CLOCK_REALTIME, 20);
	SHOW(pthread_cond_timedwait(&cond, &mutex, &t));
	t = in(CLOCK_MONOTONIC, 20);
	SHOW(pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &t));
	SHOW(pthread_cond_clockwait(&cond, &mutex, CLOCK_REALTIME, &t));
	SHOW(pthread_cond_clockwait(&cond, &mutex, CLOCK_PROCESS_CPUTIME_ID, &t));
	no_clock(&cond, &mutex);
	SHOW(by_other(pthread_mutex_trylock, &mutex));
	SHOW(pthread_mutex_unlock(&mutex));

	SHOW(pthread_cond_wait(&cond, &checked));
	t = in(CLOCK_REALTIME, 20);
	SHOW(pthread_cond_timedwait(&cond, &checked, &t));
	pthread_mutex_lock(&checked);
	t = in(CLOCK_REALTIME, 20);
	SHOW(pthread_cond_timedwait(&cond, &checked, &t));
	SHOW(pthread_mutex_unlock(&checked));
	pthread_mutex_lock(&recursive);
	t = in(CLOCK_REALTIME, 20);
	SHOW(pthread_cond_timedwait(&cond, &recursive, &t));
	SHOW(pthread_mutex_unlock(&recursive));
	SHOW(pthread_mutex_unlock(&recursive));

	pthread_condattr_init(&attr);
	SHOW(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
	SHOW(pthread_cond_init(&mono, &attr));
	pthread_mutex_lock(&mutex);
	t = in(CLOCK_MONOTONIC, 20);
	SHOW(pthread_cond_timedwait(&mono, &mutex, &t));
	struct timespec now = in(CLOCK_MONOTONIC, 0);
	printf("not before the deadline: %d\n",
	       now.tv_sec > t.tv_sec || (now.tv_sec == t.tv_sec && now.tv_nsec >= t.tv_nsec));
	SHOW(pthread_mutex_unlock(&mutex));
	SHOW(pthread_cond_destroy(&mono));

	// A mutex that somebody waits with is in use.
	pthread_t thread;
	int stage = 0;
	pthread_create(&thread, NULL, waiter, &stage);
	for (int seen = 0; !seen; usleep(1000)) {
		pthread_mutex_lock(&mutex);
		seen = stage;
		pthread_mutex_unlock(&mutex);
	}
	usleep(20000);
	SHOW(pthread_mutex_destroy(&mutex));
	pthread_mutex_lock(&mutex);
	stage = 2;
	SHOW(pthread_cond_signal(&cond));
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
	SHOW(pthread_mutex_destroy(&mutex));
	SHOW(pthread_cond_destroy(&cond));
	SHOW(pthread_mutex_init(&mutex, NULL));
	SHOW(pthread_cond_init(&cond, NULL));
}

static void delegated(void)
{
	pthread_mutexattr_t attr;
	pthread_condattr_t cattr;
	pthread_cond_t pcond;
	pthread_mutex_t robust, inherit, protect, pshared;
	pthread_t t;
	struct timespec at;

	printf("== the C library's own\n");
	pthread_mutexattr_init(&attr);
	SHOW(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
	SHOW(pthread_mutex_init(&robust, &attr));
	pthread_create(&t, NULL, die_with, &robust);
	pthread_join(t, NULL);
	SHOW(pthread_mutex_lock(&robust));
	SHOW(pthread_mutex_consistent(&robust));
	at = in(CLOCK_REALTIME, 20);
	SHOW(pthread_cond_timedwait(&cond, &robust, &at));
	SHOW(pthread_mutex_unlock(&robust));
	pthread_create(&t, NULL, die_with, &robust);
	pthread_join(t, NULL);
	SHOW(pthread_mutex_trylock(&robust));
	SHOW(pthread_mutex_unlock(&robust));
	SHOW(pthread_mutex_lock(&robust));
	SHOW(pthread_mutex_destroy(&robust));

	pthread_mutexattr_init(&attr);
	SHOW(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
	SHOW(pthread_mutex_init(&inherit, &attr));
	SHOW(pthread_mutex_lock(&inherit));
	SHOW(by_other(pthread_mutex_trylock, &inherit));
	at = in(CLOCK_REALTIME, 20);
	SHOW(pthread_cond_timedwait(&cond, &inherit, &at));
	SHOW(pthread_mutex_unlock(&inherit));
	SHOW(pthread_mutex_destroy(&inherit));

	pthread_mutexattr_init(&attr);
	SHOW(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_PROTECT));
	SHOW(pthread_mutex_init(&protect, &attr));
	SHOW(pthread_mutex_destroy(&protect));

	pthread_mutexattr_init(&attr);
	SHOW(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	SHOW(pthread_mutex_init(&pshared, &attr));
	pthread_condattr_init(&cattr);
	SHOW(pthread_condattr_setpshared(&cattr, PTHREAD_PROCESS_SHARED));
	SHOW(pthread_cond_init(&pcond, &cattr));
	SHOW(pthread_mutex_lock(&pshared));
	at = in(CLOCK_REALTIME, 20);
	SHOW(pthread_cond_timedwait(&pcond, &pshared, &at));
	at = in(CLOCK_MONOTONIC, 20);
	SHOW(pthread_cond_clockwait(&pcond, &pshared, CLOCK_MONOTONIC, &at));
	no_clock(&pcond, &pshared);
	SHOW(pthread_mutex_unlock(&pshared));
	SHOW(pthread_mutex_destroy(&pshared));
	pthread_mutex_lock(&mutex);
	at = in(CLOCK_REALTIME, 35);
	int error, turns = 0;
	while (!(error = pthread_cond_timedwait(&pcond, &mutex, &at)) && turns++ < 1000)
		;
	printf("shared with a mutex that is not: %s\n", name(error));
	no_clock(&pcond, &mutex);
	SHOW(pthread_cond_signal(&pcond));
	SHOW(pthread_mutex_unlock(&mutex));
	SHOW(pthread_cond_destroy(&pcond));
}

/* How the program ends, not where: by the same signal. */
static void nothing_there(int what)
{
	/* The compiler is not to see it. */
	pthread_barrier_t *volatile none = 0;
	int status;

	fflush(stdout);
	if (!fork()) {
		if (what == 0)
			pthread_barrier_wait(none);
		else if (what == 1)
			pthread_barrier_destroy(none);
		else
			pthread_barrier_init(none, 0, 2);
		_exit(0);
	}
	wait(&status);
	printf("a barrier at 0: signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, a = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
	pthread_mutex_t r = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, e = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	static const int types[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
				     PTHREAD_MUTEX_ADAPTIVE_NP };
	pthread_spinlock_t spin;

	alarm(60);
	battery("initialiser", &m, PTHREAD_MUTEX_NORMAL);
	battery("recursive initialiser", &r, PTHREAD_MUTEX_RECURSIVE);
	battery("errorcheck initialiser", &e, PTHREAD_MUTEX_ERRORCHECK);
	battery("adaptive initialiser", &a, PTHREAD_MUTEX_ADAPTIVE_NP);
	for (int i = 0; i < 4; i++) {
		pthread_mutexattr_t attr;
		memset(&m, 0xa5, sizeof m);
		pthread_mutexattr_init(&attr);
		SHOW(pthread_mutexattr_settype(&attr, types[i]));
		SHOW(pthread_mutex_init(&m, &attr));
		printf("kind %#x\n", m.__data.__kind);
		battery("by attribute", &m, types[i]);
	}
	conds();
	delegated();
	printf("== spin locks\n");
	SHOW(pthread_spin_init(&spin, PTHREAD_PROCESS_SHARED));
	SHOW(pthread_spin_lock(&spin));
	SHOW(pthread_spin_trylock(&spin));
	SHOW(pthread_spin_unlock(&spin));
	SHOW(pthread_spin_trylock(&spin));
	SHOW(pthread_spin_unlock(&spin));
	printf("free is %d\n", spin);
	SHOW(pthread_spin_destroy(&spin));
	errno = 77;
	pthread_mutex_lock(&m);
	by_other(timed, &m);
	struct timespec t = { 1, 0 };
	pthread_cond_timedwait(&cond, &m, &t);
	printf("errno %d\n", errno);
	for (int what = 0; what < 3; what++)
		nothing_there(what);
	return 0;
}
