// SPDX-License-Identifier: MIT OR Apache-2.0
// Which waits are told, where they are too many: see abi/src/profile.rs.

#ifndef WAKEFUL_SAMPLE_H
#define WAKEFUL_SAMPLE_H

#include <stdint.h>
#include <time.h>

#include "tell.h"

// Waits of this thread that are not told, until the next one; where chance has come to; and when it began to
// wait for the last time.
static __thread __attribute__((tls_model("initial-exec"))) uint32_t untold, chance;
static __thread __attribute__((tls_model("initial-exec"))) uint64_t waited_ns;

// BOUND: a thread that began no wait for so long is not what makes too many events. It is longer where these
// are very many.
enum { SELDOM_NS = 10000000 };

// By the kernel's ticks, which takes a quarter of an exact clock. A wait that is shorter than a tick is 0, or
// one, as often as that is right on average.
static inline uint64_t ticks_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// When this wait begins, if it is one of those that are not told; else 0. They are as many as the recorder
// says on average, by chance: a program may do the same thing each second time. What comes seldom is told: so
// waits that are long are.
COLD uint64_t left_out_from(uint32_t every)
{
	uint64_t now_ns = ticks_ns(), past_ns = now_ns - waited_ns;

	waited_ns = now_ns;
	if (past_ns > (uint64_t)SELDOM_NS << every / 2)
		return 0;
	// They were more seldom before.
	untold = untold < 2u << every ? untold : 2u << every;
	if (untold > 0) {
		untold--;
		return now_ns;
	}
	chance = (chance ? chance : (uint32_t)(uintptr_t)&chance >> 4) * 1664525u + 1013904223u;
	untold = (uint32_t)((uint64_t)chance * ((2u << every) - 1) >> 32);
	return 0;
}

static inline uint64_t untold_from(void)
{
	uint32_t every = __atomic_load_n(wakeful_profile_every, __ATOMIC_RELAXED);

	if (__builtin_expect(every == 0, 1))
		return wakeful_profile_is_crowded() ? ticks_ns() : 0;
	return left_out_from(every < MOST_EVERY ? every : MOST_EVERY);
}

// The same for a barrier of the C library. Its first word counts arrivals, and the third has the parties: so
// all of a round see one number here, and tell it or not.
static inline uint64_t untold_round_from(const uint32_t *barrier)
{
	uint32_t every = __atomic_load_n(wakeful_profile_every + 1, __ATOMIC_RELAXED), round;

	// The interposer's barriers end in a word of theirs.
	if (__builtin_expect(every == 0, 1) || barrier[7] || !barrier[2])
		return 0;
	every = every < MOST_EVERY ? every : MOST_EVERY;
	round = __atomic_load_n(barrier, __ATOMIC_RELAXED) / barrier[2];
	return round * 0x9e3779b9u >> (32 - every) ? ticks_ns() : 0;
}

static inline int left_out(uint64_t from_ns, uint32_t class, int result, const volatile void *object,
			   uintptr_t caller)
{
	wakeful_profile_untold(ticks_ns() - from_ns, class, (uintptr_t)object, caller);
	return result;
}

#endif
