// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/iommu/pagemap.hpp>

#include <cerrno>
#include <limits>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <iommu/hints.hpp>
#include <iommu/smaps.hpp>
#include <upcie/os/sysfs.hpp>

namespace upcie::iommu {

namespace {

constexpr const char* pagemap_path = "/proc/self/pagemap";
constexpr const char* smaps_path = "/proc/self/smaps";
constexpr std::uint64_t hugepage = std::uint64_t{2} << 20;
constexpr std::size_t largest_smaps = std::size_t{64} << 20;

// Documentation/admin-guide/mm/pagemap.rst of the kernel.
constexpr std::uint64_t entry_present = std::uint64_t{1} << 63;
constexpr std::uint64_t entry_frame = (std::uint64_t{1} << 55) - 1;

std::uint64_t page_size() {
    return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string range_text(std::uintptr_t start, ByteCount length) {
    return fmt::format("memory 0x{:x}, 0x{:x} bytes", start, length.value());
}

} // namespace

Result<std::shared_ptr<PagemapAddressSpace>> PagemapAddressSpace::create(os::System& system) {
    auto file = os::open_file(system, pagemap_path, O_RDONLY);
    if (!file) {
        Error error = std::move(file.error());
        if (error.is(ENOENT)) {
            error.hint =
                "The kernel has CONFIG_PROC_PAGE_MONITOR off, or /proc is not mounted: physical addresses cannot "
                "be had this way.";
        }
        if (error.is(EACCES)) {
            error.hint =
                "A process that changed its user loses /proc/self to root (PR_SET_DUMPABLE gives it back); and the "
                "addresses need CAP_SYS_ADMIN in any case.";
        }
        return tl::unexpected{std::move(error)};
    }
    std::shared_ptr<PagemapAddressSpace> space{new PagemapAddressSpace{system, std::move(*file)}};
    // A page that is surely present: this stack's. Better to know now than with the first queue.
    volatile char here = 0;
    here = 1;
    const auto frame = space->frame_of(reinterpret_cast<std::uintptr_t>(&here) / page_size() * page_size());
    if (!frame) {
        return tl::unexpected{frame.error()};
    }
    return space;
}

ByteCount PagemapAddressSpace::granule() const noexcept {
    return ByteCount{hugepage};
}

Result<std::uint64_t> PagemapAddressSpace::frame_of(std::uintptr_t address) {
    const auto subject = fmt::format("{} at 0x{:x}", pagemap_path, address);
    std::uint64_t entry = 0;
    const auto place = static_cast<off_t>(address / page_size() * sizeof entry);
    ssize_t got = -1;
    do {
        got = system_.pread(pagemap_.get(), &entry, sizeof entry, place);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        const int code = errno;
        return fail(code, "read", subject,
                    code == EPERM ? "Physical addresses need CAP_SYS_ADMIN: run as root." : std::string{});
    }
    if (static_cast<std::size_t>(got) != sizeof entry) {
        return fail(EIO, "read", subject, fmt::format("{} of 8 bytes came.", got));
    }
    if ((entry & entry_present) == 0) {
        return fail(EFAULT, "read", subject, "The page is not present: it was not populated, or is swapped out.");
    }
    // Without the capability the kernel answers present pages with frame 0 and no error.
    if ((entry & entry_frame) == 0) {
        return fail(EPERM, "read", subject,
                    "The kernel hides page frame numbers from this process: it needs CAP_SYS_ADMIN (in the first user "
                    "namespace: a container's root has it not). Run as root, or use a device behind an IOMMU.");
    }
    return entry & entry_frame;
}

Result<std::vector<Extent>> PagemapAddressSpace::look_up(std::uintptr_t start, ByteCount length) {
    const auto text = os::read_text(system_, smaps_path, largest_smaps);
    if (!text) {
        return tl::unexpected{text.error()};
    }
    const MemoryKind kind = look_up_smaps(*text, start, length.value());
    if (!kind.mapped) {
        return fail(EFAULT, "map hugepages", range_text(start, length), "Part of it is not mapped in this process.");
    }
    if (kind.smallest_page_kib * 1024 < hugepage) {
        return fail(
            EOPNOTSUPP, "map hugepages", range_text(start, length),
            fmt::format("Its pages are of {} KiB, and the kernel may move or swap such pages while the device "
                        "writes to them: use hugepages (a Buffer of hugepage_2m), or a device behind an IOMMU, where "
                        "memory is pinned.",
                        kind.smallest_page_kib));
    }
    if (!kind.shared) {
        return fail(
            EOPNOTSUPP, "map hugepages", range_text(start, length),
            "It is a private mapping: after a fork, writing replaces its pages by copies that the device does not "
            "know. Map a hugepage memfd with MAP_SHARED (a Buffer of hugepage_2m).");
    }
    // Brings every page in with an error where there is none, in place of the SIGBUS that touching it would be.
    if (system_.mlock(reinterpret_cast<const void*>(start), static_cast<std::size_t>(length.value())) != 0) {
        const int code = errno;
        std::string hint;
        if (code == ENOMEM || code == EPERM || code == EAGAIN) {
            hint = memlock_hint(system_, length, "mlock asks before it locks, hugepages too.") +
                   " It may also be that no hugepage is free: see HugePages_Free in /proc/meminfo.";
        }
        return fail(code, "mlock", range_text(start, length), std::move(hint));
    }
    std::vector<Extent> extents;
    for (std::uint64_t offset = 0; offset < length.value(); offset += hugepage) {
        const auto frame = frame_of(start + offset);
        if (!frame) {
            return tl::unexpected{frame.error()};
        }
        const std::uint64_t address = *frame * page_size();
        if (address % hugepage != 0) {
            return fail(EPROTO, "map hugepages", range_text(start + offset, ByteCount{hugepage}),
                        fmt::format("Physical address 0x{:x} cannot begin a hugepage.", address));
        }
        extents.push_back({dma_address(BusAddress{address}), ByteCount{hugepage}});
    }
    return extents;
}

Result<AddressSpace::Mapped> PagemapAddressSpace::do_map_memory(void* start, ByteCount length, Access) {
    auto extents = look_up(reinterpret_cast<std::uintptr_t>(start), length);
    if (!extents) {
        return tl::unexpected{std::move(extents.error())};
    }
    const std::lock_guard lock{mutex_};
    const std::uint64_t token = next_token_++;
    held_.emplace(token, os::Mapping{});
    return Mapped{token, std::move(*extents)};
}

Result<AddressSpace::Mapped> PagemapAddressSpace::do_map_file(int fd, ByteCount offset, ByteCount length, Access) {
    if (offset.value() > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
        return fail(EINVAL, "map file", fmt::format("descriptor {} from 0x{:x}", fd, offset.value()),
                    "No file is that long.");
    }
    auto mapping = os::Mapping::map(system_, fd, static_cast<off_t>(offset.value()), length);
    if (!mapping) {
        return tl::unexpected{std::move(mapping.error())};
    }
    auto extents = look_up(reinterpret_cast<std::uintptr_t>(mapping->data()), length);
    if (!extents) {
        return tl::unexpected{std::move(extents.error())};
    }
    const std::lock_guard lock{mutex_};
    const std::uint64_t token = next_token_++;
    held_.emplace(token, std::move(*mapping));
    return Mapped{token, std::move(*extents)};
}

Result<void> PagemapAddressSpace::do_unmap(std::uint64_t token, ByteCount) {
    const std::lock_guard lock{mutex_};
    if (held_.erase(token) == 0) {
        return fail(ENOENT, "unmap", describe(), "There is no such mapping.");
    }
    return {};
}

} // namespace upcie::iommu
