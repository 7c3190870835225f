// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions around the C library's own: each tries, and writes events only if somebody waits; see lib.rs.
// It is C, because thread cancellation unwinds through some of them, and for the caller's address.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sample.h"
#include "tell.h"

#define FUNCTIONS(each) \
	each(mutex_lock, "pthread_mutex_lock", (pthread_mutex_t *)) \
	each(mutex_trylock, "pthread_mutex_trylock", (pthread_mutex_t *)) \
	each(mutex_timedlock, "pthread_mutex_timedlock", (pthread_mutex_t *, const struct timespec *)) \
	each(mutex_clocklock, "pthread_mutex_clocklock", (pthread_mutex_t *, clockid_t, const struct timespec *)) \
	each(mutex_unlock, "pthread_mutex_unlock", (pthread_mutex_t *)) \
	each(spin_lock, "pthread_spin_lock", (pthread_spinlock_t *)) \
	each(spin_trylock, "pthread_spin_trylock", (pthread_spinlock_t *)) \
	each(spin_unlock, "pthread_spin_unlock", (pthread_spinlock_t *)) \
	each(rdlock, "pthread_rwlock_rdlock", (pthread_rwlock_t *)) \
	each(wrlock, "pthread_rwlock_wrlock", (pthread_rwlock_t *)) \
	each(tryrdlock, "pthread_rwlock_tryrdlock", (pthread_rwlock_t *)) \
	each(trywrlock, "pthread_rwlock_trywrlock", (pthread_rwlock_t *)) \
	each(timedrdlock, "pthread_rwlock_timedrdlock", (pthread_rwlock_t *, const struct timespec *)) \
	each(timedwrlock, "pthread_rwlock_timedwrlock", (pthread_rwlock_t *, const struct timespec *)) \
	each(clockrdlock, "pthread_rwlock_clockrdlock", \
	     (pthread_rwlock_t *, clockid_t, const struct timespec *)) \
	each(clockwrlock, "pthread_rwlock_clockwrlock", \
	     (pthread_rwlock_t *, clockid_t, const struct timespec *)) \
	each(rwlock_unlock, "pthread_rwlock_unlock", (pthread_rwlock_t *)) \
	each(cond_wait, "pthread_cond_wait", (pthread_cond_t *, pthread_mutex_t *)) \
	each(cond_timedwait, "pthread_cond_timedwait", \
	     (pthread_cond_t *, pthread_mutex_t *, const struct timespec *)) \
	each(cond_clockwait, "pthread_cond_clockwait", \
	     (pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *)) \
	each(cond_signal, "pthread_cond_signal", (pthread_cond_t *)) \
	each(cond_broadcast, "pthread_cond_broadcast", (pthread_cond_t *)) \
	each(barrier_wait, "pthread_barrier_wait", (pthread_barrier_t *)) \
	each(sem_wait, "sem_wait", (sem_t *)) \
	each(sem_timedwait, "sem_timedwait", (sem_t *, const struct timespec *)) \
	each(sem_clockwait, "sem_clockwait", (sem_t *, clockid_t, const struct timespec *)) \
	each(sem_post, "sem_post", (sem_t *))

#define DECLARE(name, symbol, arguments) static int(*real_##name) arguments;
FUNCTIONS(DECLARE)

COLD void resolve(void)
{
#define RESOLVE(name, symbol, arguments) \
	__atomic_store_n((void **)&real_##name, dlsym(RTLD_NEXT, symbol), __ATOMIC_RELAXED);
	FUNCTIONS(RESOLVE)
}

// Another library's constructor may come before ours.
#define REAL(name) (__builtin_expect(!real_##name, 0) ? (resolve(), real_##name) : real_##name)

int wakeful_profile_on;
struct marks wakeful_profile_marks;

// **The plain mutex.** Where the mutexes are the C library's, a plain one is taken and released here, by its
// words: they are as they have been since 2.0, and `begin` looks whether they still are. A call less pays for
// the look into the table. A thread that finds it taken waits in the C library, as ever.
// The C library's number of a thread, for the word that says who has a mutex. A child has another one.
static __thread __attribute__((tls_model("initial-exec"))) int own_number;

COLD int ask_number(void)
{
	own_number = (int)syscall(SYS_gettid);
	return own_number;
}

static void forget_number(void)
{
	own_number = 0;
}

// The kind of a mutex of which the C library only knows whether it is taken; 512 forbids lock elision.
static inline int is_plain_mutex(int on, pthread_mutex_t *mutex)
{
	return __builtin_expect(on == ON_PLAIN && (mutex->__data.__kind & ~512) == 0, 1);
}

static int has_words(pthread_mutex_t *mutex, int lock, int owner, unsigned users)
{
	return mutex->__data.__lock == lock && mutex->__data.__owner == owner && mutex->__data.__nusers == users &&
	       mutex->__data.__count == 0 && mutex->__data.__kind == 0;
}

COLD int knows_mutex(void)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	int result;

	if (real_mutex_lock(&mutex))
		return 0;
	result = has_words(&mutex, 1, ask_number(), 1);
	real_mutex_unlock(&mutex);
	return result && has_words(&mutex, 0, 0, 0) && !pthread_atfork(0, 0, forget_number);
}

static inline int take_plain(pthread_mutex_t *mutex)
{
	int number = own_number, is_free = 0;

	if (!__atomic_compare_exchange_n(&mutex->__data.__lock, &is_free, 1, 0, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		return 0;
	__atomic_store_n(&mutex->__data.__owner, __builtin_expect(number != 0, 1) ? number : ask_number(),
			 __ATOMIC_RELAXED);
	mutex->__data.__nusers++;
	mutex->__data.__count++;
	return 1;
}

// Whoever has a plain mutex counts how often it was taken, where a recursive one has its depth. `more`: the C
// library has taken it just now. 0: nobody counts.
static uint32_t taken(pthread_mutex_t *mutex, uint32_t more)
{
	int on = __atomic_load_n(&wakeful_profile_on, __ATOMIC_RELAXED);

	return is_plain_mutex(on, mutex) ? mutex->__data.__count += more : 0;
}

// **The interposer's.** The same of its plain mutex on the default algorithm, whose word has the holder's
// stamp: see A1 and R1 in sync/src/mutex/wakeful.rs. `begin` looks whether the words are as we think.
#ifdef __SEG_FS
// The twin of `Words` in preload/src/words.rs.
static struct {
	intptr_t stamp, held, yields;
	const unsigned char *choice;
	// The stamp's bits that name the holder.
	uint32_t owner;
} words;

#define OWN_WORD(type, at) (*(volatile type __seg_fs *)(uintptr_t)words.at)

static inline int is_wakeful_mutex(int on, pthread_mutex_t *mutex)
{
	const unsigned char *kind = (const unsigned char *)&mutex->__data.__kind;

	return on == ON_WAKEFUL &&
	       (__atomic_load_n(kind, __ATOMIC_RELAXED) | __atomic_load_n(words.choice, __ATOMIC_RELAXED)) == 0;
}

static inline int take_wakeful(pthread_mutex_t *mutex)
{
	uint32_t stamp = OWN_WORD(uint32_t, stamp), is_free = stamp & ~words.owner;

	if (!__atomic_compare_exchange_n((uint32_t *)&mutex->__data.__lock, &is_free, stamp | 1, 0,
					 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return 0;
	OWN_WORD(uintptr_t, held) = (uintptr_t)mutex;
	return 1;
}

// R1 of a word that is as the stamp says. Of any other the interposer does it.
static inline int release_wakeful(pthread_mutex_t *mutex)
{
	uint32_t stamp = OWN_WORD(uint32_t, stamp), taken = stamp | 1;

	OWN_WORD(uintptr_t, held) = 0;
	return __atomic_compare_exchange_n((uint32_t *)&mutex->__data.__lock, &taken, stamp & ~words.owner, 0,
					   __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static inline int yields_at(pthread_mutex_t *mutex)
{
	return OWN_WORD(uintptr_t, yields) == (uintptr_t)mutex;
}

COLD int knows_wakeful_mutex(void)
{
	int (*fill)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "wakeful_preload_words_1");
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	uint32_t stamp;
	int result;

	if (!fill || !fill(&words) || real_mutex_lock(&mutex))
		return 0;
	stamp = OWN_WORD(uint32_t, stamp);
	result = (uint32_t)mutex.__data.__lock == (stamp | 1) && OWN_WORD(uintptr_t, held) == (uintptr_t)&mutex;
	real_mutex_unlock(&mutex);
	result &= (uint32_t)mutex.__data.__lock == (stamp & ~words.owner) && OWN_WORD(uintptr_t, held) == 0;
	if (!result || __atomic_load_n(words.choice, __ATOMIC_RELAXED) || !take_wakeful(&mutex))
		return 0;
	result = real_mutex_trylock(&mutex) == EBUSY;
	return release_wakeful(&mutex) && result;
}
#else
static inline int is_wakeful_mutex(int on, pthread_mutex_t *mutex) { return (void)on, (void)mutex, 0; }
static inline int take_wakeful(pthread_mutex_t *mutex) { return (void)mutex, 0; }
static inline int release_wakeful(pthread_mutex_t *mutex) { return (void)mutex, 0; }
static inline int yields_at(pthread_mutex_t *mutex) { return (void)mutex, 0; }
static int knows_wakeful_mutex(void) { return 0; }
#endif

COLD void wake_one(int *word)
{
	int before = errno;

	syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
	errno = before;
}

static inline void release_plain(pthread_mutex_t *mutex)
{
	int *word = &mutex->__data.__lock;

	__atomic_store_n(&mutex->__data.__owner, 0, __ATOMIC_RELAXED);
	mutex->__data.__nusers--;
	// It may be gone by then: the kernel is told an address alone.
	if (__builtin_expect(__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) > 1, 0))
		wake_one(word);
}

static __attribute__((constructor)) void begin(void)
{
	int is_attached;

	resolve();
	is_attached = wakeful_profile_attach();
#ifdef MADV_WIPEONFORK
	// In a child nobody waits: its only thread has called fork. With the marks of the others, each lock would
	// write events there, which is all that happens without this.
	if (is_attached)
		(void)madvise(&wakeful_profile_marks, sizeof wakeful_profile_marks, MADV_WIPEONFORK);
#endif
	// ORDER: Release, pairs with the Acquire in ON; publishes the functions.
	__atomic_store_n(&wakeful_profile_on,
			 !is_attached ? 0 : knows_mutex() ? ON_PLAIN : knows_wakeful_mutex() ? ON_WAKEFUL : 1,
			 __ATOMIC_RELEASE);
}

// The condition variable from which the thread has come, woken, if it has not released a mutex or signalled
// since.
static __thread __attribute__((tls_model("initial-exec"))) pthread_cond_t *woken;

// A store more would have to be over before the lock's word is written.
static inline void has_done_something(void)
{
	if (__builtin_expect(woken != 0, 0))
		woken = 0;
}

static int succeeded(int result)
{
	return result == 0 || result == EOWNERDEAD;
}

COLD void took(uint32_t class, uint32_t number, const volatile void *object)
{
	wakeful_profile_took(TOOK | class, number, (uintptr_t)object, &place(object)->holder);
}

COLD int took_mutex(pthread_mutex_t *mutex)
{
	took(MUTEX, taken(mutex, 0), mutex);
	return 0;
}

COLD void released(uint32_t class, uint32_t number, const volatile void *object)
{
	wakeful_profile_released(RELEASED | class, number, (uintptr_t)object);
}

static inline void may_tell(uint32_t class, uint32_t number, const volatile void *object)
{
	if (is_waited_for(object))
		took(class, number, object);
}

static inline int took_if(uint32_t class, int result, const volatile void *object)
{
	if (succeeded(result))
		may_tell(class, 0, object);
	return result;
}

// Around the wait itself. Each thread that takes or releases the lock from the first line on says so. Whoever
// has it then evaluates `number`, once.
#define WAITING(class, owner, object, caller, call, number) \
	do { \
		struct place *mark = place(object); \
		uint64_t untold_ns = untold_from(); \
		int result; \
		if (untold_ns) { \
			result = call; \
			if (succeeded(result)) \
				may_tell(class, number, object); \
			return left_out(untold_ns, class, result, object, caller); \
		} \
		__atomic_fetch_add(&mark->waiting, 1, __ATOMIC_SEQ_CST); \
		__atomic_store_n(&mark->holder, 0, __ATOMIC_RELAXED); \
		note(WAIT | class, (uint32_t)(owner), object, caller); \
		result = call; \
		if (succeeded(result)) \
			__atomic_store_n(&mark->holder, note(GOT | class, number, object, caller), \
					 __ATOMIC_RELAXED); \
		else \
			note(GAVE_UP | class, 0, object, caller); \
		__atomic_fetch_sub(&mark->waiting, 1, __ATOMIC_RELAXED); \
		return result; \
	} while (0)

// May other processes use it? They have a table of their own, and tell nothing.
static uint32_t shared(pthread_mutex_t *mutex)
{
	return mutex->__data.__kind & 128 ? SHARED : 0;
}

static uint32_t shared_barrier(pthread_barrier_t *barrier)
{
	const uint32_t *words = (const uint32_t *)barrier;

	// The C library's fourth word; the last one is zero, unless the barrier is the interposer's.
	return words[3] == 128 && !words[7] ? SHARED : 0;
}

static uint32_t owner(pthread_mutex_t *mutex)
{
	if (shared(mutex))
		return 0;
	return (uint32_t)__atomic_load_n(&mutex->__data.__owner, __ATOMIC_RELAXED);
}

COLD int wait_mutex(pthread_mutex_t *mutex, uintptr_t caller)
{
	WAITING(MUTEX | shared(mutex), owner(mutex), mutex, caller, real_mutex_lock(mutex), taken(mutex, 1));
}

COLD int wait_mutex_until(pthread_mutex_t *mutex, const struct timespec *time, uintptr_t caller)
{
	WAITING(MUTEX | shared(mutex), owner(mutex), mutex, caller, real_mutex_timedlock(mutex, time),
		taken(mutex, 1));
}

COLD int wait_mutex_clock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *time,
			  uintptr_t caller)
{
	WAITING(MUTEX | shared(mutex), owner(mutex), mutex, caller,
		real_mutex_clocklock(mutex, clock, time), taken(mutex, 1));
}

// The holder of a recursive mutex may take it again: nothing changes by that.
COLD int is_taken_again(pthread_mutex_t *mutex)
{
	return (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE && mutex->__data.__count > 1;
}

static inline int took_mutex_if(int result, pthread_mutex_t *mutex)
{
	uint32_t number = succeeded(result) ? taken(mutex, 1) : 0;

	if (is_waited_for(mutex) && succeeded(result) && !is_taken_again(mutex))
		took(MUTEX, number, mutex);
	return result;
}

// A function of its own, so that the plain mutex's path needs no room on the stack.
static __attribute__((noinline)) int lock_other(pthread_mutex_t *mutex, uintptr_t caller)
{
	int result;

	if (!ON)
		return REAL(mutex_lock)(mutex);
	result = real_mutex_trylock(mutex);
	if (__builtin_expect(result == EBUSY, 0))
		return wait_mutex(mutex, caller);
	return took_mutex_if(result, mutex);
}

HIDDEN int wakeful_mutex_lock(pthread_mutex_t *mutex)
{
	int on = __atomic_load_n(&wakeful_profile_on, __ATOMIC_ACQUIRE);

	if (is_plain_mutex(on, mutex)) {
		if (__builtin_expect(!take_plain(mutex), 0))
			return wait_mutex(mutex, CALLER);
		return is_waited_for(mutex) ? took_mutex(mutex) : 0;
	}
	if (is_wakeful_mutex(on, mutex) && take_wakeful(mutex))
		return is_waited_for(mutex) ? took_mutex(mutex) : 0;
	return lock_other(mutex, CALLER);
}

HIDDEN int wakeful_mutex_trylock(pthread_mutex_t *mutex)
{
	int result = REAL(mutex_trylock)(mutex);

	return ON ? took_mutex_if(result, mutex) : result;
}

HIDDEN int wakeful_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *time)
{
	int result;

	if (!ON)
		return REAL(mutex_timedlock)(mutex, time);
	result = real_mutex_trylock(mutex);
	if (result == EBUSY)
		return wait_mutex_until(mutex, time, CALLER);
	return took_mutex_if(result, mutex);
}

HIDDEN int wakeful_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *time)
{
	int result;

	// Another clock is an error, also where nobody has the mutex. An old C library has no such function.
	if (!REAL(mutex_clocklock))
		return ENOSYS;
	if (!ON || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC))
		return real_mutex_clocklock(mutex, clock, time);
	result = real_mutex_trylock(mutex);
	if (result == EBUSY)
		return wait_mutex_clock(mutex, clock, time, CALLER);
	return took_mutex_if(result, mutex);
}

// A recursive mutex is released by the last of its unlocks.
COLD void release_mutex(pthread_mutex_t *mutex)
{
	if (!is_taken_again(mutex))
		released(MUTEX, taken(mutex, 0), mutex);
}

static __attribute__((noinline)) int unlock_other(pthread_mutex_t *mutex)
{
	if (ON) {
		has_done_something();
		if (is_waited_for(mutex))
			release_mutex(mutex);
	}
	return REAL(mutex_unlock)(mutex);
}

COLD int unlock_told(pthread_mutex_t *mutex)
{
	released(MUTEX, taken(mutex, 0), mutex);
	return real_mutex_unlock(mutex);
}

HIDDEN int wakeful_mutex_unlock(pthread_mutex_t *mutex)
{
	int on = __atomic_load_n(&wakeful_profile_on, __ATOMIC_ACQUIRE);

	if (is_plain_mutex(on, mutex)) {
		has_done_something();
		if (is_waited_for(mutex))
			return unlock_told(mutex);
		release_plain(mutex);
		return 0;
	}
	if (is_wakeful_mutex(on, mutex) && !yields_at(mutex)) {
		has_done_something();
		if (is_waited_for(mutex))
			return unlock_told(mutex);
		return release_wakeful(mutex) ? 0 : real_mutex_unlock(mutex);
	}
	return unlock_other(mutex);
}

COLD int wait_spin(pthread_spinlock_t *lock, uintptr_t caller)
{
	WAITING(SPIN, 0, lock, caller, real_spin_lock(lock), 0);
}

HIDDEN int wakeful_spin_lock(pthread_spinlock_t *lock)
{
	int result;

	if (!ON)
		return REAL(spin_lock)(lock);
	result = real_spin_trylock(lock);
	if (__builtin_expect(result == EBUSY, 0))
		return wait_spin(lock, CALLER);
	return took_if(SPIN, result, lock);
}

HIDDEN int wakeful_spin_trylock(pthread_spinlock_t *lock)
{
	int result = REAL(spin_trylock)(lock);

	return ON ? took_if(SPIN, result, lock) : result;
}

HIDDEN int wakeful_spin_unlock(pthread_spinlock_t *lock)
{
	if (ON && is_waited_for(lock))
		released(SPIN, 0, lock);
	return REAL(spin_unlock)(lock);
}

static uint32_t shared_rwlock(pthread_rwlock_t *lock)
{
	return lock->__data.__shared ? SHARED : 0;
}

// The writer that is inside. Other locks than the C library's have something else there: the recorder takes
// no number that is no thread's.
static uint32_t writer(pthread_rwlock_t *lock)
{
	if (shared_rwlock(lock))
		return 0;
	return (uint32_t)__atomic_load_n(&lock->__data.__cur_writer, __ATOMIC_RELAXED);
}

// Readers are many, and each says when it goes.
COLD int wait_read(pthread_rwlock_t *lock, uintptr_t caller)
{
	WAITING(RWLOCK | shared_rwlock(lock), writer(lock), lock, caller, real_rdlock(lock), 0);
}

COLD int wait_write(pthread_rwlock_t *lock, uintptr_t caller)
{
	WAITING(RWLOCK | WRITER | shared_rwlock(lock), writer(lock), lock, caller, real_wrlock(lock), 0);
}

HIDDEN int wakeful_rdlock(pthread_rwlock_t *lock)
{
	int result;

	if (!ON)
		return REAL(rdlock)(lock);
	result = real_tryrdlock(lock);
	return result == EBUSY ? wait_read(lock, CALLER) : took_if(RWLOCK, result, lock);
}

HIDDEN int wakeful_wrlock(pthread_rwlock_t *lock)
{
	int result;

	if (!ON)
		return REAL(wrlock)(lock);
	result = real_trywrlock(lock);
	return result == EBUSY ? wait_write(lock, CALLER) : took_if(RWLOCK | WRITER, result, lock);
}

HIDDEN int wakeful_tryrdlock(pthread_rwlock_t *lock)
{
	int result = REAL(tryrdlock)(lock);

	return ON ? took_if(RWLOCK, result, lock) : result;
}

HIDDEN int wakeful_trywrlock(pthread_rwlock_t *lock)
{
	int result = REAL(trywrlock)(lock);

	return ON ? took_if(RWLOCK | WRITER, result, lock) : result;
}

HIDDEN int wakeful_rwlock_unlock(pthread_rwlock_t *lock)
{
	if (ON && is_waited_for(lock))
		released(RWLOCK, 0, lock);
	return REAL(rwlock_unlock)(lock);
}

COLD int wait_read_until(pthread_rwlock_t *lock, const struct timespec *time, uintptr_t caller)
{
	WAITING(RWLOCK | shared_rwlock(lock), writer(lock), lock, caller, real_timedrdlock(lock, time), 0);
}

COLD int wait_write_until(pthread_rwlock_t *lock, const struct timespec *time, uintptr_t caller)
{
	WAITING(RWLOCK | WRITER | shared_rwlock(lock), writer(lock), lock, caller,
		real_timedwrlock(lock, time), 0);
}

COLD int wait_read_clock(pthread_rwlock_t *lock, clockid_t clock, const struct timespec *time,
			 uintptr_t caller)
{
	WAITING(RWLOCK | shared_rwlock(lock), writer(lock), lock, caller,
		real_clockrdlock(lock, clock, time), 0);
}

COLD int wait_write_clock(pthread_rwlock_t *lock, clockid_t clock, const struct timespec *time,
			  uintptr_t caller)
{
	WAITING(RWLOCK | WRITER | shared_rwlock(lock), writer(lock), lock, caller,
		real_clockwrlock(lock, clock, time), 0);
}

// What is no time, or of another clock, is an error also where nobody has the lock. The C library says so.
static int is_time(clockid_t clock, const struct timespec *time)
{
	return (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC) && time && time->tv_nsec >= 0 &&
	       time->tv_nsec < 1000000000;
}

HIDDEN int wakeful_timedrdlock(pthread_rwlock_t *lock, const struct timespec *time)
{
	int result;

	if (!ON || !is_time(CLOCK_REALTIME, time))
		return REAL(timedrdlock)(lock, time);
	result = real_tryrdlock(lock);
	return result == EBUSY ? wait_read_until(lock, time, CALLER) : took_if(RWLOCK, result, lock);
}

HIDDEN int wakeful_timedwrlock(pthread_rwlock_t *lock, const struct timespec *time)
{
	int result;

	if (!ON || !is_time(CLOCK_REALTIME, time))
		return REAL(timedwrlock)(lock, time);
	result = real_trywrlock(lock);
	if (result == EBUSY)
		return wait_write_until(lock, time, CALLER);
	return took_if(RWLOCK | WRITER, result, lock);
}

// An old C library has none of the functions that name a clock.
HIDDEN int wakeful_clockrdlock(pthread_rwlock_t *lock, clockid_t clock, const struct timespec *time)
{
	int result;

	if (!REAL(clockrdlock))
		return ENOSYS;
	if (!ON || !is_time(clock, time))
		return real_clockrdlock(lock, clock, time);
	result = real_tryrdlock(lock);
	return result == EBUSY ? wait_read_clock(lock, clock, time, CALLER) : took_if(RWLOCK, result, lock);
}

HIDDEN int wakeful_clockwrlock(pthread_rwlock_t *lock, clockid_t clock, const struct timespec *time)
{
	int result;

	if (!REAL(clockwrlock))
		return ENOSYS;
	if (!ON || !is_time(clock, time))
		return real_clockwrlock(lock, clock, time);
	result = real_trywrlock(lock);
	if (result == EBUSY)
		return wait_write_clock(lock, clock, time, CALLER);
	return took_if(RWLOCK | WRITER, result, lock);
}

// The wait releases the mutex, and takes it again. A thread that waits for it meanwhile has to know.
static void before_cond(pthread_cond_t *cond, pthread_mutex_t *mutex, uintptr_t caller)
{
	if (is_waited_for(mutex))
		release_mutex(mutex);
	note(COND_WAIT | COND, woken == cond, cond, caller);
	woken = 0;
}

static int after_cond(pthread_cond_t *cond, pthread_mutex_t *mutex, uintptr_t caller, int result)
{
	uint32_t number = result == 0 || result == ETIMEDOUT ? taken(mutex, 1) : 0;

	note(COND_BACK | COND, result != 0, cond, caller);
	if (is_waited_for(mutex))
		took(MUTEX, number, mutex);
	woken = result == 0 ? cond : 0;
	return result;
}

HIDDEN int wakeful_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	if (!ON)
		return REAL(cond_wait)(cond, mutex);
	before_cond(cond, mutex, CALLER);
	return after_cond(cond, mutex, CALLER, real_cond_wait(cond, mutex));
}

HIDDEN int wakeful_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *time)
{
	if (!ON)
		return REAL(cond_timedwait)(cond, mutex, time);
	before_cond(cond, mutex, CALLER);
	return after_cond(cond, mutex, CALLER, real_cond_timedwait(cond, mutex, time));
}

HIDDEN int wakeful_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
				  const struct timespec *time)
{
	if (!REAL(cond_clockwait))
		return ENOSYS;
	if (!ON)
		return real_cond_clockwait(cond, mutex, clock, time);
	before_cond(cond, mutex, CALLER);
	return after_cond(cond, mutex, CALLER, real_cond_clockwait(cond, mutex, clock, time));
}

// A thread that signals has found something to do.
HIDDEN int wakeful_cond_signal(pthread_cond_t *cond)
{
	woken = 0;
	return REAL(cond_signal)(cond);
}

HIDDEN int wakeful_cond_broadcast(pthread_cond_t *cond)
{
	woken = 0;
	return REAL(cond_broadcast)(cond);
}

HIDDEN int wakeful_barrier_wait(pthread_barrier_t *barrier)
{
	uint64_t untold_ns;
	int result;

	if (!ON)
		return REAL(barrier_wait)(barrier);
	untold_ns = untold_round_from((const uint32_t *)barrier);
	if (untold_ns)
		return left_out(untold_ns, BARRIER, real_barrier_wait(barrier), barrier, CALLER);
	note(ARRIVED | BARRIER | shared_barrier(barrier), 0, barrier, CALLER);
	result = real_barrier_wait(barrier);
	note(LEFT | BARRIER, 0, barrier, CALLER);
	return result;
}

// Is the semaphore's value zero? Its word has the value in its lower half.
static int is_empty(sem_t *sem)
{
	return __atomic_load_n((uint32_t *)sem, __ATOMIC_RELAXED) == 0;
}

static void unmark(struct place **mark)
{
	__atomic_fetch_sub(&(*mark)->waiting, 1, __ATOMIC_RELAXED);
}

static int real_wait_sem(sem_t *sem, const clockid_t *clock, const struct timespec *time)
{
	if (clock)
		return real_sem_clockwait(sem, *clock, time);
	return time ? real_sem_timedwait(sem, time) : real_sem_wait(sem);
}

// The thread may be cancelled in here, and then it waits no more, either.
COLD int tell_wait_sem(sem_t *sem, const clockid_t *clock, const struct timespec *time, uintptr_t caller)
{
	__attribute__((cleanup(unmark))) struct place *mark = place(sem);
	int result;

	__atomic_fetch_add(&mark->waiting, 1, __ATOMIC_SEQ_CST);
	note(WAIT | SEMAPHORE, 0, sem, caller);
	result = real_wait_sem(sem, clock, time);
	note((result == 0 ? GOT : GAVE_UP) | SEMAPHORE, 0, sem, caller);
	return result;
}

COLD int wait_sem(sem_t *sem, const clockid_t *clock, const struct timespec *time, uintptr_t caller)
{
	uint64_t untold_ns = untold_from();

	if (untold_ns)
		return left_out(untold_ns, SEMAPHORE, real_wait_sem(sem, clock, time), sem, caller);
	return tell_wait_sem(sem, clock, time, caller);
}

HIDDEN int wakeful_sem_wait(sem_t *sem)
{
	if (!ON || !is_empty(sem))
		return REAL(sem_wait)(sem);
	return wait_sem(sem, 0, 0, CALLER);
}

HIDDEN int wakeful_sem_timedwait(sem_t *sem, const struct timespec *time)
{
	// Without a time it is an error of the program, which the C library handles.
	if (!ON || !time || !is_empty(sem))
		return REAL(sem_timedwait)(sem, time);
	return wait_sem(sem, 0, time, CALLER);
}

HIDDEN int wakeful_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *time)
{
	if (!REAL(sem_clockwait)) {
		errno = ENOSYS;
		return -1;
	}
	if (!ON || !is_time(clock, time) || !is_empty(sem))
		return real_sem_clockwait(sem, clock, time);
	return wait_sem(sem, &clock, time, CALLER);
}

HIDDEN int wakeful_sem_post(sem_t *sem)
{
	if (ON && is_waited_for(sem))
		released(SEMAPHORE, 0, sem);
	return REAL(sem_post)(sem);
}
