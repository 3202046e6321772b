// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <upcie/gpu/hip.hpp>

#include "gpu/hip/api.hpp"
#include "gpu/hip/compiler.hpp"

namespace upcie::gpu::hip {

/// The library, and a GPU of it.
struct Hip::Driver {
    Driver(os::System& host, DynamicLibrary opened, std::string compiler_name)
        : system{host}, library{std::move(opened)}, compiler_library{std::move(compiler_name)} {}
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    os::System& system;
    DynamicLibrary library;
    std::string compiler_library; ///< of Options
    Api api;
    int version = 0; ///< of the runtime
    int ordinal = 0; ///< HIP's number of the GPU
    Device device = 0;
    Identity identity;
    ByteCount granularity;

    struct External {
        ExternalHandle kind;
        ExternalMemory memory = nullptr; ///< of an opaque descriptor
    };
    std::mutex mutex; // guards what follows
    Module module = nullptr;
    std::map<std::uint64_t, std::pair<MemoryHandle, std::uint64_t>> vmm; ///< by base: what was made, and its bytes
    std::map<std::uint64_t, External> external;                          ///< by base

    /// An Error for HIP's answer to `operation`.
    [[nodiscard]] Error error(Status status, std::string operation, std::string subject, std::string hint) const;
    [[nodiscard]] static std::string at(DevicePointer pointer);
    [[nodiscard]] static void* raw(DevicePointer pointer) { return reinterpret_cast<void*>(pointer.value()); }
    [[nodiscard]] static DevicePointer device_pointer(const void* pointer) {
        return DevicePointer{reinterpret_cast<std::uintptr_t>(pointer)};
    }

    /// Calls a function of the table; `hint` is for what HIP refuses. Error also: ENOSYS, naming the version.
    template <class Signature, class... Arguments>
    Result<void> call(const TableFunction<Signature>& function, const std::string& subject, const std::string& hint,
                      Arguments... arguments) const {
        if (!offers(function)) {
            return missing(function, subject);
        }
        if (const Status status = function(arguments...); status != success) {
            return tl::unexpected{error(status, function.name, subject, hint)};
        }
        return {};
    }
    /// Runs `work` with the GPU as the thread's current device. Error also: HIP's, of making it so.
    template <class Work>
    auto on_device(Work&& work) const -> decltype(work());
    [[nodiscard]] bool offers(const TableEntry& function) const noexcept {
        return function.address != nullptr && version >= function.since;
    }
    [[nodiscard]] tl::unexpected<Error> missing(const TableEntry& function, const std::string& subject) const;
    void identify(const Major& major);

    /// The function of the kernel that reads eight bytes; compiled and loaded at the first use, on the device.
    Result<KernelFunction> reader();
    [[nodiscard]] Result<std::vector<char>> compile_reader();
    /// That [start, start + length) is in one allocation: HIP takes other addresses for the host's and follows them,
    /// and a fault of a kernel ends the process. Errors: EFAULT, and HIP's.
    [[nodiscard]] Result<void> holds(DevicePointer start, ByteCount length) const;
    /// hipHostRegister() and the pointer for device code; nothing stays registered on failure.
    Result<DevicePointer> register_memory(void* start, ByteCount length, unsigned flags, const char* hint);
    /// That an allocation begins there: HIP frees an allocation by any pointer into it. Errors: EINVAL, and HIP's.
    [[nodiscard]] Result<void> is_base(DevicePointer pointer) const;
    [[nodiscard]] Result<Allocation> allocation_at(DevicePointer pointer) const;
    /// What VMM memory of the GPU is to be.
    [[nodiscard]] AllocationProperties allocation_properties() const;
    /// `size`, rounded up to the granularity. Errors: ENOSYS before HIP 6, and HIP's.
    [[nodiscard]] Result<std::uint64_t> whole_granules(ByteCount size, const std::string& subject) const;
    Result<DevicePointer> create_vmm(ByteCount size);
    /// Maps `bytes`, whole granules, of what `handle` stands for; owns the handle, also where it fails.
    Result<DevicePointer> map_vmm(MemoryHandle handle, std::uint64_t bytes, const std::string& subject);
    Result<void> unmap_vmm(DevicePointer base);
    Result<DevicePointer> import_opaque(int fd, ByteCount length, const std::string& subject);
    Result<DevicePointer> import_shareable(int fd, ByteCount length, const std::string& subject);
};

[[nodiscard]] std::string version_text(int version);
/// The first library that opens. Error: ENOENT, with what the loader says of each, and `hint`.
[[nodiscard]] Result<DynamicLibrary> open_first(std::span<const char* const> names, const std::string& hint);

constexpr const char* unexpected_by_hip = "This is unexpected: see dmesg for amdgpu, and try another version of ROCm.";
constexpr const char* allocation_refused =
    "Is there so much free memory on the GPU? rocm-smi --showmeminfo vram tells how much is in use.";

/// Makes a GPU the thread's current device for its own life, and then the one again that was; says whether that went
/// well.
class Current {
  public:
    Current(const Api& api, int ordinal) : api_{api}, status_{api.current_device(&previous_)} {
        if (status_ == success && previous_ != ordinal) {
            failed_ = &api.set_device;
            status_ = api.set_device(ordinal);
            changed_ = status_ == success;
        }
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() {
        if (changed_) {
            api_.set_device(previous_);
        }
    }
    [[nodiscard]] Status status() const noexcept { return status_; }
    /// The function that `status` is of.
    [[nodiscard]] const char* function() const noexcept {
        return failed_ != nullptr ? failed_->name : api_.current_device.name;
    }

  private:
    const Api& api_;
    int previous_ = 0;
    Status status_;
    const TableEntry* failed_ = nullptr;
    bool changed_ = false;
};

template <class Work>
auto Hip::Driver::on_device(Work&& work) const -> decltype(work()) {
    const Current current{api, ordinal};
    if (current.status() != success) {
        return tl::unexpected{
            error(current.status(), current.function(), identity.name, "The GPU may be lost: see dmesg for amdgpu.")};
    }
    return work();
}

} // namespace upcie::gpu::hip
