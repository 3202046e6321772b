// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/uvm.hpp>

#include <rm/table.hpp>

namespace upcie::rm {

namespace {

constexpr UvmCommand uvm_table[] = {
#include <rm/tables/uvm.inc>
};
static_assert(ascending(uvm_table, &UvmCommand::number));

} // namespace

const UvmCommand* find_uvm_command(std::uint32_t number) noexcept {
    return find_in(uvm_table, &UvmCommand::number, number);
}

std::span<const UvmCommand> uvm_commands() noexcept {
    return uvm_table;
}

} // namespace upcie::rm
