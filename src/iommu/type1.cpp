// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/iommu/type1.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <iommu/hints.hpp>
#include <iommu/type1_info.hpp>
#include <uapi/vfio.hpp>

namespace upcie::iommu {

namespace {

constexpr const char* container_path = "/dev/vfio/vfio";
constexpr std::size_t largest_info = std::size_t{1} << 20;

std::string open_hint(int code) {
    switch (code) {
    case ENOENT:
        return "vfio is not there: `modprobe vfio`, or the kernel has CONFIG_VFIO_CONTAINER off (use the cdev with "
               "iommufd "
               "then).";
    case EACCES:
    case EPERM:
        return "This user may not open it; udev's default is mode 0666 for it, the right to a device comes with its "
               "group.";
    case ENODEV:
    case ENXIO:
        return "The node is there without its driver: `modprobe vfio`.";
    default:
        return {};
    }
}

std::string set_container_hint(int code) {
    switch (code) {
    case EINVAL:
        return "The group is not viable (another device of it is bound to a kernel driver), is in another container, "
               "or this "
               "container holds groups of another kind (with and without an IOMMU do not mix).";
    case EPERM:
        return "A no-IOMMU group needs CAP_SYS_RAWIO.";
    case EBUSY:
        return "The group is in use, by another container or through its cdev.";
    case EBADF:
    case ENOTTY:
        return "The descriptor is not an open group.";
    default:
        return {};
    }
}

std::string set_iommu_hint(int code) {
    switch (code) {
    case EPERM:
        return "The platform has no interrupt remapping that would keep a device's MSIs apart: "
               "vfio_iommu_type1.allow_unsafe_interrupts=1 accepts that.";
    case EINVAL:
        return "The group has no IOMMU behind it, or the devices' reserved regions conflict with what is mapped.";
    case ENODEV:
        return "No IOMMU driver takes it: `modprobe vfio_iommu_type1`; and the IOMMU must be on (intel_iommu=on).";
    case ENOMEM:
        return "No memory for the IOMMU domain.";
    default:
        return {};
    }
}

std::string map_hint(os::System& system, int code, ByteCount length) {
    switch (code) {
    case ENOMEM:
        return memlock_hint(system, length, "type1 charges this process's locked memory (VmLck in /proc/self/status).");
    case EEXIST:
        return "Something is mapped at that IOVA already, behind this object's back.";
    case EFAULT:
        return "The range is not memory of this process all through.";
    case ENOSPC:
        return "The container is full: its limit is vfio_iommu_type1.dma_entry_limit, 65535 mappings by default. Map "
               "fewer and "
               "larger pieces.";
    case EINVAL:
        return "The kernel refuses the range: unaligned, or outside the aperture of a group attached since.";
    default:
        return {};
    }
}

std::string range_text(Iova iova, ByteCount length) {
    return fmt::format("IOVA 0x{:x}, 0x{:x} bytes", iova.value(), length.value());
}

ByteCount page() {
    return ByteCount{static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
}

tl::unexpected<Error> not_attached(const char* operation) {
    return fail(
        EINVAL, operation, container_path,
        "No group is attached, so that the container has no IOMMU yet: attach_group() comes before mapping (the "
        "kernel alone would answer a bare EINVAL).");
}

} // namespace

Type1Container::Type1Container(os::System& system, os::Fd fd) noexcept
    : system_{system}, fd_{std::move(fd)}, granule_{page()} {}

Result<std::shared_ptr<Type1Container>> Type1Container::open(os::System& system) {
    auto fd = os::open_file(system, container_path, O_RDWR);
    if (!fd) {
        Error error = std::move(fd.error());
        if (std::string hint = open_hint(error.code); !hint.empty()) {
            error.hint = std::move(hint);
        }
        return tl::unexpected{std::move(error)};
    }
    const int version = system.ioctl_value(fd->get(), uapi::vfio_get_api_version, 0);
    if (version != uapi::vfio_api_version) {
        const int code = version < 0 ? errno : EPROTO;
        return fail(code, "VFIO_GET_API_VERSION", container_path,
                    fmt::format("The answer is {}, this library knows version {}.", version, uapi::vfio_api_version));
    }
    const int extension = system.ioctl_value(fd->get(), uapi::vfio_check_extension, uapi::vfio_type1v2_iommu);
    if (extension <= 0) {
        const int code = extension < 0 ? errno : EOPNOTSUPP;
        return fail(code, "VFIO_CHECK_EXTENSION", container_path,
                    "The kernel has no type1 (v2) IOMMU for vfio: `modprobe vfio_iommu_type1`. Where /dev/vfio/vfio is "
                    "served by iommufd, open the cdev instead.");
    }
    return std::shared_ptr<Type1Container>{new Type1Container{system, std::move(*fd)}};
}

Result<void> Type1Container::attach_group(int group_fd) {
    const std::lock_guard lock{mutex_};
    const auto subject = fmt::format("group descriptor {}", group_fd);
    int container = fd_.get();
    if (system_.ioctl(group_fd, uapi::vfio_group_set_container, &container) != 0) {
        const int code = errno;
        return fail(code, "VFIO_GROUP_SET_CONTAINER", subject, set_container_hint(code));
    }
    const auto undo = [&] { static_cast<void>(system_.ioctl(group_fd, uapi::vfio_group_unset_container, nullptr)); };
    if (groups_ == 0 && system_.ioctl_value(fd_.get(), uapi::vfio_set_iommu, uapi::vfio_type1v2_iommu) != 0) {
        const int code = errno;
        undo();
        return fail(code, "VFIO_SET_IOMMU", subject, set_iommu_hint(code));
    }
    // A group can narrow the aperture: what is handed out from now on must suit all of them.
    if (auto renewed = renew_allocator(); !renewed) {
        undo();
        return renewed;
    }
    ++groups_;
    return {};
}

Result<void> Type1Container::detach_group(int group_fd) {
    const std::lock_guard lock{mutex_};
    if (groups_ == 0) {
        return not_attached("VFIO_GROUP_UNSET_CONTAINER");
    }
    if (system_.ioctl(group_fd, uapi::vfio_group_unset_container, nullptr) != 0) {
        const int code = errno;
        return fail(code, "VFIO_GROUP_UNSET_CONTAINER", fmt::format("group descriptor {}", group_fd),
                    code == EBUSY ? "A device of the group is open: close it first."
                                  : "The group is not in this container.");
    }
    if (--groups_ == 0) {
        live_.clear();
        allocator_.reset();
    }
    return {};
}

Result<Type1Info> Type1Container::read_info() {
    std::vector<std::byte> answer(sizeof(uapi::VfioIommuType1Info));
    // The kernel raises argsz to what it needs; more groups can come in between two calls.
    for (int attempt = 0; attempt < 4; ++attempt) {
        uapi::VfioIommuType1Info head{};
        head.argsz = static_cast<std::uint32_t>(answer.size());
        std::memcpy(answer.data(), &head, sizeof head);
        if (system_.ioctl(fd_.get(), uapi::vfio_iommu_get_info, answer.data()) != 0) {
            const int code = errno;
            return fail(code, "VFIO_IOMMU_GET_INFO", container_path, {});
        }
        std::memcpy(&head, answer.data(), sizeof head);
        if (head.argsz > answer.size()) {
            if (head.argsz > largest_info) {
                return fail(EPROTO, "VFIO_IOMMU_GET_INFO", container_path,
                            fmt::format("The kernel wants to answer {} bytes.", head.argsz));
            }
            answer.assign(head.argsz, std::byte{});
            continue;
        }
        return parse_type1_info(answer);
    }
    return fail(EAGAIN, "VFIO_IOMMU_GET_INFO", container_path, "The answer keeps growing: try again.");
}

Result<Type1Info> Type1Container::info() {
    const std::lock_guard lock{mutex_};
    return groups_ == 0 ? Result<Type1Info>{not_attached("VFIO_IOMMU_GET_INFO")} : read_info();
}

Result<void> Type1Container::renew_allocator() {
    auto told = read_info();
    if (!told) {
        return tl::unexpected{std::move(told.error())};
    }
    const std::uint64_t smallest = told->page_sizes & (~told->page_sizes + 1);
    const ByteCount unit = std::max(ByteCount{smallest}, page());
    auto made = IovaAllocator::create(told->ranges, unit);
    if (!made) {
        return tl::unexpected{std::move(made.error())};
    }
    for (const auto& [token, range] : live_) {
        if (auto kept = made->reserve(range.first, range.second); !kept) {
            return tl::unexpected{std::move(kept.error())};
        }
    }
    granule_ = unit;
    allocator_ = std::move(*made);
    return {};
}

Result<std::vector<IovaRange>> Type1Container::iova_ranges() {
    auto told = info();
    if (!told) {
        return tl::unexpected{std::move(told.error())};
    }
    return std::move(told->ranges);
}

ByteCount Type1Container::granule() const noexcept {
    const std::lock_guard lock{mutex_};
    return granule_;
}

Result<AddressSpace::Mapped> Type1Container::do_map_memory(void* start, ByteCount length, Access access) {
    const std::lock_guard lock{mutex_};
    if (!allocator_) {
        return not_attached("VFIO_IOMMU_MAP_DMA");
    }
    const auto iova = allocator_->allocate(length);
    if (!iova) {
        return tl::unexpected{iova.error()};
    }
    uapi::VfioDmaMap argument{};
    argument.argsz = sizeof argument;
    const auto bits = static_cast<unsigned>(access);
    argument.flags = ((bits & static_cast<unsigned>(Access::read)) != 0 ? uapi::vfio_dma_map_flag_read : 0U) |
                     ((bits & static_cast<unsigned>(Access::write)) != 0 ? uapi::vfio_dma_map_flag_write : 0U);
    argument.vaddr = reinterpret_cast<std::uintptr_t>(start);
    argument.iova = iova->value();
    argument.size = length.value();
    int answer = -1;
    do {
        answer = system_.ioctl(fd_.get(), uapi::vfio_iommu_map_dma, &argument);
    } while (answer != 0 && errno == EINTR);
    if (answer != 0) {
        const int code = errno;
        // Where the kernel says that something is there, the address stays out of use.
        if (code != EEXIST) {
            static_cast<void>(allocator_->free(*iova, length));
        }
        return fail(code, "VFIO_IOMMU_MAP_DMA",
                    fmt::format("memory 0x{:x} at {}", argument.vaddr, range_text(*iova, length)),
                    map_hint(system_, code, length));
    }
    const std::uint64_t token = next_token_++;
    live_.emplace(token, std::pair{*iova, length});
    return Mapped{token, {Extent{dma_address(*iova), length}}};
}

Result<AddressSpace::Mapped> Type1Container::do_map_file(int fd, ByteCount offset, ByteCount length, Access) {
    return fail(EOPNOTSUPP, "map file",
                fmt::format("descriptor {} from 0x{:x}, 0x{:x} bytes", fd, offset.value(), length.value()),
                "Type1 maps by address alone: mmap the file and use map_memory, or open the device through iommufd.");
}

Result<void> Type1Container::do_unmap(std::uint64_t token, ByteCount length) {
    const std::lock_guard lock{mutex_};
    const auto entry = live_.find(token);
    if (entry == live_.end()) {
        return {}; // went with the last group: see detach_group
    }
    const Iova iova = entry->second.first;
    uapi::VfioDmaUnmap argument{};
    argument.argsz = sizeof argument;
    argument.iova = iova.value();
    argument.size = length.value();
    if (system_.ioctl(fd_.get(), uapi::vfio_iommu_unmap_dma, &argument) != 0) {
        const int code = errno;
        return fail(code, "VFIO_IOMMU_UNMAP_DMA", range_text(iova, length),
                    "Part of a mapping cannot be unmapped, and nothing can once every group was closed.");
    }
    // The kernel calls it a success to have unmapped nothing.
    if (argument.size != length.value()) {
        return fail(argument.size == 0 ? ENOENT : EIO, "VFIO_IOMMU_UNMAP_DMA", range_text(iova, length),
                    fmt::format("0x{:x} bytes were unmapped.", argument.size));
    }
    live_.erase(entry);
    return allocator_->free(iova, length);
}

} // namespace upcie::iommu
