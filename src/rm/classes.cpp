// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/classes.hpp>

#include <rm/table.hpp>

namespace upcie::rm {

namespace {

constexpr Class class_table[] = {
#include <rm/tables/classes.inc>
};
static_assert(ascending(class_table, &Class::id));

} // namespace

const Class* find_class(std::uint32_t id) noexcept {
    return find_in(class_table, &Class::id, id);
}

std::span<const Class> classes() noexcept {
    return class_table;
}

std::string_view role_name(ClassRole role) noexcept {
    switch (role) {
    case ClassRole::client:
        return "client";
    case ClassRole::device:
        return "device";
    case ClassRole::subdevice:
        return "subdevice";
    case ClassRole::memory:
        return "memory";
    case ClassRole::virtual_memory:
        return "virtual memory";
    case ClassRole::address_space:
        return "address space";
    case ClassRole::channel_group:
        return "channel group";
    case ClassRole::context_share:
        return "context share";
    case ClassRole::channel:
        return "channel";
    case ClassRole::compute:
        return "compute engine";
    case ClassRole::copy:
        return "copy engine";
    case ClassRole::graphics:
        return "graphics engine";
    case ClassRole::video:
        return "video engine";
    case ClassRole::usermode:
        return "doorbell page";
    case ClassRole::event:
        return "event";
    case ClassRole::display:
        return "display";
    case ClassRole::debugger:
        return "debugger or profiler";
    case ClassRole::peer_to_peer:
        return "peer to peer";
    case ClassRole::software:
        return "software object";
    case ClassRole::other:
        break;
    }
    return "object";
}

} // namespace upcie::rm
