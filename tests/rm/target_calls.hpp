// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <sys/ioctl.h>

/// What the target program asks for, and what a node answers: known to the program, to whoever plays the driver, and to
/// the test that reads the trace. Requests and layouts are those of the public headers (nvos.h, uvm_ioctl.h).
namespace upcie::rm::target {

inline constexpr std::uint32_t rm_free = 0xc0104629;
inline constexpr std::uint32_t rm_control = 0xc020462a;
inline constexpr std::uint32_t rm_alloc = 0xc030462b;
inline constexpr std::uint32_t rm_transfer = 0xc01046d3;
inline constexpr std::uint32_t register_fd = 0xc00446c9;
inline constexpr std::uint32_t control_escape = 0x2a;
inline constexpr std::uint32_t uvm_initialize = 0x30000001; ///< 16 bytes
inline constexpr std::uint32_t uvm_register_gpu = 37;       ///< 40 bytes
inline constexpr std::uint32_t uvm_unknown = 0x3fff;
/// Client ids mark the phase that a call belongs to.
inline constexpr std::uint32_t client = 0xc1d00001;
/// A control on it is answered late, so that a signal comes first.
inline constexpr std::uint32_t slow_object = 9;
inline constexpr std::uint32_t device_class = 0x80; ///< 56 bytes of parameters
inline constexpr std::size_t device_parameter_bytes = 56;
inline constexpr std::uint32_t plain_control = 0x20800110; ///< nothing embedded
inline constexpr std::uint32_t build_version_control = 0x101;
inline constexpr std::size_t version_bytes = 24; ///< of each of its three strings

template <class T>
void put(void* block, std::size_t offset, T value) {
    std::memcpy(static_cast<char*>(block) + offset, &value, sizeof value);
}
template <class T>
T get(const void* block, std::size_t offset) {
    T value{};
    std::memcpy(&value, static_cast<const char*>(block) + offset, sizeof value);
    return value;
}

/// NVOS54.
struct Control {
    std::array<unsigned char, 32> bytes{};
    Control(std::uint32_t object, std::uint32_t command, const void* parameters, std::uint32_t size) {
        put(bytes.data(), 0, client);
        put(bytes.data(), 4, object);
        put(bytes.data(), 8, command);
        put(bytes.data(), 16, reinterpret_cast<std::uint64_t>(parameters));
        put(bytes.data(), 24, size);
    }
};

/// NVOS64, with a parameter size of 0 as libcuda has it.
struct Alloc {
    std::array<unsigned char, 48> bytes{};
    Alloc(std::uint32_t parent, std::uint32_t handle, std::uint32_t class_id, const void* parameters) {
        put(bytes.data(), 0, client);
        put(bytes.data(), 4, parent);
        put(bytes.data(), 8, handle);
        put(bytes.data(), 12, class_id);
        put(bytes.data(), 16, reinterpret_cast<std::uint64_t>(parameters));
    }
};

// What whoever plays the driver does to a block: no byte stays as it was, and the status says which rule it was.
inline constexpr std::uint32_t answered_status = 0x57;

inline void answer_parameters(void* block, std::size_t size) {
    auto* const bytes = static_cast<unsigned char*>(block);
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<unsigned char>(bytes[i] ^ 0xa5U);
    }
}
/// Of the argument itself only the status changes: the pointers stay pointers.
inline void answer_argument(std::uint32_t request, void* block, std::size_t size) {
    if (request == rm_control) {
        put(block, 28, answered_status);
    } else if (request == rm_alloc) {
        put(block, 40, answered_status);
    } else if (request == rm_free) {
        put(block, 12, answered_status);
    } else if (request == uvm_initialize || request == uvm_register_gpu) {
        put(block, size - 4, answered_status);
    }
}
/// Bytes of the argument, as the driver knows them.
inline std::size_t argument_size(std::uint32_t request) {
    return request == uvm_initialize ? 16 : request == uvm_register_gpu ? 40 : _IOC_SIZE(request);
}

} // namespace upcie::rm::target
