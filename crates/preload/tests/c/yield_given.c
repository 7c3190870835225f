// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread yields in a loop, on a processor where another program only burns time. Another thread of its own
// works now and then, elsewhere. Each call of the kernel's
// sched_yield is counted, by a filter that makes a signal of it, whose handler makes the call. Without the
// library (argument 0) each yield is such a call. With it few are, since each gives a time slice away.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// An argument that the kernel does not look at: the filter lets such a call pass.
#define PASS 0x7969656cu

static long made;

static void make(int signal)
{
	(void)signal;
	made++;
	syscall(SYS_sched_yield, PASS);
}

static long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// A third of the time.
static void *work(void *unused)
{
	for (;;) {
		long end = now_us() + 1000;

		while (now_us() < end)
			;
		usleep(2000);
	}
	return unused;
}

static void on_one_processor(void)
{
	cpu_set_t set;
	int first = 0;

	sched_getaffinity(0, sizeof set, &set);
	while (!CPU_ISSET(first, &set))
		first++;
	CPU_ZERO(&set);
	CPU_SET(first, &set);
	sched_setaffinity(0, sizeof set, &set);
}

int main(int argc, char **argv)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PASS, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};
	struct sigaction action = {.sa_handler = make, .sa_flags = SA_NODEFER};
	long calls = 0, most = 200000, informed = argc < 2 || atoi(argv[1]);
	time_t end = time(0) + 20;
	pid_t other;
	pthread_t worker;

	if (pthread_create(&worker, 0, work, 0))
		return 1;
	on_one_processor();
	other = fork();
	if (!other)
		for (alarm(60);;)
			;
	if (sigaction(SIGSYS, &action, 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return printf("no filter: %d\n", errno), 1;
	if (!informed)
		most = 100;
	while (calls < most && time(0) < end) {
		errno = 7;
		sched_yield();
		if (errno != 7)
			return puts("errno"), 1;
		calls++;
	}
	kill(other, SIGKILL);
	wait(0);
	if (informed ? made * 10 > calls : made != calls)
		return printf("%ld of %ld yields were made\n", made, calls), 1;
	return 0;
}
