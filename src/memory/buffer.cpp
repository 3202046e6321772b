// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/memory/buffer.hpp>

#include <cerrno>
#include <limits>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <upcie/memory/device_exports.hpp>

#include <memory/map_buffer.hpp>

namespace upcie::memory {

namespace {

constexpr std::uint64_t hugepage_bytes = std::uint64_t{2} << 20;

std::string hint_for(int code, Backing backing, ByteCount size) {
    switch (code) {
    case ENOMEM:
        if (backing == Backing::hugepage_2m) {
            const std::uint64_t pages = size.value() / hugepage_bytes;
            return fmt::format(
                "{} hugepages of 2 MiB are not free: reserve them with `echo N > "
                "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages` as root, N at least {} more than "
                "are in use now (hugepages=N on the kernel's command line where memory is fragmented).",
                pages, pages);
        }
        return "No memory is left: free some, or look at this process's limits (ulimit -v, the cgroup's memory.max).";
    case ENOSYS:
        return "This kernel has no memfd_create(2): Linux 3.17 with CONFIG_MEMFD_CREATE is the least.";
    case ENODEV:
    case EINVAL:
        return backing == Backing::hugepage_2m
                   ? "This kernel has no hugepages of 2 MiB: CONFIG_HUGETLBFS is off, or they have another size here."
                   : "The kernel refused a memfd of this size.";
    case EMFILE:
        return "This process has no descriptor left: raise its limit (ulimit -n, LimitNOFILE=).";
    case ENFILE:
        return "The machine has no file left to open: raise fs.file-max.";
    case EFBIG:
        return "The size is beyond RLIMIT_FSIZE (ulimit -f) or what a file may have.";
    default:
        return {};
    }
}

Result<ByteCount> round_up(ByteCount size, std::uint64_t unit) {
    // off_t is signed, so that half of the range is the end of what a file can hold.
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
    if (size.value() == 0 || size.value() > most - (unit - 1)) {
        return fail(EINVAL, "allocate buffer", fmt::format("{} bytes", size.value()),
                    "The size must be at least 1 and fit a file.");
    }
    return ByteCount{(size.value() + unit - 1) / unit * unit};
}

} // namespace

Result<Buffer> Buffer::allocate(os::System& system, ByteCount size, Backing backing) {
    const bool huge = backing == Backing::hugepage_2m;
    const auto rounded = round_up(size, huge ? hugepage_bytes : static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
    if (!rounded) {
        return tl::unexpected{rounded.error()};
    }
    const auto failed = [&](const char* operation) {
        const int code = errno;
        return fail(
            code, operation,
            fmt::format("a buffer of {} bytes of {}", rounded->value(), huge ? "2 MiB pages" : "ordinary pages"),
            hint_for(code, backing, *rounded));
    };
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0U);
    Buffer buffer;
    buffer.backing_ = backing;
    buffer.fd_ = os::Fd{system, system.memfd_create(huge ? "upcie-hugepages" : "upcie", flags)};
    if (!buffer.fd_) {
        return failed("memfd_create");
    }
    if (system.ftruncate(buffer.fd_.get(), static_cast<off_t>(rounded->value())) != 0) {
        return failed("ftruncate");
    }
    // A process that the descriptor is passed to must not be able to cut the memory away under a device (and us:
    // SIGBUS). udmabuf demands the same seal.
    if (system.fcntl(buffer.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return failed("F_ADD_SEALS");
    }
    auto mapping = os::Mapping::map(system, buffer.fd_.get(), 0, *rounded);
    if (!mapping) {
        Error error = std::move(mapping.error());
        error.hint = hint_for(error.code, backing, *rounded);
        return tl::unexpected{std::move(error)};
    }
    buffer.mapping_ = std::move(*mapping);
    return buffer;
}

DmaBuffer& DmaBuffer::operator=(DmaBuffer&& other) noexcept {
    if (this != &other) {
        // The device's way to the old memory goes before the memory.
        mapping_ = std::move(other.mapping_);
        buffer_ = std::move(other.buffer_);
        mapped_by_file_ = other.mapped_by_file_;
    }
    return *this;
}

Result<DmaBuffer> DmaBuffer::allocate(os::System& system, const std::shared_ptr<iommu::AddressSpace>& space,
                                      ByteCount size) {
    if (!space) {
        return fail(EINVAL, "allocate DMA buffer", fmt::format("{} bytes", size.value()), "There is no address space.");
    }
    // Where pages are translated in units above the host's, the buffer has to fill them.
    const auto rounded = round_up(size, space->granule().value());
    if (!rounded) {
        return tl::unexpected{rounded.error()};
    }
    auto buffer = Buffer::allocate(system, *rounded, space->needs_hugepages() ? Backing::hugepage_2m : Backing::plain);
    if (!buffer) {
        return tl::unexpected{std::move(buffer.error())};
    }
    return map(std::move(*buffer), space);
}

Buffer::DeviceMemory::~DeviceMemory() {
    if (owned) {
        static_cast<void>(exports->runtime().free(start)); // nobody is left to tell
    }
}

Result<Buffer> Buffer::allocate_on_device(std::shared_ptr<DeviceExports> exports, ByteCount size) {
    const auto start = exports->runtime().allocate(size);
    if (!start) {
        return tl::unexpected{start.error()};
    }
    Buffer buffer;
    buffer.backing_ = Backing::device;
    buffer.device_ = std::make_unique<const DeviceMemory>(std::move(exports), *start, size, true);
    return buffer;
}

Result<Buffer> Buffer::of_device_memory(std::shared_ptr<DeviceExports> exports, DevicePointer start, ByteCount length) {
    const std::uint64_t bytes = length.value();
    if (bytes == 0 || bytes - 1 > std::numeric_limits<std::uint64_t>::max() - start.value()) {
        return fail(EINVAL, "take device memory", fmt::format("{} bytes at device address {:#x}", bytes, start.value()),
                    "Pass a range that is not empty and does not wrap.");
    }
    for (const DevicePointer end : {start, start + ByteCount{bytes - 1}}) {
        if (const auto found = exports->runtime().allocation_of(end); !found) {
            return fail(EFAULT, "take device memory",
                        fmt::format("{} bytes at device address {:#x}", bytes, start.value()),
                        fmt::format("At {:#x} there is no memory of {}: {}", end.value(), exports->runtime().describe(),
                                    found.error().message()));
        }
    }
    Buffer buffer;
    buffer.backing_ = Backing::device;
    buffer.device_ = std::make_unique<const DeviceMemory>(std::move(exports), start, length, false);
    return buffer;
}

Result<MappedBuffer> map_buffer(iommu::AddressSpace& space, const Buffer& buffer) {
    auto mapping = space.map_file(buffer.fd(), ByteCount{0}, buffer.size());
    const bool by_file = mapping.has_value();
    // Type1 maps by address alone (EOPNOTSUPP), iommufd before Linux 6.13 as well (ENOTTY). Anything else is a failure.
    if (!mapping && (mapping.error().is(EOPNOTSUPP) || mapping.error().is(ENOTTY))) {
        mapping = space.map_memory(buffer.data(), buffer.size());
    }
    if (!mapping) {
        return tl::unexpected{std::move(mapping.error())};
    }
    return MappedBuffer{std::move(*mapping), by_file};
}

Result<DmaBuffer> DmaBuffer::map(Buffer&& buffer, const std::shared_ptr<iommu::AddressSpace>& space) {
    if (!buffer || !space) {
        return fail(EINVAL, "map buffer", buffer ? "no address space" : "an empty buffer", "There is nothing to map.");
    }
    if (buffer.on_device()) {
        return fail(ENOTSUP, "map buffer", "device memory",
                    "Only a Registry maps device memory: Registry::register_buffer().");
    }
    auto mapped = map_buffer(*space, buffer);
    if (!mapped) {
        return tl::unexpected{std::move(mapped.error())};
    }
    DmaBuffer result;
    result.buffer_ = std::move(buffer);
    result.mapping_ = std::move(mapped->mapping);
    result.mapped_by_file_ = mapped->by_file;
    return result;
}

Result<iommu::Extent> DmaBuffer::at(ByteCount offset) const {
    std::uint64_t left = offset.value();
    for (const iommu::Extent& extent : mapping_.extents()) {
        if (left < extent.length.value()) {
            return iommu::Extent{extent.address + ByteCount{left}, extent.length - ByteCount{left}};
        }
        left -= extent.length.value();
    }
    return fail(EINVAL, "translate",
                fmt::format("offset 0x{:x} of a buffer of 0x{:x} bytes", offset.value(), size().value()),
                "The offset is not inside the buffer.");
}

} // namespace upcie::memory
