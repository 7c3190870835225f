// SPDX-License-Identifier: MIT OR Apache-2.0
// User-level threads for C++17, and locks that they wait in. A layer over wakeful.h; link with -lwakeful.
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
#include <mutex>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

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

    wakeful_fiber native_handle() const noexcept { return handle; }
};

using thread = fiber<void>;

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

template <class Rep, class Period> void sleep_for(std::chrono::duration<Rep, Period> time) {
    detail::set_aside exceptions;
    wakeful_fiber_sleep(detail::nanoseconds(time));
}

template <class Clock, class Duration> void sleep_until(std::chrono::time_point<Clock, Duration> moment) {
    while (Clock::now() < moment)
        this_fiber::sleep_for(detail::until(moment));
}

// Waits for unpark, or returns for no reason. Throws std::system_error outside of fibers.
inline void park() {
    int error;
    {
        detail::set_aside exceptions;
        error = wakeful_fiber_park();
    }
    detail::check(error, "wakeful: park");
}

// The same for no longer than this.
template <class Rep, class Period> void park_for(std::chrono::duration<Rep, Period> time) {
    int error;
    {
        detail::set_aside exceptions;
        error = wakeful_fiber_park_for(detail::nanoseconds(time));
    }
    detail::check(error, "wakeful: park");
}

// All zero outside of fibers.
inline wakeful_fiber native_handle() noexcept { return wakeful_fiber_self(); }

} // namespace this_fiber

// For std::lock_guard, std::unique_lock and std::scoped_lock.
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

    wakeful_mutex *native_handle() noexcept { return &it; }
};

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
};

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
};

// As std::counting_semaphore of C++20.
class counting_semaphore {
    wakeful_semaphore it{};

public:
    explicit counting_semaphore(std::uint32_t permits) {
        detail::check(wakeful_semaphore_init(&it, permits), "wakeful: permits of a semaphore");
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

    void release(std::uint32_t permits = 1) {
        for (; permits > 0; permits--)
            detail::check(wakeful_semaphore_release(&it), "wakeful: permits of a semaphore");
    }
};

class barrier {
    wakeful_barrier it;

public:
    explicit barrier(std::uint32_t parties) noexcept { wakeful_barrier_init(&it, parties); }
    barrier(const barrier &) = delete;
    barrier &operator=(const barrier &) = delete;

    // True to one of those who pass together.
    bool arrive_and_wait() noexcept {
        detail::set_aside exceptions;
        return wakeful_barrier_wait(&it) == 1;
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

} // namespace wakeful

#endif // WAKEFUL_HPP
