// SPDX-License-Identifier: MIT OR Apache-2.0
// pthread_once: many callers, a cancelled routine, a routine that forks, a fork in the middle of one.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16, ROUNDS = 300 };

static pthread_once_t once;
static pthread_barrier_t start;
static int runs, unseen, data, round_no;

static void init(void)
{
	runs++;
	if (round_no % 3 == 1)
		usleep(300);
	else if (round_no % 3 == 2)
		for (volatile int i = 0; i < 20000; i++)
			;
	data = 42;
}

static void *caller(void *arg)
{
	pthread_barrier_wait(&start);
	if (pthread_once(&once, init))
		abort();
	if (data != 42)
		__atomic_fetch_add(&unseen, 1, __ATOMIC_RELAXED);
	return arg;
}

static void many(void)
{
	pthread_t t[THREADS];
	pthread_barrier_init(&start, NULL, THREADS);
	runs = 0;
	for (round_no = 0; round_no < ROUNDS; round_no++) {
		once = PTHREAD_ONCE_INIT;
		data = 0;
		for (int i = 0; i < THREADS; i++)
			pthread_create(&t[i], NULL, caller, NULL);
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
	}
	printf("runs %d, unseen %d\n", runs == ROUNDS, unseen);
	pthread_barrier_destroy(&start);
}

static int entered, attempts, finish;
static void never(void)
{
	attempts++;
	__atomic_store_n(&entered, attempts, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&finish, __ATOMIC_SEQ_CST))
		usleep(1000);
}

static void *begin(void *arg)
{
	pthread_once(&once, never);
	return arg;
}

static void until_entered(int n)
{
	while (__atomic_load_n(&entered, __ATOMIC_SEQ_CST) != n)
		usleep(200);
}

// The routine is cancelled; one of those who wait runs it again.
static void cancelled(void)
{
	pthread_t t[3];
	void *r;
	once = PTHREAD_ONCE_INIT;
	pthread_create(&t[0], NULL, begin, NULL);
	until_entered(1);
	for (int i = 1; i < 3; i++)
		pthread_create(&t[i], NULL, begin, NULL);
	usleep(5000);
	pthread_cancel(t[0]);
	pthread_join(t[0], &r);
	until_entered(2);
	finish = 1;
	for (int i = 1; i < 3; i++)
		pthread_join(t[i], NULL);
	pthread_once(&once, never);
	printf("cancelled %d, attempts %d\n", r == PTHREAD_CANCELED, attempts);
}

static void *begin_twice(void *arg)
{
	pthread_once(&once, never);
	return arg;
}

// Another thread is in the routine when the process is copied: the copy runs it anew, and so do its children.
static void forked(void)
{
	pthread_t t[2];
	int status;
	once = PTHREAD_ONCE_INIT;
	entered = attempts = finish = 0;
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, begin_twice, NULL);
	until_entered(1);
	usleep(2000);
	fflush(stdout);
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		if (!pid) {
			alarm(20);
			finish = 1;
			if (i == 1 && !fork()) {
				pthread_once(&once, never);
				_exit(attempts);
			}
			if (i == 1) {
				wait(&status);
				if (WEXITSTATUS(status) != 2)
					_exit(99);
			}
			pthread_t u[4];
			for (int j = 0; j < 4; j++)
				pthread_create(&u[j], NULL, begin, NULL);
			for (int j = 0; j < 4; j++)
				pthread_join(u[j], NULL);
			_exit(attempts);
		}
		waitpid(pid, &status, 0);
		printf("child: attempts %d\n", WEXITSTATUS(status));
		fflush(stdout);
	}
	finish = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	printf("parent: attempts %d\n", attempts);
}

static int forks, in_child;
static void forks_inside(void)
{
	forks++;
	fflush(stdout);
	in_child = fork() == 0;
}

static void nothing(void) {}

// The routine forks: it ends in both.
static void forking(void)
{
	int status;
	pthread_t t;
	once = PTHREAD_ONCE_INIT;
	pthread_once(&once, forks_inside);
	if (in_child) {
		alarm(20);
		pthread_once(&once, forks_inside);
		pthread_create(&t, NULL, begin, NULL);
		pthread_join(t, NULL);
		_exit(forks);
	}
	wait(&status);
	pthread_once(&once, forks_inside);
	printf("forked inside: %d %d\n", WEXITSTATUS(status), forks);
}

static pthread_once_t inner;
static void outer_routine(void)
{
	pthread_once(&inner, nothing);
	pthread_once(&inner, nothing);
	runs++;
}

// Asked for by its own routine: it waits for ever, until killed.
static pthread_once_t self;
static void reentrant(void)
{
	pthread_once(&self, reentrant);
}

static void deadlock(void)
{
	int status;
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		alarm(1);
		pthread_once(&self, reentrant);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	printf("reentrant: signal %d\n", WTERMSIG(status));
}

int main(void)
{
	alarm(100);
	printf("%d\n", once);
	many();
	printf("%d\n", once);
	cancelled();
	forked();
	forking();
	runs = 0;
	once = PTHREAD_ONCE_INIT;
	for (int i = 0; i < 3; i++)
		pthread_once(&once, outer_routine);
	printf("nested %d\n", runs);
	deadlock();
	return 0;
}
