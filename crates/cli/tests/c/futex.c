// SPDX-License-Identifier: MIT OR Apache-2.0
// Two threads that wait for each other by futex(2), as a lock of the program's own does: `futex MS`.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int word;

__attribute__((noinline)) static void take(void)
{
	int free = 0;

	while (!atomic_compare_exchange_strong(&word, &free, 2)) {
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2, NULL);
		free = 0;
	}
}

static void leave(void)
{
	atomic_store(&word, 0);
	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1);
}

static void *turns(void *rounds)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	for (long left = (long)rounds; left; left--) {
		take();
		nanosleep(&ms, NULL);
		leave();
	}
	return NULL;
}

int main(int count, char **words)
{
	void *rounds = (void *)(long)(count > 1 ? atoi(words[1]) : 100) ;
	pthread_t two[2];

	for (int at = 0; at < 2; at++)
		pthread_create(&two[at], NULL, turns, rounds);
	for (int at = 0; at < 2; at++)
		pthread_join(two[at], NULL);
	return 0;
}
