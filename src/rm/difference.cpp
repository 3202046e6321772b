// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/difference.hpp>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <rm/normalise.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/objects.hpp>

namespace upcie::rm {

namespace {

// Replies that are another each time: the clock of the GPU, and both clocks side by side.
constexpr std::array<std::uint64_t, 2> volatile_controls{0x20800403, 0x20800406};
constexpr std::size_t steps_shown_before = 5;
constexpr std::size_t most_offsets = 64;

bool is_volatile(const Ask& ask) {
    return ask.kind == Ask::Kind::control &&
           std::ranges::find(volatile_controls, ask.number) != volatile_controls.end();
}

std::string object_label(const ObjectTree& tree, const Call& call) {
    const Object* object = tree.find(call.client, call.object);
    return object != nullptr ? object->label : std::string{};
}

Step step_of(const Call& call, DriverVersion version, const ObjectTree& tree, const AddressRegions& regions) {
    Step step;
    step.ask = ask_of(call);
    step.name = call_name(call, version);
    // A new object's own label says nothing; that of its parent says where it comes in.
    const bool allocates = call.class_id.has_value();
    const Object* parent = allocates ? tree.find(call.client, call.parent) : nullptr;
    const std::string label =
        allocates ? (parent != nullptr ? parent->label : std::string{}) : object_label(tree, call);
    if (!label.empty()) {
        step.name += (allocates ? " under " : " on ") + label;
    }
    const bool has_parameters = step.ask.kind == Ask::Kind::control || step.ask.kind == Ask::Kind::allocation;
    step.size = has_parameters ? call.parameter_bytes : call.argument_before.size();
    step.outcome = outcome_text(call);
    step.sequence = call.record->stamp.sequence;
    for (const Block& block : call.ioctl->blocks) {
        const auto in = normalise(call, block, block.before.bytes, tree, regions);
        const auto out = normalise(call, block, bytes_after(block, call.ioctl->outcome), tree, regions);
        step.request.insert(step.request.end(), in.begin(), in.end());
        step.reply.insert(step.reply.end(), out.begin(), out.end());
    }
    return step;
}

bool same_call(const Step& a, const Step& b) {
    return a.ask == b.ask && a.name == b.name && a.size == b.size && a.outcome == b.outcome;
}

std::vector<std::size_t> offsets_that_differ(const Step& a, const Step& b) {
    std::vector<std::size_t> offsets;
    const std::size_t longer = std::max(a.reply.size(), b.reply.size());
    const std::size_t shorter = std::min(a.reply.size(), b.reply.size());
    for (std::size_t i = 0; i < longer && offsets.size() < most_offsets; ++i) {
        if (i >= shorter || a.reply[i] != b.reply[i]) {
            offsets.push_back(i);
        }
    }
    return offsets;
}

std::string why_apart(const Step& a, const Step& b) {
    if (a.ask != b.ask || a.name != b.name) {
        return "another call";
    }
    return a.size != b.size ? "another size" : "another outcome";
}

const Step* at(const std::vector<ThreadSteps>& threads, std::size_t thread, std::size_t position) {
    return thread < threads.size() && position < threads[thread].steps.size() ? &threads[thread].steps[position]
                                                                              : nullptr;
}

Divergence divergence(const std::vector<ThreadSteps>& a, std::size_t thread, std::size_t position) {
    Divergence found;
    found.thread = thread;
    found.position = position;
    for (std::size_t i = position > steps_shown_before ? position - steps_shown_before : 0; i < position; ++i) {
        found.before.push_back(a[thread].steps[i]);
    }
    return found;
}

void find_first(Difference& difference, const std::vector<ThreadSteps>& a, const std::vector<ThreadSteps>& b,
                bool compare_replies) {
    for (std::size_t thread = 0; thread < std::max(a.size(), b.size()); ++thread) {
        for (std::size_t position = 0;; ++position) {
            const Step* own = at(a, thread, position);
            const Step* other = at(b, thread, position);
            if (own == nullptr && other == nullptr) {
                break;
            }
            if (own != nullptr && other != nullptr && same_call(*own, *other)) {
                if (compare_replies && !difference.first_reply && !is_volatile(own->ask) &&
                    own->reply != other->reply) {
                    Divergence found = divergence(a, thread, position);
                    found.a = *own;
                    found.b = *other;
                    found.why = "another reply";
                    found.offsets = offsets_that_differ(*own, *other);
                    difference.first_reply = std::move(found);
                }
                continue;
            }
            Divergence found = divergence(own != nullptr ? a : b, thread, position);
            found.a = own != nullptr ? std::optional{*own} : std::nullopt;
            found.b = other != nullptr ? std::optional{*other} : std::nullopt;
            found.why = own == nullptr ? "A ends here" : other == nullptr ? "B ends here" : why_apart(*own, *other);
            difference.first = std::move(found);
            return;
        }
    }
}

/// The calls of one ask, in the order of the trace.
std::map<Ask, std::vector<const Step*>> by_ask(const std::vector<ThreadSteps>& threads) {
    std::map<Ask, std::vector<const Step*>> found;
    for (const ThreadSteps& thread : threads) {
        for (const Step& step : thread.steps) {
            found[step.ask].push_back(&step);
        }
    }
    for (auto& [ask, steps] : found) {
        std::ranges::sort(steps, {}, &Step::sequence);
    }
    return found;
}

AskDifference compare_ask(const Ask& ask, const std::vector<const Step*>& a, const std::vector<const Step*>& b,
                          bool compare_replies) {
    AskDifference difference;
    difference.ask = ask;
    for (const Step* step : a) {
        ++difference.calls_a;
        difference.sizes_a.insert(step->size);
        difference.outcomes_a.insert(step->outcome);
    }
    for (const Step* step : b) {
        ++difference.calls_b;
        difference.sizes_b.insert(step->size);
        difference.outcomes_b.insert(step->outcome);
    }
    const std::size_t pairs = compare_replies && !is_volatile(ask) ? std::min(a.size(), b.size()) : 0;
    for (std::size_t i = 0; i < pairs; ++i) {
        // Where sizes or outcomes differ, that is said already.
        if (a[i]->size == b[i]->size && a[i]->outcome == b[i]->outcome && a[i]->reply != b[i]->reply) {
            if (difference.changed_replies++ == 0) {
                difference.changed_offsets = offsets_that_differ(*a[i], *b[i]);
            }
        }
    }
    return difference;
}

} // namespace

std::vector<ThreadSteps> steps_of(const Trace& trace) {
    std::vector<ThreadSteps> threads;
    const DriverVersion version = driver_version(trace);
    ObjectTree tree;
    AddressRegions regions;
    for (const Record& record : trace.records) {
        const auto call = understand(record, version);
        regions.take(record, call);
        // What is made has its name behind the call, what is freed has it before.
        const bool makes =
            call && (call->class_id || call->what == BlockKind{BlockKind::Type::escape, escape_dup_object});
        if (makes) {
            tree.apply(record, call);
        }
        if (call) {
            auto thread = std::ranges::find(threads, record.stamp.tid, &ThreadSteps::tid);
            if (thread == threads.end()) {
                threads.push_back({record.stamp.tid, {}});
                thread = std::prev(threads.end());
            }
            Step step = step_of(*call, version, tree, regions);
            if (!thread->steps.empty() && same_call(thread->steps.back(), step) &&
                thread->steps.back().request == step.request) {
                // Asked again, word for word: the last answer is the one that ended the waiting.
                step.repeats = thread->steps.back().repeats + 1;
                thread->steps.back() = std::move(step);
            } else {
                thread->steps.push_back(std::move(step));
            }
        }
        if (!makes) {
            tree.apply(record, call);
        }
    }
    return threads;
}

Difference compare(const Trace& a, const Trace& b, bool compare_replies) {
    Difference difference;
    difference.version_a = driver_version(a);
    difference.version_b = driver_version(b);
    const std::vector<ThreadSteps> steps_a = steps_of(a);
    const std::vector<ThreadSteps> steps_b = steps_of(b);
    const auto asks_a = by_ask(steps_a);
    const auto asks_b = by_ask(steps_b);
    std::set<Ask> all;
    for (const auto& [ask, steps] : asks_a) {
        all.insert(ask);
        difference.steps_a += steps.size();
    }
    for (const auto& [ask, steps] : asks_b) {
        all.insert(ask);
        difference.steps_b += steps.size();
    }
    const std::vector<const Step*> nothing;
    for (const Ask& ask : all) {
        const auto own = asks_a.find(ask);
        const auto other = asks_b.find(ask);
        const AskDifference found = compare_ask(ask, own != asks_a.end() ? own->second : nothing,
                                                other != asks_b.end() ? other->second : nothing, compare_replies);
        if (found.calls_a != found.calls_b || found.sizes_a != found.sizes_b || found.outcomes_a != found.outcomes_b ||
            found.changed_replies != 0) {
            difference.asks.push_back(found);
        }
    }
    find_first(difference, steps_a, steps_b, compare_replies);
    return difference;
}

} // namespace upcie::rm
