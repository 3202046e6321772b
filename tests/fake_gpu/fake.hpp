// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the libraries that stand in for a vendor's share: failures that a test scripts, and a stub GPU behind them.

#include <map>
#include <mutex>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include <upcie/gpu/stub.hpp>
#include <upcie/os/system.hpp>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace fake_gpu {

/// What a test wants functions to answer, each once. Threads: any.
class Script {
  public:
    void fail(const char* function, int result) {
        const std::lock_guard lock{mutex_};
        failures_[function] = result;
    }
    /// The answer wanted of `function`; 0 (success, with each vendor) where none is.
    [[nodiscard]] int take(const char* function) {
        const std::lock_guard lock{mutex_};
        const auto place = failures_.find(function);
        if (place == failures_.end()) {
            return 0;
        }
        const int result = place->second;
        failures_.erase(place);
        return result;
    }

  private:
    std::mutex mutex_;
    std::map<std::string, int> failures_;
};

/// A stub of the manner that UPCIE_FAKE_GPU_MANNER names, else of `manner`.
inline upcie::Result<upcie::gpu::stub::Stub> make_stub(upcie::gpu::stub::Manner manner) {
    upcie::gpu::stub::Options options;
    options.manner = manner;
    if (const char* const named = std::getenv("UPCIE_FAKE_GPU_MANNER"); named != nullptr) {
        options.manner = upcie::gpu::stub::parse_manner(named).value_or(manner);
    }
    return upcie::gpu::stub::Stub::create(upcie::os::real_system(), options);
}

/// True where a test wants a machine without a GPU.
inline bool no_device_wanted() {
    return std::getenv("UPCIE_FAKE_GPU_NONE") != nullptr;
}

/// A descriptor to hand out for an export: the real dma-buf where there is udmabuf, else one that is as large as what
/// was exported, which is all that can be told of it here. Negative: no memory for it.
inline int descriptor_of(const upcie::gpu::stub::Stub& stub, upcie::gpu::Export& made) {
    if (stub.real_dma_bufs()) {
        return made.fd.release();
    }
    const int fd = ::memfd_create("fake-dmabuf", MFD_CLOEXEC);
    if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(made.size.value())) != 0) {
        ::close(fd);
        return -1;
    }
    return fd;
}

} // namespace fake_gpu
