/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The arena: what the kernel's half, the daemon and one application share.
 *
 * One region per application, in this order:
 *
 *   wakeful_arena     header, partition block (KE-3), counts by priority class
 *   wakeful_thread[]  one thread block (KE-1, KE-2) per thread; block 0 is never used,
 *                     so that thread id 0 can mean "nobody we know"
 *
 * Each field names its one writer: KERNEL (the view: an eBPF program or the simulated
 * kernel), DAEMON, OWNER (the thread of the block) or THREADS (any thread of the
 * application, by compare-and-swap). Every field is a hint, to the application too: another
 * process may have the arena. What locks wait for is in the application's own memory.
 *
 * The Rust twin is ../src/lib.rs; ../tests/twin.rs compiles this header and compares
 * every size and offset.
 */
#ifndef WAKEFUL_INTF_H
#define WAKEFUL_INTF_H

#ifndef __VMLINUX_H__
#include <stdint.h>
typedef uint16_t __u16;
typedef uint32_t __u32;
typedef uint64_t __u64;
#endif

#define WAKEFUL_MAGIC 0x4c46574bu /* "KWFL" */
#define WAKEFUL_ABI_VERSION 2u
#define WAKEFUL_MAX_THREADS 4096u
#define WAKEFUL_MAX_PROCESSORS 1024u
#define WAKEFUL_PRIORITIES 8u

/*
 * KE-1 in one word: the run state below, the wish above. Whoever decides by one half changes
 * the word by compare-and-swap. So the kernel takes no processor from a thread that was
 * granted a lock meanwhile, nor is one granted to a thread whose processor has just been
 * taken. Whoever changes a half whatever the other is stores its byte. The rules:
 * ../../platform/src/ke1.rs.
 */
#define WAKEFUL_RUN_STATE_MASK 0xffu
#define WAKEFUL_WISH_SHIFT 8u

/* KE-1, the kernel's part: does the thread run? */
enum wakeful_run_state {
	WAKEFUL_UNKNOWN = 0,
	WAKEFUL_RUNNING = 1,
	WAKEFUL_PREEMPTED = 2,
	WAKEFUL_BLOCKED = 3,
};

/* KE-1, the application's part: may the kernel preempt the thread? */
enum wakeful_wish {
	WAKEFUL_PREEMPTABLE = 0,
	WAKEFUL_UNPREEMPTABLE_SELF = 1,
	WAKEFUL_UNPREEMPTABLE_OTHER = 2,
};

/* User-level priorities (ICPP 2001, section 4), lowest first. */
enum wakeful_priority {
	WAKEFUL_BARRIER_WAITER = 0,
	WAKEFUL_LOCK_WAITER = 1,
	WAKEFUL_RUNNING_PRIORITY = 2,
	WAKEFUL_LOCK_IMMEDIATE_WAITER = 3,
	WAKEFUL_LOCK_HOLDER = 4,
	WAKEFUL_AWAITED_HOLDER = 5, /* holds a lock, and one who waits for it says so */
};

/* Which view fills the arena. */
enum wakeful_view {
	WAKEFUL_VIEW_UNSET = 0,
	WAKEFUL_VIEW_NONE = 1,
	WAKEFUL_VIEW_PERF = 2,
	WAKEFUL_VIEW_BPF = 3,
};

struct wakeful_partition {
	__u32 processors;            /* KERNEL or DAEMON, THREADS when embedded: how many are ours; 0: not known */
	__u32 generation;            /* the same: times the partition has changed */
	__u32 threads_per_processor; /* KERNEL or DAEMON: SMT siblings on one core; 0 where neither keeps this block */
	__u32 reserved;
	__u64 ids[WAKEFUL_MAX_PROCESSORS / 64]; /* KERNEL or DAEMON: bit n: processor n is ours */
};

struct wakeful_arena {
	__u32 magic;       /* DAEMON, or the application when embedded; once */
	__u32 version;     /* the same */
	__u32 arena_size;  /* the same: bytes of this struct */
	__u32 thread_size; /* the same: bytes of one thread block */
	__u32 max_threads; /* the same */
	__u32 view;        /* the same: enum wakeful_view */
	__u32 scheduled;   /* KERNEL: 1 while a scheduler acts on the threads' wishes and priorities */
	__u32 reserved[9];
	struct wakeful_partition partition;
	/* KERNEL: preempted threads by the priority they had when preempted. */
	__u32 preempted[WAKEFUL_PRIORITIES];
	__u32 pad[4];
};

struct wakeful_thread {
	/* first line: the kernel writes, and the thread its wish */
	__u32 state;             /* KERNEL, OWNER and THREADS: wakeful_run_state, wakeful_wish */
	__u32 cpu;               /* KERNEL: where it runs or ran last */
	__u32 warning;           /* KERNEL: KE-2, a preemption was put off once */
	__u32 reserved;
	__u64 preemptions;       /* KERNEL: times preempted */
	__u64 blocks;            /* KERNEL: times blocked */
	__u32 lease;             /* OWNER: which use of the block this is; the kernel writes only under this one */
	__u32 lease_reserved;
	__u64 kernel_reserved[3];
	/* second line: the application writes */
	__u32 tid;               /* OWNER: kernel thread id; 0: the block is free. For who looks from outside alone */
	__u32 priority;          /* OWNER and THREADS: enum wakeful_priority */
	__u32 owner_reserved[14];
};

#endif
