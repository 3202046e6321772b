// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <upcie/os/sysfs.hpp>

#include "gpu/cuda/driver.hpp"
#include "gpu/vendor.hpp"

namespace upcie::gpu::cuda {

namespace {

constexpr const char* default_library = "libcuda.so.1";
constexpr const char* kernel_version_file = "/sys/module/nvidia/version";
/// What a library of this project's tests exports: it asks no kernel.
constexpr const char* mark_of_a_fake = "upcie_fake_gpu_library";

std::string version_text(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string library_to_open(const Options& options) {
    if (!options.library.empty()) {
        return options.library;
    }
    const char* const named = std::getenv("UPCIE_CUDA_LIBRARY");
    return named != nullptr && *named != '\0' ? named : default_library;
}

} // namespace

Error Cuda::Driver::error(Status status, std::string operation, std::string subject, std::string hint) const {
    Error result;
    result.domain = ErrorDomain::vendor;
    result.code = status;
    result.operation = std::move(operation);
    result.subject = std::move(subject);
    result.hint = std::move(hint);
    const char* name = nullptr;
    if (!api.error_name || api.error_name(status, &name) != success || name == nullptr) {
        result.code_name = fmt::format("CUresult {}", status);
    } else {
        result.code_name = name;
    }
    return result;
}

tl::unexpected<Error> Cuda::Driver::missing(const TableEntry& function, const std::string& subject) const {
    return fail(ENOSYS, function.name, subject,
                fmt::format("The function comes with CUDA {}, and this driver is of CUDA {}: install a newer driver.",
                            version_text(function.since), version_text(version)));
}

std::string Cuda::Driver::at(DevicePointer pointer) {
    return fmt::format("device address {:#x}", pointer.value());
}

Cuda::Driver::~Driver() {
    if (!context_held) {
        return;
    }
    if (module != nullptr && api.module_unload) {
        const Current current{api, context};
        if (current.status() == success) {
            api.module_unload(module);
        }
    }
    api.context_release(device);
}

Result<Cuda> Cuda::open(os::System& system, Options options) {
    const std::string name = library_to_open(options);
    auto library = DynamicLibrary::open(
        name,
        "Install NVIDIA's driver, or name its library in UPCIE_CUDA_LIBRARY; it comes with the driver and not with "
        "the toolkit.");
    if (!library) {
        return tl::unexpected{std::move(library.error())};
    }
    auto driver = std::make_shared<Driver>(system);
    look_up(driver->api.all, *library);
    const Api& api = driver->api;
    for (const TableEntry* const needed : std::initializer_list<const TableEntry*>{
             &api.init, &api.driver_version, &api.device_count, &api.device_get, &api.context_retain,
             &api.context_release, &api.context_push, &api.context_pop, &api.allocate, &api.free, &api.address_range,
             &api.copy_to_device, &api.copy_to_host}) {
        if (needed->address == nullptr) {
            return fail(
                ENOSYS, "open CUDA", name,
                fmt::format("It has no {}, which came with CUDA {}: it is no driver library of NVIDIA's, or too "
                            "old.",
                            needed->name, version_text(needed->since)));
        }
    }
    const std::string kernel_driver = os::read_text(system, kernel_version_file).value_or("");
    // Without its kernel module the library, run by root, makes device nodes that lead nowhere.
    if (library->symbol(mark_of_a_fake) == nullptr && !os::exists(system, "/sys/module/nvidia") &&
        !os::exists(system, "/proc/driver/nvidia/version")) {
        return fail(ENODEV, "open CUDA", name,
                    "NVIDIA's kernel module is not loaded here: on a machine with such a GPU, modprobe nvidia.");
    }
    library->keep(); // from here on it has a say in how it ends
    static_cast<void>(api.driver_version(&driver->version));
    const std::string no_gpu = "Is there an NVIDIA GPU, and may this user open /dev/nvidia0 and /dev/nvidiactl? "
                               "nvidia-smi tells.";
    if (auto done = driver->call(api.init, name, no_gpu, 0U); !done) {
        return tl::unexpected{std::move(done.error())};
    }
    int count = 0;
    if (auto done = driver->call(api.device_count, name, no_gpu, &count); !done) {
        return tl::unexpected{std::move(done.error())};
    }
    if (options.device < 0 || options.device >= count) {
        return fail(ENODEV, "open CUDA", fmt::format("device {}", options.device),
                    count == 0 ? no_gpu : fmt::format("There are devices 0 to {}.", count - 1));
    }
    const std::string subject = fmt::format("device {}", options.device);
    if (auto done = driver->call(api.device_get, subject, no_gpu, &driver->device, options.device); !done) {
        return tl::unexpected{std::move(done.error())};
    }
    if (auto done = driver->call(api.context_retain, subject,
                                 "Is the GPU in exclusive mode and in use, or out of memory? nvidia-smi tells.",
                                 &driver->context, driver->device);
        !done) {
        return tl::unexpected{std::move(done.error())};
    }
    driver->context_held = true;
    driver->shipped_kernels = options.shipped_kernels;

    Identity& identity = driver->identity;
    identity.driver_api = driver->version;
    identity.kernel_driver = kernel_driver;
    char text[128]{};
    if (api.device_name && api.device_name(text, sizeof text - 1, driver->device) == success) {
        identity.name = text;
    }
    if (api.device_pci && api.device_pci(text, sizeof text - 1, driver->device) == success) {
        PciPlace place = find_pci_place(system, text);
        identity.pci = std::move(place.address);
        identity.bars = std::move(place.bars);
    }
    if (Uuid uuid{}; api.device_uuid && api.device_uuid(&uuid, driver->device) == success) {
        std::memcpy(identity.uuid.data(), uuid.bytes, identity.uuid.size());
    }
    if (std::size_t memory = 0; api.device_memory && api.device_memory(&memory, driver->device) == success) {
        identity.memory = ByteCount{memory};
    }
    const auto flag = [&](int number) {
        int value = 0;
        return api.device_attribute && api.device_attribute(&value, number, driver->device) == success && value != 0;
    };
    identity.dma_buf = flag(attribute::dma_buf);
    identity.vmm_rdma = flag(attribute::rdma_with_vmm);
    AllocationProperties properties;
    properties.type = allocation_pinned;
    properties.location = {location_device, driver->device};
    if (std::size_t granularity = 0;
        api.granularity && api.granularity(&granularity, &properties, granularity_minimum) == success) {
        driver->granularity = ByteCount{granularity};
    }
    return Cuda{std::move(driver)};
}

std::string Cuda::describe() const {
    const Identity& identity = driver_->identity;
    return fmt::format("CUDA {} on {} at {}", version_text(identity.driver_api),
                       identity.name.empty() ? "a GPU without a name" : identity.name,
                       identity.pci.empty() ? "an unknown address" : identity.pci);
}

const Identity& Cuda::identity() const noexcept {
    return driver_->identity;
}

ByteCount Cuda::reported_granularity() const {
    return driver_->granularity;
}

} // namespace upcie::gpu::cuda
