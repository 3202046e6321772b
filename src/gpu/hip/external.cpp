// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <fcntl.h>

#include "gpu/hip/driver.hpp"

namespace upcie::gpu::hip {

namespace {

constexpr const char* not_importable =
    "HIP imports what HIP, Vulkan or OpenGL exported of the same GPU, under the type that it was exported as; dma-bufs "
    "are not among it. To reach a device's memory from the other side, export this GPU's and import it there.";

} // namespace

Result<DevicePointer> Hip::Driver::import_opaque(int fd, ByteCount length, const std::string& subject) {
    os::Fd given{system, system.fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    if (!given) {
        const int code = errno;
        return fail(code, "fcntl(F_DUPFD_CLOEXEC)", subject,
                    "It has to be an open descriptor, and the process must be allowed one more (ulimit -n).");
    }
    ExternalMemoryDescriptor descriptor;
    descriptor.type = external_memory_opaque_fd;
    descriptor.handle.fd = given.get();
    descriptor.size = length.value();
    ExternalMemory memory = nullptr;
    auto done = call(api.external_import, subject, not_importable, &memory,
                     static_cast<const ExternalMemoryDescriptor*>(&descriptor));
    if (!done) {
        return tl::unexpected{std::move(done.error())};
    }
    static_cast<void>(given.release()); // HIP's now
    ExternalBufferDescriptor buffer;
    buffer.size = length.value();
    void* address = nullptr;
    done = call(api.external_map, subject, not_importable, &address, memory,
                static_cast<const ExternalBufferDescriptor*>(&buffer));
    if (!done) {
        static_cast<void>(call(api.external_destroy, subject, unexpected_by_hip, memory));
        return tl::unexpected{std::move(done.error())};
    }
    const std::lock_guard lock{mutex};
    external[device_pointer(address).value()] = {ExternalHandle::opaque_fd, memory};
    return device_pointer(address);
}

Result<DevicePointer> Hip::Driver::import_shareable(int fd, ByteCount length, const std::string& subject) {
    const auto bytes = whole_granules(length, subject);
    if (!bytes) {
        return tl::unexpected{bytes.error()};
    }
    void* const handed = version >= handle_by_value_since
                             ? reinterpret_cast<void*>(static_cast<std::uintptr_t>(static_cast<unsigned>(fd)))
                             : static_cast<void*>(&fd);
    MemoryHandle handle = nullptr;
    if (auto done = call(api.vmm_import, subject, not_importable, &handle, handed, handle_posix_file_descriptor);
        !done) {
        return tl::unexpected{std::move(done.error())};
    }
    auto mapped = map_vmm(handle, *bytes, subject);
    if (mapped) {
        const std::lock_guard lock{mutex};
        external[mapped->value()] = {ExternalHandle::shareable_handle};
    }
    return mapped;
}

Result<DevicePointer> Hip::import_external(ExternalHandle kind, int fd, ByteCount length) {
    Driver& driver = *driver_;
    const std::string subject = fmt::format("{} bytes of descriptor {} as {}", length.value(), fd, to_string(kind));
    if (length == ByteCount{}) {
        return fail(EINVAL, "import memory", subject, "Ask for at least one byte.");
    }
    if (kind == ExternalHandle::dma_buf_fd) {
        return fail(
            ENOTSUP, "import memory", subject,
            "HIP has no handle type for a dma-buf: its enumeration ends at NvSciBuf. To reach a device's memory "
            "from the other side, export this GPU's and import it there.");
    }
    return driver.on_device([&] {
        return kind == ExternalHandle::opaque_fd ? driver.import_opaque(fd, length, subject)
                                                 : driver.import_shareable(fd, length, subject);
    });
}

Result<void> Hip::release_external(DevicePointer base) {
    Driver& driver = *driver_;
    const Api& api = driver.api;
    Driver::External made;
    {
        const std::lock_guard lock{driver.mutex};
        const auto place = driver.external.find(base.value());
        if (place == driver.external.end()) {
            return fail(EINVAL, "release imported memory", Driver::at(base),
                        "It is not what import_external() answered, or was released before.");
        }
        made = place->second;
        driver.external.erase(place);
    }
    return driver.on_device([&]() -> Result<void> {
        if (made.kind == ExternalHandle::shareable_handle) {
            return driver.unmap_vmm(base);
        }
        // The mapped buffer first, then what it is of (hipExternalMemoryGetMappedBuffer).
        auto first = driver.call(api.free, Driver::at(base), unexpected_by_hip, Driver::raw(base));
        auto next = driver.call(api.external_destroy, Driver::at(base), unexpected_by_hip, made.memory);
        return first ? next : first;
    });
}

} // namespace upcie::gpu::hip
