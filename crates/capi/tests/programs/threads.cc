// SPDX-License-Identifier: MIT OR Apache-2.0
// The layer for C++, with more threads than processors.
#include <wakeful.hpp>
#include "check.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

constexpr int THREADS = 100;

template <class F> void all(F body) {
    std::vector<wakeful::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back(body, i);
    for (auto &thread : threads)
        thread.join();
}

template <class F> int error_of(F body) {
    try {
        body();
    } catch (const std::system_error &error) {
        return error.code().value();
    }
    return 0;
}

static void results_and_captures() {
    auto text = std::make_unique<std::string>("moved in");
    auto length = wakeful::spawn([text = std::move(text)](int more) { return text->size() + more; }, 2);
    CHECK(length.join() == 10);
    CHECK(!length.joinable());
    CHECK(error_of([&] { length.join(); }) == EINVAL);
    int number = 0;
    auto sets = [](int &number, std::unique_ptr<int> other) { number = *other; };
    wakeful::thread(sets, std::ref(number), std::make_unique<int>(7)).join();
    CHECK(number == 7);
    // Its handle ends, and so it is joined; what it captured has ended by then.
    auto shared = std::make_shared<int>(3);
    {
        wakeful::thread thread([shared, &number] {
            wakeful::this_fiber::sleep_for(1ms);
            number = *shared;
        });
        wakeful::thread moved = std::move(thread);
        CHECK(!thread.joinable() && moved.joinable());
        moved = wakeful::thread([shared] {});
        // The one before was joined.
        CHECK(number == 3);
    }
    CHECK(shared.use_count() == 1);
    wakeful::counting_semaphore ended(0);
    wakeful::spawn([&] { ended.release(); }).detach();
    ended.acquire();
    auto joins_itself = [](wakeful::thread &me, wakeful::counting_semaphore<> &known) {
        known.acquire();
        CHECK(error_of([&] { me.join(); }) == EDEADLK);
    };
    wakeful::thread me;
    wakeful::counting_semaphore known(0);
    me = wakeful::thread(joins_itself, std::ref(me), std::ref(known));
    known.release();
    me.join();
    // What it returns by reference is not copied where nobody asks for it.
    auto only = std::make_unique<int>(1);
    wakeful::thread([&]() -> std::unique_ptr<int> & { return only; }).join();
    auto moved = wakeful::spawn([&]() -> std::unique_ptr<int> && { return std::move(only); });
    CHECK(*moved.join() == 1 && !only);
}

// By the C functions, another has joined a thread before its handle does.
static void native_handles() {
    {
        auto joined = wakeful::spawn([] { return 3; });
        CHECK(wakeful_fiber_join(joined.native_handle(), nullptr) == 0);
        CHECK(error_of([&] { joined.join(); }) == ESRCH && joined.joinable());
    }
    wakeful::thread detached([] { wakeful::this_fiber::sleep_for(1ms); });
    CHECK(wakeful_fiber_detach(detached.native_handle()) == 0);
    CHECK(error_of([&] { detached.detach(); }) == ESRCH);
}

static void attributes() {
    wakeful::attributes how{};
    how.name = "large";
    how.stack_size = 9 << 20;
    auto large = wakeful::spawn(how, [] {
        volatile char bytes[8 << 20];
        for (std::size_t i = 0; i < sizeof bytes; i += 4096)
            bytes[i] = 1;
        return int{bytes[0]};
    });
    CHECK(large.join() == 1);
    how.stack_size = static_cast<std::size_t>(-1);
    bool ended = false;
    struct ends {
        bool *ended;
        ~ends() { *ended = true; }
    };
    auto captured = std::make_shared<ends>(ends{&ended});
    CHECK(error_of([&] { wakeful::thread(how, [captured = std::move(captured)] {}); }) == ENOMEM);
    CHECK(ended);
}

static void exceptions_come_out_of_join() {
    for (int i = 0; i < 1000; i++) {
        auto throws = wakeful::spawn([i]() -> int {
            wakeful::this_fiber::yield();
            throw std::runtime_error(std::to_string(i));
        });
        try {
            throws.join();
            CHECK(!"it threw");
        } catch (const std::runtime_error &error) {
            CHECK(error.what() == std::to_string(i));
        }
    }
    // Nobody asks.
    wakeful::thread([] { throw 3; });
    wakeful::thread([] { throw 4; }).detach();
}

// Threads of one kernel thread wait while they handle exceptions, and while they unwind.
static void exceptions_belong_to_threads() {
    wakeful::mutex mutex;
    struct waits {
        wakeful::mutex &mutex;
        int before = std::uncaught_exceptions();
        ~waits() {
            CHECK(std::uncaught_exceptions() == before + 1);
            std::lock_guard lock(mutex);
            wakeful::this_fiber::yield();
            CHECK(std::uncaught_exceptions() == before + 1);
        }
    };
    all([&](int number) {
        for (int round = 0; round < 10; round++) {
            try {
                waits here{mutex};
                throw number;
            } catch (int caught) {
                CHECK(caught == number);
                wakeful::this_fiber::yield();
                std::unique_lock lock(mutex);
                wakeful::this_fiber::sleep_for(10us);
                lock.unlock();
                // Runs on top of this one.
                wakeful::thread([] {
                    CHECK(!std::current_exception());
                    try {
                        throw 5;
                    } catch (int five) {
                        wakeful::this_fiber::yield();
                        CHECK(five == 5);
                    }
                }).join();
                CHECK(std::uncaught_exceptions() == 0);
                try {
                    throw;
                } catch (int again) {
                    CHECK(again == number);
                }
            }
            CHECK(!std::current_exception());
        }
    });
}

static void locks() {
    wakeful::mutex mutex, other;
    wakeful::shared_mutex shared;
    wakeful::condition_variable turned;
    wakeful::counting_semaphore three(3);
    std::atomic<int> last{0};
    wakeful::barrier barrier(THREADS, [&]() noexcept { last++; });
    int count = 0, turn = 0, written[2] = {};
    std::atomic<int> inside{0};
    all([&](int number) {
        for (int i = 0; i < 30; i++) {
            {
                std::scoped_lock both(mutex, other);
                int before = count;
                wakeful::this_fiber::yield();
                count = before + 1;
            }
            if ((number + i) % 4 == 0) {
                std::unique_lock lock(shared);
                written[0]++;
                wakeful::this_fiber::yield();
                written[1]++;
            } else {
                std::shared_lock lock(shared);
                CHECK(written[0] == written[1]);
            }
            if (i % 2 == 0)
                three.acquire();
            else
                while (!three.try_acquire_for(1ms)) {
                }
            CHECK(inside++ < 3);
            wakeful::this_fiber::yield();
            inside--;
            three.release();
        }
        barrier.arrive_and_wait();
        CHECK(last == 1);
        std::unique_lock lock(mutex);
        if (number % 2 == 0)
            turned.wait(lock, [&] { return turn == number; });
        else
            CHECK(turned.wait_for(lock, std::chrono::hours::max(), [&] { return turn == number; }));
        turn++;
        turned.notify_all();
    });
    CHECK(count == THREADS * 30 && turn == THREADS && last == 1);
    std::unique_lock lock(mutex);
    CHECK(!mutex.try_lock() && !mutex.try_lock_for(1ms));
    CHECK(turned.wait_for(lock, 1ms) == std::cv_status::timeout);
    CHECK(!turned.wait_for(lock, 1ms, [] { return false; }));
    CHECK(!turned.wait_for(lock, -1ms, [] { return false; }));
    const auto moment = std::chrono::system_clock::now() + 1ms;
    CHECK(turned.wait_until(lock, std::chrono::steady_clock::time_point::min()) == std::cv_status::timeout);
    CHECK(!turned.wait_until(lock, moment, [] { return false; }));
    CHECK(std::chrono::system_clock::now() >= moment);
    CHECK(turned.wait_until(lock, moment, [] { return true; }));
    CHECK(three.try_acquire_until(moment) && three.try_acquire_until(moment));
    CHECK(three.try_acquire_until(moment) && !three.try_acquire_until(moment + 2ms));
    three.release(3);
}

static wakeful::local<std::vector<int>> numbers;

static void parks_and_locals() {
    std::atomic<int> parked{0};
    std::vector<wakeful::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back([&, i] {
            numbers->push_back(i);
            parked++;
            if (i % 2 == 0)
                wakeful::this_fiber::park();
            else
                wakeful::this_fiber::park_for(100h);
            wakeful::this_fiber::sleep_until(std::chrono::system_clock::now() + 1ms);
            CHECK(numbers->size() == 1 && (*numbers)[0] == i);
        });
    for (auto &thread : threads)
        thread.unpark();
    threads.clear();
    CHECK(parked == THREADS);
    CHECK(error_of([] { wakeful::this_fiber::park(); }) == EPERM);
    CHECK(error_of([] { numbers->clear(); }) == EPERM);
}

// The exception comes out of join, and destructors ran.
static void cancels() {
    std::atomic<int> destroyed{0};
    const std::vector<void (*)()> points{
        [] { wakeful::this_fiber::park(); },
        [] { wakeful::this_fiber::park_for(100h); },
        [] { wakeful::this_fiber::sleep_for(100h); },
        [] { wakeful::this_fiber::yield(), wakeful::this_fiber::cancellation_point(); },
    };
    for (auto point : points) {
        wakeful::thread thread([&, point] {
            struct counts {
                std::atomic<int> &count;
                ~counts() { wakeful::this_fiber::sleep_for(1us), count++; }
            } at_the_end{destroyed};
            for (;;)
                point();
        });
        thread.cancel();
        CHECK(error_of([&] { thread.join(); }) == ECANCELED);
    }
    CHECK(destroyed == 4);
}

// A thread that unwinds is cancelled after that.
static void cancels_what_unwinds() {
    struct waits {
        ~waits() {
            const auto begin = std::chrono::steady_clock::now();
            wakeful::this_fiber::sleep_for(20ms);
            CHECK(std::chrono::steady_clock::now() - begin >= 20ms);
            wakeful::this_fiber::park_for(1us);
            wakeful_fiber_unpark(wakeful::this_fiber::native_handle());
            wakeful::this_fiber::park();
            wakeful::this_fiber::cancellation_point();
        }
    };
    wakeful::thread thread([] {
        try {
            waits at_the_end;
            wakeful_fiber_cancel(wakeful::this_fiber::native_handle());
            throw 7;
        } catch (int number) {
            CHECK(number == 7);
        }
        CHECK(error_of([] { wakeful::this_fiber::park(); }) == ECANCELED);
        wakeful::this_fiber::cancellation_point();
    });
    thread.join();
}

int main() {
    results_and_captures();
    native_handles();
    attributes();
    exceptions_come_out_of_join();
    exceptions_belong_to_threads();
    locks();
    parks_and_locals();
    cancels();
    cancels_what_unwinds();
}
