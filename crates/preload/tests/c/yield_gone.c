// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread yields after the memory of the mutex that it locked last has gone, or holds something else:
// another thread has released the mutex for it. POSIX does not allow that of a plain mutex, the C library
// does.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

// One word that looks like a held lock, and zeros: what a mutex looks like that nobody has told anything.
static const int next_life[16] = {1};

static void *release(void *mutex)
{
	pthread_mutex_unlock(mutex);
	pthread_mutex_destroy(mutex);
	return 0;
}

static void *locked_and_released(void)
{
	void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;

	pthread_mutex_init(page, 0);
	pthread_mutex_lock(page);
	pthread_create(&thread, 0, release, page);
	pthread_join(thread, 0);
	return page;
}

int main(void)
{
	void *page = locked_and_released();

	memcpy(page, next_life, sizeof next_life);
	sched_yield();
	sched_yield();
	if (memcmp(page, next_life, sizeof next_life))
		return puts("a yield has written to memory that is no mutex"), 1;
	page = locked_and_released();
	munmap(page, 4096);
	sched_yield();
	sched_yield();
	return 0;
}
