// SPDX-License-Identifier: BSD-3-Clause
#include "histogram.hpp"

#include <algorithm>
#include <cmath>

namespace upcie::cli {

void Histogram::merge(const Histogram& other) noexcept {
    for (std::size_t i = 0; i < bucket_count; ++i) {
        buckets_[i] += other.buckets_[i];
    }
    count_ += other.count_;
    sum_ += other.sum_;
    least_ = std::min(least_, other.least_);
    most_ = std::max(most_, other.most_);
}

std::uint64_t Histogram::upper_end(std::size_t index) noexcept {
    if (index < sub_count) {
        return index;
    }
    const std::uint64_t shift = index / sub_count - 1;
    return ((sub_count + index % sub_count + 1) << shift) - 1;
}

std::uint64_t Histogram::percentile(double fraction) const noexcept {
    if (count_ == 0) {
        return 0;
    }
    const auto wanted =
        std::max(std::uint64_t{1}, static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(count_))));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < bucket_count; ++i) {
        seen += buckets_[i];
        if (seen >= wanted) {
            return std::min(upper_end(i), most_);
        }
    }
    return most_;
}

} // namespace upcie::cli
