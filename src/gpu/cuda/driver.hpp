// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include <upcie/gpu/cuda.hpp>

#include "gpu/cuda/api.hpp"

namespace upcie::gpu::cuda {

/// The hint for what ought not to fail.
inline constexpr const char* unexpected = "This is unexpected: see dmesg for an Xid, and try another driver.";

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
    bool shipped_kernels = false; ///< as asked

    std::mutex mutex; // guards what follows
    Module module = nullptr;
    std::string module_is;                                               ///< what was loaded, for people
    std::map<std::uint64_t, std::pair<MemoryHandle, std::uint64_t>> vmm; ///< by base: what was made, and its bytes
    struct External {
        ExternalMemory memory = nullptr; ///< null: VMM memory, which is in `vmm` too
        os::Fd fd;                       ///< that the driver may go on using
    };
    std::map<std::uint64_t, External> external; ///< by base

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
    /// A kernel of this library by its name; all are loaded at the first use of one. The context is current.
    Result<KernelFunction> kernel(const char* name);
    Result<void> load_kernels(); ///< with `mutex` held
    /// Runs `name` with two words of its own, source and bytes say, and answers the eight bytes that it left.
    Result<std::uint64_t> run_kernel(const char* name, unsigned blocks, unsigned threads, DevicePointer source,
                                     std::uint64_t count, const std::string& subject, const std::string& hint);
    /// cuMemHostRegister with `flags`, and the pointer for device code; the context is current.
    Result<DevicePointer> register_memory(void* start, ByteCount length, unsigned flags, const std::string& hint);
    Result<void> unregister_memory(void* start, const std::string& hint) const;
    Result<DevicePointer> map_vmm(ByteCount size);
    /// An address for `bytes` of what `handle` stands for; releases it on failure.
    Result<DevicePointer> map_handle(MemoryHandle handle, std::uint64_t bytes, const std::string& subject);
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
