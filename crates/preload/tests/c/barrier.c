// SPDX-License-Identifier: MIT OR Apache-2.0
// Barriers: results, one serial thread a round, rounds that do not overlap, destroyed while others leave, initialised again, process-shared.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHOW(call) printf("%-58s %s\n", #call, name(call))

static const char *name(int error)
{
	static char other[32];
	switch (error) {
	case 0: return "0";
	case EINVAL: return "EINVAL";
	case PTHREAD_BARRIER_SERIAL_THREAD: return "PTHREAD_BARRIER_SERIAL_THREAD";
	}
	snprintf(other, sizeof other, "%d", error);
	return other;
}

enum { MOST = 32 };
static pthread_barrier_t barrier;
static volatile int at[MOST];
static int threads, rounds, serial, errors;
// With an argument: hundredths of the rounds, for barriers that spin, whoever runs.
static int few = 1;

static void *member(void *arg)
{
	int me = (int)(long)arg;
	for (int round = 1; round <= rounds; round++) {
		at[me] = round;
		int r = pthread_barrier_wait(&barrier);
		if (r == PTHREAD_BARRIER_SERIAL_THREAD)
			__atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED);
		else if (r)
			__atomic_fetch_add(&errors, 1, __ATOMIC_RELAXED);
		// Nobody is behind, and nobody is two ahead.
		for (int i = 0; i < threads; i++)
			if (at[i] < round || at[i] > round + 1)
				__atomic_fetch_add(&errors, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void run(void *(*body)(void *), int n)
{
	pthread_t t[n];
	for (long i = 0; i < n; i++)
		if (pthread_create(&t[i], NULL, body, (void *)i))
			abort();
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static void episodes(int n, int many)
{
	threads = n;
	rounds = many / few;
	serial = errors = 0;
	memset((void *)at, 0, sizeof at);
	if (pthread_barrier_init(&barrier, NULL, n))
		abort();
	run(member, n);
	printf("%d threads: %d wrong, %d errors, destroy %d\n", n, serial - rounds, errors, pthread_barrier_destroy(&barrier));
}

static pthread_barrier_t *early;
static void *leaves(void *arg)
{
	pthread_barrier_wait(early);
	return arg;
}

// The first one out destroys it and frees the memory.
static void destroyed(void)
{
	int good = 0;
	for (int i = 0; i < 500 / few; i++) {
		pthread_t t[3];
		early = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_barrier_init(early, NULL, 4);
		for (int j = 0; j < 3; j++)
			pthread_create(&t[j], NULL, leaves, NULL);
		if (i % 3 == 0)
			usleep(100);
		pthread_barrier_wait(early);
		good += !pthread_barrier_destroy(early);
		munmap(early, 4096);
		for (int j = 0; j < 3; j++)
			pthread_join(t[j], NULL);
	}
	printf("destroyed early %d\n", good);
}

// More threads than the barrier takes: each round takes those who are there.
static int arrivals;
static void *comes(void *arg)
{
	while (__atomic_fetch_add(&arrivals, 1, __ATOMIC_RELAXED) < 3000 / few)
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			__atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED);
	return arg;
}

static void too_many(void)
{
	serial = 0;
	pthread_barrier_init(&barrier, NULL, 3);
	run(comes, 12);
	printf("12 threads at a barrier for 3: %d serial\n", serial);
	pthread_barrier_destroy(&barrier);
}

static volatile sig_atomic_t handled;
static void handler(int sig)
{
	(void)sig;
	handled++;
}

static void signals(void)
{
	struct sigaction sa = { .sa_handler = handler };
	pthread_t t;
	sigaction(SIGUSR1, &sa, NULL);
	pthread_barrier_init(&barrier, NULL, 2);
	early = &barrier;
	pthread_create(&t, NULL, leaves, NULL);
	for (int i = 0; i < 30; i++) {
		usleep(200);
		pthread_kill(t, SIGUSR1);
	}
	pthread_barrier_wait(&barrier);
	pthread_join(t, NULL);
	printf("signals: handled %d\n", handled > 0);
	pthread_barrier_destroy(&barrier);
}

static void *cancelled_in_vain(void *arg)
{
	pthread_barrier_wait(&barrier);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return arg;
}

// Not a cancellation point.
static void cancellation(void)
{
	pthread_t t;
	void *r;
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&t, NULL, cancelled_in_vain, &r);
	usleep(2000);
	pthread_cancel(t);
	usleep(2000);
	pthread_barrier_wait(&barrier);
	pthread_join(t, &r);
	printf("not cancelled %d\n", r == &r);
	pthread_barrier_destroy(&barrier);
}

static void shared(void)
{
	pthread_barrierattr_t attr;
	int status, serials = 0;
	pthread_barrier_t *b = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	volatile int *theirs = (int *)(b + 1);

	printf("== process-shared\n");
	pthread_barrierattr_init(&attr);
	SHOW(pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	SHOW(pthread_barrier_init(b, &attr, 0));
	SHOW(pthread_barrier_init(b, &attr, 2));
	fflush(stdout);
	pid_t pid = fork();
	for (int i = 0; i < 1000; i++)
		serials += pthread_barrier_wait(b) == PTHREAD_BARRIER_SERIAL_THREAD;
	if (!pid) {
		*theirs = serials;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	printf("serial in one or the other: %d, %d\n", serials + *theirs, status);
	SHOW(pthread_barrier_destroy(b));
	// The memory is used again, for one that is not.
	SHOW(pthread_barrier_init(b, NULL, 1));
	SHOW(pthread_barrier_wait(b));
	SHOW(pthread_barrier_destroy(b));
	SHOW(pthread_barrier_init(b, &attr, 1));
	SHOW(pthread_barrier_wait(b));
	SHOW(pthread_barrier_destroy(b));
}

int main(int argc, char **argv)
{
	int status;

	(void)argv;
	if (argc > 1)
		few = 100;

	alarm(200);
	setvbuf(stdout, NULL, _IOLBF, 0);
	SHOW(pthread_barrier_init(&barrier, NULL, 0));
	SHOW(pthread_barrier_init(&barrier, NULL, UINT_MAX));
	SHOW(pthread_barrier_init(&barrier, NULL, 1u << 20));
	SHOW(pthread_barrier_destroy(&barrier));
	memset(&barrier, 0xa5, sizeof barrier);
	SHOW(pthread_barrier_init(&barrier, NULL, 1));
	SHOW(pthread_barrier_wait(&barrier));
	SHOW(pthread_barrier_wait(&barrier));
	SHOW(pthread_barrier_destroy(&barrier));
	// As other libraries do.
	pthread_barrierattr_t attr;
	pthread_barrierattr_init(&attr);
	SHOW(pthread_barrier_init(&barrier, &attr, 1));
	SHOW(pthread_barrier_wait(&barrier));
	SHOW(pthread_barrier_destroy(&barrier));
	episodes(1, 1000);
	episodes(2, 2000);
	episodes(5, 1000);
	episodes(16, 500);
	episodes(MOST, 200);
	destroyed();
	too_many();
	signals();
	cancellation();
	printf("== fork\n");
	fflush(stdout);
	if (!fork()) {
		alarm(60);
		episodes(8, 500);
		destroyed();
		fflush(stdout);
		_exit(3);
	}
	wait(&status);
	printf("child %d\n", WEXITSTATUS(status));
	shared();
	return 0;
}
