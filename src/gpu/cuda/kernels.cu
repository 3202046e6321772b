// SPDX-License-Identifier: BSD-3-Clause
// The kernels of this library, for builds that have nvcc. kernels.ptx is the same by hand, for those that have not and for drivers
// that are older than the nvcc. tests/gpu/cuda_suite.cpp runs what the driver takes; UPCIE_CUDA_KERNELS=ptx has it take the PTX.

/// Two dwords at an address, read one by one and past any cache, as a device's registers want to be read.
extern "C" __global__ void upcie_read_dwords(const volatile unsigned* from, unsigned long long, unsigned* to) {
    to[0] = from[0];
    to[1] = from[1];
}

/// The sum of upcie/gpu/checksum.hpp over `words` words, added to *to.
extern "C" __global__ void upcie_checksum(const unsigned long long* from, unsigned long long words,
                                          unsigned long long* to) {
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    unsigned long long sum = 0;
    for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < words;
         i += step) {
        unsigned long long word = from[i] ^ ((i + 1) * 0x9e3779b97f4a7c15ULL);
        word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93ULL;
        word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93ULL;
        sum += word ^ (word >> 32);
    }
    atomicAdd(to, sum);
}
