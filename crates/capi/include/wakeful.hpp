// SPDX-License-Identifier: MIT OR Apache-2.0
// User-level threads for C++17, and locks that they wait in; `delegated` for kernel threads. A layer over
// wakeful.h; link with -lwakeful.
//
// What wakeful.h says of fibers holds here. Two things are better. An exception that leaves a thread's
// function comes out of join. And a thread may wait while it handles an exception, or in a destructor that
// runs because of one, if it waits by the functions of this file. The C++ runtime keeps exceptions by kernel
// thread; these functions set them aside while other fibers run.
#ifndef WAKEFUL_HPP
#define WAKEFUL_HPP

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable> // std::cv_status
#include <cstddef>
#include <cstdint>
#include <cxxabi.h>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#if defined(__has_include) && __has_include(<version>)
#include <version>
#endif
#ifdef __cpp_lib_jthread
#include <stop_token>
#endif

#include "wakeful.h"

namespace wakeful {

// How a thread is to be: name, priority, stack_size. `attributes{}` is as without.
using attributes = wakeful_fiber_attributes;

namespace detail {

inline void check(int error, const char *what) {
    if (error != 0)
        throw std::system_error(error, std::generic_category(), what);
}

template <class Rep, class Period> std::uint64_t nanoseconds(std::chrono::duration<Rep, Period> time) {
    const std::chrono::duration<long double, std::nano> ns = time;
    if (!(ns.count() > 0))
        return 0;
    // Some 95 years at most: the sum with the time now is a number of 64 bits.
    return ns.count() < 3e18L ? static_cast<std::uint64_t>(ns.count()) : std::uint64_t{3000000000000000000};
}

template <class Clock, class Duration> auto until(std::chrono::time_point<Clock, Duration> moment) {
    const auto now = Clock::now();
    return moment > now ? moment - now : decltype(moment - now)::zero();
}

// The calling fiber's exceptions, while others run on its kernel thread. A fiber stays with that.
class set_aside {
    // As in the C++ ABI, "2.2.2 Caught Exception Stack"; the runtimes add what is 0 here.
    struct globals {
        void *caught;
        unsigned int uncaught;
    };
    globals *const place = reinterpret_cast<globals *>(abi::__cxa_get_globals());
    const globals saved = *place;

public:
    set_aside() noexcept { *place = globals{}; }
    ~set_aside() { *place = saved; }
    set_aside(const set_aside &) = delete;
    set_aside &operator=(const set_aside &) = delete;
};

// Waits by this function, which returns ECANCELED if the calling fiber was cancelled. A fiber that unwinds
// waits all the same, and is cancelled afterwards: an exception out of a destructor would end the program. If
// it is cancelled while it waits, that ends the wait.
template <class Wait> int wait_at_a_point(Wait wait) noexcept {
    const bool unwinds = std::uncaught_exceptions() > 0;
    set_aside exceptions;
    if (!unwinds)
        return wait();
    const int before = wakeful_fiber_cancelled(), error = wait();
    if (before != ECANCELED && error != ECANCELED)
        return error;
    wakeful_fiber_cancel(wakeful_fiber_self());
    return 0;
}

// What a thread and its handle share: whoever comes last frees it.
template <class R> class state {
public:
    std::exception_ptr error;
    std::optional<std::conditional_t<std::is_void_v<R>, std::monostate, R>> result;

    virtual ~state() = default;
    virtual void call() = 0;

    void release() {
        if (owners.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    static void *run(void *argument) noexcept {
        auto *it = static_cast<state *>(argument);
        try {
            it->call();
        } catch (...) {
            it->error = std::current_exception();
        }
        it->release();
        return nullptr;
    }

private:
    std::atomic<int> owners{2};
};

template <class R, class... Parts> class closure final : public state<R> {
    // The function and its arguments, until it returns.
    std::optional<std::tuple<Parts...>> parts;

public:
    template <class... Given>
    explicit closure(Given &&...given) : parts(std::in_place, std::forward<Given>(given)...) {}

    void call() override {
        struct ends {
            std::optional<std::tuple<Parts...>> &parts;
            ~ends() { parts.reset(); }
        } ends{parts};
        auto invoke = [](auto &&...parts) -> decltype(auto) { return std::invoke(std::move(parts)...); };
        if constexpr (std::is_void_v<R>) {
            static_cast<void>(std::apply(invoke, *parts));
            this->result.emplace();
        } else {
            this->result.emplace(std::apply(invoke, *parts));
        }
    }
};

} // namespace detail

// A user-level thread whose function returns an R. As std::jthread it is joined when its handle ends; what it
// returned or threw is dropped then.
template <class R> class fiber {
    detail::state<R> *state = nullptr;
    wakeful_fiber handle{};

    template <class... Parts> void start(const attributes *how, Parts &&...parts) {
        auto *fresh = new detail::closure<R, std::decay_t<Parts>...>(std::forward<Parts>(parts)...);
        detail::state<R> *base = fresh;
        int error;
        {
            detail::set_aside exceptions;
            error = wakeful_fiber_spawn(&handle, how, detail::state<R>::run, base);
        }
        if (error != 0)
            delete base;
        detail::check(error, "wakeful: a fiber could not be started");
        state = base;
    }

    int wait_for_its_end() {
        detail::set_aside exceptions;
        return wakeful_fiber_join(handle, nullptr);
    }

    detail::state<R> *wait() {
        if (state == nullptr)
            detail::check(EINVAL, "wakeful: join");
        detail::check(wait_for_its_end(), "wakeful: join");
        return std::exchange(state, nullptr);
    }

public:
    // No thread.
    fiber() noexcept = default;

    // Calls the function with copies of the arguments, as std::thread does. Throws std::system_error.
    template <class F, class... Args,
              class = std::enable_if_t<std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...> &&
                                       !std::is_same_v<std::decay_t<F>, fiber>>>
    explicit fiber(F &&function, Args &&...args) {
        start(nullptr, std::forward<F>(function), std::forward<Args>(args)...);
    }

    // The same, and how it is to be.
    template <class F, class... Args,
              class = std::enable_if_t<std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>>>
    explicit fiber(const attributes &how, F &&function, Args &&...args) {
        start(&how, std::forward<F>(function), std::forward<Args>(args)...);
    }

    fiber(fiber &&other) noexcept
        : state(std::exchange(other.state, nullptr)), handle(std::exchange(other.handle, {})) {}

    fiber &operator=(fiber &&other) noexcept {
        fiber moved(std::move(other));
        std::swap(state, moved.state);
        std::swap(handle, moved.handle);
        return *this;
    }

    ~fiber() {
        if (state == nullptr)
            return;
        // ESRCH: somebody has joined or detached it by its native_handle.
        if (int error = wait_for_its_end(); error != ESRCH)
            detail::check(error, "wakeful: join");
        state->release();
    }

    bool joinable() const noexcept { return state != nullptr; }

    // Waits for its end. Returns what its function returned, or throws what it threw. Throws
    // std::system_error if there is no thread, or it is the caller.
    R join() {
        struct owner {
            detail::state<R> *state;
            ~owner() { state->release(); }
        } owner{wait()};
        if (owner.state->error)
            std::rethrow_exception(std::exchange(owner.state->error, nullptr));
        if constexpr (!std::is_void_v<R>)
            return std::move(*owner.state->result);
    }

    // Nobody will join it.
    void detach() {
        if (state == nullptr)
            detail::check(EINVAL, "wakeful: detach");
        detail::check(wakeful_fiber_detach(handle), "wakeful: detach");
        std::exchange(state, nullptr)->release();
    }

    // Ends its this_fiber::park, or the next one.
    void unpark() noexcept { wakeful_fiber_unpark(handle); }

    // Its next this_fiber::park, park_for, sleep_for, sleep_until or cancellation_point throws
    // std::system_error with std::errc::operation_canceled, once. None of them does in a destructor that
    // unwinds: the next one after that does.
    void cancel() noexcept { wakeful_fiber_cancel(handle); }

    wakeful_fiber native_handle() const noexcept { return handle; }
};

using thread = fiber<void>;

#ifdef __cpp_lib_jthread
// As std::jthread of C++20: its function may take a std::stop_token first, and when its handle ends it is
// asked to stop, and joined, unless it was joined or detached before. What its function throws comes out of join. A std::stop_callback must not wait
// for a fiber: the library knows kernel threads alone.
class jthread {
    std::stop_source source{std::nostopstate};
    thread it;

    template <class F, class... Args>
    static thread start(std::stop_source &source, F &&function, Args &&...args) {
        if constexpr (std::is_invocable_v<std::decay_t<F>, std::stop_token, std::decay_t<Args>...>)
            return thread(std::forward<F>(function), source.get_token(), std::forward<Args>(args)...);
        else
            return thread(std::forward<F>(function), std::forward<Args>(args)...);
    }

    template <class F, class... Args>
    static constexpr bool takes = std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...> ||
                                  std::is_invocable_v<std::decay_t<F>, std::stop_token, std::decay_t<Args>...>;

public:
    jthread() noexcept = default;

    template <class F, class... Args,
              class = std::enable_if_t<takes<F, Args...> && !std::is_same_v<std::decay_t<F>, jthread>>>
    explicit jthread(F &&function, Args &&...args)
        : source(), it(start(source, std::forward<F>(function), std::forward<Args>(args)...)) {}

    jthread(jthread &&) noexcept = default;

    jthread &operator=(jthread &&other) noexcept {
        jthread moved(std::move(other));
        swap(moved);
        return *this;
    }

    // Where it was joined or detached, others may still use the source.
    ~jthread() {
        if (joinable())
            request_stop();
    }

    void swap(jthread &other) noexcept {
        std::swap(source, other.source);
        std::swap(it, other.it);
    }

    bool joinable() const noexcept { return it.joinable(); }

    void join() { it.join(); }

    void detach() { it.detach(); }

    bool request_stop() noexcept { return source.request_stop(); }

    std::stop_source get_stop_source() const noexcept { return source; }

    std::stop_token get_stop_token() const noexcept { return source.get_token(); }

    wakeful_fiber native_handle() const noexcept { return it.native_handle(); }
};
#endif

// Starts a thread whose join returns what the function does.
template <class F, class... Args>
[[nodiscard]] auto spawn(F &&function, Args &&...args)
    -> fiber<std::decay_t<std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>>> {
    using R = std::decay_t<std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>>;
    return fiber<R>(std::forward<F>(function), std::forward<Args>(args)...);
}

template <class F, class... Args>
[[nodiscard]] auto spawn(const attributes &how, F &&function, Args &&...args)
    -> fiber<std::decay_t<std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>>> {
    using R = std::decay_t<std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>>;
    return fiber<R>(how, std::forward<F>(function), std::forward<Args>(args)...);
}

// Of the calling fiber; yield and sleep also outside of fibers.
namespace this_fiber {

inline void yield() noexcept {
    detail::set_aside exceptions;
    wakeful_fiber_yield();
}

// See fiber::cancel.
inline void cancellation_point() {
    if (std::uncaught_exceptions() == 0)
        detail::check(wakeful_fiber_cancelled(), "wakeful: cancelled");
}

template <class Rep, class Period> void sleep_for(std::chrono::duration<Rep, Period> time) {
    const auto wait = [ns = detail::nanoseconds(time)] {
        wakeful_fiber_sleep(ns);
        return wakeful_fiber_cancelled();
    };
    detail::check(detail::wait_at_a_point(wait), "wakeful: cancelled");
}

template <class Clock, class Duration> void sleep_until(std::chrono::time_point<Clock, Duration> moment) {
    while (Clock::now() < moment)
        this_fiber::sleep_for(detail::until(moment));
}

// Waits for unpark, or returns for no reason. Throws std::system_error outside of fibers.
inline void park() { detail::check(detail::wait_at_a_point(wakeful_fiber_park), "wakeful: park"); }

// The same for no longer than this.
template <class Rep, class Period> void park_for(std::chrono::duration<Rep, Period> time) {
    const auto wait = [ns = detail::nanoseconds(time)] { return wakeful_fiber_park_for(ns); };
    detail::check(detail::wait_at_a_point(wait), "wakeful: park");
}

// All zero outside of fibers.
inline wakeful_fiber native_handle() noexcept { return wakeful_fiber_self(); }

} // namespace this_fiber

// For std::lock_guard, std::unique_lock and std::scoped_lock. Kernel threads may use it, too, and what
// follows. It has time limits, as std::timed_mutex.
class mutex {
    wakeful_mutex it{};

public:
    constexpr mutex() noexcept = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock() noexcept {
        if (wakeful_mutex_try_lock(&it) != 0) {
            detail::set_aside exceptions;
            wakeful_mutex_lock(&it);
        }
    }

    bool try_lock() noexcept { return wakeful_mutex_try_lock(&it) == 0; }

    template <class Rep, class Period> bool try_lock_for(std::chrono::duration<Rep, Period> time) {
        detail::set_aside exceptions;
        return wakeful_mutex_lock_for(&it, detail::nanoseconds(time)) == 0;
    }

    template <class Clock, class Duration>
    bool try_lock_until(std::chrono::time_point<Clock, Duration> moment) {
        return try_lock_for(detail::until(moment));
    }

    void unlock() noexcept { wakeful_mutex_unlock(&it); }

    using native_handle_type = wakeful_mutex *;
    native_handle_type native_handle() noexcept { return &it; }
};

using timed_mutex = mutex;

// And for std::shared_lock. Nothing here has a time limit.
class shared_mutex {
    wakeful_rwlock it{};

public:
    constexpr shared_mutex() noexcept = default;
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    void lock() noexcept {
        detail::set_aside exceptions;
        wakeful_rwlock_write(&it);
    }

    bool try_lock() noexcept { return wakeful_rwlock_try_write(&it) == 0; }

    void unlock() noexcept { wakeful_rwlock_unlock_write(&it); }

    void lock_shared() noexcept {
        detail::set_aside exceptions;
        wakeful_rwlock_read(&it);
    }

    bool try_lock_shared() noexcept { return wakeful_rwlock_try_read(&it) == 0; }

    void unlock_shared() noexcept { wakeful_rwlock_unlock_read(&it); }

    using native_handle_type = wakeful_rwlock *;
    native_handle_type native_handle() noexcept { return &it; }
};

// As std::condition_variable, except that it must not end before all waits have returned: that all were
// notified is not enough. condition_variable_any has no such limit.
class condition_variable {
    wakeful_condvar it{};

public:
    constexpr condition_variable() noexcept = default;
    condition_variable(const condition_variable &) = delete;
    condition_variable &operator=(const condition_variable &) = delete;

    void notify_one() noexcept { wakeful_condvar_signal(&it); }

    void notify_all() noexcept { wakeful_condvar_broadcast(&it); }

    void wait(std::unique_lock<mutex> &lock) noexcept {
        detail::set_aside exceptions;
        wakeful_condvar_wait(&it, lock.mutex()->native_handle());
    }

    template <class Predicate> void wait(std::unique_lock<mutex> &lock, Predicate predicate) {
        while (!predicate())
            wait(lock);
    }

    template <class Rep, class Period>
    std::cv_status wait_for(std::unique_lock<mutex> &lock, std::chrono::duration<Rep, Period> time) {
        detail::set_aside exceptions;
        int error = wakeful_condvar_wait_for(&it, lock.mutex()->native_handle(), detail::nanoseconds(time));
        return error == 0 ? std::cv_status::no_timeout : std::cv_status::timeout;
    }

    template <class Rep, class Period, class Predicate>
    bool wait_for(std::unique_lock<mutex> &lock, std::chrono::duration<Rep, Period> time,
                  Predicate predicate) {
        using clock = std::chrono::steady_clock;
        const auto end = clock::now() + std::chrono::nanoseconds(detail::nanoseconds(time));
        while (!predicate()) {
            const auto now = clock::now();
            if (now >= end)
                return false;
            wait_for(lock, end - now);
        }
        return true;
    }

    template <class Clock, class Duration>
    std::cv_status wait_until(std::unique_lock<mutex> &lock,
                              std::chrono::time_point<Clock, Duration> moment) {
        // A clock that was set back meanwhile is not there yet.
        const bool over = wait_for(lock, detail::until(moment)) == std::cv_status::timeout &&
                          Clock::now() >= moment;
        return over ? std::cv_status::timeout : std::cv_status::no_timeout;
    }

    template <class Clock, class Duration, class Predicate>
    bool wait_until(std::unique_lock<mutex> &lock, std::chrono::time_point<Clock, Duration> moment,
                    Predicate predicate) {
        while (!predicate())
            if (wait_until(lock, moment) == std::cv_status::timeout)
                return predicate();
        return true;
    }

    using native_handle_type = wakeful_condvar *;
    native_handle_type native_handle() noexcept { return &it; }
};

// As std::condition_variable_any: for any lock. As of that, it may end as soon as all were notified.
class condition_variable_any {
    struct inside {
        mutex lock;
        condition_variable changed;
    };
    // Waiters own it, too: they touch it after they were notified.
    std::shared_ptr<inside> it = std::make_shared<inside>();

    template <class Lock> class unlocked {
        Lock &lock;

    public:
        explicit unlocked(Lock &lock) : lock(lock) { lock.unlock(); }
        // As the standard says: what `lock` throws here ends the program.
        ~unlocked() { lock.lock(); }
        unlocked(const unlocked &) = delete;
        unlocked &operator=(const unlocked &) = delete;
    };

    // Whoever notifies takes our mutex. So nobody is notified between `held` and the wait.
    template <class Lock, class Wait>
    static auto sleep(inside &it, std::unique_lock<mutex> &held, Lock &lock, Wait wait) {
        unlocked<Lock> meanwhile(lock);
        // It ends before `lock` is taken again: no thread waits for that while it has this.
        std::unique_lock<mutex> own(std::move(held));
        return wait(it.changed, own);
    }

    template <class Lock, class Wait> auto sleep(Lock &lock, Wait wait) {
        const std::shared_ptr<inside> mine = it;
        std::unique_lock<mutex> held(mine->lock);
        return sleep(*mine, held, lock, wait);
    }

public:
    condition_variable_any() = default;
    condition_variable_any(const condition_variable_any &) = delete;
    condition_variable_any &operator=(const condition_variable_any &) = delete;

    void notify_one() noexcept {
        std::lock_guard<mutex> held(it->lock);
        it->changed.notify_one();
    }

    void notify_all() noexcept {
        std::lock_guard<mutex> held(it->lock);
        it->changed.notify_all();
    }

    template <class Lock> void wait(Lock &lock) {
        sleep(lock, [](auto &changed, auto &own) { changed.wait(own); });
    }

    template <class Lock, class Predicate> void wait(Lock &lock, Predicate predicate) {
        while (!predicate())
            wait(lock);
    }

    template <class Lock, class Clock, class Duration>
    std::cv_status wait_until(Lock &lock, std::chrono::time_point<Clock, Duration> moment) {
        return sleep(lock, [&](auto &changed, auto &own) { return changed.wait_until(own, moment); });
    }

    template <class Lock, class Clock, class Duration, class Predicate>
    bool wait_until(Lock &lock, std::chrono::time_point<Clock, Duration> moment, Predicate predicate) {
        while (!predicate())
            if (wait_until(lock, moment) == std::cv_status::timeout)
                return predicate();
        return true;
    }

    template <class Lock, class Rep, class Period>
    std::cv_status wait_for(Lock &lock, std::chrono::duration<Rep, Period> time) {
        return sleep(lock, [&](auto &changed, auto &own) { return changed.wait_for(own, time); });
    }

    template <class Lock, class Rep, class Period, class Predicate>
    bool wait_for(Lock &lock, std::chrono::duration<Rep, Period> time, Predicate predicate) {
        const auto length = std::chrono::nanoseconds(detail::nanoseconds(time));
        return wait_until(lock, std::chrono::steady_clock::now() + length, std::move(predicate));
    }

#ifdef __cpp_lib_jthread
    // The same, until somebody asks to stop. True if the predicate is, whatever ended the wait.
    template <class Lock, class Predicate>
    bool wait(Lock &lock, std::stop_token stop, Predicate predicate) {
        return wait_until_stopped(lock, stop, predicate, [](auto &changed, auto &own) {
            changed.wait(own);
            return std::cv_status::no_timeout;
        });
    }

    template <class Lock, class Clock, class Duration, class Predicate>
    bool wait_until(Lock &lock, std::stop_token stop, std::chrono::time_point<Clock, Duration> moment,
                    Predicate predicate) {
        return wait_until_stopped(lock, stop, predicate, [&](auto &changed, auto &own) {
            return changed.wait_until(own, moment);
        });
    }

    template <class Lock, class Rep, class Period, class Predicate>
    bool wait_for(Lock &lock, std::stop_token stop, std::chrono::duration<Rep, Period> time,
                  Predicate predicate) {
        const auto length = std::chrono::nanoseconds(detail::nanoseconds(time));
        return wait_until(lock, std::move(stop), std::chrono::steady_clock::now() + length,
                          std::move(predicate));
    }

private:
    template <class Lock, class Predicate, class Wait>
    bool wait_until_stopped(Lock &lock, std::stop_token &stop, Predicate &predicate, Wait wait) {
        const std::shared_ptr<inside> mine = it;
        // It may wait for the mutex as a fiber. The library takes that for its end, if the waiter is on the
        // same kernel thread: then `wake` ends meanwhile.
        std::stop_callback wake(stop, [mine] {
            const std::shared_ptr<inside> own = mine;
            std::lock_guard<mutex> held(own->lock);
            own->changed.notify_all();
        });
        while (!predicate()) {
            std::unique_lock<mutex> held(mine->lock);
            // Under the mutex that `wake` takes: it does not come between this and the wait.
            if (stop.stop_requested())
                return false;
            if (sleep(*mine, held, lock, wait) == std::cv_status::timeout)
                return predicate();
        }
        return true;
    }
#endif
};

// As std::counting_semaphore of C++20. Throws std::system_error for more than max() permits.
template <std::ptrdiff_t LeastMax = (1 << 30) - 1> class counting_semaphore {
    static_assert(0 <= LeastMax && LeastMax < (1 << 30), "so many permits fit in a semaphore");
    wakeful_semaphore it{};

public:
    static constexpr std::ptrdiff_t max() noexcept { return (1 << 30) - 1; }

    explicit counting_semaphore(std::ptrdiff_t permits) {
        const bool fits = 0 <= permits && permits <= max();
        detail::check(fits ? wakeful_semaphore_init(&it, static_cast<std::uint32_t>(permits)) : EINVAL,
                      "wakeful: permits of a semaphore");
    }
    counting_semaphore(const counting_semaphore &) = delete;
    counting_semaphore &operator=(const counting_semaphore &) = delete;

    void acquire() noexcept {
        if (wakeful_semaphore_try_acquire(&it) != 0) {
            detail::set_aside exceptions;
            wakeful_semaphore_acquire(&it);
        }
    }

    bool try_acquire() noexcept { return wakeful_semaphore_try_acquire(&it) == 0; }

    template <class Rep, class Period> bool try_acquire_for(std::chrono::duration<Rep, Period> time) {
        detail::set_aside exceptions;
        return wakeful_semaphore_acquire_for(&it, detail::nanoseconds(time)) == 0;
    }

    template <class Clock, class Duration>
    bool try_acquire_until(std::chrono::time_point<Clock, Duration> moment) {
        return try_acquire_for(detail::until(moment));
    }

    void release(std::ptrdiff_t permits = 1) {
        for (; permits > 0; permits--)
            detail::check(wakeful_semaphore_release(&it), "wakeful: permits of a semaphore");
    }
};

using binary_semaphore = counting_semaphore<1>;

namespace detail {
struct nothing {
    void operator()() const noexcept {}
};
} // namespace detail

// As std::barrier of C++20: the last to arrive calls `completion`, and then all go on. Where nothing but
// waiting is needed, and nobody drops out, wakeful_barrier of wakeful.h is quicker.
template <class Completion = detail::nothing> class barrier {
    static_assert(std::is_nothrow_invocable_v<Completion &>, "a completion that throws helps nobody");
    mutex lock;
    condition_variable passed;
    std::ptrdiff_t expected;
    // Who has yet to arrive in this phase.
    std::ptrdiff_t missing;
    std::uint64_t phase = 0;
    Completion completion;

    // With the mutex.
    std::uint64_t arrived(std::ptrdiff_t count) {
        const std::uint64_t mine = phase;
        if ((missing -= count) == 0) {
            completion();
            missing = expected;
            phase++;
            passed.notify_all();
        }
        return mine;
    }

public:
    class arrival_token {
        std::uint64_t phase;
        explicit arrival_token(std::uint64_t phase) noexcept : phase(phase) {}
        friend class barrier;
    };

    static constexpr std::ptrdiff_t max() noexcept { return PTRDIFF_MAX; }

    explicit barrier(std::ptrdiff_t parties, Completion completion = Completion())
        : expected(parties), missing(parties), completion(std::move(completion)) {}
    barrier(const barrier &) = delete;
    barrier &operator=(const barrier &) = delete;

    [[nodiscard]] arrival_token arrive(std::ptrdiff_t count = 1) {
        std::lock_guard<mutex> held(lock);
        return arrival_token(arrived(count));
    }

    // Returns when the phase of the token is over.
    void wait(arrival_token &&token) {
        std::unique_lock<mutex> held(lock);
        passed.wait(held, [&] { return phase != token.phase; });
    }

    void arrive_and_wait() {
        std::unique_lock<mutex> held(lock);
        const std::uint64_t mine = arrived(1);
        passed.wait(held, [&] { return phase != mine; });
    }

    // Arrives, and is not expected any more.
    void arrive_and_drop() {
        std::lock_guard<mutex> held(lock);
        expected--;
        static_cast<void>(arrived(1));
    }
};

// A T that each fiber makes for itself at its first use, and that ends with the fiber. A static object:
// `static wakeful::local<int> count;`. Throws std::system_error outside of fibers.
template <class T> class local {
    wakeful_local key{[](void *value) { delete static_cast<T *>(value); }};

public:
    constexpr local() noexcept = default;
    local(const local &) = delete;
    local &operator=(const local &) = delete;

    T &operator*() const {
        if (void *found = wakeful_local_get(&key))
            return *static_cast<T *>(found);
        auto *fresh = new T();
        if (int error = wakeful_local_set(&key, fresh)) {
            delete fresh;
            detail::check(error, "wakeful: local");
        }
        return *fresh;
    }

    T *operator->() const { return &**this; }
};

// Threads that run the sections of all `delegated` that are made with it, and keep their data in cache. See
// wakeful_rcl_server. A processor: its threads stay there. Its threads end with the last of it and its locks.
class rcl_server {
    wakeful_rcl_server *it = nullptr;
    template <class> friend class delegated;

public:
    explicit rcl_server(int processor = -1) {
        detail::check(wakeful_rcl_server_start(&it, processor), "wakeful: rcl_server");
    }
    ~rcl_server() { wakeful_rcl_server_stop(it); }
    rcl_server(const rcl_server &) = delete;
    rcl_server &operator=(const rcl_server &) = delete;
};

// Data that one section at a time works on, on whichever kernel thread that is best:
//
//     wakeful::delegated<std::map<int, int>> counts;
//     int n = counts.run([&](auto &counts) { return ++counts[key]; });
//
// or on a server's: `wakeful::rcl_server server; wakeful::delegated<int> number(server, 1);`.
//
// What a section throws comes out of `run`, in the thread that called. Where it runs, no other exception is
// being handled or under way.
//
// The rule: a section may run on another thread than the one that called. So nothing in it may depend on the
// thread: no thread_local variable, errno, thread id, credentials, signal mask or scheduling policy. It must
// not use a lock that its caller holds, and not come to its own `delegated` again. It must not wait for what
// another thread has yet to do, except that a section ends, or a lock is released which all take in the same
// order. It must not end its thread: pthread_exit there ends the program. It should be short, and not fork.
// It is not cancelled, and its caller only after it.
//
// An existing pair of lock and unlock is not delegated by itself: what lies between would have to run on its
// caller's stack. `lock` takes such a pair as it is, beside sections.
template <class T> class delegated {
    mutable wakeful_delegated it{};
    T data;

    template <class F> using result_of = std::invoke_result_t<F, T &>;

    // A section on its way to the thread that runs it.
    template <class F> struct request {
        using R = result_of<F>;
        static_assert(!std::is_reference_v<R>, "nothing of the data leaves a section by reference");

        std::remove_reference_t<F> *section;
        T *data;
        std::exception_ptr error{};
        std::optional<std::conditional_t<std::is_void_v<R>, std::monostate, R>> result{};

        static std::uint64_t run(void *pointer, std::uint64_t, std::uint64_t) noexcept {
            auto *it = static_cast<request *>(pointer);
            detail::set_aside exceptions;
            try {
                if constexpr (std::is_void_v<R>) {
                    std::invoke(std::forward<F>(*it->section), *it->data);
                    it->result.emplace();
                } else {
                    it->result.emplace(std::invoke(std::forward<F>(*it->section), *it->data));
                }
            } catch (...) {
                it->error = std::current_exception();
            }
            return 0;
        }

        void check() {
            if (error)
                std::rethrow_exception(std::exchange(error, nullptr));
        }
    };

    // The same, with a condition. What that throws ends the wait, and the section does not run.
    template <class C, class F> struct conditional : request<F> {
        std::remove_reference_t<C> *condition;

        conditional(std::remove_reference_t<C> *condition, std::remove_reference_t<F> *section, T *data)
            : request<F>{section, data}, condition(condition) {}

        static bool holds(void *pointer, std::uint64_t, std::uint64_t) noexcept {
            auto *it = static_cast<conditional *>(pointer);
            detail::set_aside exceptions;
            try {
                return static_cast<bool>(std::invoke(*it->condition, *it->data));
            } catch (...) {
                it->error = std::current_exception();
                return true;
            }
        }

        static std::uint64_t run_unless_thrown(void *pointer, std::uint64_t, std::uint64_t) noexcept {
            auto *it = static_cast<conditional *>(pointer);
            return it->error ? 0 : request<F>::run(static_cast<request<F> *>(it), 0, 0);
        }
    };

public:
    // Holds a `delegated` until it ends: no section runs meanwhile. For the thread that made it.
    class guard {
        delegated &of;

    public:
        explicit guard(delegated &of) noexcept : of(of) { wakeful_delegated_lock(&of.it); }
        ~guard() { wakeful_delegated_unlock(&of.it); }
        guard(const guard &) = delete;
        guard &operator=(const guard &) = delete;

        T &operator*() const noexcept { return of.data; }
        T *operator->() const noexcept { return &of.data; }
    };

    // Its data are made of these.
    template <class... Args,
              class = std::enable_if_t<std::is_constructible_v<T, Args...> &&
                                       !(std::is_same_v<std::decay_t<Args>, delegated> || ...)>>
    explicit delegated(Args &&...args) : data(std::forward<Args>(args)...) {}
    // The server runs its sections.
    template <class... Args, class = std::enable_if_t<std::is_constructible_v<T, Args...>>>
    explicit delegated(rcl_server &server, Args &&...args) : data(std::forward<Args>(args)...) {
        wakeful_delegated_init(&it, server.it);
    }
    ~delegated() { wakeful_delegated_destroy(&it); }
    delegated(const delegated &) = delete;
    delegated &operator=(const delegated &) = delete;

    // Something changed in the data of a `delegated`, for those who wait for that.
    class change {
        wakeful_delegated_change it{};
        friend class delegated;

    public:
        change() = default;
        change(const change &) = delete;
        change &operator=(const change &) = delete;

        void notify_one() noexcept { wakeful_delegated_changed(&it, 0); }
        void notify_all() noexcept { wakeful_delegated_changed(&it, 1); }
    };

    // Returns what the section returns, or throws what it throws.
    template <class F> auto run(F &&section) -> result_of<F> {
        request<F> asked{std::addressof(section), std::addressof(data)};
        wakeful_delegated_run(&it, request<F>::run, &asked, 0, 0);
        asked.check();
        if constexpr (!std::is_void_v<result_of<F>>)
            return std::move(*asked.result);
    }

    // The same, unless the section has not begun within this time: then it has not run and will not, and the
    // optional is empty. It is an optional<monostate> if the section returns nothing.
    template <class Rep, class Period, class F>
    auto try_run_for(std::chrono::duration<Rep, Period> time, F &&section) -> decltype(request<F>::result) {
        request<F> asked{std::addressof(section), std::addressof(data)};
        const auto ns = detail::nanoseconds(time);
        wakeful_delegated_run_for(&it, ns, request<F>::run, &asked, 0, 0, nullptr);
        asked.check();
        return std::move(asked.result);
    }

    template <class Clock, class Duration, class F>
    auto try_run_until(std::chrono::time_point<Clock, Duration> moment, F &&section) {
        return try_run_for(detail::until(moment), std::forward<F>(section));
    }

    // Runs the section as soon as `condition(data)` is true, in the same turn. Until then the caller sleeps,
    // and no thread that runs sections. A thread that changes the data notifies `changed`, in the section or
    // afterwards. The condition is asked in sections, after each notification and now and then besides.
    template <class C, class F> auto run_when(change &changed, C &&condition, F &&section) -> result_of<F> {
        using asked_for = conditional<C, F>;
        asked_for asked(std::addressof(condition), std::addressof(section), std::addressof(data));
        wakeful_delegated_run_when(&it, &changed.it, asked_for::holds, asked_for::run_unless_thrown, &asked, 0,
                                   0);
        asked.check();
        if constexpr (!std::is_void_v<result_of<F>>)
            return std::move(*asked.result);
    }

    // The same, unless the condition does not hold within this time, apart from the time to come to the lock:
    // then the section has not run and will not, and the optional is empty.
    template <class Rep, class Period, class C, class F>
    auto run_when_for(change &changed, std::chrono::duration<Rep, Period> time, C &&condition, F &&section)
        -> decltype(request<F>::result) {
        using asked_for = conditional<C, F>;
        asked_for asked(std::addressof(condition), std::addressof(section), std::addressof(data));
        wakeful_delegated_run_when_for(&it, &changed.it, detail::nanoseconds(time), asked_for::holds,
                                       asked_for::run_unless_thrown, &asked, 0, 0, nullptr);
        asked.check();
        return std::move(asked.result);
    }

    template <class Clock, class Duration, class C, class F>
    auto run_when_until(change &changed, std::chrono::time_point<Clock, Duration> moment, C &&condition,
                        F &&section) {
        return run_when_for(changed, detail::until(moment), std::forward<C>(condition),
                            std::forward<F>(section));
    }

    [[nodiscard]] guard lock() noexcept { return guard(*this); }
};

// How much a kernel thread matters to its program: for the scheduler of `wakeful run --scheduled`.
enum class importance : int {
    background = WAKEFUL_BACKGROUND,
    normal = WAKEFUL_NORMAL,
    urgent = WAKEFUL_URGENT,
};

// The calling thread matters so much while this is there, and then as before. Stays in its thread.
class matters {
    const int before;

public:
    explicit matters(importance much) noexcept : before(wakeful_importance(static_cast<int>(much))) {}
    ~matters() { wakeful_importance(before); }
    matters(const matters &) = delete;
    matters &operator=(const matters &) = delete;
};

} // namespace wakeful

#endif // WAKEFUL_HPP
