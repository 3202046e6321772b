// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/controls.hpp>

#include <iterator>

#include <rm/table.hpp>

namespace upcie::rm {

namespace {

constexpr Control control_table[] = {
#include <rm/tables/controls_0000.inc>
#include <rm/tables/controls_0073.inc>
#include <rm/tables/controls_0080.inc>
#include <rm/tables/controls_2080_gpu.inc>
#include <rm/tables/controls_2080_internal.inc>
#include <rm/tables/controls_2080_memory.inc>
#include <rm/tables/controls_2080_rest.inc>
#include <rm/tables/controls_2081.inc>
#include <rm/tables/controls_9000.inc>
};
static_assert(ascending(control_table, &Control::command));

// Measured with libcuda 550.163.01 by answering each control with success and zeros, one at a time.
constexpr ConsumedControl consumed_table[] = {
    {0x101, "cuInit fails with error 803"},
    {0xd01, "cuInit fails with error 100"},
    {0x800280, "cuInit fails with error 100"},
    {0x800292, "cuInit fails with error 100"},
    {0x2080014a, "cuInit fails with error 100"},
    {0x20800170, "cuCtxCreate fails with error 101"},
    {0x20801201, "cuCtxCreate fails with error 999"},
    {0x2080121b, "cuInit fails with error 100"},
    {0x20801701, "cuInit fails with error 100"},
    {0x20802a0a, "cuCtxCreate hangs"},
    {0x906f0101, "cuCtxCreate hangs"},
    {0xc36f0101, "cuCtxCreate hangs"},
};

} // namespace

const Control* find_control(std::uint32_t command, DriverVersion version) noexcept {
    const Control* newest = nullptr;
    const Control* sizeless = nullptr;
    for (const Control* row = find_in(control_table, &Control::command, command);
         row != nullptr && row != std::end(control_table) && row->command == command; ++row) {
        if (version.known() && row->size.at(version)) {
            return row;
        }
        newest = row;
        sizeless = row->size.known() ? sizeless : row;
    }
    // One whose size no header gives may be meant where the others are known not to be.
    return version.known() && sizeless != nullptr ? sizeless : newest;
}

std::span<const Control> controls() noexcept {
    return control_table;
}

std::span<const ConsumedControl> consumed_controls() noexcept {
    return consumed_table;
}

const ConsumedControl* find_consumed_control(std::uint32_t command) noexcept {
    return find_in(consumed_table, &ConsumedControl::command, command);
}

} // namespace upcie::rm
