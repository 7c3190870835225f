// SPDX-License-Identifier: MIT OR Apache-2.0
// More threads than processors on everything: counters, recursion, timeouts, ping-pong, a bounded buffer with its
// checksum, storms of broadcasts, objects destroyed as early as allowed, signals in the middle of waits. Says only whether all came out right.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16 };

static struct timespec in(clockid_t clock, long us)
{
	struct timespec t;
	clock_gettime(clock, &t);
	long ns = t.tv_nsec + us * 1000;
	t.tv_sec += ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	return t;
}

static void run(void *(*body)(void *), int threads, void *arg)
{
	pthread_t t[threads];
	for (int i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, body, arg ? arg : (void *)(long)i))
			abort();
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
}

static unsigned long count;

static void *counter(void *mutex)
{
	for (int i = 0; i < 20000; i++) {
		switch (i % 8) {
		case 0:
			while (pthread_mutex_trylock(mutex))
				sched_yield();
			break;
		case 1:
			for (;;) {
				struct timespec t = in(CLOCK_REALTIME, 200);
				int error = pthread_mutex_timedlock(mutex, &t);
				if (!error)
					break;
				if (error != ETIMEDOUT)
					abort();
			}
			break;
		case 2:
			for (;;) {
				struct timespec t = in(CLOCK_MONOTONIC, 200);
				int error = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &t);
				if (!error)
					break;
				if (error != ETIMEDOUT)
					abort();
			}
			break;
		default:
			pthread_mutex_lock(mutex);
		}
		count++;
		pthread_mutex_unlock(mutex);
	}
	return NULL;
}

static void *recursive(void *mutex)
{
	for (int i = 0; i < 5000; i++) {
		int depth = 1 + i % 5;
		for (int d = 0; d < depth; d++)
			if (pthread_mutex_lock(mutex))
				abort();
		count++;
		for (int d = 0; d < depth; d++)
			if (pthread_mutex_unlock(mutex))
				abort();
	}
	return NULL;
}

static pthread_spinlock_t spin;
static void *spinner(void *arg)
{
	for (int i = 0; i < 20000; i++) {
		if (i % 4)
			pthread_spin_lock(&spin);
		else
			while (pthread_spin_trylock(&spin))
				sched_yield();
		count++;
		pthread_spin_unlock(&spin);
	}
	return arg;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER, cond2 = PTHREAD_COND_INITIALIZER;
static int turn, timeouts;

// One condition variable for all, so that a signal that goes to the wrong one would be lost: hence broadcast.
static void *round_robin(void *arg)
{
	long me = (long)arg;
	pthread_mutex_lock(&mutex);
	for (int i = 0; i < 200; i++) {
		while (turn % THREADS != me)
			pthread_cond_wait(&cond, &mutex);
		turn++;
		pthread_cond_broadcast(&cond);
	}
	pthread_mutex_unlock(&mutex);
	return NULL;
}

enum { ITEMS = 10000, CAPACITY = 4 };
static long buffer[CAPACITY], filled, head, made, used;
static unsigned long sum;

static void *buffer_user(void *arg)
{
	long me = (long)arg;
	for (int i = 0; i < ITEMS; i++) {
		pthread_mutex_lock(&mutex);
		if (me % 2) {
			while (filled == CAPACITY) {
				struct timespec t = in(CLOCK_REALTIME, 100);
				if (me % 4 == 1)
					pthread_cond_wait(&cond, &mutex);
				else if (pthread_cond_timedwait(&cond, &mutex, &t) == ETIMEDOUT)
					timeouts++;
			}
			buffer[(head + filled++) % CAPACITY] = ++made;
			pthread_cond_signal(&cond2);
			pthread_mutex_unlock(&mutex);
		} else {
			while (!filled) {
				struct timespec t = in(CLOCK_MONOTONIC, 100);
				if (me % 4 == 0)
					pthread_cond_wait(&cond2, &mutex);
				else if (pthread_cond_clockwait(&cond2, &mutex, CLOCK_MONOTONIC, &t) == ETIMEDOUT)
					timeouts++;
			}
			sum += buffer[head++ % CAPACITY];
			filled--;
			used++;
			pthread_mutex_unlock(&mutex);
			pthread_cond_signal(&cond);
		}
	}
	return NULL;
}

static int arrived, generation;
static void *barrier(void *arg)
{
	for (int i = 0; i < 300; i++) {
		pthread_mutex_lock(&mutex);
		int mine = generation;
		if (++arrived == THREADS) {
			arrived = 0;
			generation++;
			if (i % 2)
				pthread_cond_broadcast(&cond);
			pthread_mutex_unlock(&mutex);
			if (i % 2 == 0)
				pthread_cond_broadcast(&cond);
			continue;
		}
		while (mine == generation)
			pthread_cond_wait(&cond, &mutex);
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

// The object dies as soon as the broadcast has been made; its memory is then overwritten.
struct event {
	pthread_cond_t cond;
	int waiting, done;
};
static void *early(void *arg)
{
	struct event *e = arg;
	pthread_mutex_lock(&mutex);
	e->waiting++;
	while (!e->done)
		pthread_cond_wait(&e->cond, &mutex);
	e->waiting--;
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static int destroyed_early(void)
{
	for (int i = 0; i < 300; i++) {
		static struct event e;
		pthread_t t[4];
		pthread_cond_init(&e.cond, NULL);
		e.waiting = e.done = 0;
		for (int j = 0; j < 4; j++)
			pthread_create(&t[j], NULL, early, &e);
		for (;;) {
			pthread_mutex_lock(&mutex);
			if (e.waiting == 4)
				break;
			pthread_mutex_unlock(&mutex);
			sched_yield();
		}
		e.done = 1;
		pthread_cond_broadcast(&e.cond);
		if (i % 2)
			pthread_mutex_unlock(&mutex);
		pthread_cond_destroy(&e.cond);
		for (unsigned j = 0; j < sizeof e.cond; j++)
			((volatile unsigned char *)&e.cond)[j] = 0xee;
		if (i % 2 == 0)
			pthread_mutex_unlock(&mutex);
		for (int j = 0; j < 4; j++)
			pthread_join(t[j], NULL);
		for (unsigned j = 0; j < sizeof e.cond; j++)
			if (((volatile unsigned char *)&e.cond)[j] != 0xee)
				return 1;
	}
	return 0;
}

static volatile sig_atomic_t handled;
static void handler(int sig)
{
	(void)sig;
	handled++;
}

static int released;
static void *interrupted(void *arg)
{
	pthread_mutex_lock(&mutex);
	while (!released)
		if (pthread_cond_wait(&cond, &mutex))
			abort();
	pthread_mutex_unlock(&mutex);
	return arg;
}

static const char *verdict(int good)
{
	return good ? "right" : "WRONG";
}

int main(void)
{
	pthread_mutex_t r = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, e = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
			a = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

	alarm(300);
	setvbuf(stdout, NULL, _IOLBF, 0);
	run(counter, THREADS, &mutex);
	run(counter, THREADS, &e);
	run(counter, THREADS, &a);
	printf("counters %s\n", verdict(count == 3 * THREADS * 20000));
	count = 0;
	run(recursive, THREADS, &r);
	printf("recursive %s\n", verdict(count == THREADS * 5000));
	pthread_spin_init(&spin, 0);
	count = 0;
	run(spinner, THREADS, NULL);
	printf("spin %s\n", verdict(count == THREADS * 20000));
	run(round_robin, THREADS, NULL);
	printf("round robin %s\n", verdict(turn == THREADS * 200));
	run(buffer_user, THREADS, NULL);
	unsigned long n = THREADS / 2 * ITEMS;
	printf("bounded buffer %s\n", verdict(made == (long)n && used == (long)n && sum == n * (n + 1) / 2));
	run(barrier, THREADS, NULL);
	printf("barrier %s\n", verdict(generation == 300));
	printf("destroyed early %s\n", verdict(!destroyed_early()));

	struct sigaction sa = { .sa_handler = handler };
	sigaction(SIGUSR1, &sa, NULL);
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, interrupted, NULL);
	for (int i = 0; i < 200; i++) {
		pthread_kill(t[i % 4], SIGUSR1);
		usleep(100);
	}
	pthread_mutex_lock(&mutex);
	released = 1;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("signals %s\n", verdict(handled > 0));
	return 0;
}
