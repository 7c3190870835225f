// SPDX-License-Identifier: MIT OR Apache-2.0
// What the C library accepts beyond its manual: objects that are not there, and deadlines that are none.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

// Volatile, because compilers know that these should not be null.
static void *volatile null;

static void *waits(void *write)
{
	long error = write ? pthread_rwlock_timedwrlock(&lock, null) : pthread_rwlock_clockrdlock(&lock, 4711, null);
	pthread_rwlock_unlock(&lock);
	return (void *)error;
}

int main(void)
{
	pthread_t t[2];
	void *error;
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sem_t *sem = (sem_t *)page;
	pthread_rwlock_t *gone = (pthread_rwlock_t *)(page + 1024);
	pthread_spinlock_t *spin = (pthread_spinlock_t *)(page + 2048);

	alarm(20);
	printf("init %d %d %d\n", sem_init(sem, 0, 1), pthread_rwlock_init(gone, NULL), pthread_spin_init(spin, 0));
	munmap(page, 4096);
	printf("gone %d %d %d\n", sem_destroy(sem), pthread_rwlock_destroy(gone), pthread_spin_destroy(spin));
	printf("null %d %d %d\n", sem_destroy(null), pthread_rwlock_destroy(null), pthread_spin_destroy(null));

	printf("no deadline %d", pthread_rwlock_timedrdlock(&lock, null));
	printf(" %d", pthread_rwlock_unlock(&lock));
	printf(" %d", pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, null));
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, waits, (void *)i);
	usleep(30000);
	printf(" %d", pthread_rwlock_unlock(&lock));
	for (int i = 0; i < 2; i++) {
		pthread_join(t[i], &error);
		printf(" %ld", (long)error);
	}
	printf("\n");

	// Not looked at where nobody has to wait.
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	printf("unused deadline %d\n", pthread_mutex_timedlock(&mutex, null));
	return 0;
}
