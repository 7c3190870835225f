// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads with usual stacks under a limit of address space. Prints how many there were.
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

enum { THREADS = 5, STACK = 8 << 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static int sum;

static void *work(void *arg)
{
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&mutex);
		sum++;
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

int main(void)
{
	struct rlimit limit = { 60000 << 10, 60000 << 10 };
	pthread_t threads[THREADS];
	pthread_attr_t attr;

	setrlimit(RLIMIT_AS, &limit);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_barrier_init(&barrier, 0, THREADS);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(threads + i, &attr, work, 0))
			return printf("%d threads\n", i) > 0;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	printf("%d threads, %d\n", THREADS, sum);
	return 0;
}
