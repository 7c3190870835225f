// SPDX-License-Identifier: MIT OR Apache-2.0
// Cancellation in the middle of a wait: the cleanup handler runs with the mutex held, and no wake-up is lost.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int waiting, cleaned, held, tokens, took[2];

static void cleanup(void *arg)
{
	cleaned++;
	held += pthread_mutex_lock(&mutex) == EDEADLK;
	pthread_mutex_unlock(&mutex);
	(void)arg;
}

static void *forever(void *timed)
{
	struct timespec far = { time(NULL) + 1000, 0 };
	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(cleanup, NULL);
	waiting++;
	for (;;)
		if (timed)
			pthread_cond_timedwait(&cond, &mutex, &far);
		else
			pthread_cond_wait(&cond, &mutex);
	pthread_cleanup_pop(1);
	return NULL;
}

static void *taker(void *arg)
{
	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(cleanup, NULL);
	waiting++;
	while (tokens == 0)
		pthread_cond_wait(&cond, &mutex);
	tokens--;
	*(int *)arg = 1;
	pthread_cleanup_pop(0);
	pthread_mutex_unlock(&mutex);
	return arg;
}

static void until_waiting(int n)
{
	for (int now = 0; now != n; usleep(200)) {
		pthread_mutex_lock(&mutex);
		now = waiting;
		pthread_mutex_unlock(&mutex);
	}
}

static int cancel(pthread_t t)
{
	void *result;
	pthread_cancel(t);
	pthread_join(t, &result);
	return result == PTHREAD_CANCELED;
}

// Many wait for one broadcast, whose wake-ups they pass on. Some time out all the time, some are cancelled
// and some are interrupted.
enum { CROWD = 16 };
static int go;

static void unlock(void *arg)
{
	pthread_mutex_unlock(&mutex);
	(void)arg;
}

static void *one_of_many(void *arg)
{
	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(unlock, NULL);
	waiting++;
	while (!go) {
		struct timespec soon;
		clock_gettime(CLOCK_REALTIME, &soon);
		soon.tv_nsec += 50000;
		soon.tv_sec += soon.tv_nsec / 1000000000;
		soon.tv_nsec %= 1000000000;
		if ((long)arg % 4 == 1)
			pthread_cond_timedwait(&cond, &mutex, &soon);
		else
			pthread_cond_wait(&cond, &mutex);
	}
	pthread_cleanup_pop(1);
	return NULL;
}

static void interrupted(int signal)
{
	(void)signal;
}

static int crowd(int i)
{
	struct timespec at;
	pthread_t t[CROWD];
	int lost = 0;

	waiting = go = 0;
	for (long j = 0; j < CROWD; j++)
		pthread_create(&t[j], NULL, one_of_many, (void *)j);
	until_waiting(CROWD);
	usleep(rand() % 100);
	pthread_mutex_lock(&mutex);
	go = 1;
	if (i % 2)
		pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
	if (i % 2 == 0)
		pthread_cond_broadcast(&cond);
	for (int j = 0; j < CROWD; j++)
		if (j % 4 == 2)
			pthread_cancel(t[j]);
		else if (j % 4 == 3)
			pthread_kill(t[j], SIGUSR1);
	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_sec += 5;
	for (int j = 0; j < CROWD; j++)
		lost += pthread_timedjoin_np(t[j], NULL, &at) != 0;
	return lost;
}

int main(void)
{
	struct sigaction action = { .sa_handler = interrupted };
	pthread_t t[2];
	int cancelled = 0;

	alarm(120);
	for (long i = 0; i < 200; i++) {
		waiting = 0;
		pthread_create(&t[0], NULL, forever, (void *)(i % 2));
		until_waiting(1);
		if (i % 3)
			usleep(100);
		cancelled += cancel(t[0]);
	}
	printf("%d cancelled, %d cleaned, %d with the mutex\n", cancelled, cleaned, held);

	// A pending cancellation and no wait to come: acts in the wait.
	pthread_mutex_lock(&mutex);
	waiting = cleaned = held = 0;
	pthread_create(&t[0], NULL, forever, NULL);
	pthread_cancel(t[0]);
	pthread_mutex_unlock(&mutex);
	pthread_join(t[0], NULL);
	printf("pending: %d %d\n", cleaned, held);

	// Two wait, one signal, one of them cancelled at about that time: the other, or it, must have the token.
	int lost = 0;
	for (int i = 0; i < 2000; i++) {
		void *result[2];
		waiting = tokens = took[0] = took[1] = 0;
		for (int j = 0; j < 2; j++)
			pthread_create(&t[j], NULL, taker, &took[j]);
		until_waiting(2);
		if (i % 2)
			usleep(rand() % 100);
		pthread_mutex_lock(&mutex);
		tokens = 1;
		pthread_cond_signal(&cond);
		pthread_mutex_unlock(&mutex);
		pthread_cancel(t[i / 2 % 2]);
		pthread_join(t[i / 2 % 2], &result[0]);
		// If it has no token, the other one takes it, without further help; else the other is let go. (What the join
		// says is no answer: a cancellation that comes as the thread ends makes it PTHREAD_CANCELED.)
		if (took[i / 2 % 2]) {
			pthread_mutex_lock(&mutex);
			tokens++;
			pthread_cond_broadcast(&cond);
			pthread_mutex_unlock(&mutex);
		}
		struct timespec at;
		clock_gettime(CLOCK_REALTIME, &at);
		at.tv_sec += 5;

		if (pthread_timedjoin_np(t[!(i / 2 % 2)], &result[1], &at)) {
			lost++;
			break;
		}
	}
	printf("lost: %d\n", lost);

	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 300 && !lost; i++)
		lost = crowd(i);
	printf("lost of many: %d\n", lost);
	return 0;
}
