// SPDX-License-Identifier: MIT OR Apache-2.0
// Mutexes that are the C library's, with condition variables that are not: a wait keeps the mutex in use.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int waiting, told;

static const char *name(int error)
{
	return error == 0 ? "0" : error == EBUSY ? "EBUSY" : error == EPERM ? "EPERM" : strerror(error);
}

static void unlock(void *m)
{
	pthread_mutex_unlock(m);
}

static void *waits(void *arg)
{
	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(unlock, &mutex);
	waiting++;
	while (!told)
		pthread_cond_wait(&cond, &mutex);
	pthread_cleanup_pop(1);
	return arg;
}

static void *destroys(void *arg)
{
	*(int *)arg = pthread_mutex_destroy(&mutex);
	return NULL;
}

static int elsewhere(void)
{
	pthread_t t;
	int error;
	pthread_create(&t, NULL, destroys, &error);
	pthread_join(t, NULL);
	return error;
}

static void battery(const char *what, pthread_mutexattr_t *attr, int owned)
{
	pthread_t t[2];
	struct timespec past = { 1, 0 };
	// The C library does not ask whether a robust one is in use.
	int robust = 0;
	pthread_mutexattr_getrobust(attr, &robust);
	printf("== %s\n", what);
	printf("init %s\n", name(pthread_mutex_init(&mutex, attr)));
	for (int cancel = 0; cancel < 2; cancel++) {
		waiting = told = 0;
		for (int i = 0; i < 2; i++)
			pthread_create(&t[i], NULL, waits, NULL);
		for (int n = 0; n < 2;) {
			pthread_mutex_lock(&mutex);
			n = waiting;
			if (n == 2 && !robust)
				printf("held: %s\n", name(pthread_mutex_destroy(&mutex)));
			pthread_mutex_unlock(&mutex);
			usleep(500);
		}
		if (!robust)
			printf("waited for: %s, %s\n", name(pthread_mutex_destroy(&mutex)), name(elsewhere()));
		if (cancel) {
			for (int i = 0; i < 2; i++)
				pthread_cancel(t[i]);
		} else {
			pthread_mutex_lock(&mutex);
			told = 1;
			pthread_mutex_unlock(&mutex);
			pthread_cond_broadcast(&cond);
		}
		for (int i = 0; i < 2; i++)
			pthread_join(t[i], NULL);
		pthread_mutex_lock(&mutex);
		printf("timed %d\n", pthread_cond_timedwait(&cond, &mutex, &past) == ETIMEDOUT);
		pthread_mutex_unlock(&mutex);
		// Of a normal one nobody looks who holds it.
		if (owned)
			printf("not held: %s\n", name(pthread_cond_timedwait(&cond, &mutex, &past)));
		if (cancel)
			printf("destroy %s\n", name(pthread_mutex_destroy(&mutex)));
	}
}

int main(void)
{
	pthread_mutexattr_t attr;
	alarm(60);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int type = 0; type < 3; type++) {
		static const int types[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK };
		for (int how = 0; how < 4; how++) {
			char what[32];
			pthread_mutexattr_init(&attr);
			pthread_mutexattr_settype(&attr, types[type]);
			if (how == 1)
				pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
			if (how == 2)
				pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
			if (how == 3)
				pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
			snprintf(what, sizeof what, "type %d, %d", type, how);
			battery(what, &attr, type != 0 || how == 1 || how == 3);
		}
	}
	return 0;
}
