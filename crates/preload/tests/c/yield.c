// SPDX-License-Identifier: MIT OR Apache-2.0
// A yield under a mutex is put off until the mutex is released. Each call of the kernel's sched_yield is
// counted, by a filter that makes a signal of it. The argument is how many are put off: 1, or 0 without the
// library. 2: beside busy processes there are far fewer calls than sections.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Thread_local int yields;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t deep = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int off, waits, wakes, failed;

static void count(int signal)
{
	(void)signal;
	yields++;
}

static void seen(const char *what, int number)
{
	if (yields != number && off != 2)
		failed = printf("%s: %d calls, not %d\n", what, yields, number);
	yields = 0;
}

static void *waiter(void *none)
{
	pthread_mutex_lock(&mutex);
	waits = 1;
	// To wait is to yield.
	sched_yield();
	while (!wakes)
		pthread_cond_wait(&cond, &mutex);
	seen("before a wait for a signal", !off);
	pthread_mutex_unlock(&mutex);
	return none;
}

// A thread has waited for the condition, for a wake-up under the mutex.
static void wake_one(int yield_first)
{
	int waiting;
	pthread_t thread;

	waits = wakes = 0;
	pthread_create(&thread, 0, waiter, 0);
	do {
		pthread_mutex_lock(&mutex);
		if (!(waiting = waits))
			pthread_mutex_unlock(&mutex);
	} while (!waiting);
	yields = 0;
	wakes = 1;
	if (yield_first)
		sched_yield();
	pthread_cond_signal(&cond);
	if (!yield_first)
		sched_yield();
	seen("beside a signal", !off);
	pthread_mutex_unlock(&mutex);
	seen("at the release beside a signal", off);
	pthread_join(thread, 0);
}

static long ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *sections(void *number)
{
	for (long end = ms() + 300; ms() < end; ++*(long *)number) {
		pthread_mutex_lock(&mutex);
		sched_yield();
		pthread_mutex_unlock(&mutex);
	}
	return (void *)(long)yields;
}

static int beside_load(void)
{
	long busy = 2 * sysconf(_SC_NPROCESSORS_ONLN), first = 0, second = 0;
	void *calls;
	pthread_t thread;

	// From now on a view looks.
	wake_one(0);
	for (long i = 0; i < busy; i++)
		if (!fork())
			for (signal(SIGTERM, SIG_DFL), alarm(60);;)
				;
	yields = 0;
	pthread_create(&thread, 0, sections, &first);
	sections(&second);
	pthread_join(thread, &calls);
	kill(0, SIGTERM);
	while (wait(0) > 0)
		;
	if (yields + (long)calls > (first + second) / 2 || first + second < 100)
		return printf("%ld sections, %ld calls\n", first + second, yields + (long)calls);
	return 0;
}

// What older programs are linked to; today's headers make sched_yield of it.
static void by_its_old_name(void)
{
	int (*yield)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "pthread_yield");

	// The C library shows that name only to programs that ask for its old version.
	if (!yield && !off)
		yield = sched_yield;
	pthread_mutex_lock(&mutex);
	if (yield)
		yield();
	else
		failed = puts("no pthread_yield");
	seen("by its old name, under a mutex", !off);
	pthread_mutex_unlock(&mutex);
	seen("by its old name, at the release", off);
}

static void until_a_time_that_has_passed(void)
{
	struct timespec past = {1, 0};

	pthread_mutex_lock(&mutex);
	sched_yield();
	seen("before a wait with a deadline", !off);
	if (pthread_cond_timedwait(&cond, &mutex, &past) != ETIMEDOUT)
		failed = puts("no time is out");
	seen("in the wait, which may be none", off);
	pthread_mutex_unlock(&mutex);
	seen("after it", 0);
}

int main(int argc, char **argv)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};

	off = argc > 1 ? atoi(argv[1]) : 1;
	signal(SIGSYS, count);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return printf("no filter: %d\n", errno), 1;
	if (off == 2) {
		setpgid(0, 0);
		signal(SIGTERM, SIG_IGN);
		return beside_load();
	}
	sched_yield();
	seen("without a mutex", 1);

	pthread_mutex_lock(&mutex);
	sched_yield();
	seen("under a mutex", !off);
	pthread_mutex_unlock(&mutex);
	seen("at its release", off);
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	seen("in the next section", 0);

	by_its_old_name();
	pthread_mutex_lock(&mutex);
	sched_yield();
	sched_yield();
	sched_yield();
	seen("again in the same section", 3 - off);
	pthread_mutex_unlock(&mutex);
	seen("at the release after that", off);

	pthread_mutex_lock(&mutex);
	pthread_mutex_lock(&other);
	sched_yield();
	pthread_mutex_unlock(&other);
	seen("at the release of the inner one", 1);
	sched_yield();
	seen("where we do not know what is held", 1);
	pthread_mutex_unlock(&mutex);
	seen("at the release of the outer one", 0);

	pthread_mutex_lock(&deep);
	sched_yield();
	seen("under a recursive mutex", 1);
	pthread_mutex_unlock(&deep);

	until_a_time_that_has_passed();
	// What a holder owes: a wake-up and a yield, in either order.
	wake_one(0);
	wake_one(1);
	return failed != 0;
}
