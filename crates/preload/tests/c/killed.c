// SPDX-License-Identifier: MIT OR Apache-2.0
// Busy until killed: contention on everything.
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t sem;
static unsigned long turn;

static void *busy(void *arg)
{
	unsigned long me = (unsigned long)arg;
	for (;;) {
		pthread_mutex_lock(&mutex);
		if (turn % 8 == me) {
			turn++;
			pthread_cond_broadcast(&cond);
		} else {
			pthread_cond_wait(&cond, &mutex);
		}
		pthread_mutex_unlock(&mutex);
		pthread_spin_lock(&spin);
		pthread_spin_unlock(&spin);
		sem_wait(&sem);
		pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
		pthread_rwlock_wrlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
		sem_post(&sem);
	}
	return NULL;
}

static void *meet(void *arg)
{
	for (;;)
		pthread_barrier_wait(&barrier);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_spin_init(&spin, 0);
	pthread_barrier_init(&barrier, NULL, 4);
	sem_init(&sem, 0, 2);
	for (unsigned long i = 0; i < 8; i++)
		pthread_create(&t, NULL, busy, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_create(&t, NULL, meet, NULL);
	pause();
	return 0;
}
