// SPDX-License-Identifier: MIT OR Apache-2.0
// Reader-writer locks of every kind: results, misuse that is defined, readers that read again, fork, and more threads than processors.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHOW(call) printf("%-58s %s\n", #call, name(call))

static const char *name(int error)
{
	static char other[32];
	switch (error) {
	case 0: return "0";
	case EDEADLK: return "EDEADLK";
	case EAGAIN: return "EAGAIN";
	case EINVAL: return "EINVAL";
	case EBUSY: return "EBUSY";
	case ETIMEDOUT: return "ETIMEDOUT";
	}
	snprintf(other, sizeof other, "%d", error);
	return other;
}

static struct timespec in(clockid_t clock, long us)
{
	struct timespec t;
	clock_gettime(clock, &t);
	long ns = t.tv_nsec + us % 1000000 * 1000;
	t.tv_sec += us / 1000000 + ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	return t;
}

typedef int timed(pthread_rwlock_t *, const struct timespec *);
typedef int clocked(pthread_rwlock_t *, clockid_t, const struct timespec *);

static int until(timed *f, pthread_rwlock_t *l)
{
	struct timespec t = in(CLOCK_REALTIME, 15000), now;
	int error = f(l, &t);
	clock_gettime(CLOCK_REALTIME, &now);
	if (error == ETIMEDOUT && (now.tv_sec < t.tv_sec || (now.tv_sec == t.tv_sec && now.tv_nsec < t.tv_nsec)))
		printf("too early\n");
	return error;
}

static int by_clock(clocked *f, pthread_rwlock_t *l, clockid_t clock)
{
	struct timespec t = in(clock == CLOCK_REALTIME ? clock : CLOCK_MONOTONIC, 15000);
	return f(l, clock, &t);
}

static int at(timed *f, pthread_rwlock_t *l, long seconds, long ns)
{
	struct timespec t = { seconds, ns };
	return f(l, &t);
}

// The same by another thread, which gives back what it gets.
struct call {
	int (*plain)(pthread_rwlock_t *);
	timed *timed;
	clocked *clocked;
	pthread_rwlock_t *lock;
	int error;
};

static void *make(void *arg)
{
	struct call *c = arg;
	c->error = c->plain ? c->plain(c->lock) : c->timed ? until(c->timed, c->lock) : by_clock(c->clocked, c->lock, CLOCK_MONOTONIC);
	if (!c->error)
		pthread_rwlock_unlock(c->lock);
	return NULL;
}

static int other(struct call c)
{
	pthread_t t;
	pthread_create(&t, NULL, make, &c);
	pthread_join(t, NULL);
	return c.error;
}
#define OTHER(f) other((struct call){ .plain = f, .lock = l })
#define OTHER_UNTIL(f) other((struct call){ .timed = f, .lock = l })
#define OTHER_BY_CLOCK(f) other((struct call){ .clocked = f, .lock = l })

static void battery(const char *what, pthread_rwlock_t *l)
{
	printf("== %s\n", what);
	SHOW(pthread_rwlock_rdlock(l));
	SHOW(pthread_rwlock_rdlock(l));
	SHOW(pthread_rwlock_tryrdlock(l));
	SHOW(until(pthread_rwlock_timedrdlock, l));
	SHOW(by_clock(pthread_rwlock_clockrdlock, l, CLOCK_MONOTONIC));
	SHOW(OTHER(pthread_rwlock_rdlock));
	SHOW(OTHER(pthread_rwlock_tryrdlock));
	SHOW(OTHER(pthread_rwlock_trywrlock));
	SHOW(OTHER_UNTIL(pthread_rwlock_timedrdlock));
	SHOW(OTHER_UNTIL(pthread_rwlock_timedwrlock));
	SHOW(OTHER_BY_CLOCK(pthread_rwlock_clockrdlock));
	SHOW(OTHER_BY_CLOCK(pthread_rwlock_clockwrlock));
	SHOW(pthread_rwlock_trywrlock(l));
	SHOW(until(pthread_rwlock_timedwrlock, l));
	SHOW(by_clock(pthread_rwlock_clockwrlock, l, CLOCK_MONOTONIC));
	SHOW(by_clock(pthread_rwlock_clockwrlock, l, CLOCK_REALTIME));
	SHOW(by_clock(pthread_rwlock_clockwrlock, l, CLOCK_PROCESS_CPUTIME_ID));
	SHOW(by_clock(pthread_rwlock_clockrdlock, l, CLOCK_PROCESS_CPUTIME_ID));
	SHOW(at(pthread_rwlock_timedwrlock, l, 1, 0));
	SHOW(at(pthread_rwlock_timedwrlock, l, -1, 0));
	SHOW(at(pthread_rwlock_timedwrlock, l, 1, 1000000000));
	SHOW(at(pthread_rwlock_timedrdlock, l, 1, -1));
	SHOW(at(pthread_rwlock_timedrdlock, l, 1, 0));
	for (int i = 0; i < 6; i++)
		SHOW(pthread_rwlock_unlock(l));

	SHOW(pthread_rwlock_wrlock(l));
	SHOW(pthread_rwlock_wrlock(l));
	SHOW(pthread_rwlock_rdlock(l));
	SHOW(pthread_rwlock_tryrdlock(l));
	SHOW(pthread_rwlock_trywrlock(l));
	SHOW(until(pthread_rwlock_timedrdlock, l));
	SHOW(until(pthread_rwlock_timedwrlock, l));
	SHOW(by_clock(pthread_rwlock_clockrdlock, l, CLOCK_MONOTONIC));
	SHOW(by_clock(pthread_rwlock_clockwrlock, l, CLOCK_MONOTONIC));
	SHOW(at(pthread_rwlock_timedrdlock, l, 1, 1000000000));
	SHOW(at(pthread_rwlock_timedwrlock, l, 1, -1));
	SHOW(by_clock(pthread_rwlock_clockwrlock, l, CLOCK_PROCESS_CPUTIME_ID));
	SHOW(OTHER(pthread_rwlock_tryrdlock));
	SHOW(OTHER(pthread_rwlock_trywrlock));
	SHOW(OTHER_UNTIL(pthread_rwlock_timedrdlock));
	SHOW(OTHER_UNTIL(pthread_rwlock_timedwrlock));
	SHOW(OTHER_BY_CLOCK(pthread_rwlock_clockrdlock));
	SHOW(OTHER_BY_CLOCK(pthread_rwlock_clockwrlock));
	printf("writer is me: %d\n", l->__data.__cur_writer == gettid());
	SHOW(pthread_rwlock_unlock(l));
	SHOW(at(pthread_rwlock_timedwrlock, l, LONG_MAX, 0));
	SHOW(pthread_rwlock_unlock(l));
	SHOW(at(pthread_rwlock_timedrdlock, l, 1, 1000000000));
	SHOW(pthread_rwlock_trywrlock(l));
	SHOW(pthread_rwlock_unlock(l));
	SHOW(OTHER(pthread_rwlock_wrlock));
	SHOW(pthread_rwlock_destroy(l));
	SHOW(pthread_rwlock_init(l, NULL));
	SHOW(pthread_rwlock_wrlock(l));
	SHOW(pthread_rwlock_unlock(l));
}

static int stage;
static void *write_then_go(void *l)
{
	__atomic_store_n(&stage, 1, __ATOMIC_SEQ_CST);
	if (pthread_rwlock_wrlock(l))
		abort();
	__atomic_store_n(&stage, 2, __ATOMIC_SEQ_CST);
	pthread_rwlock_unlock(l);
	return NULL;
}

static void *read_once(void *l)
{
	if (pthread_rwlock_rdlock(l))
		abort();
	pthread_rwlock_unlock(l);
	return NULL;
}

// A writer waits. Who reads may read again, at once, and a reader for whom that one waits gets in, too.
static void again(pthread_rwlock_t *l)
{
	pthread_t writer, reader;
	int fast = 0, errors = 0;

	for (int i = 0; i < 20; i++) {
		struct timespec before, after;
		stage = 0;
		pthread_rwlock_rdlock(l);
		pthread_create(&writer, NULL, write_then_go, l);
		while (!__atomic_load_n(&stage, __ATOMIC_SEQ_CST))
			usleep(100);
		usleep(3000);
		clock_gettime(CLOCK_MONOTONIC, &before);
		for (int n = 0; n < 100; n++) {
			errors += pthread_rwlock_rdlock(l);
			errors += pthread_rwlock_tryrdlock(l);
			errors += until(pthread_rwlock_timedrdlock, l);
			for (int u = 0; u < 3; u++)
				pthread_rwlock_unlock(l);
		}
		clock_gettime(CLOCK_MONOTONIC, &after);
		fast += (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 < 200;
		pthread_create(&reader, NULL, read_once, l);
		pthread_join(reader, NULL);
		errors += stage != 1;
		pthread_rwlock_unlock(l);
		pthread_join(writer, NULL);
		errors += stage != 2;
	}
	// A busy machine may make one slow; waiting for patience to end would make all so.
	printf("reads again: errors %d, at once %d\n", errors, fast > 10);
}

// Of the kind in which readers wait for writers.
static void writers_first(pthread_rwlock_t *l)
{
	pthread_t writer;
	stage = 0;
	pthread_rwlock_rdlock(l);
	pthread_create(&writer, NULL, write_then_go, l);
	while (!__atomic_load_n(&stage, __ATOMIC_SEQ_CST))
		usleep(100);
	usleep(50000);
	SHOW(OTHER(pthread_rwlock_tryrdlock));
	pthread_rwlock_unlock(l);
	pthread_join(writer, NULL);
	printf("wrote %d\n", stage == 2);
}

enum { THREADS = 16, ROUNDS = 4000, WORDS = 16 };
static pthread_rwlock_t *contended;
static volatile unsigned long data[WORDS];
static int torn, writes;

static void write_data(void)
{
	for (int i = 0; i < WORDS; i++)
		data[i]++;
	writes++;
}

static void read_data(void)
{
	for (int i = 1; i < WORDS; i++)
		if (data[i] != data[0])
			__atomic_fetch_add(&torn, 1, __ATOMIC_RELAXED);
}

static void *mixed(void *arg)
{
	pthread_rwlock_t *l = contended;
	for (int i = (int)(long)arg; i < ROUNDS + (int)(long)arg; i++) {
		int write = i % 5 == 0, error;
		switch (i % 7) {
		case 0:
			while ((error = write ? pthread_rwlock_trywrlock(l) : pthread_rwlock_tryrdlock(l)) == EBUSY)
				sched_yield();
			break;
		case 1:
			do {
				struct timespec t = in(CLOCK_REALTIME, 200);
				error = write ? pthread_rwlock_timedwrlock(l, &t) : pthread_rwlock_timedrdlock(l, &t);
			} while (error == ETIMEDOUT);
			break;
		case 2:
			do {
				struct timespec t = in(CLOCK_MONOTONIC, 200);
				error = write ? pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &t) :
						pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &t);
			} while (error == ETIMEDOUT);
			break;
		default:
			error = write ? pthread_rwlock_wrlock(l) : pthread_rwlock_rdlock(l);
		}
		if (error)
			abort();
		if (write) {
			write_data();
		} else {
			read_data();
			if (i % 11 == 0 && l->__data.__flags != PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) {
				if (pthread_rwlock_rdlock(l))
					abort();
				read_data();
				pthread_rwlock_unlock(l);
			}
		}
		if (pthread_rwlock_unlock(l))
			abort();
	}
	return NULL;
}

static void run(void *(*body)(void *), int threads)
{
	pthread_t t[threads];
	for (long i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, body, (void *)i))
			abort();
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
}

static void stress(pthread_rwlock_t *l)
{
	contended = l;
	writes = torn = 0;
	run(mixed, THREADS);
	printf("stress: torn %d, writes %d\n", torn, writes);
}

static int stop;
static void *keep_busy(void *arg)
{
	pthread_rwlock_t *l = contended;
	for (long i = (long)arg; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		if (i % 4 ? pthread_rwlock_rdlock(l) : pthread_rwlock_wrlock(l))
			abort();
		pthread_rwlock_unlock(l);
	}
	return NULL;
}

// A child whose parent's threads were at work on the lock makes a new one of it; the one that the forking thread reads, alone, it can use.
static pthread_rwlock_t busy = PTHREAD_RWLOCK_INITIALIZER, quiet = PTHREAD_RWLOCK_INITIALIZER;
static void renew(void) { pthread_rwlock_init(&busy, NULL); }

static void forked(void)
{
	pthread_t t[6];
	int status, good = 0;

	printf("== fork\n");
	contended = &busy;
	pthread_atfork(NULL, NULL, renew);
	for (long i = 0; i < 6; i++)
		pthread_create(&t[i], NULL, keep_busy, (void *)i);
	pthread_rwlock_rdlock(&quiet);
	for (int i = 0; i < 10; i++) {
		usleep(500);
		pid_t pid = fork();
		if (!pid) {
			alarm(30);
			int held = pthread_rwlock_trywrlock(&quiet) == EBUSY;
			pthread_rwlock_unlock(&quiet);
			for (int n = 0; n < 2; n++) {
				contended = n ? &quiet : &busy;
				writes = torn = 0;
				run(mixed, 4);
				if (torn || writes != 4 * ROUNDS / 5)
					_exit(6);
			}
			_exit(held ? 5 : 7);
		}
		waitpid(pid, &status, 0);
		good += WIFEXITED(status) && WEXITSTATUS(status) == 5;
	}
	pthread_rwlock_unlock(&quiet);
	stop = 1;
	for (int i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	printf("children %d\n", good);
}

static volatile sig_atomic_t handled;
static void handler(int sig)
{
	(void)sig;
	handled++;
}

// No call here knows EINTR.
static void *interrupted(void *l)
{
	struct timespec far = in(CLOCK_REALTIME, 100000000);
	int error = pthread_rwlock_rdlock(l);
	error += pthread_rwlock_unlock(l);
	error += pthread_rwlock_timedwrlock(l, &far);
	error += pthread_rwlock_unlock(l);
	return (void *)(long)error;
}

static void signals(pthread_rwlock_t *l)
{
	struct sigaction sa = { .sa_handler = handler };
	pthread_t t;
	void *error;
	sigaction(SIGUSR1, &sa, NULL);
	pthread_rwlock_wrlock(l);
	pthread_create(&t, NULL, interrupted, l);
	for (int i = 0; i < 50; i++) {
		usleep(200);
		pthread_kill(t, SIGUSR1);
		if (i == 25) {
			pthread_rwlock_unlock(l);
			pthread_rwlock_rdlock(l);
		}
	}
	pthread_rwlock_unlock(l);
	pthread_join(t, &error);
	printf("signals: errors %ld, handled %d\n", (long)error, handled > 0);
}

static void shared(void)
{
	int status;
	pthread_rwlockattr_t attr;
	pthread_rwlock_t *l = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	volatile unsigned long *count = (unsigned long *)(l + 1);

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	SHOW(pthread_rwlock_init(l, &attr));
	battery("process-shared", l);
	pthread_rwlock_init(l, &attr);
	fflush(stdout);
	pid_t pid = fork();
	for (int i = 0; i < 20000; i++) {
		if (pthread_rwlock_wrlock(l))
			abort();
		++*count;
		pthread_rwlock_unlock(l);
	}
	if (!pid)
		_exit(0);
	waitpid(pid, &status, 0);
	printf("with a child: %lu, %d\n", *count, status);
}

int main(void)
{
	static pthread_rwlock_t plain = PTHREAD_RWLOCK_INITIALIZER,
				writer = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
	static const int kinds[] = { PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP,
				     PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP };

	alarm(200);
	setvbuf(stdout, NULL, _IOLBF, 0);
	battery("initialiser", &plain);
	battery("initialiser, writers first", &writer);
	for (int i = 0; i < 3; i++) {
		pthread_rwlockattr_t attr;
		static pthread_rwlock_t l;
		memset(&l, 0xa5, sizeof l);
		pthread_rwlockattr_init(&attr);
		SHOW(pthread_rwlockattr_setkind_np(&attr, kinds[i]));
		SHOW(pthread_rwlock_init(&l, &attr));
		printf("kind %d\n", l.__data.__flags);
		battery("by attribute", &l);
		pthread_rwlock_init(&l, &attr);
		if (i < 2)
			again(&l);
		else
			writers_first(&l);
		stress(&l);
		signals(&l);
	}
	forked();
	shared();
	errno = 77;
	pthread_rwlock_rdlock(&plain);
	struct call c = { .timed = pthread_rwlock_timedwrlock, .lock = &plain };
	other(c);
	pthread_rwlock_unlock(&plain);
	printf("errno %d\n", errno);
	return 0;
}
