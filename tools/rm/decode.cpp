// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <upcie/rm/call.hpp>
#include <upcie/rm/controls.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/picture.hpp>

#include "commands.hpp"
#include "timeline_lines.hpp"

namespace upcie::rm::tool {

namespace {

std::string size_text(const Call& call, DriverVersion version) {
    if (call.parameter_bytes == 0) {
        return {};
    }
    std::string text = fmt::format(", {} B", call.parameter_bytes);
    const Control* control = call.control ? find_control(*call.control, version) : nullptr;
    const auto expected = control != nullptr ? control->size.at(version) : std::nullopt;
    // A size that was looked at and is another: a library of another version, or a damaged trace.
    if (expected && expected->certain && expected->bytes != call.parameter_bytes) {
        text += fmt::format(" (the headers of {} say {})", version.branch, expected->bytes);
    }
    return text;
}

std::string object_text(const ObjectTree& tree, std::optional<std::size_t> object) {
    return object ? tree.objects()[*object].label : std::string{"an object that was not seen"};
}

/// What a call mapped or exported: all that the tree has beyond these numbers.
std::string made_text(const ObjectTree& tree, std::size_t mappings, std::size_t exports) {
    std::string text;
    for (std::size_t i = mappings; i < tree.mappings().size(); ++i) {
        const ObjectMapping& mapping = tree.mappings()[i];
        text += fmt::format(" of {} at 0x{:x}, {}", object_text(tree, mapping.object), mapping.address,
                            bytes_text(mapping.length));
    }
    for (std::size_t i = exports; i < tree.exports().size(); ++i) {
        const ObjectExport& made = tree.exports()[i];
        for (const ObjectExport::Part& part : made.parts) {
            text +=
                fmt::format(" of {}{}", object_text(tree, part.object),
                            part.bytes != 0 ? fmt::format(", {} from 0x{:x} on", bytes_text(part.bytes), part.offset)
                                            : std::string{});
        }
        text += fmt::format(" -> {} fd {}", made.dma_buf ? "dma-buf" : "descriptor", made.fd);
    }
    return text;
}

} // namespace

ClassRole SubmissionText::engine(const Submission& submission, std::uint8_t subchannel, const ObjectTree& tree) const {
    if (!submission.channel) {
        return ClassRole::other;
    }
    const auto bound = bound_.find({*submission.channel, subchannel});
    if (bound != bound_.end()) {
        const Class* known = find_class(bound->second);
        return known != nullptr ? known->role : ClassRole::other;
    }
    // Not seen to be bound: the channel's only engine object it must be.
    ClassRole only = ClassRole::other;
    for (const std::size_t child : tree.objects()[*submission.channel].children) {
        const ClassRole role = tree.objects()[child].role;
        if (role == ClassRole::compute || role == ClassRole::copy || role == ClassRole::graphics ||
            role == ClassRole::video) {
            if (only != ClassRole::other && only != role) {
                return ClassRole::other;
            }
            only = role;
        }
    }
    return only;
}

std::string SubmissionText::text(const Submission& submission, const ObjectTree& tree) {
    const std::string channel =
        submission.channel ? tree.objects()[*submission.channel].label : std::string{"a channel"};
    std::string text = fmt::format("ring of {}, entry {}: {} at 0x{:x}", channel, submission.entry,
                                   bytes_text(submission.bytes), submission.address);
    if (!submission.recorded) {
        return text + ", not recorded";
    }
    constexpr std::size_t most_methods = 64;
    std::size_t shown = 0;
    for (const Method& method : submission.buffer.methods) {
        if (method.address == 0 && submission.channel) {
            bound_[{*submission.channel, method.subchannel}] = method.value & 0xffff;
        }
        if (shown++ < most_methods) {
            const std::string_view name = method_name(engine(submission, method.subchannel, tree), method.address);
            text += name.empty() ? fmt::format(" {}:0x{:x}=0x{:x}", method.subchannel, method.address, method.value)
                                 : fmt::format(" {}:{}=0x{:x}", method.subchannel, name, method.value);
        }
    }
    if (shown > most_methods) {
        text += fmt::format(" and {} more", shown - most_methods);
    }
    return text + (submission.buffer.complete ? "" : " (then no commands)");
}

std::string timeline_text(const Trace& trace) {
    const DriverVersion version = driver_version(trace);
    std::string text = header_text(trace) + "\n     #         ms       time    tid  call\n";
    ObjectTree tree;
    RingReader rings;
    SubmissionText submissions;
    const std::uint64_t begin = trace.records.empty() ? 0 : trace.records.front().stamp.time_in;
    const auto say = [&](const std::vector<Submission>& found) {
        for (const Submission& submission : found) {
            text += fmt::format("{:>40}{}\n", "", submissions.text(submission, tree));
        }
    };
    for (const Record& record : trace.records) {
        say(rings.take(record, tree));
        const auto call = understand(record, version);
        const Stamp& stamp = record.stamp;
        const std::uint64_t since = stamp.time_in >= begin ? stamp.time_in - begin : 0;
        text +=
            fmt::format("{:>6} {:>10.3f} {:>10} {:>6}  ", stamp.sequence, static_cast<double>(since) / 1e6,
                        stamp.time_out >= stamp.time_in ? time_text(stamp.time_out - stamp.time_in) : "", stamp.tid);
        if (call) {
            // What is freed has a name before, what is made has one behind.
            std::string what;
            if (call->class_id || call->what.number == escape_dup_object) {
                const std::string under = call->class_id && call->parent != 0 && call->object != call->client
                                              ? " under " + tree.name(call->client, call->parent)
                                              : "";
                tree.apply(record, call);
                what = " -> " + tree.name(call->client, call->object) + under;
                if (const Object* made = tree.find(call->client, call->object);
                    made != nullptr && !made->facts.empty()) {
                    what += ", " + made->facts;
                }
            } else {
                what = objects_of_call(*call, tree);
                const std::size_t mappings = tree.mappings().size();
                const std::size_t exports = tree.exports().size();
                tree.apply(record, call);
                what += made_text(tree, mappings, exports);
            }
            text += fmt::format("{} {}{}{}: {}\n", call->ioctl->node.path, call_name(*call, version), what,
                                size_text(*call, version), outcome_text(*call));
        } else {
            text += record_text(record) + "\n";
            tree.apply(record, call);
        }
    }
    say(rings.finish(tree));
    return text;
}

int decode(const DecodeOptions& options, Streams streams) {
    const auto opened = open_trace(options.trace, options.json ? Texts::as_they_are : Texts::printable, streams);
    if (!opened) {
        return complain(opened.error(), streams);
    }
    const Trace& trace = opened->loaded.trace;
    if (options.json) {
        Json json = options.summary ? summary_json(trace, summarise(trace))
                    : options.tree  ? objects_json(ObjectTree::of(trace))
                                    : decode_json(trace);
        streams.out << json.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
    } else if (options.summary) {
        streams.out << summary_text(trace, summarise(trace));
    } else if (options.tree) {
        streams.out << tree_text(ObjectTree::of(trace));
    } else {
        streams.out << timeline_text(trace) << "\nobjects\n" << tree_text(ObjectTree::of(trace));
    }
    return opened->status;
}

} // namespace upcie::rm::tool
