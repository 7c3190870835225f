// SPDX-License-Identifier: MIT OR Apache-2.0
// The sleep that thread cancellation unwinds from, and the part of pthread_cond_wait that it unwinds through. It is C, because a cleanup handler is
// a matter of the C library's headers and because nothing may unwind through Rust. The decisions are in cond.rs.

#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The twin of `Wait` in cond.rs.
struct wait {
	pthread_cond_t *cond;
	pthread_mutex_t *mutex;
	// For cond.rs.
	uint64_t own[3];
	// What to sleep on, written by wakeful_cond_step.
	const uint32_t *word;
	uint32_t expected;
	// Until when: `time` on this clock; -1: no end.
	int32_t clock;
	struct timespec time;
};

#define HIDDEN __attribute__((visibility("hidden")))

// By this the C library knows whose destructors are which. Else it stands in the C compiler's start files.
HIDDEN void *__dso_handle = &__dso_handle;

// 0, or the error with which the call ends at once.
extern HIDDEN int wakeful_cond_begin(struct wait *w, pthread_cond_t *cond, pthread_mutex_t *mutex, int clock,
				     const struct timespec *time);
// 0: sleep as *w says; else the wait is over. outcome: 0 not yet slept, -1 woken, else the futex call's error.
extern HIDDEN int wakeful_cond_step(struct wait *w, int outcome);
extern HIDDEN int wakeful_cond_finish(struct wait *w);
extern HIDDEN void wakeful_cond_cancelled(struct wait *w);

// For a condition variable that is the C library's: its own functions, and whether the mutex is its own, too.
struct real {
	int (*wait)(pthread_cond_t *, pthread_mutex_t *);
	int (*timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
	int (*clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
	int (*lock)(pthread_mutex_t *);
	int (*unlock)(pthread_mutex_t *);
	int32_t mutex_too;
	// The clock of the condition variable's attribute.
	int32_t clock;
};
extern HIDDEN int wakeful_cond_theirs(struct real *real, pthread_cond_t *cond, pthread_mutex_t *mutex);

// The same by a fiber, which is parked. 0: the caller is none.
extern HIDDEN int wakeful_host_sleep(const uint32_t *word, uint32_t expected, int clock,
				      const struct timespec *time);

// Apart from its caller, so that all that asynchronous cancellation can hit is a call, which the caller's cleanup covers.
HIDDEN __attribute__((noinline)) int wakeful_sleep(const uint32_t *word, uint32_t expected, int clock,
						   const struct timespec *time)
{
	int type, saved = errno, outcome = wakeful_host_sleep(word, expected, clock, time);

	if (outcome != 0)
		return outcome;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	int realtime = clock == CLOCK_REALTIME ? FUTEX_CLOCK_REALTIME : 0;
	long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | realtime, expected,
			      clock < 0 ? (void *)0 : time, (void *)0, FUTEX_BITSET_MATCH_ANY);
	int error = errno;
	pthread_setcanceltype(type, &type);
	errno = saved;
	return result == 0 ? -1 : error;
}

static void cancelled(void *w)
{
	wakeful_cond_cancelled(w);
}

static int wait_ours(struct wait *w)
{
	int outcome = 0;

	pthread_cleanup_push(cancelled, w);
	while (!wakeful_cond_step(w, outcome))
		outcome = wakeful_sleep(w->word, w->expected, w->clock, &w->time);
	pthread_cleanup_pop(0);
	return wakeful_cond_finish(w);
}

// Values of `clock` beside those of clockid_t: no deadline; the clock of the condition variable's attribute.
enum { FOREVER = -1, OWN_CLOCK = -2 };

static void lock_again(void *mutex)
{
	pthread_mutex_lock(mutex);
}

static int64_t ns(struct timespec time)
{
	return time.tv_sec > INT64_MAX / 2000000000 ? INT64_MAX / 2 : time.tv_sec * 1000000000 + time.tv_nsec;
}

// A process-shared condition variable (the C library's) with a mutex that is not (ours): the C library cannot release our mutex, so it gets
// one of its own, and a signal that comes between the two releases is found by waiting in short turns. Each turn ends like
// a wake-up without cause.
static int wait_mixed(const struct real *real, pthread_cond_t *cond, pthread_mutex_t *mutex, int clock,
		      const struct timespec *time)
{
	enum { TURN_NS = 10000000 };
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	struct timespec now;
	int64_t turn = TURN_NS;
	int error, last = 0;

	if (time) {
		if (time->tv_nsec < 0 || time->tv_nsec >= 1000000000)
			return EINVAL;
		clock = clock == OWN_CLOCK ? real->clock : clock;
		clock_gettime(clock, &now);
		if (ns(*time) - ns(now) < turn) {
			turn = ns(*time) - ns(now);
			last = 1;
		}
	}
	clock_gettime(real->clock, &now);
	turn = ns(now) + (turn > 0 ? turn : 0);
	now.tv_sec = turn / 1000000000;
	now.tv_nsec = turn % 1000000000;
	real->lock(&own);
	error = pthread_mutex_unlock(mutex);
	if (error) {
		real->unlock(&own);
		return error;
	}
	pthread_cleanup_push(lock_again, mutex);
	error = real->timedwait(cond, &own, &now);
	pthread_cleanup_pop(0);
	real->unlock(&own);
	turn = pthread_mutex_lock(mutex);
	return turn ? (int)turn : error == ETIMEDOUT && !last ? 0 : error;
}

static int wait_on(pthread_cond_t *cond, pthread_mutex_t *mutex, int clock, const struct timespec *time)
{
	struct real real;

	if (wakeful_cond_theirs(&real, cond, mutex)) {
		if (!real.mutex_too)
			return wait_mixed(&real, cond, mutex, clock, time);
		if (clock == FOREVER)
			return real.wait(cond, mutex);
		return clock == OWN_CLOCK ? real.timedwait(cond, mutex, time) :
					    real.clockwait(cond, mutex, clock, time);
	}

	struct wait w;
	int error = wakeful_cond_begin(&w, cond, mutex, clock, time);

	return error == 0 ? wait_ours(&w) : error;
}

HIDDEN int wakeful_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	return wait_on(cond, mutex, FOREVER, (void *)0);
}

HIDDEN int wakeful_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *time)
{
	return wait_on(cond, mutex, OWN_CLOCK, time);
}

// The clock comes from the program: what is not a clock that one can wait on ends here, our own values among it.
HIDDEN int wakeful_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, int clock, const struct timespec *time)
{
	return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC ? wait_on(cond, mutex, clock, time) : EINVAL;
}
