// SPDX-License-Identifier: MIT OR Apache-2.0
// fork with pthread_atfork, under contention; waits in the child; exec; all descriptors closed; exit inside a critical section.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int stop, turn, waiting;
static unsigned long count;

static void prepare(void) { pthread_mutex_lock(&mutex); }
static void release(void) { pthread_mutex_unlock(&mutex); }

static void *contend(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		pthread_mutex_lock(&mutex);
		count++;
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

static void *wait_turn(void *arg)
{
	pthread_mutex_lock(&other);
	waiting++;
	while (!turn)
		pthread_cond_wait(&cond, &other);
	pthread_mutex_unlock(&other);
	return arg;
}

static void *add(void *arg)
{
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_lock(&mutex);
		count++;
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

static int child(void)
{
	pthread_t t[4];
	alarm(20);
	unsigned long before = count;
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, add, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	// The parent's waiters were copied with the condition variable; a child starts it afresh by using it.
	pthread_cond_init(&cond, NULL);
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, wait_turn, NULL);
	usleep(1000);
	pthread_mutex_lock(&other);
	turn = 1;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&other);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	return count - before == 8000 ? 0 : 1;
}

// Whom do mutexes with an owner belong to in a child? The C library knows children that it has made itself.
static pthread_mutex_t owned[2] = { PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP };
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static const struct timespec passed = { 1, 0 };
// From glibc 2.34 on.
extern pid_t _Fork(void) __attribute__((weak));

static void *own(void *arg)
{
	for (int i = 0; i < 2; i++)
		printf(" %d", pthread_mutex_trylock(&owned[i]));
	printf(" %d", pthread_mutex_timedlock(&owned[1], &passed));
	for (int i = 0; i < 2; i++)
		printf(" %d", pthread_mutex_unlock(&owned[i]));
	return arg;
}

static void owners(const char *how)
{
	pthread_t t;

	printf("%s:", how);
	fflush(stdout);
	pid_t pid = *how == 'f' ? fork() : *how == '_' && _Fork ? _Fork() : syscall(SYS_fork);
	if (!pid) {
		for (int i = 0; i < 2; i++)
			printf(" %d", pthread_mutex_trylock(&owned[i]));
		for (int i = 0; i < 2; i++)
			printf(" %d", pthread_mutex_unlock(&owned[i]));
		printf(", %d", pthread_rwlock_timedrdlock(&written, &passed));
		// Of a recursive one that was the parent's it has one level left.
		printf(" %d,", pthread_mutex_unlock(&owned[0]));
		pthread_create(&t, NULL, own, NULL);
		pthread_join(t, NULL);
		printf("\n");
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	pthread_t t[6];
	int bad = 0, status;

	if (argc > 1) {
		printf("executed\n");
		return 0;
	}
	alarm(120);
	for (int locked = 0; locked < 2; locked++) {
		if (locked) {
			pthread_mutex_lock(&owned[0]);
			pthread_mutex_lock(&owned[1]);
			pthread_rwlock_wrlock(&written);
		}
		owners("fork");
		owners("_Fork");
		owners("syscall(SYS_fork)");
	}
	pthread_atfork(prepare, release, release);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, contend, NULL);
	for (int i = 4; i < 6; i++)
		pthread_create(&t[i], NULL, wait_turn, NULL);
	usleep(10000);
	// Who has not come to its wait would have `other`, in the child for ever.
	for (int waits = 0; waits < 2;) {
		pthread_mutex_lock(&other);
		waits = waiting;
		pthread_mutex_unlock(&other);
	}
	for (int i = 0; i < 40; i++) {
		pid_t pid = fork();
		if (!pid)
			_exit(child());
		waitpid(pid, &status, 0);
		bad += status != 0;
	}
	printf("children that failed: %d\n", bad);
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		execl("/proc/self/exe", argv[0], "again", (char *)NULL);
		_exit(3);
	}
	waitpid(pid, &status, 0);
	printf("exec: %d\n", status);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
		_exit(child());
	}
	waitpid(pid, &status, 0);
	printf("descriptors closed: %d\n", status);
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	pthread_mutex_lock(&other);
	turn = 1;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&other);
	for (int i = 4; i < 6; i++)
		pthread_join(t[i], NULL);
	pthread_mutex_lock(&mutex);
	exit(7);
}
