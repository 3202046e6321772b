// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <fcntl.h>

#include "gpu/cuda/driver.hpp"

// Memory of others: of another driver, as a descriptor, and of another GPU.
namespace upcie::gpu::cuda {

Result<os::Fd> Cuda::export_shareable(DevicePointer base) {
    Driver& driver = *driver_;
    MemoryHandle handle = 0;
    {
        const std::lock_guard lock{driver.mutex};
        const auto place = driver.vmm.find(base.value());
        if (place == driver.vmm.end()) {
            return fail(EINVAL, "export VMM memory", Driver::at(base),
                        "It is not the base of live VMM memory of this object.");
        }
        handle = place->second.first;
    }
    return driver.in_context([&]() -> Result<os::Fd> {
        int fd = -1;
        if (auto done = driver.call(driver.api.vmm_export, Driver::at(base), unexpected, static_cast<void*>(&fd),
                                    handle, shareable_posix_fd, 0ULL);
            !done) {
            return tl::unexpected{std::move(done.error())};
        }
        return os::Fd{driver.system, fd};
    });
}

Result<DevicePointer> Cuda::import_external(ExternalHandle kind, int fd, ByteCount length) {
    Driver& driver = *driver_;
    const Api& api = driver.api;
    const std::string subject = fmt::format("{} bytes behind descriptor {}", length.value(), fd);
    // A driver that takes a descriptor may keep it, one that refuses leaves it: it gets one of its own.
    os::Fd own{driver.system, driver.system.fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    if (!own) {
        const int code = errno;
        return fail(code, "import external memory", subject, "The descriptor has to be open.");
    }
    const std::string hint = fmt::format(
        "CUDA took no {} of another device's memory on the machines that were asked: upcie_probe_vfio_bar_import_cuda "
        "shows what this driver takes.",
        to_string(kind));
    return driver.in_context([&]() -> Result<DevicePointer> {
        if (kind == ExternalHandle::shareable_handle) {
            MemoryHandle handle = 0;
            if (auto done =
                    driver.call(api.vmm_import, subject, hint, &handle,
                                reinterpret_cast<void*>(static_cast<std::uintptr_t>(own.get())), shareable_posix_fd);
                !done) {
                return tl::unexpected{std::move(done.error())};
            }
            auto mapped = driver.map_handle(handle, length.value(), subject);
            if (mapped) {
                const std::lock_guard lock{driver.mutex};
                driver.external[mapped->value()] = {};
            }
            return mapped;
        }
        ExternalDescriptor descriptor;
        descriptor.type = kind == ExternalHandle::dma_buf_fd ? external_dma_buf_fd : external_opaque_fd;
        descriptor.handle.fd = own.get();
        descriptor.size = length.value();
        ExternalMemory memory = nullptr;
        if (auto done = driver.call(api.external_import, subject, hint, &memory, &descriptor); !done) {
            return tl::unexpected{std::move(done.error())};
        }
        if (kind == ExternalHandle::opaque_fd) {
            static_cast<void>(own.release()); // it is the driver's from here on (cuda.h, cuImportExternalMemory)
        }
        ExternalBuffer buffer;
        buffer.size = length.value();
        DeviceAddress address = 0;
        if (auto done = driver.call(api.external_map, subject, hint, &address, memory, &buffer); !done) {
            static_cast<void>(api.external_release(memory));
            return tl::unexpected{std::move(done.error())};
        }
        const std::lock_guard lock{driver.mutex};
        driver.external[address] = {memory, std::move(own)};
        return DevicePointer{address};
    });
}

Result<void> Cuda::release_external(DevicePointer base) {
    Driver& driver = *driver_;
    Driver::External imported;
    {
        const std::lock_guard lock{driver.mutex};
        const auto place = driver.external.find(base.value());
        if (place == driver.external.end()) {
            return fail(EINVAL, "release external memory", Driver::at(base),
                        "It is not what import_external() answered, or was released.");
        }
        imported = std::move(place->second);
        driver.external.erase(place);
    }
    return driver.in_context([&]() -> Result<void> {
        if (imported.memory == nullptr) {
            return driver.unmap_vmm(base);
        }
        // The mapped buffer is freed as memory is, and then what it was a view of.
        auto freed = driver.call(driver.api.free, Driver::at(base), unexpected, base.value());
        auto released = driver.call(driver.api.external_release, Driver::at(base), unexpected, imported.memory);
        return freed ? std::move(released) : std::move(freed);
    });
}

Result<bool> Cuda::can_reach(const Cuda& peer) const {
    const Driver& driver = *driver_;
    int possible = 0;
    auto done = driver.call(driver.api.peer_possible, peer.driver_->identity.pci, unexpected, &possible, driver.device,
                            peer.driver_->device);
    if (!done) {
        return tl::unexpected{std::move(done.error())};
    }
    return possible != 0;
}

Result<void> Cuda::enable_peer_access(const Cuda& peer) {
    Driver& driver = *driver_;
    return driver.in_context([&]() -> Result<void> {
        auto done = driver.call(driver.api.peer_enable, peer.driver_->identity.pci,
                                "The two GPUs have no way to each other that the driver uses: nvidia-smi topo -p2p r "
                                "shows which have. copy_from_peer() works without.",
                                peer.driver_->context, 0U);
        const bool is_enabled =
            !done && done.error().domain == ErrorDomain::vendor && done.error().code == peer_access_is_enabled;
        return is_enabled ? Result<void>{} : std::move(done);
    });
}

Result<void> Cuda::copy_from_peer(DevicePointer to, const Cuda& peer, DevicePointer from, ByteCount length) {
    Driver& driver = *driver_;
    return driver.in_context([&] {
        return driver.call(driver.api.peer_copy,
                           fmt::format("{} bytes from {} of {} to {}", length.value(), Driver::at(from),
                                       peer.driver_->identity.pci, Driver::at(to)),
                           "Both ranges have to lie in live memory of their GPUs.", to.value(), driver.context,
                           from.value(), peer.driver_->context, length.value());
    });
}

} // namespace upcie::gpu::cuda
