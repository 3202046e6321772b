// SPDX-License-Identifier: BSD-3-Clause
// The stub as a runtime: what it exports, and the rest of the flavour.
#include <upcie/gpu/stub.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <upcie/gpu/checksum.hpp>

#include <upcie/dmabuf/udmabuf.hpp>

#include "gpu/stub_device.hpp"

namespace upcie::gpu::stub {

std::string_view to_string(Manner manner) noexcept {
    switch (manner) {
    case Manner::exact:
        return "exact";
    case Manner::whole_object:
        return "whole-object";
    case Manner::suballocated:
        return "suballocated";
    }
    return "unknown";
}

Result<Manner> parse_manner(std::string_view text) {
    for (const Manner manner : {Manner::exact, Manner::whole_object, Manner::suballocated}) {
        if (text == to_string(manner)) {
            return manner;
        }
    }
    return fail(EINVAL, "read a manner", std::string{text}, "It is exact, whole-object or suballocated.");
}

// ---- exports

Result<Export> Stub::Device::make_export(Backing& backing, std::uint64_t offset, std::uint64_t length,
                                         DevicePointer start) {
    if (!udmabuf) {
        const int copy = system.fcntl(backing.memfd.get(), F_DUPFD_CLOEXEC, 0);
        if (copy < 0) {
            return fail(errno, "duplicate a descriptor", "stub device memory", "");
        }
        return Export{os::Fd{system, copy}, ByteCount{offset}, ByteCount{length}, start};
    }
    const dmabuf::MemfdRange all{backing.memfd.get(), ByteCount{offset}, ByteCount{length}};
    auto made = dmabuf::create_udmabuf(system, {&all, 1}, options.udmabuf_node.c_str());
    if (!made) {
        return tl::unexpected{std::move(made.error())};
    }
    struct stat status {};
    if (system.fstat(made->fd(), &status) != 0) {
        return fail(errno, "fstat", "a udmabuf", "");
    }
    exports[status.st_ino] = {backing.start, offset, length};
    return Export{made->release(), ByteCount{}, ByteCount{length}, start};
}

Result<Export> Stub::export_range(DevicePointer start, ByteCount length) {
    const auto refuse = [&](int code, std::string hint) {
        return fail(code, "export a range", range_text(start, length), std::move(hint));
    };
    const std::lock_guard lock{device_->mutex};
    if (device_->options.exports_refused) {
        return refuse(ENOTSUP, "The device exports no memory.");
    }
    Backing* const backing = device_->backing_at(start.value());
    if (backing == nullptr || length.value() == 0) {
        return refuse(EINVAL, "It is no memory of the device, or no bytes.");
    }
    if (backing->revoked) {
        return refuse(ENODEV, "The memory was revoked: the device was reset.");
    }
    if (!backing->holds(start.value(), length.value())) {
        return refuse(EINVAL, fmt::format("It leaves its backing of {} bytes at {:#x}; each backing is exported apart.",
                                          backing->length, backing->start));
    }
    if (device_->options.manner == Manner::whole_object) {
        return device_->make_export(*backing, 0, backing->length, start);
    }
    if (start.value() % page_bytes != 0 || length.value() % page_bytes != 0) {
        return refuse(EINVAL, "Only whole pages are exported: round the start down and the end up.");
    }
    return device_->make_export(*backing, start.value() - backing->start, length.value(), start);
}

Result<dmabuf::ScatterList> Stub::scatter_list(const Export& exported) {
    const std::string subject = fmt::format("export of {} bytes", exported.size.value());
    struct stat status {};
    if (device_->system.fstat(exported.fd.get(), &status) != 0) {
        return fail(errno, "fstat", subject, "The export holds no descriptor.");
    }
    const std::lock_guard lock{device_->mutex};
    Exported range{0, exported.file_offset.value(), exported.size.value()};
    if (const auto real = device_->exports.find(status.st_ino); real != device_->exports.end()) {
        range = real->second;
    } else if (const auto file = device_->memfds.find(status.st_ino); file != device_->memfds.end()) {
        range.backing = file->second;
    } else {
        return fail(EINVAL, "read the scatter list", subject, "It is no export of this device's live memory.");
    }
    const Backing& backing = device_->backings.at(range.backing);
    if (backing.revoked) {
        return fail(ESTALE, "read the scatter list", subject, "The memory was revoked: export it again.");
    }
    std::vector<dmabuf::Segment> segments;
    const std::uint64_t longest = device_->options.segment.value();
    for (const Run& run : backing.runs) {
        const std::uint64_t first = std::max(run.offset, range.offset);
        const std::uint64_t end = std::min(run.offset + run.length, range.offset + range.length);
        for (std::uint64_t at = first; at < end;) {
            const std::uint64_t here = longest == 0 ? end - at : std::min(end - at, longest);
            segments.push_back({DmaAddress{run.address + (at - run.offset)}, ByteCount{here},
                                device_->options.migrates ? dmabuf::SegmentKind::ram : dmabuf::SegmentKind::bar});
            at += here;
        }
    }
    return dmabuf::ScatterList::from_segments(segments, subject);
}

Result<void> Stub::revoke(DevicePointer pointer) {
    const std::lock_guard lock{device_->mutex};
    Backing* const backing = device_->backing_at(pointer.value());
    if (backing == nullptr) {
        return fail(EFAULT, "revoke", fmt::format("device address {:#x}", pointer.value()), "It is in no allocation.");
    }
    backing->revoked = true;
    return {};
}

bool Stub::real_dma_bufs() const {
    return device_->udmabuf;
}

// ---- the rest of the flavour

Result<Stub> Stub::create(os::System& system, Options options) {
    const auto refuse = [](std::string hint) { return fail(EINVAL, "create stub device", "options", std::move(hint)); };
    for (const ByteCount run : options.runs) {
        if (run.value() == 0 || run.value() % page_bytes != 0) {
            return refuse(fmt::format("A run of {} bytes is not whole pages.", run.value()));
        }
    }
    if (options.segment.value() % page_bytes != 0) {
        return refuse("Segments are whole pages.");
    }
    if (options.piece.value() % unit != 0) {
        return refuse(fmt::format("Pieces are multiples of {} bytes.", unit));
    }
    constexpr std::uint64_t most = std::uint64_t{1} << 40;
    if (options.memory.value() == 0 || options.memory.value() > most) {
        return refuse(fmt::format("A device has up to {} bytes of memory, and some.", most));
    }
    options.memory = ByteCount{round_up(options.memory.value(), unit)};
    auto device = std::make_shared<Device>(system, std::move(options));
    // More by a unit, so that the first backing can be aligned.
    const ByteCount reserved = device->options.memory + backing_unit;
    void* const memory =
        system.mmap(nullptr, reserved.value(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return fail(errno, "mmap", fmt::format("{} bytes of address space for device pointers", reserved.value()),
                    "Ask for less device memory, or raise the limit on address space (ulimit -v).");
    }
    device->reservation = os::Mapping{system, memory, reserved};
    device->base = round_up(reinterpret_cast<std::uintptr_t>(device->reservation.data()), unit);
    const std::string& node = device->options.udmabuf_node;
    device->udmabuf = !node.empty() && system.access(node.c_str(), R_OK | W_OK) == 0;
    return Stub{std::move(device)};
}

std::string Stub::describe() const {
    return fmt::format("stub ({}), {}", to_string(device_->options.manner),
                       device_->udmabuf ? "udmabuf dma-bufs" : "memfds in the place of dma-bufs");
}

Result<DevicePointer> Stub::allocate(ByteCount size) {
    if (size.value() == 0) {
        return fail(EINVAL, "allocate device memory", "0 bytes", "Ask for at least one byte.");
    }
    const std::lock_guard lock{device_->mutex};
    if (size > device_->options.memory) {
        return fail(ENOMEM, "allocate device memory", fmt::format("{} bytes", size.value()),
                    fmt::format("The stub has {} bytes.", device_->options.memory.value()));
    }
    const bool small = device_->options.manner == Manner::suballocated && size.value() < small_limit;
    return small ? device_->allocate_small(size.value()) : device_->allocate_large(size.value());
}

Result<void> Stub::free(DevicePointer base) {
    const std::lock_guard lock{device_->mutex};
    const auto found = device_->owned.find(base.value());
    if (found == device_->owned.end()) {
        return fail(EINVAL, "free device memory", fmt::format("device address {:#x}", base.value()),
                    "Give the pointer that allocate() answered, once.");
    }
    for (const std::uint64_t allocation : found->second) {
        device_->drop(allocation);
    }
    device_->owned.erase(found);
    return {};
}

Result<Allocation> Stub::allocation_of(DevicePointer pointer) {
    const std::lock_guard lock{device_->mutex};
    const auto* const found = device_->allocation_at(pointer.value());
    if (found == nullptr) {
        return fail(EFAULT, "find an allocation", fmt::format("device address {:#x}", pointer.value()),
                    "The pointer lies in no live allocation of this device.");
    }
    return Allocation{DevicePointer{found->first}, ByteCount{found->second}};
}

Result<DevicePointer> Stub::register_mmio(void* start, ByteCount length) {
    const auto address = reinterpret_cast<std::uintptr_t>(start);
    if (length.value() == 0 || address % page_bytes != 0 || length.value() % page_bytes != 0 ||
        length.value() - 1 > ~std::uint64_t{0} - address) {
        return fail(EINVAL, "register MMIO", fmt::format("{} bytes at {:#x}", length.value(), address),
                    "Give whole pages of a mapped region.");
    }
    const std::lock_guard lock{device_->mutex};
    device_->mmio[address] = length.value();
    return DevicePointer{address};
}

Result<void> Stub::unregister_mmio(void* start) {
    const std::lock_guard lock{device_->mutex};
    if (device_->mmio.erase(reinterpret_cast<std::uintptr_t>(start)) == 0) {
        return fail(EINVAL, "unregister MMIO", fmt::format("{}", static_cast<const void*>(start)),
                    "It is not registered.");
    }
    return {};
}

Result<void> Stub::copy_to_device(DevicePointer to, const void* from, ByteCount length) {
    const std::lock_guard lock{device_->mutex};
    const auto place = device_->reach(to, length);
    if (!place) {
        return tl::unexpected{place.error()};
    }
    std::memcpy(*place, from, length.value());
    return {};
}

Result<void> Stub::copy_to_host(void* to, DevicePointer from, ByteCount length) {
    const std::lock_guard lock{device_->mutex};
    const auto place = device_->reach(from, length);
    if (!place) {
        return tl::unexpected{place.error()};
    }
    std::memcpy(to, *place, length.value());
    return {};
}

Result<std::uint64_t> Stub::read_by_kernel(DevicePointer pointer) {
    constexpr ByteCount width{sizeof(std::uint64_t)};
    if (pointer.value() % width.value() != 0) {
        return fail(EINVAL, "read by a kernel", range_text(pointer, width), "Device code reads aligned words.");
    }
    const std::lock_guard lock{device_->mutex};
    std::uint64_t value = 0;
    const auto after = device_->mmio.upper_bound(pointer.value());
    if (after != device_->mmio.begin()) {
        const auto& [start, length] = *std::prev(after);
        if (pointer.value() - start < length) {
            std::memcpy(&value, reinterpret_cast<const void*>(pointer.value()), sizeof value);
            return value;
        }
    }
    const auto place = device_->reach(pointer, width);
    if (!place) {
        return tl::unexpected{place.error()};
    }
    std::memcpy(&value, *place, sizeof value);
    return value;
}

Result<std::uint64_t> Stub::checksum(DevicePointer start, ByteCount length) {
    if (start.value() % 8 != 0 || length.value() % 8 != 0) {
        return fail(EINVAL, "checksum", range_text(start, length), "Start and length have to be multiples of 8.");
    }
    const std::lock_guard lock{device_->mutex};
    const auto place = device_->reach(start, length);
    if (!place) {
        return tl::unexpected{place.error()};
    }
    return gpu::checksum({*place, static_cast<std::size_t>(length.value())});
}

Result<DevicePointer> Stub::import_external(ExternalHandle kind, int fd, ByteCount length) {
    if (kind != ExternalHandle::dma_buf_fd) {
        return fail(ENOTSUP, "import external memory", std::string{to_string(kind)}, "The stub takes dma-bufs alone.");
    }
    auto mapping = os::Mapping::map(device_->system, fd, 0, length);
    if (!mapping) {
        return tl::unexpected{std::move(mapping.error())};
    }
    const auto address = reinterpret_cast<std::uintptr_t>(mapping->data());
    const std::lock_guard lock{device_->mutex};
    device_->mmio[address] = length.value();
    device_->imported.insert_or_assign(address, std::move(*mapping));
    return DevicePointer{address};
}

Result<void> Stub::release_external(DevicePointer base) {
    const std::lock_guard lock{device_->mutex};
    if (device_->imported.erase(static_cast<std::uintptr_t>(base.value())) == 0) {
        return fail(EINVAL, "release external memory", fmt::format("device address {:#x}", base.value()),
                    "It is not what import_external() answered, or was released.");
    }
    device_->mmio.erase(static_cast<std::uintptr_t>(base.value()));
    return {};
}

} // namespace upcie::gpu::stub
