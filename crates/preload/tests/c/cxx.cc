// SPDX-License-Identifier: MIT OR Apache-2.0
// The C++ library's locks, which sit on the pthread ones.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

// How often each thread does what it does; the argument, for a lock that needs a time slice for each turn.
int main(int argc, char **argv)
{
	const int rounds = argc > 1 ? atoi(argv[1]) : 5000;
	std::mutex m;
	std::recursive_mutex r;
	std::timed_mutex t;
	std::condition_variable cv;
	std::condition_variable_any any;
	std::deque<int> queue;
	long sum = 0, count = 0, timed = 0;
	std::vector<std::thread> threads;
	for (int i = 0; i < 4; i++) {
		threads.emplace_back([&] {
			for (int n = 1; n <= rounds; n++) {
				std::lock_guard<std::mutex> guard(m);
				queue.push_back(n);
				cv.notify_one();
			}
		});
		threads.emplace_back([&] {
			for (int n = 1; n <= rounds; n++) {
				std::unique_lock<std::mutex> lock(m);
				cv.wait(lock, [&] { return !queue.empty(); });
				sum += queue.front();
				queue.pop_front();
			}
		});
		threads.emplace_back([&] {
			for (int n = 0; n < rounds; n++) {
				std::lock_guard<std::recursive_mutex> a(r), b(r);
				count++;
			}
			for (int n = 0; n < rounds / 10;)
				if (t.try_lock_for(1ms)) {
					timed++;
					n++;
					t.unlock();
				}
		});
	}
	for (auto &thread : threads)
		thread.join();
	std::unique_lock<std::mutex> lock(m);
	bool out = cv.wait_for(lock, 5ms) == std::cv_status::timeout;
	bool any_out = any.wait_for(lock, 5ms) == std::cv_status::timeout;
	lock.unlock();
	auto answer = std::async(std::launch::async, [] { return 42; });
	std::once_flag once;
	std::call_once(once, [&] { count++; });
	std::printf("%ld %ld %ld %d %d %d\n", sum, count, timed, out, any_out, answer.get());
}
