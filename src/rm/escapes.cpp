// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/escapes.hpp>

#include <array>

#include <rm/table.hpp>

namespace upcie::rm {

namespace {

constexpr Escape escape_table[] = {
#include <rm/tables/escapes.inc>
};
static_assert(ascending(escape_table, &Escape::number));

} // namespace

const Escape* find_escape(std::uint32_t number) noexcept {
    return find_in(escape_table, &Escape::number, number);
}

std::span<const Escape> escapes() noexcept {
    return escape_table;
}

std::string_view escape_node_name(EscapeNode node) noexcept {
    switch (node) {
    case EscapeNode::control:
        return "/dev/nvidiactl";
    case EscapeNode::gpu:
        return "/dev/nvidiaN";
    case EscapeNode::either:
        break;
    }
    return "/dev/nvidiactl or /dev/nvidiaN";
}

} // namespace upcie::rm
