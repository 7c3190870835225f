// SPDX-License-Identifier: MIT OR Apache-2.0
// Signals and broadcasts given under the waiters' mutex: whatever the holder does between the signal and the release, the waiters get it.

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond, second;
static int ready, timed, waiting;

static void nap(int ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&time, 0);
}

static void *waiter(void *arg)
{
	struct timespec end;
	int error = 0;

	(void)arg;
	pthread_mutex_lock(&mutex);
	waiting++;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += 50000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	while (!ready && !error)
		error = timed ? pthread_cond_timedwait(&cond, &mutex, &end) : pthread_cond_wait(&cond, &mutex);
	ready--;
	pthread_mutex_unlock(&mutex);
	return (void *)(long)error;
}

// Locks the mutex when `n` threads wait.
static void lock_with(int n)
{
	for (;;) {
		pthread_mutex_lock(&mutex);
		if (waiting == n)
			break;
		pthread_mutex_unlock(&mutex);
		nap(1);
	}
	// Long enough for the waiter to be asleep, so that it is not met awake.
	pthread_mutex_unlock(&mutex);
	nap(2);
	pthread_mutex_lock(&mutex);
}

static void start(pthread_t *thread, int type)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, type);
	pthread_mutex_init(&mutex, &attr);
	pthread_cond_init(&cond, 0);
	pthread_cond_init(&second, 0);
	ready = waiting = 0;
	if (thread) {
		pthread_create(thread, 0, waiter, 0);
		lock_with(1);
		ready = 1;
	}
}

static void end(pthread_t thread, const char *what)
{
	void *result;

	pthread_join(thread, &result);
	printf("%s: %ld, destroyed %d %d\n", what, (long)result, pthread_mutex_destroy(&mutex),
	       pthread_cond_destroy(&cond));
	timed = 0;
}

static pthread_barrier_t both;

static void *wait_second(void *arg)
{
	pthread_mutex_lock(&mutex);
	pthread_barrier_wait(&both);
	pthread_cond_wait(&second, &mutex);
	pthread_mutex_unlock(&mutex);
	return arg;
}

// Signals under the mutex, back and forth, so that each order of the two comes up.
enum { ROUNDS = 20000 };
static int turn;

static void *pong(void *arg)
{
	int me = (long)arg;

	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		while (turn != me)
			pthread_cond_wait(me ? &cond : &second, &mutex);
		turn = !me;
		if (i % 2)
			pthread_cond_signal(me ? &second : &cond);
		else
			pthread_cond_broadcast(me ? &second : &cond);
		pthread_mutex_unlock(&mutex);
	}
	return 0;
}

int main(void)
{
	pthread_t thread, more;
	void *result;

	alarm(60);
	start(&thread, PTHREAD_MUTEX_NORMAL);
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
	end(thread, "signal");

	start(&thread, PTHREAD_MUTEX_NORMAL);
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
	end(thread, "broadcast");

	// The deadline passes between the signal and the release.
	timed = 1;
	start(&thread, PTHREAD_MUTEX_NORMAL);
	pthread_cond_signal(&cond);
	nap(100);
	pthread_mutex_unlock(&mutex);
	end(thread, "late");

	// Nobody is left on the condition variable, which may be destroyed under the mutex.
	start(&thread, PTHREAD_MUTEX_NORMAL);
	pthread_cond_broadcast(&cond);
	printf("destroyed under the mutex: %d\n", pthread_cond_destroy(&cond));
	pthread_cond_init(&cond, 0);
	pthread_mutex_unlock(&mutex);
	end(thread, "destroyed");

	start(&thread, PTHREAD_MUTEX_NORMAL);
	pthread_mutex_lock(&other);
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&other);
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
	end(thread, "nested");

	// The mutex is released by a wait.
	start(&thread, PTHREAD_MUTEX_NORMAL);
	pthread_cond_signal(&cond);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	printf("waited: %d\n", pthread_cond_timedwait(&second, &mutex, &now) == ETIMEDOUT);
	pthread_mutex_unlock(&mutex);
	end(thread, "released by a wait");

	// Two condition variables, one release.
	pthread_barrier_init(&both, 0, 2);
	start(0, PTHREAD_MUTEX_NORMAL);
	pthread_create(&more, 0, wait_second, 0);
	pthread_barrier_wait(&both);
	pthread_create(&thread, 0, waiter, 0);
	lock_with(1);
	ready = 1;
	pthread_cond_signal(&cond);
	pthread_cond_signal(&second);
	pthread_mutex_unlock(&mutex);
	pthread_join(more, &result);
	end(thread, "two");

	// Three waiters and a broadcast: released at once, after their deadline, by a wait, and with the condition variable destroyed before.
	pthread_t many[3];
	for (int how = 0; how < 4; how++) {
		start(0, PTHREAD_MUTEX_NORMAL);
		timed = how == 1;
		for (int i = 0; i < 3; i++)
			pthread_create(&many[i], 0, waiter, 0);
		lock_with(3);
		ready = 3;
		pthread_cond_broadcast(&cond);
		if (how == 1)
			nap(100);
		if (how == 2)
			printf("waited: %d\n", pthread_cond_timedwait(&second, &mutex, &now) == ETIMEDOUT);
		if (how == 3) {
			printf("destroyed under the mutex: %d\n", pthread_cond_destroy(&cond));
			pthread_cond_init(&cond, 0);
		}
		pthread_mutex_unlock(&mutex);
		pthread_join(many[0], &result);
		pthread_join(many[1], &result);
		end(many[2], "three and a broadcast");
	}

	// Three waiters, three signals, one release.
	start(0, PTHREAD_MUTEX_NORMAL);
	for (int i = 0; i < 3; i++)
		pthread_create(&many[i], 0, waiter, 0);
	lock_with(3);
	ready = 3;
	for (int i = 0; i < 3; i++)
		pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
	pthread_join(many[0], &result);
	pthread_join(many[1], &result);
	end(many[2], "three");

	for (int type = PTHREAD_MUTEX_RECURSIVE; type <= PTHREAD_MUTEX_ADAPTIVE_NP; type++) {
		start(&thread, type);
		pthread_cond_signal(&cond);
		pthread_mutex_unlock(&mutex);
		end(thread, "other types");
	}

	// Taken by trying; released in a forked child, too.
	start(&thread, PTHREAD_MUTEX_NORMAL);
	pthread_mutex_unlock(&mutex);
	while (pthread_mutex_trylock(&mutex))
		;
	pthread_cond_signal(&cond);
	fflush(stdout);
	int child = fork(), status;
	if (child == 0) {
		int error = pthread_mutex_unlock(&mutex);

		_exit(error ? error : pthread_mutex_lock(&mutex));
	}
	waitpid(child, &status, 0);
	printf("child: %d\n", status);
	pthread_mutex_unlock(&mutex);
	end(thread, "tried");

	start(0, PTHREAD_MUTEX_NORMAL);
	pthread_create(&thread, 0, pong, (void *)0);
	pthread_create(&more, 0, pong, (void *)1);
	pthread_join(more, 0);
	end(thread, "back and forth");
	return 0;
}
