// SPDX-License-Identifier: MIT OR Apache-2.0
// Readers that wait for readers, while writers wait: where readers are preferred, one gets in whenever no writer holds the lock.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { READERS = 6, WRITERS = 2 };

static pthread_rwlock_t lock;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int arrived, inside, wrote, goes_on;

static void count(int *which)
{
	pthread_mutex_lock(&mutex);
	++*which;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void wait_for(int *which, int n)
{
	pthread_mutex_lock(&mutex);
	while (*which < n)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
}

// In an hour. A reader with a deadline waits in another way.
static int read_lock(long how)
{
	struct timespec t;
	clock_gettime(how % 3 == 1 ? CLOCK_REALTIME : CLOCK_MONOTONIC, &t);
	t.tv_sec += 3600;
	switch (how % 3) {
	case 1: return pthread_rwlock_timedrdlock(&lock, &t);
	case 2: return pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &t);
	}
	return pthread_rwlock_rdlock(&lock);
}

// None leaves before all are inside.
static void *reads(void *how)
{
	count(&arrived);
	if (read_lock((long)how))
		abort();
	count(&inside);
	wait_for(&inside, READERS);
	pthread_rwlock_unlock(&lock);
	return NULL;
}

static void *writes(void *arg)
{
	count(&arrived);
	if (pthread_rwlock_wrlock(&lock))
		abort();
	wrote++;
	pthread_rwlock_unlock(&lock);
	return arg;
}

// All come while a writer holds the lock; the readers have waited longer than any patience when it lets go.
static void behind_a_writer(int writers_first)
{
	pthread_t t[READERS + WRITERS];
	arrived = inside = wrote = 0;
	pthread_rwlock_wrlock(&lock);
	for (long i = 0; i < READERS + WRITERS; i++) {
		int reader = writers_first ? i >= WRITERS : i < READERS;
		pthread_create(&t[i], NULL, reader ? reads : writes, (void *)i);
		if (i % READERS == WRITERS - 1)
			usleep(5000);
	}
	wait_for(&arrived, READERS + WRITERS);
	usleep(50000);
	pthread_rwlock_unlock(&lock);
	for (int i = 0; i < READERS + WRITERS; i++)
		pthread_join(t[i], NULL);
	printf("behind a writer: inside %d, wrote %d\n", inside, wrote);
}

// One reads, writers wait, and then the others come, for which the first waits.
static void beside_a_reader(void)
{
	pthread_t t[READERS + WRITERS];
	arrived = inside = wrote = 0;
	pthread_create(&t[0], NULL, reads, NULL);
	wait_for(&inside, 1);
	for (long i = 1; i <= WRITERS; i++)
		pthread_create(&t[i], NULL, writes, NULL);
	wait_for(&arrived, 1 + WRITERS);
	usleep(20000);
	for (long i = 1 + WRITERS; i < READERS + WRITERS; i++)
		pthread_create(&t[i], NULL, reads, (void *)i);
	for (int i = 0; i < READERS + WRITERS; i++)
		pthread_join(t[i], NULL);
	printf("beside a reader: inside %d, wrote %d\n", inside, wrote);
}

static void *one_reads(void *arg)
{
	pthread_rwlock_rdlock(&lock);
	count(&inside);
	wait_for(&goes_on, 1);
	pthread_rwlock_unlock(&lock);
	return arg;
}

// As where writers come first: that one is outside, and a deadline that passes leaves nothing behind.
static void gives_up(void)
{
	pthread_t t;
	struct timespec soon;
	inside = goes_on = 0;
	pthread_rwlock_wrlock(&lock);
	pthread_create(&t, NULL, one_reads, NULL);
	usleep(30000);
	int early = inside;
	pthread_rwlock_unlock(&lock);
	wait_for(&inside, 1);
	clock_gettime(CLOCK_REALTIME, &soon);
	int timed = pthread_rwlock_timedwrlock(&lock, &soon) != 0;
	count(&goes_on);
	pthread_join(t, NULL);
	int free = pthread_rwlock_trywrlock(&lock);
	printf("outside %d, timed out %d, then free %d\n", !early, timed, !free);
	pthread_rwlock_unlock(&lock);
}

static void *times_out(void *arg)
{
	struct timespec soon;
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 30000000;
	soon.tv_sec += soon.tv_nsec / 1000000000;
	soon.tv_nsec %= 1000000000;
	return (void *)(long)pthread_rwlock_timedrdlock(&lock, &soon);
}

// Readers that give up behind a writer are gone: it lets go, and the next one gets in.
static void readers_give_up(void)
{
	pthread_t t[READERS];
	void *error;
	int timed = 0;
	pthread_rwlock_wrlock(&lock);
	for (int i = 0; i < READERS; i++)
		pthread_create(&t[i], NULL, times_out, NULL);
	for (int i = 0; i < READERS; i++) {
		pthread_join(t[i], &error);
		timed += error != NULL;
	}
	pthread_rwlock_unlock(&lock);
	int free = pthread_rwlock_trywrlock(&lock);
	printf("readers that gave up %d, then free %d\n", timed, !free);
	pthread_rwlock_unlock(&lock);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 4;
	static const int kinds[] = { PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP };

	alarm(60);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < 2; i++) {
		pthread_rwlockattr_t attr;
		pthread_rwlockattr_init(&attr);
		pthread_rwlockattr_setkind_np(&attr, kinds[i]);
		pthread_rwlock_init(&lock, &attr);
		for (int round = 0; round < rounds; round++) {
			behind_a_writer(round % 2);
			beside_a_reader();
			gives_up();
			readers_give_up();
		}
	}
	return 0;
}
