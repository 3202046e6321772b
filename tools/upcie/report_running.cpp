// SPDX-License-Identifier: BSD-3-Clause
#include <csignal>
#include <cstring>

#include "report_child.hpp"
#include "report_probes.hpp"
#include "report_shape.hpp"

// Running one probe, and judging how it ended.
namespace upcie::cli {

namespace {

constexpr std::size_t largest_quotation = 4000;

std::string quotation(const std::string& text) {
    const auto last = text.find_last_not_of(" \t\r\n");
    std::string whole = last == std::string::npos ? std::string{} : text.substr(0, last + 1);
    return whole.size() <= largest_quotation ? whole : "… " + whole.substr(whole.size() - largest_quotation);
}

std::string signal_name(int number) {
    const char* const name = ::sigabbrev_np(number);
    return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

struct Judgement {
    std::string_view outcome;
    std::string reason;
    std::string remedy;
};

/// `document` is what it printed, parsed.
Judgement judge(const PlannedProbe& planned, const ChildEnd& end, const Json& document,
                std::chrono::milliseconds limit) {
    const std::string by_hand =
        fmt::format("Run it by hand: {} {}", planned.program, fmt::join(planned.arguments, " "));
    if (end.timed_out) {
        return {probe_outcome::timed_out,
                fmt::format("it did not end within {} s and was killed", static_cast<double>(limit.count()) / 1000),
                fmt::format("Give it more time (--timeout SECONDS). {}", by_hand)};
    }
    if (end.interrupted) {
        return {probe_outcome::skipped, "it was ended before its time: a signal came", "Run upcie report again."};
    }
    if (!end.exit_status) {
        return {probe_outcome::failed, fmt::format("{} ended it", signal_name(end.signal)), by_hand};
    }
    const int status = *end.exit_status;
    if (status == 2) {
        return {probe_outcome::failed, "it took its command line for wrong usage (status 2)",
                fmt::format("Use the upcie and the probes of one build. {}", by_hand)};
    }
    const std::string said = end.output.empty() ? "it printed nothing"
                             : end.output_cut   ? "it printed more than 16 MiB"
                                                : "what it printed is no probe's report";
    if (text_of(member_of(document, "schema"), "name") != "upcie-probe") {
        return {probe_outcome::failed, fmt::format("{} (status {})", said, status), by_hand};
    }
    if (text_of(document, "probe") != planned.probe) {
        return {probe_outcome::failed,
                fmt::format("its report is that of another probe, {}", text_of(document, "probe")), by_hand};
    }
    // What could not be read again is not written into a report.
    if (const auto checked = check_probe_report(document, "what it printed"); !checked) {
        return {probe_outcome::failed,
                fmt::format("what it printed is no probe's report ({}): {}", errno_name(checked.error().code),
                            checked.error().hint),
                by_hand};
    }
    const Json& asked = member_of(document, "asked");
    if (status == 0 && asked == true) {
        return {probe_outcome::answered, {}, {}};
    }
    if (status == 1 && asked == false) {
        return {probe_outcome::not_asked, text_of(document, "reason"), text_of(document, "remedy")};
    }
    return {probe_outcome::failed, fmt::format("it ended with status {}, which is not what its report says", status),
            by_hand};
}

Json entry_of(const PlannedProbe& planned) {
    Json entry;
    entry["probe"] = planned.probe;
    entry["variant"] = planned.variant.empty() ? Json{} : Json(planned.variant);
    entry["device"] = planned.device.empty() ? Json{} : Json(planned.device);
    entry["arguments"] = planned.arguments;
    return entry;
}

void fill_in(Json& entry, const Judgement& judgement) {
    entry["outcome"] = judgement.outcome;
    entry["reason"] = judgement.reason;
    entry["remedy"] = judgement.remedy;
}

} // namespace

Json run_probe(const PlannedProbe& planned, std::chrono::milliseconds usual_limit) {
    const std::chrono::milliseconds limit = usual_limit * planned.patience;
    Json entry = entry_of(planned);
    entry["exit_status"] = nullptr;
    entry["signal"] = nullptr;
    entry["errors"] = nullptr;
    entry["report"] = nullptr;
    if (!planned.outcome.empty()) {
        fill_in(entry, {planned.outcome, planned.reason, planned.remedy});
        return entry;
    }
    std::vector<std::string> arguments = planned.arguments;
    arguments.emplace_back("--json");
    const auto end = run_child(planned.program, arguments, limit);
    if (!end) {
        fill_in(entry, {probe_outcome::failed,
                        fmt::format("{}: {}", end.error().operation, errno_name(end.error().code)), end.error().hint});
        return entry;
    }
    Json document = Json::parse(end->output, nullptr, false);
    const Judgement judgement = judge(planned, *end, document, limit);
    fill_in(entry, judgement);
    entry["exit_status"] = end->exit_status ? Json(*end->exit_status) : Json{};
    entry["signal"] = end->exit_status ? Json{} : Json(signal_name(end->signal));
    const std::string errors = quotation(end->errors);
    entry["errors"] = errors.empty() ? Json{} : Json(errors);
    if (judgement.outcome == probe_outcome::answered || judgement.outcome == probe_outcome::not_asked) {
        entry["report"] = std::move(document);
    } else if (!end->output.empty()) {
        entry["output"] = quotation(end->output); // of no use to a program, but perhaps to a person
    }
    return entry;
}

} // namespace upcie::cli
