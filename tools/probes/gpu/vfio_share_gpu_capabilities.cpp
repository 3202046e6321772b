// SPDX-License-Identifier: BSD-3-Clause
// With which capability a user is let register MMIO: a fresh process for each, all given the same.
#include "vfio_share_gpu.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <linux/capability.h>

#include "../environment.hpp"
#include "../two_processes.hpp"

namespace upcie::probes {

namespace {

constexpr std::uint64_t bit_of(unsigned number) noexcept {
    return std::uint64_t{1} << number;
}

class CapabilityTrials {
  public:
    CapabilityTrials(Report& report, const Requests& requests, const OpenedPage* device,
                     const CapabilityOptions& options, const StartSecondary& start)
        : report_{report},
          requests_{requests},
          device_{device},
          uid_{options.uid},
          only_{options.only},
          start_{start} {}

    Result<void> run();

  private:
    /// What one process was answered: "ok", an error's name, or nothing where it could not ask.
    using Outcome = std::optional<std::string>;
    [[nodiscard]] Result<Outcome> trial(const std::string& name, const std::optional<Appearance>& appearance);
    Result<void> try_each(const Identity& self, unsigned last);
    void judge();
    [[nodiscard]] bool wanted(const std::string& name) const {
        return only_.empty() || std::find(only_.begin(), only_.end(), name) != only_.end();
    }
    [[nodiscard]] std::string what() const {
        return device_ != nullptr ? "the mapping of a BAR" : "ordinary memory as IOMEMORY";
    }
    [[nodiscard]] std::string words(const Outcome& outcome) const { return outcome.value_or("it could not ask"); }

    Report& report_;
    const Requests& requests_;
    const OpenedPage* device_;
    std::uint32_t uid_;
    const std::vector<std::string>& only_;
    const StartSecondary& start_;
    Outcome self_;
    Outcome none_;
    Outcome all_;
    std::vector<std::string> found_;
    std::vector<std::string> not_tried_;
    std::vector<std::string> others_;      ///< processes that were not what they were meant to be
    std::vector<std::string> unreachable_; ///< whose GPU did not reach ordinary memory either
};

/// Errors: the process could not be started. That it could not ask is an outcome.
Result<CapabilityTrials::Outcome> CapabilityTrials::trial(const std::string& name,
                                                          const std::optional<Appearance>& appearance) {
    const std::string seen_as = "capability." + name + ".registration";
    Result<Channel> channel = start_(appearance);
    if (!channel) {
        return tl::unexpected{std::move(channel.error())};
    }
    Report one{"vfio_share_gpu_" + gpu_flavour().name, vfio_share_gpu_question, "primary"};
    const Result<SecondaryTold> told = ask_secondary(one, requests_, *channel, device_);
    if (!told) {
        report_.not_seen(seen_as, told.error().message());
        return Outcome{};
    }
    if (name == "self" || name == "none" || name == "all") {
        report_.add_process(name, one.json().at("processes").at("secondary"));
    }
    if (name == "self") {
        report_.set_environment(
            environment_with_gpu(requests_.system(), device_ != nullptr ? &device_->where : nullptr, told->gpu));
    }
    if (appearance &&
        (told->who.effective_uid != appearance->uid || told->who.effective_capabilities != appearance->capabilities)) {
        others_.push_back(name);
    }
    const Observation* const reached = one.find("control.ordinary_memory_is_reachable");
    if (reached == nullptr || !reached->held.value_or(false)) {
        unreachable_.push_back(name);
    }
    const Observation* const registered =
        one.find(device_ != nullptr ? "bar.registration" : "ordinary.registration_as_iomemory");
    if (registered == nullptr) {
        report_.not_seen(seen_as, "the process could not map the BAR");
        return Outcome{};
    }
    report_.observe(seen_as, registered->value, "outcome",
                    fmt::format("uid {}, effective capabilities {}", told->who.effective_uid,
                                hex(told->who.effective_capabilities)));
    return Outcome{registered->value.get<std::string>()};
}

Result<void> CapabilityTrials::try_each(const Identity& self, unsigned last) {
    std::uint64_t given = 0;
    for (unsigned number = 0; number <= last; ++number) {
        const std::string name = capability_name(number);
        const bool own = (self.permitted_capabilities & bit_of(number)) != 0;
        given |= own ? bit_of(number) : 0;
        if (!own || !wanted(name)) {
            report_.not_seen("capability." + name + ".registration",
                             wanted(name) ? "this process does not have it to give" : "others were asked for");
            not_tried_.push_back(name);
            continue;
        }
        const Result<Outcome> outcome = trial(name, Appearance{uid_, bit_of(number)});
        if (!outcome || !*outcome) {
            if (!outcome) {
                report_.not_seen("capability." + name + ".registration", outcome.error().message());
            }
            not_tried_.push_back(name);
        } else if (*outcome == self_ && *outcome != none_) {
            found_.push_back(name);
        }
    }
    Result<Outcome> all = trial("all", Appearance{uid_, given});
    if (!all) {
        return tl::unexpected{std::move(all.error())};
    }
    all_ = std::move(*all);
    return {};
}

void CapabilityTrials::judge() {
    const auto list = [](const std::vector<std::string>& names) {
        std::string text;
        for (const std::string& name : names) {
            text += (text.empty() ? "" : ",") + name;
        }
        return text;
    };
    report_.control("capability", "control.ordinary_memory_is_reachable", unreachable_.empty(), Value(unreachable_),
                    "every process's GPU reaches memory that asks for no privilege; named are those whose did not");
    report_.control("capability", "control.processes_became_what_was_meant", others_.empty(), Value(others_),
                    "user and capabilities by the kernel's word; named are those that differ");
    report_.control("capability", "control.privilege_makes_a_difference", none_ && (self_ == "ok" || self_ != none_),
                    "this user: " + words(self_) + ", none: " + words(none_),
                    "where this user too is refused, in the same words, it is about something else");
    const std::string who = fmt::format("User {}", uid_);
    std::vector<std::string> in_vain = not_tried_; // though it was to be tried
    std::erase_if(in_vain, [&](const std::string& name) { return !wanted(name); });
    std::string untried = in_vain.empty() ? "" : "not tried: " + list(in_vain);
    if (in_vain.size() != not_tried_.size()) {
        untried += std::string{untried.empty() ? "" : "; "} + "the others were not asked for";
    }
    if (none_ == self_ && self_ != "ok") {
        report_.answer(
            "capability", "refused_alike",
            fmt::format("This user is refused {} in the same words ({}) as user {} with no capability: it is "
                        "about something else than privilege.",
                        what(), words(self_), uid_));
    } else if (none_ == self_) {
        report_.answer("capability", "not_needed", who + " may register " + what() + " with no capability at all.");
    } else if (!found_.empty()) {
        report_.answer("capability", list(found_),
                       who + " may register " + what() + " with any one of" +
                           (untried.empty() ? ": " + list(found_) : " those tried: " + list(found_) + "; " + untried) +
                           "; with none the answer is " + words(none_) + ".");
    } else {
        // Of the answers this one alone is about each of them: what was not tried may suffice.
        report_.control("capability", "control.each_capability_was_tried", not_tried_.empty(), Value(not_tried_),
                        "named are those that were not: one of them may suffice");
        report_.answer(
            "capability", "none_alone",
            who + " may not register " + what() + " with any one capability" +
                (untried.empty() ? "" : " of those tried (" + untried + ")") + ", the answer is " + words(none_) +
                "; all together " +
                (all_ == self_ ? "suffice." : "do not suffice either (" + words(all_) + "): being root counts."));
    }
}

Result<void> CapabilityTrials::run() {
    const Result<Identity> self = who_am_i(requests_.system());
    const Result<unsigned> last = last_capability(requests_.system());
    if (!self || !last) {
        return tl::unexpected{self ? last.error() : self.error()};
    }
    report_.add_process("primary", self->json());
    if (!self->capable(CAP_SETUID) || !self->capable(CAP_SETGID)) {
        return fail(EPERM, "starting processes of another user", fmt::format("uid {}", self->effective_uid),
                    "Run it as root: it has to become other users.");
    }
    Result<Outcome> as_self = trial("self", std::nullopt);
    Result<Outcome> as_none = as_self ? trial("none", Appearance{uid_, 0}) : tl::unexpected{as_self.error()};
    if (!as_none) {
        return tl::unexpected{std::move(as_none.error())};
    }
    self_ = std::move(*as_self);
    none_ = std::move(*as_none);
    if (!self_) {
        return fail(ENODEV, "registering memory", "a GPU, as this user",
                    report_.find("capability.self.registration")->note);
    }
    if (Result<void> tried = try_each(*self, *last); !tried) {
        return tried;
    }
    judge();
    return {};
}

} // namespace

Result<void> ask_which_capability(Report& report, const Requests& requests, const OpenedPage* device,
                                  const CapabilityOptions& options, const StartSecondary& start) {
    return CapabilityTrials{report, requests, device, options, start}.run();
}

} // namespace upcie::probes
