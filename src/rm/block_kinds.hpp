// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <upcie/rm/nested.hpp>

namespace upcie::rm {

// Short spellings for tables.
constexpr BlockKind escape_block(std::uint32_t number) {
    return {BlockKind::Type::escape, number};
}
constexpr BlockKind control_block(std::uint32_t command) {
    return {BlockKind::Type::control, command};
}
constexpr BlockKind allocation_block(std::uint32_t class_id) {
    return {BlockKind::Type::allocation, class_id};
}
constexpr BlockKind uvm_block(std::uint32_t command) {
    return {BlockKind::Type::uvm, command};
}

} // namespace upcie::rm
