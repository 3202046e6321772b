// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <upcie/rm/driver_version.hpp>

namespace upcie::rm {

/// How many bytes a block of parameters has, by driver branch: the branches at which the size changed, in ascending
/// order. What lies between two branches that were looked at and differ, or after the last, is taken to be as it was
/// before, and says so (`certain` false).
class ParameterSize {
  public:
    /// From `branch` on, `bytes`. `absent` says that from that branch on the headers no longer have it.
    struct Since {
        std::uint16_t branch = 0;
        std::uint32_t bytes = 0;
    };
    static constexpr std::uint32_t absent = 0xffffffff;
    static constexpr std::size_t most_changes = 6;

    struct Answer {
        std::uint32_t bytes = 0;
        bool certain = false; ///< just this branch was looked at, or it lies between two that agree
    };

    /// A size that is not known for any version.
    constexpr ParameterSize() noexcept = default;
    /// Never changed in the branches from `since` to `checked_until`.
    constexpr ParameterSize(Since first, std::uint16_t checked_until) noexcept
        : changes_{first}, count_{1}, checked_until_{checked_until} {}
    template <std::size_t N>
    constexpr ParameterSize(const Since (&changes)[N], std::uint16_t checked_until) noexcept
        : count_{N}, checked_until_{checked_until} {
        static_assert(N <= most_changes);
        for (std::size_t i = 0; i < N; ++i) {
            changes_[i] = changes[i];
        }
    }

    [[nodiscard]] constexpr bool known() const noexcept { return count_ != 0; }
    /// The size at `version`; nothing where the headers of that version do not have it, or no size is known.
    /// An unknown version asks for the newest. Threads: any.
    [[nodiscard]] std::optional<Answer> at(DriverVersion version) const noexcept;
    /// Whether what at() says of this branch was seen, not assumed.
    [[nodiscard]] bool certain_at(std::uint16_t branch) const noexcept;
    /// The largest size of any version: what a reader that knows no version has to make room for. 0 when none is known.
    [[nodiscard]] std::uint32_t largest() const noexcept;
    /// The changes, oldest first, for those who print them.
    [[nodiscard]] constexpr const Since* begin() const noexcept { return changes_.data(); }
    [[nodiscard]] constexpr const Since* end() const noexcept { return changes_.data() + count_; }
    /// The last branch whose headers were looked at for this one.
    [[nodiscard]] constexpr std::uint16_t checked_until() const noexcept { return checked_until_; }

  private:
    std::array<Since, most_changes> changes_{};
    std::uint8_t count_ = 0;
    std::uint16_t checked_until_ = 0;
};

} // namespace upcie::rm
