// SPDX-License-Identifier: MIT OR Apache-2.0
// Semaphores: every result, limits, signals, cancellation, fork, named and process-shared ones, and more threads than processors.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHOW(call) printf("%-62s %s\n", #call, result(call))

static const char *result(int r)
{
	static char text[64];
	const char *name = errno == EAGAIN ? "EAGAIN" : errno == EINVAL ? "EINVAL" : errno == EINTR ? "EINTR" :
			   errno == ETIMEDOUT ? "ETIMEDOUT" : errno == EOVERFLOW ? "EOVERFLOW" : errno == ENOENT ? "ENOENT" : "?";
	if (r == -1)
		snprintf(text, sizeof text, "-1 %s", name);
	else
		snprintf(text, sizeof text, "%d, errno %d", r, errno);
	errno = 77;
	return text;
}

static struct timespec in(clockid_t clock, long us)
{
	struct timespec t;
	clock_gettime(clock, &t);
	long ns = t.tv_nsec + us % 1000000 * 1000;
	t.tv_sec += us / 1000000 + ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	return t;
}

static int value(sem_t *s)
{
	int v = -1;
	sem_getvalue(s, &v);
	return v;
}

static void results(sem_t *s)
{
	struct timespec past = { 1, 0 }, before = { -1, 0 }, bad = { 1, 1000000000 }, worse = { 1, -1 }, t;

	errno = 77;
	printf("value %d\n", value(s));
	SHOW(sem_wait(s));
	SHOW(sem_trywait(s));
	SHOW(sem_trywait(s));
	printf("value %d\n", value(s));
	SHOW(sem_timedwait(s, &past));
	SHOW(sem_timedwait(s, &before));
	SHOW(sem_timedwait(s, &bad));
	SHOW(sem_timedwait(s, &worse));
	SHOW(sem_clockwait(s, CLOCK_MONOTONIC, &past));
	SHOW(sem_clockwait(s, CLOCK_MONOTONIC, &bad));
	SHOW(sem_clockwait(s, CLOCK_PROCESS_CPUTIME_ID, &past));
	t = in(CLOCK_REALTIME, 20000);
	SHOW(sem_timedwait(s, &t));
	struct timespec now = in(CLOCK_REALTIME, 0);
	printf("not before the deadline: %d\n",
	       now.tv_sec > t.tv_sec || (now.tv_sec == t.tv_sec && now.tv_nsec >= t.tv_nsec));
	t = in(CLOCK_MONOTONIC, 20000);
	SHOW(sem_clockwait(s, CLOCK_MONOTONIC, &t));
	t = in(CLOCK_REALTIME, 20000);
	SHOW(sem_clockwait(s, CLOCK_REALTIME, &t));
	SHOW(sem_post(s));
	SHOW(sem_post(s));
	SHOW(sem_post(s));
	printf("value %d\n", value(s));
	SHOW(sem_timedwait(s, &past));
	SHOW(sem_timedwait(s, &bad));
	SHOW(sem_clockwait(s, CLOCK_MONOTONIC, &past));
	t = (struct timespec){ LONG_MAX, 0 };
	SHOW(sem_timedwait(s, &t));
	printf("value %d\n", value(s));
}

static void limits(void)
{
	sem_t s;
	printf("== limits\n");
	SHOW(sem_init(&s, 0, (unsigned)SEM_VALUE_MAX + 1));
	SHOW(sem_init(&s, 0, UINT_MAX));
	SHOW(sem_init(&s, 0, SEM_VALUE_MAX));
	printf("value %d\n", value(&s));
	SHOW(sem_post(&s));
	SHOW(sem_wait(&s));
	SHOW(sem_trywait(&s));
	SHOW(sem_post(&s));
	SHOW(sem_post(&s));
	SHOW(sem_post(&s));
	printf("value %d\n", value(&s));
	SHOW(sem_destroy(&s));
	SHOW(sem_init(&s, 0, 1 << 29));
	SHOW(sem_post(&s));
	printf("value %d\n", value(&s));
	SHOW(sem_destroy(&s));
	// Some programs do without sem_init.
	memset(&s, 0, sizeof s);
	SHOW(sem_trywait(&s));
	SHOW(sem_post(&s));
	SHOW(sem_wait(&s));
	SHOW(sem_destroy(&s));
}

static sem_t sem, done;

static volatile sig_atomic_t handled;
static void poster(int sig)
{
	handled++;
	if (sig == SIGUSR1)
		sem_post(&sem);
}

static void *interrupted(void *arg)
{
	struct timespec far = in(CLOCK_MONOTONIC, 100000000);
	int r = arg ? sem_clockwait(&sem, CLOCK_MONOTONIC, &far) : sem_wait(&sem);
	return (void *)(long)(r ? errno : 0);
}

static void signals(void)
{
	struct sigaction sa = { .sa_handler = poster };
	int eintr = 0, zero = 0;

	printf("== signals\n");
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGUSR2, &sa, NULL);
	for (long i = 0; i < 20; i++) {
		pthread_t t;
		void *r;
		pthread_create(&t, NULL, interrupted, (void *)(i % 2));
		// Until it has been interrupted in its sleep, or, by the other signal, got what the handler posted.
		struct timespec at = in(CLOCK_REALTIME, 2000);
		while (pthread_timedjoin_np(t, &r, &at)) {
			if (handled == 0 || i % 4 < 2)
				pthread_kill(t, i % 4 < 2 ? SIGUSR2 : SIGUSR1);
			at = in(CLOCK_REALTIME, 2000);
		}
		eintr += (long)r == EINTR && i % 4 < 2;
		zero += (long)r == 0 && i % 4 >= 2;
		// A handler that posts interrupts all the same, if the sleep came first.
		zero += (long)r == EINTR && i % 4 >= 2;
		while (!sem_trywait(&sem))
			;
		handled = 0;
	}
	printf("interrupted %d, else %d\n", eintr, zero);
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR2, &sa, NULL);
	pthread_t t;
	void *r;
	pthread_create(&t, NULL, interrupted, NULL);
	for (int i = 0; i < 20; i++) {
		usleep(500);
		pthread_kill(t, SIGUSR2);
	}
	sem_post(&sem);
	pthread_join(t, &r);
	printf("restarted %ld, handled %d\n", (long)r, handled > 0);
}

static int cleaned;
static void cleanup(void *arg)
{
	(void)arg;
	__atomic_fetch_add(&cleaned, 1, __ATOMIC_RELAXED);
}

static void *cancellable(void *arg)
{
	struct timespec far = in(CLOCK_REALTIME, 100000000);
	long taken = 0;
	pthread_cleanup_push(cleanup, NULL);
	sem_post(&done);
	switch ((long)arg % 3) {
	case 0: taken = !sem_wait(&sem); break;
	case 1: taken = !sem_timedwait(&sem, &far); break;
	case 2: taken = !sem_clockwait(&sem, CLOCK_REALTIME, &far); break;
	}
	pthread_cleanup_pop(0);
	return (void *)taken;
}

static void *pending(void *arg)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	sem_post(&done);
	// Until the cancellation is there.
	sem_wait(&sem);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	// There is a token, and yet it is a cancellation point.
	sem_wait(&sem);
	return arg;
}

static void cancellation(void)
{
	pthread_t t[1];
	void *r;
	int cancelled = 0;

	printf("== cancellation\n");
	for (long i = 0; i < 200; i++) {
		pthread_create(&t[0], NULL, cancellable, (void *)i);
		sem_wait(&done);
		if (i % 4)
			usleep(i % 4 * 50);
		pthread_cancel(t[0]);
		pthread_join(t[0], &r);
		cancelled += r == PTHREAD_CANCELED;
	}
	printf("%d cancelled, %d cleaned, value %d\n", cancelled, cleaned, value(&sem));

	pthread_create(&t[0], NULL, pending, NULL);
	sem_wait(&done);
	pthread_cancel(t[0]);
	sem_post(&sem);
	sem_post(&sem);
	pthread_join(t[0], &r);
	printf("pending: %d, value %d\n", r == PTHREAD_CANCELED, value(&sem));
	sem_wait(&sem);
}

enum { THREADS = 16, ITEMS = 10000, CAPACITY = 4 };
static sem_t filled, empty, lock;
static long buffer[CAPACITY], head, tail;
static unsigned long sum, used;

static void take(sem_t *s, long i)
{
	struct timespec t;
	switch (i % 8) {
	case 0:
		while (sem_trywait(s))
			sched_yield();
		return;
	case 1:
		do
			t = in(CLOCK_REALTIME, 100);
		while (sem_timedwait(s, &t) && errno == ETIMEDOUT);
		return;
	case 2:
		do
			t = in(CLOCK_MONOTONIC, 100);
		while (sem_clockwait(s, CLOCK_MONOTONIC, &t) && errno == ETIMEDOUT);
		return;
	}
	if (sem_wait(s))
		abort();
}

static void *user(void *arg)
{
	long me = (long)arg;
	for (long i = 1; i <= ITEMS; i++) {
		take(me % 2 ? &empty : &filled, i + me);
		take(&lock, me < 8 ? i : 3);
		if (me % 2)
			buffer[tail++ % CAPACITY] = i;
		else
			sum += buffer[head++ % CAPACITY], used++;
		sem_post(&lock);
		sem_post(me % 2 ? &filled : &empty);
	}
	return NULL;
}

static void run(void *(*body)(void *), int threads)
{
	pthread_t t[threads];
	for (long i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, body, (void *)i))
			abort();
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
}

static void stress(void)
{
	unsigned long n = THREADS / 2;
	sum = used = head = tail = 0;
	sem_init(&filled, 0, 0);
	sem_init(&empty, 0, CAPACITY);
	sem_init(&lock, 0, 1);
	run(user, THREADS);
	printf("bounded buffer %s, values %d %d %d\n",
	       used == n * ITEMS && sum == n * ITEMS * (ITEMS + 1) / 2 ? "right" : "WRONG", value(&filled), value(&empty), value(&lock));
}

static void *sleeper(void *arg)
{
	if (sem_wait(&sem))
		abort();
	sem_post(&done);
	return arg;
}

// All tokens at once, to many who sleep.
static void burst(void)
{
	pthread_t t[THREADS];
	int all = 0;
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < THREADS; i++)
			pthread_create(&t[i], NULL, sleeper, NULL);
		if (round % 2)
			usleep(2000);
		for (int i = 0; i < THREADS; i++)
			sem_post(&sem);
		for (int i = 0; i < THREADS; i++)
			all += !sem_wait(&done);
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
	}
	printf("bursts %d\n", all);
}

// The waiter frees the semaphore as soon as it has its token.
static void *post_once(void *s)
{
	sem_post(s);
	return NULL;
}

static void freed(void)
{
	int good = 0;
	for (int i = 0; i < 500; i++) {
		sem_t *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_t t;
		sem_init(s, 0, 0);
		pthread_create(&t, NULL, post_once, s);
		if (i % 3 == 0)
			usleep(100);
		good += !sem_wait(s);
		sem_destroy(s);
		munmap(s, 4096);
		pthread_join(t, NULL);
	}
	printf("freed %d\n", good);
}

static void *wait_only(void *arg)
{
	sem_wait(&sem);
	return arg;
}

static void forked(void)
{
	pthread_t t[4];
	int status = -1;

	printf("== fork\n");
	// A process in which threads wait is copied; they are not in the copy.
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, wait_only, NULL);
	usleep(20000);
	fflush(stdout);
	for (int n = 0; n < 20; n++) {
		pid_t pid = fork();
		if (!pid) {
			alarm(20);
			sem_post(&sem);
			int ok = value(&sem) == 1 && !sem_wait(&sem);
			stress();
			fflush(stdout);
			burst();
			fflush(stdout);
			_exit(ok ? 3 : 4);
		}
		waitpid(pid, &status, 0);
		if (n)
			break;
		usleep(100);
	}
	printf("child %d\n", WEXITSTATUS(status));
	for (int i = 0; i < 4; i++)
		sem_post(&sem);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("value %d\n", value(&sem));
}

static void shared(void)
{
	char name[64];
	int status;
	sem_t *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	printf("== process-shared\n");
	SHOW(sem_init(&s[0], 1, 2));
	SHOW(sem_init(&s[1], 1, 0));
	results(&s[0]);
	SHOW(sem_destroy(&s[0]));
	sem_init(&s[0], 1, 0);
	fflush(stdout);
	if (!fork()) {
		for (int i = 0; i < 1000; i++) {
			sem_wait(&s[0]);
			sem_post(&s[1]);
		}
		_exit(0);
	}
	for (int i = 0; i < 1000; i++) {
		sem_post(&s[0]);
		sem_wait(&s[1]);
	}
	wait(&status);
	printf("ping-pong with a child: %d\n", status);

	printf("== named\n");
	snprintf(name, sizeof name, "/wkfl-test-%d", getpid());
	sem_t *n = sem_open(name, O_CREAT | O_EXCL, 0600, 2);
	printf("opened %d\n", n != SEM_FAILED);
	results(n);
	sem_t *again = sem_open(name, 0);
	printf("same %d\n", again == n);
	SHOW(sem_close(again));
	SHOW(sem_unlink(name));
	SHOW(sem_close(n));
	errno = 0;
	n = sem_open(name, 0);
	printf("gone %d\n", n == SEM_FAILED && errno == ENOENT);
}

int main(void)
{
	alarm(200);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("== results\n");
	SHOW(sem_init(&sem, 0, 2));
	results(&sem);
	SHOW(sem_destroy(&sem));
	sem_init(&sem, 0, 0);
	sem_init(&done, 0, 0);
	limits();
	signals();
	cancellation();
	printf("== stress\n");
	stress();
	burst();
	freed();
	forked();
	shared();
	return 0;
}
