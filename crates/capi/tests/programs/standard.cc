// SPDX-License-Identifier: MIT OR Apache-2.0
// The locks of wakeful.hpp under the names and with the helpers of the standard, among fibers and kernel
// threads; with C++20 also what its library has.
#include <wakeful.hpp>
#include "check.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <type_traits>
#include <vector>
#if __cplusplus >= 202002L
#include <semaphore>
#endif

using namespace std::chrono_literals;

constexpr int THREADS = 8, ROUNDS = 500;

template <class Thread, class F> void all(F body) {
    std::vector<Thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back(body, i);
    for (auto &thread : threads)
        thread.join();
}

template <class T> constexpr bool stays =
    !std::is_copy_constructible_v<T> && !std::is_move_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(stays<wakeful::mutex> && stays<wakeful::shared_mutex> && stays<wakeful::condition_variable>);
static_assert(stays<wakeful::condition_variable_any> && stays<wakeful::binary_semaphore>);
static_assert(stays<wakeful::barrier<>> && std::is_nothrow_default_constructible_v<wakeful::mutex>);
static_assert(std::is_same_v<wakeful::mutex::native_handle_type, wakeful_mutex *>);
static_assert(wakeful::counting_semaphore<7>::max() >= 7 && wakeful::binary_semaphore::max() >= 1);
static_assert(std::is_constructible_v<wakeful::binary_semaphore, int>);
static_assert(!std::is_convertible_v<int, wakeful::binary_semaphore>);

template <class Thread> static void lockables() {
    wakeful::mutex first, second;
    wakeful::shared_mutex shared;
    int count = 0, pair[2] = {};
    all<Thread>([&](int number) {
        for (int round = 0; round < ROUNDS; round++) {
            {
                std::scoped_lock both(first, second);
                count++;
            }
            {
                // In the other order: std::lock gives back what it has.
                std::unique_lock one(second, std::defer_lock), two(first, std::defer_lock);
                std::lock(one, two);
                count++;
            }
            if (std::unique_lock lock(first, 1h); lock.owns_lock())
                count++;
            if (round % 8 == number) {
                std::lock_guard lock(shared);
                pair[0]++, pair[1]++;
            } else {
                std::shared_lock lock(shared);
                CHECK(pair[0] == pair[1]);
                CHECK(!shared.try_lock());
            }
        }
    });
    CHECK(count == 3 * THREADS * ROUNDS && shared.native_handle() != nullptr);
    std::unique_lock held(first);
    CHECK(!first.try_lock_until(std::chrono::steady_clock::now() + 1ms) && std::try_lock(second, first) == 1);
    second.lock();
    second.unlock();
}

// Items go through one place; `Variable` waits by `Lock`.
template <class Thread, class Variable, class Mutex, class Lock> static void handed_over() {
    Mutex mutex;
    Variable changed;
    int place = 0, sum = 0;
    all<Thread>([&](int number) {
        for (int round = 1; round <= ROUNDS / 5; round++) {
            Lock lock(mutex);
            if (number % 2 == 0) {
                changed.wait(lock, [&] { return place == 0; });
                place = round;
            } else {
                CHECK(changed.wait_for(lock, 1h, [&] { return place != 0; }));
                sum += std::exchange(place, 0);
            }
            changed.notify_all();
        }
    });
    const int each = ROUNDS / 5;
    CHECK(sum == THREADS / 2 * each * (each + 1) / 2);
    Lock lock(mutex);
    CHECK(changed.wait_for(lock, 1ms) == std::cv_status::timeout);
    CHECK(!changed.wait_until(lock, std::chrono::system_clock::now() + 1ms, [] { return false; }));
    CHECK(lock.owns_lock());
}

// A lock with nothing but the two functions.
struct bare {
    wakeful::mutex &mutex;
    bool is_held = true;
    explicit bare(wakeful::mutex &mutex) : mutex(mutex) { mutex.lock(); }
    ~bare() { mutex.unlock(); }
    void lock() { mutex.lock(), is_held = true; }
    void unlock() { is_held = false, mutex.unlock(); }
    bool owns_lock() const { return is_held; }
};

template <class Thread> static void variables() {
    using wakeful::condition_variable;
    using wakeful::condition_variable_any;
    using wakeful::mutex;
    using wakeful::shared_mutex;
    handed_over<Thread, condition_variable, mutex, std::unique_lock<mutex>>();
    handed_over<Thread, condition_variable_any, mutex, std::unique_lock<mutex>>();
    handed_over<Thread, condition_variable_any, mutex, bare>();
    handed_over<Thread, condition_variable_any, shared_mutex, std::unique_lock<shared_mutex>>();
}

// It ends as soon as its waiter was notified, before that one has left.
template <class Thread> static void variables_may_end() {
    for (int round = 0; round < ROUNDS; round++) {
        wakeful::mutex mutex;
        auto changed = std::make_unique<wakeful::condition_variable_any>();
        bool waits = false, ready = false;
        Thread waiter([&] {
            std::unique_lock lock(mutex);
            waits = true;
            auto &mine = *changed;
            while (!ready)
                mine.wait(lock);
        });
        for (bool over = false; !over;) {
            {
                std::lock_guard lock(mutex);
                if ((over = waits)) {
                    ready = true;
                    changed->notify_all();
                    changed.reset();
                }
            }
            std::this_thread::yield();
        }
        waiter.join();
    }
}

template <class Thread> static void semaphores_and_barriers() {
    wakeful::binary_semaphore one(1);
    wakeful::counting_semaphore<3> none(0);
    int count = 0, seen[THREADS] = {};
    std::atomic<int> phases{0};
    auto complete = [&]() noexcept {
        for (int number = 1; number < THREADS; number++)
            CHECK(seen[number] == phases);
        phases++;
    };
    wakeful::barrier<decltype(complete)> barrier(THREADS, complete);
    all<Thread>([&](int number) {
        for (int round = 0; round < ROUNDS; round++) {
            one.acquire();
            count++;
            one.release();
            seen[number] = round;
            if (number == 0 && round == ROUNDS / 2)
                return barrier.arrive_and_drop();
            if (number == 1) {
                auto token = barrier.arrive();
                CHECK(phases <= round + 1);
                barrier.wait(std::move(token));
            } else {
                barrier.arrive_and_wait();
            }
            CHECK(phases == round + 1);
        }
    });
    CHECK(phases == ROUNDS && count == (THREADS - 1) * ROUNDS + ROUNDS / 2 + 1);
    CHECK(!none.try_acquire() && !none.try_acquire_for(1ms));
    none.release(2);
    CHECK(none.try_acquire() && none.try_acquire_until(std::chrono::system_clock::now()));
    CHECK(!none.try_acquire());
    try {
        wakeful::counting_semaphore<>(-1);
        CHECK(!"it threw");
    } catch (const std::system_error &error) {
        CHECK(error.code().value() == EINVAL);
    }
}

#ifdef __cpp_lib_jthread
static_assert(wakeful::barrier<>::max() > 0 && std::is_default_constructible_v<wakeful::jthread>);
static_assert(std::is_constructible_v<wakeful::jthread, void (*)(std::stop_token, int), int>);
static_assert(!std::is_constructible_v<wakeful::jthread, void (*)(std::stop_token, int), const char *>);

// A lock whose release takes as long as the test wants.
struct slow {
    std::function<void()> releases;
    void lock() {}
    void unlock() { releases(); }
};

// Where the waiter's frame was.
[[gnu::noinline]] static void overwrite() {
    volatile unsigned char bytes[4096];
    for (auto &byte : bytes)
        byte = 0xaa;
}

// The wish to stop waits for the variable as a fiber, and the waiter of the same kernel thread leaves first.
static void a_stop_outlives_its_waiter() {
    wakeful::condition_variable_any changed;
    std::stop_source source;
    std::atomic<bool> stops{false};
    wakeful::thread waiter([&] {
        const auto here = std::this_thread::get_id();
        std::vector<wakeful::thread> others;
        slow lock{[&] {
            // The variable's own mutex is held. One of them is on this kernel thread, sooner or later.
            while (!stops) {
                others.emplace_back([&] {
                    if (std::this_thread::get_id() == here && !stops.exchange(true))
                        source.request_stop();
                });
                wakeful::this_fiber::yield();
            }
        }};
        CHECK(!changed.wait_for(lock, source.get_token(), 0s, [] { return false; }));
        overwrite();
    });
    waiter.join();
}

// Whoever joined or detached a thread may go on with its source.
static void an_ended_handle_asks_nobody() {
    std::stop_token joined, replaced, detached;
    wakeful::binary_semaphore goes_on(0), over(0);
    {
        wakeful::jthread first([] {}), second([] {});
        first.join(), second.join();
        joined = first.get_stop_token(), replaced = second.get_stop_token();
        second = wakeful::jthread([] {});
        wakeful::jthread third([&](std::stop_token stop) {
            goes_on.acquire();
            CHECK(!stop.stop_requested());
            over.release();
        });
        detached = third.get_stop_token();
        third.detach();
    }
    CHECK(!joined.stop_requested() && !replaced.stop_requested() && !detached.stop_requested());
    goes_on.release();
    over.acquire();
}

static void stops() {
    int turns = 0;
    {
        wakeful::jthread thread([&](std::stop_token stop, int step) {
            while (!stop.stop_requested()) {
                turns += step;
                wakeful::this_fiber::sleep_for(10us);
            }
        }, 2);
        CHECK(thread.joinable() && thread.get_stop_source().stop_possible());
        wakeful::jthread moved = std::move(thread);
        CHECK(!thread.joinable() && moved.joinable() && !moved.get_stop_token().stop_requested());
        moved = wakeful::jthread([] {});
        // The one before was asked to stop, and joined.
        CHECK(turns % 2 == 0);
    }
    // One that waits is woken by the wish; a predicate that is true then is not lost.
    for (bool ready : {false, true}) {
        wakeful::mutex mutex;
        wakeful::condition_variable_any changed;
        wakeful::binary_semaphore waits(0);
        bool is_ready = false, found = !ready;
        {
            wakeful::jthread waiter([&](std::stop_token stop) {
                std::unique_lock lock(mutex);
                waits.release();
                found = changed.wait(lock, stop, [&] { return is_ready; });
                CHECK(lock.owns_lock() && stop.stop_requested());
                CHECK(changed.wait_for(lock, stop, 1h, [&] { return is_ready; }) == ready);
            });
            waits.acquire();
            std::lock_guard lock(mutex);
            is_ready = ready;
            CHECK(waiter.request_stop() && !waiter.request_stop());
        }
        CHECK(found == ready);
    }
    std::stop_source nobody;
    std::unique_lock<wakeful::mutex> none;
    wakeful::mutex mutex;
    none = std::unique_lock(mutex);
    wakeful::condition_variable_any changed;
    CHECK(!changed.wait_for(none, nobody.get_token(), 1ms, [] { return false; }));
    wakeful::jthread empty;
    CHECK(!empty.joinable() && !empty.request_stop() && !empty.get_stop_token().stop_possible());
    try {
        wakeful::jthread([] { throw 3; }).join();
        CHECK(!"it threw");
    } catch (int three) {
        CHECK(three == 3);
    }
}
#endif

int main() {
    lockables<wakeful::thread>();
    lockables<std::thread>();
    variables<wakeful::thread>();
    variables<std::thread>();
    // The standard's own variable takes our lock, where kernel threads wait.
    handed_over<std::thread, std::condition_variable_any, wakeful::mutex, std::unique_lock<wakeful::mutex>>();
    variables_may_end<wakeful::thread>();
    variables_may_end<std::thread>();
    semaphores_and_barriers<wakeful::thread>();
    semaphores_and_barriers<std::thread>();
#ifdef __cpp_lib_jthread
    stops();
    an_ended_handle_asks_nobody();
    a_stop_outlives_its_waiter();
#elif __cplusplus >= 202002L
#error "a library of C++20 that has no stop tokens is not tested"
#endif
}
