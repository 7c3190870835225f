// SPDX-License-Identifier: MIT OR Apache-2.0
// A program whose mmap and munmap are its own and lock, as with tcmalloc's hooks. So do its mremap, mprotect
// and madvise, as with UCX, which moreover takes its lock for writing before anybody else has used one.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 20000 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t hooks = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t handlers = PTHREAD_RWLOCK_INITIALIZER;
static long calls, count;

static void init(void)
{
	calls = 1;
}

static void hook(void)
{
	pthread_rwlock_rdlock(&handlers);
	pthread_once(&once, init);
	pthread_mutex_lock(&hooks);
	calls++;
	pthread_mutex_unlock(&hooks);
	pthread_rwlock_unlock(&handlers);
}

__attribute__((constructor)) static void install(void)
{
	pthread_rwlock_wrlock(&handlers);
	pthread_rwlock_unlock(&handlers);
}

void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	hook();
	return (void *)syscall(SYS_mmap, at, size, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	return mmap(at, size, prot, flags, fd, offset);
}

int munmap(void *at, size_t size)
{
	hook();
	return syscall(SYS_munmap, at, size);
}

void *mremap(void *at, size_t size, size_t new_size, int flags, ...)
{
	hook();
	return (void *)syscall(SYS_mremap, at, size, new_size, flags, 0);
}

int mprotect(void *at, size_t size, int prot)
{
	hook();
	return syscall(SYS_mprotect, at, size, prot);
}

int madvise(void *at, size_t size, int advice)
{
	hook();
	return syscall(SYS_madvise, at, size, advice);
}

static void *body(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		count++;
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

int main(void)
{
	pthread_t t[THREADS];

	pthread_once(&once, init);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, body, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	printf("%ld %s\n", count, calls ? "hooked" : "not hooked");
	return 0;
}
