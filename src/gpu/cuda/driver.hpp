// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include <upcie/gpu/cuda.hpp>

#include "gpu/cuda/api.hpp"

namespace upcie::gpu::cuda {

/// The library, a GPU of it, and its primary context.
struct Cuda::Driver {
    explicit Driver(os::System& host) : system{host} {}
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    os::System& system;
    Api api;
    int version = 0; ///< of the driver's API
    Device device = 0;
    bool context_held = false;
    Context context = nullptr;
    Identity identity;
    ByteCount granularity;

    std::mutex mutex; // guards what follows
    Module module = nullptr;
    std::map<std::uint64_t, std::pair<MemoryHandle, std::uint64_t>> vmm; ///< by base: what was made, and its bytes

    /// An Error for CUDA's answer to `operation`.
    [[nodiscard]] Error error(Status status, std::string operation, std::string subject, std::string hint) const;
    [[nodiscard]] static std::string at(DevicePointer pointer);

    /// Calls a function of the table; `hint` is for what CUDA refuses. Error also: ENOSYS, naming the version.
    template <class Signature, class... Arguments>
    Result<void> call(const TableFunction<Signature>& function, const std::string& subject, const std::string& hint,
                      Arguments... arguments) const {
        if (!function) {
            return missing(function, subject);
        }
        if (const Status status = function(arguments...); status != success) {
            return tl::unexpected{error(status, function.name, subject, hint)};
        }
        return {};
    }
    /// Runs `work` with the context current. Error also: CUDA's, of making it so.
    template <class Work>
    auto in_context(Work&& work) const -> decltype(work());
    [[nodiscard]] tl::unexpected<Error> missing(const TableEntry& function, const std::string& subject) const;
    /// The function of the kernel that reads eight bytes; loaded at the first use. The context is current.
    Result<KernelFunction> reader();
    Result<DevicePointer> map_vmm(ByteCount size);
    Result<void> unmap_vmm(DevicePointer base);
};

/// Makes the context current for its own life; says whether that went well.
class Current {
  public:
    explicit Current(const Api& api, Context context) : api_{api}, status_{api.context_push(context)} {}
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() {
        if (status_ == success) {
            Context popped = nullptr;
            api_.context_pop(&popped);
        }
    }
    [[nodiscard]] Status status() const noexcept { return status_; }

  private:
    const Api& api_;
    Status status_;
};

template <class Work>
auto Cuda::Driver::in_context(Work&& work) const -> decltype(work()) {
    const Current current{api, context};
    if (current.status() != success) {
        return tl::unexpected{error(current.status(), "cuCtxPushCurrent_v2", identity.name,
                                    "The GPU may be lost: see dmesg for an Xid.")};
    }
    return work();
}

} // namespace upcie::gpu::cuda
