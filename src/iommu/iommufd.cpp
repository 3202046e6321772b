// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/iommu/iommufd.hpp>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>

#include <iommu/hints.hpp>
#include <uapi/iommufd.hpp>

namespace upcie::iommu {

namespace {

constexpr const char* device_path = "/dev/iommu";

std::string ioas_name(std::uint32_t ioas_id) {
    return fmt::format("IOAS {}", ioas_id);
}

std::string open_hint(int code) {
    switch (code) {
    case ENOENT:
        return "This kernel has no iommufd: CONFIG_IOMMUFD is off (as in Debian's stock kernels) or its module is not "
               "loaded (`modprobe iommufd`). The other ways are a vfio group with type1, or uio with hugepages.";
    case EACCES:
    case EPERM:
        return "This user may not open it: give its group the right, for good with a udev rule such as "
               "KERNEL==\"iommu\", GROUP=\"vfio\", MODE=\"0660\".";
    case ENODEV:
    case ENXIO:
        return "The node is there without its driver: `modprobe iommufd`.";
    case EMFILE:
        return "This process has no descriptor left: raise its limit (ulimit -n, LimitNOFILE=).";
    default:
        return {};
    }
}

std::string object_hint(int code) {
    switch (code) {
    case ENOENT:
        return "This iommufd has no object of that id: an id is good with the very iommufd that made it.";
    case EBUSY:
        return "It is in use: close or detach the devices attached to it first.";
    case ENOTTY:
        return "The descriptor is not one of /dev/iommu, or the kernel is older than this call.";
    case EBADF:
        return "The descriptor is not open.";
    default:
        return {};
    }
}

constexpr const char* iommufd_accounting =
    "iommufd charges the user, all its processes together, unless IOMMU_OPTION_RLIMIT_MODE says per process.";

/// Hints that mapping by address and by file have in common.
std::string map_hint(os::System& system, int code, ByteCount length) {
    switch (code) {
    case ENOMEM:
        return memlock_hint(system, length, iommufd_accounting);
    case EINVAL:
        return "Start, length and IOVA must be multiples of the IOAS's alignment, the IOVA inside its ranges (not in "
               "the MSI "
               "window, not above the aperture), and a file's part inside the file.";
    case EEXIST:
    case EADDRINUSE:
        return "Something is mapped at that IOVA already, by this process or by another that shares the IOAS.";
    case ENOSPC:
        return "The IOAS has no free stretch of that length: unmap what is not used.";
    default:
        return object_hint(code);
    }
}

std::string map_memory_hint(os::System& system, int code, ByteCount length) {
    if (code == EFAULT) {
        return "The range is not ordinary memory of this process all through: a mapped BAR, udmabuf or dma-heap cannot "
               "be "
               "mapped by address (use map_file with its memfd or vfio dma-buf), nor can a hole.";
    }
    return map_hint(system, code, length);
}

std::string map_file_hint(os::System& system, int code, ByteCount length) {
    switch (code) {
    case EOPNOTSUPP:
        return "The kernel maps memfds, and since Linux 7.x vfio dma-bufs of a single range; udmabufs, dma-heaps and "
               "GPU "
               "dma-bufs are refused. For a udmabuf give the memfd behind it.";
    case EINVAL:
        return "Offset and length must be aligned and lie inside the file; of files only memfds and vfio dma-bufs can "
               "be "
               "mapped.";
    case ENODEV:
        return "The exporter of the dma-buf has revoked it: the device's memory decode is off, it is in reset, or it "
               "was "
               "closed.";
    case ENOTTY:
        return "IOMMU_IOAS_MAP_FILE needs Linux 6.13: map by address instead.";
    case EBADF:
        return "The descriptor to map, or the iommufd, is not open.";
    default:
        return map_hint(system, code, length);
    }
}

std::uint32_t map_flags(Access access, bool fixed) noexcept {
    const auto bits = static_cast<unsigned>(access);
    std::uint32_t flags = fixed ? uapi::iommu_ioas_map_fixed_iova : 0U;
    if ((bits & static_cast<unsigned>(Access::read)) != 0) {
        flags |= uapi::iommu_ioas_map_readable;
    }
    if ((bits & static_cast<unsigned>(Access::write)) != 0) {
        flags |= uapi::iommu_ioas_map_writeable;
    }
    return flags;
}

std::uint64_t as_number(const void* pointer) noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

/// Every iommufd structure begins with its own size.
template <class Argument>
Argument sized() noexcept {
    Argument argument{};
    argument.size = sizeof(Argument);
    return argument;
}

template <class Argument>
int call(os::System& system, int fd, unsigned long request, Argument& argument) {
    // A signal may end a long pinning early; the kernel has undone it by then.
    int answer = -1;
    do {
        answer = system.ioctl(fd, request, &argument);
    } while (answer < 0 && errno == EINTR);
    return answer;
}

std::string at_iova(std::optional<Iova> fixed) {
    return fixed ? fmt::format(" at IOVA 0x{:x}", fixed->value()) : std::string{};
}

} // namespace

Result<std::shared_ptr<Iommufd>> Iommufd::open(os::System& system) {
    auto fd = os::open_file(system, device_path, O_RDWR);
    if (!fd) {
        Error error = std::move(fd.error());
        const std::string hint = open_hint(error.code);
        if (!hint.empty()) {
            error.hint = hint;
        }
        return tl::unexpected{std::move(error)};
    }
    return adopt(system, std::move(*fd));
}

Result<std::shared_ptr<Iommufd>> Iommufd::adopt(os::System& system, os::Fd fd) {
    if (!fd) {
        return fail(EBADF, "adopt iommufd", device_path, "There is no descriptor.");
    }
    return std::shared_ptr<Iommufd>{new Iommufd{system, std::move(fd)}};
}

Result<std::uint32_t> Iommufd::allocate_ioas() {
    auto argument = sized<uapi::IommuIoasAlloc>();
    if (call(system_, fd(), uapi::iommu_ioas_alloc, argument) != 0) {
        const int code = errno;
        return fail(code, "IOMMU_IOAS_ALLOC", device_path, object_hint(code));
    }
    return argument.out_ioas_id;
}

Result<void> Iommufd::destroy(std::uint32_t id) {
    auto argument = sized<uapi::IommuDestroy>();
    argument.id = id;
    if (call(system_, fd(), uapi::iommu_destroy, argument) != 0) {
        const int code = errno;
        return fail(code, "IOMMU_DESTROY", fmt::format("object {}", id), object_hint(code));
    }
    return {};
}

Result<IoasRanges> Iommufd::iova_ranges(std::uint32_t ioas_id) {
    std::vector<uapi::IommuIovaRange> room(8);
    // EMSGSIZE says that there are more, and how many. Attaching a device meanwhile can add some: ask a few times.
    for (int attempt = 0; attempt < 8; ++attempt) {
        auto argument = sized<uapi::IommuIoasIovaRanges>();
        argument.ioas_id = ioas_id;
        argument.num_iovas = static_cast<std::uint32_t>(room.size());
        argument.allowed_iovas = as_number(room.data());
        if (call(system_, fd(), uapi::iommu_ioas_iova_ranges, argument) != 0) {
            const int code = errno;
            if (code == EMSGSIZE && argument.num_iovas > room.size() && argument.num_iovas < (1U << 20)) {
                room.resize(argument.num_iovas);
                continue;
            }
            return fail(code, "IOMMU_IOAS_IOVA_RANGES", ioas_name(ioas_id), object_hint(code));
        }
        if (argument.num_iovas > room.size()) {
            return fail(EPROTO, "IOMMU_IOAS_IOVA_RANGES", ioas_name(ioas_id), "More ranges were answered than fit.");
        }
        IoasRanges answer;
        answer.alignment = ByteCount{argument.out_iova_alignment};
        for (std::uint32_t i = 0; i < argument.num_iovas; ++i) {
            answer.ranges.push_back({Iova{room[i].start}, Iova{room[i].last}});
        }
        return answer;
    }
    return fail(EAGAIN, "IOMMU_IOAS_IOVA_RANGES", ioas_name(ioas_id), "The ranges keep changing: try again.");
}

Result<void> Iommufd::allow_iovas(std::uint32_t ioas_id, std::span<const IovaRange> ranges) {
    std::vector<uapi::IommuIovaRange> list;
    for (const IovaRange& range : ranges) {
        list.push_back({range.first.value(), range.last.value()});
    }
    auto argument = sized<uapi::IommuIoasAllowIovas>();
    argument.ioas_id = ioas_id;
    argument.num_iovas = static_cast<std::uint32_t>(list.size());
    argument.allowed_iovas = as_number(list.data());
    if (call(system_, fd(), uapi::iommu_ioas_allow_iovas, argument) != 0) {
        const int code = errno;
        const std::string hint = code == EADDRINUSE || code == EINVAL
                                     ? "The ranges must not overlap each other, what devices reserve or what is mapped."
                                     : object_hint(code);
        return fail(code, "IOMMU_IOAS_ALLOW_IOVAS", ioas_name(ioas_id), hint);
    }
    return {};
}

Result<Iova> Iommufd::map(std::uint32_t ioas_id, void* start, ByteCount length, Access access,
                          std::optional<Iova> fixed) {
    auto argument = sized<uapi::IommuIoasMap>();
    argument.flags = map_flags(access, fixed.has_value());
    argument.ioas_id = ioas_id;
    argument.user_va = as_number(start);
    argument.length = length.value();
    argument.iova = fixed ? fixed->value() : 0;
    if (call(system_, fd(), uapi::iommu_ioas_map, argument) != 0) {
        const int code = errno;
        return fail(code, "IOMMU_IOAS_MAP",
                    fmt::format("{}, memory 0x{:x}, 0x{:x} bytes{}", ioas_name(ioas_id), as_number(start),
                                length.value(), at_iova(fixed)),
                    map_memory_hint(system_, code, length));
    }
    return Iova{argument.iova};
}

Result<Iova> Iommufd::map_file(std::uint32_t ioas_id, int file, ByteCount offset, ByteCount length, Access access,
                               std::optional<Iova> fixed) {
    auto argument = sized<uapi::IommuIoasMapFile>();
    argument.flags = map_flags(access, fixed.has_value());
    argument.ioas_id = ioas_id;
    argument.fd = file;
    argument.start = offset.value();
    argument.length = length.value();
    argument.iova = fixed ? fixed->value() : 0;
    if (call(system_, fd(), uapi::iommu_ioas_map_file, argument) != 0) {
        const int code = errno;
        return fail(code, "IOMMU_IOAS_MAP_FILE",
                    fmt::format("{}, descriptor {} from 0x{:x}, 0x{:x} bytes{}", ioas_name(ioas_id), file,
                                offset.value(), length.value(), at_iova(fixed)),
                    map_file_hint(system_, code, length));
    }
    return Iova{argument.iova};
}

Result<ByteCount> Iommufd::unmap(std::uint32_t ioas_id, Iova iova, ByteCount length) {
    const auto subject = [&] {
        return fmt::format("{}, IOVA 0x{:x}, 0x{:x} bytes", ioas_name(ioas_id), iova.value(), length.value());
    };
    auto argument = sized<uapi::IommuIoasUnmap>();
    argument.ioas_id = ioas_id;
    argument.iova = iova.value();
    argument.length = length.value();
    if (call(system_, fd(), uapi::iommu_ioas_unmap, argument) != 0) {
        const int code = errno;
        return fail(code, "IOMMU_IOAS_UNMAP", subject(),
                    code == ENOENT ? "Nothing is mapped there, or only part of a mapping was named."
                                   : object_hint(code));
    }
    if (argument.length == 0) {
        return fail(ENOENT, "IOMMU_IOAS_UNMAP", subject(), "The kernel unmapped nothing: nothing was mapped there.");
    }
    return ByteCount{argument.length};
}

Result<RlimitMode> Iommufd::rlimit_mode() {
    auto argument = sized<uapi::IommuOption>();
    argument.option_id = uapi::iommu_option_rlimit_mode;
    argument.op = uapi::iommu_option_op_get;
    if (call(system_, fd(), uapi::iommu_option, argument) != 0) {
        const int code = errno;
        return fail(code, "IOMMU_OPTION", "RLIMIT_MODE", object_hint(code));
    }
    if (argument.val64 > 1) {
        return fail(EPROTO, "IOMMU_OPTION", "RLIMIT_MODE",
                    fmt::format("Mode {} is not known to this library.", argument.val64));
    }
    return static_cast<RlimitMode>(argument.val64);
}

Result<void> Iommufd::set_rlimit_mode(RlimitMode mode) {
    auto argument = sized<uapi::IommuOption>();
    argument.option_id = uapi::iommu_option_rlimit_mode;
    argument.op = uapi::iommu_option_op_set;
    argument.val64 = static_cast<std::uint64_t>(mode);
    if (call(system_, fd(), uapi::iommu_option, argument) != 0) {
        const int code = errno;
        std::string hint = object_hint(code);
        if (code == EPERM) {
            hint = "Changing whom the kernel charges needs CAP_SYS_RESOURCE.";
        } else if (code == EBUSY) {
            hint = "The mode can be set only before the first object is made in this iommufd.";
        }
        return fail(code, "IOMMU_OPTION", "RLIMIT_MODE", std::move(hint));
    }
    return {};
}

Result<HardwareInfo> Iommufd::hardware_info(std::uint32_t device_id) {
    std::array<std::byte, 256> room{};
    auto argument = sized<uapi::IommuHwInfo>();
    argument.dev_id = device_id;
    argument.data_len = static_cast<std::uint32_t>(room.size());
    argument.data_uptr = as_number(room.data());
    if (call(system_, fd(), uapi::iommu_get_hw_info, argument) != 0) {
        const int code = errno;
        return fail(code, "IOMMU_GET_HW_INFO", fmt::format("device {}", device_id), object_hint(code));
    }
    HardwareInfo info;
    info.type = argument.out_data_type;
    info.capabilities = argument.out_capabilities;
    // data_len is what the kernel has: it may be more than there was room for.
    const std::size_t filled = std::min<std::size_t>(argument.data_len, room.size());
    info.data.assign(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(filled));
    return info;
}

Result<Extent> Iommufd::physical(std::uint32_t ioas_id, Iova iova, ByteCount length) {
    const auto subject = [&] {
        return fmt::format("{}, IOVA 0x{:x}, 0x{:x} bytes", ioas_name(ioas_id), iova.value(), length.value());
    };
    auto argument = sized<uapi::IommuIoasNoiommuGetPa>();
    argument.ioas_id = ioas_id;
    argument.iova = iova.value();
    argument.length = length.value();
    if (call(system_, fd(), uapi::iommu_ioas_noiommu_get_pa, argument) != 0) {
        const int code = errno;
        std::string hint;
        switch (code) {
        case ENOTTY:
            hint = "IOMMU_IOAS_NOIOMMU_GET_PA needs Linux 7.3: on older kernels use uio_pci_generic with hugepages.";
            break;
        case EOPNOTSUPP:
            hint = "The kernel tells physical addresses for the IOAS of a no-IOMMU device alone (noiommu-vfioN).";
            break;
        case EPERM:
            hint = "Physical addresses need CAP_SYS_RAWIO.";
            break;
        case ENOENT:
            hint = "Nothing is mapped there, or this iommufd has no such IOAS.";
            break;
        default:
            hint = object_hint(code);
        }
        return fail(code, "IOMMU_IOAS_NOIOMMU_GET_PA", subject(), std::move(hint));
    }
    if (argument.length == 0 || argument.length > length.value()) {
        return fail(EPROTO, "IOMMU_IOAS_NOIOMMU_GET_PA", subject(),
                    fmt::format("The kernel answered a run of 0x{:x} bytes.", argument.length));
    }
    return Extent{dma_address(BusAddress{argument.out_phys}), ByteCount{argument.length}};
}

} // namespace upcie::iommu
