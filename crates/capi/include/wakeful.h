/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Parallel loops that stay fast when processors are busy elsewhere. Link with -lwakeful. Linux. */

#ifndef WAKEFUL_H
#define WAKEFUL_H

#include <stddef.h>
#include <stdint.h>

/*
 A block of equal size for each member, the same for each loop over the same range.
 */
#define WAKEFUL_STATIC 0

/*
 Whoever has nothing to do takes the next `chunk` iterations.
 */
#define WAKEFUL_DYNAMIC 1

/*
 The same, in chunks that begin large and become smaller, down to `chunk`.
 */
#define WAKEFUL_GUIDED 2

/*
 A calling thread and its helpers.
 */
typedef struct wakeful_team wakeful_team;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 A team of so many members, the caller included, that run where everybody runs (*free* microthreads); 0
 counts as 1, more than 64 as 64. A loop uses at most as many of them as the program has processors at
 the time. Threads are started by the first loop that wants them.

 Never NULL.
 */
wakeful_team *wakeful_team_create_free(size_t members);

/*
 A team for a program with processors of its own (`wakeful run --cpus`, a cpuset partition): as many
 members as these at any time (*bound* microthreads), which wait for the next loop with more patience,
 and tell the processor server when no loop has come for 10 ms.

 Never NULL.
 */
wakeful_team *wakeful_team_create_bound(void);

/*
 Ends the helpers of a team that runs no loop, and frees it. NULL: does nothing.

 What the caller promises:
 A team from here, not used afterwards.
 */
void wakeful_team_destroy(wakeful_team *team);

/*
 How many members a loop of this team would have now. NULL: the team of all processors, as everywhere.

 What the caller promises:
 NULL, or a team from here.
 */
size_t wakeful_team_members(const wakeful_team *team);

/*
 Calls `body(i, argument)` for each i from `begin` to `end` - 1, by several threads at a time, and
 returns when all calls have returned.

 A `body` may call anything but must return to its caller: neither an exception nor `longjmp` may leave
 it, nor may it end the thread. It must not wait for another iteration. A loop inside it, or beside a
 loop of the same team, runs on the calling thread. `chunk` 0 counts as 1; WAKEFUL_STATIC does not look
 at it.

 Returns 0, or EINVAL if `schedule` is none of the three or `body` is NULL; then nothing was called. An
 empty range calls nothing.

 What the caller promises:
 `team` is NULL, or one from here; `body` may be called from several threads with this argument.
 */
int wakeful_parallel_for(const wakeful_team *team,
                         size_t begin,
                         size_t end,
                         int schedule,
                         size_t chunk,
                         void (*body)(size_t index, void *argument),
                         void *argument);

/*
 As `wakeful_parallel_for`, but calls `body(first, last + 1, argument)` once for each block of
 iterations. This is the faster one for short iterations, because the loop over the block is the
 compiler's.

 What the caller promises:
 As there.
 */
int wakeful_parallel_blocks(const wakeful_team *team,
                            size_t begin,
                            size_t end,
                            int schedule,
                            size_t chunk,
                            void (*body)(size_t begin, size_t end, void *argument),
                            void *argument);

/*
 Computes one value from a range: each member folds its block into a copy of what is in `result` at the
 beginning, by `fold(value, i, argument)`, and the members' values are then combined into `result` in the
 blocks' order, by `combine(value, other, argument)` on the calling thread.

 `size` is that of a value in bytes; a copy is aligned to 128. The result is that of the sequential fold
 if `combine` is associative and what `result` begins with its neutral element; a sum of floating-point
 numbers is the same each time for the same number of members.

 Returns 0, EINVAL if `result`, `fold` or `combine` is NULL, or ENOMEM; then nothing was called.

 What the caller promises:
 As for `wakeful_parallel_for`; `size` bytes of `result` are the caller's, and copies of them mean the
 same.
 */
int wakeful_reduce(const wakeful_team *team,
                   size_t begin,
                   size_t end,
                   void *result,
                   size_t size,
                   void (*fold)(void *value, size_t index, void *argument),
                   void (*combine)(void *value, const void *other, void *argument),
                   void *argument);

/*
 How many processors the program has now: those of its partition, or of its affinity, cpuset and quota.
 */
size_t wakeful_processors(void);

/*
 Asks the processor server for at least and at most so many processors of the program's own, or again
 with other numbers; 0 and 0: the server chooses. Higher priorities are served first.

 Returns how many the program has now; with 0 it runs where everybody runs until its turn comes.
 Negative: -EINVAL unless 1 <= least <= most or both are 0, -ECONNREFUSED if no server runs, -EPERM if it
 refuses (`wakeful run --cpus` says in words why), -EIO if it does not answer.
 */
int wakeful_request(uint32_t priority,
                    size_t least,
                    size_t most);

/*
 Gives them back. Returns 0, or as `wakeful_request`.
 */
int wakeful_leave(void);

/*
 Says that the program, in a phase that begins now, can use so many processors at most; 0: all that it
 has. The processor server lends the others to programs that wait for some; without a server, or while
 nobody waits, it changes nothing. Returns what was said before, for the end of the phase.
 */
size_t wakeful_use_at_most(size_t processors);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WAKEFUL_H */
