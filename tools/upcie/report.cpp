// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <memory>
#include <ostream>

#include <upcie/pci/bdf.hpp>

#include "commands.hpp"
#include "interruption.hpp"
#include "report_collect.hpp"
#include "report_difference.hpp"
#include "report_page.hpp"

namespace upcie::cli {

namespace {

struct ReportOptions {
    std::string folder = "upcie-report";
    Collecting collecting;
    double seconds = 120;
    std::vector<std::string> difference; ///< two, or none
    std::vector<std::string> render;
    std::vector<std::string> compare;
    bool all = false;
};

ExitCode exit_code_of_reading(const Error& error) {
    const bool missing = error.is(ENOENT) || error.is(EACCES) || error.is(EPERM) || error.is(ENOTDIR);
    return missing ? ExitCode::precondition : ExitCode::failed;
}

ExitCode exit_code_of_writing(const Error& error) {
    for (const int code : {EEXIST, ENOENT, EACCES, EPERM, ENOTDIR, EROFS}) {
        if (error.is(code)) {
            return ExitCode::precondition;
        }
    }
    return ExitCode::failed;
}

/// A probe's entry in a few words: what it answered, or why it did not.
std::string in_short(const Json& entry) {
    if (text_of(entry, "outcome") != probe_outcome::answered) {
        return fmt::format("{}: {}", text_of(entry, "outcome"), text_of(entry, "reason"));
    }
    std::string words;
    for (const Json& answer : list_of(member_of(member_of(entry, "report"), "verdict"), "answers")) {
        words += fmt::format("{}{} {}", words.empty() ? "" : ", ", text_of(answer, "topic"), text_of(answer, "answer"));
    }
    return fmt::format("answered: {}", words);
}

Json short_json(const Json& entry) {
    return Json{{"probe", member_of(entry, "probe")},
                {"variant", member_of(entry, "variant")},
                {"device", member_of(entry, "device")},
                {"outcome", member_of(entry, "outcome")},
                {"reason", member_of(entry, "reason")},
                {"remedy", member_of(entry, "remedy")},
                {"answers", list_of(member_of(member_of(entry, "report"), "verdict"), "answers")}};
}

ExitCode collect(Context& context, ReportOptions options) {
    Report report{context, "report"};
    const Interruption interruption;
    options.collecting.probes.limit =
        std::chrono::milliseconds{static_cast<std::chrono::milliseconds::rep>(options.seconds * 1000)};
    const auto planned = plan_probes(context, options.collecting.probes);
    if (!planned) {
        return report.fail(planned.error(), planned.error().is(EINVAL) ? ExitCode::usage : ExitCode::precondition);
    }
    // Before any device is reset for a report that could not be written.
    if (const auto ready = prepare_report_folder(context.system, options.folder); !ready) {
        return report.fail(ready.error(), exit_code_of_writing(ready.error()));
    }
    report.result()["folder"] = options.folder;
    report.result()["machine"] = nullptr;
    report.result()["probes"] = Json::array();
    const MachineReport made = collect_report(context, options.collecting, *planned, [&](const Json& entry) {
        report.result()["probes"].push_back(short_json(entry));
        const std::string device = text_of(entry, "device");
        report.line("{}{}: {}", way_of(entry), device.empty() ? "" : " on " + device, in_short(entry));
        context.out << std::flush; // the next one may take a while
    });
    report.result()["machine"] = made.machine();
    if (const auto written = write_report(context.system, options.folder, made); !written) {
        return report.fail(written.error(), exit_code_of_writing(written.error()));
    }
    report.line("{}: {}/report.json and {}/report.md", made.machine(), options.folder, options.folder);
    if (Interruption::requested()) {
        return report.fail(Interruption::error("run the probes", made.machine()));
    }
    return report.finish();
}

/// All of them, or the first that is none.
Result<std::vector<MachineReport>> load_all(Context& context, const std::vector<std::string>& files) {
    std::vector<MachineReport> reports;
    for (const std::string& file : files) {
        auto loaded = load_machine_report(context.system, file);
        if (!loaded) {
            return tl::unexpected{std::move(loaded.error())};
        }
        reports.push_back(std::move(*loaded));
    }
    return reports;
}

ExitCode render(Context& context, const ReportOptions& options) {
    Report report{context, "report"};
    const auto reports = load_all(context, options.render);
    if (!reports) {
        return report.fail(reports.error(), exit_code_of_reading(reports.error()));
    }
    report.result()["pages"] = Json::array();
    for (std::size_t i = 0; i < reports->size(); ++i) {
        const std::string page = render_page((*reports)[i]);
        report.result()["pages"].push_back(
            Json{{"file", options.render[i]}, {"machine", (*reports)[i].machine()}, {"markdown", page}});
        if (!context.json) {
            context.out << (i == 0 ? "" : "\n") << page;
        }
    }
    return report.finish();
}

ExitCode compare(Context& context, const ReportOptions& options) {
    Report report{context, "report"};
    const auto reports = load_all(context, options.compare);
    if (!reports) {
        return report.fail(reports.error(), exit_code_of_reading(reports.error()));
    }
    report.result() = comparison_json(*reports);
    if (!context.json) {
        context.out << render_comparison(*reports);
    }
    return report.finish();
}

std::string side_text(const Json& value, bool missing, const std::string& unit) {
    if (missing) {
        return "not there";
    }
    const bool plain = unit.empty() || unit == "outcome" || unit == "address" || value.is_null();
    return plain ? plain_text(value) : fmt::format("{} {}", plain_text(value), unit);
}

ExitCode differ(Context& context, const ReportOptions& options) {
    Report report{context, "report"};
    const auto reports = load_all(context, options.difference);
    if (!reports) {
        return report.fail(reports.error(), exit_code_of_reading(reports.error()));
    }
    const auto found = differences((*reports)[0], (*reports)[1], options.all);
    report.result()["a"] = Json{{"file", options.difference[0]}, {"machine", (*reports)[0].machine()}};
    report.result()["b"] = Json{{"file", options.difference[1]}, {"machine", (*reports)[1].machine()}};
    report.result()["equal"] = found.empty();
    report.result()["differences"] = Json::array();
    report.line("A: {} ({})", (*reports)[0].machine(), options.difference[0]);
    report.line("B: {} ({})", (*reports)[1].machine(), options.difference[1]);
    std::string before = "\n"; // no probe's name
    for (const Difference& one : found) {
        report.result()["differences"].push_back(Json{{"probe", one.probe.empty() ? Json{} : Json(one.probe)},
                                                      {"kind", one.kind},
                                                      {"name", one.name},
                                                      {"a", one.a},
                                                      {"b", one.b},
                                                      {"only_in", one.only_in_a   ? Json("a")
                                                                  : one.only_in_b ? Json("b")
                                                                                  : Json{}}});
        if (one.probe != before) {
            report.line("\n{}", one.probe.empty() ? "head" : one.probe);
            before = one.probe;
        }
        report.line("  {} {}\n    A: {}\n    B: {}", one.kind, one.name, side_text(one.a, one.only_in_b, one.unit),
                    side_text(one.b, one.only_in_a, one.unit));
    }
    if (found.empty()) {
        report.line("no differences{}", options.all ? "" : " (addresses, process numbers and times aside)");
    } else {
        report.line("\n{} difference{}", found.size(), found.size() == 1 ? "" : "s");
    }
    return report.finish();
}

/// A BDF in its long form, or a cdev.
std::string check_device(std::string& name) {
    if (const auto bdf = pci::Bdf::parse(name)) {
        name = bdf->to_string();
        return {};
    }
    return name.rfind("/dev/vfio/devices/", 0) == 0
               ? std::string{}
               : fmt::format("'{}' is neither a PCI address (0000:01:00.0) nor a vfio cdev", name);
}

} // namespace

void add_report(CLI::App& app, Context& context, Action& action) {
    auto options = std::make_shared<ReportOptions>();
    auto* command = app.add_subcommand("report", "Run every probe that this machine can run, and write one report; or "
                                                 "compare reports");
    auto& probes = options->collecting.probes;
    std::vector<CLI::Option*> collecting;
    collecting.push_back(command->add_option("--out", options->folder, "The folder for report.json and report.md")
                             ->type_name("FOLDER")
                             ->capture_default_str());
    collecting.push_back(command
                             ->add_option("--name", options->collecting.machine,
                                          "What the machine is called; when not given, by its GPU or processor")
                             ->type_name("TEXT"));
    collecting.push_back(command
                             ->add_option("--device", probes.devices,
                                          "A device that the probes may take over and reset; may be given again")
                             ->type_name("BDF")
                             ->allow_extra_args(false)
                             ->transform(CLI::Validator{check_device, ""}));
    collecting.push_back(command
                             ->add_option("--only", probes.only,
                                          "Just this probe, or this question of every flavour; may be given again")
                             ->type_name("PROBE")
                             ->allow_extra_args(false));
    constexpr double shortest_s = 0.1;
    constexpr double longest_s = 86400;
    collecting.push_back(command->add_option("--timeout", options->seconds, "Until a probe is killed")
                             ->type_name("SECONDS")
                             ->check(CLI::Range(shortest_s, longest_s))
                             ->capture_default_str());
    collecting.push_back(
        command->add_flag("--with-stub", probes.stubs, "Also the probes of a GPU made of host memory"));
    collecting.push_back(command->add_flag("--with-identifiers", probes.identifiers,
                                           "Leave UUIDs, serial numbers and the host's name in"));
    auto* difference = command->add_option("--diff", options->difference, "Show where two reports differ, and end")
                           ->type_name("A B")
                           ->expected(2);
    auto* render_option = command->add_option("--render", options->render, "Print the pages of reports anew, and end")
                              ->type_name("FILE")
                              ->expected(1, CLI::detail::expected_max_vector_size);
    auto* compare_option =
        command->add_option("--compare", options->compare, "Print one table with a column a report, and end")
            ->type_name("FILE")
            ->expected(1, CLI::detail::expected_max_vector_size);
    command->add_flag("--all", options->all, "With --diff: what is another at every run too")->needs(difference);
    for (CLI::Option* const mode : {difference, render_option, compare_option}) {
        for (CLI::Option* const other : {difference, render_option, compare_option}) {
            if (mode != other) {
                mode->excludes(other);
            }
        }
        for (CLI::Option* const option : collecting) {
            mode->excludes(option);
        }
    }
    add_json_flag(*command, context);
    command->callback([&context, &action, options] {
        action = [&context, options] {
            return !options->difference.empty() ? differ(context, *options)
                   : !options->render.empty()   ? render(context, *options)
                   : !options->compare.empty()  ? compare(context, *options)
                                                : collect(context, *options);
        };
    });
}

} // namespace upcie::cli
