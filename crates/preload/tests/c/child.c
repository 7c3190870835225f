// SPDX-License-Identifier: MIT OR Apache-2.0
// What other programs start: prints its words, or becomes the program that they name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef SAYS_WHO_IS_HERE
#include <dlfcn.h>
#endif

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "--") == 0) {
		execv(argv[2], argv + 2);
		return 126;
	}
	if (argc > 1 && strcmp(argv[1], "quiet") == 0)
		return 0;
#ifdef SAYS_WHAT_IS_PRELOADED
	printf("preloaded: %s\n", getenv("LD_PRELOAD"));
#endif
#ifdef SAYS_WHO_IS_HERE
	if (argc > 9)
		return !dlopen(argv[9], RTLD_LAZY);
	puts(dlsym(RTLD_DEFAULT, "wakeful_preload_view") ? "reached" : "not reached");
#endif
	for (int at = 1; at < argc; at++)
		printf("%s ", argv[at]);
	puts(getenv("LONG") ? "and the environment" : "");
	return 7;
}
