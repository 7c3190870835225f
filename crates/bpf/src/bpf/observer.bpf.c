/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The observer: tells one application which of its threads run.
 *
 * State. `arena` is the application's arena (intf.h), a map of one element that the application maps into its memory; each
 * loaded observer has its own, so that no application sees another's. `blocks` is task-local storage: which thread block
 * belongs to a task, and under which lease.
 *
 * Enrolment. A thread enrols itself by running `enrol` (a program of type SYSCALL, one system call, no memory): it acts on
 * the current task, so that nothing needs translating between pid namespaces and nobody can enrol anybody else. It works for
 * whoever holds the descriptor, privileged or not (Linux 5.19).
 *
 * Observation. `sched_switch` runs at each context switch, with interrupts off, on the switching processor. A task that was never
 * enrolled costs one load (I0). The task that leaves is *preempted* if it could have gone on (the `preempt` argument, or
 * state 0) and else *blocked*; the one that comes is *running*.
 *
 * Invariants
 *   I0  A task without any local storage is not ours.
 *   I1  A block's kernel half is written by one processor at a time: that which switches its thread, in or out.
 *   I2  preempted[c] is the number of tasks with place.counted == c + 1. Both change together, under I1. The class is remembered
 *       because others may change the thread's priority while it is away, and with the task, because a dying thread is still
 *       preempted after the kernel has given up its thread id, when its block may be another's already.
 *   I3  Each switch out, and each enrolment and resignation, which happen while the thread runs, ends the count of the switch out
 *       before it. So no count is left over, although a kernel may keep a switch from us (ours does when one of its own agents
 *       leaves the processor): the thread that came then reads as preempted until its next switch, or until it notices and
 *       enrols again.
 *   I4  A block that was given to another thread has another lease: the last switches of its dead owner change nothing in it.
 *
 * Rejected. A hash keyed by thread id: wrong in pid namespaces and a lookup for every task of the machine. Storage keyed by
 * a thread pidfd (6.9): three system calls where `enrol` is one, and the holder of the map could enrol foreign tasks.
 */
#include "kernel.h"
#include "intf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

struct space {
	struct wakeful_arena head;
	struct wakeful_thread threads[WAKEFUL_MAX_THREADS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct space);
} arena SEC(".maps");

struct place {
	__u32 index;
	__u32 lease;
	__u32 counted; /* 1 + the class in preempted[] under which the task is counted, or 0 (I2) */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct place);
} blocks SEC(".maps");

static __always_inline struct space *space(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&arena, &zero);
}

/* The task's place, if it has one (I0). */
static __always_inline struct place *place(struct task_struct *task)
{
	return task->bpf_storage ? bpf_task_storage_get(&blocks, task, 0, 0) : 0;
}

/* The block at this place, if it still is the task's (I4). */
static __always_inline struct wakeful_thread *block(struct space *s, struct place *p)
{
	struct wakeful_thread *t;

	if (p->index >= WAKEFUL_MAX_THREADS)
		return 0;
	t = &s->threads[p->index];
	return t->lease == p->lease ? t : 0;
}

static __always_inline bool runnable(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state == 0;
	return BPF_CORE_READ((struct task_struct___old *)task, state) == 0;
}

/* The task runs, or ran just now: it is in no count. */
static __always_inline void uncount(struct space *s, struct place *p)
{
	__u32 as = p->counted;

	if (!as)
		return;
	p->counted = 0;
	as--;
	if (as < WAKEFUL_PRIORITIES)
		__sync_fetch_and_add(&s->head.preempted[as], -1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct wakeful_thread *t;
	struct space *s;
	struct place *p;
	__u32 as;

	if (!prev->bpf_storage && !next->bpf_storage)
		return 0;
	s = space();
	if (!s)
		return 0;
	p = place(prev);
	if (p) {
		uncount(s, p);
		t = block(s, p);
		if (t) {
			if (preempt || runnable(prev)) {
				as = t->priority;
				if (as >= WAKEFUL_PRIORITIES)
					as = WAKEFUL_PRIORITIES - 1;
				t->run_state = WAKEFUL_PREEMPTED;
				t->preemptions++;
				p->counted = as + 1;
				__sync_fetch_and_add(&s->head.preempted[as], 1);
			} else {
				t->run_state = WAKEFUL_BLOCKED;
				t->blocks++;
			}
		}
	}
	p = place(next);
	if (p) {
		uncount(s, p);
		t = block(s, p);
		if (t) {
			t->run_state = WAKEFUL_RUNNING;
			t->cpu = bpf_get_smp_processor_id();
		}
	}
	return 0;
}

struct wanted {
	__u32 index;
	__u32 lease;
};

/* The calling thread takes the block `index` under `lease`, or, with index 0, gives its block up. */
SEC("syscall")
int enrol(struct wanted *wanted)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct space *s = space();
	struct place *p;

	p = bpf_task_storage_get(&blocks, task, 0, wanted->index ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!p || !s)
		return 1;
	/* No switch may see the new index with the old lease, nor count anew: 0 is nobody's lease. */
	p->lease = 0;
	barrier();
	uncount(s, p);
	if (!wanted->index)
		return bpf_task_storage_delete(&blocks, task) ? 1 : 0;
	p->index = wanted->index;
	barrier();
	p->lease = wanted->lease;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
