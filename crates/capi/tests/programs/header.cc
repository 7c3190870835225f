// SPDX-License-Identifier: MIT OR Apache-2.0
#include <wakeful.h>

#include <atomic>

int main() {
    std::atomic<std::size_t> sum{0};
    auto body = [](std::size_t i, void *sum) { *static_cast<std::atomic<std::size_t> *>(sum) += i; };
    int error = wakeful_parallel_for(nullptr, 0, 1000, WAKEFUL_DYNAMIC, 10, body, &sum);
    return error == 0 && sum == 499500 ? 0 : 1;
}
