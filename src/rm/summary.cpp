// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/summary.hpp>

#include <algorithm>
#include <limits>
#include <set>

#include <upcie/rm/call.hpp>

namespace upcie::rm {

namespace {

void count(Tally& tally, const Call& call) {
    ++tally.calls;
    tally.failures += call.succeeded() ? 0U : 1U;
    tally.nanoseconds += call.nanoseconds();
}

void count_call(Summary& summary, const Call& call, DriverVersion version) {
    ++summary.ioctls;
    summary.nanoseconds += call.nanoseconds();
    ++summary.nodes[call.ioctl->node.path];
    switch (call.what.type) {
    case BlockKind::Type::escape:
        count(summary.escapes[call.what.number], call);
        if (call.through_xfer) {
            count(summary.xfer_wrapped[call.what.number], call);
        }
        if (call.control) {
            count(summary.controls[*call.control], call);
        }
        if (call.class_id) {
            count(summary.classes[*call.class_id], call);
        }
        break;
    case BlockKind::Type::uvm:
        count(summary.uvm[call.what.number], call);
        break;
    default:
        count(summary.others[call.ioctl->request], call);
        break;
    }
    if (!call.succeeded()) {
        ++summary.failed[call_name(call, version) + ": " + outcome_text(call)];
    }
    summary.unfinished += call.ioctl->outcome.kind == Outcome::Kind::returned ? 0U : 1U;
}

} // namespace

Summary summarise(const Trace& trace) {
    Summary summary;
    const DriverVersion version = driver_version(trace);
    std::set<std::int32_t> processes;
    std::set<std::int32_t> threads;
    std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t last = 0;
    for (const Record& record : trace.records) {
        ++summary.records[std::string{type_name(record)}];
        if (record.stamp.pid != 0) {
            processes.insert(record.stamp.pid);
            threads.insert(record.stamp.tid);
        }
        if (record.stamp.time_out != 0) {
            first = std::min(first, record.stamp.time_in);
            last = std::max(last, record.stamp.time_out);
        }
        if (const auto call = understand(record, version)) {
            count_call(summary, *call, version);
        }
    }
    summary.elapsed_nanoseconds = last > first ? last - first : 0;
    summary.processes = processes.size();
    summary.threads = threads.size();
    return summary;
}

} // namespace upcie::rm
