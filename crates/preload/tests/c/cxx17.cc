// SPDX-License-Identifier: MIT OR Apache-2.0
// std::call_once and function-local statics, whose routines throw; std::shared_mutex, which sits on the reader-writer lock.
#include <chrono>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static int attempts;

struct Late {
	Late()
	{
		if (++attempts < 3)
			throw std::runtime_error("not yet");
	}
};

static int late()
{
	static Late here;
	return attempts;
}

int main()
{
	std::once_flag flag;
	int tries = 0, thrown = 0, seen = 0;
	std::vector<std::thread> threads;
	std::mutex mutex;
	for (int i = 0; i < 8; i++)
		threads.emplace_back([&] {
			for (;;)
				try {
					std::call_once(flag, [&] {
						std::this_thread::sleep_for(std::chrono::milliseconds(1));
						if (++tries < 4)
							throw std::runtime_error("again");
					});
					break;
				} catch (const std::runtime_error &) {
					std::lock_guard<std::mutex> guard(mutex);
					thrown++;
				}
			std::lock_guard<std::mutex> guard(mutex);
			seen += tries == 4;
		});
	for (auto &thread : threads)
		thread.join();
	int caught = 0;
	for (;;)
		try {
			late();
			break;
		} catch (const std::runtime_error &) {
			caught++;
		}
	std::printf("%d %d %d %d %d\n", tries, thrown, seen, caught, attempts);

	std::shared_mutex shared;
	std::shared_timed_mutex timed;
	long a = 0, b = 0, torn = 0, timeouts = 0;
	threads.clear();
	for (int i = 0; i < 8; i++)
		threads.emplace_back([&, i] {
			for (int n = 0; n < 3000; n++) {
				if (n % 8 == i) {
					std::unique_lock<std::shared_mutex> lock(shared);
					a++, b++;
					std::unique_lock<std::shared_timed_mutex> other(timed, std::chrono::seconds(100));
					timeouts += !other.owns_lock();
				} else {
					std::shared_lock<std::shared_mutex> lock(shared);
					long difference = a - b;
					std::shared_lock<std::shared_timed_mutex> other(timed, std::chrono::seconds(100));
					if (difference || !other.owns_lock()) {
						std::lock_guard<std::mutex> guard(mutex);
						torn++;
					}
				}
			}
		});
	for (auto &thread : threads)
		thread.join();
	shared.lock();
	bool busy = false;
	std::thread([&] { busy = !shared.try_lock_shared(); }).join();
	torn += !busy;
	shared.unlock();
	timed.lock_shared();
	std::thread([&] { timeouts += !timed.try_lock_for(std::chrono::milliseconds(5)); }).join();
	timed.unlock_shared();
	std::printf("%ld %ld %ld %ld\n", a, b, torn, timeouts);
}
