// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <upcie/os/sysfs.hpp>

#include "gpu/hip/driver.hpp"
#include "gpu/vendor.hpp"

namespace upcie::gpu::hip {

namespace {

constexpr const char* default_libraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
constexpr const char* kernel_version_file = "/sys/module/amdgpu/version";
constexpr const char* no_gpu =
    "Is there an AMD GPU with its kernel driver (modprobe amdgpu makes /dev/kfd), and may this user open /dev/kfd and "
    "/dev/dri/renderD*? That usually takes the group render. rocminfo tells.";

Result<DynamicLibrary> open_library(const Options& options) {
    constexpr const char* hint = "Install ROCm's HIP runtime (Debian: libamdhip64-5), or name its library in "
                                 "UPCIE_HIP_LIBRARY.";
    if (!options.library.empty()) {
        return DynamicLibrary::open(options.library, hint);
    }
    if (const char* const named = std::getenv("UPCIE_HIP_LIBRARY"); named != nullptr && *named != '\0') {
        return DynamicLibrary::open(named, hint);
    }
    return open_first(default_libraries, hint);
}

const Major* major_of_version(int version) {
    for (const Major& major : known_majors) {
        if (major.number == major_of(version)) {
            return &major;
        }
    }
    return nullptr;
}

std::string known_majors_text() {
    std::string text;
    for (const Major& major : known_majors) {
        text += fmt::format("{}{}", text.empty() ? "" : ", ", major.number);
    }
    return text;
}

} // namespace

Result<DynamicLibrary> open_first(std::span<const char* const> names, const std::string& hint) {
    std::string words; // one that is there and does not open says more than those that are not
    std::string tried;
    for (const char* const name : names) {
        auto opened = DynamicLibrary::open(name, "");
        if (opened) {
            return opened;
        }
        words += opened.error().hint;
        tried += fmt::format("{}{}", tried.empty() ? "" : ", ", name);
    }
    return fail(ENOENT, "dlopen", tried, words + hint);
}

std::string version_text(int version) {
    return version % 100'000 == 0
               ? fmt::format("{}.{}", major_of(version), version / 100'000 % 100)
               : fmt::format("{}.{}.{}", major_of(version), version / 100'000 % 100, version % 100'000);
}

Error Hip::Driver::error(Status status, std::string operation, std::string subject, std::string hint) const {
    Error result;
    result.domain = ErrorDomain::vendor;
    result.code = status;
    result.operation = std::move(operation);
    result.subject = std::move(subject);
    result.hint = std::move(hint);
    const char* const name = api.error_name ? api.error_name(status) : nullptr;
    // HIP calls a number that it does not know by the name of another.
    const bool named = name != nullptr && (status == unknown || std::string_view{name} != "hipErrorUnknown");
    result.code_name = named ? name : fmt::format("hipError_t {}", status);
    return result;
}

tl::unexpected<Error> Hip::Driver::missing(const TableEntry& function, const std::string& subject) const {
    if (version >= function.since) {
        return fail(
            ENOSYS, function.name, subject,
            fmt::format("The function comes with HIP {}, and this runtime of HIP {} lacks it: it is not AMD's own, "
                        "or broken; install ROCm anew.",
                        version_text(function.since), version_text(version)));
    }
    return fail(ENOSYS, function.name, subject,
                fmt::format("The function comes with HIP {}, and this runtime is of HIP {}: install a newer ROCm.",
                            version_text(function.since), version_text(version)));
}

std::string Hip::Driver::at(DevicePointer pointer) {
    return fmt::format("device address {:#x}", pointer.value());
}

Hip::Driver::~Driver() {
    if (module != nullptr && api.module_unload) {
        const Current current{api, ordinal};
        if (current.status() == success) {
            api.module_unload(module);
        }
    }
}

Result<Hip> Hip::open(os::System& system, Options options) {
    auto library = open_library(options);
    if (!library) {
        return tl::unexpected{std::move(library.error())};
    }
    const std::string name = library->name();
    auto driver = std::make_shared<Driver>(system, std::move(*library), std::move(options.compiler));
    const Api& api = driver->api;
    look_up(api.all, driver->library);
    for (const TableEntry* const needed : std::initializer_list<const TableEntry*>{
             &api.runtime_version, &api.device_count, &api.current_device, &api.set_device, &api.device_get,
             &api.allocate, &api.free, &api.address_range, &api.copy_to_device, &api.copy_to_host}) {
        if (needed->address == nullptr) {
            return fail(ENOSYS, "open HIP", name,
                        fmt::format("It has no {}: it is no HIP runtime, or too old. UPCIE_HIP_LIBRARY names another.",
                                    needed->name));
        }
    }
    driver->library.keep(); // from here on it has a say in how it ends
    Identity& identity = driver->identity;
    if (api.runtime_version(&identity.runtime_version) != success) {
        identity.runtime_version = 0;
    }
    if (!api.driver_version || api.driver_version(&identity.driver_version) != success) {
        identity.driver_version = 0;
    }
    driver->version = identity.runtime_version != 0 ? identity.runtime_version : identity.driver_version;
    const Major* const major = major_of_version(driver->version);
    if (major == nullptr) {
        return fail(ENOTSUP, "open HIP", name,
                    fmt::format("It is of HIP {}, whose structures this library does not know: known are the majors "
                                "{}. Install a ROCm of one of them, or name its library in UPCIE_HIP_LIBRARY.",
                                version_text(driver->version), known_majors_text()));
    }
    int count = 0;
    if (auto done = driver->call(api.device_count, name, no_gpu, &count); !done) {
        return tl::unexpected{std::move(done.error())};
    }
    if (options.device < 0 || options.device >= count) {
        return fail(ENODEV, "open HIP", fmt::format("device {}", options.device),
                    count == 0 ? no_gpu : fmt::format("There are devices 0 to {}.", count - 1));
    }
    driver->ordinal = options.device;
    const std::string subject = fmt::format("device {}", options.device);
    if (auto done = driver->call(api.device_get, subject, no_gpu, &driver->device, options.device); !done) {
        return tl::unexpected{std::move(done.error())};
    }
    identity.kernel_driver = os::read_text(system, kernel_version_file).value_or("");
    if (auto done = driver->on_device([&]() -> Result<void> {
            driver->identify(*major);
            return {};
        });
        !done) {
        return tl::unexpected{std::move(done.error())};
    }
    return Hip{std::move(driver)};
}

void Hip::Driver::identify(const Major& major) {
    char text[256]{};
    if (api.device_name && api.device_name(text, sizeof text - 1, device) == success) {
        identity.name = text;
    }
    if (api.device_pci && api.device_pci(text, sizeof text - 1, ordinal) == success) {
        PciPlace place = find_pci_place(system, text);
        identity.pci = std::move(place.address);
        identity.bars = std::move(place.bars);
    }
    if (Uuid uuid{}; offers(api.device_uuid) && api.device_uuid(&uuid, device) == success) {
        std::memcpy(identity.uuid.data(), uuid.bytes, identity.uuid.size());
    }
    if (std::size_t memory = 0; api.device_memory && api.device_memory(&memory, device) == success) {
        identity.memory = ByteCount{memory};
    }
    if (int value = 0; api.device_attribute && api.device_attribute(&value, major.large_bar, ordinal) == success) {
        identity.large_bar = value != 0;
    }
    std::vector<char> properties(properties_room);
    const auto& ask = major.properties_of_6 ? api.properties_of_6 : api.properties_of_5;
    if (ask && ask(properties.data(), ordinal) == success) {
        const char* const arch = properties.data() + major.arch_name_offset;
        identity.arch.assign(arch, ::strnlen(arch, arch_name_length));
    }
    const AllocationProperties wanted = allocation_properties();
    if (std::size_t granule = 0;
        offers(api.granularity) && api.granularity(&granule, &wanted, granularity_minimum) == success) {
        granularity = ByteCount{granule};
    }
}

std::string Hip::describe() const {
    const Identity& identity = driver_->identity;
    return fmt::format("HIP {} on {} ({}) at {}", version_text(driver_->version),
                       identity.name.empty() ? "a GPU without a name" : identity.name,
                       identity.arch.empty() ? "of unknown architecture" : identity.arch,
                       identity.pci.empty() ? "an unknown address" : identity.pci);
}

const Identity& Hip::identity() const noexcept {
    return driver_->identity;
}

ByteCount Hip::reported_granularity() const {
    return driver_->granularity;
}

} // namespace upcie::gpu::hip
