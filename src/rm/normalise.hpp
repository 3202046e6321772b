// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <upcie/rm/call.hpp>
#include <upcie/rm/objects.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// Ranges of addresses that a trace names, numbered in the order in which they first appear.
class AddressRegions {
  public:
    /// A range that is known from now on; one that is known already keeps its number.
    void add(std::uint64_t address, std::uint64_t length);
    /// What a record says of addresses: mappings, UVM ranges.
    void take(const Record& record, const std::optional<Call>& call);
    /// The number of the region that an address lies in and the offset there, or nothing.
    struct Place {
        std::size_t region = 0;
        std::uint64_t offset = 0;
    };
    [[nodiscard]] std::optional<Place> find(std::uint64_t address) const;

  private:
    struct Region {
        std::uint64_t length = 0;
        std::size_t number = 0;
    };
    std::map<std::uint64_t, Region> regions_; ///< by first address
};

/// Whether an aligned word of a payload looks like an address of a Linux process rather than a number or text.
[[nodiscard]] bool looks_like_pointer(std::uint64_t word) noexcept;

/// The bytes of a block without what differs from run to run: pointers that lead to other blocks, handles of living
/// objects, addresses of known regions, descriptors at their known places, the caller's process id.
[[nodiscard]] std::vector<std::byte> normalise(const Call& call, const Block& block, std::span<const std::byte> bytes,
                                               const ObjectTree& tree, const AddressRegions& regions);

} // namespace upcie::rm
