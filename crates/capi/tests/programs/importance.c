// SPDX-License-Identifier: MIT OR Apache-2.0
// How much a thread matters is set and restored.
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#include "wakeful.h"

static void *other(void *argument) {
    assert(wakeful_importance(WAKEFUL_URGENT) == WAKEFUL_NORMAL);
    return argument;
}

int main(void) {
    assert(wakeful_importance(WAKEFUL_BACKGROUND) == WAKEFUL_NORMAL);
    pthread_t thread;
    assert(pthread_create(&thread, NULL, other, NULL) == 0);
    assert(pthread_join(thread, NULL) == 0);
    assert(wakeful_importance(3) == -EINVAL);
    assert(wakeful_importance(-1) == -EINVAL);
    assert(wakeful_importance(WAKEFUL_URGENT) == WAKEFUL_BACKGROUND);
    assert(wakeful_importance(WAKEFUL_NORMAL) == WAKEFUL_URGENT);
    return 0;
}
