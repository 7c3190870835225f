// SPDX-License-Identifier: MIT OR Apache-2.0
// A library's constructor waits for a thread that the C library made, which waits for a lock. Meanwhile the
// dynamic linker's own lock is held: who looked a function up in that wait would never return.
#ifdef PLUGIN
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int here, done;

static void expired(union sigval value)
{
	(void)value;
	here = 1;
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	done = 1;
}

__attribute__((constructor)) static void load(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = expired };
	struct itimerspec soon = { .it_value.tv_nsec = 1000000 };
	timer_t timer;

	alarm(60);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer))
		return;
	pthread_mutex_lock(&mutex);
	timer_settime(timer, 0, &soon, 0);
	while (!here)
		usleep(1000);
	usleep(50000);
	pthread_mutex_unlock(&mutex);
	while (!done)
		usleep(1000);
}
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;

	puts(plugin ? "loaded" : "not loaded");
	return !plugin;
}
#endif
