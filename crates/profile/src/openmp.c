// SPDX-License-Identifier: MIT OR Apache-2.0
// Around the OpenMP runtimes of gcc and clang: a region's beginning, each thread's part of it, and its end;
// the barriers inside, and critical sections.
//
// A Python wheel brings a libgomp of its own, under a name of its own, and only that wheel's modules know it.
// So the runtime behind a call is the one that the calling module would have without us: the next one that
// all modules see, else one that the module itself loads. It is looked up once for each place of a call.
//
// A region's function is called by ours, on each thread. What ours needs lies on the stack of the thread that
// began the region: that one does not go on before all have done their parts.
//
// Regions that are over soon are told now and then only, by chance, with a number of those between. Else the
// events would take longer than the region.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tell.h"

// The twins of the exports in lib.rs.
#define RUNTIME(each) \
	each(GOMP_parallel) \
	each(GOMP_parallel_reductions) \
	each(GOMP_parallel_sections) \
	each(GOMP_parallel_loop_static) \
	each(GOMP_parallel_loop_dynamic) \
	each(GOMP_parallel_loop_guided) \
	each(GOMP_parallel_loop_runtime) \
	each(GOMP_parallel_loop_nonmonotonic_dynamic) \
	each(GOMP_parallel_loop_nonmonotonic_guided) \
	each(GOMP_parallel_loop_nonmonotonic_runtime) \
	each(GOMP_parallel_loop_maybe_nonmonotonic_runtime) \
	each(GOMP_barrier) \
	each(GOMP_barrier_cancel) \
	each(GOMP_loop_end) \
	each(GOMP_loop_end_cancel) \
	each(GOMP_sections_end) \
	each(GOMP_sections_end_cancel) \
	each(GOMP_critical_start) \
	each(GOMP_critical_end) \
	each(GOMP_critical_name_start) \
	each(GOMP_critical_name_end) \
	each(__kmpc_fork_call) \
	each(__kmpc_barrier) \
	each(__kmpc_cancel_barrier) \
	each(__kmpc_critical) \
	each(__kmpc_critical_with_hint) \
	each(__kmpc_end_critical)

#define AT(name) AT_##name,
enum { RUNTIME(AT) FUNCTIONS };
#define NAME(name) #name,
static const char *const names[FUNCTIONS] = { RUNTIME(NAME) };

struct runtime {
	void *functions[FUNCTIONS];
};

// A place of a call, by the address to which it returns.
struct site {
	uintptr_t caller;
	struct runtime *runtime;
	// The module of the call is this library: the call was the last one of a region's function.
	int is_own;
	// Regions that are begun here before the next one that is told; those that were not told since the last
	// one; and what chance makes of it.
	uint32_t left, untold, chance;
};

// BOUND: places that are told apart. Each one beyond is looked up at each call.
enum { SITES = 1024, STEPS = 16 };
static struct site sites[SITES];

// A region.
struct part {
	// What a region with reductions finds there.
	void *first;
	void (*function)();
	void *data;
	int count;
	int is_told;
	uintptr_t caller;
	uint64_t from_ns;
	struct runtime *runtime;
};

#define OWN static __thread __attribute__((tls_model("initial-exec")))
// The region that the thread is in, if our function called its; and the one at whose barrier it waits.
OWN struct part *current, *meeting;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int find_all(void *handle, struct runtime *runtime)
{
	int found = 0;

	for (int i = 0; i < FUNCTIONS; i++) {
		runtime->functions[i] = dlsym(handle, names[i]);
		found |= runtime->functions[i] != 0;
	}
	return found;
}

// This is no path of a lock: it may allocate, as a runtime does that begins a region.
COLD void look_up(struct site *site)
{
	struct link_map *map = 0, *own = 0;
	struct runtime *runtime = calloc(1, sizeof *runtime);
	Dl_info about;
	void *handle;

	if (!runtime)
		return;
	if (dladdr1((void *)sites, &about, (void **)&own, RTLD_DL_LINKMAP) &&
	    dladdr1((void *)site->caller, &about, (void **)&map, RTLD_DL_LINKMAP) && map == own)
		site->is_own = 1;
	if (!find_all(RTLD_NEXT, runtime) && map && !site->is_own && map->l_name && map->l_name[0]) {
		// The module stays, as the runtime does that is found by it.
		handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
		if (handle)
			find_all(handle, runtime);
	}
	// ORDER: Release, pairs with the Acquire in `site_of`; publishes the functions.
	__atomic_store_n(&site->runtime, runtime, __ATOMIC_RELEASE);
}

// Where the call comes from. What is no place of its own yet is looked up in `spare`.
static struct site *site_of(uintptr_t caller, struct site *spare)
{
	uint32_t at = (uint32_t)((uint64_t)caller * 0x9e3779b97f4a7c15u >> 32);

	for (int step = 0; step < STEPS; step++) {
		struct site *site = sites + (at + step) % SITES;
		uintptr_t known = __atomic_load_n(&site->caller, __ATOMIC_RELAXED);

		if (known == 0 && __atomic_compare_exchange_n(&site->caller, &known, caller, 0, __ATOMIC_RELAXED,
							      __ATOMIC_RELAXED)) {
			look_up(site);
			return site;
		}
		// ORDER: Acquire, pairs with the Release in `look_up`.
		if (known == caller && __atomic_load_n(&site->runtime, __ATOMIC_ACQUIRE))
			return site;
		// Another thread is about to look it up.
		if (known == caller)
			break;
	}
	memset(spare, 0, sizeof *spare);
	spare->caller = caller;
	look_up(spare);
	return spare;
}

// The runtime of a call from here, and the place that is told.
static struct runtime *runtime_of(uintptr_t *caller, struct site *site)
{
	if (site->is_own && current) {
		*caller = current->caller;
		return current->runtime;
	}
	return site->runtime;
}

static void *real(struct runtime *runtime, int at)
{
	return runtime ? runtime->functions[at] : 0;
}

// What has this number on the stack at this time; two regions of one function begin at the same address.
static const volatile void *number_of(const struct part *part, uintptr_t caller)
{
	return (const volatile void *)((uintptr_t)part + caller * 0x9e3779b97f4a7c15u);
}

static void tell(uint32_t kind, const struct part *part)
{
	note(kind | REGION, 0, number_of(part, part->caller), part->caller);
}

// BOUND: a region that is told costs some 3 us of each of its threads, most of them the reader's. One that is
// over sooner than this is told once in this time, on average, and at least once in 100 times.
enum { SOON_NS = 100000, MOST_UNTOLD = 100 };

static void begin(struct part *part, struct site *site, uintptr_t caller)
{
	uint32_t left = __atomic_load_n(&site->left, __ATOMIC_RELAXED), untold;

	part->caller = caller;
	part->is_told = 0;
	if (!ON)
		return;
	if (left) {
		__atomic_store_n(&site->left, left - 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&site->untold, 1, __ATOMIC_RELAXED);
		return;
	}
	part->is_told = 1;
	untold = __atomic_exchange_n(&site->untold, 0, __ATOMIC_RELAXED);
	part->from_ns = now_ns();
	wakeful_profile_note_at(part->from_ns, FORK | REGION, untold, (uintptr_t)number_of(part, caller), caller);
}

static void join(struct part *part, struct site *site)
{
	uint64_t to_ns, length_ns;

	if (!part->is_told)
		return;
	to_ns = now_ns();
	wakeful_profile_note_at(to_ns, JOIN | REGION, 0, (uintptr_t)number_of(part, part->caller), part->caller);
	length_ns = to_ns - part->from_ns;
	if (length_ns < SOON_NS) {
		uint32_t chance = site->chance * 1664525u + 1013904223u, each = SOON_NS / (length_ns + 1);

		site->chance = chance;
		if (each > MOST_UNTOLD / 2)
			each = MOST_UNTOLD / 2;
		// Between nothing and twice that: regions by turns are all told as often.
		__atomic_store_n(&site->left, (chance >> 16) % (2 * each + 1), __ATOMIC_RELAXED);
	}
}

// A thread's part of a region that is told.
static void part_of_gcc(void *data)
{
	struct part *part = data, *before = current;
	void (*function)(void *) = (void (*)(void *))part->function;

	current = part;
	tell(BEGIN, part);
	function(part->data);
	tell(END, part);
	current = before;
}

// Around a call that begins a region. `run` is the call, and `alone` what there is without a runtime.
#define REGION_BY(at, function_, data_, type, run) \
	do { \
		struct site spare, *site; \
		struct part part, *before = current; \
		uintptr_t caller = CALLER; \
		type call; \
		site = site_of(caller, &spare); \
		part.runtime = runtime_of(&caller, site); \
		call = (type)real(part.runtime, at); \
		if (!call) { \
			(function_)(data_); \
			break; \
		} \
		part.function = (void (*)())(function_); \
		part.data = (data_); \
		begin(&part, site, caller); \
		current = 0; \
		run; \
		current = before; \
		join(&part, site); \
	} while (0)

// What the runtime is to call.
#define FUNCTION (part.is_told ? part_of_gcc : function)
#define DATA (part.is_told ? &part : data)

typedef void region(void *);

HIDDEN void wakeful_GOMP_parallel(region *function, void *data, unsigned threads, unsigned flags)
{
	typedef void (*type)(region *, void *, unsigned, unsigned);

	REGION_BY(AT_GOMP_parallel, function, data, type, call(FUNCTION, DATA, threads, flags));
}

HIDDEN unsigned wakeful_GOMP_parallel_reductions(region *function, void *data, unsigned threads,
						 unsigned flags)
{
	typedef unsigned (*type)(region *, void *, unsigned, unsigned);
	unsigned result = 1;

	REGION_BY(AT_GOMP_parallel_reductions, function, data, type,
		  (part.first = *(void **)data, result = call(FUNCTION, DATA, threads, flags)));
	return result;
}

HIDDEN void wakeful_GOMP_parallel_sections(region *function, void *data, unsigned threads, unsigned count,
					   unsigned flags)
{
	typedef void (*type)(region *, void *, unsigned, unsigned, unsigned);

	REGION_BY(AT_GOMP_parallel_sections, function, data, type, call(FUNCTION, DATA, threads, count, flags));
}

#define LOOP(name) \
	HIDDEN void wakeful_##name(region *function, void *data, unsigned threads, long from, long to, long by, \
				   long chunk, unsigned flags) \
	{ \
		typedef void (*type)(region *, void *, unsigned, long, long, long, long, unsigned); \
\
		REGION_BY(AT_##name, function, data, type, \
			  call(FUNCTION, DATA, threads, from, to, by, chunk, flags)); \
	}
LOOP(GOMP_parallel_loop_static)
LOOP(GOMP_parallel_loop_dynamic)
LOOP(GOMP_parallel_loop_guided)
LOOP(GOMP_parallel_loop_nonmonotonic_dynamic)
LOOP(GOMP_parallel_loop_nonmonotonic_guided)

#define LOOP_AT_RUN_TIME(name) \
	HIDDEN void wakeful_##name(region *function, void *data, unsigned threads, long from, long to, long by, \
				   unsigned flags) \
	{ \
		typedef void (*type)(region *, void *, unsigned, long, long, long, unsigned); \
\
		REGION_BY(AT_##name, function, data, type, call(FUNCTION, DATA, threads, from, to, by, flags)); \
	}
LOOP_AT_RUN_TIME(GOMP_parallel_loop_runtime)
LOOP_AT_RUN_TIME(GOMP_parallel_loop_nonmonotonic_runtime)
LOOP_AT_RUN_TIME(GOMP_parallel_loop_maybe_nonmonotonic_runtime)

// clang passes a pointer for each variable that a region shares. As in crates/kmp/src/fork.c: parameters that
// a function does not have are of no consequence.
#define V4(i) v[i], v[i + 1], v[i + 2], v[i + 3]
#define V16(i) V4(i), V4(i + 4), V4(i + 8), V4(i + 12)
#define V64(i) V16(i), V16(i + 16), V16(i + 32), V16(i + 48)
#define V256(i) V64(i), V64(i + 64), V64(i + 128), V64(i + 192)
#define P4 void *, void *, void *, void *
#define P16 P4, P4, P4, P4
#define P64 P16, P16, P16, P16
#define P256 P64, P64, P64, P64
// BOUND: variables of a region. A program with more of them ends; the greatest known has some dozens.
enum { MOST_VARIABLES = 256 };

static void invoke(const struct part *part, int *thread, int *bound)
{
	void (*f)() = part->function;
	void *const *v = part->data;

	if (part->count <= 4)
		((void (*)(int *, int *, P4))f)(thread, bound, V4(0));
	else if (part->count <= 16)
		((void (*)(int *, int *, P16))f)(thread, bound, V16(0));
	else if (part->count <= 64)
		((void (*)(int *, int *, P64))f)(thread, bound, V64(0));
	else
		((void (*)(int *, int *, P256))f)(thread, bound, V256(0));
}

static void part_of_clang(int *thread, int *bound, struct part *part)
{
	struct part *before = current;

	current = part;
	if (part->is_told)
		tell(BEGIN, part);
	invoke(part, thread, bound);
	if (part->is_told)
		tell(END, part);
	current = before;
}

HIDDEN void wakeful___kmpc_fork_call(void *where, int count, void *function, ...)
{
	typedef void (*fork_call)(void *, int, void *, ...);
	void *variables[MOST_VARIABLES];
	struct site spare, *site;
	struct part part, *before = current;
	uintptr_t caller = CALLER;
	fork_call call;
	va_list list;
	int number = 0;

	if (count > MOST_VARIABLES)
		abort();
	va_start(list, function);
	for (int i = 0; i < count; i++)
		variables[i] = va_arg(list, void *);
	va_end(list);
	for (int i = count; i < MOST_VARIABLES && i < (count < 4 ? 4 : count < 16 ? 16 : MOST_VARIABLES); i++)
		variables[i] = 0;
	site = site_of(caller, &spare);
	part.runtime = runtime_of(&caller, site);
	part.function = (void (*)())function;
	part.data = variables;
	part.count = count;
	call = (fork_call)real(part.runtime, AT___kmpc_fork_call);
	if (!call) {
		invoke(&part, &number, &number);
		return;
	}
	begin(&part, site, caller);
	current = 0;
	call(where, 1, (void *)part_of_clang, &part);
	current = before;
	join(&part, site);
}

// Around a call that waits for the team. `run` is the call.
#define BARRIER_BY(at, type, run) \
	do { \
		struct site spare; \
		uintptr_t caller = CALLER; \
		struct part *part = current, *before = meeting; \
		type call = (type)real(runtime_of(&caller, site_of(caller, &spare)), at); \
		if (!call) \
			break; \
		if (!part || !part->is_told || part == before) { \
			run; \
			break; \
		} \
		/* A runtime may make one of its barriers of another. */ \
		meeting = part; \
		/* A compiler may make two calls of one barrier, so the place is no part of its number. */ \
		note(ARRIVED | TEAM, 0, number_of(part, part->caller), caller); \
		run; \
		note(LEFT | TEAM, 0, number_of(part, part->caller), caller); \
		meeting = before; \
	} while (0)

#define MEETS(name) \
	HIDDEN void wakeful_##name(void) \
	{ \
		typedef void (*type)(void); \
\
		BARRIER_BY(AT_##name, type, call()); \
	}
MEETS(GOMP_barrier)
MEETS(GOMP_loop_end)
MEETS(GOMP_sections_end)

#define MEETS_OR_NOT(name) \
	HIDDEN _Bool wakeful_##name(void) \
	{ \
		typedef _Bool (*type)(void); \
		_Bool result = 0; \
\
		BARRIER_BY(AT_##name, type, result = call()); \
		return result; \
	}
MEETS_OR_NOT(GOMP_barrier_cancel)
MEETS_OR_NOT(GOMP_loop_end_cancel)
MEETS_OR_NOT(GOMP_sections_end_cancel)

HIDDEN void wakeful___kmpc_barrier(void *where, int thread)
{
	typedef void (*type)(void *, int);

	BARRIER_BY(AT___kmpc_barrier, type, call(where, thread));
}

HIDDEN int wakeful___kmpc_cancel_barrier(void *where, int thread)
{
	typedef int (*type)(void *, int);
	int result = 0;

	BARRIER_BY(AT___kmpc_cancel_barrier, type, result = call(where, thread));
	return result;
}

// Threads in critical sections, or before them, by the section's mark. Another section with the same mark
// costs events, and nothing else.
static uint32_t inside[1 << PLACES_LOG2];

// Around the beginning and the end of a critical section.
#define ENTER_BY(at, object, type, run) \
	do { \
		struct site spare; \
		uintptr_t caller = CALLER; \
		struct runtime *runtime = runtime_of(&caller, site_of(caller, &spare)); \
		type call = (type)real(runtime, at); \
		const volatile void *lock = (object); \
		struct place *mark = place(lock); \
		if (!call) \
			break; \
		if (!ON || !__atomic_fetch_add(inside + place_number(lock), 1, __ATOMIC_RELAXED)) { \
			run; \
			if (is_waited_for(lock)) \
				wakeful_profile_took(TOOK | CRITICAL, (uintptr_t)lock, &mark->holder); \
			break; \
		} \
		__atomic_fetch_add(&mark->waiting, 1, __ATOMIC_SEQ_CST); \
		__atomic_store_n(&mark->holder, 0, __ATOMIC_RELAXED); \
		note(WAIT | CRITICAL, 0, lock, caller); \
		run; \
		__atomic_store_n(&mark->holder, note(GOT | CRITICAL, 0, lock, caller), __ATOMIC_RELAXED); \
		__atomic_fetch_sub(&mark->waiting, 1, __ATOMIC_RELAXED); \
	} while (0)

#define LEAVE_BY(at, object, type, run) \
	do { \
		struct site spare; \
		uintptr_t caller = CALLER; \
		struct runtime *runtime = runtime_of(&caller, site_of(caller, &spare)); \
		type call = (type)real(runtime, at); \
		const volatile void *lock = (object); \
		if (!call) \
			break; \
		if (ON && is_waited_for(lock)) \
			wakeful_profile_released(RELEASED | CRITICAL, (uintptr_t)lock); \
		run; \
		if (ON) \
			__atomic_fetch_sub(inside + place_number(lock), 1, __ATOMIC_RELAXED); \
	} while (0)

typedef void of_none(void);
typedef void of_one(void *);
typedef void of_clang(void *, int, void *);

// The section without a name: each runtime has one.
HIDDEN void wakeful_GOMP_critical_start(void)
{
	ENTER_BY(AT_GOMP_critical_start, (void *)call, of_none *, call());
}

HIDDEN void wakeful_GOMP_critical_end(void)
{
	LEAVE_BY(AT_GOMP_critical_end, real(runtime, AT_GOMP_critical_start), of_none *, call());
}

HIDDEN void wakeful_GOMP_critical_name_start(void *name)
{
	ENTER_BY(AT_GOMP_critical_name_start, name, of_one *, call(name));
}

HIDDEN void wakeful_GOMP_critical_name_end(void *name)
{
	LEAVE_BY(AT_GOMP_critical_name_end, name, of_one *, call(name));
}

HIDDEN void wakeful___kmpc_critical(void *where, int thread, void *name)
{
	ENTER_BY(AT___kmpc_critical, name, of_clang *, call(where, thread, name));
}

HIDDEN void wakeful___kmpc_critical_with_hint(void *where, int thread, void *name, uint32_t hint)
{
	typedef void (*type)(void *, int, void *, uint32_t);

	ENTER_BY(AT___kmpc_critical_with_hint, name, type, call(where, thread, name, hint));
}

HIDDEN void wakeful___kmpc_end_critical(void *where, int thread, void *name)
{
	LEAVE_BY(AT___kmpc_end_critical, name, of_clang *, call(where, thread, name));
}
