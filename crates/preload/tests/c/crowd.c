// SPDX-License-Identifier: MIT OR Apache-2.0
// All threads wait for all by a mutex, a counter and a broadcast. Prints how often a thread went to sleep, in
// percent of its waits. On one processor.

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { THREADS = 16, ROUNDS = 200 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all = PTHREAD_COND_INITIALIZER;
static int arrived, round_now;

static void *body(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		for (volatile int work = 0; work < 4000; work++)
			;
		pthread_mutex_lock(&mutex);
		int mine = round_now;

		if (++arrived == THREADS) {
			arrived = 0;
			round_now++;
			pthread_cond_broadcast(&all);
		}
		while (round_now == mine)
			pthread_cond_wait(&all, &mutex);
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

int main(void)
{
	pthread_t threads[THREADS];
	struct rusage usage;
	cpu_set_t one;

	alarm(60);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, body, 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	getrusage(RUSAGE_SELF, &usage);
	printf("%ld\n", usage.ru_nvcsw * 100 / (THREADS * ROUNDS));
	return 0;
}
