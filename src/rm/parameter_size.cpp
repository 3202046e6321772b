// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/parameter_size.hpp>

#include <algorithm>

namespace upcie::rm {

namespace {

// The branches of which whole header trees were read. What is known of others stands in a row itself.
constexpr std::array<std::uint16_t, 2> trees{535, 555};

/// The size that holds at `branch`, or nothing before the first.
const ParameterSize::Since* holding(const ParameterSize& size, std::uint16_t branch) {
    const ParameterSize::Since* found = nullptr;
    for (const ParameterSize::Since& change : size) {
        if (change.branch <= branch) {
            found = &change;
        }
    }
    return found;
}

} // namespace

bool ParameterSize::certain_at(std::uint16_t branch) const noexcept {
    // Certain is what was looked at, and what lies between two looks that saw the same.
    std::uint16_t below = 0;
    std::uint16_t above = 0;
    const auto look = [&](std::uint16_t looked_at) {
        if (looked_at <= branch) {
            below = std::max(below, looked_at);
        }
        if (looked_at >= branch) {
            above = above == 0 ? looked_at : std::min(above, looked_at);
        }
    };
    for (const std::uint16_t tree : trees) {
        look(tree);
    }
    for (const Since& change : *this) {
        look(change.branch);
    }
    look(checked_until_);
    if (below == 0 || above == 0) {
        return false;
    }
    const Since* first = holding(*this, below);
    const Since* last = holding(*this, above);
    return below == above || (first != nullptr && last != nullptr && first->bytes == last->bytes);
}

std::optional<ParameterSize::Answer> ParameterSize::at(DriverVersion version) const noexcept {
    if (count_ == 0) {
        return std::nullopt;
    }
    const Since* found = version.known() ? holding(*this, version.branch) : &changes_[count_ - 1U];
    if (found == nullptr || found->bytes == absent) {
        return std::nullopt;
    }
    return Answer{found->bytes, version.known() && certain_at(version.branch)};
}

std::uint32_t ParameterSize::largest() const noexcept {
    std::uint32_t most = 0;
    for (const Since& change : *this) {
        most = change.bytes == absent ? most : std::max(most, change.bytes);
    }
    return most;
}

} // namespace upcie::rm
