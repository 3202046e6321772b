// SPDX-License-Identifier: BSD-3-Clause
// A life of the driver API, for a trace of it: start, context, memory, memset, copies, a dma-buf, the end.
// tests/data/rm/README.md says how to record it. Built by hand: g++ driver_api.cpp -I/usr/local/cuda/include -ldl
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

namespace {

void* library = nullptr;

template <class Function>
Function* find(const char* name) {
    auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
    if (found == nullptr) {
        std::fprintf(stderr, "no %s\n", name);
        std::exit(1);
    }
    return found;
}

void check(const char* what, CUresult result) {
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "%s: %d\n", what, static_cast<int>(result));
        std::exit(1);
    }
}

} // namespace

#define CALL(name, ...) check(#name, find<decltype(name)>(#name)(__VA_ARGS__))

int main() {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    CALL(cuInit, 0);
    CUdevice device = 0;
    CALL(cuDeviceGet, &device, 0);
    CUcontext context = nullptr;
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    constexpr std::size_t size = 4 << 20;
    CUdeviceptr memory = 0;
    check("cuMemAlloc", find<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2")(&memory, size));
    check("cuMemsetD8", find<CUresult(CUdeviceptr, unsigned char, std::size_t)>("cuMemsetD8_v2")(memory, 0x5a, size));
    std::vector<unsigned char> host(size);
    check("cuMemcpyDtoH",
          find<CUresult(void*, CUdeviceptr, std::size_t)>("cuMemcpyDtoH_v2")(host.data(), memory, size));
    check("cuMemcpyHtoD",
          find<CUresult(CUdeviceptr, const void*, std::size_t)>("cuMemcpyHtoD_v2")(memory, host.data(), size));
    int descriptor = -1;
    CALL(cuMemGetHandleForAddressRange, &descriptor, memory, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    close(descriptor);
    CALL(cuCtxSynchronize);
    check("cuMemFree", find<CUresult(CUdeviceptr)>("cuMemFree_v2")(memory));
    check("cuDevicePrimaryCtxRelease", find<CUresult(CUdevice)>("cuDevicePrimaryCtxRelease_v2")(device));
    std::printf("%s\n", host[size - 1] == 0x5a ? "good" : "BAD");
    return host[size - 1] == 0x5a ? 0 : 1;
}
