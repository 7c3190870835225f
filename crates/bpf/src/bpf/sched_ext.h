/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The little of sched_ext that the scheduler uses. Its functions have changed names since Linux 6.12, so each is looked for by name
 * when the program is loaded, the newest first; what the running kernel lacks is dead code that its verifier never sees.
 */
#ifndef WAKEFUL_SCHED_EXT_H
#define WAKEFUL_SCHED_EXT_H

#define SCX_DSQ_GLOBAL 0x8000000000000001ULL
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_DSQ_LOCAL_ON 0xc000000000000000ULL
#define SCX_SLICE_DFL 20000000ULL
#define SCX_KICK_IDLE 1
#define SCX_TASK_QUEUED 1
#define SCX_OPS_SWITCH_PARTIAL 8ULL

struct scx_init_task_args {
	bool fork;
} __attribute__((preserve_access_index));

/* The loader finds the members by name. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*runnable)(struct task_struct *, u64);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*quiescent)(struct task_struct *, u64);
	bool (*yield)(struct task_struct *, struct task_struct *);
	s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
	void (*enable)(struct task_struct *);
	void (*disable)(struct task_struct *);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;

/* Linux 6.19, 6.13, 6.12. The loader drops what follows a triple underscore; what the kernel has of that itself needs another. */
bool scx_bpf_dsq_insert___v2___here(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert___here(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch___here(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;

/* Linux 7.1, 6.13, 6.12. */
bool scx_bpf_dsq_move_to_local___v2___here(u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local___here(u64 dsq_id) __ksym __weak;
bool scx_bpf_consume___here(u64 dsq_id) __ksym __weak;

/* Linux 6.13, 6.12. */
bool scx_bpf_dsq_move___here(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_from_dsq___here(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_move_set_slice___here(struct bpf_iter_scx_dsq *it__iter, u64 slice) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_slice___here(struct bpf_iter_scx_dsq *it__iter, u64 slice) __ksym __weak;

/* Linux 6.19; before, the word is written. */
bool scx_bpf_task_set_slice___here(struct task_struct *p, u64 slice) __ksym __weak;

static __always_inline void insert(struct task_struct *p, u64 dsq, u64 slice, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___here))
		scx_bpf_dsq_insert___v2___here(p, dsq, slice, flags);
	else if (bpf_ksym_exists(scx_bpf_dsq_insert___here))
		scx_bpf_dsq_insert___here(p, dsq, slice, flags);
	else
		scx_bpf_dispatch___here(p, dsq, slice, flags);
}

static __always_inline bool move_to_local(u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___here))
		return scx_bpf_dsq_move_to_local___v2___here(dsq, 0);
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___here))
		return scx_bpf_dsq_move_to_local___here(dsq);
	return scx_bpf_consume___here(dsq);
}

static __always_inline bool move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move___here))
		return scx_bpf_dsq_move___here(it, p, dsq, 0);
	return scx_bpf_dispatch_from_dsq___here(it, p, dsq, 0);
}

static __always_inline void move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_set_slice___here))
		scx_bpf_dsq_move_set_slice___here(it, slice);
	else
		scx_bpf_dispatch_from_dsq_set_slice___here(it, slice);
}

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice___here))
		scx_bpf_task_set_slice___here(p, slice);
	else
		p->scx.slice = slice;
}

#define BPF_STRUCT_OPS(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)
#define BPF_STRUCT_OPS_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(name, ##args)

#ifndef bpf_for
#define bpf_for(i, start, end) for (                                                             \
	struct bpf_iter_num ___it __attribute__((aligned(8), cleanup(bpf_iter_num_destroy))),    \
	*___p __attribute__((unused)) = (bpf_iter_num_new(&___it, (start), (end)),               \
	(void)bpf_iter_num_destroy, (void *)0);                                                  \
	({                                                                                       \
		int *___t = bpf_iter_num_next(&___it);                                           \
		(___t && ((i) = *___t, (i) >= (start) && (i) < (end)));                          \
	});                                                                                      \
)
#endif

#endif
