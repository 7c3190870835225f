// SPDX-License-Identifier: MIT OR Apache-2.0
// Many barriers at once, some that are initialised again and again, and what mappings that takes.

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MANY = 2000, AGAIN = 2000, PARTIES = 2, ROUNDS = 50 };

static pthread_barrier_t all[MANY];
static int turns[PARTIES];

static int mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;

	while (file && fgets(line, sizeof line, file))
		count += strchr(line, '\n') != 0;
	if (file)
		fclose(file);
	return count;
}

static void *meet(void *number)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(all + i * 37 % MANY);
		__atomic_fetch_add(turns + (long)number, 1, __ATOMIC_RELAXED);
	}
	return 0;
}

// One in the caller's frame, that is never destroyed.
static __attribute__((noinline)) int once_more(void)
{
	pthread_barrier_t barrier;

	return pthread_barrier_init(&barrier, 0, 1) ||
	       pthread_barrier_wait(&barrier) != PTHREAD_BARRIER_SERIAL_THREAD;
}

int main(void)
{
	pthread_t threads[PARTIES];
	int before = mappings(), wrong = 0;

	for (int i = 0; i < MANY; i++)
		wrong += pthread_barrier_init(all + i, 0, PARTIES) != 0;
	for (long i = 0; i < PARTIES; i++)
		wrong += pthread_create(threads + i, 0, meet, (void *)i) != 0;
	for (int i = 0; i < PARTIES; i++)
		wrong += pthread_join(threads[i], 0) != 0;
	for (int i = 0; i < AGAIN; i++)
		wrong += once_more();
	for (int i = 0; i < MANY; i++)
		wrong += pthread_barrier_destroy(all + i) != 0;
	// And again, in what was given back.
	for (int i = 0; i < MANY; i++)
		wrong += pthread_barrier_init(all + i, 0, PARTIES) != 0;
	printf("wrong %d, turns %d and %d, mappings few %d\n", wrong, turns[0], turns[1],
	       mappings() - before < MANY / 4);
	return 0;
}
