// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <upcie/rm/parameter_size.hpp>

namespace upcie::rm {

/// What an object of a class is, as far as the object tree has to know.
enum class ClassRole : std::uint8_t {
    other,
    client,         ///< the root of a process's objects
    device,         ///< one GPU, or several bound together
    subdevice,      ///< one GPU of a device
    memory,         ///< bytes: video memory, system memory, memory of the process
    virtual_memory, ///< a range of addresses without bytes
    address_space,  ///< page tables
    channel_group,
    context_share, ///< channels of one group that share an address space
    channel,       ///< a ring of commands
    compute,       ///< the compute engine, as a channel sees it
    copy,          ///< a copy engine, as a channel sees it
    graphics,
    video,    ///< decoders, encoders, JPEG, optical flow
    usermode, ///< the page of doorbells
    event,
    display,
    debugger,
    peer_to_peer,
    software, ///< an object that only the driver knows
};

/// A class of RM objects: hClass of an allocation (cl*.h, g_allclasses.h).
struct Class {
    std::uint32_t id = 0;
    std::string_view name;
    ClassRole role = ClassRole::other;
    ParameterSize allocation; ///< bytes of the allocation parameters; 0 bytes when the class takes none
    std::string_view note;
};

inline constexpr std::uint32_t class_root = 0x0;
inline constexpr std::uint32_t class_root_non_privileged = 0x1;
inline constexpr std::uint32_t class_root_client = 0x41;
inline constexpr std::uint32_t class_event = 0x5;
inline constexpr std::uint32_t class_event_os_event = 0x79;
inline constexpr std::uint32_t class_device = 0x80;
inline constexpr std::uint32_t class_subdevice = 0x2080;
inline constexpr std::uint32_t class_memory_system = 0x3e;
inline constexpr std::uint32_t class_memory_local_user = 0x40;
inline constexpr std::uint32_t class_memory_os_descriptor = 0x71;
inline constexpr std::uint32_t class_memory_virtual = 0x50a0;

/// The class of this id, or nullptr for one that no public header has. Threads: any.
[[nodiscard]] const Class* find_class(std::uint32_t id) noexcept;
/// All, ascending by id.
[[nodiscard]] std::span<const Class> classes() noexcept;
/// "channel", "copy engine" ...
[[nodiscard]] std::string_view role_name(ClassRole role) noexcept;

} // namespace upcie::rm
