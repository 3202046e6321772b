// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The state of the library that is shaped like libamdhip64 (hip.cpp says what it is like), and what its parts share.

#include <cstdint>
#include <optional>
#include <set>

#include "fake.hpp"
#include "gpu/hip/api.hpp"

namespace fake_hip {

using upcie::ByteCount;
using upcie::DevicePointer;
using upcie::gpu::stub::Stub;

using upcie::gpu::hip::illegal_address;
using upcie::gpu::hip::invalid_device;
using upcie::gpu::hip::invalid_device_pointer;
using upcie::gpu::hip::invalid_image;
using upcie::gpu::hip::invalid_value;
using upcie::gpu::hip::no_device;
using upcie::gpu::hip::not_found;
using upcie::gpu::hip::not_supported;
using upcie::gpu::hip::out_of_memory;
using upcie::gpu::hip::success;

constexpr int major = FAKE_HIP_MAJOR;
constexpr int version = major == 7 ? 70152801 : major == 6 ? 60342134 : major == 5 ? 50221153 : major * 10'000'000 + 1;
constexpr int devices = 2;
constexpr std::size_t granule = 4096;

struct Fake {
    std::recursive_mutex api; ///< one call at a time
    std::optional<Stub> stub;
    fake_gpu::Script script;
    std::map<std::string, int> allowed;
    std::set<std::uint64_t> not_exported;            ///< bases of managed memory
    std::map<std::uint64_t, std::size_t> host;       ///< hipHostMalloc's
    std::map<std::uint64_t, std::size_t> registered; ///< device's pointer, and bytes
    std::map<void*, std::uint64_t> registered_at;    ///< the host's pointer, and the device's
    std::set<std::uint64_t> handles;                 ///< live ones: addresses of what is behind them
    std::uint64_t newest_handle = 0;                 ///< reserving answers its address
    std::map<std::uint64_t, int> imported;           ///< of external memory: what is behind it, and its descriptor
};

inline Fake& fake() {
    static Fake* const one = new Fake; // lives as long as the process, as a runtime does
    return *one;
}

inline thread_local int current = 0;
inline thread_local int seen = -1; ///< the device that was current at the last call that needs one

inline int scripted(const char* function) {
    return fake().script.take(function);
}

inline bool allowed(const char* what) {
    return fake().allowed[what] != 0;
}

/// HIP initialises itself at the first call of nearly anything.
inline int check(const char* function) {
    if (const int failure = scripted(function); failure != success) {
        return failure;
    }
    if (fake_gpu::no_device_wanted()) {
        return no_device;
    }
    Fake& f = fake();
    if (!f.stub) {
        auto made = fake_gpu::make_stub(upcie::gpu::stub::Manner::whole_object);
        if (!made) {
            return out_of_memory;
        }
        f.stub.emplace(std::move(*made));
    }
    seen = current;
    return success;
}

inline Stub& stub() {
    return *fake().stub;
}

inline std::uint64_t number(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}
inline void* pointer(std::uint64_t number) {
    return reinterpret_cast<void*>(number);
}

inline int allocate(void** out, std::size_t size) {
    if (out == nullptr) {
        return invalid_value;
    }
    *out = nullptr;
    if (size == 0) {
        return success;
    }
    const auto made = stub().allocate(ByteCount{size});
    if (!made) {
        return out_of_memory;
    }
    *out = pointer(made->value());
    return success;
}

/// The allocation that an address lies in: the device's, the host's, or registered memory.
inline bool range_of(std::uint64_t address, std::uint64_t& base, std::uint64_t& size) {
    if (const auto found = stub().allocation_of(DevicePointer{address})) {
        base = found->base.value();
        size = found->size.value();
        return true;
    }
    for (const auto* const kind : {&fake().host, &fake().registered}) {
        auto place = kind->upper_bound(address);
        if (place != kind->begin() && address - (--place)->first < place->second) {
            base = place->first;
            size = place->second;
            return true;
        }
    }
    return false;
}

/// Any pointer into an allocation frees it, and a null one is nothing to do: as HIP has it.
inline int release(void* any) {
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    if (any == nullptr) {
        return success;
    }
    if (!range_of(number(any), base, size)) {
        return invalid_value;
    }
    fake().not_exported.erase(base);
    if (fake().host.erase(base) != 0) {
        ::munmap(pointer(base), size);
        return success;
    }
    return stub().free(DevicePointer{base}) ? success : invalid_value;
}

} // namespace fake_hip

#define CHECK(function)                                                                                                \
    const std::lock_guard one_call{fake().api};                                                                        \
    if (const int status = check(function); status != success) {                                                       \
        return status;                                                                                                 \
    }
