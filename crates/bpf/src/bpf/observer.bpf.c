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
 * The block is written as arena.h says, whose invariants I1 to I4 are meant here too.
 *
 * Rejected. A hash keyed by thread id: wrong in pid namespaces and a lookup for every task of the machine. Storage keyed by
 * a thread pidfd (6.9): three system calls where `enrol` is one, and the holder of the map could enrol foreign tasks.
 */
#include "arena.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

struct arena_map arena SEC(".maps");

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

static __always_inline bool runnable(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state == 0;
	return BPF_CORE_READ((struct task_struct___old *)task, state) == 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct space *s;
	struct place *p;

	if (!prev->bpf_storage && !next->bpf_storage)
		return 0;
	s = space();
	if (!s)
		return 0;
	p = place(prev);
	if (p)
		switched_out(s, p, preempt || runnable(prev));
	p = place(next);
	if (p)
		switched_in(s, p);
	return 0;
}

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
	moved(s, p, wanted);
	if (!wanted->index)
		return bpf_task_storage_delete(&blocks, task) ? 1 : 0;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
