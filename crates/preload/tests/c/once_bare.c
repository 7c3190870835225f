// SPDX-License-Identifier: MIT OR Apache-2.0
// pthread_once without unwind tables: what is cancelled, or exits, in the routine leaves it to be run again, and handlers run in order.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_once_t once, inner;
static int attempts, entered, order;

static void handler(void *place)
{
	*(int *)place = ++order;
}

// Two places: inside the routine's own handler, and then in nobody's.
static int within, around;

static void is_cancelled(void)
{
	attempts++;
	pthread_cleanup_push(handler, &within);
	__atomic_store_n(&entered, attempts, __ATOMIC_SEQ_CST);
	while (attempts == 1)
		usleep(1000);
	pthread_cleanup_pop(0);
}

static void exits(void)
{
	if (++attempts == 1)
		pthread_exit((void *)1);
}

static void nests(void)
{
	pthread_once(&inner, is_cancelled);
}

static void *begin(void *routine)
{
	pthread_cleanup_push(handler, &around);
	pthread_once(&once, (void (*)(void))routine);
	pthread_cleanup_pop(0);
	return NULL;
}

static void try_it(const char *what, void (*routine)(void), int cancel)
{
	pthread_t t;
	void *result;
	once = inner = PTHREAD_ONCE_INIT;
	attempts = entered = order = within = around = 0;
	pthread_create(&t, NULL, begin, (void *)routine);
	if (cancel) {
		while (!__atomic_load_n(&entered, __ATOMIC_SEQ_CST))
			usleep(200);
		pthread_cancel(t);
	}
	pthread_join(t, &result);
	printf("%s: ended early %d, once %d, inner %d, handlers %d %d\n", what, result != NULL, once, inner, within, around);
	pthread_once(&once, routine);
	printf("%s: attempts %d, once %d\n", what, attempts, once);
}

int main(void)
{
	alarm(20);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < 3; i++) {
		try_it("cancelled", is_cancelled, 1);
		try_it("exits", exits, 0);
		try_it("nested", nests, 1);
	}
	return 0;
}
