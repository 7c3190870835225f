// SPDX-License-Identifier: MIT OR Apache-2.0
// OpenMP programs that wait for a reason which is planted, by the first word; the second is a number of
// turns.

#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEAM = 3 };

// A region that is a function's last call is its caller's.
#define STAY __asm__ volatile("")

static int turns = 20;

static long cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// So much processor time.
static void work(long us)
{
	long end = cpu_us() + us;

	while (cpu_us() < end)
		;
}

// The first thread has ten times as much to do.
__attribute__((noinline)) void uneven(void)
{
#pragma omp parallel num_threads(TEAM)
	work(omp_get_thread_num() ? 300 : 3000);
	STAY;
}

__attribute__((noinline)) void even(void)
{
#pragma omp parallel num_threads(TEAM)
	work(1000);
	STAY;
}

__attribute__((noinline)) void in_phases(void)
{
#pragma omp parallel num_threads(TEAM)
	{
		work(omp_get_thread_num() ? 100 : 2000);
#pragma omp barrier
		work(omp_get_thread_num() == 1 ? 2000 : 100);
	}
	STAY;
}

__attribute__((noinline)) long shortly(long sum)
{
#pragma omp parallel num_threads(2) reduction(+ : sum)
	sum += 1;
	return sum;
}

__attribute__((noinline)) void convoy(void)
{
#pragma omp parallel num_threads(TEAM)
	for (int i = 0; i < 10; i++) {
#pragma omp critical(table)
		work(300);
	}
	STAY;
}

// Nearly all of it is done at the region's end.
__attribute__((noinline)) void by_tasks(void)
{
#pragma omp parallel num_threads(TEAM)
#pragma omp single nowait
	for (int i = 0; i < 4 * TEAM; i++) {
#pragma omp task
		work(1000);
	}
	STAY;
}

__attribute__((noinline)) void by_loops_of_tasks(void)
{
	unsigned long long most = 4 * TEAM;

#pragma omp parallel num_threads(TEAM)
	{
#pragma omp single nowait
		{
#pragma omp taskloop nogroup num_tasks(4 * TEAM)
			for (int i = 0; i < 4 * TEAM; i++)
				work(500);
#pragma omp taskloop nogroup num_tasks(4 * TEAM)
			for (unsigned long long i = 0; i < most; i++)
				work(500);
		}
#pragma omp barrier
	}
	STAY;
}

// More places of calls than the library has room for.
#define B4(here) here here here here
#define B1280 B4(B4(B4(B4(_Pragma("omp barrier") _Pragma("omp barrier") _Pragma("omp barrier") \
	_Pragma("omp barrier") _Pragma("omp barrier")))))

__attribute__((noinline)) void at_many_places(void)
{
#pragma omp parallel num_threads(2)
	{
		B1280
	}
	STAY;
}

static long most_kb(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_maxrss;
}

// Nobody but this thread is in the child.
__attribute__((noinline)) void alone_in_a_child(void)
{
	for (int i = 0; i < 100; i++) {
#pragma omp critical(table)
		STAY;
	}
}

// A child is forked in a critical section, for which another thread waits. Returns the child's status.
__attribute__((noinline)) int forked(void)
{
	int status = -1;
	pid_t child = 1;

#pragma omp parallel num_threads(2)
	{
#pragma omp critical(table)
		{
			work(2000);
			if (child == 1)
				child = fork();
		}
		if (child == 0) {
			alone_in_a_child();
			_exit(0);
		}
	}
	waitpid(child, &status, 0);
	return status;
}

// Each shape of a region that a compiler may make; returns what it adds up.
__attribute__((noinline)) long shapes(void)
{
	long sum = 0, a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;

#pragma omp parallel for num_threads(TEAM) schedule(static) reduction(+ : sum)
	for (int i = 0; i < 100; i++)
		sum += i;
#pragma omp parallel for num_threads(TEAM) schedule(dynamic, 3) reduction(+ : sum)
	for (int i = 0; i < 100; i++)
		sum += i;
#pragma omp parallel for num_threads(TEAM) schedule(guided) reduction(+ : sum)
	for (int i = 0; i < 100; i++)
		sum += i;
#pragma omp parallel for num_threads(TEAM) schedule(runtime) reduction(+ : sum)
	for (int i = 0; i < 100; i++)
		sum += i;
#pragma omp parallel for num_threads(TEAM) schedule(monotonic : dynamic) reduction(+ : sum)
	for (int i = 0; i < 100; i++)
		sum += i;
#pragma omp parallel for num_threads(TEAM) schedule(monotonic : guided) reduction(+ : sum)
	for (int i = 0; i < 100; i++)
		sum += i;
#pragma omp parallel sections num_threads(TEAM) reduction(+ : sum)
	{
#pragma omp section
		sum += 10;
#pragma omp section
		sum += 20;
	}
#pragma omp parallel num_threads(TEAM) reduction(task, + : sum)
	{
#pragma omp task in_reduction(+ : sum)
		sum += 5;
	}
#pragma omp parallel num_threads(TEAM)
	{
#pragma omp for schedule(dynamic)
		for (int i = 0; i < 10; i++)
#pragma omp atomic
			sum += i;
#pragma omp sections
		{
#pragma omp section
#pragma omp atomic
			sum += 1;
		}
#pragma omp single
		sum += 7;
		// Two sections, which exclude each its own.
#pragma omp critical
		{
#pragma omp atomic
			sum += 2;
		}
#pragma omp critical(named)
		{
#pragma omp atomic
			sum += 1;
		}
#pragma omp barrier
		// A region in a region.
#pragma omp parallel num_threads(2) reduction(+ : sum)
		sum += 0;
	}
	// Variables, one parameter each.
#pragma omp parallel num_threads(TEAM) shared(a, b, c, d, e, f) reduction(+ : sum)
	sum += a + b + c + d + e + f;
	return sum;
}

static long right(void)
{
	return 6 * 4950 + 30 + TEAM * 5 + 45 + 1 + 7 + TEAM * 3 + TEAM * 21;
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "";
	long sum = 0;

	if (count > 2)
		turns = atoi(words[2]);
	for (int i = 0; i < turns; i++) {
		if (!strcmp(mode, "uneven"))
			uneven();
		else if (!strcmp(mode, "even"))
			even();
		else if (!strcmp(mode, "phases"))
			in_phases();
		else if (!strcmp(mode, "short"))
			sum = shortly(sum);
		else if (!strcmp(mode, "critical"))
			convoy();
		else if (!strcmp(mode, "tasks")) {
			by_tasks();
			by_loops_of_tasks();
		}
		else if (!strcmp(mode, "shapes") && shapes() != right())
			return 5;
	}
	if (!strcmp(mode, "places")) {
		long before_kb;

		at_many_places();
		before_kb = most_kb();
		for (int i = 0; i < turns; i++)
			at_many_places();
		return most_kb() - before_kb > 3000 ? 7 : 0;
	}
	if (!strcmp(mode, "fork"))
		return forked();
	if (!strcmp(mode, "short") && sum != 2l * turns)
		return 6;
	if (!strcmp(mode, "crash"))
#pragma omp parallel num_threads(TEAM)
	{
		work(2000);
		if (omp_get_thread_num() == 1)
			abort();
		work(100000);
	}
	return 0;
}
