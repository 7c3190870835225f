// SPDX-License-Identifier: MIT OR Apache-2.0
// Around the OpenMP runtimes of gcc and clang: a region's beginning, each thread's part of it, and its end;
// the barriers inside, and critical sections.
//
// A Python wheel brings a libgomp of its own, under a name of its own, and only that wheel's modules know it.
// So the function behind a call is the one that the calling module would have without us: the next one that
// all modules see, else one that the module itself loads. It is looked up once for each place of a call.
//
// A region's function is called by ours, on each thread. What ours needs lies on the stack of the thread that
// began the region: that one does not go on before all have done their parts.
//
// Regions that are over soon are told now and then only, by chance, with a number of those between. Else the
// events would take longer than the region. Those between may take any time: nobody looks at the clock.
//
// A runtime runs tasks at its barriers. Where a region has made tasks, its barriers say so: the recorder then
// does not know how long a thread waited there that had a processor.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
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
	each(__kmpc_end_critical) \
	each(GOMP_task) \
	each(GOMP_taskloop) \
	each(GOMP_taskloop_ull) \
	each(__kmpc_omp_task_alloc)

#define AT(name) AT_##name,
enum { RUNTIME(AT) FUNCTIONS };
#define NAME(name) #name,
static const char *const names[FUNCTIONS] = { RUNTIME(NAME) };

// What a module finds. The module lies between these addresses.
struct runtime {
	void *functions[FUNCTIONS];
	uintptr_t from, to;
};

// A place of a call, by the address to which it returns.
struct site {
	uintptr_t caller;
	struct runtime *runtime;
	// Regions that are begun here before the next one that is told; those that were not told since the last
	// one; and what chance makes of it.
	uint32_t left, untold, chance;
};

// BOUND: places that are told apart. Each one beyond is looked up at each call.
enum { SITES = 1024, STEPS = 16 };
static struct site sites[SITES];

// A place that has no room there, in the frame of the call.
struct spare {
	struct site site;
	struct runtime runtime;
};

// A region.
struct part {
	// What a region with reductions finds there.
	void *first;
	void (*function)();
	void *data;
	int count;
	int is_told;
	// Tasks were made in it, by a thread of its team.
	uint32_t has_tasks;
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

// This library, as the linker lays it out.
extern HIDDEN const char __ehdr_start[], _end[];

// The call comes from this library: it was the last one of a region's function.
static int is_own(uintptr_t caller)
{
	return caller >= (uintptr_t)__ehdr_start && caller < (uintptr_t)_end;
}

// A module of the program, by an address in it.
struct module {
	uintptr_t address, from, to;
	const char *name;
};

static int is_module(struct dl_phdr_info *about, size_t size, void *data)
{
	struct module *module = data;
	uintptr_t from = UINTPTR_MAX, to = 0;

	(void)size;
	for (int i = 0; i < about->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = about->dlpi_phdr + i;
		uintptr_t start = about->dlpi_addr + part->p_vaddr;

		if (part->p_type != PT_LOAD)
			continue;
		from = start < from ? start : from;
		to = start + part->p_memsz > to ? start + part->p_memsz : to;
	}
	if (module->address < from || module->address >= to)
		return 0;
	module->from = from;
	module->to = to;
	module->name = about->dlpi_name;
	return 1;
}

static void find_missing(void *handle, struct runtime *runtime)
{
	for (int i = 0; i < FUNCTIONS; i++)
		if (!runtime->functions[i])
			runtime->functions[i] = dlsym(handle, names[i]);
}

// `runtime` is all zero.
COLD void look_up(uintptr_t caller, struct runtime *runtime, int is_kept)
{
	struct module module = { caller, 0, 0, 0 };
	void *handle;

	// A thread that begins a region in a module's constructor has the loader's lock until the region is over.
	// So those of its team do not ask the loader for what is known.
	if (current && (is_own(caller) || (caller >= current->runtime->from && caller < current->runtime->to))) {
		*runtime = *current->runtime;
		return;
	}
	find_missing(RTLD_NEXT, runtime);
	if (is_own(caller) || !dl_iterate_phdr(is_module, &module))
		return;
	runtime->from = module.from;
	runtime->to = module.to;
	if (!module.name || !module.name[0])
		return;
	handle = dlopen(module.name, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return;
	find_missing(handle, runtime);
	// What is kept is right as long as the module stays, as a runtime does that is found by it.
	if (!is_kept)
		dlclose(handle);
}

// Where the call comes from. What is no place of its own yet is looked up in `spare`.
static struct site *site_of(uintptr_t caller, struct spare *spare)
{
	uint32_t at = (uint32_t)((uint64_t)caller * 0x9e3779b97f4a7c15u >> 32);

	for (int step = 0; step < STEPS; step++) {
		struct site *site = sites + (at + step) % SITES;
		uintptr_t known = __atomic_load_n(&site->caller, __ATOMIC_RELAXED);

		if (known == 0 && __atomic_compare_exchange_n(&site->caller, &known, caller, 0, __ATOMIC_RELAXED,
							      __ATOMIC_RELAXED)) {
			// This is no path of a lock: it may allocate, as a runtime does that begins a region.
			struct runtime *runtime = calloc(1, sizeof *runtime);

			if (!runtime)
				break;
			look_up(caller, runtime, 1);
			// ORDER: Release, pairs with the Acquire below; publishes the functions.
			__atomic_store_n(&site->runtime, runtime, __ATOMIC_RELEASE);
			return site;
		}
		// ORDER: Acquire, pairs with the Release above.
		if (known == caller && __atomic_load_n(&site->runtime, __ATOMIC_ACQUIRE))
			return site;
		// Another thread is about to look it up, or had no memory for it.
		if (known == caller)
			break;
	}
	memset(spare, 0, sizeof *spare);
	spare->site.caller = caller;
	spare->site.runtime = &spare->runtime;
	look_up(caller, &spare->runtime, 0);
	return &spare->site;
}

// The runtime of a call from here, and the place that is told.
static struct runtime *runtime_of(uintptr_t *caller, struct site *site)
{
	if (current && is_own(site->caller)) {
		*caller = current->caller;
		return current->runtime;
	}
	return site->runtime;
}

static void *real(struct runtime *runtime, int at)
{
	return runtime->functions[at];
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

// BOUND: a region that is told costs some 3 us of each of its threads, most of them the reader's. After one
// that is over sooner than this, those that begin there are told once in this time, on average, and at least
// once in 100 times. After a longer one the next is told, too.
enum { SOON_NS = 100000, MOST_UNTOLD = 100 };

static void begin(struct part *part, struct site *site, uintptr_t caller)
{
	uint32_t left = __atomic_load_n(&site->left, __ATOMIC_RELAXED), untold;

	part->caller = caller;
	part->is_told = 0;
	part->has_tasks = 0;
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
	wakeful_profile_note_at(to_ns, JOIN | REGION, __atomic_load_n(&part->has_tasks, __ATOMIC_RELAXED),
				(uintptr_t)number_of(part, part->caller), part->caller);
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
		struct spare spare; \
		struct site *site; \
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
	struct spare spare;
	struct site *site;
	struct part part, *before = current;
	uintptr_t caller = CALLER;
	fork_call call;
	va_list list;
	int number = 0;

	if (count > MOST_VARIABLES) {
		fprintf(stderr,
			"wakeful: a parallel region with %d shared variables; the profile can pass %d on: put them into "
			"a struct\n",
			count, MOST_VARIABLES);
		abort();
	}
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
		struct spare spare; \
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
		note(LEFT | TEAM, __atomic_load_n(&part->has_tasks, __ATOMIC_RELAXED), \
		     number_of(part, part->caller), caller); \
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

// A thread waits if another one is before a critical section with the same mark, in it, or about to leave it.
// So some waits are told that were none, or at most a microsecond long; nobody can try to enter.
static inline uint32_t *inside(const volatile void *lock)
{
	return wakeful_profile_marks.inside + place_number(lock);
}

// Around the beginning and the end of a critical section.
#define ENTER_BY(at, object, type, run) \
	do { \
		struct spare spare; \
		uintptr_t caller = CALLER; \
		struct runtime *runtime = runtime_of(&caller, site_of(caller, &spare)); \
		type call = (type)real(runtime, at); \
		const volatile void *lock = (object); \
		struct place *mark = place(lock); \
		if (!call) \
			break; \
		if (!ON || !__atomic_fetch_add(inside(lock), 1, __ATOMIC_RELAXED)) { \
			run; \
			if (is_waited_for(lock)) \
				wakeful_profile_took(TOOK | CRITICAL, 0, (uintptr_t)lock, &mark->holder); \
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
		struct spare spare; \
		uintptr_t caller = CALLER; \
		struct runtime *runtime = runtime_of(&caller, site_of(caller, &spare)); \
		type call = (type)real(runtime, at); \
		const volatile void *lock = (object); \
		if (!call) \
			break; \
		if (ON && is_waited_for(lock)) \
			wakeful_profile_released(RELEASED | CRITICAL, 0, (uintptr_t)lock); \
		run; \
		/* Nobody is inside if the thread has forked there: see `begin` in around.c. */ \
		if (ON && __atomic_load_n(inside(lock), __ATOMIC_RELAXED)) \
			__atomic_fetch_sub(inside(lock), 1, __ATOMIC_RELAXED); \
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

// A module that calls a function has a runtime with it, so this does not happen.
static __attribute__((cold, noreturn)) void has_none(int at)
{
	fprintf(stderr, "wakeful: the profile finds no %s in the program's OpenMP runtime\n", names[at]);
	abort();
}

// Before a call that makes a task. Older compilers pass less than these functions take: what is passed on
// then is of no consequence.
#define MAKING(at, type) \
	struct spare spare; \
	uintptr_t caller = CALLER; \
	type *call = (type *)real(runtime_of(&caller, site_of(caller, &spare)), at); \
	if (!call) \
		has_none(at); \
	if (current && !__atomic_load_n(&current->has_tasks, __ATOMIC_RELAXED)) \
		__atomic_store_n(&current->has_tasks, 1, __ATOMIC_RELAXED)

typedef void copies(void *, void *);
typedef void task(region *, void *, copies *, long, long, _Bool, unsigned, void **, int, void *);
typedef void taskloop(region *, void *, copies *, long, long, unsigned, unsigned long, int, long, long, long);
typedef void *task_alloc(void *, int, int, size_t, size_t, void *);

HIDDEN void wakeful_GOMP_task(region *function, void *data, copies *copy, long size, long align,
			      _Bool deferred, unsigned flags, void **depend, int priority, void *detach)
{
	MAKING(AT_GOMP_task, task);
	call(function, data, copy, size, align, deferred, flags, depend, priority, detach);
}

HIDDEN void wakeful_GOMP_taskloop(region *function, void *data, copies *copy, long size, long align,
				  unsigned flags, unsigned long tasks, int priority, long from, long to, long by)
{
	MAKING(AT_GOMP_taskloop, taskloop);
	call(function, data, copy, size, align, flags, tasks, priority, from, to, by);
}

// The bounds are as large as the other function's.
HIDDEN void wakeful_GOMP_taskloop_ull(region *function, void *data, copies *copy, long size, long align,
				      unsigned flags, unsigned long tasks, int priority, long from, long to,
				      long by)
{
	MAKING(AT_GOMP_taskloop_ull, taskloop);
	call(function, data, copy, size, align, flags, tasks, priority, from, to, by);
}

// Each task of clang's, also those of its loops.
HIDDEN void *wakeful___kmpc_omp_task_alloc(void *where, int thread, int flags, size_t size, size_t shared,
					   void *function)
{
	MAKING(AT___kmpc_omp_task_alloc, task_alloc);
	return call(where, thread, flags, size, shared, function);
}
