// SPDX-License-Identifier: MIT OR Apache-2.0
// All keys of the C library are the program's, the first one included, and locks work in what runs when a thread exits.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 50, FEW = 8 };

static pthread_key_t keys[PTHREAD_KEYS_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long inside, ended, wrong;

static void work(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		inside++;
		// Beside other programs each yield costs the C library's own run a slice.
		if (i == 0)
			sched_yield();
		pthread_mutex_unlock(&mutex);
		pthread_rwlock_rdlock(&lock);
		pthread_rwlock_unlock(&lock);
	}
}

// The value is the key's own address, so that a value of another's would be noticed.
static void destructor(void *value)
{
	if ((pthread_key_t *)value < keys || (pthread_key_t *)value >= keys + PTHREAD_KEYS_MAX) {
		__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
		return;
	}
	work();
	__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
}

static int made;

static void *thread(void *arg)
{
	work();
	// The first, the last of those that the C library keeps in the thread itself, and the last one made.
	for (int i = 0; i < made; i++)
		if (i == 0 || i == 31 || i == made - 1)
			if (pthread_setspecific(keys[i], &keys[i]) || pthread_getspecific(keys[i]) != &keys[i])
				abort();
	work();
	return arg;
}

static void threads(const char *when)
{
	pthread_t t[THREADS];
	inside = ended = 0;
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < THREADS; i++)
			if (pthread_create(&t[i], NULL, thread, NULL))
				abort();
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
	}
	printf("%s: inside %ld, ended %ld, wrong %ld\n", when, inside, ended, wrong);
}

static void all(void)
{
	pthread_key_t more;
	while (made < PTHREAD_KEYS_MAX && !pthread_key_create(&keys[made], destructor))
		made++;
	printf("keys %d, then %s\n", made, pthread_key_create(&more, NULL) == EAGAIN ? "EAGAIN" : "one more");
}

static void delete(int from)
{
	int errors = 0;
	while (made > from)
		errors += pthread_key_delete(keys[--made]) != 0;
	printf("deleted, errors %d\n", errors);
}

static int run(void)
{
	tss_t tss;

	for (; made < FEW; made++)
		if (pthread_key_create(&keys[made], destructor))
			abort();
	for (int i = 0; i < FEW; i++)
		printf("%s%u", i ? " " : "first keys ", keys[i]);
	printf("\n");
	threads("some");
	all();
	threads("all");
	delete(FEW);
	int last = 0;
	for (; tss_create(&tss, NULL) == thrd_success; last++)
		keys[FEW + last] = tss;
	printf("C11: %d more\n", last);
	made = FEW + last;
	delete(0);
	threads("none");
	return 0;
}

int main(void)
{
	int status;
	alarm(60);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!fork())
		_exit(run());
	wait(&status);
	printf("child %d\n", status);
	return run();
}
