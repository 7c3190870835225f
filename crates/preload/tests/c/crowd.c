// SPDX-License-Identifier: MIT OR Apache-2.0
// All threads wait for all by a mutex, a counter and a broadcast. Prints how often a thread went to sleep, in percent of its waits.

#include <pthread.h>
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

	alarm(60);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, body, 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	getrusage(RUSAGE_SELF, &usage);
	printf("%ld\n", usage.ru_nvcsw * 100 / (THREADS * ROUNDS));
	return 0;
}
