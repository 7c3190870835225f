// SPDX-License-Identifier: MIT OR Apache-2.0
// The part of pthread_once that thread cancellation and C++ exceptions unwind through. The decisions are in once.rs.

#define _GNU_SOURCE
#include <pthread.h>

#define HIDDEN __attribute__((visibility("hidden")))

// Is the caller to run the routine?
extern HIDDEN int wakeful_once_begin(pthread_once_t *once);
extern HIDDEN void wakeful_once_end(pthread_once_t *once, int done);

static void undone(void *once)
{
	wakeful_once_end(once, 0);
}

HIDDEN int wakeful_once(pthread_once_t *once, void (*routine)(void))
{
	if (wakeful_once_begin(once)) {
		pthread_cleanup_push(undone, once);
		routine();
		pthread_cleanup_pop(0);
		wakeful_once_end(once, 1);
	}
	return 0;
}
