// SPDX-License-Identifier: MIT OR Apache-2.0
// std::call_once and function-local statics, whose routines throw.
#include <cstdio>
#include <mutex>
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
}
