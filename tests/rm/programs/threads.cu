// SPDX-License-Identifier: BSD-3-Clause
// Four threads of the CUDA runtime that allocate, copy and free at once, for a trace of it. nvcc -cudart static
// threads.cu
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

int main() {
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&failures, t] {
            for (int round = 0; round < 8; ++round) {
                const std::size_t size = (1U << 20) * static_cast<unsigned>(1 + (t + round) % 4);
                void* memory = nullptr;
                unsigned char last = 0;
                const bool good = cudaMalloc(&memory, size) == cudaSuccess &&
                                  cudaMemset(memory, t + 1, size) == cudaSuccess &&
                                  cudaMemcpy(&last, static_cast<char*>(memory) + size - 1, 1, cudaMemcpyDeviceToHost) ==
                                      cudaSuccess &&
                                  last == t + 1 && cudaFree(memory) == cudaSuccess;
                failures += good ? 0 : 1;
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    std::printf("%s\n", failures == 0 ? "good" : "BAD");
    return failures == 0 ? 0 : 1;
}
