/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's half of an arena: which block is a task's, and what is written there when the task gets or leaves its processor.
 *
 * Invariants
 *   I1  A block's kernel half is written by one processor at a time: that which switches its thread, in or out.
 *   I2  preempted[c] is the number of tasks with place.counted == c + 1. Both change together, under I1. The class is remembered
 *       because others may change the thread's priority while it is away, and with the task, because a dying thread is still
 *       preempted after the kernel has given up its thread id, when its block may be another's already.
 *   I3  Each switch out, and each enrolment and resignation, which happen while the thread runs, ends the count of the switch out
 *       before it. So no count is left over, although a kernel may keep a switch from us (ours does when one of its own agents
 *       leaves the processor): the thread that came then reads as preempted until its next switch, or until it notices and
 *       enrols again.
 *   I4  A block that was given to another thread has another lease: the last switches of its dead owner change nothing in it.
 *   I5  The run state is the lowest byte of the block's word, which has the wish, too: a store of that byte
 *       loses no wish.
 */
#ifndef WAKEFUL_ARENA_H
#define WAKEFUL_ARENA_H

#include "kernel.h"
#include "intf.h"
#include <bpf/bpf_helpers.h>

#ifndef bpf_ksym_exists
#define bpf_ksym_exists(symbol) (!!(symbol))
#endif

/* Linux 6.2; before, pointers need no such section. */
void bpf_rcu_read_lock(void) __ksym __weak;
void bpf_rcu_read_unlock(void) __ksym __weak;

struct space {
	struct wakeful_arena head;
	struct wakeful_thread threads[WAKEFUL_MAX_THREADS];
};

/* A map of one element that the application maps into its memory. */
struct arena_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct space);
};

/* Makes the compiler describe this type whole, which it does not do for the values of inner maps. */
__u32 space_type;

/* Of each application, by its slot; there are SLOTS. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__array(values, struct arena_map);
} arenas SEC(".maps");

static __always_inline struct space *space(__u32 slot)
{
	__u32 zero = 0;
	void *map = bpf_map_lookup_elem(&arenas, &slot);

	return map ? bpf_map_lookup_elem(map, &zero) : 0;
}

struct place {
	__u32 index; /* 0: none */
	__u32 lease;
	__u32 counted; /* 1 + the class in preempted[] under which the task is counted, or 0 (I2) */
};

/* What a thread asks for, as a program's context. */
struct wanted {
	__u32 index;
	__u32 lease;
};

/*
 * An index below `size`, a power of two, on paths too that a processor takes although the comparison says otherwise (Spectre, variant 1): the verifier
 * adds no mask for programs of the privileged. Two steps, or the compiler would leave the second out.
 */
#define MASKED(index, size)                                                                                            \
	({                                                                                                             \
		_Static_assert(((size) & ((size) - 1)) == 0, "a power of two");                                        \
		__u32 masked_ = (index);                                                                               \
		barrier_var(masked_);                                                                                  \
		masked_ & ((size) - 1);                                                                                \
	})

/* The block at this place, if it still is the task's (I4). */
static __always_inline struct wakeful_thread *block(struct space *s, struct place *p)
{
	struct wakeful_thread *b;
	__u32 index = p->index;

	if (!s || !index)
		return 0;
	/* Two comparisons: Linux 6.12's verifier learns no bound from the one that a compiler makes of them. */
	barrier_var(index);
	if (index >= WAKEFUL_MAX_THREADS)
		return 0;
	b = &s->threads[MASKED(index, WAKEFUL_MAX_THREADS)];
	return b->lease == p->lease ? b : 0;
}

/* Its priority: what the application wrote, bounded. */
static __always_inline __u32 priority(struct wakeful_thread *b)
{
	__u32 p = b ? b->priority : WAKEFUL_RUNNING_PRIORITY;

	return MASKED(p < WAKEFUL_PRIORITIES ? p : WAKEFUL_PRIORITIES - 1, WAKEFUL_PRIORITIES);
}

/* The task runs, or ran just now: it is in no count (I3). */
static __always_inline void uncount(struct space *s, struct place *p)
{
	__u32 as = p->counted;

	p->counted = 0;
	if (s && as && as <= WAKEFUL_PRIORITIES)
		__sync_fetch_and_add(&s->head.preempted[as - 1], -1);
}

/* KE-1, whatever the wish is (I5). */
static __always_inline void set_run_state(struct wakeful_thread *b, __u8 state)
{
	*(volatile __u8 *)&b->state = state;
}

/* The task gets this processor. */
static __always_inline void switched_in(struct space *s, struct place *p)
{
	struct wakeful_thread *b = block(s, p);

	uncount(s, p);
	if (b) {
		set_run_state(b, WAKEFUL_RUNNING);
		b->cpu = bpf_get_smp_processor_id();
	}
}

/* The task leaves its processor, though it could have gone on, or because it waits. */
static __always_inline void switched_out(struct space *s, struct place *p, bool preempted)
{
	struct wakeful_thread *b = block(s, p);
	__u32 as;

	uncount(s, p);
	if (!b)
		return;
	if (preempted) {
		as = priority(b);
		set_run_state(b, WAKEFUL_PREEMPTED);
		b->preemptions++;
		p->counted = as + 1;
		__sync_fetch_and_add(&s->head.preempted[as], 1);
	} else {
		set_run_state(b, WAKEFUL_BLOCKED);
		b->blocks++;
	}
}

/* The calling task takes another block, or, with index 0, none. */
static __always_inline void moved(struct space *s, struct place *p, struct wanted *wanted)
{
	/* No switch may see the new index with the old lease, nor count anew: 0 is nobody's lease. */
	p->lease = 0;
	barrier();
	uncount(s, p);
	p->index = wanted->index;
	barrier();
	p->lease = wanted->lease;
}

#endif
