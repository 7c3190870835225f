// SPDX-License-Identifier: MIT OR Apache-2.0
// Two threads wait, one token is added, one of the two is cancelled at about that time: it or the other has the token. (With the
// C library it gets lost at times: the cancelled thread had been woken for it. So this runs with the library only.)
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static sem_t sem, ready;
static int taken[2];

static void *taker(void *arg)
{
	struct timespec far = { time(NULL) + 1000, 0 };
	sem_post(&ready);
	long me = (long)arg;
	if (!(me / 2 ? sem_timedwait(&sem, &far) : sem_wait(&sem)))
		taken[me % 2] = 1;
	return NULL;
}

int main(void)
{
	int lost = 0, cancelled = 0, value;

	alarm(100);
	sem_init(&sem, 0, 0);
	sem_init(&ready, 0, 0);
	for (long i = 0; i < 3000 && !lost; i++) {
		pthread_t t[2];
		void *r;
		taken[0] = taken[1] = 0;
		for (int j = 0; j < 2; j++)
			pthread_create(&t[j], NULL, taker, (void *)(i / 4 % 2 * 2 + j));
		for (int j = 0; j < 2; j++)
			sem_wait(&ready);
		if (i % 4)
			usleep(rand() % 200);
		sem_post(&sem);
		pthread_cancel(t[i / 2 % 2]);
		pthread_join(t[i / 2 % 2], &r);
		cancelled += r == PTHREAD_CANCELED;
		// If it has no token, the other one takes it, without further help; else the other is let go. (What the join
		// says is no answer: a cancellation that comes as the thread ends makes it PTHREAD_CANCELED.)
		if (taken[i / 2 % 2])
			sem_post(&sem);
		struct timespec at;
		clock_gettime(CLOCK_REALTIME, &at);
		at.tv_sec += 5;
		lost += pthread_timedjoin_np(t[!(i / 2 % 2)], &r, &at) != 0;
	}
	sem_getvalue(&sem, &value);
	printf("lost %d, value %d, both happened %d\n", lost, value, cancelled > 0 && cancelled < 3000);
	return 0;
}
