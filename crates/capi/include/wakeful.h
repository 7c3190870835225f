/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Parallel loops, user-level threads and delegated sections. Link with -lwakeful. Linux. */

#ifndef WAKEFUL_H
#define WAKEFUL_H

#include <stdbool.h>
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
 The thread runs when the program's others have nothing to do, and now and then besides.
 */
#define WAKEFUL_BACKGROUND 0

/*
 As all threads begin.
 */
#define WAKEFUL_NORMAL 1

/*
 It runs before the program's others, but not before one that holds a lock.
 */
#define WAKEFUL_URGENT 2

/*
 The priority of the fiber that spawns, or the usual one.
 */
#define WAKEFUL_PRIORITY_SAME 0

/*
 As other threads.
 */
#define WAKEFUL_PRIORITY_USUAL 1

/*
 Only where the processor would idle, or nearly so (SCHED_IDLE). Threads and processes that such a fiber
 starts are as it is, and stay so.
 */
#define WAKEFUL_PRIORITY_LOW 2

/*
 A heap whose memory comes from one node.
 */
typedef struct wakeful_heap wakeful_heap;

/*
 Threads that run the sections of all locks that are bound to them: `rcl`, remote core locking. If a
 section blocks, faults, or waits for another lock's section, the sections of the server's other locks
 go on. While nobody asks, its threads sleep. It pays where data are large and a processor can be spared.
 */
typedef struct wakeful_rcl_server wakeful_rcl_server;

/*
 A calling thread and its helpers.
 */
typedef struct wakeful_team wakeful_team;

/*
 A lock whose sections another thread may run. All zero: free. It must not be moved or copied. Its users
 are kernel threads. wakeful_delegated_init binds it to a server.

 The rule: a section may run on another thread than the one that called. So nothing in it may depend on
 the thread: no thread-local variable, errno, thread id, credentials, signal mask or scheduling policy. It
 must not use a lock that its caller holds, and not come to its own lock again. It must not wait for what
 another thread has yet to do, except that a section ends, or a lock is released which all take in the
 same order. It returns to its caller: no exception and no longjmp leaves it, and it does not end the
 thread (pthread_exit there ends the program by SIGABRT). It should be short, and not fork. It is not
 cancelled, and its caller only after it.

 An existing pair of lock and unlock is not delegated by itself: what lies between would have to run on
 its caller's stack. wakeful_delegated_lock and wakeful_delegated_unlock take such a pair as it is,
 beside sections.
 */
typedef struct {
  void *served;
  uint64_t words[31];
} wakeful_delegated;

/*
 What changed in the data of a `wakeful_delegated`, for those who wait for that. All zero: nobody waits. It
 must not be moved or copied.
 */
typedef struct {
  uint64_t words[2];
} wakeful_delegated_change;

/*
 A fiber: a value that may be copied. All zero: none. A fiber that has ended and was joined or detached is
 known to be gone, however many copies there are.
 */
typedef struct {
  const void *place;
  uint64_t serial;
} wakeful_fiber;

/*
 How a fiber is to be. All zero: as without.
 */
typedef struct {
  /*
   For messages; NULL: none. It is copied.
   */
  const char *name;
  /*
   WAKEFUL_PRIORITY_...
   */
  int priority;
  /*
   Bytes of stack at least; 0: 256 KiB. An overflow ends the program, with a message: there is a guard of
   64 KiB. Only a frame that is longer may jump over it, in code without -fstack-clash-protection.
   */
  size_t stack_size;
} wakeful_fiber_attributes;

/*
 A value that each fiber has for itself, NULL at first. The object's address is the key, so it is static.
 */
typedef struct {
  /*
   Called with a value that is not NULL when its fiber's body has returned, as the fiber; the fiber's
   value is NULL then. Those set last come first. Values that are set meanwhile are destroyed too, in at
   most 4 rounds, as those of pthread_key_create. NULL: nothing is called.
   */
  void (*destroy)(void *value);
} wakeful_local;

/*
 Mutual exclusion among fibers; kernel threads may use it as well. All zero: free.
 */
typedef struct {
  uint32_t word;
} wakeful_mutex;

/*
 Many readers or one writer. All zero: free.
 */
typedef struct {
  uint32_t word;
} wakeful_rwlock;

/*
 A condition variable for wakeful_mutex. All zero: nobody waits. It must not end before all waits have
 returned, even if all were woken.
 */
typedef struct {
  uint32_t words[2];
} wakeful_condvar;

/*
 Permits that any fiber or thread may add and take. All zero: none.
 */
typedef struct {
  uint32_t words[2];
} wakeful_semaphore;

/*
 A point that fibers pass together.
 */
typedef struct {
  uint64_t words[5];
} wakeful_barrier;

/*
 What became of pages that were to be on a node.
 */
typedef struct {
  /*
   On the node.
   */
  uint64_t there;
  /*
   On others: they could not be moved.
   */
  uint64_t elsewhere;
  /*
   Not there yet: nobody has touched them.
   */
  uint64_t absent;
  /*
   Of these nobody can tell.
   */
  uint64_t unknown;
  /*
   0, or why the kernel refused to move them, or to tell: an errno value.
   */
  int refused;
} wakeful_pages;

/*
 What `wakeful_malloc` does, and why.
 */
typedef struct {
  /*
   The node that new blocks come from; negative: the default allocator.
   */
  int node;
  /*
   Nodes on which the program may have memory; 0: nobody can tell.
   */
  uint32_t nodes;
  /*
   Servers that run.
   */
  size_t servers;
  /*
   0, or why blocks come from the default allocator though all servers are on one node: an errno value.
   */
  int refused;
  /*
   When blocks were moved last.
   */
  wakeful_pages moved;
  /*
   Blocks that could not be listed, and so do not move.
   */
  uint64_t unlisted;
} wakeful_report;

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

/*
 Sets how much the calling thread matters to its program: WAKEFUL_BACKGROUND, WAKEFUL_NORMAL or
 WAKEFUL_URGENT. The scheduler of `wakeful run --scheduled` goes by it among the threads of a program;
 other programs notice nothing. Without that scheduler it changes nothing, and in a fiber never.

 Returns what was set before, to be restored; -EINVAL if it is none of the three.
 */
int wakeful_importance(int importance);

/*
 Starts a server, and writes it to `server`. Its threads stay on this processor, or with -1 run wherever
 the caller may.

 Returns 0; EINVAL: the calling thread may not run on the processor, or it is below -1; EAGAIN: no thread
 could be started.

 What the caller promises:
 `server` can be written to.
 */
int wakeful_rcl_server_start(wakeful_rcl_server **server,
                             int processor);

/*
 Gives the server up. Its threads end here, or with the last lock that is bound to it. NULL: nothing.

 What the caller promises:
 From `wakeful_rcl_server_start`, not used afterwards. Not in a section of this server.
 */
void wakeful_rcl_server_stop(wakeful_rcl_server *server);

/*
 Makes a free lock, whose sections this server runs; NULL: those who come to it, as with zeros. In a forked
 child a lock of a server cannot be used: the child then ends by SIGABRT.

 What the caller promises:
 Nobody uses the lock. It is not one that is bound to a server and not destroyed: that would be lost, and
 keep its server. `server` is NULL or from `wakeful_rcl_server_start`, and not stopped.
 */
void wakeful_delegated_init(wakeful_delegated *lock,
                            const wakeful_rcl_server *server);

/*
 Ends a lock that `wakeful_delegated_init` made, also while it is locked. One that was zeros needs no end.

 What the caller promises:
 Nobody uses the lock, or will before it is made again. Not in a section of its server.
 */
void wakeful_delegated_destroy(wakeful_delegated *lock);

/*
 Runs `section(pointer, first, second)` once, while no other section of this lock runs, and returns what
 it returned. Another thread may run it: see the rule at wakeful_delegated. What the caller did before,
 the section sees; what it did, the caller and all later sections see.

 What the caller promises:
 A lock that the caller does not hold; a section that keeps the rule.
 */
uint64_t wakeful_delegated_run(wakeful_delegated *lock,
                               uint64_t (*section)(void *pointer, uint64_t first, uint64_t second),
                               void *pointer,
                               uint64_t first,
                               uint64_t second);

/*
 The same, unless `section` has not begun within so many nanoseconds. One that has begun is waited for.

 Returns 0, and writes to `result`, if that is not NULL, what the section returned; ETIMEDOUT: it has not
 run and will not; EINVAL: `section` is NULL, which `wakeful_delegated_run` does not allow.

 What the caller promises:
 As for `wakeful_delegated_run`.
 */
int wakeful_delegated_run_for(wakeful_delegated *lock,
                              uint64_t ns,
                              uint64_t (*section)(void *pointer, uint64_t first, uint64_t second),
                              void *pointer,
                              uint64_t first,
                              uint64_t second,
                              uint64_t *result);

/*
 Waits until no section runs. None runs from then on until `wakeful_delegated_unlock`, which the same
 thread calls.

 What the caller promises:
 A lock that the caller does not hold.
 */
void wakeful_delegated_lock(wakeful_delegated *lock);

/*
 Releases the lock. It runs no section of others.

 What the caller promises:
 The calling thread has locked it.
 */
void wakeful_delegated_unlock(wakeful_delegated *lock);

/*
 Runs `section` as soon as `condition` returns true, in the same turn, as `wakeful_delegated_run` does.
 Until then the calling thread sleeps, and no thread that runs sections. A thread that changes the data
 calls `wakeful_delegated_changed`, in the section or afterwards.

 The condition is asked in sections, after each change and now and then besides: the rule at
 wakeful_delegated holds for it.

 What the caller promises:
 As for `wakeful_delegated_run`; a `change` of this lock.
 */
uint64_t wakeful_delegated_run_when(wakeful_delegated *lock,
                                    wakeful_delegated_change *change,
                                    bool (*condition)(void *pointer, uint64_t first, uint64_t second),
                                    uint64_t (*section)(void *pointer,
                                                        uint64_t first,
                                                        uint64_t second),
                                    void *pointer,
                                    uint64_t first,
                                    uint64_t second);

/*
 The same, unless the condition does not hold within so many nanoseconds, apart from the time to come to
 the lock. At their end it is asked once more.

 Returns 0, and writes to `result`, if that is not NULL, what the section returned; ETIMEDOUT: it has not
 run and will not; EINVAL: `condition` or `section` is NULL.

 What the caller promises:
 As for `wakeful_delegated_run_when`.
 */
int wakeful_delegated_run_when_for(wakeful_delegated *lock,
                                   wakeful_delegated_change *change,
                                   uint64_t ns,
                                   bool (*condition)(void *pointer, uint64_t first, uint64_t second),
                                   uint64_t (*section)(void *pointer,
                                                       uint64_t first,
                                                       uint64_t second),
                                   void *pointer,
                                   uint64_t first,
                                   uint64_t second,
                                   uint64_t *result);

/*
 Those who wait for a condition are to ask it again; `all` 0: one of them.

 What the caller promises:
 A `change`, all zero at first.
 */
void wakeful_delegated_changed(wakeful_delegated_change *change, int all);

/*
 Starts a fiber, a user-level thread, that calls `body(argument)`, and writes it to `fiber`; NULL: nobody
 will join it. It stays with the kernel thread on which it begins. As many kernel threads run fibers as the
 program has processors; if one blocks in the kernel, another takes its place. `attributes` may be NULL.

 `body` may do what a thread may, but must return: neither an exception nor `longjmp` may leave it, nor may
 it end the thread (pthread_exit there ends the program by SIGABRT). It waits best in the locks of this
 header. Unless the program runs under `wakeful run`, pthread's block the kernel thread, and must not be
 held where it waits. Fibers of one kernel thread share its errno and its _Thread_local variables: where a
 fiber waits, others may change them.

 Returns 0; EINVAL: `body` is NULL, or there is no such priority; ENOMEM: there is no memory for a stack of
 this size; EPERM: a thread of low priority would have to start one that is not; or what epoll_create,
 eventfd, timerfd_create or pthread_create say to the first fiber. Then nothing was started.

 What the caller promises:
 `body` may be called from another thread with this argument; `name` is NULL or a string.
 */
int wakeful_fiber_spawn(wakeful_fiber *fiber,
                        const wakeful_fiber_attributes *attributes,
                        void *(*body)(void *argument),
                        void *argument);

/*
 Waits for the end of a fiber, and writes what its body returned to `result` unless that is NULL. One call
 joins a fiber, and nobody need: see `wakeful_fiber_detach`.

 Returns 0; ESRCH: it was joined or detached before, or is none; EDEADLK: it is the caller.

 What the caller promises:
 A fiber from here, or all zero.
 */
int wakeful_fiber_join(wakeful_fiber fiber,
                       void **result);

/*
 Nobody will join this fiber; it goes on.

 Returns 0; ESRCH: it was joined or detached before, or is none.

 What the caller promises:
 A fiber from here, or all zero.
 */
int wakeful_fiber_detach(wakeful_fiber fiber);

/*
 The calling fiber; all zero outside of fibers.
 */
wakeful_fiber wakeful_fiber_self(void);

/*
 Lets other fibers go first. Outside of fibers it is sched_yield.
 */
void wakeful_fiber_yield(void);

/*
 Waits for at least so many nanoseconds, in a fiber or in a thread. `wakeful_fiber_cancel` ends it.
 */
void wakeful_fiber_sleep(uint64_t ns);

/*
 Waits until somebody has called `wakeful_fiber_unpark` for the calling fiber since the last time. It may
 return for no reason, so look at what you wait for.

 Returns 0; ECANCELED: the caller was cancelled; EPERM: it is no fiber.
 */
int wakeful_fiber_park(void);

/*
 As `wakeful_fiber_park`, but no longer than so many nanoseconds.

 Returns 0, also when the time is over; ECANCELED: the caller was cancelled; EPERM: it is no fiber.
 */
int wakeful_fiber_park_for(uint64_t ns);

/*
 Ends the fiber's `wakeful_fiber_park`, or the next one. Any thread may call it. Of a fiber that has ended
 it does nothing.

 Returns 0; ESRCH: it is none, or another fiber has its place.

 What the caller promises:
 A fiber from here, or all zero.
 */
int wakeful_fiber_unpark(wakeful_fiber fiber);

/*
 Tells a fiber to end. It ends the fiber's `wakeful_fiber_park` or `wakeful_fiber_sleep`, or the next one.
 Nothing is unwound: one `wakeful_fiber_park`, `_park_for` or `_cancelled` of the fiber returns ECANCELED,
 and its body returns then, if it is written so. After that it waits as before.

 Returns 0; ESRCH: it is none, or another fiber has its place.

 What the caller promises:
 A fiber from here, or all zero.
 */
int wakeful_fiber_cancel(wakeful_fiber fiber);

/*
 Was the calling fiber cancelled? Returns ECANCELED, once for each time; else 0.
 */
int wakeful_fiber_cancelled(void);

/*
 The calling fiber's value; NULL if it has set none, and outside of fibers.
 */
void *wakeful_local_get(const wakeful_local *key);

/*
 Sets the calling fiber's value. What it was before is not destroyed.

 Returns 0; EPERM: the caller is no fiber; ENOMEM: there is no memory for one more value. Where there is
 none even for the first one's list, the program ends.

 What the caller promises:
 The key stays as long as fibers have values of it, and its destructor takes this value.
 */
int wakeful_local_set(const wakeful_local *key,
                      void *value);

/*
 Acquires the mutex; the calling fiber waits, and its kernel thread takes another one.

 What the caller promises:
 A mutex that the caller does not hold.
 */
void wakeful_mutex_lock(wakeful_mutex *mutex);

/*
 Acquires the mutex if it is free. Returns 0 or EBUSY.

 What the caller promises:
 A mutex.
 */
int wakeful_mutex_try_lock(wakeful_mutex *mutex);

/*
 Acquires the mutex within so many nanoseconds. Returns 0 or ETIMEDOUT.

 What the caller promises:
 As for `wakeful_mutex_lock`.
 */
int wakeful_mutex_lock_for(wakeful_mutex *mutex, uint64_t ns);

/*
 Releases the mutex.

 What the caller promises:
 The caller holds it.
 */
void wakeful_mutex_unlock(wakeful_mutex *mutex);

/*
 Acquires the lock as one of many readers.

 What the caller promises:
 A lock that the caller does not hold.
 */
void wakeful_rwlock_read(wakeful_rwlock *lock);

/*
 Acquires the lock as a reader if no writer has it. Returns 0 or EBUSY.

 What the caller promises:
 A lock.
 */
int wakeful_rwlock_try_read(wakeful_rwlock *lock);

/*
 Releases the lock as a reader.

 What the caller promises:
 The caller is one.
 */
void wakeful_rwlock_unlock_read(wakeful_rwlock *lock);

/*
 Acquires the lock as its one writer.

 What the caller promises:
 A lock that the caller does not hold.
 */
void wakeful_rwlock_write(wakeful_rwlock *lock);

/*
 Acquires the lock as its writer if it is free. Returns 0 or EBUSY.

 What the caller promises:
 A lock.
 */
int wakeful_rwlock_try_write(wakeful_rwlock *lock);

/*
 Releases the lock as its writer.

 What the caller promises:
 The caller is it.
 */
void wakeful_rwlock_unlock_write(wakeful_rwlock *lock);

/*
 Releases the mutex, waits for a signal, acquires the mutex again. It may return for no reason.

 What the caller promises:
 The caller holds the mutex.
 */
void wakeful_condvar_wait(wakeful_condvar *condvar, wakeful_mutex *mutex);

/*
 As `wakeful_condvar_wait`, for no longer than so many nanoseconds. Returns 0, or ETIMEDOUT if no signal
 came; the caller holds the mutex in both cases.

 What the caller promises:
 The caller holds the mutex.
 */
int wakeful_condvar_wait_for(wakeful_condvar *condvar,
                             wakeful_mutex *mutex,
                             uint64_t ns);

/*
 Wakes one who waits.

 What the caller promises:
 A condition variable.
 */
void wakeful_condvar_signal(wakeful_condvar *condvar);

/*
 Wakes all who wait.

 What the caller promises:
 A condition variable.
 */
void wakeful_condvar_broadcast(wakeful_condvar *condvar);

/*
 Gives a semaphore that nobody uses so many permits. Returns 0, or EINVAL: more than 2^30 - 1.

 What the caller promises:
 Room for a semaphore.
 */
int wakeful_semaphore_init(wakeful_semaphore *semaphore, uint32_t permits);

/*
 Takes a permit, waiting for one if there is none.

 What the caller promises:
 A semaphore.
 */
void wakeful_semaphore_acquire(wakeful_semaphore *semaphore);

/*
 Takes a permit if there is one. Returns 0 or EBUSY.

 What the caller promises:
 A semaphore.
 */
int wakeful_semaphore_try_acquire(wakeful_semaphore *semaphore);

/*
 Takes a permit within so many nanoseconds. Returns 0 or ETIMEDOUT.

 What the caller promises:
 A semaphore.
 */
int wakeful_semaphore_acquire_for(wakeful_semaphore *semaphore, uint64_t ns);

/*
 Adds a permit. Returns 0, or EOVERFLOW: there are 2^30 - 1.

 What the caller promises:
 A semaphore.
 */
int wakeful_semaphore_release(wakeful_semaphore *semaphore);

/*
 Makes a barrier for so many; 0 counts as 1.

 What the caller promises:
 Room for a barrier that nobody uses.
 */
void wakeful_barrier_init(wakeful_barrier *barrier, uint32_t parties);

/*
 Waits for the others. Returns 1 to one of those who pass together, 0 to the others.

 What the caller promises:
 A barrier that was made.
 */
int wakeful_barrier_wait(wakeful_barrier *barrier);

/*
 Memory that follows the servers of delegated sections (RCLAwareMalloc). Before the first server runs it
 is `malloc`'s. When all servers run on one node, what is allocated moves there, and new blocks come from
 there. When they are on several, new blocks are `malloc`'s again.

 The functions of this name are as those of the C library, errno included. A block goes back by
 `wakeful_free` or `wakeful_realloc`, from any thread. `wakeful_follow_servers` is to be called before.

 What the caller promises:
 None.
 */
void *wakeful_malloc(size_t size);

/*
 As `calloc`.

 What the caller promises:
 None.
 */
void *wakeful_calloc(size_t count, size_t size);

/*
 As `realloc`. The block goes over to where new blocks come from.

 What the caller promises:
 NULL, or a block from here.
 */
void *wakeful_realloc(void *block, size_t size);

/*
 As `aligned_alloc`; the size may be any.

 What the caller promises:
 None.
 */
void *wakeful_aligned_alloc(size_t alignment, size_t size);

/*
 As `free`.

 What the caller promises:
 NULL, or a block from here, not used afterwards.
 */
void wakeful_free(void *block);

/*
 Hears from now on where the servers of this library's locks run. None of its locks has a server today:
 programs with servers of their own call `wakeful_server_is_on`. A server counts as on a node if its
 thread may run on that node's processors only. For the beginning of `main`. Returns 0.
 */
int wakeful_follow_servers(void);

/*
 For a program that has servers of its own: the one of this address runs on this node now. Negative:
 nobody knows on which, or on several. Returns when the blocks have moved. A preloaded `malloc` does not
 hear of it.

 What the caller promises:
 None: only the address is used.
 */
void wakeful_server_is_on(const void *server,
                          int node);

/*
 That server has ended.

 What the caller promises:
 As above.
 */
void wakeful_server_ends(const void *server);

/*
 Says what `wakeful_malloc` does.

 What the caller promises:
 Room for a report.
 */
void wakeful_memory_report(wakeful_report *report);

/*
 Looks where the pages of a range of memory are.

 What the caller promises:
 Room for an answer. The range may be any.
 */
void wakeful_memory_look(const void *at, size_t size, uint32_t node, wakeful_pages *pages);

/*
 A heap of a node. NULL if there is no memory for one, or if there are 64 already. Where the kernel
 refuses to bind memory, the heap has none of the node's: see `wakeful_heap_bound`.
 */
wakeful_heap *wakeful_heap_create(uint32_t node);

/*
 Returns 0, or why the heap is not bound to its node: EPERM in many containers, ENOSYS if the kernel knows
 no nodes, EINVAL if there is no such node or the program may not have its memory.

 What the caller promises:
 A heap.
 */
int wakeful_heap_bound(const wakeful_heap *heap);

/*
 Ends a heap and all its blocks. NULL: does nothing.

 What the caller promises:
 A heap, not used afterwards.
 */
void wakeful_heap_destroy(wakeful_heap *heap);

/*
 As `aligned_alloc`; the size may be any. 1: as `malloc`.

 What the caller promises:
 A heap.
 */
void *wakeful_heap_alloc(const wakeful_heap *heap, size_t alignment, size_t size);

/*
 As `calloc`.

 What the caller promises:
 A heap.
 */
void *wakeful_heap_calloc(const wakeful_heap *heap, size_t count, size_t size);

/*
 As `realloc`.

 What the caller promises:
 A heap; NULL, or a block of it.
 */
void *wakeful_heap_realloc(const wakeful_heap *heap, void *block, size_t size);

/*
 As `free`.

 What the caller promises:
 A heap; NULL, or a block of it, not used afterwards.
 */
void wakeful_heap_free(const wakeful_heap *heap, void *block);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WAKEFUL_H */
