/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler: divides processors among the applications that asked for it, and within one by its threads' user-level priorities.
 *
 * ICPP 2001 put this into Linux 2.2.15, and the TR of 1994 describes KE-1 and KE-2; this is both, for sched_ext (Linux 6.12 and newer). Tasks of the
 * policy SCHED_EXT are ours; all others stay with the kernel's own classes (SCX_OPS_SWITCH_PARTIAL), which come before us.
 *
 * State. An application is a *slot*: a queue, a virtual time and an arena (intf.h). The loader admits a process to a slot by writing the slot into the
 * process's task storage, which nobody else can. The threads that it creates inherit it. Its first one goes
 * over when it comes to us or, if it is ours, when it enrols (`moves`): at other moments it may be counted or
 * charged in the slot that it leaves. Slot 0 has no arena and belongs to all that came without being
 * admitted. A thread says by `enrol` which block of its own application's arena it is, as with the observer, so that what one application
 * writes is never looked at for another.
 *
 * First level. The application with the least virtual time (processor time by weight) is next. All time is charged, extensions too.
 *
 * Second level (`pick`). Of the application's queued threads that may run here, the one of highest priority *now*: a thread's priority may be raised by others
 * while it waits, so an order fixed when it was queued would not do. Ties by waiting time: the queue is in the order of arrival. A thread that has waited
 * for OVERDUE_NS is chosen whatever its priority, one each OVERDUE_EVERY_NS and application; so who is the n-th of low priority waits for at most
 * OVERDUE_NS + n * OVERDUE_EVERY_NS of its application's turns. Of more than LOOK queued threads, the first LOOK are looked at.
 *
 * KE-1. At the end of its quantum a thread that wishes not to be preempted stays for extension_ns (the kernel looks at ticks, so for up to a
 * tick more), once: the warning (KE-2) is set, and while it is set a second preemption is not refused. Yielding, blocking or being preempted ends it, and what
 * was used of it is deducted from the thread's next quanta. Wish and run state
 * are one word. `preempts` changes it by compare-and-swap, before anybody else is looked for. So a thread is
 * granted a lock before, and stays, or is seen as preempted. If prev goes on after all, it runs again.
 *
 * Hand-off. sched_yield, and no new call: it ends in `dispatch` on this processor, with the priorities as they are then. What is left of the yielder's
 * quantum goes to the thread of its application that stands higher, as in the paper; if none does, the processor goes to whose turn it is.
 *
 * KE-3 (`reckon`). Each second each application's arena gets the number of processors that it can have: its share by weight among those that
 * ran since, or, if that is more, what the others left. Which ones does not change: all, as the loader writes.
 *
 * Hints. Arena words come from the application: an index is bounded, a priority clamped, a block counts only under the lease that its thread enrolled
 * with. Nonsense in it changes which of *its* threads is next, and no more.
 *
 * Death. The link dies with the loader, `exit` clears `alive`, and from then on `enrol` fails, by which applications notice. The kernel takes all tasks back
 * to its own class. A thread that is kept waiting for timeout_ms ends the scheduler, too (the kernel's watchdog).
 *
 * Rejected. A vtime-ordered queue by priority: the order is that of insertion, see pick. A queue for each class: the same. A timer for the
 * end of an extension: starting one may wake a softirq thread, with the run queue's lock held. Preempting a running thread when a higher one wakes: the paper does not
 * either, and a hand-off tells us when it matters.
 */
#define SLOTS 64
#include "arena.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "sched_ext.h"

#define LOOK 256
/* BOUND: ns. Whoever waited so long is next. Long against a quantum, short against a person's patience. */
#define OVERDUE_NS 200000000ULL
#define OVERDUE_EVERY_NS 25000000ULL
/* COST: ns. The shortest quantum, which a debt leaves, or a hand-off passes on: a switch costs microseconds. No cell known. */
#define LEAST_NS 500000ULL
/* BOUND: ns between two reckonings, which take some microseconds: as often as a program without us looks, and many quanta. */
#define RECKON_NS 1000000000ULL
/* The weight of an application that has no other. */
#define WEIGHT 100

/* LOADER, before it loads us. */
const volatile struct {
	__u64 quantum_ns;
	__u64 extension_ns;
	__u64 processors;
	__u64 neglected; /* a slot that never has its turn, for tests of the watchdog; SLOTS: none */
} config SEC(".rodata.config") = { 5000000, 1000000, 1, SLOTS };

struct {
	__u32 alive;  /* 1 from init to exit */
	__u32 kind;   /* how the kernel ended us: enum scx_exit_kind */
	char why[128]; /* and in words */
} state SEC(".data.state");

struct application {
	__u64 vtime;    /* ns of processor time, by weight */
	__u64 cpu_ns;   /* processor time */
	__u64 overdue;  /* when a thread was last chosen for its waiting, ns */
	__u64 extended; /* extensions granted */
	__u64 refused;  /* of a second extension */
	__u64 handed;   /* hand-offs to a thread that stood higher */
	__u64 reckoned; /* cpu_ns at the last reckoning */
	__u64 ran;      /* cpu_ns between the last two */
	__u32 runnable; /* threads that run or could */
	__u32 weight;   /* LOADER; 0: WEIGHT */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct application);
} applications SEC(".maps");

/* LOADER: the slot of a process, by its first thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} admitted SEC(".maps");

struct thread {
	__u32 slot;    /* its application */
	struct place place;
	__u32 yielded; /* it gave up `left` ns of its quantum, which it had at `since` */
	__u32 warned;  /* it runs on an extension, since `extended` */
	__u32 awaited; /* an idle processor is on its way to it */
	__u32 reserved;
	__u64 left;
	__u64 debt;     /* ns, to be deducted from its next quanta */
	__u64 queued;   /* when it was queued, ns */
	/* In its processor time, ns, as the kernel counts it: */
	__u64 extended;
	__u64 since;    /* charged up to here */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* The virtual time of whose turn it was last: who comes back from idleness starts here. */
static __u64 now_vtime;
/* The last reckoning: when, ns; of those that ran before it, the weights and the processor time; threads that could run. Not in registers, whose bounds the verifier would follow. */
static volatile struct {
	__u64 at;
	__u64 weights;
	__u64 ran;
	__u64 runnable;
} reckoning;

static __always_inline struct thread *thread(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, 0, 0);
}

static __always_inline struct application *application(__u32 slot)
{
	return bpf_map_lookup_elem(&applications, &slot);
}

/* The slot of the process of this first thread. */
static __always_inline __u32 slot_of(struct task_struct *leader)
{
	__u32 *slot = bpf_task_storage_get(&admitted, leader, 0, 0);

	return slot && *slot < SLOTS ? *slot : 0;
}

static __always_inline __u32 weight(struct application *a)
{
	return a->weight ? a->weight : WEIGHT;
}

/* The thread's block, while it still is the thread's. */
static __always_inline struct wakeful_thread *block_of(struct thread *t)
{
	return block(space(t->slot), &t->place);
}

/* The next quantum, less what the thread owes. */
static __always_inline __u64 quantum(struct thread *t)
{
	__u64 off = t->debt;

	if (off > config.quantum_ns - LEAST_NS)
		off = config.quantum_ns - LEAST_NS;
	t->debt -= off;
	return config.quantum_ns - off;
}

/*
 * The thread has run until now. By the kernel's own count of its processor time, which it brings up to date before `dispatch` and `stopping`: a clock
 * of ours would leave out what a switch takes, and who switches more often would have more than its share.
 */
static __always_inline void charge(struct task_struct *p, struct thread *t)
{
	struct application *a = application(t->slot);
	__u64 now = p->se.sum_exec_runtime, ran = now - t->since;

	if (!a)
		return;
	t->since = now;
	__sync_fetch_and_add(&a->cpu_ns, ran);
	__sync_fetch_and_add(&a->vtime, ran * WEIGHT / weight(a));
}

/*
 * KE-1: its processor is taken from the running thread, unless it wishes otherwise, or somebody changes its
 * wish at this moment. Its application sees that from here on, in the word in which it would grant it a lock.
 */
static __always_inline bool preempts(struct wakeful_thread *b)
{
	__u32 word = *(volatile __u32 *)&b->state;

	if (word >> WAKEFUL_WISH_SHIFT & 0xff)
		return false;
	return __sync_bool_compare_and_swap(&b->state, word, (word & ~WAKEFUL_RUN_STATE_MASK) | WAKEFUL_PREEMPTED);
}

/* The extension, if the thread, which has been charged, runs on one, is over. */
static __always_inline void settle(struct thread *t, struct wakeful_thread *b)
{
	if (t->warned) {
		t->warned = 0;
		t->debt += t->since - t->extended;
		if (b)
			b->warning = 0;
	}
}

s32 BPF_STRUCT_OPS(wakeful_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct thread *t = thread(p);
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	/* To the queue all the same: of two that wake, the idle processor takes the higher. It comes by itself. */
	if (t)
		t->awaited = idle;
	return cpu;
}

void BPF_STRUCT_OPS(wakeful_enqueue, struct task_struct *p, u64 flags)
{
	struct thread *t = thread(p);
	s32 cpu;

	if (!t || t->slot >= SLOTS) {
		insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, flags);
		return;
	}
	t->queued = bpf_ktime_get_ns();
	insert(p, t->slot, quantum(t), flags);
	if (t->awaited) {
		t->awaited = 0;
		return;
	}
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* May the queued thread run on this processor? */
static __always_inline bool fits(struct task_struct *p, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && (!p->migration_disabled || scx_bpf_task_cpu(p) == cpu);
}

/* Who is next: its rank above its thread id. The rank is 1 + its priority, or OVERDUE if it has waited for too long; 0: there is nobody. */
#define CHOICE(rank, pid) ((__u64)(rank) << 32 | (__u32)(pid))
#define RANK(choice) ((__u32)((choice) >> 32))
#define PID(choice) ((__s32)(choice))
#define OVERDUE (WAKEFUL_PRIORITIES + 1)

/* The second level: who of this slot's queue is next on this processor. */
static __noinline __u64 pick(__u32 slot, s32 cpu, __u64 now)
{
	struct application *a = application(slot);
	struct bpf_iter_scx_dsq queue;
	struct task_struct *p;
	__u64 best = 0;
	__u32 i, rank;

	if (!a)
		return 0;
	bpf_iter_scx_dsq_new(&queue, slot, 0);
	bpf_for(i, 0, LOOK) {
		struct thread *t;

		p = bpf_iter_scx_dsq_next(&queue);
		if (!p)
			break;
		t = thread(p);
		if (!t || !fits(p, cpu))
			continue;
		if (now - t->queued > OVERDUE_NS && now - a->overdue > OVERDUE_EVERY_NS) {
			best = CHOICE(OVERDUE, p->pid);
			break;
		}
		rank = 1 + priority(block_of(t));
		if (rank > RANK(best))
			best = CHOICE(rank, p->pid);
	}
	bpf_iter_scx_dsq_destroy(&queue);
	return best;
}

/* Moves the chosen one to this processor, for `ns` or its own quantum. False: another processor was faster. */
static __noinline bool take(__u32 slot, s32 cpu, s32 pid, __u64 ns)
{
	struct bpf_iter_scx_dsq queue;
	struct task_struct *p;
	bool taken = false;
	__u32 i;

	bpf_iter_scx_dsq_new(&queue, slot, 0);
	bpf_for(i, 0, LOOK) {
		p = bpf_iter_scx_dsq_next(&queue);
		if (!p)
			break;
		if (p->pid != pid)
			continue;
		if (ns)
			move_set_slice(&queue, ns);
		taken = move(&queue, p, SCX_DSQ_LOCAL_ON | cpu);
		break;
	}
	bpf_iter_scx_dsq_destroy(&queue);
	return taken;
}

/* The first level: the slot whose turn it is, of those with somebody queued, and `mine`, whose thread could go on. SLOTS: none. */
static __noinline __u32 turn(__u32 mine)
{
	__u64 least = 0;
	__u32 found = SLOTS, slot;

	bpf_for(slot, 0, SLOTS) {
		struct application *a = application(slot);

		if (!a || slot == config.neglected || (slot != mine && !scx_bpf_dsq_nr_queued(slot)))
			continue;
		if (found == SLOTS || (__s64)(a->vtime - least) < 0) {
			least = a->vtime;
			found = slot;
		}
	}
	return found;
}

/* The last resort: whoever may run here. */
static __noinline bool anybody(void)
{
	__u32 slot;

	bpf_for(slot, 0, SLOTS) {
		if (slot != config.neglected && scx_bpf_dsq_nr_queued(slot) && move_to_local(slot))
			return true;
	}
	return false;
}

/*
 * KE-3: how many processors each application can have. In thousandths of a processor; the number changes when it is off by more than 600, so that
 * one between two does not go to and fro. With more threads than processors, nobody idles: what is missing in the sum of what all had went elsewhere, and
 * is nobody's to have. What tasks of other classes take, which come before ours, is not seen else.
 */
static __noinline void reckon(__u64 now)
{
	__u64 since = reckoning.at, period = now - since, total = config.processors * 1000;
	__u32 slot;

	if ((__s64)period < (__s64)RECKON_NS || !__sync_bool_compare_and_swap(&reckoning.at, since, now))
		return;
	reckoning.weights = reckoning.ran = reckoning.runnable = 0;
	bpf_for(slot, 0, SLOTS) {
		struct application *a = application(slot);

		if (!a)
			continue;
		a->ran = a->cpu_ns - a->reckoned;
		a->reckoned += a->ran;
		reckoning.ran += a->ran;
		reckoning.runnable += a->runnable;
		if (a->ran || a->runnable)
			reckoning.weights += weight(a);
	}
	bpf_for(slot, 1, SLOTS) {
		struct application *a = application(slot);
		struct space *s = space(slot);
		__u64 share, others, is;

		if (!a || !s)
			continue;
		share = total * weight(a) / (reckoning.weights + (a->ran || a->runnable ? 0 : weight(a)));
		others = reckoning.ran - a->ran;
		if (reckoning.runnable > config.processors)
			others = others * total / reckoning.ran;
		else
			others = others * 1000 / period;
		if (others + share < total)
			share = total - others;
		is = s->head.partition.processors;
		if (is && share + 600 >= is * 1000 && share <= is * 1000 + 600)
			continue;
		share = share < 1000 ? 1 : (share + 500) / 1000;
		if (share != is) {
			s->head.partition.processors = share;
			s->head.partition.generation++;
		}
	}
}

/* Hand-off: what is left of its quantum goes to the thread of its application that stands higher, if one does. */
static __always_inline bool hands_off(s32 cpu, struct thread *t, struct wakeful_thread *b, __u64 left,
				      __u64 now)
{
	struct application *a = application(t->slot);
	__u64 choice = pick(t->slot, cpu, now);

	if (b)
		set_run_state(b, WAKEFUL_PREEMPTED);
	if (!a || (__s64)left < (__s64)LEAST_NS || RANK(choice) <= 1 + priority(b))
		return false;
	if (!take(t->slot, cpu, PID(choice), left))
		return false;
	__sync_fetch_and_add(&a->handed, 1);
	return true;
}

/* Whose turn it is on this processor, which t (0: nobody) has had, or has yet. True: it has it still. */
static __always_inline bool choose(s32 cpu, struct task_struct *prev, struct thread *t,
				   struct wakeful_thread *b, __u64 now)
{
	struct application *a;
	__u32 slot = SLOTS;
	__u64 since, left, choice;

	if (t) {
		a = application(t->slot);
		if (!a)
			return true;
		since = t->since;
		charge(prev, t);
		if (t->yielded) {
			t->yielded = 0;
			settle(t, b);
			left = t->left - (t->since - since);
			if (hands_off(cpu, t, b, left, now))
				return false;
			/* It has had its turn: as good as queued, behind all others. */
			slot = turn(SLOTS);
			t = 0;
		} else {
			if (b && !preempts(b)) {
				if (!t->warned) {
					t->warned = 1;
					t->extended = t->since;
					b->warning = 1;
					__sync_fetch_and_add(&a->extended, 1);
					set_slice(prev, config.extension_ns);
					return true;
				}
				set_run_state(b, WAKEFUL_PREEMPTED);
				__sync_fetch_and_add(&a->refused, 1);
			}
			settle(t, b);
			slot = turn(t->slot);
		}
	} else {
		slot = turn(SLOTS);
	}
	if (slot >= SLOTS)
		return true;
	a = application(slot);
	if (!a)
		return true;
	if ((__s64)(a->vtime - now_vtime) > 0)
		now_vtime = a->vtime;
	choice = pick(slot, cpu, now);
	/* prev's own application goes on: with prev, if nobody stands as high. */
	if (t && slot == t->slot && RANK(choice) < 1 + priority(b)) {
		set_slice(prev, quantum(t));
		return true;
	}
	if (RANK(choice) && take(slot, cpu, PID(choice), 0)) {
		if (RANK(choice) == OVERDUE)
			a->overdue = now;
		return false;
	}
	if (anybody())
		return false;
	if (t)
		set_slice(prev, quantum(t));
	return true;
}

void BPF_STRUCT_OPS(wakeful_dispatch, s32 cpu, struct task_struct *prev)
{
	struct thread *t = prev && (prev->scx.flags & SCX_TASK_QUEUED) ? thread(prev) : 0;
	__u64 now = bpf_ktime_get_ns();
	struct wakeful_thread *b;

	reckon(now);
	if (t && t->slot >= SLOTS)
		t = 0;
	b = t ? block_of(t) : 0;
	if (choose(cpu, prev, t, b, now) && b)
		set_run_state(b, WAKEFUL_RUNNING);
}

void BPF_STRUCT_OPS(wakeful_runnable, struct task_struct *p, u64 flags)
{
	struct thread *t = thread(p);
	struct application *a = t ? application(t->slot) : 0;

	/* Who was idle has saved nothing up. */
	if (a && __sync_fetch_and_add(&a->runnable, 1) == 0 && (__s64)(a->vtime - now_vtime) < 0)
		a->vtime = now_vtime;
}

void BPF_STRUCT_OPS(wakeful_quiescent, struct task_struct *p, u64 flags)
{
	struct thread *t = thread(p);
	struct application *a = t ? application(t->slot) : 0;

	if (a && a->runnable)
		__sync_fetch_and_add(&a->runnable, -1);
}

void BPF_STRUCT_OPS(wakeful_running, struct task_struct *p)
{
	struct thread *t = thread(p);

	if (!t)
		return;
	t->since = p->se.sum_exec_runtime;
	t->yielded = 0;
	switched_in(space(t->slot), &t->place);
}

void BPF_STRUCT_OPS(wakeful_stopping, struct task_struct *p, bool runnable)
{
	struct thread *t = thread(p);

	if (!t)
		return;
	charge(p, t);
	settle(t, block_of(t));
	switched_out(space(t->slot), &t->place, runnable);
}

bool BPF_STRUCT_OPS(wakeful_yield, struct task_struct *from, struct task_struct *to)
{
	struct thread *t = thread(from);

	if (t) {
		/* The slice is as of the last tick, as the kernel's count is. */
		charge(from, t);
		t->yielded = 1;
		t->left = from->scx.slice;
	}
	set_slice(from, 0);
	return false;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(wakeful_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct task_struct *leader;

	if (!t)
		return -12; /* ENOMEM */
	bpf_rcu_read_lock();
	leader = p->group_leader;
	if (leader)
		t->slot = slot_of(leader);
	bpf_rcu_read_unlock();
	return 0;
}

/* The task comes to us, and has not been counted yet. */
void BPF_STRUCT_OPS(wakeful_enable, struct task_struct *p)
{
	struct thread *t = thread(p);

	if (t && p->pid == p->tgid)
		t->slot = slot_of(p);
}

/* The task leaves us: for another class, for good, or because we end. */
void BPF_STRUCT_OPS(wakeful_disable, struct task_struct *p)
{
	struct thread *t = thread(p);
	struct wakeful_thread *b;
	struct space *s;

	if (!t)
		return;
	s = space(t->slot);
	uncount(s, &t->place);
	b = block(s, &t->place);
	if (b) {
		set_run_state(b, WAKEFUL_UNKNOWN);
		b->warning = 0;
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(wakeful_init)
{
	__u32 slot;
	s32 error;

	bpf_for(slot, 0, SLOTS) {
		error = scx_bpf_create_dsq(slot, -1);
		if (error)
			return error;
	}
	space_type = bpf_core_type_id_local(struct space);
	state.alive = 1;
	return 0;
}

void BPF_STRUCT_OPS(wakeful_exit, struct scx_exit_info *info)
{
	__u32 slot;

	state.alive = 0;
	bpf_for(slot, 1, SLOTS) {
		struct space *s = space(slot);

		if (s) {
			s->head.scheduled = 0;
			s->head.partition.processors = 0;
		}
	}
	state.kind = info->kind;
	bpf_probe_read_kernel_str(state.why, sizeof(state.why), info->reason);
}

/* The calling thread, which runs, goes over to the slot to which its process has been admitted meanwhile. */
static __always_inline void moves(struct task_struct *task, struct thread *t)
{
	__u32 slot = task->pid == task->tgid ? slot_of(task) : t->slot;
	struct application *from, *to;

	if (slot == t->slot || !(task->scx.flags & SCX_TASK_QUEUED))
		return;
	from = application(t->slot);
	to = application(slot);
	t->slot = slot;
	if (to)
		__sync_fetch_and_add(&to->runnable, 1);
	if (from && from->runnable)
		__sync_fetch_and_add(&from->runnable, -1);
}

/* The calling thread takes the block `index` of its application under `lease`, or, with index 0, gives its block up. */
SEC("syscall")
int enrol(struct wanted *wanted)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = thread(task);
	struct space *s;

	if (!state.alive || !t)
		return 1;
	moves(task, t);
	if (!t->slot)
		return 1;
	s = space(t->slot);
	if (!s)
		return 1;
	if (!wanted->index && !t->place.index)
		return 1;
	moved(s, &t->place, wanted);
	s->head.scheduled = 1;
	barrier();
	/* `exit` may have been faster. */
	if (!state.alive)
		s->head.scheduled = 0;
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops wakeful = {
	.select_cpu = (void *)wakeful_select_cpu,
	.enqueue = (void *)wakeful_enqueue,
	.dispatch = (void *)wakeful_dispatch,
	.runnable = (void *)wakeful_runnable,
	.running = (void *)wakeful_running,
	.stopping = (void *)wakeful_stopping,
	.quiescent = (void *)wakeful_quiescent,
	.yield = (void *)wakeful_yield,
	.init_task = (void *)wakeful_init_task,
	.enable = (void *)wakeful_enable,
	.disable = (void *)wakeful_disable,
	.init = (void *)wakeful_init,
	.exit = (void *)wakeful_exit,
	.flags = SCX_OPS_SWITCH_PARTIAL,
	.timeout_ms = 5000,
	.name = "wakeful",
};

char LICENSE[] SEC("license") = "GPL";
