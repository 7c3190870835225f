// SPDX-License-Identifier: MIT OR Apache-2.0
// Busy until killed: contention on a mutex, a spin lock and a condition variable.
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
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
	}
	return NULL;
}

int main(void)
{
	pthread_t t;
	pthread_spin_init(&spin, 0);
	for (unsigned long i = 0; i < 8; i++)
		pthread_create(&t, NULL, busy, (void *)i);
	pause();
	return 0;
}
