// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/result.hpp>

namespace upcie::sim {

/// What goes wrong. The text form is given after each: `name:argument`.
enum class FaultAction : std::uint8_t {
    // ---- to a command
    late, ///< "late:3" or "late:50ms": done only after 3 more completions of its queue, or 50 ms; its data moves then
    reorder,   ///< "reorder:2": done at once, its completion follows only after 2 more of its queue
    lost,      ///< "lost": done, never completed
    duplicate, ///< "duplicate": its completion comes twice
    error,     ///< "error:2:0x81" or "error:2:0x81:dnr": not done, completed with status type 2, code 0x81
    phase,     ///< "phase": its completion entry carries the wrong phase bit (nothing after it is found either)
    bad_cid,   ///< "bad-cid": its completion names an identifier that is not outstanding ("bad-cid:7": just 7)
    stray,     ///< "stray": a completion of an identifier that is not outstanding comes before its own
    bad_sqid,  ///< "bad-sqid": its completion names another submission queue
    misplaced, ///< "misplaced:1": the data is that of 1 block further (read) or goes there (write)
    corrupt,   ///< "corrupt:100": byte 100 of the data is inverted on its way, data otherwise right
    dropped,   ///< "dropped": completed as a success without moving data: a lost write, a stale buffer after a read
    // ---- to the controller, when a command is fetched or at an event
    fatal, ///< "cfs": CSTS.CFS set, nothing is processed until the controller is disabled
    gone,  ///< "gone": all registers read as ones, as after a surprise removal; for good
    // ---- to a transition
    never_ready, ///< "never-ready": CC.EN set and CSTS.RDY stays 0
    never_idle,  ///< "never-idle": CC.EN cleared and CSTS.RDY stays 1
    never_shut,  ///< "never-shut": CC.SHN set and CSTS.SHST never says complete
};

/// When a rule is looked at.
enum class FaultEvent : std::uint8_t { command, enable, disable, shutdown };

/// One thing that goes wrong, and when. All conditions given must hold. Unset conditions hold always.
struct FaultRule {
    FaultAction action = FaultAction::lost;
    FaultEvent event = FaultEvent::command;
    std::uint64_t count = 0;           ///< completions (late, reorder), blocks (misplaced), byte (corrupt)
    std::chrono::milliseconds delay{}; ///< late: instead of a count
    std::uint8_t status_type = 0;      ///< error
    std::uint8_t status_code = 0;
    bool do_not_retry = false;
    std::optional<std::uint16_t> cid; ///< bad_cid and stray: which identifier; else one that is not outstanding

    std::optional<bool> admin;          ///< "admin", "io": which queues
    std::optional<std::uint16_t> qid;   ///< "qid=2"
    std::optional<std::uint8_t> opcode; ///< "op=read", "op=0x81"; admin and I/O opcodes overlap: name the queue too
    std::optional<std::uint32_t> nsid;  ///< "nsid=1"
    std::optional<std::uint64_t>
        first_lba; ///< "lba=100" or "lba=100..199": reads, writes and write zeroes that touch it
    std::uint64_t last_lba = 0;
    std::uint64_t nth = 0;   ///< "nth=3": the third that meets the conditions so far, and no other
    std::uint64_t every = 0; ///< "every=10": each tenth
    std::uint64_t times = 0; ///< "once", "times=5": at most so often; 0: no limit
};

/// A list of rules; on each command the first rule that is due is applied. Every rule counts for itself what meets its
/// conditions.
///
/// Text: rules parted by ';', each `action@condition&condition`, for example
/// `error:2:0x81@op=read&lba=100..199;late:50ms@admin&nth=4;cfs@nth=1000`. Names of opcodes are flush, write, read,
/// write-zeroes, dsm, identify, create-sq, create-cq, delete-sq, delete-cq, get-log, set-features, get-features, abort,
/// aer, format. A named opcode implies its kind of queue. Events: `on=enable`, `on=disable`, `on=shutdown`
/// ("cfs@on=enable").
class FaultScript {
  public:
    FaultScript() = default;
    explicit FaultScript(std::vector<FaultRule> rules) : rules_{std::move(rules)} {}

    /// Error: EINVAL, naming the rule and what is wrong with it.
    [[nodiscard]] static Result<FaultScript> parse(std::string_view text);

    void add(FaultRule rule) { rules_.push_back(rule); }
    [[nodiscard]] const std::vector<FaultRule>& rules() const noexcept { return rules_; }
    [[nodiscard]] bool empty() const noexcept { return rules_.empty(); }

  private:
    std::vector<FaultRule> rules_;
};

} // namespace upcie::sim
