// SPDX-License-Identifier: MIT OR Apache-2.0
// Starts a program, which prints its words, in every way that the C library has. The child of vfork shares our memory: no mapping stays.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int mappings(void)
{
	char line[4096];
	int lines = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		lines++;
	fclose(maps);
	return lines;
}

static void ended(const char *way, pid_t child)
{
	int status = -1;
	waitpid(child, &status, 0);
	printf("%s: %d\n", way, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char *path = argv[1], *name = basename(strdup(path)), *words[] = {name, argv[2], NULL};
	setenv("PATH", dirname(strdup(path)), 1);
	putenv("LONG=1");
	int fd = open(path, O_RDONLY);
#define CHILD(fork, way, call)                                                                                         \
	do {                                                                                                           \
		words[1] = way;                                                                                        \
		pid_t child = fork();                                                                                  \
		if (child == 0) {                                                                                      \
			call;                                                                                          \
			_exit(errno);                                                                                  \
		}                                                                                                      \
		ended(way, child);                                                                                     \
	} while (0)
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHILD(fork, "execve", execve(path, words, environ));
	CHILD(fork, "execv", execv(path, words));
	CHILD(fork, "execvp", execvp(name, words));
	CHILD(fork, "execvpe", execvpe(name, words, environ));
	CHILD(fork, "execl", execl(path, name, "execl", "1", "2", "3", "4", "5", "6", "7", NULL));
	CHILD(fork, "execle", execle(path, name, "execle", "1", "2", "3", "4", "5", "6", NULL, environ));
	CHILD(fork, "execlp", execlp(name, name, "execlp", NULL));
	CHILD(fork, "execveat", execveat(AT_FDCWD, path, words, environ, 0));
	CHILD(fork, "fexecve", fexecve(fd, words, environ));
	CHILD(fork, "execveat of a descriptor", execveat(fd, "", words, environ, AT_EMPTY_PATH));
	CHILD(vfork, "vfork, execve", execve(path, words, environ));
	CHILD(vfork, "vfork, execvp", execvp(name, words));
	CHILD(vfork, "vfork, execvp, not there", execvp("no such program", words));
	CHILD(vfork, "vfork, execv, a folder", execv("/", words));
	pid_t child = 0;
	words[1] = "posix_spawn";
	if (posix_spawn(&child, path, NULL, NULL, words, environ) == 0)
		ended(words[1], child);
	words[1] = "posix_spawnp";
	if (posix_spawnp(&child, name, NULL, NULL, words, environ) == 0)
		ended(words[1], child);
	char line[4096];
	snprintf(line, sizeof line, "exec %s system", path);
	printf("system: %d\n", system(line));

	// A second program that cannot be run, though it can be looked at; and the program itself, without its words.
	words[1] = "quiet";
	int before = 0;
	for (int round = 0; round < 200; round++) {
		if (round == 50)
			before = mappings();
		child = vfork();
		if (child == 0) {
			if (argc > 2)
				execve(argv[2], words, environ);
			execve(path, words, environ);
			_exit(errno);
		}
		waitpid(child, NULL, 0);
		if (argc > 2 && (execv(argv[2], words) != -1 || errno != EACCES))
			puts("executed");
	}
	printf("mappings left: %d\n", mappings() - before);
}
