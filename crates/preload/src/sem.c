// SPDX-License-Identifier: MIT OR Apache-2.0
// The part of sem_wait that thread cancellation unwinds through; see cancel.c. The decisions are in sem.rs.

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <time.h>

// The twin of `Wait` in sem.rs.
struct wait {
	sem_t *sem;
	// For sem.rs.
	uint64_t own;
	// What to sleep on, written by wakeful_sem_step.
	const uint32_t *word;
	uint32_t expected;
	// Until when: `time` on this clock; -1: no end.
	int32_t clock;
	struct timespec time;
};

// The twin of `Real` in sem.rs.
struct real {
	int (*wait)(sem_t *);
	int (*timedwait)(sem_t *, const struct timespec *);
	int (*clockwait)(sem_t *, clockid_t, const struct timespec *);
};

#define HIDDEN __attribute__((visibility("hidden")))

extern HIDDEN int wakeful_sleep(const uint32_t *word, uint32_t expected, int clock, const struct timespec *time);
extern HIDDEN void wakeful_sem_real(struct real *real);
// 1: has a token; 0: there is none; -1: the semaphore is the C library's.
extern HIDDEN int wakeful_sem_try(sem_t *sem);
extern HIDDEN void wakeful_sem_begin(struct wait *w);
// 0: sleep as *w says; -1: has a token; else the error. outcome: as wakeful_sleep returns it, 0 if it was not called yet.
extern HIDDEN int wakeful_sem_step(struct wait *w, int outcome);
extern HIDDEN void wakeful_sem_cancelled(struct wait *w);

static void cancelled(void *w)
{
	wakeful_sem_cancelled(w);
}

// Apart, so that taking a token that is there does not set up a frame for this.
static __attribute__((noinline)) int wait_ours(sem_t *sem, clockid_t clock, const struct timespec *time)
{
	struct wait w = { .sem = sem, .clock = clock };
	int outcome = 0;

	if (time)
		w.time = *time;
	wakeful_sem_begin(&w);
	pthread_cleanup_push(cancelled, &w);
	while (!(outcome = wakeful_sem_step(&w, outcome)))
		outcome = wakeful_sleep(w.word, w.expected, w.clock, &w.time);
	pthread_cleanup_pop(0);
	if (outcome < 0)
		return 0;
	errno = outcome;
	return -1;
}

static __attribute__((noinline)) int wait_theirs(sem_t *sem, clockid_t clock, const struct timespec *time)
{
	struct real real;

	wakeful_sem_real(&real);
	if (!time)
		return real.wait(sem);
	return clock == CLOCK_REALTIME ? real.timedwait(sem, time) : real.clockwait(sem, clock, time);
}

static inline int wait_until(sem_t *sem, clockid_t clock, const struct timespec *time)
{
	// Also where there is a token: POSIX makes it a cancellation point, and so does the C library.
	pthread_testcancel();

	int taken = wakeful_sem_try(sem);

	if (taken > 0)
		return 0;
	return taken ? wait_theirs(sem, clock, time) : wait_ours(sem, clock, time);
}

HIDDEN int wakeful_sem_wait(sem_t *sem)
{
	return wait_until(sem, -1, (void *)0);
}

HIDDEN int wakeful_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *time)
{
	// The C library looks at the time whether it has to wait or not.
	if ((clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC) || time->tv_nsec < 0 || time->tv_nsec > 999999999) {
		errno = EINVAL;
		return -1;
	}
	return wait_until(sem, clock, time);
}

HIDDEN int wakeful_sem_timedwait(sem_t *sem, const struct timespec *time)
{
	return wakeful_sem_clockwait(sem, CLOCK_REALTIME, time);
}
