// SPDX-License-Identifier: BSD-3-Clause
#include "memlock.hpp"

#include <cerrno>

#include "identity.hpp"

namespace upcie::probes {

namespace {

/// Growth counts when it is at least half of what was registered: /proc's numbers are exact, but rings come and go.
bool grew(std::uint64_t before, std::uint64_t during, std::uint64_t accepted) noexcept {
    return during > before && during - before >= accepted / 2 && accepted > 0;
}

std::string who(bool primary, bool secondary) {
    if (primary && secondary) {
        return "both";
    }
    return primary ? "primary" : (secondary ? "secondary" : "none");
}

} // namespace

const char* word(Way way) noexcept {
    return way == Way::by_file ? "by_file" : "by_address";
}

Result<Account> Account::now(os::System& system) {
    const Result<Identity> self = who_am_i(system);
    if (!self) {
        return tl::unexpected{self.error()};
    }
    return Account{self->locked, self->pinned};
}

Value Account::json() const {
    return {{"locked", locked}, {"pinned", pinned}};
}

Result<Account> Account::of(const Value& json) {
    try {
        return Account{json.at("locked").get<std::uint64_t>(), json.at("pinned").get<std::uint64_t>()};
    } catch (const Value::exception&) {
        return fail(EPROTO, "reading an account", "the other process", "Use the same build on both sides.");
    }
}

void Filling::fill(const SharedMemory& memory, Way way, std::uint64_t most) {
    for (std::uint64_t at = accepted(); at + fill_chunk <= most; at += fill_chunk) {
        const Answered<std::uint64_t> mapped =
            way == Way::by_file ? requests_.map_file(iommufd_, ioas_, memory.file.get(), at, fill_chunk)
                                : requests_.map(iommufd_, ioas_, memory.view.data() + at, fill_chunk);
        if (!mapped.ok()) {
            error_ = mapped.error;
            return;
        }
        iovas_.push_back(mapped.value);
    }
}

void Filling::clear() noexcept {
    for (const std::uint64_t iova : iovas_) {
        static_cast<void>(requests_.unmap(iommufd_, ioas_, iova, fill_chunk));
    }
    iovas_.clear();
    error_ = 0;
}

std::string pinned_on(const FillFacts& facts) {
    return who(grew(facts.primary_before.pinned, facts.primary_during.pinned, facts.accepted),
               grew(facts.secondary_before.pinned, facts.secondary_during.pinned, facts.accepted));
}

std::string locked_on(const FillFacts& facts) {
    return who(grew(facts.primary_before.locked, facts.primary_during.locked, facts.accepted),
               grew(facts.secondary_before.locked, facts.secondary_during.locked, facts.accepted));
}

std::string limited_by(const FillFacts& facts) {
    if (facts.error == 0) {
        return "none";
    }
    // The limit lets in whole chunks up to itself, less what was on the account before.
    const auto fits = [&](const std::optional<std::uint64_t>& limit) {
        return facts.error == ENOMEM && limit && facts.accepted <= *limit &&
               *limit - facts.accepted <= fill_chunk + facts.standing;
    };
    const bool primary = fits(facts.primary_limit);
    const bool secondary = fits(facts.secondary_limit);
    if (primary && secondary) {
        return "either";
    }
    return primary ? "primary" : (secondary ? "secondary" : "other");
}

} // namespace upcie::probes
