// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include <rm/trace_bytes.hpp>

namespace upcie::rm {

/// Gives every region of addresses of a process a place of its own that is the same in every trace of the same shape.
/// First all addresses are seen, then settle() is called, then they can be replaced.
class AddressScrub {
  public:
    void see(std::uint64_t address);
    void see(const std::vector<std::byte>& bytes, TraceBytes kind);
    void settle();
    [[nodiscard]] std::uint64_t replacement(std::uint64_t address) const;
    /// Replaces the words of a byte string and counts those that changed.
    std::uint64_t replace(std::vector<std::byte>& bytes, TraceBytes kind) const;

  private:
    struct Region {
        std::uint64_t last = 0;
        std::uint64_t place = 0;
    };
    std::set<std::uint64_t> pages_;
    std::map<std::uint64_t, Region> regions_; ///< by first page
};

} // namespace upcie::rm
