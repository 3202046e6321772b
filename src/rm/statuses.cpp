// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/statuses.hpp>

#include <fmt/format.h>

#include <rm/table.hpp>

namespace upcie::rm {

namespace {

constexpr Status status_table[] = {
#include <rm/tables/statuses.inc>
};
static_assert(ascending(status_table, &Status::number));

} // namespace

const Status* find_status(std::uint32_t number) noexcept {
    return find_in(status_table, &Status::number, number);
}

std::span<const Status> statuses() noexcept {
    return status_table;
}

std::string describe_status(std::uint32_t number) {
    const Status* status = find_status(number);
    if (status == nullptr) {
        return fmt::format("status 0x{:x}", number);
    }
    return number == status_ok ? std::string{status->name} : fmt::format("{} (0x{:x})", status->name, number);
}

} // namespace upcie::rm
