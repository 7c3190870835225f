// SPDX-License-Identifier: MIT OR Apache-2.0
// The part of pthread_once that thread cancellation and C++ exceptions unwind through. The decisions are in once.rs.

#define _GNU_SOURCE
#include <pthread.h>

#define HIDDEN __attribute__((visibility("hidden")))

// Is the caller to run the routine?
extern HIDDEN int wakeful_once_begin(pthread_once_t *once);
extern HIDDEN void wakeful_once_end(pthread_once_t *once, int done);

// Of the C library, for programs of long ago: a handler that runs also where a frame without unwind tables ends the unwinding before ours.
extern void _pthread_cleanup_push(struct _pthread_cleanup_buffer *buffer, void (*routine)(void *), void *arg);
extern void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *buffer, int execute);

struct attempt {
	struct _pthread_cleanup_buffer handler;
	pthread_once_t *once;
	int over;
};

// Both the C library and the unwinder may come here, one after the other. Meanwhile another thread may have begun: once only.
static void undone(void *arg)
{
	struct attempt *attempt = arg;

	if (!attempt->over) {
		attempt->over = 1;
		wakeful_once_end(attempt->once, 0);
	}
}

// Whatever unwinds through us comes here, before the C library looks for the handler.
static void unwound(struct attempt *attempt)
{
	if (!attempt->over)
		_pthread_cleanup_pop(&attempt->handler, 1);
}

HIDDEN int wakeful_once(pthread_once_t *once, void (*routine)(void))
{
	if (wakeful_once_begin(once)) {
		struct attempt attempt __attribute__((cleanup(unwound))) = { .once = once };

		_pthread_cleanup_push(&attempt.handler, undone, &attempt);
		routine();
		attempt.over = 1;
		_pthread_cleanup_pop(&attempt.handler, 0);
		wakeful_once_end(once, 1);
	}
	return 0;
}
