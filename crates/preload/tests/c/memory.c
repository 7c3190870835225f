// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that runs out of memory. Usage: memory WHEN WHAT N. WHEN: `create`, before the first thread, or `contend`, when all threads are there and
// none has waited yet. WHAT: `one`, the Nth allocation fails, `from`, that one and all later ones, or `space`, the process may map N KB more.
// Each call must succeed or give the error that POSIX has for it. Exit status 0, or 77 if there was memory for all.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static atomic_long left = -1;
static atomic_int failed, all_later;

static int fails(void)
{
	long now = left;

	if (now < 0)
		return 0;
	while (now > 0 && !atomic_compare_exchange_weak(&left, &now, now - 1))
		;
	if (now != 1 && !(now == 0 && all_later))
		return 0;
	failed = 1;
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t size) { return fails() ? 0 : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails() ? 0 : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails() ? 0 : __libc_realloc(old, size); }
void *memalign(size_t alignment, size_t size) { return fails() ? 0 : __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **place, size_t alignment, size_t size)
{
	return (*place = memalign(alignment, size)) ? 0 : ENOMEM;
}

static const char *what;

static void be_short(const char *how, long n)
{
	struct rlimit limit;
	long pages = 0;
	FILE *file;

	if (strcmp(how, "space")) {
		all_later = !strcmp(how, "from");
		left = n;
		return;
	}
	file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%ld", &pages) != 1)
		abort();
	fclose(file);
	limit.rlim_cur = limit.rlim_max = pages * 4096 + n * 1024;
	setrlimit(RLIMIT_AS, &limit);
}

static void must(int right, int line)
{
	if (!right) {
		static const char text[] = "wrong result in line ";
		char digits[] = "0000\n";

		for (int i = 3; i >= 0; i--, line /= 10)
			digits[i] += line % 10;
		if (write(2, text, sizeof text - 1) + write(2, digits, 5) < 0)
			abort();
		_exit(1);
	}
}
#define MUST(right) must(right, __LINE__)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static sem_t sem;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int go;
static int turn, sum;

static void routine(void) { sched_yield(); }

static struct timespec soon(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	time.tv_nsec += 100000;
	if (time.tv_nsec >= 1000000000) {
		time.tv_nsec -= 1000000000;
		time.tv_sec++;
	}
	return time;
}

// What one of three threads does.
static void *work(void *arg)
{
	int me = (intptr_t)arg;

	while (!go)
		sched_yield();
	errno = 76;
	MUST(pthread_once(&once, routine) == 0);
	for (int round = 0; round < 30; round++) {
		struct timespec time = soon();
		int error;

		MUST(pthread_mutex_lock(&mutex) == 0);
		sum++;
		// Where it holds the mutex as it is descheduled, the others wait.
		sched_yield();
		while (turn % 3 != me)
			MUST(pthread_cond_wait(&cond, &mutex) == 0);
		turn++;
		MUST(pthread_cond_broadcast(&cond) == 0);
		MUST(pthread_mutex_unlock(&mutex) == 0);
		error = pthread_mutex_timedlock(&mutex, &time);
		MUST(error == 0 || error == ETIMEDOUT);
		if (!error)
			MUST(pthread_mutex_unlock(&mutex) == 0);
		MUST(pthread_rwlock_rdlock(&rwlock) == 0);
		MUST(pthread_rwlock_unlock(&rwlock) == 0);
		MUST(pthread_rwlock_wrlock(&rwlock) == 0);
		sched_yield();
		MUST(pthread_rwlock_unlock(&rwlock) == 0);
		MUST(pthread_spin_lock(&spin) == 0);
		MUST(pthread_spin_unlock(&spin) == 0);
		MUST(sem_post(&sem) == 0);
		while (sem_wait(&sem))
			MUST(errno == EINTR);
		error = pthread_barrier_wait(&barrier);
		MUST(error == 0 || error == PTHREAD_BARRIER_SERIAL_THREAD);
	}
	MUST(errno == 76);
	return arg;
}

static void *nothing(void *arg) { return arg; }
static int nothing11(void *arg) { return arg != 0; }

// 1 if a thread could not be created.
static int create(void)
{
	pthread_t thread;
	thrd_t thread11;
	int error = pthread_create(&thread, 0, nothing, 0), refused = error != 0;

	MUST(error == 0 || error == EAGAIN);
	if (!error)
		MUST(pthread_join(thread, 0) == 0);
	error = thrd_create(&thread11, nothing11, 0);
	MUST(error == thrd_success || error == thrd_nomem || error == thrd_error);
	if (error == thrd_success)
		MUST(thrd_join(thread11, 0) == thrd_success);
	return refused || error != thrd_success;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	pthread_attr_t attr;
	int refused = 0, late;

	if (argc < 4)
		return 2;
	what = argv[2];
	late = !strcmp(argv[1], "contend");
	alarm(60);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	pthread_spin_init(&spin, 0);
	pthread_barrier_init(&barrier, 0, 3);
	sem_init(&sem, 0, 0);
	if (!late)
		be_short(what, atol(argv[3]));
	for (int i = 0; i < 2 && !refused; i++) {
		int error = pthread_create(&threads[i], &attr, work, (void *)(intptr_t)(i + 1));

		MUST(error == 0 || error == EAGAIN);
		// Where there is one alone it waits for ever, and ends with the process.
		refused = error != 0;
	}
	if (late)
		be_short(what, atol(argv[3]));
	if (!refused) {
		go = 1;
		work(0);
		for (int i = 0; i < 2; i++)
			MUST(pthread_join(threads[i], 0) == 0);
		MUST(sum == 90);
	}
	refused |= create();
	fflush(0);
	pid_t child = fork();
	if (child == 0)
		_exit(create() ? 3 : 0);
	if (child > 0) {
		int status;

		MUST(waitpid(child, &status, 0) == child);
		MUST(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3));
		refused |= WEXITSTATUS(status) != 0;
	} else {
		MUST(errno == ENOMEM || errno == EAGAIN);
		refused = 1;
	}
	left = -1;
	return refused || failed ? 0 : 77;
}
