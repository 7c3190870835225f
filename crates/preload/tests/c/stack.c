// SPDX-License-Identifier: MIT OR Apache-2.0
// How much stack does an entry point need? Usage: stack NAME SIZE prints the bytes that a thread used whose stack has SIZE bytes, and which calls
// that entry three times: cold, warm, and a second later, when a look at the processors is due. Without arguments it lists the names.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static const unsigned char PATTERN = 0xa5;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static pthread_once_t once[3];
static sem_t sem;
// Which of the three calls.
static atomic_int round_, signalled;

static void nap(long us)
{
	struct timespec time = {us / 1000000, us % 1000000 * 1000};

	syscall(SYS_nanosleep, &time, 0);
}

static struct timespec soon(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	time.tv_nsec += 5000000;
	if (time.tv_nsec >= 1000000000) {
		time.tv_nsec -= 1000000000;
		time.tv_sec++;
	}
	return time;
}

static void wait_for(int result, int expected)
{
	if (result != expected)
		abort();
}

// What the main thread does before, what the measured one does, and what the main thread does when that one sleeps, or afterwards.
static void nothing(void) {}

static void hold(void) { pthread_mutex_lock(&mutex); }
static void let_go(void) { pthread_mutex_unlock(&mutex); }
static void lock(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}
static void try_lock(void) { wait_for(pthread_mutex_trylock(&mutex), EBUSY); }
static void timed_lock(void)
{
	struct timespec time = soon(CLOCK_REALTIME);

	wait_for(pthread_mutex_timedlock(&mutex, &time), ETIMEDOUT);
}
static void clock_lock(void)
{
	struct timespec time = soon(CLOCK_MONOTONIC);

	wait_for(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &time), ETIMEDOUT);
}
static void make_mutex(void)
{
	pthread_mutex_t own;

	pthread_mutex_init(&own, 0);
	pthread_mutex_destroy(&own);
}

static void hold_recursive(void) { pthread_mutex_lock(&recursive); }
static void let_recursive_go(void) { pthread_mutex_unlock(&recursive); }
static void lock_recursive(void)
{
	pthread_mutex_lock(&recursive);
	pthread_mutex_lock(&recursive);
	pthread_mutex_unlock(&recursive);
	pthread_mutex_unlock(&recursive);
}
static void hold_checking(void) { pthread_mutex_lock(&checking); }
static void let_checking_go(void) { pthread_mutex_unlock(&checking); }
static void lock_checking(void)
{
	pthread_mutex_lock(&checking);
	wait_for(pthread_mutex_lock(&checking), EDEADLK);
	pthread_mutex_unlock(&checking);
}

static void cond_wait(void)
{
	pthread_mutex_lock(&mutex);
	while (!signalled)
		pthread_cond_wait(&cond, &mutex);
	signalled = 0;
	pthread_mutex_unlock(&mutex);
}
static void tell(void)
{
	pthread_mutex_lock(&mutex);
	signalled = 1;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
}
static void tell_all(void)
{
	pthread_mutex_lock(&mutex);
	signalled = 1;
	pthread_mutex_unlock(&mutex);
	pthread_cond_broadcast(&cond);
}
static void timed_wait(void)
{
	struct timespec time = soon(CLOCK_REALTIME);

	pthread_mutex_lock(&mutex);
	wait_for(pthread_cond_timedwait(&cond, &mutex, &time), ETIMEDOUT);
	time = soon(CLOCK_MONOTONIC);
	wait_for(pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &time), ETIMEDOUT);
	pthread_mutex_unlock(&mutex);
}
static void make_cond(void)
{
	pthread_cond_t own;

	pthread_cond_init(&own, 0);
	pthread_cond_destroy(&own);
}

static void hold_read(void) { pthread_rwlock_rdlock(&rwlock); }
static void hold_write(void) { pthread_rwlock_wrlock(&rwlock); }
static void let_rwlock_go(void) { pthread_rwlock_unlock(&rwlock); }
static void read_(void)
{
	pthread_rwlock_rdlock(&rwlock);
	pthread_rwlock_unlock(&rwlock);
}
static void write_(void)
{
	pthread_rwlock_wrlock(&rwlock);
	pthread_rwlock_unlock(&rwlock);
}
static void timed_read(void)
{
	struct timespec time = soon(CLOCK_REALTIME);

	wait_for(pthread_rwlock_timedrdlock(&rwlock, &time), ETIMEDOUT);
	time = soon(CLOCK_MONOTONIC);
	wait_for(pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &time), ETIMEDOUT);
}
static void timed_write(void)
{
	struct timespec time = soon(CLOCK_REALTIME);

	wait_for(pthread_rwlock_timedwrlock(&rwlock, &time), ETIMEDOUT);
	time = soon(CLOCK_MONOTONIC);
	wait_for(pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &time), ETIMEDOUT);
}

static void make_barrier(void) { pthread_barrier_init(&barrier, 0, 2); }
static void meet(void) { pthread_barrier_wait(&barrier); }
static void meet_and_end(void)
{
	pthread_barrier_wait(&barrier);
	pthread_barrier_destroy(&barrier);
}

static void sem_take(void) { sem_wait(&sem); }
static void sem_give(void) { sem_post(&sem); }
static void sem_timed(void)
{
	struct timespec time = soon(CLOCK_REALTIME);

	wait_for(sem_timedwait(&sem, &time), -1);
	time = soon(CLOCK_MONOTONIC);
	wait_for(sem_clockwait(&sem, CLOCK_MONOTONIC, &time), -1);
}

static void hold_spin(void) { pthread_spin_lock(&spin); }
static void let_spin_go(void) { pthread_spin_unlock(&spin); }
static void spin_(void)
{
	pthread_spin_lock(&spin);
	pthread_spin_unlock(&spin);
}

static void routine(void) { nap(20000); }
static void *first(void *arg)
{
	pthread_once(&once[round_], routine);
	return arg;
}
static pthread_t helper;
static void begin_once(void)
{
	pthread_create(&helper, 0, first, 0);
	while (!*(volatile int *)&once[round_])
		nap(100);
}
static void once_(void) { pthread_once(&once[round_], routine); }
static void join_helper(void) { pthread_join(helper, 0); }

static void *done(void *arg) { return arg; }
static int done11(void *arg) { return arg != 0; }
// In memory of our own, so that the size of the C library's caches does not matter.
static void create(void)
{
	static char memory[1 << 18] __attribute__((aligned(4096)));
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, memory, sizeof memory);
	wait_for(pthread_create(&thread, &attr, done, 0), 0);
	pthread_join(thread, 0);
	pthread_attr_destroy(&attr);
}
static void create11(void)
{
	thrd_t thread;

	wait_for(thrd_create(&thread, done11, 0), thrd_success);
	thrd_join(thread, 0);
}
static void count(void)
{
	sysconf(_SC_NPROCESSORS_ONLN);
	get_nprocs();
}

// The handler runs on a stack of its own, which is measured instead.
static void (*in_handler)(void);
static void handler(int signal)
{
	(void)signal;
	in_handler();
}
static void post_in_handler(void)
{
	in_handler = sem_give;
	raise(SIGUSR1);
}
static void lock_in_handler(void)
{
	in_handler = lock;
	raise(SIGUSR1);
}
static void *sleeper(void *arg)
{
	for (int i = 0; i < 3; i++)
		sem_wait(&sem);
	return arg;
}
static void begin_sleeper(void)
{
	if (!round_)
		pthread_create(&helper, 0, sleeper, 0);
	nap(20000);
}
static void post_to_sleeper(void)
{
	sem_post(&sem);
	if (round_ == 2)
		pthread_join(helper, 0);
}

static const struct op {
	const char *name;
	void (*before)(void), (*run)(void), (*meanwhile)(void), (*after)(void);
	int on_signal_stack;
} ops[] = {
	{"mutex_free", nothing, lock, nothing, nothing, 0},
	{"mutex", hold, lock, let_go, nothing, 0},
	{"mutex_try", hold, try_lock, nothing, let_go, 0},
	{"mutex_timed", hold, timed_lock, nothing, let_go, 0},
	{"mutex_clock", hold, clock_lock, nothing, let_go, 0},
	{"mutex_make", nothing, make_mutex, nothing, nothing, 0},
	{"mutex_recursive", hold_recursive, lock_recursive, let_recursive_go, nothing, 0},
	{"mutex_checking", hold_checking, lock_checking, let_checking_go, nothing, 0},
	{"cond", nothing, cond_wait, tell, nothing, 0},
	{"cond_broadcast", nothing, cond_wait, tell_all, nothing, 0},
	{"cond_timed", nothing, timed_wait, nothing, nothing, 0},
	{"cond_make", nothing, make_cond, nothing, nothing, 0},
	{"read", hold_write, read_, let_rwlock_go, nothing, 0},
	{"write", hold_read, write_, let_rwlock_go, nothing, 0},
	{"write_write", hold_write, write_, let_rwlock_go, nothing, 0},
	{"read_timed", hold_write, timed_read, nothing, let_rwlock_go, 0},
	{"write_timed", hold_read, timed_write, nothing, let_rwlock_go, 0},
	{"barrier", make_barrier, meet, meet_and_end, nothing, 0},
	{"sem", nothing, sem_take, sem_give, nothing, 0},
	{"sem_timed", nothing, sem_timed, nothing, nothing, 0},
	{"sem_post", begin_sleeper, post_to_sleeper, nothing, nothing, 0},
	{"spin", hold_spin, spin_, let_spin_go, nothing, 0},
	{"once_first", nothing, once_, nothing, nothing, 0},
	{"once", begin_once, once_, join_helper, nothing, 0},
	{"create", nothing, create, nothing, nothing, 0},
	{"create11", nothing, create11, nothing, nothing, 0},
	{"create_first", nothing, create, nothing, nothing, 0},
	{"count", nothing, count, nothing, nothing, 0},
	{"signal_sem_post", nothing, post_in_handler, nothing, nothing, 1},
	{"signal_mutex", hold, lock_in_handler, let_go, nothing, 1},
};

static const struct op *op;
static atomic_int turn, tid;
static stack_t signal_stack;

// The main thread sets the odd turns, the measured one the even ones.
static void *measured(void *arg)
{
	tid = syscall(SYS_gettid);
	if (op->on_signal_stack)
		sigaltstack(&signal_stack, 0);
	for (int i = 0; i < 3; i++) {
		while (turn != 2 * i + 1)
			nap(500);
		op->run();
		turn = 2 * i + 2;
	}
	return arg;
}

static int sleeps(void)
{
	char name[64], text[256] = "";
	FILE *file;

	snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
	file = fopen(name, "r");
	if (!file)
		return 1;
	if (!fgets(text, sizeof text, file))
		text[0] = 0;
	fclose(file);
	return strstr(text, ") S ") != 0;
}

static char *guarded(size_t size)
{
	const size_t guard = 65536;
	char *start = mmap(0, guard + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (start == MAP_FAILED || mprotect(start + guard, size, PROT_READ | PROT_WRITE))
		abort();
	return memset(start + guard, PATTERN, size);
}

static size_t used(const char *stack, size_t size)
{
	size_t low = 0;

	while (low < size && (unsigned char)stack[low] == PATTERN)
		low++;
	return size - low;
}

// The first thread of a process, created where the stack is this one.
static void create_first_on(char *stack, size_t size)
{
	static ucontext_t here, there;

	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = size;
	there.uc_link = &here;
	makecontext(&there, create, 0);
	swapcontext(&here, &there);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	pthread_attr_t attr;
	pthread_t thread;
	char *stack;
	size_t size, signal_size, signal_room;

	if (argc < 3) {
		for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
			puts(ops[i].name);
		return 0;
	}
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
		if (!strcmp(ops[i].name, argv[1]))
			op = &ops[i];
	if (!op)
		return 2;
	size = strtoul(argv[2], 0, 0);
	stack = guarded(size);
	if (!strcmp(op->name, "create_first")) {
		create_first_on(stack, size);
		printf("%zu\n", used(stack, size));
		return 0;
	}
	// Room to measure in, or the least that there may be; with what we ask for ourselves where a handler calls what POSIX does not let it call.
	signal_size = size > 20480 ? 65536 : sysconf(_SC_MINSIGSTKSZ) + (strcmp(op->name, "signal_sem_post") ? 2048 : 0);
	signal_room = (signal_size + 4095) / 4096 * 4096;
	signal_stack.ss_sp = guarded(signal_room) + signal_room - signal_size;
	signal_stack.ss_size = signal_size;
	sigaction(SIGUSR1, &action, 0);
	pthread_spin_init(&spin, 0);
	sem_init(&sem, 0, 0);
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stack, size);
	if (pthread_create(&thread, &attr, measured, 0))
		return 3;
	for (int i = 0; i < 3; i++) {
		round_ = i;
		// The next look at the processors is due.
		if (i == 2)
			nap(1100000);
		op->before();
		turn = 2 * i + 1;
		for (int tries = 0; tries < 20 && turn == 2 * i + 1; tries++) {
			nap(1000);
			if (tries > 5 && sleeps())
				break;
		}
		op->meanwhile();
		while (turn != 2 * i + 2)
			nap(500);
		op->after();
	}
	pthread_join(thread, 0);
	printf("%zu\n", op->on_signal_stack ? used(signal_stack.ss_sp, signal_size) : used(stack, size));
	return 0;
}
