// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

namespace upcie::cli {

/// Visits 0 to count - 1, each just once: ascending, or in an order that a seed decides and that needs no memory.
class BlockOrder {
  public:
    BlockOrder(std::uint64_t count, bool random, std::uint64_t seed) noexcept
        : count_{count}, random_{random}, mask_{count < 2 ? 0 : ~std::uint64_t{0} >> std::countl_zero(count - 1)} {
        // A linear congruential generator visits every number below 2^k once when the multiplier is 1 modulo 4 and the
        // increment odd (Hull and Dobell); those not below count are skipped.
        multiplier_ = (seed << 3 | 5) * 0x9e3779b97f4a7c15ULL / 8 * 8 + 5;
        increment_ = (seed >> 7 ^ seed) << 1 | 1;
        state_ = seed & mask_;
        fold_ = static_cast<unsigned>(std::bit_width(mask_)) / 2 + 1;
    }

    [[nodiscard]] std::optional<std::uint64_t> next() noexcept {
        if (given_ == count_) {
            return std::nullopt;
        }
        if (!random_) {
            return given_++;
        }
        std::uint64_t index = 0;
        do {
            state_ = (state_ * multiplier_ + increment_) & mask_;
            // Its low bits repeat soon; folding the high ones in is one to one and mends that.
            index = state_ ^ (state_ >> fold_);
        } while (index >= count_);
        ++given_;
        return index;
    }

  private:
    std::uint64_t count_;
    bool random_;
    std::uint64_t mask_;
    std::uint64_t multiplier_ = 0;
    std::uint64_t increment_ = 0;
    std::uint64_t state_ = 0;
    std::uint64_t given_ = 0;
    unsigned fold_ = 1;
};

} // namespace upcie::cli
