// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <upcie/rm/contract.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// One call of a trace, without what differs from run to run: handles stand as the object's label, addresses as the
/// region that they lie in, descriptors as what they refer to, times and process ids not at all.
struct Step {
    Ask ask;
    std::string name;       ///< "RM_CONTROL NV2080_... on subdevice 1"
    std::uint64_t size = 0; ///< of the parameters or the argument
    std::string outcome;
    std::vector<std::byte> reply;   ///< the normalised bytes that came back, argument and all blocks below it, in order
    std::vector<std::byte> request; ///< the same of what went in
    std::uint64_t repeats = 1;      ///< the same call so many times in a row: a poll loop counts once
    std::uint64_t sequence = 0;     ///< of its record, to be found again
};
/// The steps of one thread, in its order.
struct ThreadSteps {
    std::int32_t tid = 0;
    std::vector<Step> steps;
};
/// All threads, in the order of their first call. Threads: any.
[[nodiscard]] std::vector<ThreadSteps> steps_of(const Trace& trace);

/// What differs between the traces in one ask.
struct AskDifference {
    Ask ask;
    std::uint64_t calls_a = 0;
    std::uint64_t calls_b = 0;
    std::set<std::uint64_t> sizes_a;
    std::set<std::uint64_t> sizes_b;
    std::set<std::string> outcomes_a;
    std::set<std::string> outcomes_b;
    /// Of the calls paired in order, those whose reply differs; offsets into the normalised reply, of the first such
    /// pair.
    std::uint64_t changed_replies = 0;
    std::vector<std::size_t> changed_offsets;
    [[nodiscard]] bool only_a() const noexcept { return calls_b == 0; }
    [[nodiscard]] bool only_b() const noexcept { return calls_a == 0; }
};

/// Where two traces part.
struct Divergence {
    std::optional<Step> a; ///< nothing: A has no such step
    std::optional<Step> b;
    std::string why;          ///< "another call", "another size", "another outcome", "another reply", "A ends here"
    std::size_t thread = 0;   ///< 0 is the first thread
    std::size_t position = 0; ///< how many steps of the thread agreed before
    std::vector<Step> before; ///< the last few that agreed
    std::vector<std::size_t> offsets; ///< of the bytes that differ, for another reply
};

struct Difference {
    DriverVersion version_a;
    DriverVersion version_b;
    std::vector<AskDifference> asks;       ///< those that differ, and only they
    std::optional<Divergence> first;       ///< another call, size or outcome: the first, by thread and position
    std::optional<Divergence> first_reply; ///< the first reply that differs before that
    std::uint64_t steps_a = 0;
    std::uint64_t steps_b = 0;
    [[nodiscard]] bool same() const noexcept { return asks.empty() && !first && !first_reply; }
};

/// Compares two traces. `compare_replies` off leaves the bytes of replies aside: two machines always differ there.
/// Threads: any.
[[nodiscard]] Difference compare(const Trace& a, const Trace& b, bool compare_replies = true);

} // namespace upcie::rm
