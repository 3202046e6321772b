// SPDX-License-Identifier: BSD-3-Clause
#include "machine_report.hpp"

#include <algorithm>
#include <cerrno>

#include <upcie/os/sysfs.hpp>

#include "report_shape.hpp"

namespace upcie::cli {

namespace {

constexpr std::size_t largest_document = std::size_t{64} << 20;

/// What a GPU probe says of its GPU: all of `device`, or a part of it where the probe has a PCI device of its own.
const Json& gpu_of(const Json& probe_report) noexcept {
    const Json& device = member_of(probe_report, "device");
    const Json& part = member_of(device, "gpu");
    return part.is_object() ? part : device;
}

std::string driver_of(const Json& gpu) {
    struct Word {
        const char* member;
        const char* title;
    };
    std::string text;
    for (const Word& word : {Word{"kernel_driver", "driver"}, Word{"cuda", "CUDA"}, Word{"hip", "HIP"},
                             Word{"hip_driver", "HIP driver version"}}) {
        const Json& value = member_of(gpu, word.member);
        if (value.is_null() || value == "") {
            continue;
        }
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", word.title, plain_text(value));
    }
    return text;
}

/// Whether lists and objects lie in one another more than `most` times.
bool nests_deeper(std::string_view text, unsigned most) {
    unsigned depth = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size() && depth <= most; ++i) {
        const char c = text[i];
        if (quoted) {
            i += c == '\\' ? 1U : 0U; // what follows it ends no text
            quoted = c != '"';
        } else if (c == '[' || c == '{') {
            ++depth;
        } else if ((c == ']' || c == '}') && depth != 0) {
            --depth;
        } else {
            quoted = c == '"';
        }
    }
    return depth > most;
}

/// A document of one probe as a report that has nothing else.
Json around(Json probe) {
    Json document;
    document["schema"] = Json{{"name", "upcie-report"}, {"version", machine_report_version}};
    document["tool_version"] = text_of(probe, "tool_version");
    document["created"] = nullptr;
    document["measured"] = "here";
    document["machine"] = nullptr;
    document["host"] = Json{{"kernel", text_of(probe, "kernel")}, {"iommu", text_of(probe, "iommu_mode")}};
    const bool asked = member_of(probe, "asked") == true;
    Json entry;
    entry["probe"] = text_of(probe, "probe");
    const Json& bdf = member_of(member_of(probe, "device"), "bdf");
    entry["device"] = bdf.is_string() ? bdf : Json{};
    entry["outcome"] = asked ? probe_outcome::answered : probe_outcome::not_asked;
    entry["reason"] = text_of(probe, "reason");
    entry["remedy"] = text_of(probe, "remedy");
    entry["report"] = std::move(probe);
    document["probes"] = Json::array({std::move(entry)});
    document["machine"] = machine_name(document["host"], document["probes"]);
    return document;
}

} // namespace

const Json& member_of(const Json& object, std::string_view name) noexcept {
    static const Json nothing;
    if (!object.is_object()) {
        return nothing;
    }
    const auto found = object.find(std::string{name});
    return found == object.end() ? nothing : *found;
}

std::string text_of(const Json& object, std::string_view name) {
    const Json& value = member_of(object, name);
    return value.is_string() ? value.get<std::string>() : std::string{};
}

const Json& list_of(const Json& object, std::string_view name) noexcept {
    static const Json none = Json::array();
    const Json& value = member_of(object, name);
    return value.is_array() ? value : none;
}

std::string plain_text(const Json& value) {
    if (value.is_string()) {
        return value.get<std::string>();
    }
    return value.is_null() ? "-" : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ProbeName split_probe_name(std::string_view probe) {
    for (const std::string_view flavour : {"cuda", "hip", "stub"}) {
        if (probe.size() > flavour.size() + 1 && probe.substr(probe.size() - flavour.size()) == flavour &&
            probe[probe.size() - flavour.size() - 1] == '_') {
            return {std::string{probe.substr(0, probe.size() - flavour.size() - 1)}, std::string{flavour}};
        }
    }
    return {std::string{probe}, {}};
}

std::string way_of(const Json& entry) {
    const std::string variant = text_of(entry, "variant");
    return text_of(entry, "probe") + (variant.empty() ? "" : ", with " + variant);
}

std::vector<GpuFacts> gpus_of(const Json& probes) {
    std::vector<GpuFacts> found;
    for (const Json& entry : probes) {
        if (split_probe_name(text_of(entry, "probe")).flavour.empty()) {
            continue;
        }
        const Json& gpu = gpu_of(member_of(entry, "report"));
        const GpuFacts facts{text_of(gpu, "name"), text_of(gpu, "pci"), driver_of(gpu)};
        if (!facts.name.empty() && std::find(found.begin(), found.end(), facts) == found.end()) {
            found.push_back(facts);
        }
    }
    return found;
}

std::vector<GpuFacts> MachineReport::gpus() const {
    return gpus_of(probes());
}

std::string machine_name(const Json& host, const Json& probes) {
    const auto gpus = gpus_of(probes);
    if (!gpus.empty()) {
        return gpus.front().driver.empty() ? gpus.front().name
                                           : fmt::format("{}, {}", gpus.front().name, gpus.front().driver);
    }
    const std::string processor = text_of(host, "cpu");
    const std::string kernel = text_of(host, "kernel");
    if (processor.empty()) {
        return kernel.empty() ? "a machine without a name" : kernel;
    }
    return kernel.empty() ? processor : fmt::format("{}, {}", processor, kernel);
}

Result<MachineReport> load_machine_report(os::System& system, const std::string& path) {
    struct stat status {};
    const bool folder = system.stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
    const std::string file = folder ? path + "/report.json" : path;
    auto text = os::read_text(system, file, largest_document);
    if (!text) {
        text.error().hint = "Name a report.json, a folder that has one (upcie report --out FOLDER makes it), or what a "
                            "probe printed with --json.";
        return tl::unexpected{std::move(text.error())};
    }
    // Parsing it and all that is made of it goes down into it call by call: no probe nests its words like this.
    constexpr unsigned deepest = 64;
    Json document = nests_deeper(*text, deepest) ? Json{} : Json::parse(*text, nullptr, false);
    const std::string kind = text_of(member_of(document, "schema"), "name");
    const bool of_a_probe = kind == "upcie-probe";
    if (!of_a_probe && kind != "upcie-report") {
        return fail(EINVAL, "read a report", file,
                    document.is_discarded() ? "It is not JSON: name a report.json, or what a probe printed with --json."
                                            : "It is JSON of another kind: name a report.json, or what a probe printed "
                                              "with --json.");
    }
    if (const auto checked = of_a_probe ? check_probe_report(document, file) : check_machine_report(document, file);
        !checked) {
        return tl::unexpected{checked.error()};
    }
    return MachineReport{of_a_probe ? around(std::move(document)) : std::move(document)};
}

} // namespace upcie::cli
