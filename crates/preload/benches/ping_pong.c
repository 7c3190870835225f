// SPDX-License-Identifier: MIT OR Apache-2.0
// Two threads take turns over one mutex and two condition variables. Argument: seconds. Prints thousands of turns per second.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn[2] = { PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER };
static int whose, stop;
static unsigned long turns;

static void *player(void *arg)
{
	long me = (long)arg;
	pthread_mutex_lock(&mutex);
	while (!stop) {
		if (whose != me) {
			pthread_cond_wait(&turn[me], &mutex);
			continue;
		}
		turns++;
		whose = !me;
		pthread_cond_signal(&turn[!me]);
	}
	pthread_cond_broadcast(&turn[!me]);
	pthread_mutex_unlock(&mutex);
	return arg;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	pthread_t id[2];
	for (long i = 0; i < 2; i++)
		pthread_create(&id[i], NULL, player, (void *)i);
	usleep(seconds * 1e6);
	pthread_mutex_lock(&mutex);
	stop = 1;
	pthread_cond_broadcast(&turn[0]);
	pthread_cond_broadcast(&turn[1]);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 2; i++)
		pthread_join(id[i], NULL);
	printf("%.1f\n", turns / seconds / 1e3);
	return 0;
}
