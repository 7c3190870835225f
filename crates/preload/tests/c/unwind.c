// SPDX-License-Identifier: MIT OR Apache-2.0
// A constructor of a library that is loaded at run time cancels threads that wait, and waits for their ends.
// It has the dynamic linker's lock meanwhile, so unwinding must not need that.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

#ifdef PLUGIN

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int waits;

static void unlock(void *arg)
{
	pthread_mutex_unlock(&mutex);
	printf("%s unwound\n", (char *)arg);
}

static void begin(void)
{
	pthread_mutex_lock(&mutex);
	waits = 1;
	pthread_cond_signal(&cond);
}

static void *at_cond(void *arg)
{
	begin();
	pthread_cleanup_push(unlock, "condition variable");
	pthread_cond_wait(&never, &mutex);
	pthread_cleanup_pop(0);
	return arg;
}

static void *at_sem(void *arg)
{
	begin();
	pthread_mutex_unlock(&mutex);
	sem_wait(&sem);
	return arg;
}

__attribute__((constructor)) static void load(void)
{
	void *(*all[])(void *) = { at_cond, at_sem };
	pthread_t thread;
	void *end;

	sem_init(&sem, 0, 0);
	for (int i = 0; i < 2; i++) {
		pthread_mutex_lock(&mutex);
		waits = 0;
		pthread_create(&thread, NULL, all[i], NULL);
		while (!waits)
			pthread_cond_wait(&cond, &mutex);
		pthread_mutex_unlock(&mutex);
		pthread_cancel(thread);
		pthread_join(thread, &end);
		printf("cancelled %d\n", end == PTHREAD_CANCELED);
	}
}

#else

int main(int argc, char **argv)
{
	alarm(20);
	printf("loaded %d\n", argc > 1 && dlopen(argv[1], RTLD_NOW) != NULL);
	return 0;
}

#endif
