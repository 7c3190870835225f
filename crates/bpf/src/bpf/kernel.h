/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The little of the kernel's types that our programs use. Their real layout comes from the running kernel's BTF when the
 * program is loaded (CO-RE), so that one object fits every kernel; only names and member types matter here.
 */
#ifndef WAKEFUL_KERNEL_H
#define WAKEFUL_KERNEL_H

#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef signed short __s16;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef _Bool bool;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;

#define false 0
#define true 1

enum {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

struct bpf_local_storage;

struct cpumask {
	unsigned long bits[1];
} __attribute__((preserve_access_index));

struct sched_ext_entity {
	u32 flags;
	u64 slice;
} __attribute__((preserve_access_index));

struct sched_entity {
	u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int __state;
	struct bpf_local_storage *bpf_storage;
	/* What follows is the scheduler's. */
	int pid;
	int tgid;
	struct task_struct *group_leader;
	const struct cpumask *cpus_ptr;
	unsigned short migration_disabled;
	struct sched_entity se;
	struct sched_ext_entity scx;
} __attribute__((preserve_access_index));

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	const char *reason;
} __attribute__((preserve_access_index));

/* Before Linux 5.14. */
struct task_struct___old {
	long state;
} __attribute__((preserve_access_index));

#endif
