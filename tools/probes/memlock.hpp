// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

#include "report.hpp"
#include "requests.hpp"
#include "session.hpp"

// Which process's RLIMIT_MEMLOCK is charged for memory that is registered with an iommufd.
namespace upcie::probes {

enum class Way : std::uint8_t { by_file, by_address };
[[nodiscard]] const char* word(Way way) noexcept;

constexpr std::uint64_t fill_chunk = std::uint64_t{1} << 20;

/// What /proc says that a process has locked and pinned, in bytes.
struct Account {
    std::uint64_t locked = 0;
    std::uint64_t pinned = 0;
    /// This process's. Error: of who_am_i().
    [[nodiscard]] static Result<Account> now(os::System& system);
    [[nodiscard]] Value json() const;
    /// Error: EPROTO.
    [[nodiscard]] static Result<Account> of(const Value& json);
};

/// Chunks of memory registered one after the other until the kernel refuses. Unmaps them at the end.
class Filling {
  public:
    Filling(const Requests& requests, int iommufd, std::uint32_t ioas) noexcept
        : requests_{requests}, iommufd_{iommufd}, ioas_{ioas} {}
    Filling(const Filling&) = delete;
    Filling& operator=(const Filling&) = delete;
    ~Filling() { clear(); }

    /// Registers up to `most` bytes of `memory` (as long at least).
    void fill(const SharedMemory& memory, Way way, std::uint64_t most);
    void clear() noexcept;
    [[nodiscard]] std::uint64_t accepted() const noexcept { return iovas_.size() * fill_chunk; }
    /// errno of the refusal, 0 when everything was taken.
    [[nodiscard]] int error() const noexcept { return error_; }

  private:
    const Requests& requests_;
    int iommufd_;
    std::uint32_t ioas_;
    std::vector<std::uint64_t> iovas_;
    int error_ = 0;
};

/// One filling as seen from both processes.
struct FillFacts {
    std::uint64_t accepted = 0;
    int error = 0;
    Account primary_before, primary_during;
    Account secondary_before, secondary_during;
    std::optional<std::uint64_t> primary_limit; ///< none: unlimited
    std::optional<std::uint64_t> secondary_limit;
    std::uint64_t standing = 0; ///< at most this much was charged already when it began
};

/// Whose VmPin (VmLck) grew by what was accepted: "primary", "secondary", "both", "none".
[[nodiscard]] std::string pinned_on(const FillFacts& facts);
[[nodiscard]] std::string locked_on(const FillFacts& facts);
/// Whose limit ended it: "primary", "secondary", "either" (they are too close to tell), "none" (no refusal), "other"
/// (an ENOMEM that fits neither, or another errno).
[[nodiscard]] std::string limited_by(const FillFacts& facts);

} // namespace upcie::probes
