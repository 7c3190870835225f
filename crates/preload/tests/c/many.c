// SPDX-License-Identifier: MIT OR Apache-2.0
// Thousands of threads wait for one thing. Usage: many KIND THREADS. Prints the processor time that they used in half a second of waiting, and how long it
// took from its end until the last thread had ended, both in ms.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int threads;
static atomic_int arrived;
static int done, gone;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, own = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t sem;

static void must(int right)
{
	if (!right)
		abort();
}

static double ms(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void nap(int time_ms)
{
	struct timespec time = {time_ms / 1000, time_ms % 1000 * 1000000};

	nanosleep(&time, 0);
}

static void hold_mutex(void) { pthread_mutex_lock(&mutex); }
static void wait_mutex(void)
{
	pthread_mutex_lock(&mutex);
	done++;
	pthread_mutex_unlock(&mutex);
}
static void wait_timed(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	time.tv_sec += 100;
	must(pthread_mutex_timedlock(&mutex, &time) == 0);
	done++;
	pthread_mutex_unlock(&mutex);
}
static void free_mutex(void) { pthread_mutex_unlock(&mutex); }

static void nothing(void) {}
static void wait_cond(void)
{
	pthread_mutex_lock(&mutex);
	while (!gone)
		pthread_cond_wait(&cond, &mutex);
	done++;
	pthread_mutex_unlock(&mutex);
}
static void broadcast(void)
{
	pthread_mutex_lock(&mutex);
	gone = 1;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
}
static void signal_each(void)
{
	pthread_mutex_lock(&mutex);
	gone = 1;
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < threads; i++)
		pthread_cond_signal(&cond);
}

static void count(void)
{
	pthread_mutex_lock(&own);
	done++;
	pthread_mutex_unlock(&own);
}

static void hold_write(void) { pthread_rwlock_wrlock(&rwlock); }
static void hold_read(void) { pthread_rwlock_rdlock(&rwlock); }
static void wait_read(void)
{
	pthread_rwlock_rdlock(&rwlock);
	pthread_rwlock_unlock(&rwlock);
	count();
}
static void wait_write(void)
{
	pthread_rwlock_wrlock(&rwlock);
	done++;
	pthread_rwlock_unlock(&rwlock);
}
static void free_rwlock(void) { pthread_rwlock_unlock(&rwlock); }

static void make_barrier(void) { pthread_barrier_init(&barrier, 0, threads + 1); }
static void wait_barrier(void)
{
	pthread_barrier_wait(&barrier);
	count();
}
static void meet(void) { pthread_barrier_wait(&barrier); }

static void make_sem(void) { sem_init(&sem, 0, 0); }
static void wait_sem(void)
{
	sem_wait(&sem);
	count();
}
static void post(void)
{
	for (int i = 0; i < threads; i++)
		sem_post(&sem);
}

static sem_t routine_ends;
static void routine(void) { sem_wait(&routine_ends); }
static void make_once(void) { sem_init(&routine_ends, 0, 0); }
static void wait_once(void)
{
	pthread_once(&once, routine);
	count();
}
static void end_once(void) { sem_post(&routine_ends); }

static const struct kind {
	const char *name;
	void (*before)(void), (*wait)(void), (*end)(void);
} kinds[] = {
	{"mutex", hold_mutex, wait_mutex, free_mutex},
	{"timed", hold_mutex, wait_timed, free_mutex},
	{"broadcast", nothing, wait_cond, broadcast},
	{"signal", nothing, wait_cond, signal_each},
	{"read", hold_write, wait_read, free_rwlock},
	{"write", hold_read, wait_write, free_rwlock},
	{"barrier", make_barrier, wait_barrier, meet},
	{"sem", make_sem, wait_sem, post},
	{"once", make_once, wait_once, end_once},
};
static const struct kind *kind;

static void *body(void *arg)
{
	arrived++;
	kind->wait();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t *all;
	pthread_attr_t attr;
	double cpu, before, start;

	if (argc < 3) {
		for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
			puts(kinds[i].name);
		return 0;
	}
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kinds[i].name, argv[1]))
			kind = &kinds[i];
	must(kind != 0);
	threads = atoi(argv[2]);
	all = calloc(threads, sizeof *all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	// A hang ends here.
	alarm(120);
	kind->before();
	for (int i = 0; i < threads; i++)
		if (pthread_create(&all[i], &attr, body, 0))
			return 77;
	while (arrived < threads)
		nap(1);
	// Until they have gone to sleep, and the processors of all others have calmed down.
	for (int i = 0; i < 50; i++) {
		before = ms(CLOCK_PROCESS_CPUTIME_ID);
		nap(100);
		if (ms(CLOCK_PROCESS_CPUTIME_ID) - before < 1)
			break;
	}
	before = ms(CLOCK_PROCESS_CPUTIME_ID);
	nap(500);
	cpu = ms(CLOCK_PROCESS_CPUTIME_ID) - before;
	start = ms(CLOCK_MONOTONIC);
	kind->end();
	for (int i = 0; i < threads; i++)
		pthread_join(all[i], 0);
	printf("%.0f %.0f\n", cpu, ms(CLOCK_MONOTONIC) - start);
	return done == threads ? 0 : 1;
}
