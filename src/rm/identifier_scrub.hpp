// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <upcie/rm/call.hpp>

namespace upcie::rm {

/// GPU identifiers (UUIDs), as 16 bytes and as the text "GPU-01234567-89ab-...", each with a placeholder by the order
/// in which they first appear. First all are seen, then they can be replaced.
class IdentifierScrub {
  public:
    using Identifier = std::array<std::byte, 16>;

    /// Identifiers at their known places in a call, and texts anywhere in its bytes.
    void see(const Call& call);
    void see_text(const std::vector<std::byte>& bytes);
    void replace(std::vector<std::byte>& bytes) const;
    void replace(std::string& text) const;
    [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }

  private:
    void add(const Identifier& identifier);
    [[nodiscard]] static Identifier placeholder(std::size_t number);

    std::map<Identifier, std::size_t> numbers_;
};

} // namespace upcie::rm
