// SPDX-License-Identifier: BSD-3-Clause
// A program of the CUDA runtime with a kernel, streams and events, for a trace of it. nvcc -cudart static runtime.cu
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                                    \
    if (const cudaError_t error = (call); error != cudaSuccess) {                                                      \
        std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                                            \
        std::exit(1);                                                                                                  \
    }

__global__ void add(unsigned* values, unsigned count, unsigned by) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        values[i] += by;
    }
}

int main() {
    constexpr unsigned count = 1 << 18;
    unsigned* values[2]{};
    cudaStream_t streams[2]{};
    cudaEvent_t events[2]{};
    for (int i = 0; i < 2; ++i) {
        CHECK(cudaMalloc(&values[i], count * sizeof(unsigned)));
        CHECK(cudaStreamCreate(&streams[i]));
        CHECK(cudaEventCreate(&events[i]));
        CHECK(cudaMemsetAsync(values[i], 0, count * sizeof(unsigned), streams[i]));
        add<<<count / 256, 256, 0, streams[i]>>>(values[i], count, 7 + i);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(events[i], streams[i]));
    }
    CHECK(cudaStreamWaitEvent(streams[1], events[0], 0));
    unsigned last[2]{};
    for (int i = 0; i < 2; ++i) {
        CHECK(cudaEventSynchronize(events[i]));
        CHECK(cudaMemcpyAsync(&last[i], values[i] + count - 1, sizeof(unsigned), cudaMemcpyDeviceToHost, streams[i]));
        CHECK(cudaStreamSynchronize(streams[i]));
        CHECK(cudaFree(values[i]));
        CHECK(cudaEventDestroy(events[i]));
        CHECK(cudaStreamDestroy(streams[i]));
    }
    std::printf("%s\n", last[0] == 7 && last[1] == 8 ? "good" : "BAD");
    return last[0] == 7 && last[1] == 8 ? 0 : 1;
}
