// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/result.hpp>
#include <upcie/rm/call.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// The eight points that software which answers this contract has to get right (docs/rm.md).
enum class Point : std::uint8_t {
    control_device = 1, ///< the control device: version, cards, registration of descriptors, what is read besides
    objects,            ///< allocation and free of objects, with checks of handles
    topology,           ///< what the device is and which engines it has
    memory,             ///< address spaces, allocations, mappings
    channels,           ///< rings, their notifiers, USERD, doorbell tokens
    events,             ///< events and interrupts that fire
    replies,            ///< values of replies that the program looks at
    execution,          ///< what the rings say: semaphores, copies, kernels
};
inline constexpr std::size_t points = 8;
[[nodiscard]] std::string_view point_name(Point point) noexcept;

/// A distinct thing that a program asks: one escape, control, class or UVM command. RM_CONTROL and the allocations are
/// told apart by their control or class.
struct Ask {
    enum class Kind : std::uint8_t { escape, control, allocation, uvm, other };
    Kind kind = Kind::escape;
    std::uint64_t number = 0; ///< of `other`: the whole request
    friend auto operator<=>(const Ask&, const Ask&) noexcept = default;
};
/// What a call asks. Threads: any.
[[nodiscard]] Ask ask_of(const Call& call) noexcept;
[[nodiscard]] std::string ask_name(const Ask& ask, DriverVersion version);
/// The point of the list that an ask belongs to. Unknown controls and classes go by the class that they belong to;
/// where that says nothing, to `topology` and `objects`. Threads: any.
[[nodiscard]] Point point_of(const Ask& ask) noexcept;

/// What is known of one ask in one or several traces.
struct AskFacts {
    std::uint64_t calls = 0;
    std::uint64_t succeeded = 0;
    std::set<std::uint32_t> escapes; ///< by which it was asked; none for UVM
    std::set<std::string> outcomes;  ///< in words, all that were seen
    std::set<std::uint64_t> sizes;   ///< of the parameters (controls, allocations) or the argument, in bytes
    bool legacy = false;             ///< a control of which no header says anything
    bool unknown = false;            ///< no public header has the number
    std::string consumed;            ///< what zeros lead to, where that was measured; empty: unknown
};

/// What a program needs of whoever answers it.
struct Contract {
    DriverVersion version;
    std::map<Ask, AskFacts> asks;
    /// Controls whose values were measured to matter, on another branch than the trace is of: nothing is known then.
    bool consumed_measured_here = false;
    /// Asks that succeeded at least once, and the escapes that carried them: an answer of refusal would be a change.
    /// All others were refused by the driver itself in these traces, and a software stack may refuse them too.
    std::set<Ask> smallest;
    std::set<std::string> files; ///< opened, read or examined besides
    std::uint64_t node_opens = 0;
    std::uint64_t polls = 0;          ///< of nodes: events waited for
    std::uint64_t mappings = 0;       ///< of nodes
    std::uint64_t memory_records = 0; ///< with them rings are visible
    std::uint64_t channels = 0;       ///< allocated
    std::uint64_t events = 0;         ///< allocated
};
/// Of one trace or several together. Threads: any.
[[nodiscard]] Contract contract_of(const std::vector<const Trace*>& traces);

/// An allow-list: what somebody who stands between a program and the driver lets through.
struct AllowList {
    struct Rule {
        Ask::Kind kind = Ask::Kind::escape;
        bool any = false; ///< "*"
        std::uint64_t number = 0;
        bool legacy = false; ///< "control legacy"
    };
    std::vector<Rule> rules;
    [[nodiscard]] bool allows(const Ask& ask) const noexcept;
};
/// Reads the text form (docs/rm.md): lines of `escape`, `control`, `class` or `uvm`, then a number, a name, or `*`;
/// `control legacy`; `#` begins a comment. Error: EINVAL with the line, for a word or a name that is not known and for
/// a number that there cannot be (an escape is 0 to 0xff, the others have 32 bits). Threads: any.
[[nodiscard]] Result<AllowList> read_allow_list(std::string_view text, std::string_view subject);

/// The asks of a contract that an allow-list would refuse. A class or a control needs its escape allowed too. Threads:
/// any.
[[nodiscard]] std::vector<Ask> refused_by(const Contract& contract, const AllowList& list);

} // namespace upcie::rm
