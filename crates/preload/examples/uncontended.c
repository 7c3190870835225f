// SPDX-License-Identifier: MIT OR Apache-2.0
// A program without contention, to see what the interposer and a view cost where they cannot help:
//
//	cc -O2 -pthread -o uncontended uncontended.c
//	wakeful compare -n 25 --view perf -- ./uncontended 4 1000000 400
//
// THREADS threads, each on a mutex of its own: LOCKS times a critical section and after it WORK turns of a loop.
// With 0 LOCKS a single thread does as many turns as a million locks would have, and never touches a lock.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct own {
	_Alignas(128) pthread_mutex_t mutex;
	uint64_t sections;
};

static long locks, work;

static uint64_t compute(long turns, uint64_t x)
{
	for (long i = 0; i < turns; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

static void *thread(void *arg)
{
	struct own *own = arg;
	uint64_t x = 1;
	for (long i = 0; i < locks; i++) {
		pthread_mutex_lock(&own->mutex);
		own->sections++;
		pthread_mutex_unlock(&own->mutex);
		x = compute(work, x);
	}
	return (void *)(uintptr_t)x;
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s THREADS LOCKS WORK\n", argv[0]);
		return 2;
	}
	int threads = atoi(argv[1]);
	locks = atol(argv[2]);
	work = atol(argv[3]);
	if (!locks)
		return compute(1000000 * work, 1) == 0;
	struct own *own = aligned_alloc(128, threads * sizeof *own);
	pthread_t *ids = calloc(threads, sizeof *ids);
	for (int i = 0; i < threads; i++) {
		own[i] = (struct own){ PTHREAD_MUTEX_INITIALIZER, 0 };
		if (pthread_create(&ids[i], NULL, thread, &own[i]))
			return 1;
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		if (own[i].sections != (uint64_t)locks)
			return 1;
	}
	return 0;
}
