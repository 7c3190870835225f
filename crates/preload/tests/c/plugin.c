// SPDX-License-Identifier: MIT OR Apache-2.0
// A library that is loaded at run time works on the objects of the program, and the program on those of the library.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct objects {
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	pthread_barrier_t barrier;
	sem_t sem;
	pthread_once_t once;
	long count, runs;
};

static struct objects own = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER };

enum { ROUNDS = 2000 };

// Compiled into both.
static void work(struct objects *o, void (*init)(void))
{
	pthread_once(&o->once, init);
	for (int i = 0; i < ROUNDS; i++) {
		sem_wait(&o->sem);
		pthread_rwlock_rdlock(&o->rwlock);
		pthread_rwlock_unlock(&o->rwlock);
		pthread_mutex_lock(&o->mutex);
		pthread_rwlock_wrlock(&o->rwlock);
		o->count++;
		pthread_rwlock_unlock(&o->rwlock);
		pthread_mutex_unlock(&o->mutex);
		sem_post(&o->sem);
		if (i % 100 == 0)
			pthread_barrier_wait(&o->barrier);
	}
}

static void once(void)
{
	own.runs++;
}

#ifdef PLUGIN

__attribute__((constructor)) static void early(void)
{
	sem_init(&own.sem, 0, 2);
	pthread_barrier_init(&own.barrier, NULL, 4);
	pthread_rwlock_wrlock(&own.rwlock);
	pthread_rwlock_unlock(&own.rwlock);
	sem_wait(&own.sem);
	sem_post(&own.sem);
}

struct objects *plugin_objects(void);
void plugin_work(struct objects *o);

struct objects *plugin_objects(void)
{
	return &own;
}

void plugin_work(struct objects *o)
{
	work(o, once);
}

#else

static struct objects *theirs;
static void (*their_work)(struct objects *);

static void *both(void *arg)
{
	for (int i = 0; i < 2; i++) {
		struct objects *o = i ? theirs : &own;
		if (arg)
			their_work(o);
		else
			work(o, once);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[4];
	alarm(60);
	void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!plugin) {
		puts(dlerror());
		return 1;
	}
	theirs = ((struct objects * (*)(void)) dlsym(plugin, "plugin_objects"))();
	their_work = (void (*)(struct objects *))dlsym(plugin, "plugin_work");
	sem_init(&own.sem, 0, 1);
	pthread_barrier_init(&own.barrier, NULL, 4);
	for (long i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, both, (void *)(i % 2));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("%ld %ld, initialised %ld\n", own.count, theirs->count, own.runs + theirs->runs);
	return 0;
}

#endif
