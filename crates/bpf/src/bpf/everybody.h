/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everybody: the scheduler has all tasks of the machine (config.all), and not only those that asked. So a
 * program that asked has the share of the processors that it would have without us: each of its threads
 * counts as an ordinary task does, by its nice value.
 *
 * State. An ordinary task has a virtual time of its own (`account`) and waits in queue 0, ordered by that.
 * An application has one for all of its threads, which goes the slower the more of them run or could
 * (`load`). Whose is the least is next, application or task (`turn`).
 *
 * Who slept. `now_vtime` is the least of those that wait, and never goes back; where nobody waits, that of
 * whoever was seen last. Who wakes is at most SLICE_NS behind it, so it has saved up no more than one
 * slice, and at most OWED_NS ahead. And nobody who begins to wait is further ahead than LEAD_NS, by
 * weight: who is bound to a processor of its own runs ahead of those who share another, and would wait for
 * the difference when it comes to share, too.
 *
 * Who wakes takes an idle processor, or the one on which it is, if the task that runs there is ahead by
 * GRAIN_NS, or that of the task that is furthest ahead by so much. A kernel thread that is bound to a
 * processor goes before all. Nobody is stranded: who waits is queued with a processor on which it may run,
 * and that looks at all queues at the end of each slice.
 *
 * Rejected. A queue for each processor: the share would be as good as their balance. The kernel's deadline
 * server for sched_ext: what it gives, no task that wakes can interrupt, and how much it is to give would
 * have to be found out each time somebody comes or goes.
 */
#ifndef WAKEFUL_EVERYBODY_H
#define WAKEFUL_EVERYBODY_H

/* COST: ns. As the kernel's own scheduler: a tick or a few. */
#define SLICE_NS 3000000ULL
/* COST: ns. The slice of those of little weight, for whom all wait that are a hundred times heavier. */
#define SHORT_NS 1000000ULL
#define LIGHT 50
/* COST: ns of virtual time. Less than a slice, or who slept would not be sooner. */
#define GRAIN_NS 1000000ULL
/* COST: ns of virtual time. Some slices, each a tick too long; and what the lightest uses in a short one. */
#define LEAD_NS 16000000ULL
#define MOST_LEAD_NS 100000000ULL
/* COST: ns of virtual time. What who wakes owes at most, as with the kernel: two slices. */
#define OWED_NS 6000000ULL
/* BOUND: processors at which one looks who wakes and finds none idle. */
#define NEAR 16

struct account {
	__u64 vtime; /* ns of processor time, by weight */
	__u32 load;  /* what it adds to the load of `slot`; 0: it neither runs nor could */
	__u32 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct account);
} accounts SEC(".maps");

/* Who runs on a processor. */
struct seat {
	__u64 vtime; /* at `since` */
	__u64 since; /* ns */
	__u32 slot;
	__u32 weight; /* 0: nobody of ours */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAKEFUL_MAX_PROCESSORS);
	__type(key, __u32);
	__type(value, struct seat);
} seats SEC(".maps");

/* What waits in queue 0. */
struct waiting {
	__u64 head;  /* the least virtual time */
	__u64 vtime; /* that of the first who may run here */
	__s32 pid;   /* who that is; 0: there is none */
	__u32 some;  /* somebody waits */
	__u32 deep;  /* nobody among the first LOOK may run here */
};

static __always_inline struct account *account(struct task_struct *p)
{
	return bpf_task_storage_get(&accounts, p, 0, 0);
}

static __always_inline __u32 weight_of(struct task_struct *p)
{
	return p->scx.weight ? p->scx.weight : 1;
}

static __always_inline __u64 slice(struct task_struct *p)
{
	return weight_of(p) < LIGHT ? SHORT_NS : SLICE_NS;
}

/* This virtual time, neither too far behind nor, by weight, further ahead than `most`. */
static __always_inline __u64 within(__u64 vtime, __u32 weight, __u64 most)
{
	__u64 lead = weight < WEIGHT ? most * WEIGHT / weight : most, now = now_vtime;

	if (lead > MOST_LEAD_NS)
		lead = MOST_LEAD_NS;
	if ((__s64)(vtime - now) > (__s64)lead)
		return now + lead;
	if ((__s64)(vtime - now) < -(__s64)SLICE_NS)
		return now - SLICE_NS;
	return vtime;
}

static __always_inline void leaves(struct account *c)
{
	struct application *a = application(c->slot);

	if (a && c->load)
		__sync_fetch_and_add(&a->load, -(__u64)c->load);
	c->load = 0;
}

/* The task runs or could, as one of this slot. */
static __always_inline void counts(struct task_struct *p, struct account *c, __u32 slot)
{
	struct application *a = application(slot);

	if (!a || (c->load && c->slot == slot))
		return;
	leaves(c);
	c->slot = slot;
	c->load = weight_of(p);
	if (!slot)
		c->vtime = within(c->vtime, c->load, OWED_NS);
	if (__sync_fetch_and_add(&a->load, c->load) == 0 && slot)
		a->vtime = within(a->vtime, WEIGHT, OWED_NS);
}

/* The virtual time of a task that could go on, or of its application. */
static __always_inline __u64 time_of(struct task_struct *p, struct thread *t)
{
	struct application *a = t->slot ? application(t->slot) : 0;
	struct account *c = account(p);

	if (a)
		return a->vtime;
	return c ? c->vtime : now_vtime;
}

/* The running task has this virtual time now. */
static __always_inline void sits(struct task_struct *p, __u32 slot, struct application *a, struct account *c)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct seat *s = bpf_map_lookup_elem(&seats, &cpu);

	if (!s)
		return;
	s->slot = slot;
	s->vtime = slot ? a->vtime : c->vtime;
	s->since = bpf_ktime_get_ns();
	s->weight = slot ? weight(a) : weight_of(p);
}

static __always_inline void rises(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct seat *s = bpf_map_lookup_elem(&seats, &cpu);

	if (s)
		s->weight = 0;
}

/* It has run for so long. */
static __always_inline void pays(struct task_struct *p, __u32 slot, struct application *a, __u64 ran)
{
	struct account *c = account(p);

	if (!a || !c)
		return;
	if (slot) {
		__sync_fetch_and_add(&a->vtime, ran * WEIGHT / weight(a));
		if ((__s64)(a->vtime - now_vtime) > (__s64)LEAD_NS)
			a->vtime = now_vtime + LEAD_NS;
	} else {
		c->vtime += ran * WEIGHT / weight_of(p);
	}
	sits(p, slot, a, c);
}

/* Who wakes, of this virtual time, finds no idle processor. */
static __noinline void preempt(struct task_struct *p, __u64 vtime, __u32 slot)
{
	__u64 now = bpf_ktime_get_ns();
	__s64 most = GRAIN_NS;
	s32 home = scx_bpf_task_cpu(p), from = -1;
	__u32 i;

	bpf_for(i, 0, NEAR) {
		__u32 cpu = (home + i) % (__u32)config.processors;
		struct seat *s = bpf_map_lookup_elem(&seats, &cpu);
		__u64 ran;
		__s64 ahead;

		if (i >= config.processors)
			break;
		/* Of one application's threads none takes the processor from another. */
		if (!s || !s->weight || (slot && s->slot == slot) || !fits(p, cpu))
			continue;
		ran = now > s->since ? now - s->since : 0;
		ahead = s->vtime + ran * WEIGHT / s->weight - vtime;
		if (ahead > most) {
			most = ahead;
			from = cpu;
			/* At home: no other processor need be told, and its cache may be warm. */
			if (!i)
				break;
		}
	}
	if (from >= 0)
		scx_bpf_kick_cpu(from, SCX_KICK_PREEMPT);
}

/* An ordinary task waits. */
static __always_inline void waits(struct task_struct *p, u64 flags)
{
	struct account *c = account(p);
	s32 cpu;

	if (!c) {
		insert(p, SCX_DSQ_GLOBAL, SLICE_NS, flags);
		return;
	}
	counts(p, c, 0);
	c->vtime = within(c->vtime, weight_of(p), LEAD_NS);
	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1 && (flags & SCX_ENQ_WAKEUP)) {
		insert(p, SCX_DSQ_LOCAL, SLICE_NS, flags | SCX_ENQ_PREEMPT);
		return;
	}
	insert_vtime(p, 0, slice(p), c->vtime, flags);
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	else if (flags & SCX_ENQ_WAKEUP)
		preempt(p, c->vtime, 0);
}

/* Of the ordinary tasks that wait, the first that may run on this processor. */
static __noinline void look(s32 cpu, struct waiting *w)
{
	struct bpf_iter_scx_dsq queue;
	struct task_struct *p;
	__u32 i;

	bpf_iter_scx_dsq_new(&queue, 0, 0);
	w->deep = 1;
	bpf_for(i, 0, LOOK) {
		p = bpf_iter_scx_dsq_next(&queue);
		if (!p) {
			w->deep = 0;
			break;
		}
		if (!w->some) {
			w->some = 1;
			w->head = p->scx.dsq_vtime;
		}
		if (fits(p, cpu)) {
			w->vtime = p->scx.dsq_vtime;
			w->pid = p->pid;
			w->deep = 0;
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&queue);
}

/*
 * The first level: the slot whose turn it is, with 0 for an ordinary task. `mine`: the slot of the task that
 * could go on, which has this virtual time; SLOTS: nobody could.
 */
static __noinline __u32 turn_of_all(__u32 mine, __u64 vtime, struct waiting *w)
{
	__u64 least = 0, waits = w->head;
	__u32 found = SLOTS, slot, some = w->some;

	if (mine < SLOTS) {
		found = mine;
		least = vtime;
	}
	if (w->pid && (found == SLOTS || (__s64)(w->vtime - least) < 0)) {
		found = 0;
		least = w->vtime;
	}
	bpf_for(slot, 1, SLOTS) {
		struct application *a = application(slot);
		__u64 its;

		if (!a || slot == config.neglected || !a->load || !scx_bpf_dsq_nr_queued(slot))
			continue;
		its = a->vtime;
		if (!some || (__s64)(its - waits) < 0) {
			some = 1;
			waits = its;
		}
		if (found == SLOTS || (__s64)(its - least) < 0) {
			found = slot;
			least = its;
		}
	}
	/* Where nobody waits, nobody is owed anything. */
	if (!some && mine < SLOTS)
		waits = vtime;
	if ((some || mine < SLOTS) && (__s64)(waits - now_vtime) > 0)
		now_vtime = waits;
	return found == SLOTS && w->some ? 0 : found;
}

#endif
