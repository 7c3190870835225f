// SPDX-License-Identifier: MIT OR Apache-2.0
// What the functions around other libraries' own have in common: events, and marks at what is waited for.

#ifndef WAKEFUL_TELL_H
#define WAKEFUL_TELL_H

#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define COLD static __attribute__((cold, noinline))
#define CALLER ((uintptr_t)__builtin_return_address(0))

// The twins of `Kind` and `Class` in abi/src/profile.rs.
enum { WAIT = 1, GOT, GAVE_UP, TOOK, RELEASED, COND_WAIT, COND_BACK, ARRIVED, LEFT, FORK, BEGIN, END, JOIN };
enum { MUTEX = 1 << 8, SPIN = 2 << 8, RWLOCK = 3 << 8, SEMAPHORE = 4 << 8, COND = 5 << 8, BARRIER = 6 << 8 };
enum { REGION = 7 << 8, TEAM = 8 << 8, CRITICAL = 9 << 8 };
// The twins of SHARED, WRITER and MOST_EVERY there.
enum { SHARED = 1 << 16, WRITER = 1 << 17, MOST_EVERY = 10 };

// One wait of so many is told, as a power of two; then the same for barriers. They are there when
// `wakeful_profile_on` says so.
extern HIDDEN const uint32_t *wakeful_profile_every;
extern HIDDEN int wakeful_profile_attach(void);
extern HIDDEN uint32_t wakeful_profile_note(uint32_t what, uint32_t number, uintptr_t object,
					    uintptr_t caller);
extern HIDDEN void wakeful_profile_note_at(uint64_t time_ns, uint32_t what, uint32_t number, uintptr_t object,
					   uintptr_t caller);
extern HIDDEN int wakeful_profile_is_crowded(void);
extern HIDDEN void wakeful_profile_untold(uint64_t ns, uint32_t what, uintptr_t object, uintptr_t caller);
// The number: how often the lock was taken so far, 0 if nobody counts it.
extern HIDDEN void wakeful_profile_released(uint32_t what, uint32_t number, uintptr_t object);
extern HIDDEN void wakeful_profile_took(uint32_t what, uint32_t number, uintptr_t object, uint32_t *holder);

static inline uint32_t note(uint32_t what, uint32_t number, const volatile void *object, uintptr_t caller)
{
	return wakeful_profile_note(what, number, (uintptr_t)object, caller);
}

// Does somebody listen? ON_PLAIN: and the plain mutex is the C library's, with the words that we know.
// ON_WAKEFUL: it is the interposer's, on the default algorithm.
enum { ON_PLAIN = 2, ON_WAKEFUL = 3 };
extern HIDDEN int wakeful_profile_on;
#define ON (__builtin_expect(__atomic_load_n(&wakeful_profile_on, __ATOMIC_ACQUIRE), 1))

// Locks by their addresses. Another lock of the same place costs events, and nothing else: the recorder knows
// who waits for what.
struct place {
	// Threads that wait.
	uint32_t waiting;
	// The number of the thread that has had the lock last, as far as it was told; 0: nobody knows.
	uint32_t holder;
};
#define PLACES_LOG2 12
// What a forked child finds empty. It is as large as the largest page and aligned to it, so that nothing else
// is wiped.
struct marks {
	struct place places[1 << PLACES_LOG2];
	// Threads in critical sections of OpenMP, or before them: see openmp.c.
	uint32_t inside[1 << PLACES_LOG2];
} __attribute__((aligned(65536)));
extern HIDDEN struct marks wakeful_profile_marks;

static inline uint32_t place_number(const volatile void *object)
{
	return (uint32_t)((uint64_t)(uintptr_t)object * 0x9e3779b97f4a7c15u >> (64 - PLACES_LOG2));
}

static inline struct place *place(const volatile void *object)
{
	return wakeful_profile_marks.places + place_number(object);
}

static inline int is_waited_for(const volatile void *object)
{
	return __builtin_expect(__atomic_load_n(&place(object)->waiting, __ATOMIC_RELAXED) != 0, 0);
}

#endif
