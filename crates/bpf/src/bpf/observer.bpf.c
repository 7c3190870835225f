/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The observer: tells applications which of their threads run.
 *
 * State. An application is a *slot*: an arena (intf.h), a map of one element that it maps into its memory, so that no application sees another's.
 * `members` is task-local storage: which slot's a task is, which thread block belongs to it, and under which lease. One program serves all
 * applications, and what a switch costs does not depend on how many there are.
 *
 * Admission. As with the scheduler, the loader writes the slot into a process's storage, and its threads have what their process has. Who was not
 * admitted has slot 0, which has an arena where an observer serves one application and whoever has its descriptors.
 *
 * Enrolment. A thread enrols itself by running `enrol` (a program of type SYSCALL, one system call, no memory): it acts on
 * the current task, so that nothing needs translating between pid namespaces and nobody can enrol anybody else. It works for
 * whoever holds the descriptor, privileged or not (Linux 5.19).
 *
 * Observation. `sched_switch` runs at each context switch, with interrupts off, on the switching processor. A task without any local storage is
 * not ours and costs one load. The task that leaves is *preempted* if it could have gone on (the `preempt` argument, or
 * state 0) and else *blocked*; the one that comes is *running*. What is written then says arena.h.
 *
 * Rejected. A hash keyed by thread id: wrong in pid namespaces and a lookup for every task of the machine. Storage keyed by
 * a thread pidfd (6.9): three system calls where `enrol` is one, and the holder of the map could enrol foreign tasks. A program for each
 * application: each switch of each would run all of them.
 */
#define SLOTS 4096
#include "arena.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

struct member {
	__u32 slot; /* LOADER for a process's first thread; its others inherit it */
	struct place place;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct member);
} members SEC(".maps");

/* The task, if it has a block. */
static __always_inline struct member *member(struct task_struct *task)
{
	struct member *m = task->bpf_storage ? bpf_task_storage_get(&members, task, 0, 0) : 0;

	return m && m->place.index ? m : 0;
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
	struct member *m = member(prev);

	if (m)
		switched_out(space(m->slot), &m->place, preempt || runnable(prev));
	m = member(next);
	if (m)
		switched_in(space(m->slot), &m->place);
	return 0;
}

/* Another image, perhaps with other rights: whoever has the arena of the one before sees nothing of it. It asks for an arena, and enrols, by itself. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	struct wanted none = {};
	struct member *m = member(task);

	if (m)
		moved(space(m->slot), &m->place, &none);
	return 0;
}

/* The calling thread takes the block `index` under `lease`, or, with index 0, gives its block up. */
SEC("syscall")
int enrol(struct wanted *wanted)
{
	struct task_struct *task = bpf_get_current_task_btf(), *leader;
	struct member *m, *first;
	struct space *s;

	space_type = bpf_core_type_id_local(struct space);
	m = bpf_task_storage_get(&members, task, 0, wanted->index ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!m || (!wanted->index && !m->place.index))
		return 1;
	if (!m->place.index) {
		if (bpf_ksym_exists(bpf_rcu_read_lock))
			bpf_rcu_read_lock();
		leader = task->group_leader;
		first = leader ? bpf_task_storage_get(&members, leader, 0, 0) : 0;
		if (first)
			m->slot = first->slot;
		if (bpf_ksym_exists(bpf_rcu_read_unlock))
			bpf_rcu_read_unlock();
	}
	s = space(m->slot);
	if (!s)
		return 1;
	moved(s, &m->place, wanted);
	/* What has no storage costs the least; but a process's first thread keeps its slot for the others. */
	if (!wanted->index && (!m->slot || task->pid != task->tgid))
		bpf_task_storage_delete(&members, task);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
