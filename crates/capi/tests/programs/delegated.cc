// SPDX-License-Identifier: MIT OR Apache-2.0
// wakeful::delegated, without and with a server: results, exceptions, deadlines, conditions, guards. With
// "exit" or "exit there", a section that ends its thread.
#include <wakeful.hpp>
#include "check.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

constexpr int THREADS = 8, ROUNDS = 5000;

// Each section once; every tenth throws, and only its own caller catches that, what runs beside it or not.
using counting = wakeful::delegated<std::map<int, int>>;

static void sections(counting &counts) {
    auto client = [&](int own) {
        auto unseen = [] { CHECK(std::uncaught_exceptions() == 0 && !std::current_exception()); };
        auto count = [&](auto &counts) {
            unseen();
            return std::make_unique<int>(++counts[own]);
        };
        for (int round = 1; round <= ROUNDS; round++) {
            if (round % 10 != 0) {
                CHECK(*counts.run(count) == round);
                continue;
            }
            try {
                counts.run([&](auto &counts) {
                    unseen();
                    ++counts[own];
                    throw std::runtime_error(std::to_string(own));
                });
                CHECK(!"it threw");
            } catch (const std::runtime_error &error) {
                CHECK(error.what() == std::to_string(own));
                // As this one is being handled, other sections are run, and know nothing of it.
                counts.run([&](auto &) { unseen(); });
                CHECK(std::current_exception() && std::uncaught_exceptions() == 0);
            }
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back(client, i);
    for (auto &thread : threads)
        thread.join();
    auto held = counts.lock();
    CHECK(held->size() == THREADS && (*held)[3] == ROUNDS);
}

// What cannot be made is no overload, and a delegated is not copied.
struct held {
    wakeful::delegated<int> number;
};
static_assert(std::is_constructible_v<wakeful::delegated<std::string>, const char *>);
static_assert(std::is_constructible_v<wakeful::delegated<std::string>, int, char>);
static_assert(!std::is_constructible_v<wakeful::delegated<int>, const char *>);
static_assert(!std::is_constructible_v<wakeful::delegated<int>, int, int>);
static_assert(!std::is_constructible_v<wakeful::delegated<std::function<int()>>,
                                       wakeful::delegated<std::function<int()>> &>);
static_assert(!std::is_copy_constructible_v<held> && !std::is_move_constructible_v<held>);

static void deadlines() {
    wakeful::delegated<int> number(1);
    CHECK(number.try_run_for(1s, [](int &number) { return number + 1; }) == 2);
    auto held = number.lock();
    std::thread([&] {
        auto set = [](int &number) { number = 7; };
        const auto until = std::chrono::steady_clock::now() + 2ms;
        CHECK(!number.try_run_until(until, set) && std::chrono::steady_clock::now() >= until);
        CHECK(!number.try_run_for(0s, set));
    }).join();
    CHECK(*held == 1);
}

// Each waits for the other's turn.
static void conditions(wakeful::delegated<int> &turn) {
    constexpr int TURNS = 500;
    wakeful::delegated<int>::change changed;
    auto client = [&](int own) {
        for (int round = 0; round < TURNS; round++) {
            auto ours = [&](int &turn) { return turn % 2 == own; };
            auto next = [&](int &turn) {
                changed.notify_all();
                return ++turn;
            };
            if (round % 2 == 0)
                CHECK(turn.run_when(changed, ours, next) == 2 * round + own + 1);
            else
                CHECK(*turn.run_when_for(changed, 60s, ours, next) == 2 * round + own + 1);
        }
    };
    std::thread other(client, 1);
    client(0);
    other.join();
    const auto until = std::chrono::steady_clock::now() + 2ms;
    auto never = [](int &) { return false; };
    CHECK(!turn.run_when_until(changed, until, never, [](int &turn) { turn = 7; }));
    CHECK(std::chrono::steady_clock::now() >= until);
    try {
        turn.run_when(changed, [](int &) -> bool { throw 5; }, [](int &turn) { turn = 7; });
        CHECK(!"it threw");
    } catch (int thrown) {
        CHECK(thrown == 5);
    }
    CHECK(*turn.lock() == 2 * TURNS);
}

// Several locks of several servers, one within the other; a section that waits for another one's.
static void served() {
    wakeful::rcl_server first, second;
    auto locks = std::make_unique<wakeful::delegated<int>>(second, 5);
    wakeful::delegated<int> outer(first, 1), inner(first);
    const auto me = std::this_thread::get_id();
    CHECK(outer.run([&](int &outer) {
        CHECK(std::this_thread::get_id() != me);
        return outer + inner.run([](int &inner) { return ++inner; }) + locks->run([](int &it) { return it; });
    }) == 7);
    std::atomic<int> flag{0};
    std::thread waits([&] {
        outer.run([&](int &) {
            flag = 1;
            while (flag != 2)
                std::this_thread::yield();
        });
    });
    while (flag == 0)
        std::this_thread::yield();
    inner.run([&](int &) { flag = 2; });
    waits.join();
    CHECK(*inner.try_run_for(60s, [](int &inner) { return ++inner; }) == 2);
    {
        const auto held = inner.lock();
        std::thread([&] { CHECK(!inner.try_run_for(2ms, [](int &inner) { inner = 9; })); }).join();
    }
    CHECK(*inner.lock() == 2);
    try {
        wakeful::rcl_server nowhere(1 << 20);
        CHECK(!"it started");
    } catch (const std::system_error &error) {
        CHECK(error.code().value() == EINVAL);
    }
}

int main(int count, char **) {
    wakeful::rcl_server server;
    if (count > 1) {
        auto leaves = [](int &) { pthread_exit(nullptr); };
        wakeful::delegated<int> number(0), theirs(server, 0);
        (count == 2 ? number : theirs).run(leaves);
    }
    counting own, theirs(server);
    sections(own);
    sections(theirs);
    wakeful::delegated<int> turn(0), their_turn(server, 0);
    conditions(turn);
    conditions(their_turn);
    deadlines();
    served();
}
