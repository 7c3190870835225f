// SPDX-License-Identifier: MIT OR Apache-2.0
// What its start has cost: page faults, and whether anything was allocated in it.
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>

int main(void)
{
	struct rusage used;
	getrusage(RUSAGE_SELF, &used);
	printf("%ld %d\n", used.ru_minflt, mallinfo2().arena != 0);
	return 0;
}
