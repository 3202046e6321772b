// SPDX-License-Identifier: BSD-3-Clause
#include "report_probes.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <set>

#include <upcie/os/sysfs.hpp>
#include <upcie/pci/bdf.hpp>

// Which probes there are, and how each is run without anybody beside it.
namespace upcie::cli {

namespace {

constexpr std::string_view program_prefix = "upcie_probe_";

/// What a question needs of a PCI device.
enum class DeviceNeed : std::uint8_t {
    takes_over,   ///< binds and resets it: only what the user named, and once for each
    may_take,     ///< the same, and it has a mode without one
    may_be_named, ///< leaves it alone: its address tells whose DMA is meant
};

/// How to run a probe so that it ends by itself. "DEVICE" stands for the device.
struct KnownQuestion {
    std::string_view question;
    bool gpu; ///< has flavours
    DeviceNeed need;
    std::array<std::string_view, 3> with_device;
    std::array<std::string_view, 3> without_device;
    std::string_view variant = {}; ///< of a run beside the usual one: its last argument
};

constexpr std::array<KnownQuestion, 9> known_questions{{
    {"vfio_cdev", false, DeviceNeed::takes_over, {"DEVICE"}, {}},
    {"vfio_share", false, DeviceNeed::takes_over, {"primary", "DEVICE", "--spawn"}, {}},
    {"vfio_delegate", false, DeviceNeed::takes_over, {"standalone", "DEVICE"}, {}},
    {"noiommu_pa", false, DeviceNeed::takes_over, {"DEVICE"}, {}},
    {"dmabuf", true, DeviceNeed::may_be_named, {"--as", "DEVICE"}, {}},
    {"vram_ioas", true, DeviceNeed::may_take, {"DEVICE"}, {}},
    {"vfio_bar_import", true, DeviceNeed::takes_over, {"DEVICE"}, {}},
    {"vfio_share_gpu", true, DeviceNeed::may_take, {"standalone", "DEVICE"}, {"standalone", "--memory"}},
    {"vfio_share_gpu",
     true,
     DeviceNeed::may_take,
     {"standalone", "DEVICE", "--try-capabilities"},
     {"standalone", "--memory", "--try-capabilities"},
     "--try-capabilities"},
}};

/// A run beside the usual one tries a process for each of some forty capabilities.
constexpr unsigned patience_of_variants = 5;

constexpr std::array<std::string_view, 3> gpu_flavours{"cuda", "hip", "stub"};

/// Those that can be told to print the GPU's UUID.
bool takes_uuid(std::string_view flavour) {
    return flavour == "cuda" || flavour == "hip";
}

std::string find_program(Context& context, const std::vector<std::string>& folders, const std::string& probe) {
    for (const auto& folder : folders) {
        const std::string path = fmt::format("{}/{}{}", folder, program_prefix, probe);
        struct stat status {};
        if (context.system.stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
            context.system.access(path.c_str(), X_OK) == 0) {
            return path;
        }
    }
    return {};
}

/// Names of all probes in the folders, without the prefix.
std::set<std::string> programs_in(Context& context, const std::vector<std::string>& folders) {
    std::set<std::string> found;
    for (const auto& folder : folders) {
        for (const auto& name : os::list_names(context.system, folder).value_or(std::vector<std::string>{})) {
            const std::string probe = name.rfind(program_prefix, 0) == 0 ? name.substr(program_prefix.size()) : "";
            // Archives and folders of a build have such names too: upcie_probe_x.p
            if (!probe.empty() && probe.find('.') == std::string::npos &&
                !find_program(context, {folder}, probe).empty()) {
                found.insert(probe);
            }
        }
    }
    return found;
}

bool is_pci_address(const std::string& device) {
    return pci::Bdf::parse(device).has_value();
}

/// Plans that share what was chosen.
class Planner {
  public:
    Planner(Context& context, const ProbeChoice& choice)
        : context_{context}, choice_{choice}, folders_{probe_folders(context)} {}

    Result<std::vector<PlannedProbe>> plan();

  private:
    void add(const KnownQuestion& known, std::string_view flavour);
    void add_run(const KnownQuestion& known, std::string_view flavour, const std::string& device);
    void add_unknown(const std::string& probe);
    [[nodiscard]] bool wanted(const std::string& probe);

    Context& context_;
    const ProbeChoice& choice_;
    std::vector<std::string> folders_;
    std::vector<PlannedProbe> planned_;
    std::set<std::string> known_;
    std::set<std::string> used_; ///< words of --only that named something
};

bool Planner::wanted(const std::string& probe) {
    known_.insert(probe);
    if (choice_.only.empty()) {
        return true;
    }
    bool named = false;
    for (const std::string& word : choice_.only) {
        const std::string name = word.rfind(program_prefix, 0) == 0 ? word.substr(program_prefix.size()) : word;
        if (name == probe || name == split_probe_name(probe).question) {
            used_.insert(word);
            named = true;
        }
    }
    return named;
}

void Planner::add_run(const KnownQuestion& known, std::string_view flavour, const std::string& device) {
    PlannedProbe one;
    one.probe = flavour.empty() ? std::string{known.question} : fmt::format("{}_{}", known.question, flavour);
    one.variant = known.variant;
    one.patience = known.variant.empty() ? 1 : patience_of_variants;
    one.device = device;
    one.program = find_program(context_, folders_, one.probe);
    if (one.program.empty() && !known.variant.empty()) {
        return; // its usual run has said so
    }
    if (one.program.empty()) {
        one.outcome = probe_outcome::absent;
        one.reason = fmt::format("there is no program {}{} beside upcie or in PATH", program_prefix, one.probe);
        one.remedy = "Install it, or build it (ninja -C build).";
    } else if (device.empty() && known.need == DeviceNeed::takes_over) {
        one.outcome = probe_outcome::skipped;
        one.reason = "it takes a device over and resets it, and no device was named for that";
        one.remedy = "Name one that is bound to vfio-pci and that nobody needs meanwhile: upcie report --device BDF";
    }
    for (const std::string_view word : device.empty() ? known.without_device : known.with_device) {
        if (!word.empty()) {
            one.arguments.push_back(word == "DEVICE" ? device : std::string{word});
        }
    }
    if (choice_.identifiers && takes_uuid(flavour)) {
        one.arguments.emplace_back("--uuid");
    }
    if (known.need == DeviceNeed::may_be_named) {
        one.device.clear(); // it is not the device that is asked about
    }
    planned_.push_back(std::move(one));
}

void Planner::add(const KnownQuestion& known, std::string_view flavour) {
    const std::string probe =
        flavour.empty() ? std::string{known.question} : fmt::format("{}_{}", known.question, flavour);
    if (!wanted(probe)) {
        return;
    }
    if (flavour == "stub" && !choice_.stubs) {
        known_.insert(probe);
        return; // it tells of a GPU made of host memory, not of this machine
    }
    if (known.need == DeviceNeed::may_be_named) {
        const auto named = std::find_if(choice_.devices.begin(), choice_.devices.end(), is_pci_address);
        add_run(known, flavour, named == choice_.devices.end() ? std::string{} : *named);
    } else if (choice_.devices.empty()) {
        add_run(known, flavour, {});
    } else {
        for (const std::string& device : choice_.devices) {
            add_run(known, flavour, device);
        }
    }
}

void Planner::add_unknown(const std::string& probe) {
    if (known_.count(probe) != 0 || !wanted(probe)) {
        return;
    }
    PlannedProbe one;
    one.probe = probe;
    one.program = find_program(context_, folders_, probe);
    one.outcome = probe_outcome::skipped;
    one.reason = "this upcie does not know how to run it unattended";
    one.remedy = fmt::format("Run it by hand ({} --help), or use the upcie that came with it.", one.program);
    planned_.push_back(std::move(one));
}

Result<std::vector<PlannedProbe>> Planner::plan() {
    for (const KnownQuestion& known : known_questions) {
        if (!known.gpu) {
            add(known, {});
            continue;
        }
        for (const std::string_view flavour : gpu_flavours) {
            add(known, flavour);
        }
    }
    for (const std::string& probe : programs_in(context_, folders_)) {
        if (split_probe_name(probe).flavour != "stub" || choice_.stubs) {
            add_unknown(probe);
        }
    }
    for (const std::string& word : choice_.only) {
        if (used_.count(word) == 0) {
            return fail(EINVAL, "choose probes", word,
                        fmt::format("There is no such probe; there are: {}.", fmt::join(known_, ", ")));
        }
    }
    if (planned_.empty()) {
        return fail(EINVAL, "choose probes", fmt::format("{}", fmt::join(choice_.only, ", ")),
                    "Those of a stub are no part of a machine's findings: --with-stub runs them all the same.");
    }
    if (std::none_of(planned_.begin(), planned_.end(), [](const auto& one) { return !one.program.empty(); })) {
        return fail(
            ENOENT, "find the probes", fmt::format("{}", fmt::join(folders_, ", ")),
            "Programs upcie_probe_* have to lie beside upcie or in PATH: build them (ninja -C build), or install "
            "them.");
    }
    return std::move(planned_);
}

} // namespace

std::vector<std::string> probe_folders(Context& context) {
    if (!context.roots.probe_folders.empty()) {
        return context.roots.probe_folders;
    }
    std::vector<std::string> folders;
    if (const auto self = os::link_target(context.system, "/proc/self/exe")) {
        folders.push_back(self->substr(0, self->rfind('/')));
    }
    const char* const path = std::getenv("PATH");
    std::string_view rest{path != nullptr ? path : ""};
    while (!rest.empty()) {
        const auto colon = std::min(rest.find(':'), rest.size());
        std::string folder{rest.substr(0, colon)};
        // An empty or relative one would be a program from wherever the user happens to stand.
        if (folder.rfind('/', 0) == 0 && std::find(folders.begin(), folders.end(), folder) == folders.end()) {
            folders.push_back(std::move(folder));
        }
        rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
    return folders;
}

Result<std::vector<PlannedProbe>> plan_probes(Context& context, const ProbeChoice& choice) {
    return Planner{context, choice}.plan();
}

} // namespace upcie::cli
