// SPDX-License-Identifier: MIT OR Apache-2.0
// Bounded buffer over one mutex and two condition variables. Arguments: threads (half produce, half consume), capacity, seconds.
// Prints thousands of items per second.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static long capacity, in, out, ring[1 << 16];
static int stop;
static unsigned long produced, consumed, made_sum, used_sum;

static void *producer(void *arg)
{
	unsigned long n = 0, sum = 0;
	for (;; n++) {
		pthread_mutex_lock(&mutex);
		while (in - out == capacity && !stop)
			pthread_cond_wait(&not_full, &mutex);
		if (stop)
			break;
		ring[in & 0xffff] = in;
		sum += in++;
		pthread_cond_signal(&not_empty);
		pthread_mutex_unlock(&mutex);
	}
	produced += n;
	made_sum += sum;
	pthread_mutex_unlock(&mutex);
	return arg;
}

static void *consumer(void *arg)
{
	unsigned long n = 0, sum = 0;
	for (;; n++) {
		pthread_mutex_lock(&mutex);
		while (in == out && !stop)
			pthread_cond_wait(&not_empty, &mutex);
		if (in == out)
			break;
		sum += ring[out++ & 0xffff];
		pthread_cond_signal(&not_full);
		pthread_mutex_unlock(&mutex);
	}
	consumed += n;
	used_sum += sum;
	pthread_mutex_unlock(&mutex);
	return arg;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 2;
	capacity = argc > 2 ? atol(argv[2]) : 16;
	double seconds = argc > 3 ? atof(argv[3]) : 1;
	pthread_t id[threads];
	struct timespec from, to;

	if (capacity < 1 || capacity > 0xffff || threads < 2)
		return 2;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < threads; i++)
		pthread_create(&id[i], NULL, i % 2 ? consumer : producer, NULL);
	usleep(seconds * 1e6);
	pthread_mutex_lock(&mutex);
	stop = 1;
	pthread_cond_broadcast(&not_full);
	pthread_cond_broadcast(&not_empty);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	if (produced != consumed || made_sum != used_sum) {
		fprintf(stderr, "lost: %lu made, %lu used\n", produced, consumed);
		return 1;
	}
	double s = to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9;
	printf("%.1f\n", consumed / s / 1e3);
	return 0;
}
