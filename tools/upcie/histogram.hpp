// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace upcie::cli {

/// Counts of times in nanoseconds, with buckets no wider than 1/32 of their value: percentiles are exact to 3.2 %.
///
/// Fixed size (15 KiB), adding is a few instructions. Threads: one at a time.
class Histogram {
  public:
    void add(std::uint64_t value) noexcept {
        ++buckets_[index_of(value)];
        ++count_;
        sum_ += value;
        least_ = value < least_ ? value : least_;
        most_ = value > most_ ? value : most_;
    }
    void merge(const Histogram& other) noexcept;

    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
    [[nodiscard]] std::uint64_t least() const noexcept { return count_ == 0 ? 0 : least_; }
    [[nodiscard]] std::uint64_t most() const noexcept { return most_; }
    [[nodiscard]] double mean() const noexcept {
        return count_ == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(count_);
    }
    /// The value that `fraction` (0 to 1) of all are not above; the upper end of its bucket, never above most().
    [[nodiscard]] std::uint64_t percentile(double fraction) const noexcept;

  private:
    static constexpr unsigned sub_bits = 5;
    static constexpr std::uint64_t sub_count = 1U << sub_bits;
    static constexpr std::size_t bucket_count = (64 - sub_bits + 1) * sub_count;

    static constexpr std::size_t index_of(std::uint64_t value) noexcept {
        if (value < sub_count) {
            return static_cast<std::size_t>(value);
        }
        const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - 1 - sub_bits;
        return static_cast<std::size_t>((std::uint64_t{shift} + 1) * sub_count + ((value >> shift) - sub_count));
    }
    static std::uint64_t upper_end(std::size_t index) noexcept;

    std::vector<std::uint64_t> buckets_ = std::vector<std::uint64_t>(bucket_count);
    std::uint64_t count_ = 0;
    std::uint64_t sum_ = 0;
    std::uint64_t least_ = ~std::uint64_t{0};
    std::uint64_t most_ = 0;
};

} // namespace upcie::cli
