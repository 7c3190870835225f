// SPDX-License-Identifier: MIT OR Apache-2.0
// Fibers at the standard library's locks, on one processor and under the interposer. An exception that one of
// them handles is not another's.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <vector>

#include <wakeful.hpp>
#include "check.h"

static constexpr int FIBERS = 20, ROUNDS = 50;
static std::mutex mutex;
static std::condition_variable changed;
static long counter;

// Waits for the mutex, and for its turn, while it handles an exception; and in a destructor while it unwinds.
static void count(int number) {
    struct at_the_end {
        ~at_the_end() {
            std::lock_guard<std::mutex> guard(mutex);
            CHECK(std::uncaught_exceptions() == 1);
            counter++;
        }
    };
    for (int round = 0; round < ROUNDS; round++) {
        const std::string mine = std::to_string(number) + " " + std::to_string(round);
        try {
            at_the_end end;
            throw std::runtime_error(mine);
        } catch (const std::exception &) {
            std::unique_lock<std::mutex> guard(mutex);
            const long before = counter;
            wakeful::this_fiber::yield();
            CHECK(counter == before);
            counter++;
            changed.notify_all();
            if (round % 2 == 0)
                changed.wait_for(guard, std::chrono::microseconds(200));
            guard.unlock();
            try {
                throw;
            } catch (const std::exception &again) {
                CHECK(mine == again.what());
            }
        }
        CHECK(std::uncaught_exceptions() == 0);
    }
}

int main() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    std::vector<wakeful::fiber<void>> fibers;
    for (int number = 0; number < FIBERS; number++)
        fibers.emplace_back([number] { count(number); });
    for (auto &fiber : fibers)
        fiber.join();
    CHECK(counter == 2L * FIBERS * ROUNDS);
}
