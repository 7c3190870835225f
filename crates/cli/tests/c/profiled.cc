// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread waits on a condition variable of C++'s, for long enough to be looked at.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

static std::mutex lock;
static std::condition_variable changed;
static bool is_there;

__attribute__((noinline)) int consume()
{
	std::unique_lock<std::mutex> guard(lock);
	while (!is_there)
		changed.wait(guard);
	return 1;
}

__attribute__((noinline)) int consumer()
{
	return consume() + 1;
}

int main()
{
	std::thread thread([] { return consumer(); });
	std::this_thread::sleep_for(std::chrono::milliseconds(300));
	{
		std::lock_guard<std::mutex> guard(lock);
		is_there = true;
	}
	changed.notify_one();
	thread.join();
}
