// SPDX-License-Identifier: MIT OR Apache-2.0
// When the privileged view is loaded: prints the descriptors of eBPF objects that this process has, before its first thread and after,
// and the view then. With an argument, a forked child does the same, its parent having one thread only.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

static int descriptors(void)
{
	char path[300], target[100];
	int count = 0;
	DIR *folder = opendir("/proc/self/fd");
	for (struct dirent *entry; (entry = readdir(folder));) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		ssize_t size = readlink(path, target, sizeof target - 1);
		target[size < 0 ? 0 : size] = 0;
		count += strstr(target, "bpf") != NULL;
	}
	closedir(folder);
	return count;
}

static void *thread(void *arg)
{
	return arg;
}

static int c11(void *arg)
{
	return arg != NULL;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	if (!strcmp(how, "fork")) {
		pid_t child = fork();
		if (child) {
			waitpid(child, NULL, 0);
			return 0;
		}
	}
	printf("before %d\n", descriptors());
	errno = 77;
	if (!strcmp(how, "c11")) {
		thrd_t t;
		thrd_create(&t, c11, NULL);
		printf("errno %d\n", errno);
		thrd_join(t, NULL);
	} else {
		pthread_t t;
		pthread_create(&t, NULL, thread, NULL);
		printf("errno %d\n", errno);
		pthread_join(t, NULL);
	}
	printf("after %d\n", descriptors());
	const char *(*view)(void) = dlsym(RTLD_DEFAULT, "wakeful_preload_view");
	printf("view %s\n", view ? view() : "");
	return 0;
}
