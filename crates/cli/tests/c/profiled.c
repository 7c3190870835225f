// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that wait for a reason which is planted, by the first word; the second is a number of turns.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SOME = 3, HERD = 8, MANY = 64, MEETING = 16, CROWD = 4000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t items_there = PTHREAD_COND_INITIALIZER, taken = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t tokens;
static int turns = 20, items, is_over;
static atomic_int stop;

static long cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// So much processor time.
static void work(long us)
{
	long end = cpu_us() + us;

	while (cpu_us() < end)
		;
}

static void on_one_processor(void)
{
	cpu_set_t all, one;

	sched_getaffinity(0, sizeof all, &all);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all)) {
			CPU_SET(i, &one);
			break;
		}
	sched_setaffinity(0, sizeof one, &one);
}

static void run(int count, void *(*each)(void *))
{
	pthread_t threads[MANY];

	for (long i = 0; i < count; i++)
		if (pthread_create(threads + i, 0, each, (void *)i))
			exit(9);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], 0);
}

static void *spinner(void *unused)
{
	while (!stop)
		;
	return unused;
}

__attribute__((noinline)) void locked_section(long us)
{
	pthread_mutex_lock(&lock);
	work(us);
	pthread_mutex_unlock(&lock);
}

static void *preempted(void *unused)
{
	for (int i = 0; i < turns; i++)
		locked_section(5000);
	return unused;
}

// Three threads that only burn time share the processor with two that lock.
static int holders_preempted(void)
{
	pthread_t spinners[SOME];

	on_one_processor();
	for (int i = 0; i < SOME; i++)
		pthread_create(spinners + i, 0, spinner, 0);
	run(2, preempted);
	stop = 1;
	for (int i = 0; i < SOME; i++)
		pthread_join(spinners[i], 0);
	return 0;
}

static void *convoy(void *unused)
{
	for (int i = 0; i < turns; i++)
		locked_section(2000);
	return unused;
}

static void *sleeper(void *unused)
{
	for (int i = 0; i < turns; i++) {
		pthread_mutex_lock(&lock);
		usleep(5000);
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

__attribute__((noinline)) void meet(void)
{
	pthread_barrier_wait(&barrier);
	// A call that is a function's last one is its caller's.
	__asm__ volatile("");
}

static void *straggler(void *number)
{
	pthread_setname_np(pthread_self(), number ? "quick" : "slow");
	for (int i = 0; i < turns; i++) {
		work(number ? 100 : 5000);
		meet();
	}
	return 0;
}

__attribute__((noinline)) int take_item(void)
{
	int is_taken;

	pthread_mutex_lock(&lock);
	while (!items && !is_over)
		pthread_cond_wait(&items_there, &lock);
	is_taken = items > 0;
	if (is_taken) {
		items--;
		pthread_cond_signal(&taken);
	}
	pthread_mutex_unlock(&lock);
	return is_taken;
}

static void *herd(void *number)
{
	if (number) {
		while (take_item())
			;
		return 0;
	}
	for (int i = 0; i < turns; i++) {
		pthread_mutex_lock(&lock);
		items++;
		pthread_cond_broadcast(&items_there);
		while (items)
			pthread_cond_wait(&taken, &lock);
		pthread_mutex_unlock(&lock);
	}
	pthread_mutex_lock(&lock);
	is_over = 1;
	pthread_cond_broadcast(&items_there);
	pthread_mutex_unlock(&lock);
	return 0;
}

static long turn;

// Two threads by turns. Each wait releases the mutex, and nothing else does.
static void *by_turns(void *number)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < turns; i++) {
		while (turn != (long)number)
			pthread_cond_wait(&taken, &lock);
		turn = !turn;
		pthread_cond_signal(&taken);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static atomic_int here;

static void *meets(void *unused)
{
	here++;
	meet();
	return unused;
}

// One of three never comes.
static int hangs(void)
{
	pthread_t threads[2];

	pthread_barrier_init(&barrier, 0, 3);
	for (int i = 0; i < 2; i++)
		pthread_create(threads + i, 0, meets, 0);
	while (here < 2)
		usleep(1000);
	usleep(100000);
	return 0;
}

// A child holds it.
static int shared_mutex(void)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	atomic_int *is_held;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	if (shared == MAP_FAILED || pthread_mutex_init(shared, &attr))
		return 9;
	is_held = (atomic_int *)(shared + 1);
	if (fork() == 0) {
		pthread_mutex_lock(shared);
		*is_held = 1;
		usleep(200000);
		pthread_mutex_unlock(shared);
		_exit(0);
	}
	while (!*is_held)
		usleep(1000);
	pthread_mutex_lock(shared);
	pthread_mutex_unlock(shared);
	wait(0);
	return 0;
}

static void *alone(void *unused)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

	for (int i = 0; i < turns; i++) {
		pthread_mutex_lock(&own);
		work(100);
		pthread_mutex_unlock(&own);
	}
	return unused;
}

static void *burn(void *unused)
{
	work(turns * 1000l);
	return unused;
}

// Each of the others comes for one thing, while the first one has all.
static void *kinds(void *number)
{
	struct timespec past = { 0, 0 };

	if (!number) {
		pthread_spin_lock(&spin);
		pthread_rwlock_wrlock(&rwlock);
	}
	pthread_barrier_wait(&barrier);
	if (!number) {
		while (here < 3)
			usleep(1000);
		usleep(50000);
		pthread_spin_unlock(&spin);
		pthread_rwlock_unlock(&rwlock);
		sem_post(&tokens);
		return 0;
	}
	here++;
	if (number == (void *)1) {
		pthread_spin_lock(&spin);
		pthread_spin_unlock(&spin);
	} else if (number == (void *)2) {
		pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
	} else {
		sem_wait(&tokens);
		if (sem_timedwait(&tokens, &past) != -1 || errno != ETIMEDOUT)
			exit(8);
	}
	return 0;
}

// The same with a time limit, which only the first of two waits exceeds.
static void *timed(void *number)
{
	static int in_time = 3;
	struct timespec past = { 0, 0 }, wrong = { 0, -1 }, soon;

	if (!number)
		pthread_rwlock_wrlock(&rwlock);
	pthread_barrier_wait(&barrier);
	if (!number) {
		while (__atomic_load_n(&in_time, __ATOMIC_RELAXED))
			usleep(1000);
		usleep(50000);
		pthread_rwlock_unlock(&rwlock);
		sem_post(&tokens);
		return 0;
	}
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec += 60;
	if (number == (void *)1) {
		if (pthread_rwlock_timedrdlock(&rwlock, &past) != ETIMEDOUT ||
		    pthread_rwlock_timedrdlock(&rwlock, &wrong) != EINVAL)
			exit(9);
		__atomic_fetch_sub(&in_time, 1, __ATOMIC_RELAXED);
		if (pthread_rwlock_clockrdlock(&rwlock, CLOCK_REALTIME, &soon))
			exit(9);
		pthread_rwlock_unlock(&rwlock);
	} else if (number == (void *)2) {
		if (pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &past) != ETIMEDOUT ||
		    pthread_rwlock_clockwrlock(&rwlock, CLOCK_REALTIME, &wrong) != EINVAL)
			exit(10);
		__atomic_fetch_sub(&in_time, 1, __ATOMIC_RELAXED);
		if (pthread_rwlock_timedwrlock(&rwlock, &soon))
			exit(10);
		pthread_rwlock_unlock(&rwlock);
	} else {
		if (sem_clockwait(&tokens, CLOCK_MONOTONIC, &past) != -1 || errno != ETIMEDOUT)
			exit(11);
		__atomic_fetch_sub(&in_time, 1, __ATOMIC_RELAXED);
		if (sem_clockwait(&tokens, CLOCK_REALTIME, &soon))
			exit(11);
	}
	return 0;
}

static void *waits_for_ever(void *number)
{
	pthread_mutex_lock(&lock);
	if (number)
		pthread_cond_wait(&items_there, &lock);
	pthread_mutex_unlock(&lock);
	sem_wait(&tokens);
	return 0;
}

// Threads that are cancelled while they wait.
static int cancelled(void)
{
	for (long i = 0; i < 2; i++) {
		pthread_t thread;
		void *result;

		pthread_create(&thread, 0, waits_for_ever, (void *)i);
		usleep(10000);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		if (result != PTHREAD_CANCELED)
			return 1;
		// pthread_cond_wait has taken the mutex again.
		if (i)
			pthread_mutex_unlock(&lock);
	}
	return pthread_mutex_trylock(&lock);
}

static void *one_of_crowd(void *unused)
{
	locked_section(0);
	meet();
	return unused;
}

static int crowd(void)
{
	static pthread_t threads[CROWD];
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	pthread_barrier_init(&barrier, 0, CROWD + 1);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < CROWD; i++)
		if (pthread_create(threads + i, &small, one_of_crowd, 0))
			return 9;
	pthread_mutex_unlock(&lock);
	meet();
	for (int i = 0; i < CROWD; i++)
		pthread_join(threads[i], 0);
	return 0;
}

static pthread_mutex_t locks[4] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
				    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };

__attribute__((noinline)) void update_table(int which, long us)
{
	pthread_mutex_lock(locks + which);
	work(us);
	pthread_mutex_unlock(locks + which);
	__asm__ volatile("");
}

__attribute__((noinline)) void flush_log(void)
{
	pthread_mutex_lock(&lock);
	usleep(3000);
	pthread_mutex_unlock(&lock);
	__asm__ volatile("");
}

// Some meet at a barrier, and the others share four tables and a log, for so many milliseconds or longer.
static void *one_of_many(void *number)
{
	long i = (long)number, turn = 0;
	char name[16];

	snprintf(name, sizeof name, "%s-%d", i < MEETING ? "solver" : "worker", (int)(i % MANY));
	pthread_setname_np(pthread_self(), name);
	if (i < MEETING) {
		for (turn = 0; turn * 20 < turns; turn++) {
			work(i == 3 ? 2000 : 200);
			meet();
		}
		stop = 1;
		return 0;
	}
	while (!stop) {
		update_table((i + turn) % 4, i % 8 ? 20 : 200);
		usleep(500);
		if (++turn % 64 == 0)
			flush_log();
	}
	return 0;
}

// Each turn of one thread touches a page that comes late: another thread has it, as a slow disk would.
static int fault_file;
static char *late_pages;

static void *slow_disk(void *unused)
{
	struct uffd_msg message;
	static char zeros[4096];

	while (read(fault_file, &message, sizeof message) == sizeof message) {
		struct uffdio_copy copy = { .dst = message.arg.pagefault.address & ~4095ull,
					    .src = (uintptr_t)zeros, .len = sizeof zeros };

		usleep(5000);
		ioctl(fault_file, UFFDIO_COPY, &copy);
	}
	return unused;
}

__attribute__((noinline)) void touch_page(int which)
{
	*(volatile char *)(late_pages + which * 4096l) = 1;
	__asm__ volatile("");
}

static void *faulting(void *number)
{
	pthread_setname_np(pthread_self(), number ? "quick" : "slow");
	for (int i = 0; i < turns; i++) {
		work(100);
		if (!number)
			touch_page(i);
		meet();
	}
	return 0;
}

static int faults(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register pages = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	pthread_t disk;

	fault_file = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	late_pages = mmap(0, turns * 4096l, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pages.range.start = (uintptr_t)late_pages;
	pages.range.len = turns * 4096l;
	if (fault_file < 0 || ioctl(fault_file, UFFDIO_API, &api) || late_pages == MAP_FAILED ||
	    ioctl(fault_file, UFFDIO_REGISTER, &pages))
		return 77;
	pthread_create(&disk, 0, slow_disk, 0);
	pthread_barrier_init(&barrier, 0, SOME);
	run(SOME, faulting);
	return 0;
}

// Code that no file has calls the lock.
static void *by_made_code(void *code)
{
	for (int i = 0; i < turns; i++) {
		((void (*)(pthread_mutex_t *))code)(&lock);
		usleep(2000);
		pthread_mutex_unlock(&lock);
	}
	return 0;
}

// With a name, it has one in the map that compilers write for perf.
static int jit(const char *name)
{
	// push rbp; mov rbp, rsp; mov rax, pthread_mutex_lock; call rax; pop rbp; ret
	unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8, 0, 0, 0,
			 0,    0,    0, 0, 0,    0xff, 0xd0, 0x5d, 0xc3 };
	void *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int (*target)(pthread_mutex_t *) = pthread_mutex_lock;
	pthread_t threads[SOME];

	if (page == MAP_FAILED)
		return 77;
	memcpy(code + 6, &target, sizeof target);
	memcpy(page, code, sizeof code);
	if (name) {
		char path[64];
		FILE *map;

		snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
		map = fopen(path, "wx");
		if (!map)
			return 77;
		fprintf(map, "%lx %zx %s\n", (unsigned long)page, sizeof code, name);
		fclose(map);
	}
	for (int i = 0; i < SOME; i++)
		pthread_create(threads + i, 0, by_made_code, page);
	for (int i = 0; i < SOME; i++)
		pthread_join(threads[i], 0);
	return 0;
}

// Nothing but waiting, so often that all of it cannot be told.
static void *storm(void *unused)
{
	for (int i = 0; i < turns * 1000; i++) {
		pthread_mutex_lock(&lock);
		items++;
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

static void *rounds(void *unused)
{
	for (int i = 0; i < turns * 1000; i++)
		meet();
	return unused;
}

enum { LOCKS = 10000 };
static pthread_mutex_t row_of_locks[LOCKS + 1];
static atomic_int begun;

// The first one has the next lock before it leaves one, and the other one follows.
static void *hand_over_hand(void *number)
{
	for (int i = 0; i < LOCKS; i++) {
		if (number) {
			pthread_mutex_lock(row_of_locks + i);
			begun = i + 1;
			pthread_mutex_unlock(row_of_locks + i);
			continue;
		}
		pthread_mutex_lock(row_of_locks + i + 1);
		// The follower is about to come, and has to wait.
		while (begun < i)
			sched_yield();
		work(50);
		pthread_mutex_unlock(row_of_locks + i);
	}
	if (!number)
		pthread_mutex_unlock(row_of_locks + LOCKS);
	return 0;
}

static int many_locks(void)
{
	pthread_t threads[2];

	for (int i = 0; i <= LOCKS; i++)
		pthread_mutex_init(row_of_locks + i, 0);
	pthread_mutex_lock(row_of_locks);
	// The first thread takes over what is locked here, which a normal mutex allows.
	for (long i = 0; i < 2; i++)
		pthread_create(threads + i, 0, hand_over_hand, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], 0);
	return 0;
}

static pthread_mutex_t links[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };

__attribute__((noinline)) void take_first(void)
{
	pthread_mutex_lock(links);
	__asm__ volatile("");
}

__attribute__((noinline)) void take_second(void)
{
	pthread_mutex_lock(links + 1);
	__asm__ volatile("");
}

static void begins(int step)
{
	while (begun < step)
		usleep(100);
}

// The top waits for the middle, and that one for the deep, which works on a processor that others want.
static void *chained(void *number)
{
	static const char *const names[] = { "deep", "middle", "top" };
	long own = (long)number;

	pthread_setname_np(pthread_self(), names[own]);
	for (int i = 0; i < turns; i++) {
		pthread_barrier_wait(&barrier);
		begins(3 * i + own);
		if (own == 2) {
			begun = 3 * i + 3;
			take_first();
			pthread_mutex_unlock(links);
			continue;
		}
		if (own == 1)
			take_first();
		else
			take_second();
		begun = 3 * i + own + 1;
		if (own == 1) {
			take_second();
			pthread_mutex_unlock(links);
		} else {
			// Both others have come, or are about to.
			begins(3 * i + 3);
			usleep(1000);
			work(20000);
		}
		pthread_mutex_unlock(links + 1);
	}
	return 0;
}

static int chain(void)
{
	pthread_t spinners[SOME];

	on_one_processor();
	pthread_barrier_init(&barrier, 0, SOME);
	for (int i = 0; i < SOME; i++) {
		pthread_create(spinners + i, 0, spinner, 0);
		pthread_setname_np(spinners[i], "burner");
	}
	run(SOME, chained);
	stop = 1;
	for (int i = 0; i < SOME; i++)
		pthread_join(spinners[i], 0);
	return 0;
}

// A child that goes on by itself, and one that is another program.
static int children(char **words, int is_program)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		if (is_program) {
			execl("/proc/self/exe", words[0], "sleeper", words[2], (char *)0);
			_exit(9);
		}
		run(SOME, sleeper);
		_exit(0);
	}
	wait(&status);
	return status != 0;
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "";

	if (count > 2)
		turns = atoi(words[2]);
	pthread_spin_init(&spin, 0);
	sem_init(&tokens, 0, 0);
	if (!strcmp(mode, "preempted"))
		return holders_preempted();
	if (!strcmp(mode, "convoy"))
		return run(SOME, convoy), 0;
	if (!strcmp(mode, "sleeper"))
		return run(SOME, sleeper), 3;
	if (!strcmp(mode, "straggler")) {
		pthread_barrier_init(&barrier, 0, SOME);
		return run(SOME, straggler), 0;
	}
	if (!strcmp(mode, "herd"))
		return run(HERD, herd), 0;
	if (!strcmp(mode, "turns"))
		return run(2, by_turns), 0;
	if (!strcmp(mode, "storm"))
		return run(SOME, storm), items != SOME * turns * 1000;
	if (!strcmp(mode, "rounds")) {
		pthread_barrier_init(&barrier, 0, 2);
		return run(2, rounds), 0;
	}
	if (!strcmp(mode, "hang"))
		return hangs();
	if (!strcmp(mode, "shared"))
		return shared_mutex();
	if (!strcmp(mode, "alone"))
		return run(SOME, alone), 0;
	if (!strcmp(mode, "burn"))
		return run(SOME, burn), 0;
	if (!strcmp(mode, "timed")) {
		pthread_barrier_init(&barrier, 0, 4);
		return run(4, timed), 0;
	}
	if (!strcmp(mode, "kinds")) {
		pthread_barrier_init(&barrier, 0, 4);
		return run(4, kinds), 0;
	}
	if (!strcmp(mode, "cancel"))
		return cancelled();
	if (!strcmp(mode, "crowd"))
		return crowd();
	if (!strcmp(mode, "many")) {
		pthread_barrier_init(&barrier, 0, MEETING);
		return run(MANY, one_of_many), 0;
	}
	if (!strcmp(mode, "faults"))
		return faults();
	if (!strcmp(mode, "jit"))
		return jit(count > 3 ? words[3] : 0);
	if (!strcmp(mode, "chain"))
		return chain();
	if (!strcmp(mode, "locks"))
		return many_locks();
	if (!strcmp(mode, "fork"))
		return children(words, 0);
	if (!strcmp(mode, "exec"))
		return children(words, 1) != 1;
	if (!strcmp(mode, "crash")) {
		run(SOME, sleeper);
		abort();
	}
	return 2;
}
