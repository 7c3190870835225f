// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that wait too often to tell each wait: the first word says how, the second how long.

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, own = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static int turns = 100, shared;
static int stop;
static int comes[2], ended[2];

static void start(pthread_t *threads, int count, void *(*each)(void *))
{
	for (long i = 0; i < count; i++)
		if (pthread_create(threads + i, 0, each, (void *)i))
			exit(9);
}

static void join(pthread_t *threads, int count)
{
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], 0);
}

static void *storm(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		pthread_mutex_lock(&lock);
		shared++;
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

#define PLACE pthread_mutex_lock(&lock); sched_yield(); pthread_mutex_unlock(&lock);
#define FOUR(it) it it it it

// More places than a thread can count apart in one turn.
static void *places(void *unused)
{
	for (int i = 0; i < turns; i++) {
		FOUR(FOUR(FOUR(PLACE)))
	}
	return unused;
}

static void *rounds(void *unused)
{
	for (;;)
		pthread_barrier_wait(&barrier);
	return unused;
}

static int is_set(int *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void set(int *word, int to)
{
	__atomic_store_n(word, to, __ATOMIC_RELAXED);
}

// A wait each millisecond or two, which is not often. Two take turns: whoever has the lock keeps it until the
// other one comes for it, and whoever had it lets the other one have it first. So each turn is a wait.
static void *seldom(void *number)
{
	int me = (long)number, other = !me;

	for (int i = 0; i < turns; i++) {
		set(comes + me, 1);
		pthread_mutex_lock(&own);
		set(comes + me, 0);
		while (!is_set(comes + other) && !is_set(ended + other))
			usleep(100);
		usleep(1000);
		pthread_mutex_unlock(&own);
		while (is_set(comes + other))
			usleep(100);
	}
	set(ended + me, 1);
	return 0;
}

__attribute__((noinline)) void brief_section(void)
{
	pthread_mutex_lock(&own);
	sched_yield();
	pthread_mutex_unlock(&own);
	__asm__ volatile("");
}

static void *brief(void *unused)
{
	for (int i = 0; i < 100; i++)
		brief_section();
	return unused;
}

// Children that live for a few milliseconds, while so much is waited that few waits are told.
static int children(void)
{
	pthread_t busy[2], threads[2];

	start(busy, 2, storm);
	for (int i = 0; i < turns; i++) {
		pid_t child = fork();

		if (child == 0) {
			start(threads, 2, brief);
			join(threads, 2);
			_exit(0);
		}
		waitpid(child, 0, 0);
	}
	stop = 1;
	join(busy, 2);
	return 0;
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "";
	pthread_t threads[4];

	if (count > 2)
		turns = atoi(words[2]);
	if (!strcmp(mode, "places")) {
		start(threads, 3, places);
		return join(threads, 3), 0;
	}
	if (!strcmp(mode, "barriers")) {
		pthread_barrier_init(&barrier, 0, 2);
		start(threads, 2, rounds);
		start(threads + 2, 2, seldom);
		// The others go on until the end.
		return join(threads + 2, 2), 0;
	}
	if (!strcmp(mode, "children"))
		return children();
	return 2;
}
